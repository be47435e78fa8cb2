"""The loop over a batch, compiled: order the events, walk, write verdict and failing op down, next."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.linearizability.compiled.configurations import LIMIT
from checkers.linearizability.compiled.jit import compiled, inlined
from checkers.linearizability.compiled.kernel import INVALID, POSITION, SPENT, VALID, WORK, Space, walk
from checkers.linearizability.compiled.open_ops import lay_out
from checkers.linearizability.compiled.wgl_kernel import search
from checkers.linearizability.history.columns import Columns
from checkers.linearizability.history.events import NEVER, Bytes, Ints, Longs
from checkers.linearizability.history.table import PURE, Dense

BATCH_WORDS: Final = 8
"""Words of a row for which there is room in a batch; wider ones may be fewer."""
_FEW_ROWS: Final = 64

_STEPS: Final = 1_000
_STEPS_AN_EVENT: Final = 20
"""What a history gets here. Harder ones go through the portfolio."""

_STRAIGHT_ON: Final = 4
"""Steps an event of the scout where no op is unknown."""

_SHORT: Final = 10_000
"""Events up to which it is worth that: in a longer history it is sure to go astray somewhere."""

_INSIST: Final = 80
_QUICK: Final = 5
"""Steps an event of the scout, and of the walk after it, where ops are unknown. The scout's cost a tenth.

(Of 200 valid histories of 250 to 830 ops with up to 40 unknown ones the scout finds 187 with 40 steps, 199 with 80.)
"""

_DENSE_CLOCK: Final = 4
"""Times that are at most so many to an event are put in order by counting."""

_MOVES: Final = 16
"""Others are put in order by insertion, if it takes no more than so many moves an event."""


@inlined
def inserted(stamps: Longs, which: Ints) -> bool:
    """Puts both in order of the stamps, by insertion: calls that lie in order of time need little of it. False where
    they need much; pairs stay pairs.
    """
    moves = _MOVES * len(stamps)
    for i in range(1, len(stamps)):
        stamp, event, at = stamps[i], which[i], i
        while at > 0 and stamps[at - 1] > stamp:
            stamps[at], which[at] = stamps[at - 1], which[at - 1]
            at -= 1
        stamps[at], which[at] = stamp, event
        moves -= i - at
        if moves < 0:
            return False
    return True


@compiled
def _order(kind: Ints, call: Longs, ret: Longs, dense: Dense, events: Ints, late: Longs, slots: Longs) -> int:
    """Fills `events` (see `Columns`) and `late` (position of the return, or NEVER); how many events there are.

    Unknown ops that can change nothing are left out.
    """
    count = 0
    low, high = call[0], call[0]
    for op in range(kind.shape[0]):
        late[op] = NEVER
        if ret[op] == NEVER and dense.flags[kind[op]] & PURE:
            continue
        count += 1 if ret[op] == NEVER else 2
        low, high = min(low, call[op]), max(high, call[op])
        if ret[op] != NEVER:
            high = max(high, ret[op])
    span = high - low + 1
    if span <= _DENSE_CLOCK * count and 2 * span + 1 <= slots.shape[0]:
        slots[: 2 * span + 1] = 0
        for op in range(kind.shape[0]):
            if ret[op] != NEVER:
                slots[2 * (ret[op] - low) + 2] += 1
            elif dense.flags[kind[op]] & PURE:
                continue
            slots[2 * (call[op] - low) + 1] += 1
        for i in range(1, 2 * span + 1):
            slots[i] += slots[i - 1]
        for op in range(kind.shape[0]):
            if ret[op] != NEVER:
                at = slots[2 * (ret[op] - low) + 1]
                slots[2 * (ret[op] - low) + 1] += 1
                events[at] = 2 * op + 1
            elif dense.flags[kind[op]] & PURE:
                continue
            at = slots[2 * (call[op] - low)]
            slots[2 * (call[op] - low)] += 1
            events[at] = 2 * op
    else:
        stamps, which = np.zeros(count, np.int64), np.zeros(count, np.int32)
        at = 0
        for op in range(kind.shape[0]):
            if ret[op] != NEVER:
                stamps[at], which[at] = 2 * (ret[op] - low) + 1, 2 * op + 1
                at += 1
            elif dense.flags[kind[op]] & PURE:
                continue
            stamps[at], which[at] = 2 * (call[op] - low), 2 * op
            at += 1
        if inserted(stamps, which):
            events[:count] = which
        else:
            ranks = np.argsort(stamps)
            for i in range(count):
                events[i] = which[ranks[i]]
    for i in range(count):
        if events[i] & 1:
            late[events[i] >> 1] = i
    return count


class Room(NamedTuple):
    """What a history of at most so many ops is put in order with."""

    events: Ints
    late: Longs
    slots: Longs
    order: Ints


@compiled
def room(ops: int) -> Room:
    slots = np.zeros(4 * _DENSE_CLOCK * ops + 2, np.int64)
    return Room(np.zeros(2 * ops + 1, np.int32), np.zeros(ops + 1, np.int64), slots, np.zeros(ops, np.int32))


@compiled
def judge(
    kind: Ints, call: Longs, ret: Longs, dense: Dense, group: Ints, place: Room, space: Space, rows: int
) -> int:
    """VALID, INVALID or SPENT: for others; `space.told` as a walk fills it. A history has one op at least.

    `call` and `ret` as in `Packed`. A history whose rows are too wide is for others.
    """
    told = space.told
    told[WORK] = 0
    count = _order(kind, call, ret, dense, place.events, place.late, place.slots)
    columns = Columns(place.events[:count], kind, place.late[: len(kind)])
    unknown = False
    for event in columns.events:
        unknown = unknown or (not event & 1 and columns.ret[event >> 1] == NEVER)
    # Most valid histories are decided by going straight on; many unknown ops are worth more of it.
    most = _STEPS + _INSIST * count if unknown else _STRAIGHT_ON * count
    if (unknown or count <= _SHORT) and search(columns, dense, most, place.order)[0] == VALID:
        told[WORK] = count
        return VALID
    layout = lay_out(columns, group)
    limit = min(rows, rows * BATCH_WORDS // layout.width)
    for some in (space.front, space.todo, space.passed):
        some.links[LIMIT] = limit
    if limit < _FEW_ROWS:
        return SPENT
    budget = _STEPS + (_QUICK if unknown else _STEPS_AN_EVENT) * count
    code = walk(columns, dense, layout, 0, budget, space)
    return code if code in (VALID, INVALID) else SPENT


@compiled
def walk_many(
    kind: Ints, call: Longs, ret: Longs, first: Longs, source: Longs, dense: Dense, space: Space, rows: int,
    verdict: Bytes, failing: Longs,
) -> int:  # fmt: skip
    """Judges every history; `verdict` and `failing` stay as they are where that decides nothing. Returns the work."""
    longest = 0
    for history in range(first.shape[0] - 1):
        longest = max(longest, first[history + 1] - first[history])
    place, group = room(longest), np.arange(dense.flags.shape[0], dtype=np.int32)
    work = 0
    for history in range(first.shape[0] - 1):
        begin, end = first[history], first[history + 1]
        if begin == end:
            continue
        code = judge(kind[begin:end], call[begin:end], ret[begin:end], dense, group, place, space, rows)
        work += space.told[WORK]
        if code == VALID:
            verdict[history] = VALID
        elif code == INVALID:
            verdict[history] = INVALID
            failing[history] = source[begin + (place.events[space.told[POSITION]] >> 1)]
    return work
