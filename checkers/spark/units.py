# SPDX-License-Identifier: Apache-2.0
"""Units of work, and portions: the units of one task.

A unit is a stored run, a file, some row groups of an op table, or some keys of a long history. Its cost is estimated
from a listing, before any file is opened. A portion is the work of one Spark task. A task costs the driver about 20 ms,
so a portion should take a second or more. A long history after many short ones would keep one executor busy alone, so
expensive units come first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal

Transition = Literal["run", "history", "table"]

PORTION_S: Final = 2.0
"""The estimated work of a full portion, in seconds."""

SMALL_S: Final = 0.25
"""The estimated work of a unit of an op table, and the least of a portion of a small job, in seconds."""

_PER_CORE: Final = 3
"""Portions for each core, if they are not smaller than `SMALL_S`: so that no core waits long for the others."""

PORTION_UNITS: Final = 2_000
"""The largest number of units in a portion: one call checks all their histories, which are in memory together."""

_BYTE_S: Final[dict[str, float]] = {"text": 5e-7, "gzip": 5e-6, "parquet": 5e-6}
_ROW_S: Final = 6e-7
_UNIT_S: Final[dict[Transition, float]] = {"run": 0.03, "history": 0.002, "table": 0.005}


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of work that is done as a whole.

    source   path or URI; of a run its folder.
    name     the run's name in the table; for an op table the name of the file.
    stamp    changes with the content of `source` (sizes and times of modification).
    model    the model to check with, or None: the one that the operations imply.
    groups   op table: parts `groups[0]` to `groups[1]` (exclusive) of it.
    slice    op table: of the runs of those parts the i-th of n equal shares.
    keys     a long history: only its keys, and of them the i-th of n shares.
    rest     a long history: only the part that is not judged key by key.
    huge     a history that is too long for any worker: all executors judge it together (`checkers.spark.keys`).
    sealed   path of a sealed history that was made from `source`, because that is long.
    cost     seconds, estimated.
    files    paths below `source` and their sizes: the files to send to a worker that cannot read `source` itself.
    """

    kind: Transition
    source: str
    name: str
    stamp: str
    model: str | None = None
    groups: tuple[int, int] | None = None
    slice: tuple[int, int] | None = None
    keys: tuple[int, int] | None = None
    rest: bool = False
    huge: bool = False
    sealed: str | None = None
    cost: float = 0.0
    files: tuple[str, ...] = ()

    @property
    def part(self) -> str:
        """The part of a history, as readable text; empty: all of it."""
        if self.rest:
            return "all but the keys"
        return "" if self.keys is None else f"keys {self.keys[0] + 1} of {self.keys[1]}"

    def fingerprint(self, question: str) -> str:
        """A hash that stays the same until the unit or the question (model, budgets, version) changes."""
        facts = asdict(replace(self, cost=0.0, files=()))
        return hashlib.sha256(json.dumps([facts, question], sort_keys=True).encode()).hexdigest()[:24]

    def halves(self) -> list[Unit]:
        """The unit as two, if it can be divided without opening its files; else empty."""
        if self.groups is None or self.groups[1] - self.groups[0] < 2:
            return []
        begin, end = self.groups
        middle = (begin + end) // 2
        return [replace(self, groups=part, cost=self.cost / 2) for part in ((begin, middle), (middle, end))]

    def by_keys(self, count: int) -> list[Unit]:
        """A long history as so many shares of its keys, and the rest."""
        keys = [replace(self, keys=(i, count), cost=self.cost / count) for i in range(count)]
        return [replace(self, rest=True, cost=self.cost / 2), *keys]

    def shares(self, count: int) -> list[Unit]:
        """An op table's parts as `count` shares of their runs."""
        return [replace(self, slice=(i, count), cost=self.cost / count) for i in range(count)]


def file_cost(size: int, name: str) -> float:
    """Seconds that a file of so many bytes may take."""
    kind = "gzip" if name.endswith(".gz") else "parquet" if name.endswith(".parquet") else "text"
    return size * _BYTE_S[kind]


def unit_cost(kind: Transition, reading: float) -> float:
    return _UNIT_S[kind] + reading


def rows_cost(rows: int) -> float:
    """Seconds that so many rows of an op table may take."""
    return rows * _ROW_S


def portions(units: Iterable[Unit], cores: int, portion_s: float = PORTION_S) -> list[tuple[Unit, ...]]:
    """The units as portions, the most expensive first. A unit that is expensive enough is a portion of its own.

    A job that is small for so many cores has smaller portions.
    """
    units = list(units)
    portion_s = min(portion_s, max(SMALL_S, sum(unit.cost for unit in units) / (_PER_CORE * cores)))
    found: list[tuple[Unit, ...]] = []
    filling: list[Unit] = []
    filled = 0.0
    for unit in sorted(units, key=lambda unit: -unit.cost):
        if filling and (filled + unit.cost > portion_s or len(filling) >= PORTION_UNITS):
            found.append(tuple(filling))
            filling, filled = [], 0.0
        filling.append(unit)
        filled += unit.cost
    if filling:
        found.append(tuple(filling))
    return found


def waves(found: Sequence[tuple[Unit, ...]], cores: int) -> list[list[tuple[Unit, ...]]]:
    """Portions in groups that are written together: so many that all cores are busy, so few that a killed job loses
    only seconds. The first ones are small, so that the user sees progress and findings early.
    """
    waves: list[list[tuple[Unit, ...]]] = []
    at, size = 0, cores
    while at < len(found):
        waves.append(list(found[at : at + size]))
        at, size = at + size, min(2 * size, 4 * cores)
    return waves
