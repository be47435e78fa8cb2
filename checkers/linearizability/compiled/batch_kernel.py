# SPDX-License-Identifier: Apache-2.0
"""A batch, compiled: for each history, orders its events, walks, and stores verdict and failing op.

A history gets its first stage of WGL and its first of just-in-time linearization in the portfolio. Harder ones go
through the other stages, one by one (`batch`).
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np

from checkers.linearizability.closed_table import enumerate_states
from checkers.linearizability.compiled.code_cache import Part, ensure
from checkers.linearizability.compiled.configurations import LIMIT
from checkers.linearizability.compiled.jit import compiled, loop
from checkers.linearizability.compiled.kernel import INVALID, POSITION, SPENT, TOO_BIG, VALID, WORK, Space, walk
from checkers.linearizability.compiled.open_ops import lay_out
from checkers.linearizability.compiled.searches import SEARCH, small_history
from checkers.linearizability.compiled.wgl_kernel import search
from checkers.linearizability.compiled.workspace import BATCH_WORDS, workspace
from checkers.linearizability.history.arrays import Bytes, Dense, Ints, Longs
from checkers.linearizability.history.columns import Columns
from checkers.linearizability.history.events import NEVER, NONE, PURE
from checkers.linearizability.history.packed import Packed, pack
from checkers.linearizability.models.registers import CasRegister
from checkers.linearizability.search.portfolio import JIT, PORTFOLIO, WGL

_FEW_ROWS: Final = 64
"""The smallest number of rows for a walk here; a history with wider rows goes to `decide`."""

_DENSE_CLOCK: Final = 4
"""The largest number of clock ticks per event for which a counting sort orders the times."""


@loop
def _counted(stamps: Longs, which: Ints, slots: Longs, events: Ints) -> None:
    """Fills `events` with `which` in order of the stamps, which are smaller than the length of `slots` less one."""
    slots[:] = 0
    for stamp in stamps:
        slots[stamp + 1] += 1
    for i in range(1, len(slots)):
        slots[i] += slots[i - 1]
    for i in range(len(stamps)):
        events[slots[stamps[i]]] = which[i]
        slots[stamps[i]] += 1


@compiled
def _order(kind: Ints, call: Longs, ret: Longs, dense: Dense, place: Room) -> int:
    """Fills `events` (see `Columns`) and `late` (position of the return, or NEVER); returns the number of events.

    Unknown ops that can change nothing are left out. Of equal times, calls come first.
    """
    stamps, which, events = place.stamps, place.which, place.events
    count, low, high = 0, call[0], call[0]
    for op in range(kind.shape[0]):
        place.late[op] = NEVER
        if ret[op] != NEVER:
            stamps[count], which[count] = 2 * ret[op] + 1, 2 * op + 1
            count += 1
            high = max(high, ret[op])
        elif dense.flags[kind[op]] & PURE:
            continue
        stamps[count], which[count] = 2 * call[op], 2 * op
        count += 1
        low, high = min(low, call[op]), max(high, call[op])
    stamps[:count] -= 2 * low
    span = 2 * (high - low + 1)
    if span <= 2 * _DENSE_CLOCK * count:
        _counted(stamps[:count], which[:count], place.slots[: span + 1], events)
    else:
        events[:count] = which[np.argsort(stamps[:count])]
    for i in range(count):
        if events[i] & 1:
            place.late[events[i] >> 1] = i
    return count


class Room(NamedTuple):
    """The memory in which a history is ordered. late: by op, the position of its return, or NEVER."""

    events: Ints
    late: Longs
    stamps: Longs
    which: Ints
    slots: Longs
    order: Ints


@compiled
def room(ops: int) -> Room:
    """Memory for a history of at most so many ops."""
    return Room(
        np.zeros(2 * ops, np.int32), np.zeros(ops, np.int64), np.zeros(2 * ops, np.int64), np.zeros(2 * ops, np.int32),
        np.zeros(4 * _DENSE_CLOCK * ops + 2, np.int64), np.zeros(ops, np.int32),
    )  # fmt: skip


@compiled
def judge(
    kind: Ints, call: Longs, ret: Longs, dense: Dense, group: Ints, place: Room, space: Space, rows: int, quick: Longs
) -> int:
    """VALID, INVALID, SPENT (in both searches) or TOO_BIG. `quick`: `quick_steps`. A history has an op.

    Fills the counters of `space` as a walk does, but with the work of both searches, and the later event reached.
    """
    told = space.told
    told[WORK] = 0
    count = _order(kind, call, ret, dense, place)
    columns = Columns(place.events[:count], kind, place.late[: len(kind)])
    unknown = 0
    for event in columns.events:
        if not event & 1 and columns.ret[event >> 1] == NEVER:
            unknown = 1
    steps = quick[unknown]
    deep = reached = 0
    if count <= steps[2]:
        found, deep, reached = search(columns, dense, steps[0] + steps[1] * count, place.order)
        if found == VALID:
            told[WORK] = deep
            return VALID
    layout = lay_out(columns, group)
    limit = min(rows, rows * BATCH_WORDS // layout.width)
    if limit < _FEW_ROWS:
        return TOO_BIG
    for some in (space.front, space.todo, space.passed):
        some.links[LIMIT] = limit
    code = walk(columns, dense, layout, 0, steps[3] + steps[4] * count, space)
    told[WORK] += deep
    if code == SPENT:
        told[POSITION] = max(told[POSITION], reached)
    return int(code)


@compiled
def _judge_all(
    kind: Ints, call: Longs, ret: Longs, first: Longs, source: Longs, dense: Dense, space: Space, rows: int,
    quick: Longs, verdict: Bytes, failing: Longs, work: Longs,
) -> None:  # fmt: skip
    """Judges every history, see `walk_packed`."""
    longest = 0
    for history in range(first.shape[0] - 1):
        longest = max(longest, first[history + 1] - first[history])
    place, group = room(longest), np.arange(dense.flags.shape[0], dtype=np.int32)
    for history in range(first.shape[0] - 1):
        begin, end = first[history], first[history + 1]
        if begin == end:
            continue
        code = judge(kind[begin:end], call[begin:end], ret[begin:end], dense, group, place, space, rows, quick)
        if code == TOO_BIG:
            continue
        verdict[history], work[history] = code, space.told[WORK]
        if code != VALID:
            op = place.events[space.told[POSITION]] >> 1
            failing[history] = source[begin + op] if code == INVALID else op


@cache
def quick_steps() -> Longs:
    """The portfolio's first limits, by row (1: with an unknown op): steps of WGL, more per event, its largest number of
    events; steps of just-in-time linearization, and more per event.
    """
    rows = []
    for unknown in (False, True):
        own = [stage for stage in PORTFOLIO if stage.unknown in (None, unknown)]
        deep, full = (next(stage for stage in own if stage.search == search) for search in (WGL, JIT))
        up_to = NEVER if deep.up_to is None else deep.up_to
        rows.append([deep.base, deep.per_event, up_to, full.base, full.per_event])
    return np.array(rows, np.int64)


def walk_packed(packed: Packed, dense: Dense, memory: int, verdict: Bytes, failing: Longs, work: Longs) -> None:
    """Fills verdict, failing op and work of the histories that it decides. If both searches used up their steps,
    `verdict` is SPENT, and `failing` the history's own number of the op at whose return the better one gave up. The
    entries of a history that is too large stay unchanged. `memory`: bytes. Raises ValueError for malformed input.
    """
    if len(packed.kind) and not 0 <= int(packed.kind.min()) <= int(packed.kind.max()) < dense.step.shape[1]:
        raise ValueError("a packed op has a kind that its table does not know")
    if (packed.ret < packed.call).any():
        raise ValueError("a packed op ended before it began")
    ensure(BATCH)
    space, rows = workspace().prepare(dense.step.shape[0], memory)
    ops = packed.kind, packed.call, packed.ret, packed.first, packed.source
    _judge_all(*ops, dense, space, rows, quick_steps(), verdict, failing, work)


def _run_batch() -> None:
    packed = pack([small_history()], CasRegister())
    dense = enumerate_states(packed.table)
    if dense is None:
        raise AssertionError("a register of two values has a closed table")
    walk_packed(packed, dense, 1 << 26, np.zeros(1, np.uint8), *np.full((2, 1), NONE, np.int64))


BATCH: Final = Part("batch", _run_batch, 20, SEARCH)
