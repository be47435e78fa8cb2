# SPDX-License-Identifier: Apache-2.0
"""Judges that a group goes on with each queue while messages wait there and nothing disturbs it.

`Delivered` judges the end of a run, and `Prompt` leaves out a group that is behind. Neither sees a queue that stands
still for minutes and goes on in time. This judge looks at all times between two deliveries of a queue. A time counts
from the first acknowledgement of a message that waits behind all that the group has got from the queue, and only while
nothing disturbs the group: after each disturbance it begins again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consuming.calm import (
    Presence,
    Span,
    calm_times,
    changes_of,
    deleted_times,
    fault_times,
    merged,
    mode_times,
    presences,
)
from checkers.messages.consuming.changes import CLEANED, GroupChanges
from checkers.messages.consuming.resets import PAST, MemberResets
from checkers.messages.consuming.stored import stored
from checkers.messages.consuming.takes import Delivery, Takes, properties_of, subscribed, takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_WORKED_S: Final = 5.0
"""A member that works on one message for longer may let the others of its queues wait."""

_FAULT: Final = "a fault or a change of the master of the queue, or less than 30 s since it"
_MEMBERS: Final = "a member came or went"
_ENDED: Final = "a member was ended, which may have popped messages without a report"
_ABSENT: Final = "no member was there"
_RESET: Final = "an administrator reset the queue"
_MODE: Final = "a change of the mode of the group (pull or pop), or less than 60 s since it"
_CLOSED: Final = "the group may have been off, or deleted"
_WORKED: Final = f"a member worked on one message for more than {_WORKED_S:g} s"


class Progress:
    """`queue-stalled`.

    within_s  the longest time without a delivery of a queue in which a message waits.
    wanted    the tags that the group subscribes to; None: everything.
    holds     True if each queue belongs to one member; False: any member may get any message (pops).
    in_order  members pop in order: a message that comes again comes from its queue, and not from a retry topic.
    """

    name = "progress"

    def __init__(
        self, within_s: float, wanted: frozenset[str] | None = None, *, holds: bool = True, in_order: bool = False
    ) -> None:
        self.limit, self.wanted, self.holds, self.in_order = int(within_s * SECOND), wanted, holds, in_order

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `queues` with messages for the group; `longest_s`: the longest time without a disturbance in which a
        message waited and nothing came from its queue.
        """
        taken, scene = takes(run.history, popped=not self.holds), RunTimeline(run)
        queues = _waiting(run, taken, self.wanted)
        deliveries: dict[str, list[Delivery]] = {}
        for delivery in [*taken.deliveries, *taken.left]:
            if self._from_queue(delivery):
                deliveries.setdefault(delivery.key, []).append(delivery)
        causes = Causes(run, taken, scene, self.holds, self.in_order)
        resets = MemberResets(run.history)
        stalled: list[Case] = []
        excused: Counter[str] = Counter()
        nearest: dict[str, int] = {}
        longest = 0
        for key, queue in queues.items():
            disturbances = causes.of(key)
            calm = list(calm_times(merged(span for spans in disturbances.values() for span in spans), taken.until))
            for still in _standstills(deliveries.get(key, ()), queue, taken.until):
                begin = queue.waits_since(max(still.behind, resets.beyond(key, still.end) - 1), still)
                parts = [Span(max(begin, c.start), min(still.end, c.end)) for c in calm]
                part = max(parts, key=lambda span: span.end - span.start, default=Span(0, 0))
                took = max(0, part.end - part.start)
                longest = max(longest, took)
                if took > self.limit:
                    stalled.append(_case(key, queue, still, part, causes.there))
                elif still.end - still.start > self.limit:
                    reasons = [why for why, spans in disturbances.items() if still.touches(spans)]
                    for why in [*reasons, *([PAST] if begin > still.start else [])]:
                        excused[why] += 1
                        nearest[why] = max(took, nearest.get(why, 0))
        found = list(
            anomalies(scene, "queue-stalled", stalled, "{n} times nothing came from a queue although messages waited "
                      "there and members were there", limit=self.limit)
        )  # fmt: skip
        cleaned = sum(queue.cleaned for queue in queues.values())
        stats = {"queues": len(queues), "longest_s": round(longest / SECOND, 1)}
        bound = self.limit / SECOND
        excuses = [Excuse("queue-stalled", n, why, bound, nearest[why] / SECOND) for why, n in excused.items()]
        if cleaned:
            excuses.append(Excuse("queue-stalled", cleaned, CLEANED))
        unknown = None if taken.deliveries else "no message was delivered to any member"
        reason = f"{many(len(queues), 'queue')} stood still for {stats['longest_s']:g} s at most while messages waited"
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)

    def _from_queue(self, delivery: Delivery) -> bool:
        """True if a message came from the queue itself: a broker moves one that was popped and not acknowledged to a
        retry topic, unless it was popped in order.
        """
        return not delivery.again and (self.holds or self.in_order or not delivery.attempt)


class _Standstill(NamedTuple):
    """A time (ns) between two deliveries of a queue in which a message waited.

    behind  the highest offset that had been delivered before; -1: none. before, after: the deliveries around it.
    """

    start: int
    end: int
    behind: int
    before: Delivery | None
    after: Delivery | None

    def touches(self, spans: Sequence[Span]) -> bool:
        return any(span.start <= self.end and span.end >= self.start for span in spans)


class _Queue:
    """The messages of a queue that the group should get: (offset, time of the acknowledgement in ns, id, op), by
    offset. cleaned: messages left out because the group was deleted with its offsets.
    """

    def __init__(self) -> None:
        self.messages: list[tuple[int, int, Any, int]] = []
        self.cleaned = 0

    def close(self) -> None:
        """Sorts the messages; to be called when all are there."""
        self.messages.sort(key=lambda message: message[:2])
        self._offsets = [offset for offset, *_ in self.messages]
        self._earliest = [acked for _, acked, *_ in self.messages]
        for at in range(len(self._earliest) - 2, -1, -1):
            self._earliest[at] = min(self._earliest[at], self._earliest[at + 1])

    def first_behind(self, offset: int) -> int | None:
        """The time (ns) of the first acknowledgement of the messages behind an offset; None: no message is there."""
        at = bisect_right(self._offsets, offset)
        return self._earliest[at] if at < len(self._earliest) else None

    def waits_since(self, behind: int, still: _Standstill) -> int:
        """The time (ns) in a standstill since which a message behind an offset waits; its end if none does."""
        first = self.first_behind(behind)
        return still.end if first is None else min(still.end, max(still.start, first))

    def waiting(self, behind: int, at: int) -> list[tuple[int, int, Any, int]]:
        """The messages behind an offset that were acknowledged before a time (ns)."""
        return [m for m in self.messages[bisect_right(self._offsets, behind) :] if m[1] <= at]


class Causes:
    """The times in which something disturbs a group, by what it is. there: the processes of the members.

    holds, in_order   as of `Progress`.
    """

    def __init__(
        self, run: RunRecord, taken: Takes, scene: RunTimeline, holds: bool = False, in_order: bool = False
    ) -> None:
        history, until = run.history, taken.until
        self.there = presences(history, taken)
        self._taken, self._scene, self._holds = taken, scene, holds
        self._resets = MemberResets(history)
        changes = [span for presence in self.there for span in changes_of(presence, until)] if holds else [
            Span(p.ending, p.ending if p.ended is None else p.ended) for p in self.there if p.ending is not None
        ]  # fmt: skip
        lives = merged(
            Span(p.started, until if p.ending is None else p.ending)
            for p in self.there
            if p.started is not None and (p.ending is None or p.started < p.ending)
        )
        self._common: Mapping[str, list[Span]] = {
            _ABSENT: list(calm_times(lives, until)),
            _MEMBERS if holds else _ENDED: [span for span in changes if span.start < until],
            _MODE: [Span(*times) for times in mode_times(history)],
            _CLOSED: [
                *(Span(each.start, each.end) for each in GroupChanges(history).possible),
                *deleted_times(history, until),
            ],
        }
        ending = {p.life: p.ending for p in self.there if p.ending is not None}
        self._works = []
        for delivery in taken.deliveries if holds or in_order else ():
            worked = until if delivery.worked is None else delivery.worked
            end = min(worked, ending.get(delivery.life, until))
            if end - delivery.start > _WORKED_S * SECOND:
                self._works.append((delivery, Span(delivery.start, end)))

    def of(self, key: str) -> Mapping[str, list[Span]]:
        """The disturbances of a queue."""
        until = self._taken.until
        return {
            _FAULT: fault_times(self._scene, [group_of(key) or ""], until),
            **self._common,
            _RESET: [Span(r.begun, min(r.acked, until)) for r in self._resets.of(key) if r.begun < until],
            _WORKED: [span for delivery, span in self._works if self._holds_up(delivery, key)],
        }

    def _holds_up(self, delivery: Delivery, key: str) -> bool:
        """True if work on a message may hold up a queue: its own, or one that its member had, if it reported them. What
        is popped in any order holds nothing up.
        """
        if delivery.key == key or not self._holds:
            return delivery.key == key
        life, at = delivery.life, delivery.start
        return life not in self._taken.queues or not self._taken.moved(life, key, at, at)


def _waiting(run: RunRecord, taken: Takes, wanted: frozenset[str] | None) -> Mapping[str, _Queue]:
    """Queue -> its messages that were acknowledged, match the filter, and were delivered or are stored at the end."""
    tags = {identity: of.get("TAGS") for identity, of in properties_of(run.history).items()}
    got = {delivery.id for delivery in taken.deliveries}
    there, changes = stored(run).queues, GroupChanges(run.history)
    found: dict[str, _Queue] = {}
    for call in run.history.clients.calls:
        done, key, identity = call.completion, call.invoke.key, call.invoke.value
        if call.invoke.f != "send" or done is None or done.type != "ok" or key is None:
            continue
        offset = done.value[0]
        if not subscribed(tags.get(identity), wanted):
            continue
        queue = found.setdefault(key, _Queue())
        if identity not in got:
            if there.get(key, {}).get(offset) != identity:
                continue
            if changes.forgets(taken, key, call.start):
                queue.cleaned += 1
                continue
        queue.messages.append((offset, done.time, identity, done.index))
    for queue in found.values():
        queue.close()
    return found


def _standstills(deliveries: Sequence[Delivery], queue: _Queue, until: int) -> Iterator[_Standstill]:
    """Yields the times between two deliveries of a queue in which a message waited behind all that were delivered."""
    behind, last = -1, None
    for after in [*sorted(deliveries, key=lambda each: each.start), None]:
        start, end = 0 if last is None else last.start, until if after is None else after.start
        still = _Standstill(start, end, behind, last, after)
        since = queue.waits_since(behind, still)
        if since < end:
            yield still._replace(start=since)
        if after is not None:
            behind, last = max(behind, after.offset), after


def _case(key: str, queue: _Queue, still: _Standstill, part: Span, there: Sequence[Presence]) -> Case:
    waiting = queue.waiting(still.behind, part.start)
    offset, acked, identity, op = min(waiting, key=lambda message: message[1])
    lives = [
        str(p.life)
        for p in there
        if p.started is not None and p.started <= part.start and (p.ending is None or p.ending >= part.end)
    ]
    text = f"{key} from {clock(part.start)} to {clock(part.end)}, {many(len(waiting), 'message')} waited, the first "
    text += f"{identity} at offset {offset}, acknowledged at {clock(acked)}; all the time members: "
    text += ", ".join(lives[:4]) or "none, but one after the other"
    around = [each.op for each in (still.before, still.after) if each is not None]
    return Case(part.start, part.end, sorted({op, *around}), text, key)
