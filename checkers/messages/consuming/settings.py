# SPDX-License-Identifier: Apache-2.0
"""Judges that a group is what its administrator made of it: by the masters' answers, and by what members get.

Source: "Update or create a subscription", "-s: Whether the group is allowed to consume" and "Remove subscriptions from
broker" (`mqadmin updateSubGroup`, `deleteSubGroup`; docs/en/CLITools.md of apache/rocketmq). A broker writes a change
to disk before it answers (`SubscriptionGroupManager.updateSubscriptionGroupConfig`), and a slave copies the groups of
its master every 10 s (`SlaveSynchronize.syncSubscriptionGroupConfig`). It looks at the setting for each pull and pop,
also for one that has waited (`PullMessageProcessor`, `PopMessageProcessor`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consuming.changes import CLEAN, Change, Closed, GroupChanges
from checkers.messages.consuming.takes import takes
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, many
from results.history import Call
from results.op import OK
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

SETTINGS: Final = "group-settings"

UNDER_WAY_S: Final = 2.0
"""The longest time for which a broker works on a pull that it let pass before it acknowledged the change."""

GONE: Final = "group-gone"
OLD: Final = "old-group-settings"
BACK: Final = "deleted-group-returns"
OFF: Final = "delivered-while-off"
LOST: Final = "group-offset-lost"
KEPT: Final = "deleted-offset-returns"

_TAKEN: Final = ("data-lost", "data-damaged")
"""Effects after which a disk may lack synced data."""

_NOT_COPIED: Final = "a fault, or a change of master, came before a slave certainly had the change"
_UNSURE: Final = "a change without an answer may have happened later"
_DISK: Final = "a fault replaced or damaged the disk of a broker"


class GroupSettings:
    """`group-gone`, `old-group-settings`, `deleted-group-returns`, `delivered-while-off`, `group-offset-lost`,
    `deleted-offset-returns`.

    copied_within_s  the longest time until a slave has copied a change. masters_only: True if slaves get changes only
                     in this way.
    """

    name = "group-settings"

    def __init__(self, copied_within_s: float, *, masters_only: bool = False) -> None:
        self.copied, self.masters_only = int(copied_within_s * SECOND), masters_only

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `changes` that all brokers acknowledged, `unanswered`: others that may have happened, `answers` of
        masters that are compared, `off`: times in which the group was certainly off or deleted, and `sent_off`: the
        number of messages that were sent then.
        """
        judged = _Judged(run, self.copied, self.masters_only)
        scene, changes = judged.scene, judged.changes
        found = [
            *anomalies(scene, "group-gone", judged.of(GONE),
                       "{n} times a master did not know the group, which existed"),
            *anomalies(scene, "old-group-settings", judged.of(OLD),
                       "{n} times a master had other settings of the group than acknowledged"),
            *anomalies(scene, "deleted-group-returns", judged.of(BACK),
                       "{n} times a master knew the group after its deletion"),
            *anomalies(scene, "delivered-while-off", judged.of(OFF),
                       "{n} messages that were sent while the group was off, or deleted, came to it in this time"),
            *anomalies(scene, "group-offset-lost", judged.of(LOST),
                       "{n} queues lost their offset by a deletion of the group that keeps offsets"),
            *anomalies(scene, "deleted-offset-returns", judged.of(KEPT),
                       "{n} queues had an offset of the group after its deletion with its offsets"),
        ]  # fmt: skip
        sure = sum(change.end is not None for change in changes.all)
        stats = {
            "changes": sure,
            "unanswered": len(changes.all) - sure,
            "answers": judged.answers,
            "off": len(judged.off),
            "sent_off": judged.sent_off,
        }
        excuses = []
        bound = self.copied / SECOND
        for (rule, why), ages in judged.excused.items():
            if why == _NOT_COPIED:
                excuses.append(Excuse(rule, len(ages), why, bound, max(ages) / SECOND))
            else:
                excuses.append(Excuse(rule, len(ages), why))
        unknown = None
        if not sure:
            unknown = "no change of the group was acknowledged by all brokers"
        elif not judged.answers:
            unknown = "no master reported the settings of the group after a change"
        reason = f"{many(sure, 'change')} of the group, {many(judged.answers, 'answer')} of masters"
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)


class _Judged:
    """The cases and the excuses.

    off      the times in which the group was certainly off or deleted. sent_off: the number of messages sent then.
    answers  the number of answers of masters that are compared.
    excused  (rule, reason) -> the undisturbed time (ns) after the acknowledgement of each change.
    """

    def __init__(self, run: RunRecord, copied: int, masters_only: bool) -> None:
        self.run, self.scene, self.changes = run, RunTimeline(run), GroupChanges(run.history)
        self.copied, self.masters_only = copied, masters_only
        self.answers = self.sent_off = 0
        self.excused: dict[tuple[str, str], list[int]] = {}
        self.off = [closed for closed in map(self._settled, self.changes.certain) if closed.start < closed.end]
        self.cases = [*self._of_answers(), *self._while_off(), *self._of_offsets()]

    def of(self, name: str) -> list[Case]:
        """The cases of a kind."""
        return [case for case in self.cases if case.name == name]

    def _settled(self, closed: Closed) -> Closed:
        """The time in which no broker can work on an earlier pull, or lack the change."""
        wait = int(UNDER_WAY_S * SECOND) + (self.copied if self.masters_only else 0)
        return closed._replace(start=closed.start + wait)

    def _of_answers(self) -> Iterator[Case]:
        """Yields the first wrong answer of each node after each change."""
        done: set[tuple[str, int]] = set()
        for call in self.run.history.clients.calls:
            if call.invoke.f != SETTINGS or call.outcome != OK or call.completion is None:
                continue
            node, brokers = str(call.completion.extra.get("node")), group_of(call.invoke.key or "")
            before = [n for n, each in enumerate(self.changes.all) if each.end is not None and each.end <= call.start]
            if not before:
                continue
            last = self.changes.all[before[-1]]
            if node not in last.acked and not self._led_since(node, brokers, last):
                continue  # another broker than the master of that time, and it copied nothing
            self.answers += 1
            value, end = call.completion.value, call.completion.time
            later = [each for each in self.changes.all[before[-1] + 1 :] if each.start < end]
            if any(value == each.settings for each in (last, *later)) or (node, last.start) in done:
                continue
            done.add((node, last.start))
            case = _wrong(last, call, node, brokers)
            earlier = self.changes.all[: before[-1]]
            if any(each.may_come_late(node) and each.end is None and each.settings == value for each in earlier):
                self._excuse(case.name, _UNSURE)
            elif self._taken(node, end):
                self._excuse(case.name, _DISK)
            elif (calm := self._uncopied(brokers, last, end, led=True)) is not None:
                self._excuse(case.name, _NOT_COPIED, calm)
            else:
                yield case

    def _while_off(self) -> Iterator[Case]:
        """Yields messages that were sent and delivered in a time in which the group was certainly off."""
        sent: dict[Any, Closed] = {}
        for call in self.run.history.clients.calls:
            if call.invoke.f == "send":
                closed = next((each for each in self.off if each.start <= call.start < each.end), None)
                if closed is not None:
                    sent[call.invoke.value] = closed
        self.sent_off = len(sent)
        seen = Counter[Any]()
        for delivery in takes(self.run.history).deliveries:
            closed = sent.get(delivery.id)
            if closed is None or delivery.start >= closed.end or seen[delivery.id]:
                continue
            seen[delivery.id] += 1
            by, brokers = closed.by, group_of(delivery.key)
            what = "deleted" if by.settings is None else "switched off"
            text = (
                f"message {delivery.id} (offset {delivery.offset} of {delivery.key}), sent after the group was {what}"
            )
            text += f", came to {delivery.life} at {clock(delivery.start)}; all brokers had acknowledged this at "
            ends = by.end or by.start
            case = Case(ends, delivery.start, [*by.ops, delivery.op], text + clock(ends), delivery.key, name=OFF)
            nodes = self.run.deployment.groups.get(brokers or "") or sorted(by.acked)
            earlier = self.changes.all[: self.changes.all.index(by)]
            if any(each.opens and each.end is None and each.may_come_late(n) for each in earlier for n in nodes):
                self._excuse(OFF, _UNSURE)
            elif any(self._taken(node, delivery.start) for node in nodes):
                self._excuse(OFF, _DISK)
            elif (calm := self._uncopied(brokers, by, delivery.start, led=False)) is not None:
                self._excuse(OFF, _NOT_COPIED, calm)
            else:
                yield case

    def _of_offsets(self) -> Iterator[Case]:
        """Yields queues whose offset a deletion removed or kept wrongly, as masters report it before and after it. No
        member can commit in between: brokers refuse commits of a group that they do not know.
        """
        reads: dict[str, list[Call]] = {}
        for call in self.run.history.clients.calls:
            if call.invoke.f == "committed" and call.outcome == OK:
                reads.setdefault(str(call.invoke.key), []).append(call)
        for closed in self.changes.certain:
            change = closed.by
            if change.settings is not None:
                continue
            clean = change.call.invoke.value == CLEAN
            for key, calls in reads.items():
                before = next((c for c in reversed(calls) if (c.end or 0) <= change.start), None)
                after = next((c for c in calls if c.start >= closed.start and (c.end or 0) <= closed.end), None)
                if before is None or after is None:
                    continue
                assert before.completion is not None
                assert after.completion is not None
                had, has = before.completion.value or 0, after.completion.value or 0
                node = str(after.completion.extra.get("node"))
                if node not in change.acked or (not has if clean else has or not had):
                    continue
                text = f"{node} reported the committed offset {has} of {key} at {clock(after.completion.time)}, and "
                text += f"{had} before the deletion of the group, which all brokers had acknowledged at "
                ops = [before.completion.index, *change.ops, after.completion.index]
                case = Case(closed.start, after.completion.time, ops, text + clock(closed.start), key,
                            name=KEPT if clean else LOST, details={"node": node})  # fmt: skip
                if self._taken(node, case.end):
                    self._excuse(case.name, _DISK)
                elif (calm := self._uncopied(group_of(key), change, case.end, led=True)) is not None:
                    self._excuse(case.name, _NOT_COPIED, calm)
                else:
                    yield case

    def _excuse(self, rule: str, why: str, calm: int = 0) -> None:
        self.excused.setdefault((rule, why), []).append(calm)

    def _led_since(self, node: str, brokers: str | None, change: Change) -> bool:
        """True if a node became master after a change."""
        return any(each.node == node and each.since > (change.end or 0) for each in self.scene.masters_of(brokers))

    def _taken(self, node: str, until: int) -> bool:
        faults = (fault for fault in self.scene.fault_intervals if fault.start_ns <= until)
        return any(effect.kind in _TAKEN and effect.node == node for fault in faults for effect in fault.effects)

    def _uncopied(self, brokers: str | None, change: Change, until: int, *, led: bool) -> int | None:
        """The time (ns) from the acknowledgement of a change to the first fault on its brokers, or change of master, if
        that was too short for slaves to copy it; None: it was not, or nothing of that kind came. A slave may also have
        got the settings before the change from its master after it had acknowledged the change itself.

        led: True if only a change of master may show settings that were not copied; without one it is None.
        """
        acked = change.end or change.start
        masters = [each.since for each in self.scene.masters_of(brokers)[1:] if change.start <= each.since <= until]
        faults = [fault.start_ns for fault in self.scene.at_group(brokers, change.start, until)]
        if not masters and (led or not faults):
            return None
        calm = max(0, min([*masters, *faults]) - acked)
        return calm if calm < self.copied else None


def _wrong(change: Change, call: Call, node: str, brokers: str | None) -> Case:
    """The case of an answer that is not what a change left."""
    assert call.completion is not None
    value, end = call.completion.value, change.end or change.start
    by = f"acknowledged by {' and '.join(sorted(change.acked)) or 'the brokers'} at {clock(end)}"
    if value is None:
        name, text = GONE, f"{node}, the master of {brokers}, did not know the group, whose settings were {by}"
    elif change.settings is None:
        name, text = BACK, f"{node}, the master of {brokers}, knew the group, whose deletion was {by}"
    else:
        name = OLD
        differ = [f"{key} {value.get(key)}, and {new}" for key, new in change.settings.items() if value.get(key) != new]
        text = f"{node}, the master of {brokers}, had {'; '.join(differ)} was {by}"
    ops = [*change.ops, call.invoke.index, call.completion.index]
    return Case(end, call.completion.time, ops, text, group=brokers, name=name, details={"node": node})
