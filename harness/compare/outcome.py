# SPDX-License-Identifier: Apache-2.0
"""The outcome of a comparison: the state of each thing, the figures side by side, the exit code, one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from harness.compare.evidence import (
    TOO_MANY,
    CellEvidence,
    Pair,
    State,
    bound,
    count_tests,
    decide,
    evidence,
    exchanged,
    may_be_worse,
    missing,
)
from harness.compare.pairs import NEW, OLD, SIDES, Course, Figures
from harness.findings.rates import describe
from results.figures import many

NOT_WORSE: Final = 0
WORSE: Final = 1
NOT_DECIDED: Final = 2
FAILURE: Final = 3

_ORDER: Final = (State.NEW, State.MORE, State.UNDECIDED, State.GONE, State.LESS, State.AS_BEFORE)

FIGURES: Final = {
    "rate": "acknowledged a second",
    "p50_ms": "latency, median (ms)",
    "p99_ms": "latency, 99 % (ms)",
    "silence_s": "longest silence (s)",
}


@dataclass(frozen=True)
class Row:
    """One thing in one cell.

    new, old  number of tried pairs in which each build showed it.
    evidence  that of the stronger direction. wanted: the evidence that decides.
    takes     further pairs that would decide it; "": it is decided.
    worse     true if it is undecided, and the new build may show it more often.
    """

    thing: str
    cell: str
    state: State
    new: int
    old: int
    pairs: int
    evidence: float
    wanted: float
    takes: str = ""
    worse: bool = False

    @property
    def counts(self) -> str:
        """`5 of 5 (0.48 to 1.00) against 0 of 5 (0.00 to 0.52)`."""
        return f"{describe(self.new, self.pairs)} against {describe(self.old, self.pairs)}"


@dataclass(frozen=True)
class Compared:
    """One figure of a cell: (median, lowest, highest) of each build; runs: of the new one, of the old one."""

    cell: str
    figure: str
    new: tuple[float, float, float]
    old: tuple[float, float, float]
    runs: tuple[int, int]

    @property
    def ratio(self) -> float | None:
        return self.new[0] / self.old[0] if self.old[0] else None


@dataclass(frozen=True)
class Outcome:
    """rows: the gravest state first. short: cells without a pair that tried something, with the reason."""

    rows: Sequence[Row]
    figures: Sequence[Compared]
    short: Sequence[tuple[str, str]]
    pairs: int
    code: int

    @property
    def verdict(self) -> str:
        return {NOT_WORSE: "NOT WORSE", WORSE: "WORSE", NOT_DECIDED: "NOT DECIDED"}.get(self.code, "HARNESS-FAILURE")

    @property
    def cells(self) -> list[str]:
        """The cells that were tried, those with the gravest state first."""
        return list(dict.fromkeys([*(row.cell for row in self.rows), *(one.cell for one in self.figures)]))

    def things(self, *states: State) -> list[str]:
        """The things with one of these states, each once."""
        return list(dict.fromkeys(row.thing for row in self.rows if row.state in states))

    def line(self, seconds: float) -> str:
        """The one line: the verdict, then the things by state."""
        parts = [f"new: {', '.join(self.things(State.NEW)) or 'nothing'}"]
        parts += [
            f"{state.value}: {', '.join(found)}"
            for state in (State.MORE, State.UNDECIDED, State.GONE, State.LESS, State.AS_BEFORE)
            if (found := self.things(state))
        ]
        return f"{self.verdict}   {'; '.join(parts)}   {many(self.pairs, 'pair')} in {seconds / 60:.0f} min"

    def to_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict.lower(), "exit_code": self.code, **asdict(self)}


def outcome(course: Course) -> Outcome:
    """The outcome of the pairs so far, as if none followed."""
    cells = course.evidence()
    tests = count_tests(cells)
    names = [cell.name for cell in course.comparison.cells]
    rows = [
        _row(thing, names[n], column, tests)
        for n, cell in enumerate(cells)
        for thing, column in cell.columns.items()
        if column
    ]
    rows.sort(key=lambda row: (_ORDER.index(row.state), *_place(row.thing), -max(row.new, row.old)))
    short = [(names[n], _why(course, n, cell)) for n, cell in enumerate(cells) if not cell.tried]
    tried = sum(not pair.untried for pair in course.pairs)
    return Outcome(rows, list(_compared(course)), short, tried, _code(rows, cells, tried))


def _code(rows: Sequence[Row], cells: Sequence[CellEvidence], tried: int) -> int:
    if any(row.state.worse for row in rows):
        return WORSE
    if not tried:
        return FAILURE if any(cell.wasted for cell in cells) else NOT_DECIDED
    open_cells = any(not cell.tried and cell.wasted < TOO_MANY for cell in cells)
    return NOT_DECIDED if open_cells or any(row.worse for row in rows) else NOT_WORSE


def _row(thing: str, cell: str, column: Sequence[Pair], tests: int) -> Row:
    state = decide(column, tests, ended=True)
    takes = ""
    if state == State.UNDECIDED:
        differ, same = missing(column, tests)
        takes = f"{differ} more that differ alike, or {same} more that do not differ"
    return Row(
        thing,
        cell,
        state,
        sum(new for new, _ in column),
        sum(old for _, old in column),
        len(column),
        round(max(evidence(column), evidence(exchanged(column))), 2),
        bound(tests),
        takes,
        state == State.UNDECIDED and may_be_worse(column),
    )


def _place(thing: str) -> tuple[int, str]:
    """The sort key of a thing: findings by their number, then anomalies by their name."""
    number = thing.removeprefix("finding ")
    return (int(number), "") if number.isdecimal() else (1 << 31, thing)


def _why(course: Course, cell: int, found: CellEvidence) -> str:
    reasons = [pair.untried for pair in course.pairs if pair.cell == cell]
    return reasons[-1] if reasons and found.wasted else "no pair of it has run"


def _compared(course: Course) -> Iterable[Compared]:
    for number, cell in enumerate(course.comparison.cells):
        of: dict[str, list[Figures]] = {side: [] for side in SIDES}
        for pair in course.pairs:
            if pair.cell == number and not pair.untried:
                for side, sample in ((NEW, pair.new), (OLD, pair.old)):
                    if sample.figures is not None:
                        of[side].append(sample.figures)
        new, old = (of[side] for side in SIDES)
        if new and old:
            for figure in FIGURES:
                yield Compared(
                    cell.name,
                    figure,
                    _spread(getattr(one, figure) for one in new),
                    _spread(getattr(one, figure) for one in old),
                    (len(new), len(old)),
                )


def _spread(values: Iterable[float]) -> tuple[float, float, float]:
    found = sorted(values)
    return round(median(found), 2), found[0], found[-1]
