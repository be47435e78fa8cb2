# SPDX-License-Identifier: Apache-2.0
"""Messages that come to a group again after one of its processes had finished them, and the reasons in the run.

Clients that hold queues commit their offsets every 5 s, for the first time after 10 s, and when they lose a queue
(`MQClientInstance.startScheduledTask`, `RebalanceImpl.removeUnnecessaryMessageQueue`): only what was finished since may
come again. Members that commit by hand report each commit, which counts in place of that. Clients that pop acknowledge
each message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from checkers.base.cases import Case
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consuming.calm import changes_of, mode_times, presences
from checkers.messages.consuming.changes import GroupChanges
from checkers.messages.consuming.resets import BACK, MemberResets
from checkers.messages.consuming.takes import Delivery, Takes
from checkers.messages.reports import Life
from results.figures import SECOND, clock
from results.record import RunRecord

_ACK_S: Final = 5.0
"""The longest time between a success and the client's acknowledgement of it."""

_COMMIT_S: Final = 16.0
"""The longest time between a success and the client's commit of it: 10 s to the first commit of a process, or 5 s to
that of a poll and 5 s more, and a second."""

_HAND_S: Final = 2.0
"""The longest time from a commit by hand until the broker has it: the library sends it one-way, and at once."""

_ROUTES_S: Final = 35.0
"""So long after a change of master a client may commit to the former one: it asks for routes every 30 s."""

_REBALANCED_S: Final = 60.0
"""The longest time from a change of the members until all of them have the queues that follow from it: a heartbeat
(30 s), and a look at the queues (20 s), with a reserve."""

_SEEN_S: Final = 1.0
"""Members look at their queues every 50 ms, and report them beside their work: a delivery may come so long before the
report of its queue, and after that of its loss."""

_TOGETHER_S: Final = 1.0
"""Messages that were popped together have the same end of their invisible duration; it is reported with the work on
each, and the reports take so long at most."""

_EARLY_S: Final = 1.0
"""So much before its end a duration may be over: brokers count from the pop, and round."""

_NEVER: Final = 1 << 62
"""A time (ns) after every run."""

_POPPED_TOGETHER: Final = "popped in order with an earlier message of its queue that was not acknowledged in time"
_ENDED: Final = "its member was ended, and had not committed yet"
_LOST: Final = "its member had lost the queue, and got it again"
_MOVED: Final = "its queue went to another member, which began at the committed offset"


class Redeliveries:
    """All deliveries after a success.

    again      the reason why a message may come again -> how often it did.
    to_holder  the cases without a reason, to a process of the group that lives, and has kept the queue, if it holds it.
    late       the other ones: the process had ended, or lost the queue, long after its success; or the queue had not
               moved to the one that got the message.
    """

    def __init__(
        self,
        run: RunRecord,
        told: Takes,
        scene: RunTimeline,
        resets: MemberResets,
        changes: GroupChanges,
        *,
        holds: bool,
        in_order: bool,
        commits: bool,
    ) -> None:
        """holds, in_order, commits: see `Delivered`."""
        self._told, self._scene, self._resets, self._changes = told, scene, resets, changes
        self._holds, self._commits, self._by_hand = holds, commits, bool(told.commits)
        self._modes = list(mode_times(run.history))
        self._members = [span for each in presences(run.history, told) for span in changes_of(each, told.until)]
        """The times in which a member came or went."""
        self._beside: dict[str, list[Delivery]] = {}
        """Queue -> what members popped from it in order."""
        for each in [*told.deliveries, *told.left] if in_order else []:
            self._beside.setdefault(each.key, []).append(each)
        self._first: dict[Any, int] = {}
        """Message -> the time of its first delivery."""
        held: dict[tuple[Life, str], list[Delivery]] = {}
        for each in told.deliveries:
            self._first.setdefault(each.id, each.start)
            held.setdefault((each.life, each.key), []).append(each)
        self._settled = {place: _Settled(of) for place, of in held.items()} if holds and commits else {}
        self.again: Counter[str] = Counter()
        self.to_holder: list[Case] = []
        self.late: list[Case] = []
        for before, after in self._repetitions():
            ended = before.end or 0
            text = (
                f"message {after.id} (offset {after.offset} of {after.key}) to {after.life} at {clock(after.start)}, "
            )
            by = "there" if after.life == before.life else f"by {before.life}"
            case = Case(ended, after.start, [before.op, after.op], f"{text}finished {by} at {clock(ended)}", after.key)
            gone = after.life != before.life if holds else told.ends.get(before.life, told.until) <= after.start
            (self.late if gone else self.to_holder).append(case)

    def _repetitions(self) -> Iterator[tuple[Delivery, Delivery]]:
        """Yields the last success and the delivery after it, where no reason exists; counts the others."""
        finished: dict[Any, Delivery] = {}
        used: Counter[Any] = Counter()
        for delivery in self._told.deliveries:
            # A message that was popped comes again from a retry topic, at another place.
            place = (delivery.key, delivery.offset) if self._holds else delivery.id
            before = finished.get(place)
            if before is not None and (before.end or 0) < delivery.start and before.id == delivery.id:
                why = self._committed_before(before, delivery) if self._holds else self._popped(before, delivery)
                resets = self._resets.repeats(delivery)
                if why is None and used[delivery.id] < resets:  # each reset brings a message back once
                    used[delivery.id] += 1
                    why = BACK
                elif why is not None and resets:
                    why = BACK
                if why is None:
                    yield before, delivery
                else:
                    self.again[why] += 1
            if delivery.done:
                finished[place] = delivery

    def _popped(self, before: Delivery, after: Delivery) -> str | None:
        """The reason why a popped message may come again, looked up in the run; None: no reason exists."""
        # A simple consumer reports its success after the broker's answer.
        confirmed = before.acking is not None
        ended = None if confirmed else self._told.ends.get(before.life)
        if ended is not None and ended <= min(after.start, (before.end or 0) + int(_ACK_S * SECOND)):
            return "its member was ended, and its acknowledgement may be missing"
        if before.refused is not None and before.refused[0] <= after.start:
            return f"the broker had refused its acknowledgement (code {before.refused[1]})"
        # A change of master may leave several copies of a message that is not acknowledged, and each comes again.
        start = self._first[after.id] - int(_ACK_S * SECOND)
        if self._scene.at_group(group_of(after.key), start, after.start) or (
            not confirmed and self._scene.between(group_of(after.key), start, after.start)
        ):
            return "a fault since its first delivery"
        if any(since <= after.start <= until for since, until in self._modes):
            return "an administrator had changed the mode of the group (pull or pop)"
        if self._mastered(after.key, start, after.start):
            return "a change of master since its first delivery"
        return _POPPED_TOGETHER if self._waited(before, after) else None

    def _committed_before(self, before: Delivery, after: Delivery) -> str | None:
        """The reason why the group's offset may not have been behind a message; None: no reason exists."""
        key, usual = after.key, _MOVED
        if not self._told.queues and not self._disturbed(before, after):
            return None
        if after.life == before.life:
            if not self._told.moved(after.life, key, before.start, after.start):
                return None
            usual = _LOST
        elif after.life.member == before.life.member:
            usual = _ENDED
        seen = int(_SEEN_S * SECOND)
        if self._reports(after.life, after.start - seen) and not self._told.has(after.life, key, after.start, seen):
            return None
        began = self._told.hold(after.life, key, after.start, seen)
        held = self._told.hold(before.life, key, before.end or 0, seen)
        if not self._commits or began is None or held is None:
            return usual
        others = [hold for hold in self._told.holds[key] if hold.life != before.life]
        left = min([held.until, began.since, *(hold.since for hold in others if hold.since > held.since)])
        # A former owner that goes later commits what it knows; the next commit of this one corrects it.
        settled = max(self._committed(before),
                      *(hold.until for hold in others if hold.since <= held.since), 0)  # fmt: skip
        if left < settled + int((_HAND_S if self._by_hand else _COMMIT_S) * SECOND):
            return usual
        start = settled - int(_ROUTES_S * SECOND)
        if self._scene.in_force(start, began.since) or self._mastered(key, start, began.since):
            return "a fault or a change of master, which may have kept the group from committing"
        if self._changes.closed(settled, began.since):
            return "the group was switched off or deleted, and brokers may have taken no commit"
        return None

    def _committed(self, before: Delivery) -> int:
        """The time (ns) from which a process could commit a message, or did it by hand."""
        if not self._by_hand:
            return self._settled[before.life, before.key].at(before.offset)
        at = self._told.committed(before.life, before.key, before.offset + 1)
        return _NEVER if at is None else at

    def _disturbed(self, before: Delivery, after: Delivery) -> bool:
        """True if something may have moved a queue between two deliveries of members that report no queues: a member
        came or went, a fault, a change of master, or the group may have been off.
        """
        start, end = before.start - int(_REBALANCED_S * SECOND), after.start
        return (
            any(span.start <= end and span.end >= start for span in self._members)
            or bool(self._scene.in_force(start, end))
            or self._mastered(after.key, start, end)
            or self._changes.closed(start, end)
        )

    def _reports(self, life: Life, at: int) -> bool:
        """True if a process reported its queues already at a time (ns): a library may deliver before its start ends,
        and programs of users need not report any.
        """
        started = self._told.started.get(life)
        return bool(self._told.queues) and started is not None and started[0] <= at

    def _mastered(self, key: str, start: int, end: int) -> bool:
        """True if the master of a queue's group may have changed between two times (ns)."""
        return self._scene.changed_master(group_of(key), start, end)

    def _waited(self, before: Delivery, after: Delivery) -> bool:
        """True if a process popped a message in order together with an earlier one of the queue, which was not
        acknowledged before the message came again, after the end of their invisible duration.
        """
        if before.over is None or after.start < before.over - int(_EARLY_S * SECOND):
            return False
        return any(
            each.life == before.life
            and each.offset < before.offset
            and each.over is not None
            and abs(each.over - before.over) <= int(_TOGETHER_S * SECOND)
            and not (each.done and (each.end or 0) <= after.start)
            for each in self._beside.get(before.key, ())
        )


class _Settled:
    """The work of one process on one queue: it commits the offset of the first message that is not finished."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        in_order = sorted(deliveries, key=lambda each: each.offset)
        self._offsets = [each.offset for each in in_order]
        ends = (_NEVER if each.end is None or each.done is None else each.end for each in in_order)
        self._ends = list(accumulate(ends, max))

    def at(self, offset: int) -> int:
        """The time (ns) from which all its messages up to an offset were finished."""
        return self._ends[bisect_right(self._offsets, offset) - 1]
