# SPDX-License-Identifier: Apache-2.0
"""A covering array, row by row: soon, every two values of different axes, or every three, were in one row.

Each row is the best of some that are made greedily (Cohen, Dalal, Fredman, Patton 1997). A pair counts by the weights
of its values, so the first rows have what is worth most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import combinations, product
from random import Random
from typing import Final

Axes = Mapping[str, Mapping[str, float]]
"""Axis -> value -> weight."""

Row = Mapping[str, str]
"""Axis -> value."""

Tuple = frozenset[tuple[str, str]]
"""Values of two axes, or of three."""

_CANDIDATES: Final = 12
GIVEN_UP: Final = 3
"""After so many tries in which its strikes did not come about, a tuple is a gap."""


class CoveringArray:
    """The rows of an arm. `idle`: axes that mean nothing in a row, so that no tuple with them occurs in it.

    strength   2: all pairs; 3: all triples. open: tuples that did not come about yet. gaps: those that were given up.
    """

    def __init__(self, axes: Axes, idle: Callable[[Row], Collection[str]], seed: int, strength: int = 2) -> None:
        self.axes, self._idle, self._rng, self.strength = axes, idle, Random(seed), strength
        self._tries: Counter[Tuple] = Counter()
        self._weight: dict[Tuple, float] = {}
        for names in combinations(self.axes, strength):
            for values in product(*(self.axes[name].items() for name in names)):
                row = dict(zip(names, (value for value, _ in values), strict=True))
                if not set(self._idle(row)) & set(row):
                    self._weight[frozenset(row.items())] = math.prod(weight for _, weight in values)
        self.open = set(self._weight)
        self.gaps: set[Tuple] = set()

    @property
    def total(self) -> int:
        """The number of all pairs, or of all triples."""
        return len(self._weight)

    @property
    def covered(self) -> int:
        """The number of those that came about."""
        return self.total - len(self.open) - len(self.gaps)

    def tuples(self, row: Row) -> set[Tuple]:
        """The pairs, or the triples, that a row contains."""
        idle = self._idle(row)
        values = [(axis, value) for axis, value in row.items() if axis not in idle]
        return {frozenset(some) for some in combinations(values, self.strength)}

    def next(self, planned: Collection[Row] = ()) -> Row:
        """The next row, beside those that are planned already. When all came about, they begin again."""
        if not self.open:
            self.open = set(self._weight) - self.gaps
        left = self.open.difference(*map(self.tuples, planned)) or self.open
        rows = [self._greedy(left) for _ in range(_CANDIDATES)]
        return max(rows, key=lambda row: sum(self._weight[some] for some in self.tuples(row) & left))

    def _greedy(self, left: Collection[Tuple]) -> Row:
        start = max(left, key=lambda some: self._weight[some] * self._rng.random())
        row = dict(start)
        rest = [axis for axis in self.axes if axis not in row]
        self._rng.shuffle(rest)
        for axis in rest:
            worth = {value: self._worth(row, axis, value, left) for value in self.axes[axis]}
            row[axis] = max(worth, key=lambda value: worth[value] + self._rng.random())
        return {axis: row[axis] for axis in self.axes}

    def _worth(self, row: Row, axis: str, value: str, left: Collection[Tuple]) -> float:
        found = (frozenset({(axis, value), *some}) for some in combinations(row.items(), self.strength - 1))
        return sum(self._weight[some] for some in found if some in left)

    def came_about(self, row: Row, axes: Collection[str] | None = None) -> None:
        """All strikes of the row took effect. axes: only these came about; None: all."""
        found = self.tuples(row)
        self.open -= found if axes is None else {some for some in found if all(axis in axes for axis, _ in some)}

    def did_not(self, row: Row) -> None:
        """An event of the row did not come, or the time was over."""
        for some in self.tuples(row) & self.open:
            self._tries[some] += 1
            if self._tries[some] >= GIVEN_UP:
                self.open.remove(some)
                self.gaps.add(some)
