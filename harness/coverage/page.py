# SPDX-License-Identifier: Apache-2.0
"""The page of coverage: a map for each workload and topology, and the gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.coverage.counting import CALM, MAIN, SEVERAL, Cell, Coverage, Place, Seen, rows
from harness.coverage.gaps import Gap
from results.report.layout import render_template


def coverage_page(found: Coverage, missing: Sequence[Gap]) -> str:
    """The page as HTML, in one file. missing: the gaps of all places."""
    return render_template("coverage.html.j2", places=[_place(found, place, missing) for place in sorted(found.runs)])


def _place(found: Coverage, place: Place, missing: Sequence[Gap]) -> dict[str, object]:
    here = [gap for gap in missing if gap.place == place]
    faults = [CALM, *sorted(found.faults[place]), SEVERAL]
    return {
        "name": f"{place.workload} on {place.topology}",
        "runs": found.runs[place],
        "faults": faults,
        "rows": [
            (*key, [_mark(row.get(fault)) for fault in faults]) for key, row in rows(found.seen[place], faults).items()
        ],
        "later": _later(found.seen[place]),
        "never": [(gap.fault, gap.command) for gap in here if not gap.impossible],
        "impossible": [(gap.fault, gap.impossible) for gap in here if gap.impossible],
    }


def _mark(seen: Seen | None) -> tuple[str, str]:
    """(number of requests, tooltip); no number: never seen."""
    return ("", "") if seen is None else (f"{seen.requests:,}", f"{seen.runs} runs, from {seen.first} to {seen.last}")


def _later(table: Mapping[Cell, Seen]) -> list[tuple[str, str, str, str, int]]:
    """(phase, request, answer, role, number of requests) of the phases after the main one: no fault is active there."""
    counts: dict[tuple[str, str, str, str], int] = {}
    for cell, seen in table.items():
        if cell.phase != MAIN:
            key = (cell.phase, cell.request, cell.answer, cell.role)
            counts[key] = counts.get(key, 0) + seen.requests
    return [(*key, number) for key, number in sorted(counts.items())]
