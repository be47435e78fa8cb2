# SPDX-License-Identifier: Apache-2.0
"""The command `harness certify`: an operator's settings under a fixed suite of faults, and the sheet of what held."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import terminal
from harness.boundary import end
from harness.cli.parts import store_option
from harness.plan.plan import PlanError
from harness.values import FilePath

if TYPE_CHECKING:
    from rocketmq_harness.advice.properties import Conf
    from rocketmq_harness.certify.running import Order
    from rocketmq_harness.certify.sheet import Sheet

_FOLDER = Path("results/certificates")


@click.command()
@click.argument("sheets", nargs=-1, type=FilePath(), metavar="[SHEET [SHEET]]")
@click.option("--broker-conf", type=FilePath(), metavar="FILE", help="The settings of a broker that may become master.")
@click.option("--controller-conf", type=FilePath(), metavar="FILE", help="The controllers' settings.")
@click.option("--namesrv-conf", type=FilePath(), metavar="FILE", help="The name servers' settings.")
@click.option("--version", help="Version of the servers, such as 5.3.3.")
@click.option(
    "--topology",
    type=click.Choice(("controller", "dledger-commitlog", "master-slave", "slave-acting-master")),
    help="The way in which a group has its master (docs/topologies.md).",
)
@click.option("--replicas", type=click.IntRange(1, 9), help="Brokers of a group, the master included.")
@click.option("--from", "before", metavar="VERSION", help="The version from which you upgrade; without it, no upgrade.")
@click.option("--runs", type=click.IntRange(1, 100), default=1, show_default=True, help="Runs of each fault.")
@click.option("--fault", "chosen", multiple=True, metavar="NAME", help="Only this fault of the suite; can be repeated.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the first run; the next ones count up.")
@click.option("--cluster", default="auto", show_default=True, metavar="NAME", help="Backend, as of harness run.")
@click.option(
    "--output",
    type=FilePath(),
    metavar="FILE",
    help=f"The sheet as JSON.  [default: {_FOLDER}/CONF-TOPOLOGY-VERSION.json]",
)
@click.option("--dry-run", is_flag=True, help="Print the settings that a run would not have, and the plans.")
@store_option
def certify(
    sheets: tuple[Path, ...],
    broker_conf: Path | None,
    controller_conf: Path | None,
    namesrv_conf: Path | None,
    version: str | None,
    topology: str | None,
    replicas: int | None,
    before: str | None,
    runs: int,
    chosen: tuple[str, ...],
    seed: int,
    cluster: str,
    output: Path | None,
    dry_run: bool,
    store: Path,
) -> None:
    """Run your settings under a fixed suite of faults, and make one sheet: what held, the worst loss, the silences.

    The files are taken whole; what a run cannot have as it is there (addresses, paths, sizes of files) is listed on the
    sheet. All other settings are the servers' own defaults, not those of other runs. The suite takes some 20 minutes.
    With one SHEET it is printed, with two they are compared. The exit code is 0 if every promise held in every run, 1
    if one was broken, 2 if nothing was broken and a fault could not be judged. Known findings count as broken.

    \b
    harness certify --broker-conf broker.conf --controller-conf controller.conf \\
        --version 5.5.0 --topology controller --replicas 3 --from 5.3.3
    harness certify results/certificates/old.json results/certificates/new.json
    """
    from rocketmq_harness.certify.sheet import Sheet, compared, lines, verdict

    if sheets:
        if broker_conf is not None or len(sheets) > 2:
            raise PlanError("one sheet is printed, two are compared; --broker-conf runs the suite")
        read = [Sheet.read(path) for path in sheets]
        terminal.say_all(lines(read[0]) if len(read) == 1 else compared(*read))
        return
    for flag, given in (
        ("--broker-conf", broker_conf),
        ("--version", version),
        ("--topology", topology),
        ("--replicas", replicas),
    ):
        if given is None:
            raise PlanError(f"{flag} is missing; harness certify --help has a whole command")
    assert broker_conf is not None
    assert version is not None
    assert topology is not None
    assert replicas is not None
    from infra.systems.rocketmq.servers.artifacts import before as older
    from infra.systems.rocketmq.servers.artifacts import known_version
    from rocketmq_harness.advice.properties import read_conf
    from rocketmq_harness.certify.files import take
    from rocketmq_harness.certify.running import Order, run_all

    version = known_version(version)
    before = known_version(before) if before is not None else None
    if before is not None and not older(before, version):
        raise PlanError(f"--from {before} is not older than --version {version}")
    files = (("broker", broker_conf), ("controller", controller_conf), ("namesrv", namesrv_conf))
    confs = [read_conf(kind, path) for kind, path in files if path is not None]
    order = Order(take(confs, version, topology, replicas), version, before, runs, seed, cluster, store)
    sheet = _sheet(confs, order, replicas, chosen)
    if dry_run:
        _show(sheet, order)
        return
    place = output or _FOLDER / f"{broker_conf.stem}-{topology}-{version}.json"
    run_all(sheet, order, place, terminal.say)
    terminal.say()
    terminal.say_all(lines(sheet))
    terminal.say(f"sheet     {place}")
    end(verdict(sheet).exit_code)


def _sheet(confs: Sequence[Conf], order: Order, replicas: int, chosen: Sequence[str]) -> Sheet:
    """The sheet before its runs. Raises PlanError for a fault that the suite does not have."""
    from importlib.metadata import version as installed

    from rocketmq_harness.advice.contradictions import problems
    from rocketmq_harness.advice.setup import Setup
    from rocketmq_harness.certify.sheet import Row, Sheet
    from rocketmq_harness.certify.suite import UPGRADE, faults

    names = [fault.name for fault in faults()]
    for name in chosen:
        if name not in names:
            raise PlanError(f"--fault {name}: the suite has {', '.join(names)}")
    conf = {one.kind: one for one in confs}
    taken = order.taken
    setup = Setup(order.version, taken.topology, replicas, conf["broker"], conf.get("controller"), conf.get("namesrv"))
    notes = [f"{one.where}: {one.text}" if one.where else one.text for one in problems(setup)]
    notes += [f"no file of a {kind}: it has its own defaults" for kind in taken.absent]
    sheet = Sheet(
        order.version,
        taken.topology,
        replicas,
        files={one.kind: str(one.path) for one in confs},
        changed=[str(one) for one in taken.changed],
        notes=notes,
        harness=f"harness {installed('rocketmq-harness')}, {os.cpu_count()} cores",
    )
    for fault in faults():
        row = Row(fault.name, fault.why)
        sheet.rows.append(row)
        if chosen and fault.name not in chosen:
            row.left_out = "left out by --fault"
        elif fault.name == UPGRADE and order.before is None:
            row.left_out = "left out; --from names the version of today"
    return sheet


def _show(sheet: Sheet, order: Order) -> None:
    """Prints the settings that the runs would not have, and the plans."""
    from rocketmq_harness.certify.suite import faults, plan

    for text in [*sheet.changed, *sheet.notes]:
        terminal.say(f"# {text}")
    for row, fault in zip(sheet.rows, faults(), strict=True):
        if not row.left_out:
            made, _ = plan(fault, order.taken, order.version, order.before, order.cluster, order.seed)
            terminal.put(f"\n# {fault.name}: {fault.why}\n{made.to_toml()}", sys.stdout)
