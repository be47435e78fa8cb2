"""The command line: `harness run | check | list | doctor | clean | serve`.

Exit codes (design.md, section 4): 0 valid, 1 invalid, 2 unknown, 3 harness failure, 64 usage.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.batch.command import batch
from harness.check.history_options import of_histories
from harness.cli import signals, terminal
from harness.cli.boundary import FAILURE, Commands, Progress, guarded
from harness.cli.trends import trends
from harness.plan import registry
from harness.plan.plan import NemesisPlan, Plan, PlanError, seconds
from infra.machines.api import InfraError
from results.store import Store

if TYPE_CHECKING:
    from harness.check.examine import Asked

DEFAULT_STORE = Path("results/runs")


def duration(text: str) -> float:
    """`60`, `90s`, `2m` -> seconds."""
    try:
        return seconds(float(text) if text.replace(".", "", 1).isdigit() else text, "the time")
    except PlanError as problem:
        raise click.BadParameter(str(problem)) from None


store_option = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_STORE,
    show_default=True,
    help="Where runs are kept.",
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="rocketmq-harness", prog_name="harness")
def cli() -> None:
    """Fault-injection tests for Apache RocketMQ and DLedger: real servers, real faults, checked histories."""


cli.add_command(batch)
cli.add_command(trends)


@cli.command()
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="A plan in TOML; options override it.")
@click.option("--workload", help="What clients do and what must hold (harness list workloads).  [default: log]")
@click.option(
    "--nemesis", help="Faults, joined by commas, or none (harness list nemeses).  [default: partition-halves]"
)
@click.option(
    "--target",
    help="Whom faults hit: one|minority|majority|all|random|n1,n3, leader|master|slaves|controller-leader|namesrv.",
)
@click.option(
    "--interval",
    type=duration,
    metavar="TIME",
    help="From the start of a fault to the start of the next.  [default: 20s]",
)
@click.option("--duration", type=duration, metavar="TIME", help="How long a fault lasts.  [default: 10s]")
@click.option("--time-limit", type=duration, metavar="TIME", help="Length of the main phase.  [default: 60s]")
@click.option("--rate", type=float, help="Operations per second, over all clients.  [default: the workload's own]")
@click.option("--concurrency", type=int, help="Number of clients.  [default: 10]")
@click.option("--ops-per-key", type=int, help="Operations on one key before the next takes its place.  [default: 200]")
@click.option(
    "--op-deadline", type=duration, metavar="TIME", help="After this an operation's outcome is unknown.  [default: 4s]"
)
@click.option(
    "--recovery-limit", type=duration, metavar="TIME", help="Silence longer than this is an anomaly.  [default: 30s]"
)
@click.option("--seed", type=int, help="Same seed: same operations, same fault schedule.  [default: drawn, and stored]")
@click.option("--read-mode", help="log (linearizable) or unsafe (stale by design: must end invalid).  [default: log]")
@click.option("--snapshot/--no-snapshot", default=None, help="RIP-59's snapshot mode (expect findings).")
@click.option("--client", help="How clients talk to brokers: remoting|native|grpc.  [default: remoting]")
@click.option("--consume", help="How the queue workload consumes: pull|pop.  [default: pull]")
@click.option(
    "--ground-truth/--no-ground-truth",
    default=None,
    help="At the end, read the stopped servers' files and compare them with the history.",
)
@click.option("--cluster", help="auto|docker|local|ssh, or a plug-in's.  [default: auto]")
@click.option("--nodes", type=int, help="Number of nodes.  [default: 5]")
@click.option("--node", "hosts", multiple=True, metavar="[USER@]HOST[:PORT]", help="ssh: an existing machine (repeat).")
@click.option("--ssh-key", help="ssh: the private key file.")
@click.option("--install", is_flag=True, default=None, help="ssh: missing software may be installed on the machines.")
@click.option("--disposable", is_flag=True, default=None, help="ssh: destructive faults are allowed on the machines.")
@click.option("--base-image", help="docker: build the node image on top of this one.")
@click.option("--topology", help="Which servers run where (harness list topologies).  [default: the workload's own]")
@click.option("--profile", help="What the servers promise: default|strict.  [default: strict]")
@click.option("--controller-type", help="dledger|jraft|dledger-embedded|jraft-embedded.  [default: dledger]")
@click.option("--brokers", type=int, help="How many nodes run a broker.  [default: all]")
@click.option("--version", "version", help="Version of the servers (harness list versions).")
@click.option("--server-jars", help="A folder of your own build, put in front of the class path.")
@click.option("--jvm-option", "jvm_options", multiple=True, help="Added to the servers' JVM options (repeat).")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A server setting, such as broker.KEY=VALUE (repeat)."
)
@click.option("--keep", is_flag=True, help="Leave the cluster running at the end, for --reuse.")
@click.option("--reuse", metavar="RUN_ID", help="Run on a cluster that was kept; it stays kept.")
@click.option("--dry-run", is_flag=True, help="Check the plan, print it with all defaults, start nothing.")
@store_option
def run(store: Path, plan_file: Path | None, dry_run: bool, keep: bool, reuse: str | None, **options: Any) -> None:
    """Run a workload under faults on a real cluster, and judge it.

    \b
    harness run
    harness run --topology controller --profile default --nemesis kill-random-processes --target master
    harness run --nemesis partition-leader-minority --version 5.3.3 --set broker.minInSyncReplicas=2
    harness run --workload register --snapshot --nemesis hammer-time
    harness run --plan results/runs/latest/plan.toml
    """
    from harness.check.summary import summary
    from harness.plan import reuse as reusing
    from harness.plan.resolve import decided
    from harness.run import lifecycle

    base = Plan.read(plan_file) if plan_file else None
    if base is not None:
        _insist_on_permission(base, str(plan_file), options)
    given = {k: v for k, v in options.items() if v not in (None, ())}
    plan = override(base, given)
    if reuse:
        plan = reusing.on_kept(plan, reuse, given)
    plan = decided(plan)
    if dry_run:
        lifecycle.check(plan, keep=keep, reuse=reuse)
        terminal.say_all(plan.to_toml().splitlines())
        return
    prepared = lifecycle.prepare(plan, keep=keep, reuse=reuse)
    outcome = lifecycle.run(prepared, Store(store), terminal.say)
    terminal.say_all(summary(outcome, plan))
    sys.exit(outcome.judgement.verdict.exit_code)


def _insist_on_permission(plan: Plan, where: str, options: Mapping[str, Any]) -> None:
    """A plan is a file that may come from anywhere: what may be done to machines, the user says. Raises PlanError."""
    for word in ("disposable", "install"):
        if getattr(plan.cluster, word) and not options[word]:
            raise PlanError(
                f"{where}: {word} = true is a permission, and no plan can give it; --{word} on the command line does"
            )


def override(plan: Plan | None, options: dict[str, Any]) -> Plan:
    """A plan with what was given on the command line put over it; a seed is drawn when there is none at all."""
    given = {k: v for k, v in options.items() if v not in (None, ())}
    base = plan or Plan(seed=int.from_bytes(os.urandom(3), "big"))
    plain = {
        k.removesuffix("_s"): k
        for k in ("workload", "seed", "time_limit_s", "rate", "concurrency", "ops_per_key", "op_deadline_s")
    }
    plain["recovery_limit"] = "recovery_limit_s"
    plain |= {k: k for k in ("read_mode", "snapshot", "client", "consume", "ground_truth")}
    cluster: dict[str, Any] = {
        k: given[k] for k in ("nodes", "ssh_key", "base_image", "install", "disposable") if k in given
    }
    if "cluster" in given:
        cluster["backend"] = given["cluster"]
        if given["cluster"] in registry.OWN_MACHINES:
            cluster["hosts"] = ()  # those of a plan that named some
    if "hosts" in given:
        cluster |= {"hosts": given["hosts"], "nodes": given.get("nodes", len(given["hosts"]))}
        cluster.setdefault("backend", "ssh" if base.cluster.backend == "auto" else base.cluster.backend)
    server: dict[str, Any] = {
        k: given[k]
        for k in ("topology", "profile", "controller_type", "brokers", "version", "jvm_options")
        if k in given
    }
    if "server_jars" in given:
        server["jars"] = given["server_jars"]
    if "settings" in given:
        server["settings"] = {**base.server.settings, **dict(_pair(text) for text in given["settings"])}
    return replace(
        base,
        **{field: given[option] for option, field in plain.items() if option in given},
        cluster=replace(base.cluster, **cluster),
        server=replace(base.server, **server),
        nemeses=_nemeses(base, given),
    )


def _nemeses(base: Plan, given: dict[str, Any]) -> tuple[NemesisPlan, ...]:
    chosen = base.nemeses
    if "nemesis" in given:
        names = [name.strip() for name in given["nemesis"].split(",") if name.strip()]
        if "none" in names and len(names) > 1:
            raise PlanError("--nemesis none stands alone; leave it out to combine the others")
        if not names:
            raise PlanError("--nemesis names no fault; none is right for a run without faults")
        chosen = tuple(NemesisPlan(registry.fault(name).name) for name in names if name != "none")
    changes = {
        field: given[option]
        for option, field in (("interval", "every_s"), ("duration", "for_s"), ("target", "target"))
        if option in given
    }
    return tuple(replace(n, **changes) for n in chosen)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise PlanError(f"--set {text!r}: KEY=VALUE is right, such as broker.minInSyncReplicas=2")
    return key, value


@cli.command("list")
@click.argument(
    "what", required=False, type=click.Choice(["workloads", "nemeses", "topologies", "versions", "clusters"])
)
def list_(what: str | None) -> None:
    """What there is: workloads, nemeses, topologies with their profiles, versions, clusters."""
    from harness.plan import resolve as choices

    if what in (None, "workloads"):
        _table("workloads", {n: registry.workload_class(n).summary for n in registry.names(registry.WORKLOADS)})
    if what in (None, "nemeses"):
        faults = {n: registry.fault(n) for n in registry.names(registry.NEMESES)}
        told = {n: f.summary if f.name == n else f"another name of {f.name}" for n, f in faults.items()}
        _table("nemeses", {**told, "none": "no faults"})
    if what in (None, "topologies"):
        _table("topologies", {name: choices.told(name) for name in choices.topologies()})
    if what in (None, "versions"):
        _table("versions", choices.versions())
    if what in (None, "clusters"):
        rows = {}
        for name in registry.names(registry.CLUSTERS):
            can = registry.probe(registry.backend(name))
            rows[name] = "available: " + can.reason if can.ok else "not here: " + registry.told(can)
        _table("clusters", rows)


def _table(title: str, rows: Mapping[str, str]) -> None:
    terminal.say(f"{title}:")
    width = max((len(name) for name in rows), default=0)
    for name, text in rows.items():
        terminal.say(f"  {name.ljust(width)}  {text}")


@cli.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@of_histories
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="One JSON object a history.")
@click.option("--explain", type=click.Path(path_type=Path), metavar="FILE.html", help="A picture of each violation.")
@click.option("--witness", is_flag=True, help="For each valid history, an order of its ops that explains it.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes that check at a time.")
@click.option(
    "--workload",
    type=click.Choice(["log", "queue", "register"]),
    help="What the histories are of, instead of a model: messages (docs/histories.md), or registers.",
)
def check(paths: tuple[Path, ...], asked: Asked, witness: bool, workload: str | None, **options: Any) -> None:
    """Judge stored runs (folders), histories (files), or folders of them again, offline, one line each.

    The exit code is the worst verdict's. docs/checking.md has the models, their operations, and how to write one.

    \b
    harness check results/runs/latest
    harness check history.edn --model cas-register --explain out.html
    harness check messages.jsonl --workload log
    harness check corpus --models corpus/verdicts.csv --json results.jsonl
    """
    from harness.check.offline import check_paths

    if workload is not None and (options["model"] or options["models"]):
        raise PlanError("--workload and --model exclude each other; a history is judged by one of them")
    if workload == "register":
        workload, options["model"] = None, "cas-register"
    asked = replace(asked, witness=witness, pictures=options["explain"] is not None, workload=workload)
    sys.exit(check_paths(paths, terminal.say, asked, **options))


@cli.command()
def doctor() -> None:
    """What this machine can do, what it cannot, and the way out."""
    from harness.cli.doctor import examine

    sys.exit(0 if examine(terminal.say) else FAILURE)


@cli.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--kept", "kept_too", is_flag=True, help="Also clusters that were kept (run --keep) and are not in use.")
def clean(dry_run: bool, kept_too: bool) -> None:
    """Remove what earlier runs left on this machine (containers, networks, namespaces, mounts); never results."""
    from harness.cli.doctor import clean_up

    sys.exit(0 if clean_up(terminal.say, dry_run, kept_too) else FAILURE)


@cli.command()
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@store_option
def serve(port: int, store: Path) -> None:
    """Show the runs in a browser, on 127.0.0.1 only."""
    from results.web import serve as serve_store

    try:
        serve_store(store, port=port)
    except OSError as problem:
        raise InfraError(f"cannot listen on 127.0.0.1:{port}: {problem.strerror}; choose another --port") from None


def main(argv: list[str] | None = None) -> None:
    """The entry point. Every expected error is one line on stderr; the exit code says whose it was."""
    logging.getLogger().addHandler(logging.NullHandler())
    # What takes long (an image that is built, an engine that is started) is told as it happens.
    for name, level in (("infra", logging.INFO), ("results.web", logging.WARNING), ("werkzeug", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [Progress()]
        logger.setLevel(level)
    signals.install()
    sys.exit(guarded(lambda: cli.main(argv, prog_name="harness", standalone_mode=False)))


if __name__ == "__main__":
    main()
