# SPDX-License-Identifier: Apache-2.0
"""Final reads: the content of each replica of a queue after all heals, read completely by address.

A final reading is a chain of `replica-read`s. Each begins at the end of the previous one, and the last one reports that
it reached the end. They prove that a message is lost; without them, a message that no client read is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from checkers.messages.log.columns import NONE, REPLICA_READ, Bools, Ints, LogColumns


@dataclass(frozen=True)
class Reading:
    """One replica's queue, from `begin` to `end` (exclusive), as its last chain of reads showed it.

    begin     the first offset that the broker reported; `floor`: the offset from which on the reading counts. It is
              below `begin` if nothing permits the queue to begin there (`checkers.messages.log.expiry`): the messages
              between are gone.
    rows      rows of `LogColumns.reads`, in order.
    complete  the chain reached the end.
    master    1: the replica was read as the master, 0: as a slave, NONE: not recorded.
    """

    queue: int
    node: int
    rows: Sequence[int]
    begin: int
    end: int
    complete: bool
    master: int
    offset: Ints
    id: Ints
    floor: int = 0


class ReplicaReads:
    """All final readings of a run, by queue and node.

    may_begin_late  True for a node whose queues may begin behind their origin (`checkers.messages.log.expiry`).
    """

    def __init__(self, facts: LogColumns, may_begin_late: Callable[[str], bool] = lambda node: True) -> None:
        self.facts = facts
        rows = np.nonzero(facts.reads.f == REPLICA_READ)[0]
        by: dict[tuple[int, int], list[int]] = {}
        for row in rows[np.argsort(facts.reads.start[rows], kind="stable")]:
            by.setdefault((int(facts.reads.queue[row]), int(facts.reads.node[row])), []).append(int(row))
        late = {node: may_begin_late(facts.node(node)) for _, node in by}
        self.all: Mapping[tuple[int, int], Reading] = {
            at: _reading(facts, *at, chain, late[at[1]]) for at, chain in by.items()
        }

    def of(self, queue: int) -> list[Reading]:
        """The complete readings of a queue."""
        return self._complete.get(queue, [])

    @cached_property
    def _complete(self) -> dict[int, list[Reading]]:
        found: dict[int, list[Reading]] = {}
        for (queue, _), reading in sorted(self.all.items()):
            if reading.complete:
                found.setdefault(queue, []).append(reading)
        return found

    @cached_property
    def missing(self) -> list[tuple[int, int]]:
        """(queue, node) that were requested and not read to the end."""
        return sorted(at for at in self.facts.tried if at not in self.all or not self.all[at].complete)

    @cached_property
    def settled(self) -> Ints:
        """queue -> the offset below which the final readings are the whole truth; `NONE + 1` (0): nowhere.

        If every replica was read, or the master was, that is every offset. Otherwise it is the end of the longest
        reading: beyond it there may be more on an unreadable replica.
        """
        everything = np.iinfo(np.int64).max
        settled = np.zeros(len(self.facts.queues), dtype=np.int64)
        open_queues = {queue for queue, _ in self.missing}
        for queue in range(len(self.facts.queues)):
            readings = self.of(queue)
            if readings:
                whole = queue not in open_queues or any(r.master == 1 for r in readings)
                settled[queue] = everything if whole else max(r.end for r in readings)
        return settled

    def decided(self, queue: Ints, offset: Ints) -> Bools:
        """A mask of the places that the final readings decide. An unknown offset needs all offsets decided."""
        if not len(self.facts.queues):
            return np.zeros(len(queue), dtype=bool)
        limit = self.settled[queue]
        found: Bools = np.where(offset == NONE, limit == np.iinfo(np.int64).max, offset < limit)
        return found & ~self.expired(queue, offset)

    def expired(self, queue: Ints, offset: Ints) -> Bools:
        """A mask of the places that may have been deleted for their age by the time of the final readings: the queue of
        a replica that may delete (`may_begin_late`) begins behind it, and neither the master's reading nor one that
        spans the offset shows the message there.

        An unknown offset may be any that was deleted.
        """
        found = np.zeros(len(queue), dtype=bool)
        for code in np.unique(queue):
            readings = self.of(int(code)) if code != NONE else []
            begin = max((r.floor for r in readings), default=0)
            rows = np.nonzero((queue == code) & (offset < begin))[0]
            place = offset[rows]
            open_ = np.ones(len(rows), dtype=bool)
            for r in readings:
                spans = place < r.end if r.master != 1 else np.ones(len(rows), dtype=bool)
                open_ &= ~((place >= r.floor) & spans)
            unknown = begin > self.facts.origins[code] if len(readings) else False
            found[rows] = np.where(place == NONE, unknown, open_)
        return found


def _reading(facts: LogColumns, queue: int, node: int, rows: Sequence[int], late: bool) -> Reading:
    """The last complete chain of these reads, else the last one that was begun. late: the queue may begin late."""
    reads = facts.reads
    chains: list[list[int]] = []
    position = NONE
    for row in rows:
        if not chains or reads.requested[row] != position or reads.done[chains[-1][-1]]:
            chains.append([])
        chains[-1].append(row)
        position = _after(facts, row)
    chain = next((c for c in reversed(chains) if reads.done[c[-1]]), chains[-1])
    last = chain[-1]
    seen = np.concatenate([np.arange(reads.first[r], reads.first[r] + reads.count[r]) for r in chain])
    begin = max(int(reads.requested[chain[0]]), int(reads.min[chain[0]]))
    return Reading(
        queue,
        node,
        chain,
        begin,
        max(_after(facts, last), begin),
        bool(reads.done[last]),
        int(reads.master[last]),
        facts.sightings.offset[seen],
        facts.sightings.id[seen],
        begin if late else min(begin, int(facts.origins[queue])),
    )


def _after(facts: LogColumns, row: int) -> int:
    """The offset at which the next read of a chain continues: the server's, else behind the last message."""
    reads = facts.reads
    if reads.next[row] != NONE:
        return int(reads.next[row])
    if reads.count[row]:
        return int(facts.sightings.offset[reads.first[row] + reads.count[row] - 1]) + 1
    return int(reads.requested[row])
