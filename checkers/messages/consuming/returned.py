# SPDX-License-Identifier: Apache-2.0
"""Judges that what no member works on any more comes to another one in time.

A push consumer of the gRPC client sends no invisible duration. Its proxy hides what it popped for that consumer for
`defaultInvisibleTimeMills`, and renews this while the consumer has the message (`DefaultReceiptHandleManager`). "When
the consumption of a message times out, the message is delivered again" (Consumption Retry, docs of RocketMQ 5.0). So
what a process had that was killed, or what was popped for it and never reached it, comes to another member when the
duration is over.

No member shows a message that waits in its cache. So only a time counts in which the whole group had nothing to do: a
member with a message in its cache hands it to its listener at once. `Delivered` judges messages that never come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.consuming.calm import Span, calm_times, merged
from checkers.messages.consuming.stalled import Causes
from checkers.messages.consuming.takes import Delivery, Takes, takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_BUSY: Final = "the group got or worked on other messages, so that this one may have been in the cache of a member"


class Returned:
    """`returned-late`, of groups that pop in any order.

    within_s  the longest time for which a message that no member has may stay away from a group without work: the
              invisible duration, the time of an open poll of a process that is gone, and the time of its return.
    """

    name = "returned"

    def __init__(self, within_s: float) -> None:
        self.limit = int(within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `waits`: messages that waited for longer than the limit; `longest_s`: the longest part of such a
        wait in which nothing disturbed the group and it had no work.
        """
        taken, scene = takes(run.history, popped=True), RunTimeline(run)
        causes = Causes(run, taken, scene)
        found: list[Case] = []
        excused: Counter[str] = Counter()
        nearest: dict[str, int] = {}
        longest = waits = 0
        worked = [Span(d.start, max(d.start, _worked(d, taken))) for d in taken.deliveries]
        calm: dict[str, tuple[dict[str, list[Span]], list[Span]]] = {}
        for wait in _waits(run, taken):
            if wait.until - wait.since <= self.limit:
                continue
            waits += 1
            if wait.after.key not in calm:
                disturbances = {**causes.of(wait.after.key), _BUSY: worked}
                spans = merged(span for each in disturbances.values() for span in each)
                calm[wait.after.key] = disturbances, list(calm_times(spans, taken.until))
            disturbances, quiet = calm[wait.after.key]
            parts = [Span(max(wait.since, c.start), min(wait.until, c.end)) for c in quiet]
            part = max(parts, key=lambda span: span.end - span.start, default=Span(0, 0))
            took = max(0, part.end - part.start)
            longest = max(longest, took)
            if took > self.limit:
                found.append(_case(wait, part))
                continue
            for why, times in disturbances.items():
                if any(span.start < wait.until and span.end > wait.since for span in times):
                    excused[why] += 1
                    nearest[why] = max(took, nearest.get(why, 0))
        late = anomalies(scene, "returned-late", found, "{n} messages that no member had came late to a group that had "
                         "nothing to do", limit=self.limit)  # fmt: skip
        bound = self.limit / SECOND
        excuses = [Excuse("returned-late", n, why, bound, nearest[why] / SECOND) for why, n in excused.items()]
        stats = {"waits": waits, "longest_s": round(longest / SECOND, 1)}
        unknown = None if taken.deliveries else "no message was delivered to any member"
        reason = (
            f"{many(waits, 'message')} waited for more than {bound:g} s, and {stats['longest_s']:g} s at most of a "
        )
        reason += "group that had nothing to do"
        return conclude(self.name, run, list(late), stats, reason, unknown, excuses=excuses)


class _Wait(NamedTuple):
    """A time (ns) in which no process had a message. before: the delivery to a process that ended with it; None: none.
    after: the delivery at its end. op: the index of the op that shows its begin.
    """

    since: int
    until: int
    op: int
    before: Delivery | None
    after: Delivery


def _waits(run: RunRecord, taken: Takes) -> Iterator[_Wait]:
    """Yields the time from the acknowledgement of each message to its first delivery, and those from the end of a
    process that had not finished it to its next one. Not the last one of a message that never came (again).
    """
    by_id: dict[Any, list[Delivery]] = {}
    for delivery in taken.deliveries:
        by_id.setdefault(delivery.id, []).append(delivery)
    for call in run.history.clients.calls:
        done = call.completion
        if call.invoke.f == "send" and done is not None and done.type == "ok" and call.invoke.value in by_id:
            yield _Wait(done.time, by_id[call.invoke.value][0].start, done.index, None, by_id[call.invoke.value][0])
    for deliveries in by_id.values():
        for before, after in pairwise(deliveries):
            ended = taken.ends.get(before.life)
            if before.done is None and not before.unsure and ended is not None:
                yield _Wait(ended, after.start, before.op, before, after)


def _worked(delivery: Delivery, taken: Takes) -> int:
    """The time (ns) until which a process may have worked on a message."""
    ends = [delivery.worked, taken.ends.get(delivery.life)]
    return min((end for end in ends if end is not None), default=taken.until)


def _case(wait: _Wait, part: Span) -> Case:
    had = f"acknowledged at {clock(wait.since)}"
    if wait.before is not None:
        had = f"which {wait.before.life} had at its end, at {clock(wait.since)}"
    text = (
        f"message {wait.after.id}, {had}, came to {wait.after.life} at {clock(wait.until)}; from {clock(part.start)} "
    )
    text += f"to {clock(part.end)} the group had nothing to do"
    return Case(part.start, wait.until, [wait.op, wait.after.op], text, wait.after.key)
