# SPDX-License-Identifier: Apache-2.0
"""Judges that a message comes to a calm group soon after its acknowledgement: a long poll must be woken.

A broker holds a pull or a pop until a message arrives (`PullRequestHoldService`, `PopLongPollingService`), so a
delivery takes milliseconds. It is judged where nothing else can delay it: no fault, the same master, and no change of
any member's queues, or of the members, from a while before the acknowledgement to the delivery.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.consuming.takes import Takes, takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

LIMIT_S: Final = 2.0
_CALM_S: Final = 5.0
"""So long before the acknowledgement, nothing may have changed."""


class Prompt:
    """`slow-to-group`."""

    name = "prompt"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `messages` judged; `p50_ms`, `p99_ms`, `max_ms` from the acknowledgement to the first delivery."""
        told, scene = takes(run.history), RunTimeline(run)
        first: dict[Any, int] = {}
        for delivery in told.deliveries:
            first.setdefault(delivery.id, delivery.start)
        changes = _changes(told, scene)
        slow: list[Case] = []
        waits: list[int] = []
        unjudged = 0
        for call in run.history.clients.calls:
            sent = call.completion
            if call.invoke.f != "send" or sent is None or sent.type != "ok" or call.invoke.value not in first:
                continue
            start, end = sent.time, first[call.invoke.value]
            if not _calm(scene, changes, start, end):
                unjudged += 1
                continue
            waits.append(max(0, end - start))
            if end - start > LIMIT_S * SECOND:
                text = f"message {call.invoke.value}, acknowledged at {clock(start)}, came at {clock(end)}"
                slow.append(Case(start, end, [sent.index], text, call.invoke.key))
        found = list(
            anomalies(
                scene, "slow-to-group", slow, "{n} messages came late to a calm group", limit=int(LIMIT_S * SECOND)
            )
        )
        stats: dict[str, Any] = {"messages": len(waits)}
        if waits:
            p50, p99, longest = (round(float(np.percentile(waits, p)) / 1e6, 1) for p in (50, 99, 100))
            stats |= {"p50_ms": p50, "p99_ms": p99, "max_ms": longest}
        reason = f"{many(len(waits), 'message')} came to a calm group"
        if waits:
            reason += (
                f" within {stats['p50_ms']:g} ms (p50), {stats['p99_ms']:g} ms (p99), {stats['max_ms']:g} ms at most"
            )
        excuses = [Excuse("slow-to-group", unjudged, "a fault, or a change of members or queues")] if unjudged else []
        return conclude(self.name, run, found, stats, reason, excuses=excuses)


def _changes(told: Takes, scene: RunTimeline) -> Sequence[int]:
    """The times (ns) of changes of queues, of members, and of masters, in order."""
    queues = [at for changes in told.queues.values() for at, _ in changes]
    masters = [period.since for period in scene.masters_of(None)]
    lives: dict[Any, int] = {}
    for delivery in told.deliveries:
        lives.setdefault(delivery.life, delivery.start)
    return sorted([*queues, *masters, *told.ends.values(), *lives.values()])


def _calm(scene: RunTimeline, changes: Sequence[int], start: int, end: int) -> bool:
    since = start - int(_CALM_S * SECOND)
    return bisect_right(changes, since) == bisect_right(changes, end) and not scene.in_force(since, end)
