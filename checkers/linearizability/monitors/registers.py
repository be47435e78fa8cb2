# SPDX-License-Identifier: Apache-2.0
"""Registers whose values are all different: decided in near-linear time, for any number of clients or unknown ops.

If no value is written twice, a read names its write. All ops of one value form a *cluster*; a cas joins the cluster
of the value it expects to that of the value it leaves, so clusters grow into *chains* in a known order. With `first` =
the earliest return in a chain and `last` = its latest call:

* `first < last`: at `first` the chain has begun, at `last` it has not ended, so the register belongs to it all through
  [first, last] (a *forward* zone);
* otherwise every op of the chain is open all through [last, first], and the chain fits at any one point there
  (a *backward* zone).

Linearizable iff every value that was seen has one writer, every chain can follow its own order (no op returns before
one that precedes it is called), no two forward zones overlap, and no backward one lies inside a forward one.

The initial value is a write before everything. Unknown writers count (with no return) if an op saw their value, and are
left out otherwise: an unseen write need not have happened.

Source: Gibbons and Korach, "Testing shared memories" (1997), for reads and writes; chains and unknown writes are new,
fuzzed against brute force and against the search.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.history.arrays import Bools, Longs
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.history.op_columns import OpColumns
from checkers.linearizability.models.specification import Model
from checkers.linearizability.monitors.base import Monitor, chosen, first_proof, reject
from checkers.linearizability.monitors.conditions import INITIAL, UNIQUE_REGISTER
from checkers.linearizability.monitors.refusal import Contradiction, Undecided
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.witness_columns import register_wrong

NAME: Final = UNIQUE_REGISTER

_FEW: Final = 5_000
"""The largest number of ops that are explained by themselves."""


class RegisterOps(NamedTuple):
    """Ops of one register. `value`: equal numbers are equal values, INITIAL is the one at the beginning.

    write    True if it leaves its value. Otherwise it is a read, which returned.
    expects  the value that a cas expects, otherwise NONE.
    """

    write: Bools
    value: Longs
    expects: Longs
    call: Longs
    ret: Longs
    source: Longs


class Zones(NamedTuple):
    """first, last  by value that begins a chain: the earliest return in that, and the latest call.
    needed       by value: True if it must have been there.
    begins       by value: True if it also begins a chain.
    head, depth  by value: the value that begins its chain, and its place in that (with a cas).
    """

    first: Longs
    last: Longs
    needed: Bools
    begins: Bools
    head: Longs
    depth: Longs


def register_columns(ops: OpColumns, model: Model[Any]) -> RegisterOps | None:
    """The columns; None if an op shows a value that the register did *not* hold. Reads of unknown outcome constrain
    nothing, and are left out.
    """
    if "cas-refused" in ops.fs and ops.of("cas-refused").any():
        return None
    leaves = write = ~ops.of("read")
    expects = np.full(len(write), NONE)
    if "cas" in ops.fs:
        cas = ops.of("cas")
        write, expects = leaves & ~cas, np.where(cas, ops.argument + 1, NONE)
    value = np.where(write, ops.argument, ops.result) + 1
    columns = RegisterOps(leaves, value, expects, ops.call, ops.ret, ops.source)
    return columns if ops.known.all() else chosen(columns, leaves | ops.known)


def register_order(ops: RegisterOps) -> Longs:
    """The rows in an order that explains them, without unseen unknown writers. Raises as `Monitor.order`."""
    zones, cover = check_register(ops)
    first, last = zones.first, zones.last
    place = 2 * np.where(first < last, first, last)
    backward = np.nonzero(zones.begins & (first > last))[0]
    over = cover[last[backward]]
    held = over > last[backward]
    place[backward[held]] = 2 * over[held] + 1
    place[INITIAL] = -2
    rows = np.nonzero(zones.needed[ops.value])[0]
    value = ops.value[rows]
    if zones.begins is zones.needed:
        return rows[np.lexsort((ops.call[rows], ~ops.write[rows], value, place[value]))]
    head = zones.head[value]
    return rows[np.lexsort((ops.call[rows], ~ops.write[rows], zones.depth[value], head, place[head]))]


def _replay(ops: RegisterOps, order: Longs) -> str | None:
    return register_wrong(ops.write[order], ops.value[order], ops.expects[order])


MONITOR: Final = Monitor(NAME, register_columns, register_order, lambda ops: ~ops.write, _replay)


def unique_register(problem: Problem) -> Outcome | None:
    """Valid with a witness, invalid, or None if a value is written twice, or an op saw which value was *not* there."""
    return MONITOR.judge(problem, nothing=problem.table.model.initial)


def check_register(ops: RegisterOps) -> tuple[Zones, Longs]:
    """The zones, if they fit beside each other, and their cover; no order is made. Raises as `Monitor.order`."""
    write, value, expects, call, ret, _ = ops
    swaps = np.nonzero(expects >= 0)[0]
    values = max(int(value.max(initial=0)), int(expects[swaps].max(initial=0)) if len(swaps) else 0) + 1
    writes, reads = np.nonzero(write)[0], np.nonzero(~write)[0]
    writer = np.full(values, -1, np.int64)
    writer[value[writes]] = writes
    if (writer[value[writes]] != writes).any() or writer[INITIAL] >= 0:
        raise Undecided
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
    every = np.arange(values)
    zones = Zones(first, last, needed, needed, every, every)
    if len(swaps):
        zones = zones._replace(depth=np.zeros(values, np.int64))
        _join(ops, zones, writer, dict(zip(value[swaps].tolist(), expects[swaps].tolist(), strict=True)))
        zones = zones._replace(begins=needed & (zones.depth == 0))
    cover = _cover(ops, zones)
    backward = np.nonzero(zones.begins & (first > last))[0]
    inside = backward[cover[last[backward]] > first[backward]]
    if len(inside):
        zone = int(inside[0])
        around = np.nonzero(zones.begins & (first < last[zone]) & (last > first[zone]))[0][:1]
        raise Contradiction(*_bounds(ops, zones, zone, *around.tolist()))
    return zones, cover


def _join(ops: RegisterOps, zones: Zones, writer: Longs, comes_from: dict[int, int]) -> None:
    """Makes one chain of the clusters that cas ops join. `comes_from`: by value that a cas leaves, the expected one."""
    first, last, needed, _, head, depth = zones
    # A cas whose value was there found the value that it expected.
    todo = [value for value in comes_from if needed[value]]
    next_of: dict[int, int] = {}
    while todo:
        value = todo.pop()
        before = comes_from[value]
        if before in next_of:
            raise Contradiction(int(writer[next_of[before]]), int(writer[value]))
        next_of[before] = value
        if not needed[before]:
            needed[before] = True
            if before in comes_from:
                todo.append(before)
    left = len(next_of)
    for begin in [value for value in next_of if value == INITIAL or (value not in comes_from and writer[value] >= 0)]:
        value, place = begin, 0
        while value in next_of:
            value, place, left = next_of[value], place + 1, left - 1
            if first[value] < last[begin]:
                raise Contradiction(*np.nonzero((ops.ret == first[value]) | (ops.call == last[begin]))[0].tolist())
            head[value], depth[value] = begin, place
            first[begin], last[begin] = min(first[begin], first[value]), max(last[begin], last[value])
    if left:
        # A value that was never written, or only by a cas that expects a value after it.
        raise Contradiction(*(int(writer[value]) for value in next_of.values() if not depth[value]))


def _cover(ops: RegisterOps, zones: Zones) -> Longs:
    """By position: the end of the forward zone that began last (or before everything: the initial value's)."""
    first, last = zones.first, zones.last
    forward = np.nonzero(zones.begins & (first < last))[0]
    size = max(int(ops.call.max(initial=0)), int(last.max())) + 2
    begins = np.full(size, -1, np.int64)
    # A forward zone begins at a return before some call, so it lies among the calls; that of the initial value before.
    later = forward[forward != INITIAL]
    begins[first[later]] = last[later]
    cover = np.maximum.accumulate(np.maximum(begins, last[INITIAL]))
    # Beside each other: each zone that began before this one has ended when it begins.
    before = np.where(first[later] > 0, cover[np.maximum(first[later] - 1, 0)], last[INITIAL])
    overlap = later[before > first[later]]
    if len(overlap):
        zone = int(overlap[np.argmin(first[overlap])])
        earlier = np.nonzero(zones.begins & (first < first[zone]) & (last > first[zone]))[0][:1]
        raise Contradiction(*_bounds(ops, zones, zone, *earlier.tolist()))
    return cover


def _bounds(ops: RegisterOps, zones: Zones, *of: int) -> list[int]:
    """The ops that determine the ends of these chains' zones."""
    head = zones.head[ops.value]
    rows: npt.NDArray[np.intp] = np.nonzero(np.isin(head, of))[0]
    at = head[rows]
    return rows[(ops.ret[rows] == zones.first[at]) | (ops.call[rows] == zones.last[at])].tolist()  # type: ignore[no-any-return]


class Few(NamedTuple):
    """source: the names of a few ops that contradict each other, and of all ops on their values. returned: True for
    those that had returned by the earliest proof; the outcome of the others is unknown.
    """

    source: Longs
    returned: Bools


def refute_register(ops: OpColumns, model: Model[Any]) -> Few | None:
    """All ops of a few values that contradict each other. None: no contradiction, or none of few ops.

    If a history has an order, it also has one without all ops of any value, if each value was written once and no cas
    is there: no read loses the write in front of it. So these few ops prove that the whole has no order.
    """
    columns = register_columns(ops, model) if model.initial is None else None
    if columns is None or (columns.expects != NONE).any():
        return None
    try:
        check_register(columns)
        return None
    except Undecided:
        return None
    except Contradiction:
        _, known, blamed = first_proof(columns, ~columns.write, check_register)
    concerned = np.isin(known.value, known.value[blamed])
    if not concerned.any() or concerned.sum() > _FEW:
        return None
    return Few(known.source[concerned], known.ret[concerned] < NEVER)
