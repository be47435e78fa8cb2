# SPDX-License-Identifier: Apache-2.0
"""The sequential test of a comparison, which is named before the first run.

A *pair* is one run of each build with the same plan and the same seed. A *thing* is an anomaly or a finding that a run
shows or does not show. For one thing in one cell, a pair is two bits: shown by the new build, shown by the old one.

The null hypothesis: both runs of a pair show the thing with the same probability. That probability is unknown, and may
be another one in each pair. An alternative: the new build shows it with probability a, the old one with b. The factor
of a pair is its probability under the alternative, divided by that under (a + b) / 2 for both. Its expected value is at
most 1 under the null hypothesis (Turner, Ly, Gruenwald 2021: safe tests for 2x2 tables). So the product of the factors
exceeds 1 / e with probability e at most, however long the comparison lasts, whichever cell comes next, and whenever it
ends (Ville 1939). The evidence is the mean of three such products. It decides `differs` at 2 * m / ERROR: 2 for the two
directions, m for the number of different columns of bits (Bonferroni; anomalies that always come together are one).

The other end is Wald's (1945): `as before` when the clear alternative has become improbable in both directions. A
comparison that ends early is truncated by Wald's rule (1947, 3.8), in favour of `as before` only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Final, TypeAlias

Pair: TypeAlias = tuple[bool, bool]
"""(shown by the new build, shown by the old build)."""

CLEAR: Final = (0.95, 0.05)
"""The clear alternative: one build shows it nearly always, the other one nearly never."""

ALTERNATIVES: Final = (CLEAR, (0.6, 0.02), (0.98, 0.4))
"""Alternatives with equal weights; for the other direction, with the builds exchanged."""

ERROR: Final = 0.05
"""The accepted probability that a comparison of two equal builds reports any difference."""

MISS: Final = 0.15
"""Wald's bound for the probability that a clear difference is called `as before`."""

LEAST: Final = 2
"""The fewest pairs of a cell for `as before`, unless the time is up."""

TOO_MANY: Final = 3
"""So many pairs of a cell in a row that tried nothing end the cell: the next one would try nothing, either."""


UNDECIDED: Final = "unknown"
"""The thing that a run shows of which a judge decided nothing."""


class State(StrEnum):
    """The result for one thing in one cell."""

    NEW = "new"
    MORE = "more often"
    UNDECIDED = "undecided"
    LESS = "less often"
    GONE = "gone"
    AS_BEFORE = "as before"

    @property
    def worse(self) -> bool:
        return self in (State.NEW, State.MORE)


def factor(pair: Pair, alternative: tuple[float, float]) -> float:
    """The factor of one pair under an alternative (a, b)."""
    a, b = alternative
    middle = (a + b) / 2
    new, old = pair
    above = (a if new else 1 - a) * (b if old else 1 - b)
    return above / ((middle if new else 1 - middle) * (middle if old else 1 - middle))


_KINDS: Final[Sequence[Pair]] = ((True, True), (True, False), (False, True), (False, False))

Counts: TypeAlias = tuple[int, ...]
"""The number of pairs of each of `_KINDS`: their order has no influence."""


@cache
def _likelihood(counts: Counts, alternative: tuple[float, float]) -> float:
    """The product of the factors."""
    found = 1.0
    for pair, count in zip(_KINDS, counts, strict=True):
        found *= factor(pair, alternative) ** count
    return found


def _counts(pairs: Iterable[Pair]) -> Counts:
    found = Counter(pairs)
    return tuple(found[kind] for kind in _KINDS)


def evidence(pairs: Iterable[Pair]) -> float:
    """The evidence that the new build shows it more often. For the other direction: `evidence(exchanged(pairs))`."""
    counts = _counts(pairs)
    return sum(_likelihood(counts, one) for one in ALTERNATIVES) / len(ALTERNATIVES)


def clear(pairs: Iterable[Pair]) -> float:
    """The likelihood ratio of the clear alternative alone: the new build shows it nearly always, the old one nearly
    never.
    """
    return _likelihood(_counts(pairs), CLEAR)


def exchanged(pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs with the builds exchanged."""
    return [(old, new) for new, old in pairs]


def bound(tests: int) -> float:
    """The evidence that decides for a difference, among so many different columns."""
    return 2 * max(1, tests) / ERROR


def decide(pairs: Sequence[Pair], tests: int, *, ended: bool) -> State:
    """The state of a thing after its pairs. ended: no further pair follows."""
    other = exchanged(pairs)
    shown_new, shown_old = sum(new for new, _ in pairs), sum(old for _, old in pairs)
    if evidence(pairs) >= bound(tests):
        return State.NEW if not shown_old else State.MORE
    if evidence(other) >= bound(tests):
        return State.GONE if not shown_new else State.LESS
    left = max(clear(pairs), clear(other))
    enough = bool(pairs) and left <= 1 if ended else len(pairs) >= LEAST and left <= MISS
    return State.AS_BEFORE if enough else State.UNDECIDED


def may_be_worse(pairs: Sequence[Pair]) -> bool:
    """True if the end of the comparison leaves open that the new build shows it more often."""
    return not pairs or clear(pairs) > 1


def missing(pairs: Sequence[Pair], tests: int) -> tuple[int, int]:
    """(further pairs that differ as the last one that did, until the difference is decided; further pairs in which the
    builds do the same, until `as before` is decided).
    """
    ways = [pair for pair in pairs if pair[0] != pair[1]]
    differ = ways[-1] if ways else (True, False)
    return _until(pairs, differ, tests), _until(pairs, (False, False), tests)


def _until(pairs: Sequence[Pair], next_one: Pair, tests: int) -> int:
    """The number of further pairs, all like `next_one`, until the thing is decided."""
    grown = list(pairs)
    while decide(grown, tests, ended=False) == State.UNDECIDED:
        grown.append(next_one)
    return len(grown) - len(pairs)


@dataclass
class CellEvidence:
    """The pairs of one cell.

    columns  thing -> its bits. A thing that appears late was absent before.
    pairs    number of whole pairs that tried something; `decided`: of those whose judges decided everything.
    parts    number of pairs of which one run came to no end.
    wasted   number of pairs since then that tried nothing.
    """

    columns: dict[str, list[Pair]] = field(default_factory=dict)
    pairs: int = 0
    decided: int = 0
    parts: int = 0
    wasted: int = 0

    @property
    def tried(self) -> int:
        """The number of pairs that say something."""
        return self.pairs + self.parts

    def add(
        self,
        new: Iterable[str],
        old: Iterable[str],
        doubtful: Iterable[str] = (),
        undecided: tuple[bool, bool] = (False, False),
    ) -> None:
        """Adds a pair: the things that each run showed. It says nothing about things that are doubtful in a run, nor
        about those that a run did not show of which a judge decided nothing (`undecided`: new, old).
        """
        shown_new, shown_old, unsure = set(new), set(old), set(doubtful)
        for thing in sorted(shown_new | shown_old):
            before = self.pairs if thing == UNDECIDED else self.decided
            self.columns.setdefault(thing, [(False, False)] * before)
        for thing, column in self.columns.items():
            silent = thing != UNDECIDED and any(
                open_ and thing not in shown for open_, shown in zip(undecided, (shown_new, shown_old), strict=True)
            )
            if thing not in unsure and not silent:
                column.append((thing in shown_new, thing in shown_old))
        self.pairs += 1
        self.decided += not any(undecided)
        self.wasted = 0

    def add_part(self, thing: str, pair: Pair) -> None:
        """Adds a pair of which only one run came to an end: it says something about this thing alone."""
        self.columns.setdefault(thing, [(False, False)] * self.pairs).append(pair)
        self.parts += 1
        self.wasted = 0

    def differing(self) -> set[tuple[Pair, ...]]:
        """The different columns in which the builds differed at least once."""
        return {tuple(column) for column in self.columns.values() if any(a != b for a, b in column)}


def count_tests(cells: Iterable[CellEvidence]) -> int:
    """The number of tests: different columns, in which the builds differed at least once, of all cells."""
    return sum(len(cell.differing()) for cell in cells)


def open_things(cell: CellEvidence, tests: int) -> list[str]:
    """The things of a cell that are not decided yet."""
    return [thing for thing, column in cell.columns.items() if decide(column, tests, ended=False) == State.UNDECIDED]


def next_cell(cells: Sequence[CellEvidence]) -> int | None:
    """The index of the cell for the next pair; None: everything is decided.

    First each cell once; then the one with the strongest evidence for a difference that is not decided, those first in
    which the new build may be worse; then the one with the fewest pairs.
    """
    tests = count_tests(cells)
    left = [n for n, cell in enumerate(cells) if cell.wasted < TOO_MANY]
    for number in left:
        if not cells[number].tried:
            return number
    suspected: list[tuple[bool, float, int]] = []
    for number in left:
        for thing in open_things(cells[number], tests):
            column = cells[number].columns[thing]
            if any(a != b for a, b in column):
                more, less = evidence(column), evidence(exchanged(column))
                suspected.append((more > less, max(more, less), -number))
    if suspected:
        return -max(suspected)[2]
    few = [n for n in left if cells[n].tried < LEAST or open_things(cells[n], tests)]
    return min(few, key=lambda n: cells[n].tried, default=None)
