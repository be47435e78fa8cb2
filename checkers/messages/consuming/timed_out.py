# SPDX-License-Identifier: Apache-2.0
"""Judges that a message whose listener does not return comes again.

Source: `DefaultMQPushConsumer.consumeTimeout` ("Maximum amount of time in minutes a message may block the consuming
thread"). The library looks once in each such time (`ConsumeMessageConcurrentlyService.cleanExpireMsg`), sends back what
took longer, with delay level 3 (10 s), and goes on behind it. So within twice the time and the delay, another member or
thread gets the message.
"""

from __future__ import annotations

from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consumer_times import delay_s
from checkers.messages.consuming.changes import GroupChanges
from checkers.messages.consuming.resets import MemberResets
from checkers.messages.consuming.takes import Delivery, properties_of, takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_SLACK_S: Final = 10.0

_DISTURBED: Final = "a fault, a change of master, or one of the group or its offsets since its delivery"


class TimedOut:
    """`timeout-ignored`. timeout_s: the time that a listener may take for a message."""

    name = "timed-out"

    def __init__(self, timeout_s: float) -> None:
        self.limit = int((2 * timeout_s + delay_s(0) + _SLACK_S) * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `stuck` deliveries that lasted for longer than the limit or whose message came again meanwhile;
        `longest_s`: the longest time until it did.
        """
        taken, scene = takes(run.history), RunTimeline(run)
        stuck = {identity for identity, of in properties_of(run.history).items() if "stuck" in of}
        by_id: dict[Any, list[Delivery]] = {}
        for delivery in taken.deliveries:
            if delivery.id in stuck:
                by_id.setdefault(delivery.id, []).append(delivery)
        resets, changes = MemberResets(run.history), GroupChanges(run.history)
        kept: list[Case] = []
        judged = excused = longest = 0
        for identity, deliveries in by_id.items():
            for n, first in enumerate(deliveries):
                end = taken.until if first.end is None else first.end
                again = next((each.start for each in deliveries[n + 1 :] if each.start <= end), None)
                if first.attempt or (again is None and end - first.start < self.limit):
                    continue  # no first attempt, or its process ended, or it was not stuck for so long
                judged += 1
                due = first.start + self.limit
                if again is not None and again <= due:
                    longest = max(longest, again - first.start)
                elif (
                    _disturbed(scene, first, due)
                    or changes.closed(first.start, due)
                    or resets.stopped(first.start, due)
                ):
                    excused += 1
                else:
                    text = f"message {identity} came to {first.life} at {clock(first.start)}, which worked on it until "
                    text += (
                        f"{clock(end)}; it " + ("did not come" if again is None else f"came {clock(again)}") + " again"
                    )
                    kept.append(Case(first.start, due, [first.op], text, first.key))
        found = anomalies(scene, "timeout-ignored", kept, "{n} messages that their listeners kept for longer than "
                          "consumeTimeout did not come again in time", limit=self.limit)  # fmt: skip
        stats = {"stuck": judged, "longest_s": round(longest / SECOND, 1)}
        excuses = [Excuse("timeout-ignored", excused, _DISTURBED)] if excused else []
        unknown = None if judged else "no listener kept a message for long enough"
        reason = (
            f"{many(judged, 'message')} kept for longer than consumeTimeout came again within {stats['longest_s']:g} s"
        )
        return conclude(self.name, run, list(found), stats, reason, unknown, excuses=excuses)


def _disturbed(scene: RunTimeline, first: Delivery, until: int) -> bool:
    return scene.changed_master(group_of(first.key), first.start, until) or bool(scene.in_force(first.start, until))
