# SPDX-License-Identifier: Apache-2.0
"""Judges that a message comes to a calm group soon after its acknowledgement: a long poll must be woken.

A broker holds a pull or a pop until a message arrives (`PullRequestHoldService`, `PopLongPollingService`), so a
delivery takes milliseconds. It is judged where nothing else can delay it: no fault, the same master, and no change of
any member's queues, or of the members, from a while before the acknowledgement to the delivery; and no earlier message
of the queue waits for so long that the group is behind. So a stall shows by the messages at its begin; `Progress`
judges long ones, also of a group that is behind. An orderly consumer stops a queue for a second after each failure
(`suspendCurrentQueueTimeMillis`): that time does not count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.consuming.calm import Span, change_times, merged
from checkers.messages.consuming.changes import GroupChanges
from checkers.messages.consuming.resets import MemberResets
from checkers.messages.consuming.takes import Takes, takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

LIMIT_S: Final = 2.0
_BEHIND_S: Final = 0.5
"""A group is behind if an earlier message of the queue has waited for so long."""

_CALM_S: Final = 5.0
"""So long before the acknowledgement, nothing may have changed."""


_PAUSED: Final = "a message before it failed, and its consumer pauses the queue after each failure"

_PAUSE_SLACK_S: Final = 0.5
"""A pause takes so much longer at most: a thread has to run again."""


class Prompt:
    """`slow-to-group`. pause_s: the time for which a member stops a queue after each message that failed."""

    name = "prompt"

    def __init__(self, pause_s: float = 0.0) -> None:
        self.pause = int((pause_s + _PAUSE_SLACK_S) * SECOND) if pause_s else 0

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `messages` judged; `p50_ms`, `p99_ms`, `max_ms` from the acknowledgement to the first delivery,
        without the pauses; `disturbed`: the number of messages that are not judged.
        """
        told, scene = takes(run.history), RunTimeline(run)
        resets, group = MemberResets(run.history), GroupChanges(run.history)
        first: dict[Any, int] = {}
        repeats: dict[str, list[int]] = {}
        """Queue -> the times of its deliveries after the first of a message: a group that is behind after a reset."""
        for delivery in told.deliveries:
            if first.setdefault(delivery.id, delivery.start) != delivery.start:
                repeats.setdefault(delivery.key, []).append(delivery.start)
        changes = change_times(told, scene)
        pauses = _pauses(told, self.pause) if self.pause else {}
        slow: list[Case] = []
        waits: list[int] = []
        paused: list[int] = []
        disturbed = late = 0
        acked = [
            (call.completion.time, call)
            for call in run.history.clients.calls
            if call.invoke.f == "send"
            and call.completion is not None
            and call.completion.type == "ok"
            and "within_ms" not in call.completion.extra  # a request is completed by its reply
        ]
        waiting: dict[str | None, list[tuple[int, int]]] = {}
        """Queue -> (acknowledged, delivered) of its messages that may still wait."""
        for start, call in sorted(acked, key=lambda each: each[0]):
            if call.invoke.value not in first:
                continue
            end, key = first[call.invoke.value], call.invoke.key
            before = waiting[key] = [each for each in waiting.get(key, ()) if each[1] > start]
            behind = any(since < start - int(_BEHIND_S * SECOND) for since, _ in before)
            before.append((start, end))
            if resets and key is not None:
                again = repeats.get(key, [])
                since = start - int(_BEHIND_S * SECOND)
                behind |= bisect_right(again, since) != bisect_right(again, end)
                behind |= resets.requested(key, start - int(_CALM_S * SECOND), end)
            behind |= group.closed(start - int(_CALM_S * SECOND), end)
            if behind or not _calm(scene, changes, start, end):
                disturbed += 1
                late += end - start > LIMIT_S * SECOND
                continue
            wait = max(0, end - start)
            left = wait - sum(max(0, min(p.end, end) - max(p.start, start)) for p in pauses.get(key or "", ()))
            waits.append(left)
            if left <= LIMIT_S * SECOND < wait:
                paused.append(left)
            if left > LIMIT_S * SECOND:
                text = f"message {call.invoke.value}, acknowledged at {clock(start)}, came at {clock(end)}"
                slow.append(Case(start, end, [call.invoke.index], text, key))
        found = list(
            anomalies(
                scene, "slow-to-group", slow, "{n} messages came late to a calm group", limit=int(LIMIT_S * SECOND)
            )
        )
        stats: dict[str, Any] = {"messages": len(waits), "disturbed": disturbed}
        if waits:
            p50, p99, longest = (round(float(np.percentile(waits, p)) / 1e6, 1) for p in (50, 99, 100))
            stats |= {"p50_ms": p50, "p99_ms": p99, "max_ms": longest}
        reason = f"{many(len(waits), 'message')} came to a calm group"
        if waits:
            reason += (
                f" within {stats['p50_ms']:g} ms (p50), {stats['p99_ms']:g} ms (p99), {stats['max_ms']:g} ms at most"
            )
        why = "a fault, a change of members or queues, a reset, or a group that is behind, off or deleted"
        excuses = [Excuse("slow-to-group", late, why)] if late else []
        if paused:
            nearest = round(max(paused) / SECOND, 3)
            excuses.append(Excuse("slow-to-group", len(paused), _PAUSED, LIMIT_S, nearest))
        return conclude(self.name, run, found, stats, reason, excuses=excuses)


def _pauses(told: Takes, longest: int) -> Mapping[str, list[Span]]:
    """Queue -> the times (ns) from each failure of a message to its next attempt, each no longer than `longest`."""
    found: dict[str, list[Span]] = {}
    open_: dict[tuple[str, int], int] = {}
    for delivery in told.deliveries:
        place = delivery.key, delivery.offset
        failed = open_.pop(place, None)
        if failed is not None:
            found.setdefault(delivery.key, []).append(Span(failed, min(delivery.start, failed + longest)))
        if delivery.done is False and delivery.end is not None:
            open_[place] = delivery.end
    for (key, _), failed in open_.items():
        found.setdefault(key, []).append(Span(failed, min(told.until, failed + longest)))
    return {key: merged(spans) for key, spans in found.items()}


def _calm(scene: RunTimeline, changes: Sequence[int], start: int, end: int) -> bool:
    since = start - int(_CALM_S * SECOND)
    return bisect_right(changes, since) == bisect_right(changes, end) and not scene.in_force(since, end)
