"""The command line: `harness run | check | reproduce | list | doctor | clean | serve`.

Exit codes (design.md, section 4): 0 valid, 1 invalid, 2 unknown, 3 harness failure, 64 usage.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import signals, terminal
from harness.batch.command import batch
from harness.boundary import FAILURE, Commands, Progress, end, guarded
from harness.check.history_options import of_histories
from harness.cli.listing import list_
from harness.cli.nightly import nightly
from harness.cli.parts import fail_on_option, store_option
from harness.cli.reproduce import reproduce
from harness.cli.run import run
from harness.cli.trends import trends
from harness.plan.plan import PlanError
from harness.values import FilePath
from infra.machines.api import InfraError

if TYPE_CHECKING:
    from harness.check.report import CheckOptions


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="rocketmq-harness", prog_name="harness")
def cli() -> None:
    """Fault-injection tests for Apache RocketMQ and DLedger: real servers, real faults, checked histories."""


cli.add_command(run)
cli.add_command(list_)
cli.add_command(batch)
cli.add_command(nightly)
cli.add_command(reproduce)
cli.add_command(trends)


@cli.command()
@click.argument("paths", nargs=-1, required=True, type=FilePath())
@of_histories
@click.option(
    "--json",
    "json_file",
    type=FilePath(),
    metavar="FILE",
    help="Write one JSON object per history; - is standard output, and all other lines then go to standard error.",
)
@click.option(
    "--explain",
    type=FilePath(),
    metavar="FILE.html",
    help="Write an HTML page with a picture of each violation.",
)
@click.option("--witness", is_flag=True, help="Write, for each valid history, a linearization of its ops.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Number of parallel processes.")
@click.option(
    "--workload",
    metavar="NAME",
    help="Workload of the histories, instead of a model: log or queue (docs/histories.md), register, or your own.",
)
@fail_on_option
def check(
    paths: tuple[Path, ...],
    check_options: CheckOptions,
    witness: bool,
    workload: str | None,
    fail_on: str,
    **options: Any,
) -> None:
    """Judge stored runs (folders), histories (files), or folders of them again, offline, one line each.

    The exit code is the worst verdict's. docs/checking.md has the models, their operations, and how to write one.

    \b
    harness check results/runs/latest
    harness check history.edn --model cas-register --explain out.html
    harness check messages.jsonl --workload log
    harness check corpus --models corpus/verdicts.csv --json results.jsonl
    """
    from harness.check.offline import check_paths
    from harness.findings.known import explain
    from harness.parts import registry
    from results.verdict import FailOn

    if workload is not None and (options["model"] or options["models"]):
        raise PlanError("--workload and --model exclude each other; use one of them")
    if workload is not None:
        found = registry.workload_class(workload)
        if found.model is not None:
            workload, options["model"] = None, found.model
        elif found.judges(frozenset(), identified=False) is None:
            raise PlanError(f"a history of the workload {workload!r} cannot be judged without its run; name a --model")
    if workload is not None and check_options.initial is not None:
        raise PlanError(f"--initial is the start of a model's objects, and the workload {workload!r} has no model")
    say = partial(terminal.say, err=True) if str(options["json_file"]) == "-" else terminal.say
    pictures = options["explain"] is not None
    check_options = replace(check_options, witness=witness, pictures=pictures, workload=workload, explain_run=explain)
    end(check_paths(paths, say, check_options, fail_on=FailOn(fail_on), **options))


@cli.command()
def doctor() -> None:
    """Show what this machine can do, what it cannot, and the remedy."""
    from harness.cli.doctor import examine

    end(0 if examine(terminal.say) else FAILURE)


@cli.command()
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@click.option("--kept", "kept_too", is_flag=True, help="Also remove kept clusters (run --keep) that are not in use.")
def clean(dry_run: bool, kept_too: bool) -> None:
    """Remove what earlier runs left on this machine (containers, networks, namespaces, mounts); never results."""
    from harness.cli.doctor import clean_up

    end(0 if clean_up(terminal.say, dry_run, kept_too) else FAILURE)


@cli.command()
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@store_option
def serve(port: int, store: Path) -> None:
    """Show the runs in a browser, on 127.0.0.1 only."""
    from harness.batch.made import make_table
    from results.web import serve as serve_store
    from results.web import table_of

    def make() -> None:
        make_table(store, table_of(store), lambda line: terminal.say(f"trends: {line}", err=True))

    try:
        serve_store(store, port=port, make_table=make)
    except OSError as problem:
        raise InfraError(f"cannot listen on 127.0.0.1:{port}: {problem.strerror}; choose another --port") from None


def main(argv: list[str] | None = None) -> None:
    """The entry point. Every expected error is one line on stderr; the exit code shows its source."""
    logging.getLogger().addHandler(logging.NullHandler())
    # Long steps (the build of an image, the start of an engine) are reported as they happen.
    for name, level in (("infra", logging.INFO), ("results.web", logging.WARNING), ("werkzeug", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [Progress()]
        logger.setLevel(level)
    signals.install()
    sys.exit(guarded(lambda: cli.main(argv, prog_name="harness", standalone_mode=False)))


if __name__ == "__main__":
    main()
