# SPDX-License-Identifier: Apache-2.0
"""`harness nightly`: runs of the matrix until the time is up, each judged by what is known already."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Final

from harness.boundary import UNAVAILABLE
from harness.check.judging import judge_stored
from harness.findings.known import explain
from harness.findings.record import Finding
from harness.nightly.ledger import (
    NOT_AVAILABLE,
    Entry,
    append,
    by_shape,
    code_digest,
    next_batch,
    read_ledger,
    replace_entries,
)
from harness.nightly.matrix import Cell, Matrix, shares
from harness.series.child import ChildRun, run_child
from harness.series.shared import SharedCluster
from results.errors import ExpectedError
from results.store import RunDir
from results.verdict import Verdict

_GAVE_UP: Final = 5
"""So many runs in a row without a history: the machine is broken, and the night is over."""


@dataclass
class Night:
    """The runs of one call, and the reason for its end."""

    entries: list[Entry] = field(default_factory=list)
    ended: str = "interrupted"

    @property
    def new(self) -> list[Entry]:
        """Runs with anomalies that no finding explains."""
        return [entry for entry in self.entries if entry.new]

    @property
    def failures(self) -> list[Entry]:
        """Runs in which the harness itself failed."""
        return [entry for entry in self.entries if entry.verdict == Verdict.HARNESS_FAILURE.value]

    @property
    def verdict(self) -> Verdict:
        """`invalid` after new findings, `harness-failure` after failures of the harness, not after known findings."""
        if self.new:
            return Verdict.INVALID
        return Verdict.HARNESS_FAILURE if self.failures else Verdict.VALID


def run_night(
    matrix: Matrix,
    findings: Sequence[Finding],
    store: Path,
    say: Callable[[str], None],
    night: Night,
    *,
    until: float,
    most: int | None = None,
    once: bool = False,
    extra: Sequence[str] = (),
) -> None:
    """Runs cells until a time (`time.monotonic`) or a number of runs. The ledger in the store lists earlier runs.

    once   each cell one time, those of one shape one after the other, whatever ran before.
    night  gets the runs as they end. extra: options for every run. Raises `signals.Stopped` after a stop signal.
    """
    broken = 0

    def over() -> str:
        if time.monotonic() >= until:
            return "the time is up"
        if most is not None and len(night.entries) >= most:
            return f"{most} runs"
        return f"{broken} runs in a row had no history: {night.entries[-1].why}" if broken >= _GAVE_UP else ""

    for batch in by_shape(matrix.cells) if once else _by_need(matrix.cells, store):
        if over():
            break
        with SharedCluster() as cluster:
            for cell in batch:
                if over():
                    break
                began = time.monotonic()
                run = _run(cell, cluster, store, [*matrix.limit(cell), *extra])
                entry = _entry(cell, run, findings, time.monotonic() - began)
                if run.stopped is not None:
                    raise run.stopped
                append(store, entry)
                night.entries.append(entry)
                if entry.verdict != NOT_AVAILABLE:
                    broken = 0 if entry.folder else broken + 1
                cluster.after(sound=entry.verdict == Verdict.VALID.value)
                say(describe(entry))
    night.ended = over() or "every cell has run"


def _by_need(cells: Sequence[Cell], store: Path) -> Iterator[list[Cell]]:
    """The most urgent cells by the ledger, for ever."""
    rng = Random()
    while True:
        yield next_batch(cells, read_ledger(store), rng, datetime.now())


def describe(entry: Entry) -> str:
    """One line."""
    news = f"  NEW {', '.join(entry.new)}" if entry.new else ""
    known = f"  known {', '.join(map(str, entry.known))}" if entry.known else ""
    why = f"  {entry.why}" if entry.verdict in ("harness-failure", "unknown", NOT_AVAILABLE) else ""
    return f"  {entry.verdict:<15}  {entry.seconds:4.0f} s  {entry.cell}{news}{known}{why}"


def _run(cell: Cell, cluster: SharedCluster, store: Path, options: Sequence[str]) -> ChildRun:
    """Runs a cell on the shared cluster, if it can share one."""
    words = [*cell.args(), *options]
    if not shares(cell):
        return run_child(words, store)
    return cluster.run(lambda own: run_child([*words, *own], store))


def _entry(cell: Cell, run: ChildRun, findings: Sequence[Finding], seconds: float) -> Entry:
    """Returns the entry of a run: a harness failure if the run cannot be judged."""
    now = datetime.now().isoformat(timespec="seconds")
    made = Entry(cell.name, now, Verdict.HARNESS_FAILURE.value, "", round(seconds, 1), code=code_digest())
    if run.folder is None:
        made = replace(made, verdict=NOT_AVAILABLE) if run.code == UNAVAILABLE else made
        return replace(made, why=f"there was no run: {run.problem}")
    return _judged(replace(made, folder=str(run.folder.path)), run.folder, findings)


def _judged(entry: Entry, folder: RunDir, findings: Sequence[Finding]) -> Entry:
    try:
        record, judgement = judge_stored(folder)
    except ExpectedError as problem:
        return replace(entry, why=str(problem))
    found = explain(record, judgement, findings)
    known, new = [finding.id for finding in found.known], list(found.new or ())
    return replace(entry, verdict=judgement.verdict.value, why=judgement.reason, new=new, known=known)


def judge_again(store: Path, findings: Sequence[Finding], say: Callable[[str], None]) -> Night:
    """Judges the stored runs that had new anomalies, by the present findings and checkers. The results go into the
    ledger; the night contains the runs of the last day. Raises StoreError.
    """
    changed = []
    for entry in read_ledger(store):
        if entry.new and Path(entry.folder).is_dir():
            changed.append((entry, _judged(entry, RunDir(Path(entry.folder)), findings)))
            say(describe(changed[-1][1]))
    entries = replace_entries(store, changed) if changed else read_ledger(store)
    last = max((entry.at[:10] for entry in entries), default="")
    return Night([entry for entry in entries if entry.at.startswith(last)], "judged again")
