# SPDX-License-Identifier: Apache-2.0
"""The command `harness compare`: is a build worse than another one?"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
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
    from harness.compare.choice import Chosen
    from harness.compare.outcome import Outcome
    from harness.compare.pairs import Comparison, Course
    from harness.findings.record import Finding
    from infra.systems.builds import Build

_STORE: Final = Path("results/compare")


@click.command()
@click.option("--server-jars", "jars", type=FilePath(file_okay=False), help="Folder with the jars of the new build.")
@click.option(
    "--against",
    metavar="VERSION|DIR",
    help="The old build: a published version, or a folder with jars.  [default: the newest version]",
)
@click.option(
    "--version", "version", help="Published version whose settings and other jars both get, with --against DIR."
)
@click.option(
    "--minutes",
    type=FiniteRange(0, 10_000, min_open=True),
    default=30.0,
    show_default=True,
    help="Begin no pair that would end after this time.",
)
@click.option(
    "--suite",
    default="pr",
    show_default=True,
    metavar="pr|FILE",
    help="The cells: by the classes that differ (pr), or all of a matrix (docs/nightly.md).",
)
@click.option("--finding", "ids", multiple=True, metavar="ID", help="Also the command of this finding (repeat).")
@click.option("--option", "options", multiple=True, metavar="OPTION", help='Option for all runs: "--cluster local".')
@click.option("--seed", type=int, help="Seed of the seeds.  [default: random]")
@click.option("--dry-run", is_flag=True, help="Print which classes differ, which cells were chosen, and why.")
@click.option("--resume", type=FilePath(), metavar="LEDGER", help="Go on with an earlier comparison (FILE.jsonl).")
@click.option("--json", "json_file", type=FilePath(), metavar="FILE", help="Write the outcome to this file, as JSON.")
@click.option("--store", type=FilePath(file_okay=False), default=_STORE, show_default=True, help="Folder of the store.")
def compare(
    jars: Path | None,
    against: str | None,
    version: str | None,
    minutes: float,
    suite: str,
    ids: tuple[str, ...],
    options: tuple[str, ...],
    seed: int | None,
    dry_run: bool,
    resume: Path | None,
    json_file: Path | None,
    store: Path,
) -> None:
    """Compare two builds of the servers: pairs of runs with one plan and one seed, until a sequential test decides.

    For each anomaly and each finding the answer is: new, gone, as before, or undecided. The exit code is 0 if the new
    build is not worse, 1 if it is, 2 if that is not decided, 3 if no pair of runs could be made (docs/compare.md).

    \b
    harness compare --server-jars lib
    harness compare --server-jars lib --suite pr --dry-run
    harness compare --server-jars lib --against ../old/lib --minutes 60
    harness compare --resume results/compare/2026-11-29T11-20-00.jsonl --minutes 15
    """
    from harness.compare import pairs
    from harness.findings import record

    until = time.monotonic() + 60 * minutes
    findings = record.read_findings()
    if resume is not None:
        fixed = {"--server-jars": jars, "--against": against, "--finding": ids, "--option": options, "--seed": seed}
        for flag, value in fixed.items():
            if value not in (None, ()):
                raise PlanError(f"--resume goes on with what was fixed at first: leave {flag} out")
        ledger = resume
        course = pairs.read_course(ledger)
        _require_same(course.comparison)
        store = ledger.parent
    else:
        if jars is None:
            raise PlanError("--server-jars is missing: the folder with the jars of the new build")
        words = [word for text in options for word in shell_words(text, "--option")]
        built = _builds(jars, against, version)
        comparison, left_out = _comparison(built, suite, ids, words, seed, findings)
        terminal.say_all(_told(comparison, left_out))
        if dry_run:
            return
        course = pairs.Course(comparison)
        ledger = store / f"{datetime.now():%Y-%m-%dT%H-%M-%S}.jsonl"
        pairs.begin(ledger, comparison)
    if dry_run:
        terminal.say_all(_told(course.comparison, []))
        return
    pairs.run_pairs(course, ledger, store, findings, partial(terminal.say_wrapped, indent=32), until)
    found = _write(course, ledger, json_file, findings)
    if course.stopped is not None:
        raise course.stopped
    end(found.code)


@dataclass(frozen=True)
class _Builds:
    """new, old: options of `harness run`; old_jars: None for a published version."""

    new_jars: Path
    old_jars: Path | None
    version: str
    build: Build


def _builds(jars: Path, against: str | None, version: str | None) -> _Builds:
    """The two builds, and what differs. Raises PlanError, SettingsError, InfraError."""
    from infra.systems import builds
    from infra.systems.rocketmq.servers import artifacts

    old = Path(against) if against is not None and ("/" in against or Path(against).is_dir()) else None
    if old is None and version is not None and against is not None:
        raise PlanError("--version is for --against DIR; a version there says it already")
    number = artifacts.known_version(version if old is not None or against is None else against)
    for folder, flag in ((jars, "--server-jars"), (old, "--against")):
        if folder is not None and not any(folder.glob("*.jar")):
            raise PlanError(f"{flag} {folder}: no folder with jars in it")
    published = artifacts.fetch(number)
    before = [published] if old is None else [old, published]
    return _Builds(jars, old, number, builds.compare([jars, published], before, number))


def _comparison(
    built: _Builds,
    suite: str,
    ids: Sequence[str],
    words: Sequence[str],
    seed: int | None,
    findings: Sequence[Finding],
) -> tuple[Comparison, list[str]]:
    """The comparison, and lines about cells that are impossible. Raises PlanError if none is left."""
    from harness.cli.run import require_free
    from harness.compare import choice, pairs
    from harness.findings.record import find
    from harness.nightly.matrix import read_matrix

    for word in words:
        if word.partition("=")[0] in ("--server-jars", "--version", "--seed"):
            raise PlanError(f"{word} cannot be an option of the runs: the comparison itself decides it")
    require_free(words)
    matrix = choice.with_version(read_matrix(choice.FILE if suite == choice.SUITE else Path(suite)), built.version)
    if suite == choice.SUITE:
        cells = choice.by_classes(matrix, built.build, findings, built.version)
    else:
        cells = choice.all_of(matrix)
    for text in ids:
        finding = find(findings, text)
        if finding is None or not finding.command:
            raise PlanError(f"--finding {text}: the record has no such finding with a command  (harness reproduce)")
        cells = [choice.of_finding(finding), *(cell for cell in cells if cell.name != f"finding {finding.id}")]
    new = ["--version", built.version, "--server-jars", str(built.new_jars.absolute())]
    old = ["--version", built.version]
    if built.old_jars is not None:
        old += ["--server-jars", str(built.old_jars.absolute())]
    possible, left_out = _possible(cells, [[*words, *new], [*words, *old]])
    if not possible:
        raise PlanError(f"no cell of the suite can be run: {left_out[0]}")
    name = f"{built.version}" if built.old_jars is None else f"{built.old_jars} on {built.version}"
    build = built.build
    return (
        pairs.Comparison(
            new=new,
            old=old,
            builds={pairs.NEW: f"{built.new_jars} on {built.version}", pairs.OLD: name},
            jars={
                pairs.NEW: _digest(built.new_jars),
                pairs.OLD: "" if built.old_jars is None else _digest(built.old_jars),
            },
            version=built.version,
            differ=build.describe().partition(" + ")[2],
            suite=suite,
            seed=int.from_bytes(os.urandom(3), "big") if seed is None else seed,
            cells=possible,
            options=list(words),
        ),
        left_out,
    )


def _possible(cells: Sequence[Chosen], sides: Sequence[Sequence[str]]) -> tuple[list[Chosen], list[str]]:
    """The cells that both builds can run, as far as that shows without machines; and a line for each other one."""
    from harness.cli.run import check_words

    possible, left_out = [], []
    for cell in cells:
        try:
            for side in sides:
                check_words([*cell.args, *side])
            possible.append(cell)
        except click.UsageError as problem:
            left_out.append(f"{cell.name}: {problem.format_message()}")
        except (OptionError, SettingsError) as problem:
            left_out.append(f"{cell.name}: {problem}")
    return possible, left_out


def _told(comparison: Comparison, left_out: Sequence[str]) -> list[str]:
    """The lines before the first run."""
    from harness.compare.choice import minutes_of
    from harness.compare.pairs import NEW, OLD
    from results.figures import many

    lines = [
        f"new build   {comparison.builds[NEW]}",
        f"old build   {comparison.builds[OLD]}",
        f"differ      {comparison.differ}",
        f"suite       {comparison.suite}, {many(len(comparison.cells), 'cell')}, seed {comparison.seed}; "
        f"two pairs of each take about {minutes_of(comparison.cells)} minutes",
    ]
    lines += [f"  {cell.name}  ({cell.why})" for cell in comparison.cells]
    return lines + [f"  left out: {text}" for text in left_out]


def _digest(folder: Path) -> str:
    """The digest of the jars of a folder, with their names."""
    from infra.systems.maven import checksum_of

    found = hashlib.sha256()
    for jar in sorted(folder.glob("*.jar")):
        found.update(f"{jar.name} {checksum_of(jar)}\n".encode())
    return found.hexdigest()


def _require_same(comparison: Comparison) -> None:
    """Raises PlanError if the jars of an earlier comparison have changed since."""
    from harness.compare.pairs import NEW, OLD

    for side, words in ((NEW, comparison.new), (OLD, comparison.old)):
        if comparison.jars[side] and _digest(Path(words[-1])) != comparison.jars[side]:
            raise PlanError(f"--resume: the jars in {words[-1]} have changed since it began; begin a new comparison")


def _write(course: Course, ledger: Path, json_file: Path | None, findings: Sequence[Finding]) -> Outcome:
    """Writes the page and the JSON, and prints the outcome."""
    from harness.compare.evidence import State
    from harness.compare.outcome import outcome
    from harness.compare.page import compare_page
    from results.durable import write_text

    found = outcome(course)
    page = ledger.with_suffix(".html")
    write_text(page, compare_page(course, found, findings, page), "the page")
    if json_file is not None:
        told = {"line": found.line(course.seconds), "ended": course.ended, "seconds": round(course.seconds, 1)}
        builds = {"builds": dict(course.comparison.builds), "differ": course.comparison.differ}
        facts = {**found.to_json(), **told, **builds, "page": str(page), "ledger": str(ledger)}
        write_text(json_file, json.dumps(facts, ensure_ascii=False) + "\n", "the outcome")
    terminal.say("")
    for cell in found.cells:
        terminal.say(f"  {cell}")
        for row in found.rows:
            if row.cell == cell:
                takes = f"; {row.takes}" if row.takes else ""
                terminal.say_wrapped(f"    {row.state.value:<10}  {row.thing:<20}  {row.counts}{takes}", 38)
        figures = [one for one in found.figures if one.cell == cell and one.figure in _FIGURE]
        text = "; ".join(f"{_FIGURE[one.figure]} {one.new[0]:,.1f} against {one.old[0]:,.1f}" for one in figures)
        terminal.say_wrapped(f"    {text}", 4)
    for cell, why in found.short:
        terminal.say_wrapped(f"  {cell}: not tried: {why}", 4)
    terminal.say(f"  page        {page}")
    if found.code == 2 or found.things(State.UNDECIDED) or course.stopped is not None:
        terminal.say(f"  go on       harness compare --resume {ledger}")
    terminal.say_wrapped(found.line(course.seconds), len(found.verdict) + 3)
    return found


_FIGURE: Final = {"rate": "acknowledged a second", "p99_ms": "99 % ms", "silence_s": "longest silence s"}
