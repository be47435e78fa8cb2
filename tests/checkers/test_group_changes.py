# SPDX-License-Identifier: Apache-2.0
"""Groups that an administrator switches off, changes and deletes: good ones are silent, and the others are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from checkers.base.api import Checker
from checkers.messages.consuming import (
    Delivered,
    Groups,
    GroupSettings,
    Invisible,
    Lag,
    Ordered,
    Progress,
    Prompt,
    Retried,
)
from checkers.messages.consuming.changes import CLEANED
from results.record import Observation, RunRecord
from results.verdict import CheckResult, Verdict
from tests.effort import effort
from tests.sim.consumers import AGAIN, USUAL, Bug, Group
from tests.stories import S, TimedStory

NODES = ("n1", "n2")
OFF = {**USUAL, "consumeEnable": False}
MORE = {**USUAL, "retryMaxTimes": 3}


def judged(group: Group, run: RunRecord) -> list[CheckResult]:
    ordered = [Ordered(None, AGAIN)] if group.orderly else []
    prompt = [] if group.orderly else [Prompt()]
    judges: list[Checker] = [GroupSettings(15), Delivered(quiet_s=10), Progress(10), *ordered, *prompt]
    judges += [Retried(AGAIN, delays=not group.orderly), Groups(), Lag()]
    return [judge.check(run) for judge in judges]


@pytest.mark.parametrize("orderly", [False, True])
def test_silent_about_good_groups(orderly: bool) -> None:
    off = sent = cleaned = unanswered = 0
    for seed in range(effort(64, 4)):
        group = Group(seed, changes=True, orderly=orderly)
        results = {result.checker: result for result in judged(group, group.run())}
        for result in results.values():
            assert result.verdict == Verdict.VALID, (seed, result.reason, [a.summary for a in result.anomalies])
            cleaned += sum(excuse.used for excuse in result.excuses if excuse.why == CLEANED)
        stats = results["group-settings"].stats
        off, sent, unanswered = off + stats["off"], sent + stats["sent_off"], unanswered + stats["unanswered"]
    assert off
    assert sent, "no message was sent while the group was off: the runs show too little"
    assert unanswered
    assert orderly or cleaned, "no owner began without an offset"


FINDS = {
    Bug.HEEDLESS: "delivered-while-off",
    Bug.OLD: "old-group-settings",
    Bug.GONE: "group-gone",
    Bug.BACK: "deleted-group-returns",
    Bug.WIPED: "group-offset-lost",
    Bug.STUCK: "undelivered",
    Bug.LOST_RETRY: "retry-lost",
}


@pytest.mark.parametrize("bug", FINDS)
def test_finds_planted_bugs(bug: Bug) -> None:
    """The old promises, too: a group that is off for a while owes its messages afterwards."""
    struck = found = 0
    for seed in range(effort(16, 4)):
        group = Group(seed, bug=bug, changes=True)
        results = judged(group, group.run())
        if not group.planted:
            continue
        struck += 1
        found += any(a.name == FINDS[bug] for result in results for a in result.anomalies)
    assert struck, "the bug was never planted"
    assert found >= struck * 0.75, (struck, found)


class Told:
    """A history of changes, answers of masters, and deliveries; n1 is master, and n2 from `failover` on."""

    def __init__(self, failover: float | None = None) -> None:
        self.story, self.failover, self.sent = TimedStory(), failover, 0
        self.change(1, USUAL)

    def change(self, at: float, settings: Mapping[str, Any] | str, type_: Any = "ok", **who: Sequence[str]) -> Told:
        """A change, or a deletion (`delete`, `clean`), by all nodes. who: `acked` and `unsure`."""
        about = {"acked": NODES if type_ == "ok" else (), "unsure": () if type_ == "ok" else NODES, **who}
        f = "delete-group" if isinstance(settings, str) else "update-group"
        process = len(self.story.events)
        self.story.put(at, process, "invoke", f, None, settings, group="g")
        lists = {name: list(nodes) for name, nodes in about.items()}
        self.story.put(at + 0.01, process, type_, f, None, settings, group="g", **lists)
        return self

    def answer(self, at: float, settings: Mapping[str, Any] | None, node: str = "n1") -> Told:
        self.story.call(at, "group-settings", "t:a:0", None, settings, group="g", node=node)
        return self

    def offset(self, at: float, value: int | None, node: str = "n1") -> Told:
        self.story.call(at, "committed", "t:a:0", None, value, group="g", node=node)
        return self

    def deliver(self, sent: float, came: float) -> Told:
        n, self.sent = self.sent, self.sent + 1
        self.story.call(sent, "send", "t:a:0", n, [n, n], node="n1", ask={"properties": {}})
        about = {"group": "g", "member": "m0"}
        self.story.call(0.1, "join", None, None, "m0-1", **about)
        events = [["delivered", int(0.02 * S), 1, n, "t:a:0", n, n, 0, None], ["done", 0, 1, n, True]]
        self.story.call(came + 0.01, "take", None, None, events, **about)
        return self

    def judge(self, *, masters_only: bool = False) -> CheckResult:
        last = self.failover or 100
        masters = [
            Observation(int(s * S), "n1", "leader", term=1, extra={"broker_name": "a"}) for s in range(int(last))
        ]
        masters += [
            Observation(int(s * S), "n2", "leader", term=2, extra={"broker_name": "a"}) for s in range(int(last), 100)
        ]
        run = self.story.run(observations=masters)
        return GroupSettings(15, masters_only=masters_only).check(run)


def names(result: CheckResult) -> list[tuple[str, int]]:
    return [(anomaly.name, anomaly.cases) for anomaly in result.anomalies]


def excuses(result: CheckResult) -> list[tuple[str, int]]:
    return [(excuse.rule, excuse.used) for excuse in result.excuses]


def test_a_master_has_the_settings_that_were_acknowledged() -> None:
    good = Told().answer(2, USUAL).change(5, MORE).answer(6, MORE).change(10, "delete").answer(11, None)
    assert good.change(12, USUAL).answer(13, USUAL).judge().verdict == Verdict.VALID
    old = Told().change(5, MORE).answer(6, USUAL).answer(7, USUAL).judge()
    assert names(old) == [("old-group-settings", 1)], "one case for each change, not for each answer"
    assert "retryMaxTimes 16, and 3 was acknowledged by n1 and n2" in old.anomalies[0].summary
    assert names(Told().change(5, MORE).answer(6, None).judge()) == [("group-gone", 1)]
    assert names(Told().change(5, "delete").answer(6, USUAL).judge()) == [("deleted-group-returns", 1)]


def test_an_answer_during_a_change_may_have_both() -> None:
    for value in (USUAL, MORE):
        assert Told().change(5, MORE).answer(4.995, value).judge().verdict == Verdict.VALID
        assert Told().change(5, MORE, "info").answer(30, value).judge().verdict == Verdict.VALID


@pytest.mark.parametrize(("unsure", "wrong"), [(["n1"], False), (["n2"], True)])
def test_a_change_without_an_answer_may_come_late(unsure: list[str], wrong: bool) -> None:
    told = Told().change(5, MORE, "info", acked=["n1"], unsure=unsure).change(6, USUAL)
    result = told.answer(20, MORE).judge()
    assert names(result) == ([("old-group-settings", 1)] if wrong else [])
    assert excuses(result) == ([] if wrong else [("old-group-settings", 1)])


@pytest.mark.parametrize(("failover", "wrong"), [(19.0, False), (22.0, True)])
def test_a_new_master_has_what_it_had_the_time_to_copy(failover: float, wrong: bool) -> None:
    """15 s after the change, a slave has copied it: just within the limit is counted, just beyond it is found."""
    for value, name in ((USUAL, "old-group-settings"), (None, "group-gone")):
        result = Told(failover).change(5, MORE, acked=["n1"]).answer(30, value, "n2").judge(masters_only=True)
        assert names(result) == ([(name, 1)] if wrong else [])
        assert excuses(result) == ([] if wrong else [(name, 1)])


def test_a_restart_is_no_excuse() -> None:
    """A broker writes the change to disk before it answers. A disk that was lost is one."""
    for effect, wrong in (("down", True), ("data-lost", False)):
        told = Told().change(5, MORE)
        told.story.fault(6, 8, "n1", effects=[{"node": "n1", "kind": effect}])
        result = told.answer(10, USUAL).judge()
        assert names(result) == ([("old-group-settings", 1)] if wrong else []), effect
        assert excuses(result) == ([] if wrong else [("old-group-settings", 1)]), effect


def test_another_broker_than_the_master_of_the_change_is_not_compared() -> None:
    result = Told().change(5, MORE, acked=["n1"]).answer(6, USUAL, "n2").judge(masters_only=True)
    assert names(result) == []
    assert result.stats["answers"] == 0


def test_a_group_that_is_off_gets_nothing() -> None:
    """A message that was sent 2 s after the change, or later, and came before the next one; others prove nothing."""

    def off(sent: float, came: float, **how: Any) -> CheckResult:
        told = Told().change(10, OFF).answer(10.5, OFF).change(20, USUAL).answer(21, USUAL)
        return told.deliver(sent, came).judge(**how)

    assert names(off(12.1, 15)) == [("delivered-while-off", 1)]
    assert names(off(11.9, 15)) == [], "a pull may have been under way"
    assert names(off(15, 20.1)) == []
    assert names(off(9, 15)) == [], "a member may have had it already"
    assert names(off(15, 16, masters_only=True)) == [], "slaves need not know it yet"
    deleted = Told().change(10, "delete").answer(10.5, None).change(20, USUAL).deliver(12.1, 15).judge()
    assert names(deleted) == [("delivered-while-off", 1)]


def test_what_may_give_messages_to_a_group_that_is_off() -> None:
    """A fault before a slave certainly has the change; a request to switch it on again that had no answer."""

    def off(fault: float | None = None, late: bool = False) -> CheckResult:
        told = Told().change(5, USUAL, "info") if late else Told()
        told.change(10, OFF).answer(10.5, OFF).change(60, USUAL)
        if fault is not None:
            told.story.fault(fault, fault + 2, "n1")
        return told.deliver(50, 51).judge()

    assert names(off()) == [("delivered-while-off", 1)]
    for result in (off(fault=24), off(late=True)):
        assert names(result) == []
        assert excuses(result) == [("delivered-while-off", 1)]
    assert names(off(fault=26)) == [("delivered-while-off", 1)]


@pytest.mark.parametrize(
    ("kind", "after", "name"),
    [
        ("delete", 7, None),
        ("delete", None, "group-offset-lost"),
        ("clean", None, None),
        ("clean", 7, "deleted-offset-returns"),
    ],
)
def test_offsets_of_a_deleted_group(kind: str, after: int | None, name: str | None) -> None:
    told = Told().offset(9, 7).change(10, kind).answer(10.1, None).offset(11, after).change(14, USUAL).offset(15, 9)
    assert names(told.judge()) == ([] if name is None else [(name, 1)])


def test_no_change_proves_nothing() -> None:
    assert "no master reported the settings" in Told().judge().reason
    silent = TimedStory()
    silent.call(1, "send", "t:a:0", 1, [0, 1], node="n1")
    assert "no change of the group was acknowledged" in GroupSettings(15).check(silent.run()).reason


def calm(**change: Any) -> CheckResult:
    """Messages to one member, one a second; the last one comes 4 s late. The group is off from 37 s to 39 s, or not."""
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    events: list[tuple[float, list[object]]] = [(0.5, ["queues", ["t:a:0"]])]
    for n in range(30):
        story.call(10 + n, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask={"properties": {"TAGS": "a"}})
        came = 10.02 + n + (4 if n == 29 else 0)
        events += [(came, ["delivered", n + 1, "t:a:0", n, n + 1, 0, "a"]), (came + 0.01, ["done", n + 1, True])]
    if change:
        for at, settings in ((37, {**USUAL, **change}), (39, USUAL)):
            story.call(at, "update-group", None, settings, settings, group="g", acked=[*NODES], unsure=[])
    story.call(60, "take", None, None, [[k, int((60.01 - at) * S), 1, *rest] for at, (k, *rest) in events], **about)
    return Prompt().check(story.run())


def test_a_group_that_is_off_gets_messages_later() -> None:
    assert names(calm()) == [("slow-to-group", 1)]
    assert names(calm(retryMaxTimes=3)) == [("slow-to-group", 1)], "such a change disturbs nothing"
    assert names(calm(consumeEnable=False)) == []


@pytest.mark.parametrize(("on", "wrong"), [(20.0, True), (80.0, False)])
def test_a_group_owes_nothing_while_it_is_off(on: float, wrong: bool) -> None:
    """A message that failed, and one that was never delivered: both are due only after the group was switched on."""
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    for n in range(2):
        story.call(1, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask={"properties": {"fails": "1"}})
    events = [["delivered", S, 1, 1, "t:a:0", 0, 1, 0, None], ["done", S // 2, 1, 1, False]]
    story.call(3, "take", None, None, events, **about)
    for at, settings in ((5, OFF), (on, USUAL)):
        story.call(at, "update-group", None, settings, settings, group="g", acked=[*NODES], unsure=[])
    story.call(100, "take", None, None, [], **about)
    read = {"min": 0, "max": 2, "next": 2, "done": True, "phase": "final", "node": "n1"}
    story.call(101, "replica-read", "t:a:0", 0, [[0, 1], [1, 2]], **read)
    result = Delivered(quiet_s=53).check(story.run())
    assert names(result) == ([("undelivered", 1), ("retry-lost", 1)] if wrong else [])
    assert result.verdict == (Verdict.INVALID if wrong else Verdict.UNKNOWN)


@pytest.mark.parametrize(("on", "wrong"), [(15.0, True), (70.0, False)])
def test_a_popped_message_returns_only_to_a_group_that_is_on(on: float, wrong: bool) -> None:
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {}})
    story.call(3, "take", None, None, [["delivered", S, 1, 1, "t:a:0", 0, 1, 0, None, 10_000]], **about)
    for at, settings in ((5, OFF), (on, USUAL)):
        story.call(at, "update-group", None, settings, settings, group="g", acked=[*NODES], unsure=[])
    story.call(90, "take", None, None, [], **about)
    read = {"min": 0, "max": 1, "next": 1, "done": True, "phase": "final", "node": "n1"}
    story.call(91, "replica-read", "t:a:0", 0, [[0, 1]], **read)
    assert names(Invisible(20).check(story.run())) == ([("never-returned", 1)] if wrong else [])


@pytest.mark.parametrize(("begun", "wrong"), [(20.0, False), (90.0, True)])
def test_an_owner_without_an_offset_may_begin_behind_messages(begun: float, wrong: bool) -> None:
    """Its queue's offset was deleted with the group, and it became the owner soon after; later is no excuse."""
    story = TimedStory()
    for member, at in (("m0", 0.1), ("m1", begun)):
        about = {"group": "g", "member": member}
        story.call(at, "join", None, None, f"{member}-1", **about)
        story.call(at + 0.1, "take", None, None, [["queues", 0, 1, ["t:a:0"]]], **about)
    for n in range(2):
        story.call(1 + n, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask={"properties": {}})
    told = [["delivered", S, 1, 1, "t:a:0", 0, 1, 0, None], ["done", S // 2, 1, 1, True]]
    story.call(2, "take", None, None, told, group="g", member="m0")
    story.call(10, "delete-group", None, "clean", "clean", group="g", acked=[*NODES], unsure=[])
    story.call(12, "update-group", None, USUAL, USUAL, group="g", acked=[*NODES], unsure=[])
    story.call(160, "take", None, None, [], group="g", member="m1")
    story.call(161, "committed", "t:a:0", None, 2, group="g", node="n1")
    read = {"min": 0, "max": 2, "next": 2, "done": True, "phase": "final", "node": "n1"}
    story.call(161, "replica-read", "t:a:0", 0, [[0, 1], [1, 2]], **read)
    result = Delivered(quiet_s=53).check(story.run())
    assert names(result) == ([("skipped-by-group", 1)] if wrong else [])
    assert ("passed-over", 1) in excuses(result) or wrong


@pytest.mark.parametrize(("change", "wrong"), [("delete", False), (OFF, True)])
@pytest.mark.parametrize("life", [1, 2])
def test_no_broker_takes_dead_letters_of_a_deleted_group(change: Any, wrong: bool, life: int) -> None:
    """The process counts the send-back that was refused as an attempt. Another process got it from a broker."""
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {"fails": "2"}})
    for at, attempt, process in ((3, 0, 1), (14, 1, 1), (50, 2, life)):
        key, offset = ("%RETRY%g:a:0", 0) if attempt else ("t:a:0", 0)
        events = [
            ["delivered", S, process, attempt + 1, key, offset, 1, attempt, None],
            ["done", S // 2, process, attempt + 1, attempt == 2],
        ]
        story.call(at, "take", None, None, events, **about)
    f = "delete-group" if isinstance(change, str) else "update-group"
    story.call(12, f, None, change, change, group="g", acked=[*NODES], unsure=[])
    story.call(18, "update-group", None, USUAL, USUAL, group="g", acked=[*NODES], unsure=[])
    story.call(60, "take", None, None, [], **about)
    story.call(61, "dead-letters", "%DLQ%g:a:0", 0, [], done=True)
    result = Retried(1).check(story.run())
    wrong = wrong or life == 2
    assert names(result) == ([("retried-too-often", 1)] if wrong else [])
    assert (("retried-too-often", 1) in excuses(result)) != wrong


def unnamed(*, deleted: bool) -> CheckResult:
    """A member that joined while the group was deleted, and whom the broker does not name for 45 s."""
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    if deleted:
        story.call(5, "delete-group", None, "delete", "delete", group="g", acked=[*NODES], unsure=[])
        story.call(15, "update-group", None, USUAL, USUAL, group="g", acked=[*NODES], unsure=[])
    story.call(10, "join", None, None, "m0-1", **about)
    story.call(11, "take", None, None, [["started", 0, 1, "c@m0-1"], ["queues", 0, 1, ["t:a:0"]]], **about)
    for at in range(12, 55, 2):
        story.call(at, "named-members", "t:a:0", None, [], group="g", node="n1")
    story.call(56, "take", None, None, [], **about)
    return Groups().check(story.run())


def test_brokers_take_no_heartbeats_of_a_deleted_group() -> None:
    assert names(unnamed(deleted=False)) == [("live-member-unnamed", 1)]
    result = unnamed(deleted=True)
    assert names(result) == []
    assert ("live-member-unnamed", 1) in excuses(result)
