# SPDX-License-Identifier: Apache-2.0
"""Judges the order of the log: inversions against real time, holes, and reads that go backwards or skip messages.

* *inversion*: send B was invoked after send A had been acknowledged, and B has the lower offset. For two sends of one
  process it is called *reordered*: a producer that waits for each acknowledgement relies on this order. (Jepsen's
  G0-realtime and `nonmonotonic-send`; here it is a suffix minimum over the offsets.)
* *hole*: an answer continues after an offset that it does not contain. Offsets of a queue are dense, so a hole is never
  filled.
* *skip*: an answer skips existing messages: it begins beyond the requested offset, or an empty answer points beyond it.
  The times of these sends do not matter. An offset is assigned after all lower ones, and a reader that continues beyond
  an offset never returns to it.
* *backward read*: an answer contains offsets below the requested one. Or a master reports an end of the queue below an
  offset that it had returned before, without a fault or a change of master in between. A slave may lag; that is no
  violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from checkers.messages.log.columns import NONE, OK, POP, REPLICA_READ, Bools, Ints, LogColumns
from checkers.messages.log.outcomes import MessageOutcomes


class Inversion(NamedTuple):
    """Rows of sends: `later` is before `earlier`, which had been acknowledged when it was requested."""

    earlier: int
    later: int
    one_sender: bool


class Gap(NamedTuple):
    """Offsets `begin` to `end` (exclusive) that the read of this row does not show."""

    read: int
    begin: int
    end: int


class BackwardRead(NamedTuple):
    """A read whose answer begins, or reports the end of the queue, at `offset`, although `before` had shown later
    messages. `before` is the read itself if its answer is below its requested offset.
    """

    read: int
    before: int
    offset: int


def inversions(facts: LogColumns, outcomes: MessageOutcomes) -> Iterator[Inversion]:
    """Yields every send that is before one that it follows, once. Messages that were lost, or vanished after a read,
    have no offset.
    """
    sends = facts.sends
    place = final_offsets(facts, outcomes)
    rows = np.nonzero((place != NONE) & ~outcomes.is_gone)[0]
    own = _behind(
        facts, place, rows[np.lexsort((place[rows], sends.process[rows], sends.queue[rows]))], by_process=True
    )
    in_process = set()
    for earlier, later in own:
        in_process.add(later)
        yield Inversion(earlier, later, True)
    for earlier, later in _behind(facts, place, rows[np.lexsort((place[rows], sends.queue[rows]))], by_process=False):
        if later not in in_process:
            yield Inversion(earlier, later, False)


def final_offsets(facts: LogColumns, outcomes: MessageOutcomes) -> Ints:
    """The offset of each send: in the final readings, else that of its acknowledgement, else that of a read. NONE:
    nowhere, or unknown.
    """
    sends, places = facts.sends, facts.places
    where = np.full(len(sends.id), NONE, dtype=np.int64)
    known = outcomes.sender != NONE
    home = known & (places.queue == _sent_to(facts, outcomes))
    where[outcomes.sender[home]] = places.offset[home]
    acked = (sends.outcome == OK) & (sends.offset != NONE)
    where[acked] = sends.offset[acked]
    final = home & (places.final != 0)
    where[outcomes.sender[final]] = places.offset[final]
    return where


def _sent_to(facts: LogColumns, outcomes: MessageOutcomes) -> Ints:
    if not len(facts.sends.id):
        return np.full(len(outcomes.sender), NONE, dtype=np.int64)
    return np.where(outcomes.sender == NONE, NONE, facts.sends.queue[outcomes.sender])


def _behind(facts: LogColumns, place: Ints, rows: Ints, by_process: bool) -> Iterator[tuple[int, int]]:
    """Yields (earlier, later) for rows sorted by group and offset: the smallest end among all that are after a send."""
    sends = facts.sends
    group = sends.queue[rows] * (2**40) + (sends.process[rows] if by_process else 0)
    edges = np.concatenate([[0], np.nonzero(np.diff(group))[0] + 1, [len(rows)]])
    end, start = sends.end[rows], sends.start[rows]
    for a, b in pairwise(edges):
        if b - a < 2:
            continue
        lowest = np.minimum.accumulate(end[a:b][::-1])[::-1]
        for i in np.nonzero(lowest[1:] < start[a : b - 1])[0]:
            behind = end[a + i + 1 : b]
            witness = a + i + 1 + int(np.argmin(behind))
            if place[rows[witness]] > place[rows[a + i]]:
                yield int(rows[witness]), int(rows[a + i])


def holes(facts: LogColumns) -> Iterator[Gap]:
    """Yields gaps inside an answer, of reads that show a stretch of a queue."""
    reads, seen = facts.reads, facts.sightings
    if len(seen.id) < 2:
        return
    step = np.diff(seen.offset)
    inside = (np.diff(seen.read) == 0) & (reads.f[seen.read[1:]] != POP)
    for i in np.nonzero(inside & (step > 1))[0]:
        yield Gap(int(seen.read[i]), int(seen.offset[i]) + 1, int(seen.offset[i + 1]))


def leading_gaps(facts: LogColumns) -> Iterator[Gap]:
    """Yields gaps between the requested offset and the first message shown, or, of an empty answer, the next offset.

    Offsets that the server reports as trimmed (below its `min`), or in front of the queue's origin, do not count.
    """
    reads, seen = facts.reads, facts.sightings
    if not len(reads.f):
        return
    empty = reads.count == 0
    some = np.zeros(len(reads.f), dtype=np.int64)
    if len(seen.id):
        some[~empty] = np.minimum.reduceat(seen.offset, reads.first[~empty])
    to = np.where(empty, reads.next, some)
    origin = np.where(reads.queue == NONE, 0, facts.origins[reads.queue])
    begin = np.maximum(np.maximum(reads.requested, reads.min), origin)
    for row in np.nonzero((reads.f != POP) & (reads.requested >= 0) & (to > begin))[0]:
        yield Gap(int(row), int(begin[row]), int(to[row]))


class OffsetIndex:
    """The sends by offset (`final_offsets`), without those that are gone (`MessageOutcomes.is_gone`)."""

    def __init__(self, facts: LogColumns, place: Ints, gone: Bools) -> None:
        rows = np.nonzero((place != NONE) & ~gone)[0]
        rows = rows[np.lexsort((place[rows], facts.sends.queue[rows]))]
        self._rows, self._place, self._queue = rows, place[rows], facts.sends.queue[rows]

    def between(self, queue: int, begin: int, end: int) -> Ints:
        """The rows of the sends at offsets `begin` to `end` (exclusive) of a queue, in order of offset."""
        first, last = np.searchsorted(self._queue, [queue, queue + 1])
        a, b = np.searchsorted(self._place[first:last], [begin, end])
        return self._rows[first + a : first + b]


def skipped(facts: LogColumns, gap: Gap, place: Ints, gone: Bools) -> Ints:
    """The sends inside a gap. For many gaps: `OffsetIndex`."""
    return OffsetIndex(facts, place, gone).between(int(facts.reads.queue[gap.read]), gap.begin, gap.end)


class Skip(NamedTuple):
    """A gap at the beginning of an answer, or before the next offset of an empty one, and the sends in it."""

    gap: Gap
    sends: Ints


def skips(facts: LogColumns, outcomes: MessageOutcomes, place: Ints) -> tuple[list[Skip], list[Gap]]:
    """The gaps that answers led readers past: (skips: messages are there, holes: none is).

    The read-throughs of single replicas are no readers: a message that they lack is a hole.
    """
    skips: list[Skip] = []
    empty: list[Gap] = []
    there = OffsetIndex(facts, place, outcomes.is_gone)
    for gap in leading_gaps(facts):
        through = facts.reads.f[gap.read] == REPLICA_READ
        passed = there.between(int(facts.reads.queue[gap.read]), gap.begin, gap.end)
        if len(passed) and not through:
            skips.append(Skip(gap, passed))
        elif facts.reads.count[gap.read] or through:
            empty.append(gap)
    return skips, empty


def backward_reads(facts: LogColumns, stayed_master: Callable[[int, int, int], bool]) -> Iterator[BackwardRead]:
    """Yields backward reads. `stayed_master(node, from row, to row)`: True if the node was the same undisturbed master
    between two reads.
    """
    reads, seen = facts.reads, facts.sightings
    down = np.zeros(len(reads.f), dtype=bool)
    if len(seen.id):
        step = (np.diff(seen.read) == 0) & (np.diff(seen.offset) <= 0) & (reads.f[seen.read[1:]] != POP)
        down[seen.read[1:][step]] = True
        with_any = (reads.count > 0) & (reads.f != POP)
        down[with_any] |= seen.offset[reads.first[with_any]] < reads.requested[with_any]
    for row in np.nonzero(down)[0]:
        shown = seen.offset[reads.first[row] : reads.first[row] + reads.count[row]]
        yield BackwardRead(int(row), int(row), int(shown.min()))
    yield from _shrunk(facts, stayed_master)


def _shrunk(facts: LogColumns, stayed_master: Callable[[int, int, int], bool]) -> Iterator[BackwardRead]:
    """Yields answers of a master that name an end of the queue below an offset it had shown before their request."""
    reads, seen = facts.reads, facts.sightings
    rows = np.nonzero((reads.f != POP) & (reads.master == 1))[0]
    place = reads.queue[rows] * (2**20) + reads.node[rows]
    for at in np.unique(place):
        mine = rows[place == at]
        shown = mine[reads.count[mine] > 0]
        if not len(shown):
            continue
        shown = shown[np.argsort(reads.end[shown], kind="stable")]
        last = seen.offset[reads.first[shown] + reads.count[shown] - 1]
        furthest = np.maximum.accumulate(last)
        before = np.searchsorted(reads.end[shown], reads.start[mine]) - 1
        known = np.where(before >= 0, furthest[before], NONE)
        for k in np.nonzero((reads.max[mine] != NONE) & (reads.max[mine] <= known))[0]:
            row, earlier = int(mine[k]), int(shown[int(np.argmax(last[: before[k] + 1]))])
            if stayed_master(int(reads.node[row]), earlier, row):
                yield BackwardRead(row, earlier, int(reads.max[row]))
