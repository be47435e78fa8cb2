# SPDX-License-Identifier: Apache-2.0
"""Judges that a message that failed is tried again as often and as late as promised, and is a dead letter then, once.

Source: "Message retry" and "Dead letter queue" (docs/en/Features.md of apache/rocketmq): a message that cannot be
consumed is tried again with growing delays; after the last attempt it goes to the dead-letter queue of the group.
`maxReconsumeTimes` of the consumer is the number of further attempts, and each delivery carries its number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.consumer_times import delay_s
from checkers.messages.consuming.calm import change_times, mode_times
from checkers.messages.consuming.changes import GroupChanges
from checkers.messages.consuming.resets import MemberResets
from checkers.messages.consuming.takes import Delivery, Takes, dead_letters, properties_of, takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.op import OK
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_EARLY_S: Final = 1.0
"""So much before the end of its delay a message may come again: the broker stamps it by a clock of its own, and rounds.
"""

_SLACK_S: Final = 8.0

LATE_S: Final = 10.0
"""So long after the end of its delay a message comes again to a calm group: brokers look for such ones every second or
less, and a long poll is woken.
"""

_BEHIND_S: Final = 2.0
"""A group is behind while a message waits for so long for its first delivery."""

_RESET_S: Final = 15.0
"""The longest time for which a member stops for a reset of its offsets (10 s), with a reserve."""

_REQUEST_S: Final = 5.0
"""The longest time from a failure until the request for the delay of what was popped had its effect."""

_KEPT_S: Final = 5.0
"""The delay of a message that no broker took back: the member keeps it, and tries it again itself
(`ConsumeMessageConcurrentlyService.submitConsumeRequestLater` of the client).
"""

_POLL_S: Final = 20.0
"""The longest time for which a proxy waits for messages on behalf of a member that has gone. It pops what comes, cannot
hand it over, and so the broker counts an attempt that nobody sees (`grpcClientConsumerMaxLongPollingTimeoutMillis`;
`ReceiveMessageResponseStreamWriter.writeAndComplete`: `CANCELLED: call already cancelled`, 5.1.1 to 5.5.0).
"""

_DISTURBED: Final = "a fault, a change of members, queues or masters, of the group or its offsets, or a group behind"

_UNNAMED: Final = "unnamed"
"""The name of a case whose attempt kept the delay that a broker chooses, and not the one that its consumer named
(`DefaultMQPushConsumerImpl.sendMessageBack`: the message that it sends itself, if the broker takes nothing back)."""


class Retried:
    """`retried-early`, `retried-late`, `attempt-skipped`, `retried-too-often`, `not-dead-lettered`,
    `dead-lettered-early`, `dead-lettered-twice`.

    again   the number of further attempts. delays: True if each has the broker's delay (not for orderly consumers).
    holds   False: the broker counts pops, also those whose answers were lost.
    late_s  so long after the end of its delay a message comes again to a calm group.
    """

    name = "retried"

    def __init__(self, again: int, *, delays: bool = True, holds: bool = True, late_s: float = LATE_S) -> None:
        self.again, self.delays, self.holds, self.late = again, delays, holds, int(late_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `failed` messages, `attempts` after the first, `dead_letters`."""
        told, scene = takes(run.history), RunTimeline(run)
        dead = dead_letters(run.history)
        levels = {id: int(of["level"]) for id, of in properties_of(run.history).items() if "level" in of}
        fails = {id: int(of.get("fails", 0)) for id, of in properties_of(run.history).items()}
        by_id: dict[Any, list[Delivery]] = {}
        for delivery in told.deliveries:
            by_id.setdefault(delivery.id, []).append(delivery)
        failed = {id: of for id, of in by_id.items() if any(each.done is False for each in of)}
        attempts, skipped = list(self._early(failed, levels)), list(self._skipped(failed, told))
        early = [case for case, soon in attempts if soon]
        kept = len(attempts) - len(early)
        unnamed = [case for case in early if case.name == _UNNAMED and scene.in_force(case.start, case.end)]
        early = [case for case in early if case not in unnamed]
        unrequested = [] if self.holds else [case for case in early if _may_lack_its_delay(told, scene, case)]
        early = [case for case in early if case not in unrequested]
        disturbed = _Disturbed(run, told, scene)
        behind_time = list(self._late(failed, levels))
        late = [case for case in behind_time if not disturbed(case)]
        lost_pops = [] if self.holds else [case for case in skipped if _may_have_lost_a_pop(told, scene, case)]
        skipped = [case for case in skipped if case not in lost_pops]
        beyond = [
            Case(d.start, d.start, [d.op], f"message {d.id} to {d.life} as attempt {d.attempt}", d.key, about=d)
            for of in by_id.values()
            for d in of
            if d.attempt > self.again
        ]
        changes = GroupChanges(run.history)
        untaken = [case for case in beyond if _untaken(by_id[case.about.id], case.about, scene, changes)]
        often = [case for case in beyond if case not in untaken]
        missing, hasty, twice, open_ = self._dead(told, by_id, dead or {}, fails)
        if dead is None:
            missing = []
        found = [
            *anomalies(scene, "retried-early", early, "{n} messages came again before their delay was over"),
            *anomalies(scene, "retried-late", late, "{n} messages came again to a calm group long after their delay",
                       limit=self.late),
            *anomalies(scene, "attempt-skipped", skipped, "{n} deliveries carry a wrong number of attempts"),
            *anomalies(scene, "retried-too-often", often, f"{{n}} deliveries after the last of {self.again} attempts"),
            *anomalies(scene, "not-dead-lettered", missing, "{n} messages failed for the last time, and are no "
                       "dead letters"),
            *anomalies(scene, "dead-lettered-early", hasty, "{n} dead letters had attempts left"),
            *anomalies(scene, "dead-lettered-twice", twice, "{n} messages are dead letters more than once"),
        ]  # fmt: skip
        letters = sum(map(len, (dead or {}).values()))
        stats = {
            "failed": len(failed),
            "attempts": sum(each.attempt > 0 for of in by_id.values() for each in of),
            "dead_letters": letters,
        }
        excuses = [Excuse("not-dead-lettered", open_, "the run ended before it was due")] if open_ else []
        if lost_pops:
            excuses.append(
                Excuse(
                    "attempt-skipped",
                    len(lost_pops),
                    f"a fault, or the end of a member, since the attempt before it, or {_POLL_S:.0f} s earlier",
                )
            )
        if kept:
            excuses.append(
                Excuse("retried-early", kept, f"kept by its process, which tries again after {_KEPT_S:.0f} s")
            )
        if unrequested:
            why = "a fault, or the end of its process, so that the delay of what was popped may not have been requested"
            excuses.append(Excuse("retried-early", len(unrequested), why))
        if len(behind_time) > len(late):
            excuses.append(Excuse("retried-late", len(behind_time) - len(late), _DISTURBED))
        if unnamed:
            why = "its send-back may have failed in a fault: the library then sends it again itself, without the level"
            excuses.append(Excuse("retried-early", len(unnamed), why))
        if untaken:
            why = "its process kept it: in a fault, or while the group was deleted, no broker took the dead letter"
            excuses.append(Excuse("retried-too-often", len(untaken), why))
        unknown = None
        if not failed:
            unknown = "no delivery failed"
        elif dead is None:
            unknown = "the dead letters were not read"
        reason = f"{many(len(failed), 'message')} failed, {letters:,} dead letters"
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)

    def _early(self, failed: dict[Any, list[Delivery]], levels: Mapping[Any, int]) -> Iterator[tuple[Case, bool]]:
        """Yields attempts before their delay was over; `about`: the failure before. False: it is one of a process that
        kept the message.
        """
        if not self.delays:
            return
        for deliveries in failed.values():
            ends: dict[int, Delivery] = {}
            for d in deliveries:
                before = ends.get(d.attempt - 1)
                delay = delay_s(d.attempt - 1, levels.get(d.id, 0)) if d.attempt else 0
                if before is not None and d.start < _soonest(before, delay):
                    at = before.end or 0
                    text = f"message {d.id} failed at {clock(at)} and came again at {clock(d.start)}, as attempt "
                    usual = d.id in levels and d.start >= _soonest(before, delay_s(d.attempt - 1))
                    text += f"{d.attempt}, whose delay is {delay} s"
                    case = Case(at, d.start, [d.op], text, d.key, name=_UNNAMED if usual else "", about=before)
                    yield case, not (self.holds and any(_kept(each, d) for each in deliveries))
                if d.done is False and d.end is not None:
                    ends.setdefault(d.attempt, d)

    def _late(self, failed: dict[Any, list[Delivery]], levels: Mapping[Any, int]) -> Iterator[Case]:
        """Yields attempts that came long after their delay was over; `about`: the failure before."""
        for deliveries in failed.values() if self.delays else ():
            last: dict[int, Delivery] = {}
            for d in deliveries:
                before = last.pop(d.attempt - 1, None)
                if before is not None and before.end is not None:
                    delay = delay_s(before.attempt, levels.get(d.id, 0))
                    due = before.end + int(delay * SECOND)
                    if d.start > due + self.late:
                        text = f"message {d.id} failed at {clock(before.end)} and came again at {clock(d.start)}, as "
                        text += f"attempt {d.attempt}, whose delay is {delay} s"
                        yield Case(due, d.start, [d.op], text, d.key, about=before)
                if d.done is False:
                    last[d.attempt] = d

    @staticmethod
    def _skipped(failed: dict[Any, list[Delivery]], told: Takes) -> Iterator[Case]:
        """Yields deliveries whose number is neither that of an earlier one, nor the next one. A message that a member
        received and left alone was delivered, too.
        """
        left: dict[Any, list[Delivery]] = {}
        for each in told.left:
            left.setdefault(each.id, []).append(each)
        for identity, deliveries in failed.items():
            highest, since = 0, deliveries[0].start
            for d in sorted([*deliveries, *left.get(identity, ())], key=lambda d: d.start):
                if d.attempt > highest + 1 or (d.again and d.attempt == 0):
                    text = f"message {d.id} came to {d.life} as attempt {d.attempt}, after attempt {highest}"
                    yield Case(since, d.start, [d.op], text, d.key)
                if d.attempt >= highest:
                    highest, since = d.attempt, d.start

    def _dead(
        self, told: Takes, by_id: dict[Any, list[Delivery]], dead: Any, fails: dict[Any, int]
    ) -> tuple[list[Case], list[Case], list[Case], int]:
        """(failed for the last time and no dead letter, a dead letter too early, more than once; not due yet)."""
        missing: list[Case] = []
        open_ = 0
        for identity, deliveries in by_id.items():
            last = [d for d in deliveries if d.attempt >= self.again and d.done is False and d.end is not None]
            if not last or identity in dead or any(d.done for d in deliveries):
                continue
            end = last[-1].end or 0
            if end + int(_SLACK_S * SECOND) > told.until:
                open_ += 1
                continue
            text = f"message {identity} failed for the last time at {clock(end)} (attempt {last[-1].attempt})"
            missing.append(Case(end, told.until, [last[-1].op], text, last[-1].key))
        hasty = [
            Case(0, told.until, ops, f"message {identity}, of which {fails.get(identity, 0)} attempts fail")
            for identity, ops in dead.items()
            # A listener that gets several messages fails all behind the first one that fails.
            if fails.get(identity, 0) <= self.again
            and not any(d.attempt >= self.again and d.done is False for d in by_id.get(identity, ()))
        ]
        twice = []
        for identity, ops in dead.items():
            # The last attempt may be repeated as any other delivery: at-least-once.
            lasts = sum(d.attempt >= self.again and d.done is not True for d in by_id.get(identity, ()))
            if len(ops) > max(1, lasts):
                twice.append(
                    Case(0, told.until, ops, f"message {identity} {len(ops)} times, after {lasts} last attempts")
                )
        return missing, hasty, twice, open_


class _Disturbed:
    """Looks up what may put off a message that comes again."""

    def __init__(self, run: RunRecord, told: Takes, scene: RunTimeline) -> None:
        self._scene, self._changes, self._group = scene, change_times(told, scene), GroupChanges(run.history)
        self._modes = list(mode_times(run.history))
        self._resets = [call.start for call in MemberResets(run.history).calls]
        first: dict[Any, int] = {}
        for delivery in told.deliveries:
            first.setdefault(delivery.id, delivery.start)
        self._waits = [
            (call.end, first[call.invoke.value])
            for call in run.history.clients.calls
            if call.invoke.f == "send"
            and call.outcome == OK
            and call.end is not None
            and first.get(call.invoke.value, 0) - call.end > int(_BEHIND_S * SECOND)
        ]

    def __call__(self, case: Case) -> bool:
        """True for an attempt (`_late`) of a group that was not calm since the failure, or was behind."""
        start, end = case.about.end or 0, case.end
        reset = start - int(_RESET_S * SECOND)
        return bool(
            bisect_right(self._changes, start) != bisect_right(self._changes, end)
            or self._scene.in_force(start, end)
            or self._group.closed(start, end)
            or any(since <= end and until >= start for since, until in self._modes)
            or any(reset <= at <= end for at in self._resets)
            or any(acked <= end and came >= case.start for acked, came in self._waits)
        )


def _may_lack_its_delay(told: Takes, scene: RunTimeline, case: Case) -> bool:
    """True if the request for the delay of a message that was popped and failed may have had no effect: then it comes
    again at the end of its invisible duration.
    """
    until = case.start + int(_REQUEST_S * SECOND)
    ended = case.start <= told.ends.get(case.about.life, until + 1) <= until
    return ended or bool(scene.in_force(case.start, until))


def _soonest(before: Delivery, delay_s: float) -> int:
    """The earliest time of the next attempt, in ns."""
    return (before.end or 0) + int((delay_s - _EARLY_S) * SECOND)


def _kept(before: Delivery, d: Delivery) -> bool:
    """True if a process has failed the message before, and tries it again itself: it came from no broker."""
    same = (before.life, before.key, before.offset) == (d.life, d.key, d.offset)
    return same and before.done is False and before.attempt == d.attempt - 1 and d.start >= _soonest(before, _KEPT_S)


def _untaken(deliveries: list[Delivery], d: Delivery, scene: RunTimeline, changes: GroupChanges) -> bool:
    """True if a process had failed the message before, and no broker may have taken it as a dead letter: the process
    counts this as an attempt, and tries again (`ConsumeMessageConcurrentlyService.processConsumeResult`).
    """
    for before in deliveries:
        same = (before.life, before.key, before.offset) == (d.life, d.key, d.offset)
        if same and before.done is False and before.attempt == d.attempt - 1 and before.end is not None:
            gone = any(each.start <= d.start and each.end >= before.end for each in changes.deletions)
            return gone or bool(scene.in_force(before.end, d.start))
    return False


def _may_have_lost_a_pop(told: Takes, scene: RunTimeline, case: Case) -> bool:
    """True if a message may have been popped and not reached a listener between the attempt before and this one: in a
    fault, by a member that ended, or by the open poll of one that had ended.
    """
    ended = any(case.start - int(_POLL_S * SECOND) <= end <= case.end for end in told.ends.values())
    return ended or bool(scene.in_force(case.start, case.end))
