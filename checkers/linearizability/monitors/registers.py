"""Registers that are read and written, every value once: the zones of `zones` on arrays, for millions of ops.

What `unique` does for reads, writes and cas with one object per value, this does for reads and writes in a few passes
over arrays. Source: Gibbons and Korach, "Testing shared memories" (1997); unknown writes are ours.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, Bools, Longs, Times
from checkers.linearizability.monitors.base import Contradiction, Undecided, judged, reject, times
from checkers.linearizability.outcome import Outcome

NAME: Final = "unique-value register"

INITIAL: Final = 0
"""The number of the value that nobody wrote."""


class RegisterOps(NamedTuple):
    """Ops of one register. `value`: equal numbers are equal values, INITIAL is the one at the beginning.

    write  is it a write? Otherwise a read, which returned.
    """

    write: Bools
    value: Longs
    when: Times

    def chosen(self, keep: Bools, when: Times) -> RegisterOps:
        return RegisterOps(self.write[keep], self.value[keep], when)


class _Zones(NamedTuple):
    """By value: the earliest return and the latest call of its ops; whether it must have been there; by position: the
    end of the forward zone that began last.
    """

    first: Longs
    last: Longs
    needed: Bools
    cover: Longs


def written_once(problem: Problem) -> Outcome | None:
    """Valid with a witness, invalid, or None where there is a cas, or a value is written twice."""
    ops = register_ops(problem)
    return None if ops is None else judged(problem, NAME, ops, ~ops.write, register_order)


def register_ops(problem: Problem) -> RegisterOps | None:
    """The columns of a register's problem; None if there are other ops than reads and writes."""
    kinds = problem.table.kinds
    numbers: dict[Any, int] = {problem.table.model.initial: INITIAL}
    value = np.array([numbers.setdefault(kind.value, len(numbers)) for kind in kinds], dtype=np.int64)
    write = np.array([kind.f == "write" for kind in kinds], dtype=bool)
    other = np.array([kind.f not in ("read", "write") for kind in kinds], dtype=bool)
    when = times(problem)
    kind = np.array(problem.kind, dtype=np.int64)[when.op]
    return None if other[kind].any() else RegisterOps(write[kind], value[kind], when)


def register_order(ops: RegisterOps) -> Longs:
    """The rows in an order that explains them; unknown writes that nobody saw are left out. Raises as `judged` says."""
    zones = check_register(ops)
    write, value, (_, call, _) = ops
    place = np.where(zones.first < zones.last, 2 * zones.first, 2 * zones.last)
    backward = np.nonzero(zones.needed & (zones.first > zones.last))[0]
    over = zones.cover[zones.last[backward]]
    held = over > zones.last[backward]
    place[backward[held]] = 2 * over[held] + 1
    place[INITIAL] = -2
    rows = np.nonzero(zones.needed[value])[0]
    return rows[np.lexsort((call[rows], ~write[rows], value[rows], place[value[rows]]))]


def check_register(ops: RegisterOps) -> _Zones:
    """The zones, when they fit beside each other; no order is made. Raises as `judged` says."""
    write, value, (_, call, ret) = ops
    values = int(value.max()) + 1 if len(value) else 1
    writes = np.nonzero(write)[0]
    writer = np.full(values, -1, np.int64)
    writer[value[writes]] = writes
    if (writer[value[writes]] != writes).any() or writer[INITIAL] >= 0:
        raise Undecided
    reads = np.nonzero(~write)[0]
    source = writer[value[reads]]
    reject(reads[(source < 0) & (value[reads] != INITIAL)])
    reject(reads[ret[reads] < np.where(source < 0, -1, call[source])])
    first, last = np.full(values, NEVER, np.int64), np.full(values, -1, np.int64)
    first[value[writes]], last[value[writes]] = ret[writes], call[writes]
    needed = first < NEVER
    needed[value[reads]] = True
    np.minimum.at(first, value[reads], ret[reads])
    np.maximum.at(last, value[reads], call[reads])
    needed[INITIAL] = True
    first[INITIAL] = -1
    cover = _cover(ops, first, last, needed)
    backward = np.nonzero(needed & (first > last))[0]
    inside = backward[cover[last[backward]] > first[backward]]
    if len(inside):
        zone = int(inside[0])
        around = np.nonzero(needed & (first < last[zone]) & (last > first[zone]))[0][:1]
        raise Contradiction(*_bounds(ops, first, last, zone, *around.tolist()))
    return _Zones(first, last, needed, cover)


def _cover(ops: RegisterOps, first: Longs, last: Longs, needed: Bools) -> Longs:
    """By position: where the forward zone ends that began last (or before everything: the initial value's)."""
    forward = np.nonzero(needed & (first < last))[0]
    size = int(ops.when.call.max(initial=0)) + 2
    size = max(size, int(last.max()) + 2)
    begins = np.full(size, -1, np.int64)
    # A forward zone begins at a return before some call, so it lies among the calls; that of the initial value before.
    later = forward[forward != INITIAL]
    begins[first[later]] = last[later]
    cover = np.maximum.accumulate(np.maximum(begins, last[INITIAL]))
    # Beside each other: whatever began before this one has ended when it begins.
    before = np.where(first[later] > 0, cover[np.maximum(first[later] - 1, 0)], last[INITIAL])
    overlap = later[before > first[later]]
    if len(overlap):
        zone = int(overlap[np.argmin(first[overlap])])
        earlier = np.nonzero(needed & (first < first[zone]) & (last > first[zone]))[0][:1]
        raise Contradiction(*_bounds(ops, first, last, zone, *earlier.tolist()))
    return cover


def _bounds(ops: RegisterOps, first: Longs, last: Longs, *zones: int) -> list[int]:
    """The ops that make the zones of these values as long as they are."""
    rows: npt.NDArray[np.intp] = np.nonzero(np.isin(ops.value, zones))[0]
    at = ops.value[rows]
    return rows[(ops.when.ret[rows] == first[at]) | (ops.when.call[rows] == last[at])].tolist()  # type: ignore[no-any-return]
