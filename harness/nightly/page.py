# SPDX-License-Identifier: Apache-2.0
"""The page in the morning: new anomalies, known findings, failures, the matrix, and the nights before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final

from harness.findings.record import Finding
from harness.nightly.ledger import NOT_AVAILABLE, Entry
from harness.nightly.matrix import Cell, Matrix
from harness.nightly.night import Night
from results.report.layout import render_template
from results.verdict import Verdict

NIGHTS = 30
"""The rows in the table of nights: the newest ones."""

_MARKS: Final = {"valid": "ok", "unknown": "?", "harness-failure": "!", NOT_AVAILABLE: "–"}


def night_page(matrix: Matrix, night: Night, ledger: Sequence[Entry], findings: Sequence[Finding]) -> str:
    """The page as HTML, in one file. `ledger`: of all nights, this one included."""
    last = {entry.cell: entry for entry in ledger}
    hours = sum(entry.seconds for entry in night.entries) / 3600
    return render_template(
        "night.html.j2",
        date=date.today().isoformat(),
        runs=len(night.entries),
        hours=f"{hours:.1f}",
        rate=f"{len(night.entries) / hours:.0f}" if hours else "0",
        ended=night.ended,
        cells=len(matrix.cells),
        cells_run=sum(cell.name in last for cell in matrix.cells),
        new=night.new,
        failures=night.failures,
        known=_known(night, findings),
        columns=(columns := _columns(matrix)),
        rows=[(nemesis, _row(matrix, nemesis, columns, last)) for nemesis in _nemeses(matrix)],
        verdicts=[v.value for v in Verdict],
        nights=_nights(ledger),
        impossible=[*matrix.impossible.items(), *_lacking(last.values())],
    )


def _known(night: Night, findings: Sequence[Finding]) -> list[tuple[int, str, int, str]]:
    counts = Counter(number for entry in night.entries for number in entry.known)
    first = {number: entry.cell for entry in reversed(night.entries) for number in entry.known}
    titles = {finding.id: finding.title for finding in findings}
    return [(number, titles.get(number, ""), counts[number], first[number]) for number in sorted(counts)]


def _lacking(entries: Iterable[Entry]) -> list[tuple[str, int]]:
    """Returns (the part that this machine or a cluster lacks, the number of cells that need it)."""
    return list(Counter(entry.why for entry in entries if entry.verdict == NOT_AVAILABLE).items())


def _column(cell: Cell) -> str:
    words = (cell.workload, cell.topology, cell.version, cell.profile, cell.client, cell.options)
    return " ".join(word for word in words if word)


def _columns(matrix: Matrix) -> list[str]:
    return list(dict.fromkeys(_column(cell) for cell in matrix.cells))


def _nemeses(matrix: Matrix) -> list[str]:
    return sorted(dict.fromkeys(cell.nemesis for cell in matrix.cells))


def _row(matrix: Matrix, nemesis: str, columns: Sequence[str], last: dict[str, Entry]) -> list[tuple[str, str, str]]:
    """(class, mark, tooltip) for each column."""
    cells = {_column(cell): cell for cell in matrix.cells if cell.nemesis == nemesis}
    found = []
    for column in columns:
        cell = cells.get(column)
        found.append(("", "·", "") if cell is None else _mark(last.get(cell.name)))
    return found


def _mark(entry: Entry | None) -> tuple[str, str, str]:
    if entry is None:
        return "", "", ""
    why = f"{entry.at}: {entry.verdict}; {entry.why}"
    if entry.new:
        return "new", "NEW", why
    if entry.verdict == Verdict.INVALID.value:
        return "known", " ".join(map(str, entry.known)), why
    return entry.verdict, _MARKS.get(entry.verdict, ""), why


def _nights(ledger: Sequence[Entry]) -> list[tuple[str, int, list[int], int]]:
    days: dict[str, list[Entry]] = {}
    for entry in ledger:
        days.setdefault(entry.at[:10], []).append(entry)
    return [
        (
            day,
            len(entries),
            [sum(entry.verdict == v.value for entry in entries) for v in Verdict],
            sum(bool(entry.new) for entry in entries),
        )
        for day, entries in sorted(days.items(), reverse=True)[:NIGHTS]
    ]
