# SPDX-License-Identifier: Apache-2.0
"""The command `harness check`. The work is in `harness.check`, which takes some time to import."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import terminal
from harness.boundary import end
from harness.check.history_options import of_histories
from harness.cli.parts import fail_on_option
from harness.plan.table import PlanError
from harness.values import FilePath

if TYPE_CHECKING:
    from harness.check.report import CheckOptions
    from results.record import RunRecord
    from results.verdict import Judgement


def _explain(record: RunRecord, judgement: Judgement) -> Judgement:
    """Only for a stored run: the findings take longer to load than a small history takes to check."""
    from harness.findings.known import explain

    return explain(record, judgement)


def _print_template(name: str) -> None:
    from harness.check.templates import OPTIONS, RECORDERS, SCHEMA, recorder, template

    if name in RECORDERS:
        terminal.put(recorder(name), sys.stdout)  # (Lines that are said would lose their tabs.)
        return
    terminal.say_all(template(name))
    if name != SCHEMA:
        terminal.say(f"harness check FILE {OPTIONS.get(name, f'--model {name}')}", err=True)


@click.command()
@click.argument("paths", nargs=-1, type=FilePath())
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
@click.option(
    "--plots",
    type=FilePath(),
    metavar="FILE.html",
    help="Write an HTML page with latency, rate and faults of each history.",
)
@click.option("--witness", is_flag=True, help="Write, for each valid history, a linearization of its ops.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Number of parallel processes.")
@click.option(
    "--workload",
    metavar="NAME",
    help="Workload of the histories, instead of a model: log or queue (docs/histories.md), register, or your own.",
)
@click.option(
    "--template",
    metavar="NAME",
    help="Print a small history in the right form: of a model, messages, queue; or the schema of its lines (schema); "
    "or a recorder: Recorder.java, recorder.go, recorder.mjs.",
)
@fail_on_option
def check(
    paths: tuple[Path, ...],
    check_options: CheckOptions,
    witness: bool,
    workload: str | None,
    fail_on: str,
    template: str | None,
    **options: Any,
) -> None:
    """Judge stored runs (folders), histories (files), or folders of them again, offline, one line each.

    The exit code is the worst verdict's. docs/checking.md has the models, their operations, and how to write one.

    \b
    harness check results/runs/latest
    harness check history.edn --model cas-register --explain out.html
    harness check messages.jsonl --workload log
    harness check --template kv > history.jsonl
    harness check corpus --models corpus/verdicts.csv --json results.jsonl
    """
    from harness.check.offline import check_paths
    from results.verdict import FailOn

    if template is not None:
        _print_template(template)
        end(0)
    if not paths:
        raise click.UsageError("Missing argument 'PATHS...'.")
    if workload is not None and (options["model"] or options["models"]):
        raise PlanError("--workload and --model exclude each other; use one of them")
    if workload is not None:
        from harness.parts import registry

        found = registry.workload_class(workload)
        if found.model is not None:
            workload, options["model"] = None, found.model
        elif found.judges(frozenset(), identified=False) is None:
            raise PlanError(f"a history of the workload {workload!r} cannot be judged without its run; name a --model")
    if workload is not None and check_options.initial is not None:
        raise PlanError(f"--initial is the start of a model's objects, and the workload {workload!r} has no model")
    say = partial(terminal.say, err=True) if str(options["json_file"]) == "-" else terminal.say
    pictures, plots = options["explain"] is not None, options["plots"] is not None
    check_options = replace(
        check_options, witness=witness, pictures=pictures, plots=plots, workload=workload, explain_run=_explain
    )
    end(check_paths(paths, say, check_options, fail_on=FailOn(fail_on), **options))
