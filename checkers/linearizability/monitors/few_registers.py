# SPDX-License-Identifier: Apache-2.0
"""Short histories of registers whose values are all different, in plain Python: loading numpy takes ten times as long.

The rules are those of `registers`, which has the reasons, without chains (no cas). Verdict, order and the ops to blame
are the same, which a fuzz test compares.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.monitors.conditions import INITIAL, UNIQUE_REGISTER
from checkers.linearizability.monitors.refusal import Contradiction, Undecided
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

FEW: Final = 8_000
"""The most events of a history that is decided here."""


class Row(NamedTuple):
    """An op. `value`: equal numbers are equal values, INITIAL is the first one. `write`: it leaves its value;
    otherwise it is a read, which returned.
    """

    write: bool
    value: int
    call: int
    ret: int
    source: int


class _Zone:
    """The ops of one value: the earliest return, and the latest call. `needed`: the value must have been there."""

    __slots__ = ("first", "last", "needed", "writer")

    def __init__(self) -> None:
        self.first, self.last, self.needed, self.writer = NEVER, -1, False, -1


class _Zones:
    """All zones of a history. `cover(position)`: the end of the forward zone that began last by then."""

    def __init__(self, of: dict[int, _Zone]) -> None:
        self.of = of
        forward = sorted((zone.first, zone.last) for zone in of.values() if zone.needed and zone.first < zone.last)
        self._begins = [first for first, _ in forward]
        self._ends = [last for _, last in forward]
        for at in range(1, len(forward)):
            self._ends[at] = max(self._ends[at], self._ends[at - 1])
        self._start = of[INITIAL].last

    def cover(self, position: int) -> int:
        at = bisect_right(self._begins, position)
        return max(self._ends[at - 1], self._start) if at else self._start


def unique_register(problem: Problem) -> Outcome | None:
    """`registers.unique_register`, in the way that is cheaper for this history."""
    if len(problem.events) <= FEW and all(kind.f in ("read", "write") for kind in problem.table.kinds):
        return judge(_rows(problem), UNIQUE_REGISTER, len(problem.events))
    # Imported here: numpy takes longer to load than a small history takes to check.
    from checkers.linearizability.monitors.registers import unique_register

    return unique_register(problem)


def judge(rows: Sequence[Row], name: str, work: int) -> Outcome | None:
    """Valid with a witness, invalid with the earliest return that proves it and the ops to blame, or None if no rule
    applies.
    """
    try:
        order = register_order(rows)
        return Outcome(Verdict.VALID, name, work, witness=[rows[row].source for row in order])
    except Undecided:
        return None
    except Contradiction:
        position, known, blamed = _first_proof(rows)
    core = [known[row].source for row in blamed if known[row].ret < NEVER]
    return Outcome(Verdict.INVALID, name, work, position, core=core)


def register_order(rows: Sequence[Row]) -> list[int]:
    """The rows in an order that explains them, without unseen unknown writers. Raises as `Monitor.order`."""
    zones = _checked(rows)
    place: dict[int, int] = {}
    for value, zone in zones.of.items():
        place[value] = 2 * min(zone.first, zone.last)
        if zone.first > zone.last and (over := zones.cover(zone.last)) > zone.last:
            place[value] = 2 * over + 1
    place[INITIAL] = -2
    chosen = [at for at, row in enumerate(rows) if zones.of[row.value].needed]
    return sorted(chosen, key=lambda at: (place[rows[at].value], rows[at].value, not rows[at].write, rows[at].call))


def _rows(problem: Problem) -> list[Row]:
    """Reads of unknown outcome constrain nothing, and are left out."""
    numbers = {problem.table.model.initial: INITIAL}
    value = [numbers.setdefault(kind.value, len(numbers)) for kind in problem.table.kinds]
    rows = []
    for op in problem.ops:
        kind = problem.kind[op]
        what = problem.table.kinds[kind]
        if what.f == "write" or what.known:
            rows.append(Row(what.f == "write", value[kind], problem.call[op], problem.ret[op], op))
    return rows


def _checked(rows: Sequence[Row]) -> _Zones:
    """The zones, if they fit beside each other. Raises as `Monitor.order`."""
    of: dict[int, _Zone] = {INITIAL: _Zone()}
    for at, row in enumerate(rows):
        zone = of.setdefault(row.value, _Zone())
        if row.write:
            if zone.writer >= 0 or row.value == INITIAL:
                raise Undecided
            zone.writer, zone.first, zone.last, zone.needed = at, row.ret, row.call, row.ret < NEVER
    reads = [at for at, row in enumerate(rows) if not row.write]
    for at in reads:
        if of[rows[at].value].writer < 0 and rows[at].value != INITIAL:
            raise Contradiction(at)
    for at in reads:
        writer = of[rows[at].value].writer
        if writer >= 0 and rows[at].ret < rows[writer].call:
            raise Contradiction(at)
    for at in reads:
        zone = of[rows[at].value]
        zone.first, zone.last, zone.needed = min(zone.first, rows[at].ret), max(zone.last, rows[at].call), True
    of[INITIAL].first, of[INITIAL].needed = -1, True
    zones = _Zones(of)
    needed = sorted(value for value, zone in of.items() if zone.needed)
    _insist_on_no_overlap(rows, zones, needed)
    for value in needed:
        zone = of[value]
        if zone.first > zone.last and zones.cover(zone.last) > zone.first:
            around = next((v for v in needed if of[v].first < zone.last and of[v].last > zone.first), None)
            raise Contradiction(*_bounds(rows, of, value, around))
    return zones


def _insist_on_no_overlap(rows: Sequence[Row], zones: _Zones, needed: Sequence[int]) -> None:
    """Each forward zone that began before another one has ended when that begins."""
    of = zones.of
    over = [
        value
        for value in needed
        if value != INITIAL and of[value].first < of[value].last and zones.cover(of[value].first - 1) > of[value].first
    ]
    if over:
        value = min(over, key=lambda one: of[one].first)
        begin = of[value].first
        raise Contradiction(
            *_bounds(rows, of, value, next((v for v in needed if of[v].first < begin < of[v].last), None))
        )


def _bounds(rows: Sequence[Row], of: dict[int, _Zone], *values: int | None) -> list[int]:
    """The ops that determine the ends of these values' zones."""
    return [
        at
        for at, row in enumerate(rows)
        if row.value in values and (row.ret == of[row.value].first or row.call == of[row.value].last)
    ]


def _first_proof(rows: Sequence[Row]) -> tuple[int, Sequence[Row], Sequence[int]]:
    """`base.first_proof`."""

    def refuted(position: int) -> bool:
        return _blamed(_until(rows, position)) is not None

    returns = sorted(row.ret for row in rows if row.ret < NEVER)
    position = returns[bisect_left(returns, True, hi=len(returns) - 1, key=refuted)]
    known = _until(rows, position)
    return position, known, _blamed(known) or ()


def _blamed(rows: Sequence[Row]) -> Sequence[int] | None:
    """The rows of a contradiction; None if none is found."""
    try:
        _checked(rows)
    except Undecided:
        return None
    except Contradiction as found:
        return found.rows
    return None


def _until(rows: Sequence[Row], position: int) -> list[Row]:
    """The ops as known right after the event at `position`, like `Problem.before`."""
    return [
        row if row.ret <= position else row._replace(ret=NEVER)
        for row in rows
        if row.call <= position and (row.write or row.ret <= position)
    ]
