# SPDX-License-Identifier: Apache-2.0
"""The common part of the judges of messages that brokers deliver by themselves, some time after the send: delayed
messages and transactions. The judges follow a message by its id through all queues, because an acting master delivers
it through another broker group (RIP-32's escape).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.base.cases import Case
from checkers.base.timeline import RunTimeline, group_of
from results.figures import SECOND, clock
from results.history import Call
from results.op import INFO, OK
from results.record import RunRecord
from results.verdict import Anomaly

_ABSENT: Final = -1
"""The end of a queue for a read that failed: it could return nothing."""

_UNSERVED_NS: Final = 2 * SECOND
_OPS: Final = 12

Place = tuple[str, int]
"""Queue and offset."""


@dataclass
class Followed:
    """A message that is followed by its id.

    seen   the first read of each place where it was. final: the places where the final reads found it.
    """

    id: int
    send: Call
    seen: dict[Place, Call] = field(default_factory=dict)
    final: set[Place] = field(default_factory=set)

    @property
    def copies(self) -> list[tuple[Place, Call]]:
        """Places in the order in which they were first seen."""
        return sorted(self.seen.items(), key=lambda item: (item[1].end or 0, item[0]))

    @property
    def queue(self) -> str:
        """The queue that it was sent to; the topic, if a library was to choose the queue and did not report it."""
        done = self.send.completion
        return str((done.extra if done is not None else {}).get("queue") or self.send.invoke.key)

    def case(self, start: int, end: int, *calls: Call) -> Case:
        """A case of this message, which its send and these calls prove."""
        ops = sorted({self.send.invoke.index, *(call.invoke.index for call in calls)})
        return Case(start, end, ops, key=self.queue, group=group_of(self.queue), about=self)


def follow(reads: Iterable[Call], messages: Mapping[Any, Followed]) -> list[tuple[Any, Call]]:
    """Adds the places where reads found the messages. Returns the values that no client sent, each with its read."""
    strangers = []
    for call in reads:
        if call.completion is None or call.completion.type != OK:
            continue
        for offset, identity in call.completion.value:
            message = messages.get(identity)
            if message is None:
                strangers.append((identity, call))
                continue
            place = (str(call.invoke.key), offset)
            if call.invoke.f == "replica-read":
                message.final.add(place)
            if place not in message.seen or (call.end or 0) < (message.seen[place].end or 0):
                message.seen[place] = call
    return strangers


class QueueReads:
    """The absences that the reads of a run prove, and the final reads that are complete."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._series: dict[str, dict[str, tuple[list[int], list[int]]]] = {}
        self.asked: set[tuple[str, str]] = set()
        self.done: set[tuple[str, str]] = set()
        self.final_since: int | None = None
        for call in sorted(calls, key=lambda c: c.start):
            done, queue = call.completion, str(call.invoke.key)
            node = str(call.invoke.extra.get("node"))
            if call.invoke.f == "replica-read":
                self.asked.add((queue, node))
                self.final_since = call.start if self.final_since is None else self.final_since
                if done is not None and done.extra.get("done"):
                    self.done.add((queue, node))
            if done is None or done.type == INFO:
                continue
            end = done.extra.get("max") if done.type == OK else _ABSENT
            if end is not None:
                starts, ends = self._series.setdefault(queue, {}).setdefault(node, ([], []))
                starts.append(call.start)
                ends.append(end)

    @property
    def missing(self) -> list[str]:
        """Final reads that did not reach the end of their queue, as `QUEUE at NODE`."""
        return [f"{queue} at {node}" for queue, node in sorted(self.asked - self.done)]

    @property
    def complete_since(self) -> int | None:
        """The time (ns) at which the final reads began; None without such reads, or if not all reached the end."""
        return None if self.missing else self.final_since

    @property
    def unproven(self) -> str | None:
        """The reason why a message in no queue proves nothing, or None."""
        if self.complete_since is not None:
            return None
        missing = self.missing or ["no queue"]
        return f"it is not proven that all queues were read to their end: {', '.join(missing[:4])}"

    def absent_until(self, place: Place, before: int) -> int | None:
        """The last time (ns) before another at which certainly no node could return a place; None: unknown."""
        queue, offset = place
        bounds = []
        for starts, ends in self._series.get(queue, {}).values():
            at = bisect_left(starts, before)
            while at and ends[at - 1] > offset:
                at -= 1
            if not at:
                return None
            bounds.append(starts[at - 1])
        return min(bounds, default=None)


class Duty:
    """The times in which the servers owed a delivery. limit: the longest delay (ns), also after a change.

    unserved, served   see `unserved`: of all broker groups. unserved_of: of each group alone, if nobody stands in for a
                       master that is gone; else empty.
    """

    def __init__(self, run: RunRecord, scene: RunTimeline, messages: Collection[Followed], limit: int) -> None:
        self.limit = limit
        self.intervals = scene.fault_intervals
        self.edges = sorted(t for i in self.intervals for t in (i.start_ns, i.end_ns) if t is not None)
        self.groups: Mapping[str, Sequence[str]] = run.deployment.groups
        self.unserved, self.served = unserved(message.send for message in messages)
        self.unserved_of: dict[str | None, list[int]] = {}
        if not run.deployment.traits.stands_in:
            for group in {group_of(message.queue) for message in messages}:
                mine = (message.send for message in messages if group_of(message.queue) == group)
                self.unserved_of[group], _ = unserved(mine)

    def is_settled(self, due: int, by: int) -> bool:
        """True if a message due at `due` must be there at `by`: after the last fault, if masters served again."""
        return self.served and max([due, *self.edges[-1:], *self.unserved[-1:]]) + self.limit <= by

    def impaired(self, time: int) -> set[str]:
        """The nodes that a fault impairs at a time (ns)."""
        return {
            node
            for i in self.intervals
            if i.start_ns <= time and (i.end_ns is None or i.end_ns >= time)
            for node in {*i.impairs, *i.nodes}
        }

    def all_impaired(self, group: str | None, time: int) -> bool:
        """True if faults impair all nodes of a group at a time (ns)."""
        nodes = set(self.groups.get(group or "", ()))
        return bool(nodes) and nodes <= self.impaired(time)


def unserved(sends: Iterable[Call]) -> tuple[list[int], bool]:
    """The times (ns, in order) at which a send ended without an acknowledgement, and no other one was acknowledged in
    the 2 s before and after: then no master served. True with them if sends were acknowledged at the end.
    """
    done = [(call.end, call.outcome) for call in sends if call.completion is not None and call.end is not None]
    acks = sorted(end for end, outcome in done if outcome == OK)
    found = []
    for end in sorted(end for end, outcome in done if outcome != OK):
        at = bisect_left(acks, end - _UNSERVED_NS)
        if at == len(acks) or acks[at] > end + _UNSERVED_NS:
            found.append(end)
    return found, not found or (bool(acks) and acks[-1] > found[-1])


def never_sent(strangers: Sequence[tuple[Any, Call]]) -> Iterator[Anomaly]:
    """Yields an anomaly for messages that were read and no client sent: each an id, or text, with its read."""
    if strangers:
        identity, call = strangers[0]
        count = len({str(identity) for identity, _ in strangers})
        yield Anomaly(
            "never-sent",
            f"{count:,} messages were read that no client sent: {identity} in {call.invoke.key} at "
            f"{clock(call.end or 0)}",
            call.invoke.key,
            sorted({c.invoke.index for _, c in strangers[:_OPS]}),
            (call.start, call.end or call.start),
            {"count": count},
        )
