# SPDX-License-Identifier: Apache-2.0
"""Judges that every message reaches the group, and that nothing else does.

RocketMQ promises at-least-once delivery to each group that subscribes ("At least Once", docs/en/Features.md of
apache/rocketmq): so a message may come again. But a consumer that goes on in one process, and keeps its queue, has the
message's offset behind it: only a change (a rebalance, the end of a member) may bring the message back. A message that
was failed comes again after the delay of its attempt ("Message retry", the same page).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude, permission
from checkers.base.timeline import RunTimeline
from checkers.messages.consumer_times import QUIET_S, delay_s
from checkers.messages.consuming.changes import CLEANED, GroupChanges
from checkers.messages.consuming.redelivered import Redeliveries
from checkers.messages.consuming.resets import PAST, MemberResets
from checkers.messages.consuming.stored import Stored, stored
from checkers.messages.consuming.takes import (
    UNSURE,
    Delivery,
    Takes,
    dead_letters,
    may_be_acknowledged,
    properties_of,
    subscribed,
    takes,
)
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_SLACK_S: Final = 8.0
"""The time after a delay within which a message must come again: the schedule's period, and a pull."""

_REVIVED_S: Final = 20.0
"""The same for what was popped: brokers wait for late acknowledgements."""

_SKIPPED: Final = "{n} messages were never delivered to the group, which committed an offset behind them"
_AT_LEAST_ONCE: Final = "at-least-once"


class Delivered:
    """`skipped-by-group`, `undelivered`, `retry-lost`, `filtered-delivered`, `altered-message`,
    `redelivered-to-holder`, `redelivered-late`.

    wanted  the tags that the group subscribes to; None: everything. holds: True if each queue belongs to one member;
            False: any member may get any message, and acknowledges it; then a committed offset proves nothing.
    commits members that hold queues commit their offsets as RocketMQ's Java clients do, every few seconds. False:
            nobody knows when they do. If they report no queues either, a message may come again after a change of the
            members, a fault or a change of master.
    quiet_s a group that has got nothing for so long, with members in it, has got all that it will get.
    hidden_s   if a process ended, not before so long after its end: a proxy may hide what it had.
    in_order   members pop in order: a broker gives out all that it popped together again from the first message on that
            was not acknowledged.
    """

    name = "delivered"

    def __init__(
        self,
        wanted: frozenset[str] | None = None,
        *,
        holds: bool = True,
        quiet_s: float = QUIET_S,
        hidden_s: float = 0,
        in_order: bool = False,
        commits: bool = True,
    ) -> None:
        self.wanted, self.holds = wanted, holds
        self.quiet, self.hidden = int(quiet_s * SECOND), int(hidden_s * SECOND)
        self.in_order, self.commits = in_order, commits

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `messages` that are stored and wanted, `deliveries`, `again`: deliveries after a success,
        `attempts`: those from a retry topic, `members`: processes of members, `quiet_s`, `problems`: their reports.
        """
        told, there, scene = takes(run.history, popped=not self.holds), stored(run), RunTimeline(run)
        permit = permission(run, "lost", "dirty-read")
        judged = _Judged(run, told, there, self.wanted, self.holds, self.quiet, self.hidden)
        repeated = Redeliveries(run, told, scene, judged.resets, judged.changes,
                                holds=self.holds, in_order=self.in_order, commits=self.commits)  # fmt: skip
        found = [
            *anomalies(scene, "skipped-by-group", judged.skipped, _SKIPPED),
            *anomalies(scene, "skipped-by-group", judged.reused, f"{_SKIPPED}; it had received another message "
                       "from that offset, which is gone", legal=None if permit is None else permit.why),
            *anomalies(scene, "undelivered", judged.waiting, "{n} messages were not delivered although the group had "
                       f"members and got nothing for {self.quiet / SECOND:g} s", limit=self.quiet),
            *anomalies(scene, "retry-lost", judged.unfinished, "{n} messages " + ("failed" if self.holds else
                       "were popped, failed,") + " and did not come again in time"),
            *anomalies(scene, "filtered-delivered", judged.unwanted, "{n} messages were delivered although the group's "
                       "filter does not match them"),
            *anomalies(scene, "altered-message", judged.altered, "{n} messages were delivered with another tag than "
                       "they were sent with"),
            *anomalies(scene, "redelivered-to-holder", repeated.to_holder, "{n} messages came again to a process that "
                       "had finished them and kept their queue"),
            *anomalies(scene, "redelivered-late", repeated.late, "{n} messages came again that another process had "
                       + ("finished, and committed or kept" if self.holds else "finished long before it ended")),
        ]  # fmt: skip
        count = sum(map(len, judged.owed.values()))
        again = sum(repeated.again.values())
        stats = {
            "messages": count,
            "deliveries": len(told.deliveries),
            "again": again,
            "attempts": sum(delivery.again for delivery in told.deliveries),
            "members": len({delivery.life for delivery in told.deliveries}),
            "quiet_s": round(judged.silent / SECOND, 1),
            "problems": len(told.problems),
        }
        excuses = [Excuse("redelivered", n, f"{_AT_LEAST_ONCE}: {why}") for why, n in repeated.again.items()]
        if there.partial:
            excuses.append(Excuse("undelivered", there.partial, "no one master shows them, and a replica lacks them"))
        if judged.open:
            excuses.append(Excuse("retry-lost", judged.open, "the run ended before their delay was over"))
        if judged.acknowledging:
            excuses.append(Excuse("retry-lost", judged.acknowledging, UNSURE))
        excuses += [Excuse(rule, n, PAST) for rule, n in judged.passed.items() if n]
        excuses += [Excuse(rule, n, CLEANED) for rule, n in judged.cleaned.items() if n]
        reason = f"{many(count, 'message')} for the group, {len(told.deliveries):,} deliveries"
        if told.problems:
            _, life, text = told.problems[0]
            reason += f"; {many(len(told.problems), 'problem')} of members, the first of {life}: {text[:160]}"
        unknown = self._unknown(judged, there, count)
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)

    def _unknown(self, judged: _Judged, there: Stored, count: int) -> str | None:
        if not judged.told.deliveries:
            return "no message was delivered to any member"
        if there.unread or not count:
            return f"not every queue was read to its end: {', '.join(there.unread[:4]) or 'no message is stored'}"
        if judged.unsure:
            got = f"it got the last one, or was switched on, {judged.silent / SECOND:.1f} s before its end, and "
            got += f"{self.quiet / SECOND:g} s are needed"
            if judged.silent >= self.quiet and judged.ended is not None:
                got = f"a member ended {judged.ended / SECOND:.1f} s before that of the group, and its proxy may hide "
                got += f"messages for {self.hidden / SECOND:g} s"
            return f"{many(len(judged.unsure), 'message')} not delivered to the group: {got}"
        return None


class _Judged:
    """The cases of each kind.

    owed   queue -> offset -> id of the messages that the group should have got. reused: messages at an offset from
           which the group got another one: that one was lost. open: failed messages whose next
           attempt was not due yet.
           acknowledging: messages that may have been acknowledged, so that nobody knows if they come again.
    passed rule -> the number of messages that a reset of the group's offset may have passed over. cleaned: the same for
           a deletion of its offsets.
    silent the time (ns) from the last delivery, or from the last time in which the group may have been off, to the end.
    ended  the time (ns) from the last end of a process to that of the group; None: no process ended before.
    """

    def __init__(
        self,
        run: RunRecord,
        told: Takes,
        there: Stored,
        wanted: frozenset[str] | None,
        holds: bool,
        quiet: int,
        hidden: int,
    ) -> None:
        self.holds, self.told = holds, told
        self.returned = max(quiet, hidden)
        self.resets = MemberResets(run.history)
        self.changes = GroupChanges(run.history)
        self.silent = min(told.quiet, told.until - self.changes.open_since(told.until))
        gone = max((end for end in told.ends.values() if end <= told.until), default=None)
        self.ended = None if gone is None else told.until - gone
        self.cleaned: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        self.properties = properties = properties_of(run.history)
        tags = {identity: of.get("TAGS") for identity, of in properties.items()}
        self.owed = {
            key: {offset: id for offset, id in of.items() if subscribed(tags.get(id), wanted)}
            for key, of in there.queues.items()
        }
        self.by_id: dict[Any, list[Delivery]] = {}
        for delivery in told.deliveries:
            self.by_id.setdefault(delivery.id, []).append(delivery)
        self.sent = {call.invoke.value: call.start for call in run.history.clients.calls if call.invoke.f == "send"}
        self.acked = {
            call.completion.value[1]: call.completion
            for call in run.history.clients.calls
            if call.invoke.f == "send" and call.completion is not None and call.completion.type == "ok"
        }
        committed = _committed(run) if holds else {}
        places = {(d.key, d.offset) for d in told.deliveries}
        missed = [
            (key, offset, identity)
            for key, of in self.owed.items()
            for offset, identity in of.items()
            if identity not in self.by_id
            and not self._passed("passed-over", key, offset, identity)
            and not self._forgotten("passed-over", key, identity)
        ]
        behind = [each for each in missed if each[1] < committed.get(each[0], -1)]
        self.skipped = [self._missed(*each) for each in behind if each[:2] not in places]
        self.reused = [self._missed(*each) for each in behind if each[:2] in places]
        self.waiting = [self._missed(*each) for each in missed if each[1] >= committed.get(each[0], -1)]
        early = self.silent < quiet or (self.ended is not None and self.ended < hidden)
        self.unsure = self.waiting if early else []
        self.waiting = [] if self.unsure else self.waiting
        self.dead = dead_letters(run.history) or {}
        self.open = self.acknowledging = 0
        self.unfinished = list(self._unfinished())
        self.unwanted = [
            Case(d.start, d.start, [d.op], f"message {d.id} with the tag {tags.get(d.id)} to {d.life}", d.key)
            for d in told.deliveries
            if d.id in tags and not subscribed(tags[d.id], wanted)
        ]
        tagging = {d.life for d in told.deliveries if d.tag is not None}  # a program of a user need not report tags
        self.altered = [
            Case(d.start, d.start, [d.op], f"message {d.id}, sent with the tag {tags[d.id]}, to {d.life} with {d.tag}",
                 d.key)
            for d in told.deliveries
            if d.id in tags and d.tag != tags[d.id] and d.life in tagging
        ]  # fmt: skip

    def _passed(self, rule: str, key: str, offset: int, identity: Any) -> bool:
        """True if a reset may have led the group past a message; counts it under a rule."""
        passed = self.resets.passes(key, offset, self.resets.known.get(identity, 0))
        self.passed[rule] += passed
        return passed

    def _forgotten(self, rule: str, key: str, identity: Any) -> bool:
        """True if an owner may have begun behind a message because its group was deleted with its offsets; counts it
        under a rule. Without an offset an owner begins at the end of a queue (`consumeFromWhere`), or at its start.
        """
        forgotten = self.changes.forgets(self.told, key, self.sent.get(identity, 0))
        self.cleaned[rule] += forgotten
        return forgotten

    def _missed(self, key: str, offset: int, identity: Any) -> Case:
        sent = self.acked.get(identity)
        at = 0 if sent is None else sent.time
        by = "" if sent is None else f", acknowledged by {sent.extra.get('node')} at {clock(at)}"
        return Case(at, self.told.until, [] if sent is None else [sent.index],
                    f"message {identity}{by}, is at offset {offset} of {key}", key)  # fmt: skip

    def _unfinished(self) -> Iterator[Case]:
        """Yields the messages that were failed, never finished, and are no dead letters, although there was time for
        another attempt.
        """
        dead = self.dead
        ids = {identity for of in self.owed.values() for identity in of.values() if identity not in dead}
        for identity, deliveries in self.by_id.items():
            last = deliveries[-1]
            if identity not in ids or last.end is None or any(each.done for each in deliveries):
                continue
            if may_be_acknowledged(deliveries):
                self.acknowledging += 1
                continue
            if last.done is None:  # its process was ended: the message belongs to another member then
                due = last.end + self.returned
            else:
                level = int(self.properties.get(identity, {}).get("level", 0))
                slack = _SLACK_S if self.holds else _REVIVED_S
                due = last.end + int((delay_s(last.attempt, level) + slack) * SECOND)
            if self.changes.put_off(last.end, due) > self.told.until:
                self.open += 1
                continue
            if self._passed("retry-lost", last.key, last.offset, identity):
                continue
            if last.done is None and self._forgotten("retry-lost", last.key, identity):
                continue
            what = "failed" if last.done is False else "not finished"
            yield Case(last.start, last.end, [last.op],
                       f"message {identity} was {what} by {last.life} at {clock(last.end)} (attempt {last.attempt})",
                       last.key)  # fmt: skip


def _committed(run: RunRecord) -> Mapping[str, int]:
    """Queue -> the group's committed offset, as the master reported it last."""
    found: dict[str, int] = {}
    for call in run.history.clients.calls:
        done = call.completion
        if call.invoke.f == "committed" and done is not None and done.type == "ok" and call.invoke.key is not None:
            found[call.invoke.key] = done.value or 0
    return found
