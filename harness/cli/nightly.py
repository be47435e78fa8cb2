# SPDX-License-Identifier: Apache-2.0
"""The command `harness nightly`: runs of a matrix until the time is up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import click

from harness import terminal
from harness.boundary import end
from harness.plan.plan import PlanError
from harness.plan.table import shell_words
from harness.values import FilePath, FiniteRange
from infra.machines.api import SettingsError
from infra.options import OptionError

if TYPE_CHECKING:
    from harness.findings.record import Finding
    from harness.nightly.matrix import Cell, Matrix
    from harness.nightly.night import Night

_TOLD: Final = 100
"""The most cells that a dry run prints: each next one takes a comparison of all."""


@click.command()
@click.argument("matrix_file", required=False, type=FilePath(), metavar="[MATRIX.toml]")
@click.option("--hours", type=FiniteRange(0, 8784, min_open=True), default=8.0, show_default=True, help="Time budget.")
@click.option("--runs", type=click.IntRange(1, 1_000_000), help="End after so many runs.")
@click.option("--once", is_flag=True, help="Run each cell once, and end: a suite. What ran before does not matter.")
@click.option("--part", metavar="I/N", help="Only the I-th of N parts of the matrix: N machines share a night.")
@click.option("--option", "options", multiple=True, metavar="OPTION", help='Option for the runs: "--cluster local".')
@click.option(
    "--dry-run", is_flag=True, help="Print the next cells (--runs, or 100), and what cannot be; start nothing."
)
@click.option(
    "--judge-again", is_flag=True, help="Start nothing: judge by today's findings what was new, and write the page."
)
@click.option(
    "--page",
    type=FilePath(),
    metavar="FILE",
    help="The page with the results.  [default: nightly.html in the store]",
)
@click.option(
    "--record",
    "folder",
    type=FilePath(file_okay=False),
    help="Folder of the known findings.  [default: that of the harness]",
)
@click.option(
    "--store",
    type=FilePath(file_okay=False),
    default=Path("results/nightly"),
    show_default=True,
    help="Folder of the store.",
)
def nightly(
    matrix_file: Path | None,
    hours: float,
    runs: int | None,
    once: bool,
    part: str | None,
    options: tuple[str, ...],
    dry_run: bool,
    judge_again: bool,
    page: Path | None,
    folder: Path | None,
    store: Path,
) -> None:
    """Run the cells of a matrix until the time is up; a second call goes on where the first one ended.

    What never ran comes first, so that all pairs (of a fault and a topology, a version and a workload, ...) are covered
    soon; between these what failed last, what ran with other code, and what ran longest ago. Runs of one shape share a
    cluster. The exit code is 1 where an anomaly showed that no finding of the record explains, 3 where the harness
    failed, 0 otherwise (docs/nightly.md).

    \b
    harness nightly --hours 8
    harness nightly my-matrix.toml --runs 20 --option "--cluster local"
    harness nightly examples/suites/quorum-ack.toml --once
    """
    from harness.findings import record
    from harness.nightly import ledger, matrix, night

    extra = [word for text in options for word in shell_words(text, "--option")]
    findings = record.read_findings(folder or record.DATA)
    found = matrix.read_matrix(matrix_file or matrix.DEFAULT)
    found = _with_options(found, extra)
    if part is not None:
        found = found.part(*_part(part))
    if dry_run:
        if once:
            terminal.say_all(cell.name for batch in ledger.by_shape(found.cells) for cell in batch)
        else:
            first = runs or _TOLD
            terminal.say_all(islice(ledger.in_order(found.cells, ledger.read_ledger(store), Random(0)), first))
            if (more := len(found.cells) - first) > 0:
                terminal.say(f"and {more} more  (--runs {len(found.cells)} prints all)")
        terminal.say_all(f"not in the matrix: {count} combinations: {why}" for why, count in found.impossible.items())
        return
    if judge_again:
        judged = night.judge_again(store, findings, terminal.say)
        if not judged.entries:
            raise PlanError(f"--judge-again: there was no night in {store}; --store names the folder")
        _write(page or store / "nightly.html", found, judged, store, findings)
        end(judged.verdict.exit_code)
    began = time.monotonic()
    terminal.say(f"nightly: {len(found.cells)} cells, {hours:g} h")
    result = night.Night()
    try:
        night.run_night(
            found,
            findings,
            store,
            terminal.say,
            result,
            until=began + hours * 3600,
            most=runs,
            once=once,
            extra=extra,
        )
    finally:
        if result.entries:
            _write(page or store / "nightly.html", found, result, store, findings)
    end(result.verdict.exit_code)


def _with_options(matrix: Matrix, extra: Sequence[str]) -> Matrix:
    """The cells whose options, and those of `--option`, go with their workload, topology and client; the others become
    impossible. Raises PlanError if none is left, since the first run would report the same.
    """
    from harness.cli.run import check_words, require_free

    reasons: dict[tuple[str, ...], str] = {}
    possible: list[Cell] = []
    for cell in matrix.cells:
        if not cell.options and not extra:
            possible.append(cell)
            continue
        key = _key(cell)
        if key not in reasons:
            try:
                require_free([*shell_words(cell.options, "options"), *extra])
                check_words([*cell.args(), *matrix.limit(cell), *extra])
                reasons[key] = ""
            except click.UsageError as problem:
                reasons[key] = problem.format_message()
            except (OptionError, SettingsError) as problem:
                reasons[key] = str(problem)
        if not reasons[key]:
            possible.append(cell)
    if not possible:
        raise PlanError(f"the options of the cells, or --option: {next(iter(reasons.values()))}")
    counts = Counter(why for cell in matrix.cells if (why := reasons.get(_key(cell))))
    return replace(matrix, cells=possible, impossible={**matrix.impossible, **counts})


def _key(cell: Cell) -> tuple[str, ...]:
    """The key of a cell: cells with the same key take the same options."""
    return cell.workload, cell.topology, cell.client, cell.options, cell.plan


def _write(path: Path, matrix: Matrix, night: Night, store: Path, findings: Sequence[Finding]) -> None:
    from harness.nightly.ledger import read_ledger
    from harness.nightly.page import night_page
    from results.durable import write_text

    write_text(path, night_page(matrix, night, read_ledger(store), findings), "the page")
    terminal.say(f"{len(night.entries)} runs, {len(night.new)} with new findings; {night.ended}; page {path}")


def _part(text: str) -> tuple[int, int]:
    """`2/4` -> (2, 4). Raises PlanError."""
    first, _, second = text.partition("/")
    if first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second) <= 1000:
        return int(first), int(second)
    raise PlanError(f"--part {text!r}: I/N with 1 <= I <= N is right, such as 2/4")
