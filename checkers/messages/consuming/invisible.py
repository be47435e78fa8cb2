# SPDX-License-Identifier: Apache-2.0
"""Judges the invisible durations and the receipt handles of a group whose members pop messages.

Source: RIP-19 (Pop consuming) and "SimpleConsumer" (docs of RocketMQ 5.0, "Consumer types"): a message that a consumer
has received is invisible to the others for the duration that it requested; `changeInvisibleDuration` sets another one.
After an acknowledgement the message is consumed; one without it can be received again when the duration is over.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consuming.changes import GroupChanges
from checkers.messages.consuming.resets import BACK, PAST, MemberResets
from checkers.messages.consuming.stored import stored
from checkers.messages.consuming.takes import UNSURE, Delivery, may_be_acknowledged, takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_EARLY_S: Final = 1.0
"""So much before its end a duration may be over: brokers count from the pop, and round."""

_FAULT: Final = "a fault or a change of master since the first delivery"

_SAME_END: Final = SECOND // 50
"""Two durations end together if no more (ns) is between their ends: so exactly members know when a request arrives."""

_BEFORE_S: Final = 5.0
"""A fault may have an effect so long before the first delivery: the pop was earlier."""


_GONE: Final = "{n} messages without an acknowledgement did not come again"
_GONE_ALIKE: Final = (
    "{n} messages without an acknowledgement, whose new duration ends with the first one, did not come again"
)


class Invisible:
    """`leased-twice`, `acked-redelivered`, `never-returned`. within_s: the longest time from the end of its duration
    until a message comes again.
    """

    name = "invisible"

    def __init__(self, within_s: float) -> None:
        self.within = int(within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `deliveries` with a duration, `renewed`: those with a new one, `expired`: those that came again
        after it, `acked_again` and `refused`: second acknowledgements that were accepted, or refused.
        """
        taken, scene = takes(run.history, popped=True), RunTimeline(run)
        there = {identity for of in stored(run).queues.values() for identity in of.values()}
        by_id: dict[Any, list[Delivery]] = {}
        for delivery in taken.deliveries:
            by_id.setdefault(delivery.id, []).append(delivery)
        twice: list[Case] = []
        after: list[Case] = []
        gone: dict[str, list[Case]] = {_GONE: [], _GONE_ALIKE: []}
        excused: Counter[tuple[str, str]] = Counter()
        resets, changes = MemberResets(run.history), GroupChanges(run.history)
        open_: Counter[str] = Counter()
        expired = 0
        for identity, deliveries in by_id.items():
            used = 0
            for before, later in pairwise(deliveries):
                case = _again(before, later)
                if case is None:
                    expired += bool(before.hides) and not before.done
                elif _disturbed(scene, deliveries[0], later, confirmed=case.name == "acked-redelivered"):
                    excused[case.name, _FAULT] += 1
                elif used < resets.repeats(later):
                    used += 1  # each reset brings a message back once
                    excused[case.name, BACK] += 1
                else:
                    (twice if case.name == "leased-twice" else after).append(case)
            last = deliveries[-1]
            over = last.over
            if over is None or identity not in there or any(each.done for each in deliveries):
                continue
            if may_be_acknowledged(deliveries):
                open_[UNSURE] += 1
            elif resets.passes(last.key, last.offset, resets.known.get(identity, 0)):
                open_[PAST] += 1
            elif changes.put_off(over, over + self.within) < taken.until:
                text = (
                    f"message {identity} came to {last.life} at {clock(last.start)}, and could be received again from "
                )
                what = _GONE_ALIKE if _ends_alike(last) else _GONE
                gone[what].append(Case(over, taken.until, [last.op], text + clock(over), last.key))
            else:
                open_["the run ended before they were due"] += 1
        hidden = [delivery for delivery in taken.deliveries if delivery.hides]
        again = [delivery.acked_again for delivery in taken.deliveries if delivery.acked_again is not None]
        found = [
            *anomalies(scene, "leased-twice", twice, "{n} messages came again while they were invisible"),
            *anomalies(scene, "acked-redelivered", after, "{n} messages came again that were acknowledged twice"),
        ]
        for what, cases in gone.items():
            found += anomalies(scene, "never-returned", cases, what, limit=self.within)
        stats = {
            "deliveries": len(hidden),
            "renewed": sum(len(delivery.hides) > 1 for delivery in hidden),
            "expired": expired,
            "acked_again": sum(again),
            "refused": len(again) - sum(again),
        }
        excuses = [Excuse(rule, n, why) for (rule, why), n in excused.items()]
        excuses += [Excuse("never-returned", n, reason) for reason, n in open_.items()]
        unknown = None if hidden else "no delivery has an invisible duration"
        reason = f"{many(len(hidden), 'delivery', 'deliveries')} with a duration, {stats['renewed']:,} renewed, "
        reason += f"{expired:,} expired, {len(again):,} acknowledged twice"
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)


def _again(before: Delivery, later: Delivery) -> Case | None:
    """The violation that a delivery is after another one of the message; None: it is none.

    A message that was acknowledged once, and comes again, is a case of `Delivered`.
    """
    if before.done:
        if before.acked_again is None or (before.end or 0) >= later.start:
            return None
        text = f"message {later.id} to {later.life} at {clock(later.start)}, acknowledged by {before.life} at "
        return Case(before.end or 0, later.start, [before.op, later.op], text + clock(before.end or 0), later.key,
                    name="acked-redelivered")  # fmt: skip
    early = int(_EARLY_S * SECOND)
    for since, until in before.hides:
        if since <= later.start < until - early:
            text = f"message {later.id} to {later.life} at {clock(later.start)}, which {before.life} had from "
            text += f"{clock(since)}, hidden until {clock(until)}"
            return Case(since, later.start, [before.op, later.op], text, later.key, name="leased-twice")
    return None


def _ends_alike(delivery: Delivery) -> bool:
    """True if its member requested another duration that ends when the first one does."""
    if len(delivery.hides) < 2 or delivery.over is None or delivery.first_over is None:
        return False
    return abs(delivery.over - delivery.first_over) <= _SAME_END


def _disturbed(scene: RunTimeline, first: Delivery, later: Delivery, *, confirmed: bool) -> bool:
    """True if a fault or a change of master may have brought a message again. confirmed: a broker had confirmed its
    acknowledgement, so only a fault at its brokers may; if not, also one at a proxy, or at the nodes of members.
    """
    start, group = first.start - int(_BEFORE_S * SECOND), group_of(later.key)
    faults = scene.at_group(group, start, later.start) if confirmed else scene.between(group, start, later.start)
    return scene.changed_master(group, start, later.start) or bool(faults)
