# SPDX-License-Identifier: Apache-2.0
"""Short histories of registers whose values are all different, in plain Python: loading numpy takes ten times as long.

The rules are those of `registers`, which has the reasons. Verdict, order and the ops to blame are the same, which a
fuzz test compares.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.monitors.conditions import INITIAL, UNIQUE_REGISTER
from checkers.linearizability.monitors.refusal import Contradiction, Undecided
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

FEW: Final = 8_000
"""The most events of a history that is decided here."""


class Row(NamedTuple):
    """An op. `value`: equal numbers are equal values, INITIAL is the first one. `write`: it leaves its value;
    otherwise it is a read, which returned. `expects`: the value that a cas expects, otherwise NONE.
    """

    write: bool
    value: int
    call: int
    ret: int
    source: int
    expects: int = NONE


class _Zone:
    """The ops of one value: the earliest return, and the latest call; of a value that begins a chain, those of all its
    values. `needed`: the value must have been there. `head`, `depth`: the value that begins its chain, and its place
    there.
    """

    __slots__ = ("depth", "first", "head", "last", "needed", "writer")

    def __init__(self, value: int) -> None:
        self.first, self.last, self.needed, self.writer = NEVER, -1, False, -1
        self.head, self.depth = value, 0

    @property
    def begins(self) -> bool:
        return self.needed and not self.depth


class _Zones:
    """All zones of a history. `cover(position)`: the end of the forward zone that began last by then."""

    def __init__(self, of: dict[int, _Zone]) -> None:
        self.of = of
        forward = sorted((zone.first, zone.last) for zone in of.values() if zone.begins and zone.first < zone.last)
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
    if len(problem.events) <= FEW and all(kind.f in ("read", "write", "cas") for kind in problem.table.kinds):
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
        if zone.begins and zone.first > zone.last and (over := zones.cover(zone.last)) > zone.last:
            place[value] = 2 * over + 1
    place[INITIAL] = -2
    chosen = [at for at, row in enumerate(rows) if zones.of[row.value].needed]

    def key(at: int) -> tuple[int, int, int, bool, int]:
        row = rows[at]
        zone = zones.of[row.value]
        return place[zone.head], zone.head, zone.depth, not row.write, row.call

    return sorted(chosen, key=key)


def _rows(problem: Problem) -> list[Row]:
    """Reads of unknown outcome constrain nothing, and are left out."""
    numbers = {problem.table.model.initial: INITIAL}
    values = [kind.value if kind.f == "cas" else (kind.value, kind.value) for kind in problem.table.kinds]
    # (The numbers are those of the columns: first all arguments, then all that is left.)
    expects, value = ([numbers.setdefault(pair[side], len(numbers)) for pair in values] for side in (0, 1))
    rows = []
    for op in problem.ops:
        kind = problem.kind[op]
        what = problem.table.kinds[kind]
        if what.f != "read" or what.known:
            expected = expects[kind] if what.f == "cas" else NONE
            rows.append(Row(what.f != "read", value[kind], problem.call[op], problem.ret[op], op, expected))
    return rows


def _checked(rows: Sequence[Row]) -> _Zones:
    """The zones, if they fit beside each other. Raises as `Monitor.order`."""
    of: dict[int, _Zone] = {INITIAL: _Zone(INITIAL)}
    for at, row in enumerate(rows):
        zone = of.get(row.value) or of.setdefault(row.value, _Zone(row.value))
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
    _join(rows, of)
    zones = _Zones(of)
    begins = sorted(value for value, zone in of.items() if zone.begins)
    _insist_on_no_overlap(rows, zones, begins)
    for value in begins:
        zone = of[value]
        if zone.first > zone.last and zones.cover(zone.last) > zone.first:
            around = next((v for v in begins if of[v].first < zone.last and of[v].last > zone.first), None)
            raise Contradiction(*_bounds(rows, of, value, around))
    return zones


def _join(rows: Sequence[Row], of: dict[int, _Zone]) -> None:
    """`registers._join`."""
    comes_from = {row.value: row.expects for row in rows if row.expects != NONE}
    todo = [value for value in comes_from if of[value].needed]
    next_of: dict[int, int] = {}
    while todo:
        value = todo.pop()
        before = comes_from[value]
        if before in next_of:
            raise Contradiction(of[next_of[before]].writer, of[value].writer)
        next_of[before] = value
        zone = of.get(before) or of.setdefault(before, _Zone(before))
        if not zone.needed:
            zone.needed = True
            if before in comes_from:
                todo.append(before)
    left = len(next_of)
    for begin in [v for v in next_of if v == INITIAL or (v not in comes_from and of[v].writer >= 0)]:
        head, value, place = of[begin], begin, 0
        while value in next_of:
            value, place, left = next_of[value], place + 1, left - 1
            zone = of[value]
            if zone.first < head.last:
                raise Contradiction(*[at for at, r in enumerate(rows) if r.ret == zone.first or r.call == head.last])
            zone.head, zone.depth = begin, place
            head.first, head.last = min(head.first, zone.first), max(head.last, zone.last)
    if left:
        raise Contradiction(*(of[value].writer for value in next_of.values() if not of[value].depth))


def _insist_on_no_overlap(rows: Sequence[Row], zones: _Zones, begins: Sequence[int]) -> None:
    """Each forward zone that began before another one has ended when that begins."""
    of = zones.of
    over = [
        value
        for value in begins
        if value != INITIAL and of[value].first < of[value].last and zones.cover(of[value].first - 1) > of[value].first
    ]
    if over:
        value = min(over, key=lambda one: of[one].first)
        begin = of[value].first
        raise Contradiction(
            *_bounds(rows, of, value, next((v for v in begins if of[v].first < begin < of[v].last), None))
        )


def _bounds(rows: Sequence[Row], of: dict[int, _Zone], *values: int | None) -> list[int]:
    """The ops that determine the ends of these chains' zones."""
    heads = [of[row.value].head for row in rows]
    return [
        at
        for at, (row, head) in enumerate(zip(rows, heads, strict=True))
        if head in values and (row.ret == of[head].first or row.call == of[head].last)
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
