# SPDX-License-Identifier: Apache-2.0
"""The append-only log, decided by its offsets: one queue of a RocketMQ topic with millions of messages.

An acknowledged append has its offset, and a read at an offset shows the entry there. So the order of the appends is
known, and only their moments are not. Every result that a client saw is a bound of such a moment:

* an append at offset o takes effect between its call and its return;
* it does so before any read at o that shows the entry returns, and after any read at o that shows nothing is called;
* a `max-offset` of v lies between the appends at v - 1 and at v.

Groups (the append at 0, max-offsets of 1, the append at 1, ...) follow one another; each is placed as early as
possible, right behind the latest call in front of it. The history is linearizable iff no op had returned by then.

Offsets below the end without a known append (*holes*) are filled by appends with unknown offsets: those of unknown
outcome, each of which may stay out, and acknowledged ones, which must be somewhere. A hole takes ops called before the
entry behind it has to be there; an acknowledged one must not have returned before the hole's turn. Both bounds grow
with the offset, so the most urgent op of those that fit goes first (an exchange argument: two ops that were placed the
other way round can change places).

Not decided here: histories with `trim`, and values of which several appends could be the one that was read.
The rules are new; they were fuzzed against brute force and against the search.
"""

from __future__ import annotations

import heapq
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.history.arrays import NO_ROWS, Longs
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.history.op_columns import LARGEST, NOTHING, OpColumns
from checkers.linearizability.models.specification import Model
from checkers.linearizability.monitors.base import Monitor, chosen, reject
from checkers.linearizability.monitors.refusal import Contradiction, Undecided
from checkers.linearizability.witness_columns import log_wrong

NAME: Final = "log by offsets"

APPEND: Final = 0
READ: Final = 1
MIN: Final = 2
MAX: Final = 3

_NUMBERS: Final[dict[str, int]] = {"append": APPEND, "read": READ, "min-offset": MIN, "max-offset": MAX}


class LogOps(NamedTuple):
    """Ops of one log. `entry`: equal numbers are equal entries. Offsets count from the log's first; negative ones other
    than NONE lie in front of it.

    f       APPEND, READ, MIN or MAX.
    entry   of appends and reads; NONE: the read found nothing there.
    offset  of appends (NONE: not recorded) and reads, and the result of a MIN or MAX.
    """

    f: npt.NDArray[np.uint8]
    entry: Longs
    offset: Longs
    call: Longs
    ret: Longs
    source: Longs


def log_columns(ops: OpColumns, model: Model[Any]) -> LogOps | None:
    """The columns; None with a `trim`, or if an offset is no whole number. Unknown ops that could only read are left
    out.
    """
    if abs(model.initial.first) > LARGEST:
        return None
    f = np.array([_NUMBERS.get(name, 255) for name in ops.fs], np.uint8)[ops.f]
    append, read = f == APPEND, f == READ
    number = np.where(read, ops.argument, ops.result)
    offset = ops.whole()[number]
    missing = offset == NEVER
    unsaid = ~read & (number == NOTHING) & (append | ~ops.known)
    if ((f == 255) | (missing & ~unsaid) | (append & (ops.argument == NOTHING))).any():
        return None
    offset -= model.initial.first
    offset = np.where(missing, NONE, np.where(offset < 0, NONE - 1, offset))
    entry = np.where(append, ops.argument, np.where(read, ops.result, NONE))
    columns = LogOps(f, entry, offset, ops.call, ops.ret, ops.source)
    return columns if ops.known.all() else chosen(columns, append | ops.known)


def log_order(ops: LogOps) -> Longs:
    """The rows of `ops` in an order that explains them. Raises Contradiction if no order does, or Undecided."""
    f, _, offset, call, ret, _ = ops
    reject(np.nonzero((f == MIN) & (offset != 0) | (f == MAX) & (offset < 0))[0])
    seen = (f == READ) & (ops.entry != NONE)
    reject(np.nonzero(seen & (offset < 0))[0])
    owner = _owners(ops)
    end = max(int(owner.offsets.max(initial=NONE)) + 1, int(offset[f == MAX].max(initial=0)))
    must = owner.free[ret[owner.free] < NEVER]
    if end - len(owner.rows) > len(owner.free) + len(owner.fixed):
        raise Contradiction(*_reaching(ops, end))
    slots = end + len(must)
    # Groups: 2 * v are the max-offsets of v, 2 * o + 1 is the append at o.
    latest = np.full(2 * slots + 2, -1, np.int64)
    earliest = np.full(2 * slots + 2, NEVER, np.int64)
    latest[2 * owner.offsets + 1] = call[owner.rows]
    earliest[2 * owner.offsets + 1] = ret[owner.rows]
    empty = np.nonzero((f == READ) & ~seen & (offset >= 0) & (offset < slots))[0]
    np.maximum.at(latest, 2 * offset[empty] + 1, call[empty])
    shown = np.nonzero(seen)[0]
    np.minimum.at(earliest, 2 * offset[shown] + 1, ret[shown])
    counted = np.nonzero(f == MAX)[0]
    np.maximum.at(latest, 2 * offset[counted], call[counted])
    np.minimum.at(earliest, 2 * offset[counted], ret[counted])
    _in_turn(latest, earliest, ops)
    filled = _fill(ops, owner, must, end, latest, earliest)
    return _placed(ops, owner, filled, latest, end)


class _Owners(NamedTuple):
    """The known offsets of the appends.

    rows, offsets  appends that certainly happened at an offset.
    free           appends without an offset that no op saw.
    fixed          unknown appends that no op saw, and that can only have happened at their own offset.
    """

    rows: Longs
    offsets: Longs
    free: Longs
    fixed: Longs


def _owners(ops: LogOps) -> _Owners:
    f, entry, offset, _, ret, _ = ops
    append = f == APPEND
    reject(np.nonzero(append & (offset < NONE) & (ret < NEVER))[0])
    certain = np.nonzero(append & (offset >= 0) & (ret < NEVER))[0]
    certain = certain[np.argsort(offset[certain], kind="stable")]
    twice = np.nonzero(offset[certain][1:] == offset[certain][:-1])[0]
    reject(certain[twice], certain[twice + 1])
    read = np.nonzero((f == READ) & (entry != NONE))[0]
    read = read[np.argsort(offset[read], kind="stable")]
    differ = np.nonzero((offset[read][1:] == offset[read][:-1]) & (entry[read][1:] != entry[read][:-1]))[0]
    reject(read[differ], read[differ + 1])
    # One read of each offset stands for all of them.
    read = read[np.concatenate(([True], offset[read][1:] != offset[read][:-1]))] if len(read) else read
    place = np.searchsorted(offset[certain], offset[read])
    owned = np.zeros(len(read), bool)
    inside = place < len(certain)
    owned[inside] = offset[certain[place[inside]]] == offset[read[inside]]
    wrong = np.nonzero(entry[certain[place[owned]]] != entry[read[owned]])[0]
    reject(read[owned][wrong], certain[place[owned]][wrong])
    loose = np.nonzero(append & ((offset == NONE) | (ret == NEVER)) & (offset >= NONE))[0]
    orphans = read[~owned]
    found = NO_ROWS
    if len(orphans):
        loose_by_entry = loose[np.argsort(entry[loose], kind="stable")]
        sorted_entries = entry[loose_by_entry]
        low = np.searchsorted(sorted_entries, entry[orphans], "left")
        high = np.searchsorted(sorted_entries, entry[orphans], "right")
        reject(orphans[low == high])
        if (high - low > 1).any():
            raise Undecided
        found = loose_by_entry[low]
        reject(orphans[(offset[found] != NONE) & (offset[found] != offset[orphans])])
        again = np.argsort(found, kind="stable")
        same = np.nonzero(found[again][1:] == found[again][:-1])[0]
        reject(orphans[again[same]], orphans[again[same + 1]])
    rest = np.setdiff1d(loose, found, assume_unique=True)
    return _Owners(
        np.concatenate((certain, found)),
        np.concatenate((offset[certain], offset[orphans])),
        rest[offset[rest] == NONE],
        rest[offset[rest] != NONE],
    )


def _reaching(ops: LogOps, end: int) -> list[int]:
    """An op that shows that the log reached `end`."""
    says = (ops.f == MAX) & (ops.offset == end) | (ops.f != MAX) & (ops.offset == end - 1) & (ops.entry != NONE)
    return np.nonzero(says)[0][:1].tolist()  # type: ignore[no-any-return]


def _in_turn(latest: Longs, earliest: Longs, ops: LogOps) -> None:
    """Raises Contradiction if an op returned before the turn of its group came."""
    reached = np.maximum.accumulate(latest)
    # The max-offsets of a group are in any order among themselves.
    before = np.concatenate(([-1], reached[:-1]))
    turn = np.where(np.arange(len(latest)) % 2 == 1, reached, before)
    late = np.nonzero(turn > earliest)[0]
    if len(late):
        group = int(late[0])
        blamed = np.nonzero((ops.ret == earliest[group]) | (ops.call == turn[group]))[0]
        raise Contradiction(*blamed.tolist())


def _fill(ops: LogOps, owner: _Owners, must: Longs, end: int, latest: Longs, earliest: Longs) -> tuple[Longs, Longs]:
    """(rows, offsets) for the holes, and behind the end for the remaining acknowledged ops. Raises as `log_order`."""
    taken = np.zeros(end, bool)
    taken[owner.offsets] = True
    holes = np.nonzero(~taken)[0]
    if not len(holes) and not len(must):
        return NO_ROWS, NO_ROWS
    call, ret, free = ops.call, ops.ret, owner.free
    # A hole's op has to be called before anything behind it has returned.
    deadline = np.minimum.accumulate(earliest[::-1])[::-1]
    if len(owner.fixed) and len(holes) and len(must):
        raise Undecided
    fits = owner.fixed[np.isin(ops.offset[owner.fixed], holes)]
    fits = fits[call[fits] < deadline[2 * ops.offset[fits] + 1]]
    fits = fits[np.unique(ops.offset[fits], return_index=True)[1]]
    holes = np.setdiff1d(holes, ops.offset[fits], assume_unique=True)
    reached = np.maximum.accumulate(latest)
    coming = free[np.argsort(call[free], kind="stable")].tolist()[::-1]
    waiting: list[tuple[int, int]] = []
    rows, offsets, left = fits.tolist(), ops.offset[fits].tolist(), len(must)
    for offset in (*holes.tolist(), *range(end, end + len(must))):
        if offset >= end and not left:
            break
        group = 2 * offset + 1
        while coming and call[coming[-1]] < deadline[group]:
            row = coming.pop()
            heapq.heappush(waiting, (int(ret[row]), row))
        if not waiting:
            raise Contradiction(*_reaching(ops, end))
        last, row = heapq.heappop(waiting)
        if reached[group] > last:
            raise Contradiction(row, *np.nonzero(call == reached[group])[0].tolist())
        left -= last < NEVER
        rows.append(row)
        offsets.append(offset)
    return np.array(rows, np.int64), np.array(offsets, np.int64)


def _placed(ops: LogOps, owner: _Owners, filled: tuple[Longs, Longs], latest: Longs, end: int) -> Longs:
    """All rows in order; unknown appends that are not needed are left out."""
    f, offset, call = ops.f, ops.offset, ops.call
    where = np.full(len(f), NONE, np.int64)
    where[owner.rows] = owner.offsets
    where[filled[0]] = filled[1]
    appended = np.nonzero(where >= 0)[0]
    np.maximum.at(latest, 2 * where[appended] + 1, call[appended])
    reached = np.maximum.accumulate(latest)
    moment, rank = call.copy(), np.full(len(f), -1, np.int64)
    seen = np.nonzero((f == READ) & (ops.entry != NONE))[0]
    for rows, group in ((appended, 2 * where[appended] + 1), (seen, 2 * offset[seen] + 1)):
        moment[rows] = np.maximum(call[rows], reached[group])
        rank[rows] = group
    counted = np.nonzero(f == MAX)[0]
    moment[counted] = np.maximum(call[counted], reached[2 * offset[counted] - 1] if len(counted) else 0)
    rank[counted] = 2 * offset[counted]
    first = counted[offset[counted] == 0]
    moment[first] = call[first]
    there = np.ones(len(f), bool)
    there[(f == APPEND) & (where < 0)] = False
    order = np.lexsort((f, rank, moment))
    return order[there[order]]


def _replay(ops: LogOps, order: Longs) -> str | None:
    f = ops.f[order]
    return log_wrong(f == APPEND, f == READ, f == MAX, ops.entry[order], ops.offset[order])


MONITOR: Final = Monitor(NAME, log_columns, log_order, lambda ops: ops.f != APPEND, _replay)
