# SPDX-License-Identifier: Apache-2.0
"""FIFO queues of elements that are all different, decided without a search.

The enqueue and the dequeue of each element are known, an interval each; a missing dequeue has no end. The history is
linearizable iff none of these is found (Henzinger, Sezgin and Vafeiadis 2013; Bouajjani et al. 2015):

* an element is dequeued twice, without being enqueued, or before its enqueue is called;
* x is enqueued before y, and y dequeued before x is (or x never is);
* a dequeue finds the queue empty, and at each moment of it some element is certainly inside.

An unknown enqueue counts if an op dequeued its element. An unknown dequeue takes an element that has to go: each
element that blocks another one has a deadline, and the unknown dequeues, in order of their calls, take these by
deadline (a matching of points on a line). Together with dequeues that find nothing, no rule applies.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.history.arrays import NO_ROWS, Longs
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.history.op_columns import NOTHING, OpColumns
from checkers.linearizability.models.containers import DRAIN
from checkers.linearizability.models.specification import Model
from checkers.linearizability.monitors.base import Monitor, reject
from checkers.linearizability.monitors.refusal import Contradiction, Undecided
from checkers.linearizability.witness_columns import queue_wrong

NAME: Final = "FIFO queue of unique elements"

ENQUEUE: Final = 0
DEQUEUE: Final = 1
EMPTY: Final = 2
"""A dequeue that found nothing."""
LOST: Final = 3
"""A dequeue of unknown outcome."""


class QueueOps(NamedTuple):
    """Ops of one queue. `element`: equal numbers (from 0) are equal elements; meaningless for EMPTY and LOST."""

    f: npt.NDArray[np.uint8]
    element: Longs
    call: Longs
    ret: Longs
    source: Longs


class Elements(NamedTuple):
    """The elements that matter, by number. Without such an op, rows are -1, and calls and returns NEVER.

    enqueue, dequeue   rows.
    called, inside     the call of the enqueue; its end, but not after the end of the dequeue.
    taken, gone        the call of the dequeue, but not before that of the enqueue; its end.
    """

    enqueue: Longs
    dequeue: Longs
    called: Longs
    inside: Longs
    taken: Longs
    gone: Longs


def queue_columns(ops: OpColumns, model: Model[Any]) -> QueueOps | None:
    """The columns; None if an op drains the queue, or an element is None."""
    if DRAIN in ops.fs and ops.of(DRAIN).any():
        return None
    put = ops.of("enqueue")
    if (put & (ops.argument == NOTHING)).any():
        return None
    took = np.where(ops.known, np.where(ops.result == NOTHING, EMPTY, DEQUEUE), LOST)
    element = np.where(put, ops.argument, np.maximum(ops.result, 0))
    return QueueOps(np.where(put, ENQUEUE, took).astype(np.uint8), element, ops.call, ops.ret, ops.source)


def check_queue(ops: QueueOps) -> tuple[Elements, Longs]:
    """The elements, and for each EMPTY (in order of rows) a moment without elements. Raises as `Monitor`."""
    found = _elements(ops)
    lost = np.nonzero(ops.f == LOST)[0]
    empty = np.nonzero(ops.f == EMPTY)[0]
    if len(lost) and len(empty):
        raise Undecided
    size = 2 + max(int(ops.call.max(initial=0)), int(ops.ret[ops.ret < NEVER].max(initial=0)))
    found = _in_order(ops, found, lost, size)
    return found, _moments(ops, found, empty, size)


def _elements(ops: QueueOps) -> Elements:
    f, element, call, ret, _ = ops
    count = int(element.max(initial=-1)) + 1
    enqueue, dequeue = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    put, took = np.nonzero(f == ENQUEUE)[0], np.nonzero(f == DEQUEUE)[0]
    enqueue[element[put]] = put
    if (enqueue[element[put]] != put).any():
        raise Undecided
    certain = took[ret[took] < NEVER]
    dequeue[element[certain]] = certain
    again = certain[dequeue[element[certain]] != certain]
    reject(again, dequeue[element[again]])
    reject(certain[enqueue[element[certain]] < 0])
    reject(certain[ret[certain] < call[enqueue[element[certain]]]])
    # Dequeues that may have happened, with a known element: the first call for each element is enough.
    perhaps = took[(ret[took] == NEVER) & (enqueue[element[took]] >= 0)][::-1]
    perhaps = perhaps[dequeue[element[perhaps]] < 0]
    dequeue[element[perhaps]] = perhaps
    called = np.where(enqueue >= 0, call[enqueue], NEVER)
    ended = np.where(enqueue >= 0, ret[enqueue], NEVER)
    gone = np.where(dequeue >= 0, ret[dequeue], NEVER)
    taken = np.where(dequeue >= 0, np.maximum(call[dequeue], called), NEVER)
    return Elements(enqueue, dequeue, called, np.minimum(ended, gone), taken, gone)


def _deadlines(found: Elements, size: int) -> Longs:
    """By position: the earliest end of a dequeue of any element enqueued from there on."""
    ends = np.full(size + 1, NEVER, np.int64)
    known = np.nonzero(found.gone < NEVER)[0]
    ends[found.called[known]] = found.gone[known]
    return np.minimum.accumulate(ends[::-1])[::-1]


def _in_order(ops: QueueOps, found: Elements, lost: Longs, size: int) -> Elements:
    """Raises Contradiction if elements overtake others, or get lost; an element that a LOST op took is gone."""
    deadline = _deadlines(found, size)
    put = np.nonzero((found.enqueue >= 0) & (found.inside < NEVER))[0]
    due = deadline[found.inside[put]]
    overtaken = put[due < found.taken[put]]
    late = overtaken[found.gone[overtaken] < NEVER]
    if len(late):
        raise Contradiction(*_overtaking(ops, found, int(late[0]), deadline))
    if not len(overtaken):
        return found
    # Elements without a known dequeue that others have overtaken.
    by_deadline = overtaken[np.argsort(deadline[found.inside[overtaken]], kind="stable")]
    takers = lost[: len(by_deadline)]
    fits = ops.call[takers] < deadline[found.inside[by_deadline[: len(takers)]]]
    if len(takers) < len(by_deadline) or not fits.all():
        blocked = by_deadline[: np.argmin(fits) + 1 if not fits.all() else len(takers) + 1]
        rows = [row for one in blocked.tolist() for row in _overtaking(ops, found, one, deadline)]
        raise Contradiction(*dict.fromkeys(rows))
    dequeue, taken = found.dequeue.copy(), found.taken.copy()
    dequeue[by_deadline] = takers
    taken[by_deadline] = np.maximum(ops.call[takers], found.called[by_deadline])
    return found._replace(dequeue=dequeue, taken=taken)


def _overtaking(ops: QueueOps, found: Elements, x: int, deadline: Longs) -> list[int]:
    """The ops that show that another element overtook x: its enqueue and dequeue, those of x."""
    other = np.nonzero((found.gone == deadline[found.inside[x]]) & (found.gone < NEVER))[0][:1]
    rows = [int(found.enqueue[x]), int(found.dequeue[x])]
    rows += [int(row) for one in other for row in (found.enqueue[one], found.dequeue[one])]
    return [row for row in rows if row >= 0]


def _moments(ops: QueueOps, found: Elements, empty: Longs, size: int) -> Longs:
    """For each dequeue that found nothing, a position right behind which no element is certainly inside."""
    if not len(empty):
        return NO_ROWS
    held = np.nonzero((found.inside < NEVER) & (found.inside < found.taken))[0]
    change = np.zeros(size + 1, np.int64)
    np.add.at(change, found.inside[held], 1)
    np.add.at(change, np.minimum(found.taken[held], size), -1)
    free = np.cumsum(change) == 0
    # The first free position from each one on.
    positions = np.where(free, np.arange(size + 1), NEVER)
    following = np.minimum.accumulate(positions[::-1])[::-1]
    moment = following[ops.call[empty]]
    covered = empty[moment >= ops.ret[empty]]
    if len(covered):
        row = int(covered[0])
        within = (found.inside < ops.ret[row]) & (found.taken > ops.call[row])
        rows = [int(r) for x in np.nonzero(within)[0] for r in (found.enqueue[x], found.dequeue[x]) if r >= 0]
        raise Contradiction(row, *rows)
    return moment


def queue_order(ops: QueueOps) -> Longs:
    """The rows in an order that explains them. Raises as `Monitor.order`."""
    found, moments = check_queue(ops)
    distinct = np.unique(moments)
    found = _settled(found, distinct)
    order = _elements_in_order(found, distinct)
    # By moment, then by phase, then by place in the queue; dequeues that found nothing are between two phases.
    bounds = [0, *distinct.tolist()]
    rows: list[tuple[int, int, int, int]] = []
    put = took = 0
    for place, (phase, x) in enumerate(order):
        put = max(put, int(found.called[x]), bounds[phase])
        rows.append((put, 2 * phase, 2 * place, int(found.enqueue[x])))
        if found.dequeue[x] >= 0:
            took = max(took, put, int(found.taken[x]))
            rows.append((took, 2 * phase, 2 * place + 1, int(found.dequeue[x])))
    empty = np.nonzero(ops.f == EMPTY)[0]
    phases = np.searchsorted(distinct, moments).tolist()
    rows += zip(moments.tolist(), (2 * phase + 1 for phase in phases), [0] * len(empty), empty.tolist(), strict=True)
    return np.array([row for _, _, _, row in sorted(rows)], np.int64)


def _replay(ops: QueueOps, order: Longs) -> str | None:
    f = ops.f[order]
    element = np.where(f == LOST, NOTHING, ops.element[order])
    return queue_wrong(f == ENQUEUE, f == EMPTY, element)


MONITOR: Final = Monitor(NAME, queue_columns, queue_order, lambda ops: ops.f == EMPTY, _replay)


def _settled(found: Elements, moments: Longs) -> Elements:
    """Settles the dequeues that may have happened: each happens only if it has to, and at its deadline."""
    deadline = _deadlines(found, int(found.called[found.called < NEVER].max(initial=0)) + 1)
    due = np.where(found.inside < len(deadline), deadline[np.minimum(found.inside, len(deadline) - 1)], NEVER)
    last = int(moments.max(initial=-1))
    perhaps = (found.dequeue >= 0) & (found.gone == NEVER)
    needed = perhaps & ((due < NEVER) | (found.inside <= last))
    spared = perhaps & ~needed
    return found._replace(
        gone=np.where(needed, due, found.gone),
        dequeue=np.where(spared, -1, found.dequeue),
        taken=np.where(spared, NEVER, found.taken),
    )


def _elements_in_order(found: Elements, moments: Longs) -> list[tuple[int, int]]:
    """(phase, element): an order of the queue that fits all enqueues and all dequeues. Phases lie between `moments`.

    Both ops of the next element are called before any op of the others has ended. Such an element exists, or a
    violation was found before.
    """
    there = np.nonzero(found.dequeue >= 0)[0]
    left = np.nonzero((found.dequeue < 0) & (found.inside < NEVER))[0]
    # Of enqueues and of dequeues: each one's begin, the elements by begin (the next one last), the same for the ends.
    sides = []
    for begin, end in ((found.called, found.inside), (found.taken, found.gone)):
        by_begin, by_end = (there[np.argsort(key[there], kind="stable")][::-1].tolist() for key in (begin, end))
        sides.append((begin.tolist(), by_begin, end.tolist(), by_end))
    done, half = set[int](), set[int]()
    order: list[int] = []
    while len(order) < len(there):
        before = len(order)
        ready: list[int] = []
        for begins, by_begin, ends, by_end in sides:
            while by_end[-1] in done:
                by_end.pop()
            while by_begin and begins[by_begin[-1]] < ends[by_end[-1]]:
                ready.append(by_begin.pop())
        for x in ready:
            if x in half:
                order.append(x)
                done.add(x)
            else:
                half.add(x)
        if len(order) == before:
            raise Undecided
    # Elements that are never taken come behind all others, in order of their enqueues.
    rest = left[np.argsort(found.called[left], kind="stable")].tolist()
    phase = [np.searchsorted(moments, found.inside[part]).tolist() for part in (order, rest)]
    return sorted(zip(phase[0], order, strict=True), key=lambda one: one[0]) + list(zip(phase[1], rest, strict=True))
