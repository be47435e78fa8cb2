# SPDX-License-Identifier: Apache-2.0
"""The position of each consumer, if the client keeps it: a poll continues at the end of the previous one.

This is the session guarantee *monotonic reads* (Terry et al. 1994), together with its counterpart: nothing is skipped.
For one process and queue, a poll that begins below the end of the previous one is a *regression*, and one that begins
beyond it is a *jump* (Jepsen's `nonmonotonic-poll` and `poll-skip`, which also compare polls of one process).

A poll begins at its requested offset or, if the client gives none, at the first returned message. After an empty answer
a client may stay, or go to the offset in the answer (`next`, `min`). A seek (`start` on the poll, or a separate op),
another assignment, a crash and another process begin a new session (`Reads.session`). So does a poll with an offset,
unless a `start` said that the following polls are one session.

This applies only to polls: consumers of a group receive uncommitted messages again, which at-least-once permits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from checkers.messages.log.columns import NONE, POLL, LogColumns


class Step(NamedTuple):
    """Two polls (rows of `Reads`) of one session: the second one began at `begin`, and should have at `position`."""

    before: int
    read: int
    position: int
    begin: int

    @property
    def back(self) -> bool:
        return self.begin < self.position


def missteps(facts: LogColumns) -> Iterator[Step]:
    """Every poll that goes back, or jumps, in order of process, queue and time."""
    reads = facts.reads
    rows = np.nonzero(reads.f == POLL)[0]
    session: tuple[int, ...] = ()
    low = high = before = NONE
    for row in rows[np.lexsort((reads.start[rows], reads.session[rows], reads.queue[rows], reads.process[rows]))]:
        here = (int(reads.process[row]), int(reads.queue[row]), int(reads.session[row]))
        if here != session:
            session, low, high, before = here, NONE, NONE, NONE
        first, last = _shown(facts, row)
        begin = int(reads.requested[row]) if reads.requested[row] != NONE else first
        if NONE not in (begin, before):
            if begin < low:
                yield Step(before, int(row), low, begin)
            elif begin > max(high, int(reads.min[row])):
                yield Step(before, int(row), high, begin)
        if last != NONE:
            low = high = last + 1
        else:
            if begin != NONE:
                low = high = begin
            if low != NONE:
                low, high = min(low, _or(reads.next[row], low)), max(high, int(reads.next[row]), int(reads.min[row]))
        if low != NONE:
            before = int(row)


def _or(offset: int, otherwise: int) -> int:
    return otherwise if offset == NONE else int(offset)


def _shown(facts: LogColumns, row: int) -> tuple[int, int]:
    """The first and the last offset of an answer."""
    first, count = int(facts.reads.first[row]), int(facts.reads.count[row])
    if not count:
        return NONE, NONE
    return int(facts.sightings.offset[first]), int(facts.sightings.offset[first + count - 1])
