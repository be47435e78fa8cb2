# SPDX-License-Identifier: Apache-2.0
"""The outcome of every message: kept, lost, or returned although it must not be.

Everything is an array of rows of `LogColumns.sends` or `LogColumns.places`. `checkers.messages.log.anomalies` describes
them. The rules, with their source in Jepsen's Kafka workload (`jepsen.tests.kafka`) if there is one:

* *lost*: acknowledged, and on no replica at the end. If the final reads cannot decide this: acknowledged and never
  returned, although a read invoked after the acknowledgement covered its offset (Jepsen's `lost-write`). A message
  below the beginning of a queue (`min`) is not lost where a broker may have deleted it
  (`checkers.messages.log.expiry`), because this cannot be decided.
* *superseded*: acknowledged, not decided by the final reads, and a send that was requested afterwards was acknowledged
  at this offset or below it: the log had lost it by then. Where losses are permitted, this is one.
* *dirty*: of unknown outcome, returned to a reader, and on no replica at the end: the reader received an uncommitted
  message.
* *aborted read*: certainly refused, and returned (Jepsen's G1a). *unsent*: returned, and never sent. *read before
  send*: returned before its send.
* *duplicated*: at two offsets of one replica at the end; without final reads, at two offsets.
* *moved*: its answer names one offset, and it was read only at others, or it was read at another offset than its own.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from checkers.base.legality import Permit, permission
from checkers.base.timeline import group_of
from checkers.messages.log.columns import FAIL, INFO, NONE, OK, POP, Bools, Ints, LogColumns, facts
from checkers.messages.log.expiry import Expiry
from checkers.messages.log.replica_reads import ReplicaReads
from checkers.messages.ops import explained
from results.history import History
from results.record import RunRecord

Transition = TypeVar("Transition", bound=np.generic)


def study(run: RunRecord) -> MessageOutcomes:
    """The outcomes of a run's messages, shared by the judges of the run. Raises BadOp as `facts` does, and if an id was
    sent twice.
    """
    history = run.history
    found = _known.get(history)
    if found is None:
        with explained(history):
            columns, expiry = facts(history), Expiry(run)
            readings = ReplicaReads(columns, expiry.allows)
            found = _known[history] = MessageOutcomes(columns, readings, RunPermits(run, columns), expiry)
    return found


class RunPermits:
    """The run's permissions for lost messages and dirty reads, as masks over a history's columns."""

    def __init__(self, run: RunRecord, facts: LogColumns) -> None:
        self.facts, self.lost, self.dirty = facts, permission(run, "lost"), permission(run, "dirty-read")
        self.groups = run.deployment.groups

    def losses(self) -> Bools:
        """The sends whose loss is permitted, by the time of their acknowledgement."""
        sends = self.facts.sends
        return self._allowed(self.lost, sends.queue, sends.t1)

    def dirt(self) -> Bools:
        """The places that a broker may return to readers before they are safe, by the time of the first answer."""
        places = self.facts.places
        return self._allowed(self.dirty, places.queue, _take(self.facts.reads.t1, places.first))

    def _allowed(self, permit: Permit | None, queue: Ints, time: Ints) -> Bools:
        found = np.zeros(len(queue), dtype=bool)
        for code in np.unique(queue) if permit is not None else ():
            rows = np.nonzero(queue == code)[0]
            nodes = self.groups.get(group_of(self.facts.queues[code]) or "") if code != NONE else None
            found[rows] = permit.allows(time[rows], nodes) if permit is not None else False
        return found


class MessageOutcomes:
    """The outcomes of all messages. Raises ValueError if an id was sent twice: then its outcome is undefined.

    permits  None: nothing is permitted. expiry: the queues that may begin late; None: not examined.
    """

    def __init__(
        self,
        facts: LogColumns,
        readings: ReplicaReads,
        permits: RunPermits | None = None,
        expiry: Expiry | None = None,
    ) -> None:
        self.facts, self.readings, self.expiry = facts, readings, expiry
        none = np.zeros(len(facts.sends.id), dtype=bool)
        self.may_lose = permits.losses() if permits is not None else none
        """The sends whose loss is permitted; `may_be_dirty`: the places that may be returned before they are safe."""
        self.may_be_dirty = permits.dirt() if permits is not None else np.zeros(len(facts.places.id), dtype=bool)
        sends = facts.sends
        self._by_id = np.argsort(sends.id, kind="stable")
        self._ids = sends.id[self._by_id]
        twice = np.nonzero(np.diff(self._ids) == 0)[0]
        if len(twice):
            raise ValueError(f"message {self._ids[twice[0]]} was sent twice: ids must be unique over the whole run")
        places = facts.places
        self.sender = self.send_of(places.id)
        """The send of every place; NONE: no client sent it."""
        self.outcome = np.where(self.sender == NONE, NONE, _take(sends.outcome, self.sender))
        self.seen = self._marked(np.ones(len(places.id), dtype=bool))
        """For every send, True if a reader saw its message; `kept`: True if a final reading shows it."""
        self.kept = self._marked(places.final != 0)

    def send_of(self, ids: Ints) -> Ints:
        """The row of the send of each id; NONE: no client sent it."""
        if not len(self._ids):
            return np.full(len(ids), NONE, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[at] == ids, self._by_id[at], NONE)

    @cached_property
    def lost(self) -> Ints:
        """Rows of sends, in order of acknowledgement."""
        sends = self.facts.sends
        acked = sends.outcome == OK
        decided = self.readings.decided(sends.queue, sends.offset)
        rows = np.nonzero(acked & ~self.kept & decided)[0]
        open_ = np.nonzero(acked & ~self.seen & ~decided & (sends.offset != NONE))[0]
        rows = np.concatenate([rows, open_[self._passed(open_)]])
        return rows[np.argsort(sends.end[rows], kind="stable")]

    @cached_property
    def is_lost(self) -> Bools:
        """The same as a mask over all sends."""
        mask = np.zeros(len(self.facts.sends.id), dtype=bool)
        mask[self.lost] = True
        return mask

    @cached_property
    def superseded(self) -> Bools:
        """A mask over all sends; all False if no loss is permitted."""
        sends = self.facts.sends
        mask = np.zeros(len(sends.id), dtype=bool)
        if not self.may_lose.any():
            return mask
        rows = np.nonzero((sends.outcome == OK) & (sends.offset != NONE))[0]
        for queue in np.unique(sends.queue[rows]):
            mine = rows[sends.queue[rows] == queue]
            mine = mine[np.argsort(sends.offset[mine], kind="stable")]
            offset = sends.offset[mine]
            newest = np.maximum.accumulate(sends.start[mine])[np.searchsorted(offset, offset, "right") - 1]
            mask[mine] = newest > sends.end[mine]
        return mask & self.may_lose & ~self.kept & ~self.readings.decided(sends.queue, sends.offset)

    @cached_property
    def undecided(self) -> int:
        """The number of acknowledged messages of which nothing proves that they were kept: no final reading decides
        them, nor were they read before they may have been deleted for their age.
        """
        sends = self.facts.sends
        decided = self.kept | self.is_lost | self.readings.decided(sends.queue, sends.offset)
        lived = self.seen & self.readings.expired(sends.queue, sends.offset)
        return int(np.count_nonzero((sends.outcome == OK) & ~decided & ~lived))

    @cached_property
    def appeared(self) -> int:
        """Sends of unknown outcome that took effect."""
        return int(np.count_nonzero((self.facts.sends.outcome == INFO) & self.seen))

    @cached_property
    def aborted_read(self) -> Ints:
        """Rows of places."""
        return np.nonzero(self.outcome == FAIL)[0]

    @cached_property
    def unsent(self) -> Ints:
        """Rows of places. Messages that were in a queue before the run do not count."""
        places = self.facts.places
        return np.nonzero((self.outcome == NONE) & (places.offset >= _take(self.facts.origins, places.queue)))[0]

    @cached_property
    def read_before_send(self) -> Ints:
        """Rows of places: the read was answered before the send was requested."""
        begun = _take(self.facts.sends.start, self.sender)
        read = self.facts.reads.end[self.facts.places.first]
        return np.nonzero((self.sender != NONE) & (read < begun))[0]

    @cached_property
    def dirty(self) -> Ints:
        """Rows of places."""
        places = self.facts.places
        unsure = (self.outcome == INFO) & (places.final == 0) & ~_take(self.kept, self.sender)
        vanished = unsure & self.readings.decided(places.queue, places.offset)
        return np.nonzero(vanished | (unsure & self._contested))[0]

    @cached_property
    def is_dirty(self) -> Bools:
        mask = np.zeros(len(self.facts.places.id), dtype=bool)
        mask[self.dirty] = True
        return mask

    @cached_property
    def is_gone(self) -> Bools:
        """The sends, as a mask, whose message was lost, or was returned to a reader and vanished."""
        return self.is_lost | self.superseded | (self._marked(self.is_dirty) & ~self.kept)

    @cached_property
    def _contested(self) -> Bools:
        """Places that share their offset with another message."""
        places = self.facts.places
        shared: Bools = np.zeros(len(places.id), dtype=bool)
        same = (np.diff(places.queue) == 0) & (np.diff(places.offset) == 0)
        shared[:-1] |= same
        shared[1:] |= same
        return shared

    @cached_property
    def several(self) -> list[Ints]:
        """For every message of the run that was seen at more than one place: the rows of its places."""
        ids = self.facts.places.id
        ours = np.nonzero(ids > 0)[0]
        order = ours[np.argsort(ids[ours], kind="stable")]
        edges = np.nonzero(np.diff(ids[order]))[0] + 1
        sizes = np.diff(np.concatenate([[0], edges, [len(order)]]))
        if sizes.max() <= 1:
            return []
        starts = np.concatenate([[0], edges])[sizes > 1]
        return [order[a : a + n] for a, n in zip(starts, sizes[sizes > 1], strict=True)]

    @cached_property
    def duplicated(self) -> list[Ints]:
        """Rows of the places of each message that is stored twice."""
        places = self.facts.places
        found = []
        for rows in self.several:
            final = places.final[rows]
            twice = [r for i, r in enumerate(rows) if any(final[i] & f for j, f in enumerate(final) if i != j)]
            nothing_final = not self.readings.decided(places.queue[rows], places.offset[rows]).any()
            if twice or nothing_final:
                found.append(np.array(twice if twice else rows, dtype=np.int64))
        return found

    @cached_property
    def moved(self) -> list[tuple[int, Ints]]:
        """(row of the send, rows of its places) of messages read at another offset than acknowledged, or at several."""
        facts, places = self.facts, self.facts.places
        duplicates = {int(facts.places.id[rows[0]]) for rows in self.duplicated}
        # Each place seen on a final reading: the replicas contradict one another, which is reported as such.
        spread = [
            rows for rows in self.several if int(places.id[rows[0]]) not in duplicates and not places.final[rows].all()
        ]
        found = {int(self.sender[rows[0]]): rows for rows in spread if self.sender[rows[0]] != NONE}
        sends = facts.sends
        offset, queue = _take(sends.offset, self.sender), _take(sends.queue, self.sender)
        # The broker that appended it named the offset, even if its copies are unsure (`info`).
        named = (self.sender != NONE) & (self.outcome != FAIL) & (offset != NONE)
        elsewhere = named & ((places.offset != offset) | (places.queue != queue))
        at_home = np.zeros(len(sends.id), dtype=bool)
        at_home[self.sender[named & ~elsewhere]] = True
        strayed = np.unique(places.id[elsewhere & ~_take(at_home, self.sender)])
        order = np.argsort(places.id, kind="stable")
        begin = np.searchsorted(places.id[order], strayed, "left")
        end = np.searchsorted(places.id[order], strayed, "right")
        for a, b in zip(begin, end, strict=True):
            rows = order[a:b]
            if int(places.id[rows[0]]) not in duplicates:
                found.setdefault(int(self.sender[rows[0]]), rows)
        return sorted(found.items())

    @cached_property
    def rivals(self) -> list[tuple[int, int]]:
        """Pairs of sends that were both acknowledged at one offset, where no final reading shows which one is lost."""
        sends = self.facts.sends
        rows = np.nonzero((sends.outcome == OK) & (sends.offset != NONE) & ~self.is_lost & ~self.superseded)[0]
        order = rows[np.lexsort((sends.offset[rows], sends.queue[rows]))]
        same = (np.diff(sends.queue[order]) == 0) & (np.diff(sends.offset[order]) == 0)
        return [(int(order[i]), int(order[i + 1])) for i in np.nonzero(same)[0]]

    @cached_property
    def clashes(self) -> list[tuple[int, int]]:
        """Pairs of places: two messages were read at one offset, and neither loss nor anything above explains it.

        Replicas that differ at the end are left to `checkers.messages.log.replicas`.
        """
        places = self.facts.places
        gone = (self.sender != NONE) & _take(self.is_lost | self.superseded, self.sender)
        plain = ~gone & ~self.is_dirty & (self.outcome != FAIL) & (self.outcome != NONE) & self._contested
        rows = np.nonzero(plain)[0]
        found = []
        for a, b in pairwise(rows):
            same = places.queue[a] == places.queue[b] and places.offset[a] == places.offset[b]
            apart = places.final[a] and places.final[b] and not places.final[a] & places.final[b]
            if same and not apart:
                found.append((int(a), int(b)))
        return found

    def lowest(self, read: int) -> int:
        """The offset (NONE: none is named) below which an answer proves nothing, because its broker may have deleted
        the messages there.
        """
        reads = self.facts.reads
        node = int(reads.node[read])
        if self.expiry is not None and not self.expiry.allows(self.facts.node(node)):
            return NONE
        return int(reads.min[read])

    @cached_property
    def expired(self) -> Ints:
        """Rows of acknowledged sends that are left out because a broker may have deleted them."""
        sends = self.facts.sends
        return np.nonzero((sends.outcome == OK) & ~self.kept & self.readings.expired(sends.queue, sends.offset))[0]

    def _marked(self, which: Bools) -> Bools:
        """The sends of the chosen places, as a mask."""
        mask = np.zeros(len(self.facts.sends.id), dtype=bool)
        rows = self.sender[which]
        mask[rows[rows != NONE]] = True
        return mask

    def _passed(self, rows: Ints) -> Bools:
        """A mask of these sends: a later read passed the message, requested after the acknowledgement, from an offset
        at or below the message's to one at or above it.
        """
        sends, reads = self.facts.sends, self.facts.reads
        passed = np.zeros(len(rows), dtype=bool)
        # A pop shows single messages, not a stretch of a queue.
        useful = np.nonzero((reads.count > 0) & (reads.f != POP))[0]
        for queue in np.unique(sends.queue[rows]):
            of_queue = np.nonzero(sends.queue[rows] == queue)[0]
            wanted = np.unique(sends.offset[rows[of_queue]])
            latest = np.full(len(wanted), NONE, dtype=np.int64)
            mine = useful[reads.queue[useful] == queue]
            for read in mine[np.argsort(reads.start[mine], kind="stable")]:
                last = int(self.facts.sightings.offset[reads.first[read] + reads.count[read] - 1])
                begin = int(reads.requested[read])
                if begin == NONE:
                    begin = int(self.facts.sightings.offset[reads.first[read]])
                a, b = np.searchsorted(wanted, [max(begin, self.lowest(int(read))), last + 1])
                latest[a:b] = reads.start[read]
            mine = rows[of_queue]
            passed[of_queue] = latest[np.searchsorted(wanted, sends.offset[mine])] > sends.end[mine]
        return passed


def _take(column: npt.NDArray[Transition], rows: Ints) -> npt.NDArray[Transition]:
    """`column[rows]`, and an arbitrary value if a row is NONE."""
    return column[rows] if len(column) else np.zeros(len(rows), dtype=column.dtype)


_known: WeakKeyDictionary[History, MessageOutcomes] = WeakKeyDictionary()
