# SPDX-License-Identifier: Apache-2.0
"""Judges that an orderly group gets each queue in order, and that one member at a time works on it.

Source: "Message order" and "Ordered consumption" (docs/en/Features.md of apache/rocketmq): messages of a queue are
consumed strictly in the order in which they are stored. `ConsumeMessageOrderlyService` holds a lock of the queue at the
broker for this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude, permission
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consuming.stored import stored
from checkers.messages.consuming.takes import Delivery, properties_of, subscribed, takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import CheckResult

_LEASE_S: Final = 60.0
"""A broker's lock of a queue ends after so long without a renewal (`RebalanceLockManager`). It is in memory alone."""


class Ordered:
    """`out-of-order`, `two-owners`.

    wanted  the tags that the group subscribes to; None: everything. again: the number of further attempts of a message
            that failed, after which the queue goes on without it; None: no end.
    """

    name = "ordered"

    def __init__(self, wanted: frozenset[str] | None = None, again: int | None = None) -> None:
        self.wanted, self.again = wanted, again

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `queues`, `deliveries` compared with the order of their queue."""
        told, scene = takes(run.history), RunTimeline(run)
        tags = {id: of.get("TAGS") for id, of in properties_of(run.history).items()}
        queues: dict[str, list[Delivery]] = {}
        for delivery in told.deliveries:
            if not delivery.again:
                queues.setdefault(delivery.key, []).append(delivery)
        early: list[Case] = []
        for key, of in stored(run).queues.items():
            owed = {offset: id for offset, id in of.items() if subscribed(tags.get(id), self.wanted)}
            early += self._early(key, owed, queues.get(key, []))
        shared = [case for key, deliveries in queues.items() for case in _shared(key, deliveries)]
        permit = permission(run, "locked-by-two")
        legal = [case for case in shared if permit is not None and _lock_lost(scene, case)]
        wrong = [case for case in shared if case not in legal]
        found = [
            *anomalies(scene, "out-of-order", early, "{n} messages of {queues} queues were delivered before an "
                       "earlier one was finished"),
            *anomalies(scene, "two-owners", wrong, "{n} times two processes worked on one queue at once"),
            *anomalies(scene, "two-owners", legal, "{n} times two processes worked on one queue at once",
                       legal=permit.why if permit is not None else None),
        ]  # fmt: skip
        count = sum(map(len, queues.values()))
        stats = {"queues": len(queues), "deliveries": count}
        unknown = None if count else "no message was delivered to any member"
        return conclude(self.name, run, found, stats, f"{many(count, 'delivery')} in order", unknown)

    def _finished(self, delivery: Delivery) -> bool:
        """True if the queue goes on behind a message after this delivery."""
        return bool(delivery.done) or (
            delivery.done is False and self.again is not None and delivery.attempt >= self.again
        )

    def _early(self, key: str, owed: Mapping[int, Any], deliveries: list[Delivery]) -> Iterator[Case]:
        """Yields deliveries of a message before all earlier ones of its queue were finished."""
        return _early(key, owed, deliveries, [d for d in deliveries if self._finished(d)])


def _early(key: str, owed: Mapping[int, Any], deliveries: list[Delivery], finished: list[Delivery]) -> Iterator[Case]:
    order = sorted(owed)
    steps = [(d.start, 1, d) for d in deliveries] + [(d.end, 0, d) for d in finished if d.end is not None]
    done: set[int] = set()
    first = 0
    for _, begins, delivery in sorted(steps, key=lambda step: step[:2]):
        if not begins:
            done.add(delivery.offset)
            while first < len(order) and order[first] in done:
                first += 1
        elif first < len(order) and delivery.offset > order[first]:
            yield Case(delivery.start, delivery.start, [delivery.op],
                       f"message {delivery.id} at offset {delivery.offset} of {key} came to {delivery.life} at "
                       f"{clock(delivery.start)}, when offset {order[first]} was not finished", key)  # fmt: skip


def _shared(key: str, deliveries: list[Delivery]) -> Iterator[Case]:
    """Yields deliveries that overlap with one of another process."""
    last: Delivery | None = None
    for delivery in sorted(deliveries, key=lambda each: each.start):
        if last is not None and last.life != delivery.life and last.end is not None and last.end > delivery.start:
            text = f"{last.life} worked on offset {last.offset} of {key} until {clock(last.end)}, "
            text += f"{delivery.life} on offset {delivery.offset} from {clock(delivery.start)}"
            yield Case(delivery.start, last.end, [last.op, delivery.op], text, key)
        if last is None or last.end is None or (delivery.end or 0) >= last.end:
            last = delivery


def _lock_lost(scene: RunTimeline, case: Case) -> bool:
    """True if the master, which keeps the locks in memory, may have changed or ended while the first lock held."""
    start = case.start - int(_LEASE_S * SECOND)
    masters = scene.masters(start, case.end, group_of(case.key or ""), margin_s=0)
    return len(masters) != 1 or not scene.stayed_master(masters[0].node, start, case.end)
