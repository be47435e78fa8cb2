# SPDX-License-Identifier: Apache-2.0
"""The judge of a consumer group that lives while its topics are deleted and made again.

RocketMQ promises at-least-once delivery to each group that subscribes ("At least Once", docs/en/Features.md of
apache/rocketmq), and brokers remove the offsets of a topic with it (`ConsumerOffsetManager.cleanOffsetByTopic`, since
5.1.1 at the latest). So a topic that is made again begins at its first message, and members that live must get each
one. A member needs some time to learn of the new life, as after other changes: `QUIET_S`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consumer_times import QUIET_S
from checkers.messages.consuming.stored import Stored, stored
from checkers.messages.consuming.takes import Delivery, Takes, takes
from checkers.messages.lives.split import NEVER, Life, Lives, split
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.history import History
from results.op import OK
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_CACHED_S: Final = 30.0
"""The longest time after a deletion for which members deliver what they had pulled before: at most 1,000 messages of a
queue (`pullThresholdForQueue`)."""

_LOOK_S: Final = 1.0
"""A process reports within this time that it lost a queue; it looks 20 times a second."""


class MembersOfLives:
    """`missed-after-recreation`, `undelivered`, `deleted-message-returns`.

    quiet_s  members that live get a message within this time, or a group that got nothing for so long gets no more.
    """

    name = "members"

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self.quiet = int(quiet_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `messages` that the group was owed, `again`: those of lives after the first one, `deliveries`,
        `members`: processes, `short`: messages of lives that ended too soon, `quiet_s`, `problems`: reports of members.
        """
        told, lives, scene = takes(run.history), split(run.history), RunTimeline(run)
        there = stored(replace(run, history=lives.living))
        judged = _Judged(run, told, lives, there, scene, self.quiet)
        busy = bool(judged.waiting) and judged.silent < self.quiet
        missed = judged.missed if busy else [*judged.missed, *judged.waiting]
        found = [
            *anomalies(scene, "missed-after-recreation", [case for case in missed if case.about], "{n} messages of "
                       "topics that had been made again never came to the group", limit=self.quiet),
            *anomalies(scene, "undelivered", [case for case in missed if not case.about], "{n} messages were not "
                       f"delivered although the group had members for {self.quiet / SECOND:g} s", limit=self.quiet),
            *anomalies(scene, "deleted-message-returns", judged.returned, "{n} messages of deleted topics came to the "
                       "group in a later life"),
        ]  # fmt: skip
        stats: dict[str, Any] = {
            "messages": judged.owed.total(),
            "again": judged.owed[True],
            "deliveries": len(told.deliveries),
            "members": len(told.started),
            "short": judged.short,
            "quiet_s": round(told.quiet / SECOND, 1),
            "problems": len(told.problems),
        }
        excuses = []
        why = "a fault or a change of master between the acknowledgement and the deletion of the topic"
        if judged.disturbed[True]:
            excuses.append(Excuse("missed-after-recreation", judged.disturbed[True], why))
        if judged.disturbed[False]:
            excuses.append(Excuse("undelivered", judged.disturbed[False], why))
        if judged.cached:
            why = "the same process ran, and had the queue, at the deletion and from then on"
            nearest = max(judged.cached) / SECOND
            excuses.append(Excuse("deleted-message-returns", len(judged.cached), why, _CACHED_S, round(nearest, 3)))
        reason = f"{many(stats['messages'], 'message')} for the group, {stats['again']:,} of topics made again"
        if told.problems:
            _, life, text = told.problems[0]
            reason += f"; {many(len(told.problems), 'problem')} of members, the first of {life}: {text[:160]}"
        unknown = None
        if busy:
            unknown = f"{many(len(judged.waiting), 'message')} not delivered, and the group got one, or was owed one, "
            unknown += f"{judged.silent / SECOND:.1f} s before its end; {self.quiet / SECOND:g} s are needed"
        elif there.unread:
            unknown = f"not every queue was read to its end: {', '.join(there.unread[:4])}"
        elif not judged.owed[True]:
            unknown = "the group was owed no message of a topic that had been made again"
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)


@dataclass(frozen=True)
class _Sent:
    """An acknowledged message.

    key   its queue. offset: its place there. life: None for a topic that nobody changed.
    kept  its queue with the life in the name. at, op, node: of the acknowledgement (the time in ns).
    """

    key: str
    offset: int
    life: Life | None
    kept: str
    at: int
    op: int
    node: str


class _Judged:
    """The cases.

    owed      True if a message is of a life after the first one -> the number of those that the group was owed.
    missed    messages of lives that ended, which the group had time for. waiting: of those that last to the end.
    silent    the time (ns) from the last delivery, or from the last message that waits, to the end.
    returned  deliveries of messages of an earlier life. cached: the times (ns) after the deletion of those that the
              process may have pulled before.
    short     messages of lives that ended before a member had to get them. disturbed: the number of others that a fault
              may have kept from it, as `owed`.
    """

    def __init__(
        self, run: RunRecord, told: Takes, lives: Lives, there: Stored, scene: RunTimeline, quiet: int
    ) -> None:
        self.told, self.scene, self.quiet = told, scene, quiet
        self.owed: Counter[bool] = Counter()
        self.missed: list[Case] = []
        self.waiting: list[Case] = []
        self.returned: list[Case] = []
        self.cached: list[int] = []
        self.disturbed: Counter[bool] = Counter()
        self.short = 0
        self.times = {op.index: op.time for op in run.history}
        self.began = min((at for at, _ in told.started.values()), default=told.until)
        sent, subscribed = _sent(lives), _subscribed(run.history)
        got = {delivery.id for delivery in told.deliveries}
        kept = {key: set(of.values()) for key, of in there.queues.items()}
        for identity, each in sent.items():
            again = each.life is not None and each.life.number > 1
            if identity in got:
                self.owed[again] += 1
            elif each.key.rsplit(":", 2)[0] not in subscribed:
                continue
            elif each.life is not None and not each.life.living:
                self._ended(identity, each, again)
            elif identity in kept.get(each.kept, ()):  # others judge messages that are lost
                self.owed[again] += 1
                self.waiting.append(_missed(identity, each, told.until, again))
        self.silent = min([told.quiet, *(case.took for case in self.waiting)])
        for delivery in told.deliveries:
            old = sent.get(delivery.id)
            if old is not None and old.life is not None and old.life.ended != NEVER:
                self._old(delivery, old.life, lives)

    def _ended(self, identity: Any, each: _Sent, again: bool) -> None:
        """Judges a message of a life that ended, and that the group did not get."""
        assert each.life is not None
        end = self.times.get(each.life.ends, self.told.until)
        if end - max(each.at, self.began) < self.quiet:
            self.short += 1
        elif self.scene.in_force(each.at, end) or self.scene.changed_master(group_of(each.key), each.at, end):
            self.disturbed[again] += 1
        else:
            self.owed[again] += 1
            self.missed.append(_missed(identity, each, end, again))

    def _old(self, delivery: Delivery, life: Life, lives: Lives) -> None:
        """Judges a delivery of a message whose topic was deleted."""
        later = [other for other in lives.of[life.topic] if other.number > life.number and other.made != NEVER]
        start = delivery.start
        if not any(self.times[other.made] <= start for other in later):
            return
        ended = self.times[life.ended]
        if start - ended <= int(_CACHED_S * SECOND) and self._pulled(delivery, ended):
            self.cached.append(start - ended)
            return
        text = f"message {delivery.id} of {life.topic}, which was deleted at {clock(ended)}, came at {clock(start)} to "
        text += str(delivery.life)
        self.returned.append(Case(ended, start, [life.ended, delivery.op], text, life.topic))

    def _pulled(self, delivery: Delivery, at: int) -> bool:
        """True if the process may have pulled a message before a time (ns): it ran then, and has kept the queue since,
        if it reports its queues. A client that loses a queue drops what it has pulled from it. A retry is one if the
        group had got the message before that time.
        """
        life = delivery.life
        if delivery.again:
            return any(other.id == delivery.id and other.start < at for other in self.told.deliveries)
        if life not in self.told.started or self.told.started[life][0] >= at:
            return False
        hold = self.told.hold(life, delivery.key, at)
        if hold is None:
            return not self.told.queues.get(life)
        return hold.until >= delivery.start - int(_LOOK_S * SECOND)


def _missed(identity: Any, each: _Sent, end: int, again: bool) -> Case:
    """A message that the group did not get until a time (ns). again: its topic had been made again."""
    text = f"message {identity}, acknowledged by {each.node} at {clock(each.at)}, is at offset {each.offset}"
    text += f" of {each.key}"
    return Case(each.at, end, [each.op], text, each.key, about=again)


def _sent(lives: Lives) -> Mapping[Any, _Sent]:
    """Id -> the message, if it was acknowledged within one life, or in a topic that nobody changed. Without those that
    were sent at the end (`probe`), after the members had left.
    """
    of = {f"{life.topic}@{life.number}": life for some in lives.of.values() for life in some}
    found: dict[Any, _Sent] = {}
    for call in lives.all.clients.calls:
        done, kept = call.completion, call.invoke.key
        if call.invoke.f != "send" or done is None or done.type != OK or kept is None or call.invoke.extra.get("probe"):
            continue
        topic, group, number = kept.rsplit(":", 2)
        life = of.get(topic)
        key = kept if life is None else f"{life.topic}:{group}:{number}"
        node = str(done.extra.get("node"))
        found[call.invoke.value] = _Sent(key, done.value[0], life, kept, done.time, done.index, node)
    return found


def _subscribed(history: History) -> set[str]:
    """The topics to which the members of the group subscribed, as their starts report."""
    return {
        str(topic)
        for call in history.clients.calls
        if call.invoke.f == "join" and call.completion is not None
        for topic in call.completion.extra.get("topics", ())
    }
