# SPDX-License-Identifier: Apache-2.0
"""The command `harness hunt`: hours of runs that look for what no finding explains."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from harness import terminal
from harness.boundary import end
from harness.cli.parts import store_option
from harness.plan.plan import PlanError
from harness.plan.table import shell_words
from harness.values import FilePath, FiniteRange
from infra.options import OptionError
from results.verdict import Verdict

if TYPE_CHECKING:
    from harness.hunt.hunting import Arm, Entry

SUITE: Final = Path("examples/suites/hunt.toml")
_OF_AN_ARM: Final = ("--workload", "--topology")
_OWN: Final = ("--seed", "--nemesis", "--time-limit", "--interval", "--duration", "--target", "--replay")
_MENDED: Final = ("--mend", "--version", "--server-jars")
"""Options that say which servers are hunted on. Without one, known findings are mended."""


@click.command()
@click.option("--hours", type=FiniteRange(0, 8784, min_open=True), required=True, help="Begin no run after this time.")
@click.option(
    "--suite", type=FilePath(), help="The arms: a matrix whose faults are ignored.  [default: the shipped one]"
)
@click.option("--option", "options", multiple=True, metavar="OPTION", help='Option for the runs: "--workload queue".')
@click.option("--released", is_flag=True, help="Servers as they were released, without the mends of known findings.")
@click.option(
    "--whole",
    is_flag=True,
    help="Run each load to its end. Otherwise, the first anomaly that the operations of an arm prove ends its load.",
)
@click.option("--seed", type=int, help="Seed of the choices.  [default: random]")
@click.option(
    "--seed-store",
    "seed_stores",
    multiple=True,
    type=FilePath(file_okay=False),
    metavar="STORE",
    help="Also change the plans of its invalid runs (repeat).",
)
@click.option(
    "--shrink-runs",
    type=click.IntRange(0, 10_000),
    default=60,
    show_default=True,
    help="The most runs to shrink the plan of something new; the last third of the time is for this.",
)
@click.option("--first", is_flag=True, help="End with the first run that shows something new.")
@click.option(
    "--control",
    type=FiniteRange(0, 1),
    default=0.2,
    show_default=True,
    help="Share of the control: runs with uniformly drawn strikes. 1: nothing else.",
)
@click.option(
    "--output",
    type=FilePath(file_okay=False),
    default=Path("results/hunt"),
    show_default=True,
    help="Folder of the account and the ledger; a second call goes on from it.",
)
@click.option("--dry-run", is_flag=True, help="Print the arms, their faults and the first plan; start nothing.")
@store_option
def hunt(
    hours: float,
    suite: Path | None,
    options: tuple[str, ...],
    released: bool,
    whole: bool,
    seed: int | None,
    seed_stores: tuple[Path, ...],
    shrink_runs: int,
    first: bool,
    control: float,
    output: Path,
    dry_run: bool,
    store: Path,
) -> None:
    """Look for anomalies that no finding explains, by episodes of strikes at events, on kept clusters.

    Episodes come from covering arrays over fault, duration, event, delay and second fault: all pairs of these, and the
    worthiest triples. A share of runs is the control, with uniformly drawn strikes. A run is new if it shows an anomaly
    that no finding explains and no earlier run of the hunt had. In the last third of the time the plans of new ones are
    shrunk. The account is in --output (docs/hunt.md). The exit code is 1 if something new was found, else 0.

    \b
    harness hunt --hours 4
    harness hunt --hours 1 --option "--workload queue --consume pop --topology controller"
    harness hunt --hours 2 --option "--server-jars own-jars" --option "--mend all"
    harness hunt --hours 8 --released --option "--version 5.3.3"
    """
    from harness.hunt.account import account_lines
    from harness.hunt.episodes import of_rows
    from harness.hunt.hunting import Hunt, first_sights
    from harness.hunt.running import Runs, keep, read_entries, seeds_of, smaller
    from results.durable import write_text
    from results.figures import many

    extra = [word for text in options for word in shell_words(text, "--option")]
    arms, left_out = _arms(suite, extra, released)
    began = time.monotonic()
    seeds = seeds_of(seed_stores)
    before = read_entries(output)
    earlier = len(before)
    state = Hunt(arms, int.from_bytes(os.urandom(3), "big") if seed is None else seed, seeds, control, before)
    for arm in arms:
        array = state.pairs[arm.name]
        faults = len({*arm.axes["first"], *arm.axes["second"]} - {"none"})
        terminal.say(f"arm       {arm.name}: {faults} faults, {array.total - array.covered} pairs to try")
    if dry_run:
        terminal.say_all(of_rows([state.triples[arms[0].name].next()])[0].to_toml().splitlines())
        return
    output.mkdir(parents=True, exist_ok=True)
    all_s = hours * 3600

    def over() -> bool:
        used, found = time.monotonic() - began, bool(first_sights(state.entries[earlier:]))
        return (first and found) or used >= (all_s * 2 / 3 if shrink_runs and found else all_s)

    def tell(entry: Entry) -> None:
        keep(output, entry)
        terminal.say(_line(entry))

    shrunk: dict[str, str] = {}
    try:
        ended = {entry.arm for entry in before if entry.outcome.early}
        with Runs(store, whole, ended) as runs:
            state.run(runs, lambda: time.monotonic() - began, over, tell)
        for entry in first_sights(state.entries[earlier:]) if shrink_runs else ():
            terminal.say(f"shrink    {', '.join(entry.first)}")
            done = smaller(entry, output, store, shrink_runs, began + all_s, terminal.say, whole)
            if done is not None:
                account, place = done
                rate = f"{account.last[0]} of {account.last[1]}" if account.last[1] else "not verified"
                shrunk[entry.outcome.folder] = (
                    f"Shrunk to {len(account.plan.strikes)} strikes and {account.plan.time_limit_s:g} s ({rate}; "
                    f"{account.ended}): `{place}`."
                )
    finally:
        text = "".join(f"{line}\n" for line in account_lines(state, left_out, shrunk))
        write_text(output / "hunt.md", text, "the account")
    new = [name for entry in first_sights(state.entries[earlier:]) for name in entry.first]
    terminal.say(f"account   {output / 'hunt.md'}")
    terminal.say(f"NEW   {', '.join(new)}" if new else f"nothing new in {many(len(state.entries) - earlier, 'run')}")
    if not any(entry.outcome.folder for entry in state.entries[earlier:]):
        end(Verdict.HARNESS_FAILURE.exit_code)
    end((Verdict.INVALID if new else Verdict.VALID).exit_code)


def _line(entry: Entry) -> str:
    found = entry.outcome
    news = f"  NEW {', '.join(entry.first)}" if entry.first else f"  again {', '.join(found.new)}" if found.new else ""
    known = f"  known {', '.join(map(str, found.known))}" if found.known else ""
    where = found.folder if entry.first else found.problem
    news += "  ended early" if found.early else ""
    head = f"  {entry.at_s / 60:5.1f} min  {entry.mode:<7}  {found.verdict or 'no run':<9}"
    return f"{head}  {entry.arm}{news}{known}  {where}".rstrip()


def _arms(suite: Path | None, extra: Sequence[str], released: bool) -> tuple[list[Arm], dict[str, list[str]]]:
    """The arms, and for each the faults that it cannot have, with the reasons. Raises PlanError without any fault."""
    from dataclasses import replace

    from harness.cli.run import check_words, require_free
    from harness.hunt.episodes import NONE, possible, read_axes
    from harness.hunt.hunting import Arm
    from harness.nightly.matrix import read_matrix
    from harness.parts import registry
    from harness.plan.defaults import default_workload
    from harness.shipped import shipped
    from infra.machines.api import SettingsError

    require_free(extra)
    named = {word.partition("=")[0] for word in extra}
    if taken := sorted(named & {*_OWN}):
        raise PlanError(f"--option {taken[0]}: the hunt itself decides it; leave it out")
    if suite is not None and named & {*_OF_AN_ARM}:
        raise PlanError("--suite names the arms, and so does an --option with a workload or a topology; leave one out")
    if named & {*_OF_AN_ARM}:
        parted = (word.partition("=") for word in extra)
        given = {
            flag: value if equals else after
            for (flag, equals, value), after in zip(parted, [*extra[1:], ""], strict=True)
            if flag in _OF_AN_ARM
        }
        workload = given.get("--workload", default_workload())
        cells = [(", ".join(given.values()), workload, list(extra))]
    else:
        matrix = read_matrix(suite or shipped(SUITE))
        bare = [replace(cell, nemesis="", plan="") for cell in matrix.cells]
        cells = [
            (f"{cell.workload}, {cell.topology}, {cell.version}", cell.workload.split()[0], [*cell.args(), *extra])
            for cell in bare
        ]
    mended = [] if released or named & {*_MENDED} else ["--mend", "all"]
    axes = read_axes()
    faults = sorted({fault for axis in ("first", "second") for fault in axes[axis]} - {NONE})
    arms: list[Arm] = []
    left_out: dict[str, list[str]] = {}
    for name, workload, words in cells:
        whole = [*words, *mended]
        check_words([*whole, "--nemesis", NONE])
        may: list[str] = []
        for fault in faults:
            try:
                check_words([*whole, "--nemesis", fault])
                may.append(fault)
            except (OptionError, SettingsError, click.UsageError) as problem:
                left_out.setdefault(name, []).append(str(problem))
        if not may:
            continue
        kept = registry.find(registry.WORKLOADS, workload).cls.reusable
        arms.append(Arm(name, tuple(whole), possible(axes, may), kept))
    if not arms:
        raise PlanError(f"no fault of the hunt is possible here: {next(iter(left_out.values()))[0]}")
    return arms, left_out
