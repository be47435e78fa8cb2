# SPDX-License-Identifier: Apache-2.0
"""Judges that an orderly group gets each queue in order, and that one member at a time works on it.

Source: "Message order" and "Ordered consumption" (docs/en/Features.md of apache/rocketmq): messages of a queue are
consumed strictly in the order in which they are stored. `ConsumeMessageOrderlyService` holds a lock of the queue at the
broker for this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude, permission
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consuming.resets import PAST, MemberResets
from checkers.messages.consuming.stored import stored
from checkers.messages.consuming.takes import UNSURE, Delivery, properties_of, subscribed, takes
from checkers.messages.ops import of_messages
from checkers.messages.reports import Life
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_LEASE_S: Final = 60.0
"""A broker's lock of a queue ends after so long without a renewal (`RebalanceLockManager`). It is in memory alone."""

_EARLY_S: Final = 1.0
"""So much before its end an invisible duration may be over: brokers count from the pop, and round."""

_NEAR_S: Final = 0.02
"""Two processes' times are compared no closer: a report needs some milliseconds to arrive, by which their clocks are
compared (`infra.systems.rocketmq.applications.process.Clock`). Brokers hand a popped queue over faster."""

_AT_ONCE: Final = "another process reported the end of the earlier one so little later: nobody knows their order"

_EXPIRED: Final = "the invisible duration of the first one was over, and its process still worked on it"

_ORDER_LOST: Final = "the master, which keeps in memory what was popped in order, changed or was struck shortly before"


class Ordered:
    """`out-of-order`, `two-owners`.

    wanted  the tags that the group subscribes to; None: everything. again: the number of further attempts of a message
            that failed, after which the queue goes on without it; None: no end.
    within  the property whose values have an order each: members pop, and the messages of a queue with one value are in
            order ("Ordered Message" of RocketMQ's documents: messages of one message group). None: the whole queue is,
            and members hold it.
    leased  True if a message is hidden from other members for the duration that its consumer requested, and not longer.
    """

    name = "ordered"

    def __init__(
        self,
        wanted: frozenset[str] | None = None,
        again: int | None = None,
        *,
        within: str | None = None,
        leased: bool = False,
    ) -> None:
        self.wanted, self.again, self.within, self.leased = wanted, again, within, leased

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `queues`, `deliveries` compared with the order of their queue; with `within`, `sequences`: the pairs
        of a queue and a value of the property.
        """
        told, scene = takes(run.history, popped=self.within is not None), RunTimeline(run)
        properties = properties_of(run.history)
        tags = {id: of.get("TAGS") for id, of in properties.items()}
        values = {id: of.get(self.within) for id, of in properties.items()} if self.within is not None else {}
        parts: dict[tuple[str, str | None], list[Delivery]] = {}
        for delivery in told.deliveries:
            if not delivery.again:
                parts.setdefault((delivery.key, values.get(delivery.id)), []).append(delivery)
        early: list[Case] = []
        resets = MemberResets(run.history)
        passed = unsure = close = 0
        near = int(_NEAR_S * SECOND) if self.within is not None else 0
        for key, of in stored(run).queues.items():
            owed: dict[str | None, dict[int, Any]] = {}
            for offset, id in of.items():
                if subscribed(tags.get(id), self.wanted):
                    owed.setdefault(values.get(id), {})[offset] = id
            for value, messages in owed.items():
                queue = _Queue(key, messages, parts.get((key, value), []), self._finished, resets, near)
                early += queue.early
                passed += queue.passed
                unsure += queue.unsure
                close += queue.close
        shared = [case for (key, _), deliveries in parts.items() for case in _shared(key, deliveries, near)]
        expired = [case for case in shared if self.leased and case.about]
        shared = [case for case in shared if case not in expired]
        lost = [case for case in shared if _lock_lost(scene, case)]
        permit = permission(run, "locked-by-two")
        legal = lost if permit is not None and self.within is None else []
        excused = lost if self.within is not None else []
        wrong = [case for case in shared if case not in legal and case not in excused]
        found = [
            *anomalies(scene, "out-of-order", early, "{n} messages of {queues} queues were delivered before an "
                       "earlier one was finished"),
            *anomalies(scene, "two-owners", wrong, "{n} times two processes worked on one queue at once"),
            *anomalies(scene, "two-owners", legal, "{n} times two processes worked on one queue at once",
                       legal=permit.why if permit is not None else None),
        ]  # fmt: skip
        count = sum(map(len, parts.values()))
        stats = {"queues": len({key for key, _ in parts}), "deliveries": count}
        if self.within is not None:
            stats["sequences"] = len(parts)
        unknown = None if count else "no message was delivered to any member"
        excuses = [Excuse("out-of-order", passed, PAST)] if passed else []
        if close:
            excuses.append(Excuse("out-of-order", close, _AT_ONCE, _NEAR_S))
        if unsure:
            excuses.append(Excuse("out-of-order", unsure, UNSURE))
        if expired:
            excuses.append(Excuse("two-owners", len(expired), _EXPIRED))
        if excused:
            excuses.append(Excuse("two-owners", len(excused), _ORDER_LOST, _LEASE_S))
        reason = f"{many(count, 'delivery', 'deliveries')} in order"
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)

    def _finished(self, delivery: Delivery) -> bool:
        """True if the queue goes on behind a message after this delivery."""
        return bool(delivery.done) or (
            delivery.done is False and self.again is not None and delivery.attempt >= self.again
        )


class _Queue:
    """The deliveries of one queue in order of time.

    early   deliveries of a message before all earlier ones were finished. passed: messages that a reset passed over.
    unsure  messages that may have been acknowledged, and behind which the queue went on. close: messages that another
            process finished less than `near` (ns) after a later one was delivered.
    """

    def __init__(
        self,
        key: str,
        owed: Mapping[int, Any],
        deliveries: list[Delivery],
        finishes: Callable[[Delivery], bool],
        resets: MemberResets,
        near: int,
    ) -> None:
        self.key, self._order, self._resets = key, sorted(owed), resets
        self._done: set[int] = set()
        self._open: set[int] = set()
        self._near: dict[int, Life] = {}
        self._first = self.passed = self.unsure = self.close = 0
        self.early: list[Case] = []
        steps = [(d.start, 2, d) for d in deliveries]
        for d in deliveries:
            if d.worked is not None and (d.unsure or finishes(d)):
                steps += [(d.worked - near, 0, d), (d.worked, 1, d)]
        for _, kind, delivery in sorted(steps, key=lambda step: step[:2]):
            if kind == 2:
                self._begin(delivery)
            elif kind == 0:
                self._near[delivery.offset] = delivery.life
            elif delivery.unsure:
                self._open.add(delivery.offset)
            else:
                self._done.add(delivery.offset)
                self._advance(0)

    def _begin(self, d: Delivery) -> None:
        before = self._first
        if self._waits(d):
            self._advance(min(d.offset, self._resets.beyond(self.key, d.start)))
            self.passed += self._first - before
        while self._waits(d):
            first = self._order[self._first]
            if first in self._open:
                self.unsure += 1
            elif self._near.get(first, d.life) != d.life:
                self.close += 1
            else:
                break
            self._done.add(first)
            self._advance(0)
        if self._waits(d):
            text = (
                f"message {d.id} at offset {d.offset} of {self.key} came to {d.life} at {clock(d.start)}, when offset "
            )
            text += f"{self._order[self._first]} was not finished"
            self.early.append(Case(d.start, d.start, [d.op], text, self.key))

    def _waits(self, delivery: Delivery) -> bool:
        """True if an earlier message is not finished."""
        return self._first < len(self._order) and delivery.offset > self._order[self._first]

    def _advance(self, below: int) -> None:
        """Goes on to the first message that is not finished, and not below an offset."""
        order = self._order
        while self._first < len(order) and (order[self._first] in self._done or order[self._first] < below):
            self._first += 1


def _shared(key: str, deliveries: list[Delivery], near: int) -> Iterator[Case]:
    """Yields deliveries that overlap with one of another process for longer than `near` (ns); `about`: the first one's
    duration was over.
    """
    last: Delivery | None = None
    for delivery in sorted(deliveries, key=lambda each: each.start):
        end = None if last is None else last.worked
        if last is not None and last.life != delivery.life and end is not None and end > delivery.start + near:
            text = f"{last.life} worked on offset {last.offset} of {key} until {clock(end)}, "
            text += f"{delivery.life} on offset {delivery.offset} from {clock(delivery.start)}"
            over = last.over is not None and last.over - int(_EARLY_S * SECOND) <= delivery.start
            yield Case(delivery.start, end, [last.op, delivery.op], text, key, about=over)
        if last is None or end is None or (delivery.worked or 0) >= end:
            last = delivery


def _lock_lost(scene: RunTimeline, case: Case) -> bool:
    """True if the master, which keeps the locks in memory, may have changed or ended while the first lock held."""
    start = case.start - int(_LEASE_S * SECOND)
    masters = scene.masters(start, case.end, group_of(case.key or ""), margin_s=0)
    return len(masters) != 1 or not scene.stayed_master(masters[0].node, start, case.end)
