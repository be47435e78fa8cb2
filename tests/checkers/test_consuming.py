# SPDX-License-Identifier: Apache-2.0
"""The judges of the workload `consume`: silent about good groups, and right about the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from checkers.base.api import Checker
from checkers.messages.consuming import (
    Broadcast,
    Delivered,
    Groups,
    Invisible,
    Lag,
    Ordered,
    Progress,
    Prompt,
    Replayed,
    Replies,
    Retried,
    TimedOut,
)
from checkers.messages.consuming.calm import presences
from checkers.messages.consuming.resets import BACK, PAST, MemberResets
from checkers.messages.consuming.takes import UNSURE, takes
from checkers.messages.reports import Life
from results.deployment import DeploymentRecord, ServerRecord
from results.op import OpType
from results.record import Observation, RunRecord
from results.verdict import CheckResult, Verdict
from tests.effort import effort
from tests.sim import fifo_pops, pops, requests
from tests.sim.consumers import AGAIN, MESSAGE_GROUP, Bug, Group
from tests.stories import S, TimedStory

GOOD = {"concurrently": {}, "filtered": {"filtered": True}, "orderly": {"orderly": True},
        "grouped": {"orderly": True, "grouped": True},
        "orderly, filtered": {"orderly": True, "filtered": True}, "reset": {"resets": True},
        "late crash": {"late_crash": True}, "by hand": {"by_hand": True, "failing": 0.0},
        "orderly, reset": {"resets": True, "orderly": True}, "filtered, reset": {"resets": True, "filtered": True},
        }  # fmt: skip


def judged(group: Group, run: RunRecord) -> list[CheckResult]:
    wanted = group.tags
    within = MESSAGE_GROUP if group.grouped else None
    ordered = [Ordered(wanted, AGAIN, within=within)] if group.orderly else []
    judges: list[Checker] = [Delivered(wanted, quiet_s=10), Progress(10, wanted), *ordered]
    if group.failing:
        judges.append(Retried(AGAIN, delays=not group.orderly))
    judges += [Groups(), Lag(wanted)]
    if group.resets:
        judges += [Replayed(wanted, quiet_s=10), *([] if group.orderly else [Prompt()])]
    return [judge.check(run) for judge in judges]


@pytest.mark.parametrize("kind", GOOD)
def test_silent_about_good_groups(kind: str) -> None:
    """A false alarm would cost the workload its readers: crashes, moves of queues and retries are no violation."""
    again = replayed = 0
    for seed in range(effort(64, 4)):
        group = Group(seed, **GOOD[kind])
        for result in judged(group, group.run()):
            if result.checker == "replayed" and result.verdict == Verdict.UNKNOWN:
                assert "no acknowledged reset went back" in result.reason
                continue
            replayed += result.stats.get("replayed", 0)
            assert result.verdict == Verdict.VALID, (seed, result.reason, [a.summary for a in result.anomalies])
            again += sum(excuse.used for excuse in result.excuses if excuse.rule == "redelivered")
    assert bool(replayed) == ("resets" in GOOD[kind])
    assert again, "no member ended or moved with work that was not committed: the runs show too little"


FINDS = {
    Bug.SKIP: ("skipped-by-group", {"failing": 0.0}),
    Bug.STUCK: ("undelivered", {}),
    Bug.STALL: ("queue-stalled", {}),
    Bug.LEAK: ("filtered-delivered", {"filtered": True}),
    Bug.LOST_RETRY: ("retry-lost", {}),
    Bug.AGAIN: ("redelivered-to-holder", {}),
    Bug.REWOUND: ("redelivered-late", {"late_crash": True}),
    Bug.HASTY: ("retried-early", {}),
    Bug.TARDY: ("retried-late", {}),
    Bug.UNBURIED: ("not-dead-lettered", {}),
    Bug.TWICE: ("dead-lettered-twice", {}),
    Bug.OFTEN: ("retried-too-often", {}),
    Bug.EARLY: ("out-of-order", {"orderly": True}),
    Bug.SHARED: ("two-owners", {"orderly": True}),
    Bug.HOARD: ("queue-owned-twice", {"failing": 0.0}),
    Bug.GHOST: ("dead-member-named", {}),
    Bug.UNNAMED: ("live-member-unnamed", {}),
    Bug.ALTERED: ("altered-message", {}),
    Bug.LAZY: ("committed-behind", {}),
    Bug.STALE: ("wrong-lag", {}),
    Bug.FORGOT: ("wrong-lag", {}),
    Bug.AHEAD: ("committed-beyond", {}),
    Bug.DEAF: ("not-replayed", {"resets": True}),
    Bug.HIGH: ("not-replayed", {"resets": True}),
    Bug.WRONG_TIME: ("wrong-reset-time", {"resets": True}),
}


def test_a_process_that_begins_below_what_was_committed_by_hand_is_found() -> None:
    """Seconds after the commit: members that leave it to the library may take 16 s."""
    found = planted = 0
    for seed in range(effort(16, 4)):
        group = Group(seed, by_hand=True, failing=0.0, bug=Bug.REWOUND)
        result = Delivered(quiet_s=10).check(group.run())
        planted += group.planted
        # To the same process, if the queue comes back to it.
        assert {anomaly.name for anomaly in result.anomalies} <= {"redelivered-late", "redelivered-to-holder"}
        found += len(result.anomalies)
    assert planted
    assert found


def by_group(
    steps: str, *, fault: bool = False, reported: str = "t:a:0", hidden_s: float | None = None, leased: bool = False
) -> CheckResult:
    """Deliveries of one queue to m0 and m1, by their offsets; the messages 0 and 2 are of group A, 1 and 3 of group B.
    Each has `x,from,to`: the offset, and the times (s) of its begin and end; in capitals it goes to m1. With `?` after
    the end, its acknowledgement has no answer. reported: the queue that members name. hidden_s: see `Delivery.hides`.
    """
    story = TimedStory()
    for member in ("m0", "m1"):
        story.call(0.1, "join", None, None, f"{member}-1", group="g", member=member)
    for n in range(4):
        asked = {"properties": {MESSAGE_GROUP: "AB"[n % 2]}}
        story.call(1 + n / 10, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask=asked)
    events: dict[str, list[tuple[float, list[Any]]]] = {"m0": [], "m1": []}
    for n, step in enumerate(steps.split(), 1):
        who, start, end = step.split(",")
        of, offset = events["m1" if who.isupper() else "m0"], "abcd".index(who.lower())
        hidden = [] if hidden_s is None else [int(hidden_s * 1000)]
        of.append((float(start), ["delivered", n, reported, offset, offset + 1, 0, None, *hidden]))
        of.append((float(end.rstrip("?")), ["acking", n] if end.endswith("?") else ["done", n, True]))
    if fault:
        story.fault(9, 9.5, "n1")
    for member, of in events.items():
        of.sort(key=lambda event: event[0])
        shown = [[kind, int((90.01 - at) * S), 1, *rest] for at, (kind, *rest) in of]
        story.call(90, "take", None, None, shown, group="g", member=member)
    about = {"min": 0, "max": 4, "next": 4, "done": True, "phase": "final", "node": "n1"}
    story.call(91, "replica-read", "t:a:0", 0, [[n, n + 1] for n in range(4)], **about)
    masters = [Observation(s * S, "n1", "leader", term=1, extra={"broker_name": "a"}) for s in range(90)]
    return Ordered(within=MESSAGE_GROUP, leased=leased).check(story.run(observations=masters))


def test_message_groups_have_an_order_each() -> None:
    """Messages of different groups may overlap and overtake; those of one may not, and one process has a group."""
    assert by_group("a,10,12 B,10.5,11 d,11.5,13 C,12.5,14").verdict == Verdict.VALID
    assert [a.name for a in by_group("b,10,11 c,11,12 a,12,13 d,14,15").anomalies] == ["out-of-order"]
    twice = by_group("a,10,12 A,11,13 b,14,15 c,14,15 d,15,16")
    assert [a.name for a in twice.anomalies] == ["two-owners"]
    excused = by_group("a,10,12 A,11,13 b,14,15 c,14,15 d,15,16", fault=True)
    assert excused.verdict == Verdict.VALID, excused.reason
    assert [(e.rule, e.used) for e in excused.excuses] == [("two-owners", 1)]
    assert by_group("a,68,70 A,69,71 b,72,73 c,72,73 d,73,74", fault=True).verdict == Verdict.VALID
    late = by_group("a,70,72 A,71,73 b,74,75 c,74,75 d,75,76", fault=True)
    assert [a.name for a in late.anomalies] == ["two-owners"], "more than 60 s after the fault"


def test_the_order_is_that_of_the_queue_that_has_the_messages() -> None:
    """A gRPC client names the queue that it asked, so no delivery was compared with its queue."""
    wrong = by_group("b,10,11 c,11,12 a,12,13 d,14,15", reported="t:a:1")
    assert [a.name for a in wrong.anomalies] == ["out-of-order"]
    assert by_group("a,10,12 B,10.5,11 d,11.5,13 C,12.5,14", reported="t:a:1").verdict == Verdict.VALID


def test_a_message_that_may_have_been_acknowledged_does_not_break_the_order() -> None:
    unsure = by_group("a,10,12? c,13,14 b,14,15 d,15,16")
    assert (unsure.verdict, [(e.rule, e.used, e.why) for e in unsure.excuses]) == (
        Verdict.VALID,
        [("out-of-order", 1, UNSURE)],
    )
    assert [a.name for a in by_group("a,10,12? c,11,12 b,14,15 d,15,16").anomalies] == ["out-of-order"], "not yet"


def test_another_process_may_have_a_message_when_its_duration_is_over() -> None:
    """A consumer that works for longer than it requested has two owners by its own fault; a second early is granted."""
    steps = "a,10,25 A,{},26 b,27,28 c,28,29 d,29,30"
    late = by_group(steps.format(19.1), hidden_s=10, leased=True)
    assert late.verdict == Verdict.VALID
    assert [(e.rule, e.used) for e in late.excuses] == [("two-owners", 1)]
    for early in (
        by_group(steps.format(18.9), hidden_s=10, leased=True),
        by_group(steps.format(19.1), leased=True),
        by_group(steps.format(19.1), hidden_s=10),
    ):
        assert [a.name for a in early.anomalies] == ["two-owners"]


@pytest.mark.parametrize("bug", FINDS)
def test_finds_planted_bugs(bug: Bug) -> None:
    """Each promise has a planted violation, found under its own name in most runs in which it struck."""
    name, how = FINDS[bug]
    struck = found = 0
    for seed in range(effort(16, 4)):
        group = Group(seed, bug=bug, **how)
        results = judged(group, group.run())
        if not group.planted:
            continue
        struck += 1
        found += any(a.name == name for result in results for a in result.anomalies)
    assert struck, "the bug was never planted"
    assert found >= struck * 0.75, (struck, found)


def test_a_busy_group_is_not_judged() -> None:
    """A group that still gets messages when the run ends proves nothing about those that it did not get."""
    result = Delivered(quiet_s=10).check(Group(3, bug=Bug.STUCK, end_s=15.0).run())
    assert result.verdict == Verdict.UNKNOWN
    assert "not delivered to the group" in result.reason


def broadcast(missing: int = 0, *, last: bool = False, started_s: float = 0.15, first: int = 0) -> CheckResult:
    """Two members that got ten messages each, the second one without the last ones; and a third that came and left.
    The messages come 0.1 s apart from 1 s on. last, started_s: members begin with what is sent after their start.
    first: the first message that they got.
    """
    story = TimedStory()
    for n in range(10):
        story.call(1 + n / 10, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask={"properties": {"TAGS": "a"}})
    for member, count in (("m0", 10), ("m1", 10 - missing), ("m2", 3)):
        about = {"group": "g", "member": member}
        story.call(0.1, "join", None, None, f"{member}-1", **about)
        events = [["started", int((3.01 - started_s) * S), 1, f"{member}-1"], ["queues", int(1.5 * S), 1, ["t:a:0"]]]
        events += [["delivered", S, 1, n + 1, "t:a:0", n, n + 1, 0, "a"] for n in range(first, count)]
        events += [["done", S // 2, 1, n + 1, True] for n in range(first, count)]
        story.call(3, "take", None, None, events, **about)
        if member == "m2":
            story.call(4, "crash", None, None, [], **about)
        else:
            story.call(70, "take", None, None, [], **about)
    about = {"min": 0, "max": 10, "next": 10, "done": True, "phase": "final", "node": "n1"}
    story.call(71, "replica-read", "t:a:0", 0, [[n, n + 1] for n in range(10)], **about)
    return Broadcast(last=last).check(story.run())


def test_every_member_of_a_broadcast_group_gets_everything() -> None:
    """A member that was there at the end and lacks a message is a violation; one that left before is none."""
    assert broadcast().verdict == Verdict.VALID
    result = broadcast(missing=2)
    assert [(a.name, a.cases) for a in result.anomalies] == [("missed-by-member", 2)]


def test_a_member_that_begins_at_the_end_gets_what_is_sent_after_its_start() -> None:
    """Not from its first look for queues on: what comes between is lost to it (apache/rocketmq#9281)."""
    assert broadcast(first=4, started_s=1.35).anomalies[0].cases == 8, "others begin at the first message"
    good = broadcast(first=4, started_s=1.35, last=True)
    assert good.verdict == Verdict.VALID, good.reason
    assert [(e.rule, e.used) for e in good.excuses] == [("missed-by-member", 8)]
    late = broadcast(first=4, started_s=1.25, last=True)
    assert [(a.name, a.cases) for a in late.anomalies] == [("missed-by-member", 2)], "one to each of the two"
    assert "before it had the queue" in late.anomalies[0].summary
    both = broadcast(missing=2, first=4, started_s=1.25, last=True)
    assert [(a.cases, "before it had the queue" in a.summary) for a in both.anomalies] == [(2, False), (2, True)]


def waiting(wait_s: float, *, change: bool = False) -> CheckResult:
    """Thirty messages to one member, one a second; the last one comes so late."""
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    events: list[tuple[float, list[object]]] = [(0.5, ["queues", ["t:a:0"]])]
    if change:
        events.append((39.5, ["queues", ["t:a:0", "t:a:1"]]))
    for n in range(30):
        story.call(10 + n, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask={"properties": {"TAGS": "a"}})
        came = 10.02 + n + (wait_s if n == 29 else 0)
        events += [(came, ["delivered", n + 1, "t:a:0", n, n + 1, 0, "a"]), (came + 0.01, ["done", n + 1, True])]
    events.sort(key=lambda event: event[0])
    story.call(60, "take", None, None, [[k, int((60.01 - at) * S), 1, *rest] for at, (k, *rest) in events], **about)
    return Prompt().check(story.run())


def test_a_calm_group_gets_messages_soon() -> None:
    """Just within the limit is silent, just beyond it is found; a change of queues in between excuses it."""
    assert waiting(1.9).verdict == Verdict.VALID
    assert waiting(1.9).stats["max_ms"] < 2000
    late = waiting(2.1)
    assert [(a.name, a.cases) for a in late.anomalies] == [("slow-to-group", 1)]
    excused = waiting(2.1, change=True)
    assert excused.verdict == Verdict.VALID
    assert [(e.rule, e.used) for e in excused.excuses] == [("slow-to-group", 1)]
    # Six of the first seconds, which begin with the member's first delivery, and the late one.
    assert (excused.stats["disturbed"], late.stats["disturbed"]) == (7, 6)
    assert not late.excuses, "those six were in time"


def skipped(*, holds: bool, end_s: float | None = None, seen: Sequence[int] = (0, 2)) -> CheckResult:
    """A message that failed at 30 s, and then each 30 s later until the last delivery. seen: the numbers of its
    attempts. end_s: the time at which another member was killed; None: it was not.
    """
    story = TimedStory()
    properties = {"TAGS": "a", "fails": str(len(seen) - 1)}
    story.call(0.1, "join", None, None, "m1-1", group="g", member="m1")
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": properties})
    calls: list[tuple[float, str, str, list[list[object]]]] = []
    for n, attempt in enumerate(seen, 1):
        done = ["done", S // 2, 1, n, n == len(seen)]
        calls.append((30.0 * n + 1, "take", "m0", [["delivered", S, 1, n, "t:a:0", 0, 1, attempt, "a"], done]))
    if end_s is not None:
        calls.append((end_s, "crash", "m1", []))
    for at, f, member, value in sorted(calls):
        story.call(at, f, None, None, value, group="g", member=member)
    story.call(200, "dead-letters", "%DLQ%g:a:0", 0, [], done=True)
    return Retried(16, delays=False, holds=holds).check(story.run())


def test_a_pop_whose_answer_is_lost_counts_as_an_attempt() -> None:
    """Seen on real servers. Without a fault and the end of a member, a number that is left out is a violation."""
    for result in (skipped(holds=True, end_s=40), skipped(holds=False)):
        assert [(a.name, a.cases) for a in result.anomalies] == [("attempt-skipped", 1)]
    excused = skipped(holds=False, end_s=40)
    assert excused.verdict == Verdict.VALID
    assert [(e.rule, e.used) for e in excused.excuses] == [("attempt-skipped", 1)]


@pytest.mark.parametrize(
    ("seen", "end_s", "found"),
    [
        ((0, 2), 10.5, False),
        ((0, 2), 9.5, True),
        ((0, 2), 60.5, True),
        ((0, 1, 3), 70, False),
        ((0, 1, 3), 40.5, False),
        ((0, 1, 3), 35, True),
        ((0, 2, 2), 45, False),
    ],
)
def test_a_lost_pop_is_one_of_a_member_that_ended_shortly_before(
    seen: Sequence[int], end_s: float, found: bool
) -> None:
    """A member's open poll takes messages for 20 s after its end. An end before the attempt before excuses nothing."""
    result = skipped(holds=False, end_s=end_s, seen=seen)
    assert [(a.name, a.cases) for a in result.anomalies] == ([("attempt-skipped", 1)] if found else [])
    assert [(e.rule, e.used) for e in result.excuses] == ([] if found else [("attempt-skipped", 1)])


def again(
    after_s: float,
    key: str,
    offset: int,
    life: int = 1,
    holds: bool = True,
    first: int | None = None,
    level: int = 0,
    fault: bool = False,
    killed: str = "",
) -> CheckResult:
    """A message of `t:a:0` that failed as attempt 0 and came again so much later, as attempt 1, whose delay is 10 s.

    first  the process of a member that had failed it a second earlier. level: the delay level that its consumer named.
    killed: the member that is killed half a second after the failure.
    """
    story = TimedStory()
    properties = {"TAGS": "a", "fails": "1", **({"level": str(level)} if level else {})}
    for member in ("m0", "m1"):
        story.call(0.1, "join", None, None, f"{member}-1", group="g", member=member)
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": properties})
    if fault:
        story.fault(2.1, 4, "n1")
    for at, number, process, queue, place, ok in (
        (2.0, 1, 1, "t:a:0", 0, False),
        (2.5 + after_s, 2, life, key, offset, True),
    ):
        events = [
            ["delivered", S, process, number, queue, place, 1, number - 1, "a"],
            ["done", S // 2, process, number, ok],
        ]
        story.call(at + 1, "take", None, None, events, group="g", member="m0" if number == 1 or not killed else "m1")
    if killed:
        story.call(3.05, "crash", None, None, [], group="g", member=killed)
    if first is not None:
        earlier = [["delivered", S, first, 9, "t:a:0", 0, 1, 0, "a"], ["done", S // 2, first, 9, False]]
        story.call(2, "take", None, None, earlier, group="g", member="m0")
    story.call(40, "dead-letters", "%DLQ%g:a:0", 0, [], done=True)
    return Retried(16, holds=holds, late_s=10 if holds else 20).check(story.run())


def test_a_message_that_no_broker_took_back_is_tried_again_by_its_process() -> None:
    """Seen on real servers: a send-back that fails leaves the message with its process, for five seconds. Anything
    sooner, of another process, or of the broker's retry topic has the broker's delay, and so has a pop.
    """
    kept = again(5.2, "t:a:0", 0)
    assert kept.verdict == Verdict.VALID
    assert [(e.rule, e.used) for e in kept.excuses] == [("retried-early", 1)]
    other = again(5.2, "t:a:0", 0, life=1, first=7)
    assert (other.verdict, [e.used for e in other.excuses]) == (Verdict.VALID, [1])
    late = again(10.2, "%RETRY%g:a:0", 7)
    assert (late.verdict, late.excuses) == (Verdict.VALID, [])
    for result in (
        again(3.5, "t:a:0", 0),
        again(5.2, "t:a:0", 0, life=2),
        again(5.2, "t:a:0", 3),
        again(5.2, "%RETRY%g:a:0", 0),
        again(5.2, "t:a:0", 0, holds=False),
    ):
        assert [(a.name, a.cases) for a in result.anomalies] == [("retried-early", 1)]


def test_a_delay_level_that_its_consumer_named_counts() -> None:
    """Level 2 is 5 s, level 4 is 30 s. In a fault, the library may send it again itself, with the broker's 10 s."""
    retry = "%RETRY%g:a:0"
    assert again(4.2, retry, 0, level=2).verdict == again(29.2, retry, 0, level=4).verdict == Verdict.VALID
    soon = again(8.8, retry, 0, level=4, fault=True)
    for early in (again(3.8, retry, 0, level=2), again(28.8, retry, 0, level=4), soon):
        assert [(a.name, a.cases) for a in early.anomalies] == [("retried-early", 1)]
    anew = again(9.2, retry, 0, level=4, fault=True)
    assert (anew.verdict, [(e.rule, e.used) for e in anew.excuses]) == (Verdict.VALID, [("retried-early", 1)])


@pytest.mark.parametrize(
    ("late_s", "holds", "fault", "found"),
    [
        (9.4, True, False, 0),
        (10.2, True, False, 1),
        (10.2, True, True, 0),
        (19.4, False, False, 0),
        (20.2, False, False, 1),
    ],
)
def test_a_message_that_failed_comes_again_soon_after_its_delay(
    late_s: float, holds: bool, fault: bool, found: int
) -> None:
    """apache/rocketmq#6681: nobody woke the long poll for it, and it came up to 15 s late. A fault excuses that."""
    result = again(10 + late_s, "%RETRY%g:a:0", 0, holds=holds, fault=fault)
    assert [(a.name, a.cases) for a in result.anomalies] == [("retried-late", 1)] * found
    assert [(e.rule, e.used) for e in result.excuses] == [("retried-late", 1)] * fault


def stuck(
    again_s: float | None, *, worked_s: float = 150, fault: bool = False, reset: float | None = None
) -> CheckResult:
    """A message that its listener keeps from 2 s on, of a consumer with a timeout of 60 s."""
    story = TimedStory()
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {"TAGS": "a", "stuck": "150000"}})
    if fault:
        story.fault(50, 51, "n1")
    if reset is not None:
        story.call(reset, "reset", "t:a:0", 0, {"t:a:0": 0}, group="g", node="n1", to="offset")
    events = [(2.0, ["delivered", 1, "t:a:0", 0, 1, 0, "a"]), (2 + worked_s, ["done", 1, True])]
    if again_s is not None:
        events += [(2 + again_s, ["delivered", 2, "%RETRY%g:a:0", 0, 1, 1, "a"]), (2.1 + again_s, ["done", 2, True])]
    events.sort(key=lambda event: float(str(event[0])))
    shown = [[kind, int((200 - at) * S), 1, *rest] for at, (kind, *rest) in events]
    story.call(199.99, "take", None, None, shown, group="g", member="m0")
    return TimedOut(60).check(story.run())


def test_a_message_whose_listener_does_not_return_comes_again() -> None:
    """Within twice the timeout, the delay of the retry, and 10 s; a listener that returns in time proves nothing."""
    good = stuck(139.5)
    assert (good.verdict, good.stats["longest_s"]) == (Verdict.VALID, 139.5)
    for late in (stuck(140.5), stuck(None)):
        assert [(a.name, a.cases) for a in late.anomalies] == [("timeout-ignored", 1)]
    assert stuck(None, worked_s=139).verdict == Verdict.UNKNOWN
    for excused in (stuck(None, fault=True), stuck(None, reset=100)):
        assert (excused.verdict, [(e.rule, e.used) for e in excused.excuses]) == (
            Verdict.VALID,
            [("timeout-ignored", 1)],
        )
    assert [a.name for a in stuck(None, reset=145).anomalies] == ["timeout-ignored"], "it was due at 142 s"


@pytest.mark.parametrize(
    ("type_", "since", "stopped"), [("ok", 24, True), ("ok", 26, False), ("info", 26, True), ("info", 5, False)]
)
def test_a_reset_stops_members_for_a_while(type_: OpType, since: float, stopped: bool) -> None:
    """One that was acknowledged at 10 s; one without an answer may happen at any time after its request."""
    story = TimedStory()
    story.call(9.99, "reset", "t:a:0", 0, {"t:a:0": 0}, type_=type_, group="g", node="n1", to="offset")
    resets = MemberResets(story.run().history)
    assert resets.stopped(int(since * S), int((since + 4) * S)) == stopped


def buried(results: Sequence[bool]) -> CheckResult:
    """A message none of whose attempts fails by itself has these results, and is a dead letter; one more attempt is
    allowed.
    """
    story = TimedStory()
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {"TAGS": "a"}})
    for n, ok in enumerate(results):
        events = [["delivered", S, 1, n + 1, "%RETRY%g:a:0" if n else "t:a:0", 0, 1, n, "a"],
                  ["done", S // 2, 1, n + 1, ok]]  # fmt: skip
        story.call(2 + 12 * n, "take", None, None, events, group="g", member="m0")
    story.call(40, "dead-letters", "%DLQ%g:a:0", 0, [[0, 1]], done=True)
    return Retried(1).check(story.run())


def test_a_message_may_fail_with_others_of_its_batch() -> None:
    """A listener that gets several messages fails all behind the first one: then its last attempt was reported."""
    assert [a.name for a in buried([False, False]).anomalies] == []
    assert [a.name for a in buried([False]).anomalies] == ["dead-lettered-early"]
    assert [a.name for a in buried([False, True]).anomalies] == ["dead-lettered-early"]


@pytest.mark.parametrize(("fault", "holds"), [(True, False), (True, True), (False, False)])
def test_the_delay_of_what_was_popped_is_a_request(fault: bool, holds: bool) -> None:
    """It may get lost in a fault; then the message comes again at the end of its invisible duration."""
    result = again(4, "%RETRY%g:a:0", 0, holds=holds, fault=fault)
    excused = fault and not holds
    assert [(a.name, a.cases) for a in result.anomalies] == ([] if excused else [("retried-early", 1)])
    assert [(e.rule, e.used) for e in result.excuses] == ([("retried-early", 1)] if excused else [])


@pytest.mark.parametrize(("killed", "found"), [("m0", False), ("m1", True)])
def test_a_request_for_a_delay_dies_with_its_own_process(killed: str, found: bool) -> None:
    """m0 failed the message: the end of another member excuses nothing."""
    result = again(4, "%RETRY%g:a:0", 0, holds=False, killed=killed)
    assert [(a.name, a.cases) for a in result.anomalies] == [("retried-early", 1)] * found
    assert [(e.rule, e.used) for e in result.excuses] == [("retried-early", 1)] * (not found)


def changed(*, again: float, mode: float | None, type_: OpType = "ok", then: float | None = None) -> CheckResult:
    """A message that one member finished at 2 s comes to the other one `again`; the mode of the group is changed."""
    story = TimedStory()
    for at, member in ((0.1, "m0"), (0.2, "m1")):
        story.call(at, "join", None, None, f"{member}-1", group="g", member=member)
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {}})
    for at, kind in ((mode, type_), (then, "ok")):
        if at is not None:
            story.call(at, "mode", None, "POP", "POP", kind, group="g")  # type: ignore[arg-type]
    for member, start in (("m0", 2.0), ("m1", again)):
        began = int((300 - start) * S)
        events = [["delivered", began, 1, 1, "t:a:0", 0, 1, 0, None], ["done", began - S // 100, 1, 1, True]]
        story.call(300, "take", None, None, events, group="g", member=member)
    shown = {"min": 0, "max": 1, "next": 1, "done": True, "phase": "final", "node": "n1"}
    story.call(301, "replica-read", "t:a:0", 0, [[0, 1]], **shown)
    return Delivered(holds=False, quiet_s=10).check(story.run())


def test_a_change_of_the_mode_may_bring_messages_again_for_a_while() -> None:
    """Counted for 60 s; for longer if not every replica took it. Without a change nothing brings them again."""
    for result in (
        changed(again=5, mode=4),
        changed(again=60, mode=4),
        changed(again=150, mode=4, type_="info"),
        changed(again=150, mode=4, type_="info", then=100),
    ):
        assert result.verdict == Verdict.VALID
        assert [(e.rule, e.used) for e in result.excuses] == [("redelivered", 1)]
        assert "changed the mode of the group" in result.excuses[0].why
    for result in (
        changed(again=5, mode=None),
        changed(again=5, mode=6),
        changed(again=66, mode=4),
        changed(again=5, mode=4, type_="fail"),
        changed(again=170, mode=4, type_="info", then=100),
    ):
        assert [(a.name, a.cases) for a in result.anomalies] == [("redelivered-to-holder", 1)]


def without_queues(
    again: float, *, to: str = "m0", leaves: float | None = None, fault: float | None = None
) -> CheckResult:
    """Members that report no queues: the only message comes a second time, to one that had finished it, or another."""
    story = TimedStory()
    for member in ("m0", "m1", "m2"):
        story.call(1, "join", None, None, f"{member}-1", group="g", member=member)
    if leaves is not None:
        story.call(leaves, "leave", None, None, [], group="g", member="m2")
    if fault is not None:
        story.fault(fault, fault + 1, "n1")
    story.call(2, "send", "t:a:0", 1, [0, 1], node="n1")
    events: dict[str, list[tuple[float, list[Any]]]] = {m: [(1.1, ["started", m])] for m in ("m0", "m1", "m2")}
    for n, (member, at) in enumerate([("m0", 100.0), (to, again)], 1):
        events[member] += [(at, ["delivered", n, "t:a:0", 0, 1, 0, None]), (at + 0.1, ["done", n, True])]
    for member, of in events.items():
        take = 30.0 if member == "m2" else 300.0
        shown = [[kind, int((take + 0.01 - at) * S), 1, *rest] for at, (kind, *rest) in of]
        story.call(take, "take", None, None, shown, group="g", member=member)
    shown_at = {"min": 0, "max": 1, "next": 1, "done": True, "phase": "final", "node": "n1"}
    story.call(301, "replica-read", "t:a:0", 0, [[0, 1]], **shown_at)
    return Delivered(quiet_s=10, commits=False).check(story.run())


def test_without_reports_of_queues_a_message_comes_again_only_after_a_change() -> None:
    """Nobody knows who had the queue; but without a change of the members and without a fault it stays where it is."""
    for result in (
        without_queues(110, leaves=80),
        without_queues(110, to="m1", leaves=80),
        without_queues(110, leaves=41),
        without_queues(110, fault=105),
        without_queues(110, to="m1", fault=60),
    ):
        assert result.verdict == Verdict.VALID, result.reason
        assert [(e.rule, e.used) for e in result.excuses] == [("redelivered", 1)]
    for to, name in (("m0", "redelivered-to-holder"), ("m1", "redelivered-late")):
        for result in (
            without_queues(110, to=to),
            without_queues(110, to=to, leaves=120),
            without_queues(110, to=to, fault=120),
            without_queues(110, to=to, leaves=39),
        ):
            assert [(a.name, a.cases) for a in result.anomalies] == [(name, 1)]


def killed(*, acking: bool, got: bool = True, hidden_s: float = 0) -> CheckResult:
    """A message that was popped by a process that was killed at 4 s, and that never comes again although a member is
    there until 90 s. got: the process had reported it.
    """
    story = TimedStory()
    story.call(0.1, "join", None, None, "m0-1", group="g", member="m0")
    story.call(0.2, "join", None, None, "m1-1", group="g", member="m1")
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {}})
    events: list[list[object]] = [["delivered", S, 1, 1, "t:a:0", 0, 1, 0, None]]
    events += [["acking", S // 2, 1, 1]] if acking else []
    other = [["delivered", S, 1, 2, "t:a:1", 0, 9, 0, None], ["done", S, 1, 2, True]]
    story.call(4, "crash", None, None, events if got else other, group="g", member="m0")
    story.call(90, "take", None, None, [], group="g", member="m1")
    shown = {"min": 0, "max": 1, "next": 1, "done": True, "phase": "final", "node": "n1"}
    story.call(91, "replica-read", "t:a:0", 0, [[0, 1]], **shown)
    return Delivered(holds=False, quiet_s=10, hidden_s=hidden_s).check(story.run())


def test_a_message_that_may_have_been_acknowledged_need_not_come_again() -> None:
    """The outcome of its acknowledgement died with its process: counted, and no violation. Without one it is one."""
    unsure = killed(acking=True)
    assert (unsure.verdict, [(e.rule, e.used) for e in unsure.excuses]) == (Verdict.VALID, [("retry-lost", 1)])
    lost = killed(acking=False).anomalies
    assert [(a.name, a.cases) for a in lost] == [("retry-lost", 1)]
    assert lost[0].summary.startswith(
        "1 messages were popped, failed, and did not come again in time: message 1 was not"
    )


@pytest.mark.parametrize(("got", "name"), [(True, "retry-lost"), (False, "undelivered")])
def test_what_a_proxy_may_still_hide_for_a_killed_process_is_not_lost(got: bool, name: str) -> None:
    """So long after the end of the process, although the group has got nothing for longer than it needs."""
    over = killed(acking=False, got=got, hidden_s=85)
    assert [(a.name, a.cases) for a in over.anomalies] == [(name, 1)]
    still = killed(acking=False, got=got, hidden_s=87)
    assert still.anomalies == []
    if got:
        assert [(e.rule, e.used) for e in still.excuses] == [("retry-lost", 1)]
    else:
        assert still.verdict == Verdict.UNKNOWN
        assert (
            "a member ended 86.0 s before that of the group, and its proxy may hide messages for 87 s" in still.reason
        )


def test_the_end_of_a_process_may_take_several_ops() -> None:
    """It worked at most until the first one began. A take after that does not prolong the time of the group."""
    story = TimedStory()
    story.call(0.1, "join", None, None, "m0-1", group="g", member="m0")
    story.call(50, "take", None, None, [], group="g", member="m0")
    story.call(60, "leave", None, None, None, "info", group="g", member="m0", took=4.5)
    event = ["delivered", S, 1, 1, "t:a:0", 0, 1, 0, None]
    story.call(65, "leave", None, None, [event], group="g", member="m0", took=3)
    story.call(69, "take", None, None, [], group="g", member="m0")
    run = story.run()
    told = takes(run.history)
    assert (told.ends, told.until) == ({Life("m0", 1): 60 * S}, 50 * S)
    assert [delivery.start for delivery in told.deliveries] == [67 * S]
    (presence,) = presences(run.history, told)
    assert (presence.ending, presence.ended) == (60 * S, 68 * S)


def behind(first_wait_s: float) -> CheckResult:
    """Ten messages within two seconds that all come when the first one does, and then some that come at once."""
    story = TimedStory()
    events: list[tuple[float, list[object]]] = [(0.5, ["queues", ["t:a:0"]])]
    for n in range(30):
        at = 10 + n * 0.2 if n < 10 else 40 + n
        story.call(at, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask={"properties": {"TAGS": "a"}})
        came = max(at + 0.02, 10.02 + first_wait_s) if n < 10 else at + 0.02
        events += [(came, ["delivered", n + 1, "t:a:0", n, n + 1, 0, "a"]), (came + 0.01, ["done", n + 1, True])]
    events.append((0.6, ["delivered", 99, "t:a:1", 0, 99, 0, "a"]))  # it works from the start
    events.sort(key=lambda event: event[0])
    shown = [[k, int((80.01 - at) * S), 1, *rest] for at, (k, *rest) in events]
    story.call(80, "take", None, None, shown, group="g", member="m0")
    return Prompt().check(story.run())


def behind_failures(late_s: float, *, pause_s: float = 1.0, failures: int = 3) -> CheckResult:
    """An orderly queue, as in a run: three messages within 0.3 s fail once each, and a second passes until each one is
    tried again. The next message was sent 0.34 s after the first of them, and comes so long after all of this.
    """
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    events: list[tuple[float, list[object]]] = [(0.5, ["queues", ["t:a:0"]])]
    now = 0.0
    for n in range(30):
        at = {10: 21.31, 11: 21.46, 12: 21.59, 13: 21.65}.get(n, 10.0 + n * 1.1 + (10 if n > 13 else 0))
        story.call(at, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask={"properties": {"TAGS": "a"}})
        now = max(now, at) + 0.001 + (late_s if n == 13 else 0)
        if 10 <= n < 10 + failures:
            events += [
                (now, ["delivered", n + 101, "t:a:0", n, n + 1, 0, "a"]),
                (now + 0.001, ["done", n + 101, False]),
            ]
            now += pause_s + 0.001
        attempt = int(10 <= n < 10 + failures)
        events += [(now, ["delivered", n + 1, "t:a:0", n, n + 1, attempt, "a"]), (now + 0.001, ["done", n + 1, True])]
    events.sort(key=lambda event: event[0])
    story.call(80, "take", None, None, [[k, int((80.01 - at) * S), 1, *rest] for at, (k, *rest) in events], **about)
    return Prompt(1.0).check(story.run())


def test_a_pause_after_a_failure_is_no_wait_for_the_broker() -> None:
    """Seen in a run of 5.5.0 without a fault: a message came 2.7 s late to a calm group, behind three that failed. What
    is late without the pauses, or behind a longer pause, is found.
    """
    good = behind_failures(0.0)
    assert good.verdict == Verdict.VALID, good.reason
    assert [(e.used, e.bound_s) for e in good.excuses if "failed" in e.why] == [(1, 2.0)]
    assert good.stats["max_ms"] < 100
    near = behind_failures(1.9)
    assert near.verdict == Verdict.VALID, near.reason
    far = behind_failures(2.1)
    assert [(a.name, a.cases) for a in far.anomalies] == [("slow-to-group", 1)], far.reason
    alone = behind_failures(2.1, failures=0)
    assert [(a.name, a.cases) for a in alone.anomalies] == [("slow-to-group", 1)], alone.reason
    assert behind_failures(0.0, pause_s=4.0).verdict == Verdict.INVALID, "a pause of one second took four"


def test_a_stall_shows_by_its_first_messages_and_a_backlog_does_not() -> None:
    """398 messages behind a fault were called late, one by one; those that wait behind others are not judged."""
    assert behind(0.1).verdict == Verdict.VALID
    late = behind(8)
    assert [(a.name, a.cases) for a in late.anomalies] == [("slow-to-group", 3)], "acknowledged within half a second"
    assert [(e.rule, e.used) for e in late.excuses] == [("slow-to-group", 7)]


def shared_queues(
    right_s: float,
    *,
    twice: bool = False,
    fault: float | None = None,
    unnamed_s: float = 0.0,
    ghost_s: float = 0.0,
    proxies: bool = False,
    master_until: float | None = None,
    doubled: float | None = None,
) -> CheckResult:
    """Two members and two queues; m1 crashes at 20 s, and m0 has its queue so long after that.

    twice    m0 has it from the start, and gives it up so long after m1's start. fault: a fault of a second ends then.
    unnamed_s, ghost_s   so long after the start of m0, and the end of m1, the broker has not noticed.
    proxies  the members have proxies: that of n2 has not noticed, and that of n1 notices at once.
    master_until   the broker reports to be master until then, and later does not answer; None: it reports nothing.
    doubled  the proxy of n2 names m0 twice at this time; None: it never does.
    """
    story = TimedStory()
    crash, start = 20.0, 1.0
    for member, begin in (("m0", start), ("m1", start)):
        story.call(begin - 0.5, "join", None, None, f"{member}-1", group="g", member=member)
    ends = 90.0
    for n, key in enumerate(("t:a:0", "t:a:1")):
        story.call(2 + n, "send", key, n + 1, [0, n + 1], node="n1", ask={"properties": {}})
    both, one, other = ["t:a:0", "t:a:1"], ["t:a:0"], ["t:a:1"]
    m0: list[tuple[float, list[object]]] = [(start, ["started", "c@m0-1"]), (start, ["queues", both if twice else one])]
    m1: list[tuple[float, list[object]]] = [(start, ["started", "c@m1-1"]), (start, ["queues", other])]
    if twice:
        m0.append((start + right_s, ["queues", one]))
    else:
        story.call(crash, "crash", None, None, [], group="g", member="m1")
        m0.append((crash + 0.01 + right_s, ["queues", both]))
    if fault is not None:
        story.fault(fault - 1, fault, "n1")
    for at in range(3, 90, 2):
        names = ["c@m0-1"] if at >= start + unnamed_s else []
        names += ["c@m1-1"] if twice or at <= crash + ghost_s else []
        if proxies:
            live = ["c@m0-1", *(["c@m1-1"] if twice or at <= crash else [])]
            story.call(at, "named-members", None, None, live, ask={"proxy": "n1"}, group="g", node="n1")
            story.call(at, "named-members", None, None, names, ask={"proxy": "n2"}, group="g", node="n2")
        else:
            story.call(at, "named-members", "t:a:0", None, names, group="g", node="n1")
    if doubled is not None:
        story.call(doubled, "named-members", None, None, ["c@m0-1"] * 2, ask={"proxy": "n2"}, group="g", node="n2")
    for member, events in (("m0", m0), ("m1", m1)):
        at = ends if member == "m0" or twice else 15.0
        shown = [[kind, int((at + 0.01 - when) * S), 1, *rest] for when, (kind, *rest) in events]
        story.call(at, "take", None, None, shown, group="g", member=member)
    roles = [] if master_until is None else ["leader" if s <= master_until else "silent" for s in range(90)]
    seen = [Observation(s * S, "n1", role, extra={"broker_name": "a"}) for s, role in enumerate(roles)]
    return Groups().check(story.run(observations=seen))


@pytest.mark.parametrize(
    ("name", "how", "near", "far"),
    [
        ("queue-unowned", {}, {"right_s": 24.5}, {"right_s": 25.5}),
        ("queue-owned-twice", {"twice": True}, {"right_s": 24.5}, {"right_s": 25.5}),
        ("live-member-unnamed", {"right_s": 0.1}, {"unnamed_s": 25.0}, {"unnamed_s": 30.0}),
        ("dead-member-named", {"right_s": 0.1}, {"ghost_s": 25.0}, {"ghost_s": 30.0}),
    ],
)
def test_a_group_agrees_within_its_time(name: str, how: dict[str, Any], near: Any, far: Any) -> None:
    """Just within the limit is silent, just beyond it is found, and a fault shortly before excuses it, counted."""
    good = shared_queues(**how, **near)
    assert good.verdict == Verdict.VALID, good.reason
    assert not good.excuses
    bad = shared_queues(**how, **far)
    assert [(a.name, a.cases) for a in bad.anomalies] == [(name, 1)], bad.reason
    assert bad.anomalies[0].limit_s == 25
    excused = shared_queues(**how, **far, fault=15.0)
    assert excused.verdict == Verdict.VALID, excused.reason
    assert [(e.rule, e.used) for e in excused.excuses] == [(name, 1)]


def test_each_proxy_is_judged_by_its_own_answers() -> None:
    """A proxy that named a dead member, beside one that did not: members that asked it left queues to the dead one."""
    good = shared_queues(0.1, ghost_s=24.0, proxies=True)
    assert (good.verdict, good.excuses, good.stats["answers"]) == (Verdict.VALID, [], 88), good.reason
    bad = shared_queues(0.1, ghost_s=60.0, proxies=True)
    assert [(a.name, a.cases) for a in bad.anomalies] == [("dead-member-named", 1)], bad.reason
    assert "the proxy of n2 named m1 (process 1)" in bad.anomalies[0].summary
    missing = shared_queues(0.1, unnamed_s=30.0, proxies=True)
    assert [(a.name, a.cases) for a in missing.anomalies] == [("live-member-unnamed", 1)], missing.reason


@pytest.mark.parametrize("at", [None, 10.0, 30.0])
def test_a_queue_without_an_owner_comes_with_the_proxy_that_named_a_member_twice(at: float | None) -> None:
    """The queue has no owner from 20 s on: an answer before that says nothing about it."""
    bad = shared_queues(60.0, proxies=True, doubled=at)
    assert [(a.name, a.cases) for a in bad.anomalies] == [("queue-unowned", 1)], bad.reason
    assert ("the proxy of n2 named c@m0-1 twice at 00:30.0" in bad.anomalies[0].summary) == (at == 30.0)


def test_a_fault_grants_heartbeats_and_no_more() -> None:
    """The fault ends at 21 s; with a heartbeat's 30 s and the limit, the queue must have its owner by 76 s."""
    assert shared_queues(54.0, fault=21.0).verdict == Verdict.VALID
    assert [a.name for a in shared_queues(57.0, fault=21.0).anomalies] == ["queue-unowned"]


def test_without_any_master_nobody_can_share_queues() -> None:
    """Seen after a failure of power: no broker came back, and two queues of a dead member stayed without an owner."""
    lasting = shared_queues(80.0, ghost_s=80.0, master_until=44.0)
    assert lasting.verdict == Verdict.UNKNOWN, lasting.reason
    bad = shared_queues(80.0, master_until=47.0)
    assert [a.name for a in bad.anomalies] == ["queue-unowned"], bad.reason
    assert shared_queues(26.0, master_until=90.0).verdict == Verdict.INVALID, "there is a master"


def test_a_queue_without_owner_at_the_end_is_not_called_good() -> None:
    """A drain that ends before the limit decides nothing."""
    result = Groups().check(Group(3, bug=Bug.STUCK, end_s=28.0).run())
    assert result.verdict == Verdict.UNKNOWN, result.reason
    assert "without the right owners at the end" in result.reason


def test_a_group_that_reports_nothing_is_not_called_good() -> None:
    story = TimedStory()
    story.call(0.1, "join", None, None, "m0-1", group="g", member="m0")
    story.call(3, "take", None, None, [["started", S, 1, "c@m0-1"]], group="g", member="m0")
    assert Groups().check(story.run()).verdict == Verdict.UNKNOWN
    assert Groups(named=False).check(story.run()).verdict == Verdict.VALID, "an application need not know its queues"


def at_rest(
    committed: int, *, crash: bool = False, fault: bool = False, undone: int | None = None, master: str | None = None
) -> CheckResult:
    """Ten messages of one queue, finished by one member, which leaves, or crashes, at 40 s; this offset afterwards.

    fault    one strikes a second before that. undone: the offset of a message that the member never finished.
    master   the node that is master at the end; n1 is asked.
    """
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    events: list[tuple[float, list[object]]] = [(0.5, ["queues", ["t:a:0"]])]
    for n in range(10):
        story.call(1 + n, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask={"properties": {"TAGS": "a"}})
        events.append((1.1 + n, ["delivered", n + 1, "t:a:0", n, n + 1, 0, "a"]))
        if n != undone:
            events.append((1.2 + n, ["done", n + 1, True]))
    story.call(39, "take", None, None, [[k, int((39.01 - at) * S), 1, *rest] for at, (k, *rest) in events], **about)
    if fault:
        story.fault(38, 39.5, "n1")
    story.call(40, "crash" if crash else "leave", None, None, [], **about)
    story.call(41, "committed", "t:a:0", None, committed, group="g", node="n1")
    story.call(41, "consume-stats", "t:a:0", None, [["t:a:0", 10, committed]], group="g", node="n1")
    shown = {"min": 0, "max": 10, "next": 10, "done": True, "phase": "final", "node": "n1"}
    story.call(42, "replica-read", "t:a:0", 0, [[n, n + 1] for n in range(10)], **shown)
    seen = [] if master is None else [Observation(at * S, master, "leader", 1) for at in range(0, 43, 2)]
    return Lag().check(story.run(observations=seen))


def test_a_broker_that_is_master_no_more_is_no_witness() -> None:
    """Seen on real servers: a client that had not noticed the new master asked the old one, which knew no offset."""
    assert at_rest(0, master="n1").verdict == Verdict.INVALID
    assert at_rest(0, master="n2").verdict == Verdict.UNKNOWN


def test_what_was_finished_is_committed() -> None:
    """An offset short of it is found; one that stops at an unfinished message is right; a crash or a fault excuses."""
    assert at_rest(10).verdict == Verdict.VALID
    assert at_rest(10).stats["lag"] == 0
    late = at_rest(9)
    assert [(a.name, a.cases) for a in late.anomalies] == [("committed-behind", 1)]
    assert at_rest(4, undone=4).verdict == Verdict.VALID
    assert [a.name for a in at_rest(3, undone=4).anomalies] == ["committed-behind"]
    for excused in (at_rest(9, crash=True), at_rest(9, fault=True)):
        assert excused.verdict == Verdict.VALID
        assert [(e.rule, e.used) for e in excused.excuses] == [("committed-behind", 1)]


def test_figures_that_were_not_asked_for_prove_nothing() -> None:
    story = TimedStory()
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {}})
    shown = {"min": 0, "max": 1, "next": 1, "done": True, "phase": "final", "node": "n1"}
    story.call(42, "replica-read", "t:a:0", 0, [[0, 1]], **shown)
    result = Lag().check(story.run())
    assert result.verdict == Verdict.UNKNOWN
    assert "not every queue was asked for" in result.reason


def test_silent_about_good_pops() -> None:
    """Renewals, second acknowledgements and deliveries after the end of a duration are no violation."""
    seen = dict.fromkeys(("renewed", "expired", "acked_again", "refused"), 0)
    for seed in range(effort(64, 4)):
        run = pops.Pops(seed).run()
        judges = Invisible(20), Delivered(holds=False, quiet_s=10), Progress(15, holds=False)
        for result in (judge.check(run) for judge in judges):
            assert result.verdict == Verdict.VALID, (seed, result.reason, [a.summary for a in result.anomalies])
        for name in seen:
            seen[name] += Invisible(20).check(run).stats[name]
    assert all(seen.values()), seen


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        (pops.Bug.EAGER, "leased-twice"),
        (pops.Bug.DEAF, "leased-twice"),
        (pops.Bug.LOST, "never-returned"),
        (pops.Bug.ECHO, "acked-redelivered"),
        (pops.Bug.STALL, "queue-stalled"),
    ],
)
def test_finds_planted_bugs_of_pops(bug: pops.Bug, name: str) -> None:
    struck = found = 0
    for seed in range(effort(16, 4)):
        group = pops.Pops(seed, bug)
        run = group.run()
        results = Invisible(20).check(run), Progress(15, holds=False).check(run)
        struck += bool(group.planted)
        found += bool(group.planted) and name in {a.name for result in results for a in result.anomalies}
    assert struck, "the bug was never planted"
    assert found >= struck * 0.75, (struck, found)


def fifo(run: RunRecord) -> dict[str, CheckResult]:
    judges: list[Checker] = [
        Delivered(holds=False, quiet_s=20, in_order=True),
        Ordered(again=16, within=MESSAGE_GROUP, leased=True),
        Retried(16, delays=False, holds=False),
        Invisible(20),
        Progress(20, holds=False, in_order=True),
    ]
    return {judge.name: judge.check(run) for judge in judges}


def test_silent_about_good_pops_in_order() -> None:
    """Members crash, fail messages, lose answers, and leave the rest of a message group alone."""
    excused: dict[tuple[str, str], int] = {}
    attempts = left = 0
    for seed in range(effort(24, 4)):
        run = fifo_pops.FifoPops(seed).run()
        left += len(takes(run.history, popped=True).left)
        for name, result in fifo(run).items():
            if name == "retried":
                assert [a.summary for a in result.anomalies] == [], (seed, result.reason)
                attempts += result.stats["attempts"]
                continue
            assert result.verdict == Verdict.VALID, (seed, name, result.reason, [a.summary for a in result.anomalies])
            for excuse in result.excuses:
                excused[excuse.rule, excuse.why] = excused.get((excuse.rule, excuse.why), 0) + excuse.used
    assert attempts
    assert left
    together = "at-least-once: popped in order with an earlier message of its queue that was not acknowledged in time"
    assert excused["redelivered", together], excused
    assert excused["out-of-order", UNSURE], excused


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        (fifo_pops.Bug.AHEAD, "out-of-order"),
        (fifo_pops.Bug.EAGER, "leased-twice"),
        (fifo_pops.Bug.SKIP, "out-of-order"),
        (fifo_pops.Bug.AGAIN, "redelivered-to-holder"),
        (fifo_pops.Bug.FORGOT, "attempt-skipped"),
        (fifo_pops.Bug.STALL, "queue-stalled"),
    ],
)
def test_finds_planted_bugs_of_pops_in_order(bug: fifo_pops.Bug, name: str) -> None:
    struck = found = 0
    for seed in range(effort(16, 4)):
        group = fifo_pops.FifoPops(seed, bug)
        results = fifo(group.run())
        struck += bool(group.planted)
        found += bool(group.planted) and name in {a.name for result in results.values() for a in result.anomalies}
    assert struck, "the bug was never planted"
    assert found >= struck * 0.5, (struck, found)


def beside(again_s: float, *, hidden_s: float = 10.0, first: str = "left", in_order: bool = True) -> CheckResult:
    """The messages 1 and 2 come to m0; 2 is acknowledged at once, and comes again so long after it. first: what became
    of 1, whose duration is `hidden_s`: `left`, or `done` after 5 s; 2 has 10 s.
    """
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    for n in range(2):
        story.call(1, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask={"properties": {"TAGS": "a"}})
    kind = "left" if first == "left" else "delivered"
    events: list[tuple[float, list[object]]] = [
        (2, [kind, 1, "t:a:0", 0, 1, 0, "a", int(hidden_s * 1000)]),
        (2, ["delivered", 2, "t:a:0", 1, 2, 0, "a", 10_000]),
        (2.1, ["done", 2, True]),
    ]
    events += [(7, ["done", 1, True])] if first == "done" else [(13, ["delivered", 3, "t:a:0", 0, 1, 1, "a", 10_000])]
    events += [(13.1, ["done", 3, True])] if first == "left" else []
    events.append((2 + again_s, ["delivered", 4, "t:a:0", 1, 2, 1, "a", 10_000]))
    events.append((2.1 + again_s, ["done", 4, True]))
    events.sort(key=lambda event: event[0])
    story.call(90, "take", None, None, [[k, int((90.01 - at) * S), 1, *rest] for at, (k, *rest) in events], **about)
    shown = {"min": 0, "max": 2, "next": 2, "done": True, "phase": "final", "node": "n1"}
    story.call(91, "replica-read", "t:a:0", 0, [[0, 1], [1, 2]], **shown)
    return Delivered(holds=False, quiet_s=10, in_order=in_order).check(story.run())


def test_what_was_popped_in_order_comes_again_together() -> None:
    """A message comes again if an earlier one of its pop was not acknowledged, after the end of their duration."""
    good = beside(9.1)
    assert good.verdict == Verdict.VALID, good.reason
    assert [(e.rule, e.used) for e in good.excuses] == [("redelivered", 1)]
    assert beside(9.1, hidden_s=9.1).verdict == Verdict.VALID
    for wrong in (beside(8.9), beside(9.1, hidden_s=8.9), beside(9.1, first="done"), beside(9.1, in_order=False)):
        assert [a.name for a in wrong.anomalies] == ["redelivered-to-holder"]


def test_a_message_without_an_answer_has_the_queue_to_which_it_was_sent() -> None:
    """Its offset was compared with those of the queue that its client had asked."""
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    story.call(1, "send", "t:a:0", 1, 1, "info", ask={"properties": {}})
    story.call(9, "take", None, None, [["delivered", 5 * S, 1, 1, "t:a:1", 4, 1, 0, "a"]], **about)
    (delivery,) = takes(story.run().history, popped=True).deliveries
    assert (delivery.key, delivery.offset) == ("t:a:0", 4)


def popped(
    again_s: float,
    *,
    renewed: bool = False,
    fault: bool = False,
    at: str = "n1",
    acking: bool = False,
    fails: bool = False,
    back_ms: int | None = None,
    granted: bool = True,
    reset: int | None = None,
    reported: str = "t:a:0",
    masters: Sequence[Observation] = (),
) -> CheckResult:
    """A message of t:a:0 with a duration of 10 s, or renewed for 20 s after 5 s, that comes again so long after its
    delivery. fails: its listener fails it then. reported: the queue that its member names. back_ms: another duration,
    requested after a second; granted: with an answer.
    """
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {}})
    events: list[tuple[float, list[object]]] = [(2, ["delivered", 1, reported, 0, 1, 0, "a", 10_000])]
    if renewed:
        events.append((7, ["renewed", 1, True, 20_000]))
    if back_ms is not None:
        events += [(3, ["renewed", 1, granted, back_ms]), (3.1, ["done", 1, False])]
    if acking:
        events.append((3, ["acking", 1]))
    if again_s < 60:
        events.append((2 + again_s, ["delivered", 2, reported, 0, 1, 1, "a", 10_000]))
        events.append((2.1 + again_s, ["done", 2, not fails]))
    if fault:
        story.fault(4, 5, at)
    if reset is not None:
        story.call(3, "reset", "t:a:0", reset, {"t:a:0": reset}, group="g", node="n1", to="offset")
    events.sort(key=lambda event: event[0])
    story.call(90, "take", None, None, [[k, int((90.01 - at) * S), 1, *rest] for at, (k, *rest) in events], **about)
    shown = {"min": 0, "max": 1, "next": 1, "done": True, "phase": "final", "node": "n1"}
    story.call(91, "replica-read", "t:a:0", 0, [[0, 1]], **shown)
    servers = [ServerRecord(node, "broker", group=group) for node, group in (("n1", "a"), ("n3", "b"))]
    servers.append(ServerRecord("n4", "proxy"))
    nodes = {server.node: "10.0.0.1" for server in servers}
    deployed = DeploymentRecord("t", nodes, servers, groups={"a": ["n1"], "b": ["n3"]})
    return Invisible(20).check(story.run(observations=masters, deployment=deployed))


def test_a_message_is_hidden_for_its_duration_and_comes_again() -> None:
    """A second before the end is granted, more is not; a renewal counts; an unknown acknowledgement leaves it open."""
    assert popped(9.1).verdict == popped(24.1, renewed=True).verdict == Verdict.VALID
    for early in (popped(8.9), popped(23.9, renewed=True)):
        assert [(a.name, a.cases) for a in early.anomalies] == [("leased-twice", 1)]
    assert [a.name for a in popped(8.9, fault=True, at="n3").anomalies] == ["leased-twice"], "another broker group"
    for at in ("n4", "c1"):
        assert popped(8.9, fault=True, at=at).verdict == Verdict.VALID, "a proxy, or a node of members"
    excused = popped(8.9, fault=True)
    assert excused.verdict == Verdict.VALID
    assert [(e.rule, e.used) for e in excused.excuses] == [("leased-twice", 1)]
    back = popped(8.9, reset=0)
    assert [(e.rule, e.used, e.why) for e in back.excuses] == [("leased-twice", 1, BACK)]
    assert [a.name for a in popped(8.9, reset=1).anomalies] == ["leased-twice"], "it went past the message"
    assert [(e.rule, e.why) for e in popped(99, reset=1).excuses] == [("never-returned", PAST)]
    assert [a.name for a in popped(99, reset=0).anomalies] == ["never-returned"]
    lost = popped(99)
    assert [(a.name, a.cases) for a in lost.anomalies] == [("never-returned", 1)]


@pytest.mark.parametrize(("old_until", "verdict"), [(7, Verdict.VALID), (8, Verdict.INVALID)])
def test_a_master_may_have_changed_before_anybody_saw_the_next_one(old_until: float, verdict: Verdict) -> None:
    """On a busy machine n2 was master at 76.4 s, was first seen at 79.5 s, and gave messages out at 78.1 s."""
    about = {"broker_name": "a"}
    seen = [Observation(int(at * S), "n1", "leader", 1, extra=about) for at in (0.5, old_until)]
    seen.append(Observation(12 * S, "n2", "leader", 2, extra=about))
    assert popped(5.5, masters=seen).verdict == verdict


def test_a_message_that_is_given_back_comes_again_at_its_new_end() -> None:
    """Not before it, and not later than 20 s after it; without an answer the first or the second duration counts."""
    assert popped(5.1, back_ms=5000).verdict == Verdict.VALID
    assert [a.name for a in popped(4.9, back_ms=5000).anomalies] == ["leased-twice"]
    for lost in (popped(99, back_ms=5000), popped(99, back_ms=5000, granted=False)):
        assert [a.name for a in lost.anomalies] == ["never-returned"]
        assert "ends with the first one" not in lost.anomalies[0].summary
    for ends_ms in (8_981, 9_000, 9_019):
        assert "ends with the first one" in popped(99, back_ms=ends_ms).anomalies[0].summary
    assert "ends with the first one" not in popped(99, back_ms=9_021).anomalies[0].summary
    assert "ends with the first one" not in popped(99).anomalies[0].summary
    for open_ in (popped(5.1, back_ms=5000, granted=False), popped(9.5, back_ms=5000, granted=False)):
        assert open_.verdict == Verdict.VALID, open_.reason
    assert [a.name for a in popped(4.9, back_ms=5000, granted=False).anomalies] == ["leased-twice"]


def test_a_reset_is_looked_up_where_the_message_is() -> None:
    """A gRPC client names the queue that it asked: 63 of 135 messages that a reset brought back were no case of it."""
    back = popped(8.9, reset=0, reported="t:a:1")
    assert [(e.rule, e.used, e.why) for e in back.excuses] == [("leased-twice", 1, BACK)]
    assert [a.name for a in popped(8.9, reset=1, reported="t:a:1").anomalies] == ["leased-twice"]
    assert [a.name for a in popped(99, reset=0, reported="t:a:1").anomalies] == ["never-returned"]
    unsure = popped(99, acking=True)
    assert (unsure.verdict, [(e.rule, e.used) for e in unsure.excuses]) == (Verdict.VALID, [("never-returned", 1)])
    assert Invisible(20).check(Group(1).run()).verdict == Verdict.UNKNOWN, "no pops, no promise"


def test_an_acknowledgement_of_an_earlier_delivery_does_not_count_for_the_last_one() -> None:
    """Sent at 3 s without an answer; the message came again at 12 s and failed, and should have come once more. Of one
    that came again at 7 s nobody knows: the acknowledgement may have been under way.
    """
    lost = popped(10, acking=True, fails=True)
    assert [(a.name, a.cases) for a in lost.anomalies] == [("never-returned", 1)]
    assert [e.why for e in popped(5, acking=True, fails=True).excuses] == [UNSURE]


def test_silent_about_good_requests() -> None:
    """Requests time out, replies are refused, come too late, or come twice: all of it is no violation."""
    seen = dict.fromkeys(("answered", "unanswered", "replies", "refused"), 0)
    for seed in range(effort(96, 12)):
        result = Replies().check(requests.Requests(seed).run())
        assert result.verdict == Verdict.VALID, (seed, result.reason, [a.summary for a in result.anomalies])
        assert not result.excuses, "these runs have no faults"
        for name in seen:
            seen[name] += result.stats[name]
    assert all(seen.values()), seen


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        (requests.Bug.LOST, "reply-lost"),
        (requests.Bug.MIXED, "wrong-reply"),
        (requests.Bug.TWICE, "wrong-reply"),
        (requests.Bug.BOTH, "wrong-reply"),
    ],
)
def test_finds_planted_bugs_of_requests(bug: requests.Bug, name: str) -> None:
    struck = 0
    for seed in range(effort(24, 4)):
        run = requests.Requests(seed, bug)
        found = {a.name: a.cases for a in Replies().check(run.run()).anomalies}
        assert found.get(name, 0) == run.planted, (seed, found)
        assert set(found) <= {name}
        struck += run.planted
    assert struck, "the bug was never planted"


def replied(
    at: float | None,
    *,
    fault: float | None = None,
    news: dict[str, Any] | None = None,
    later: float | None = None,
    marked: bool = True,
    got: int | None = None,
    own: bool = True,
) -> CheckResult:
    """A request at 2 s that waits for 3 s, after one that was answered. at: the time (s) at which a broker acknowledged
    the reply to it. got: the message in the reply that it got. later: its producer reported nothing in time, and
    another send at this time (s) shows `news`. marked: the run shows such news at all.
    """
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    asked = {"properties": {"request": "1"}}
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask=asked, within_ms=3000, reply=1, own=True)
    result: dict[str, Any] = {"unanswered": "RequestTimeoutException"} if got is None else {"reply": got, "own": own}
    result = result if later is None else {"open": True} if marked else {}
    story.call(2, "send", "t:a:0", 2, 2, "info", took=3.5, ask=asked, within_ms=3000, **result)
    events: list[tuple[float, list[object]]] = [(2.1, ["delivered", 1, "t:a:0", 1, 2, 0, "a"])]
    events += [] if at is None else [(at, ["replied", 1, True]), (at, ["done", 1, True])]
    if fault is not None:
        story.fault(fault, fault + 0.5, "n1")
    if later is not None:
        story.call(later, "send", "t:a:0", 3, [3, 3], node="n1", ask={"properties": {}}, **(news or {}))
    story.call(9, "take", None, None, [[k, int((9.01 - t) * S), 1, *rest] for t, (k, *rest) in events], **about)
    return Replies().check(story.run())


def test_a_reply_that_was_acknowledged_in_time_is_owed() -> None:
    """It is owed to a producer that lived; a fault is an excuse only while the request waited."""
    assert [a.name for a in replied(4.9).anomalies] == ["reply-lost"]
    assert [a.name for a in replied(4.9, fault=1).anomalies] == ["reply-lost"], "the fault was over"
    for good in (replied(5.1), replied(None), replied(4.9, got=2)):
        assert (good.verdict, good.excuses) == (Verdict.VALID, [])
    for excused in (replied(4.9, fault=3), replied(4.9, later=8, fault=6.5)):
        assert (excused.verdict, [(e.rule, e.used) for e in excused.excuses]) == (Verdict.VALID, [("reply-lost", 1)])
    for wrong in (replied(4.9, got=1), replied(4.9, got=2, own=False)):
        assert [a.name for a in wrong.anomalies] == ["wrong-reply"]
    assert Replies().check(Group(1).run()).verdict == Verdict.UNKNOWN, "no request, no promise"


def test_silence_of_a_producer_is_looked_up() -> None:
    """A producer that reports nothing has ended, by what a later send shows, or owes a result 2 s after the time of the
    request."""
    for silent in (replied(4.9, later=8), replied(4.9, later=8, news={"ended": [1]})):
        assert [a.name for a in silent.anomalies] == ["reply-lost"], "its process lived on"
    ended = replied(4.9, later=8, news={"ended": [2]})
    unread = replied(4.9, later=6.9)
    unmarked = replied(4.9, later=8, marked=False)
    for excused, why in ((ended, "process ended"), (unread, "no later send"), (unmarked, "no later send")):
        assert (excused.verdict, [e.used for e in excused.excuses]) == (Verdict.VALID, [1])
        assert why in excused.excuses[0].why
    assert [a.name for a in replied(4.9, later=8, news={"late": [[2, None, False]]}).anomalies] == ["reply-lost"]
    assert [a.name for a in replied(4.9, later=8, news={"late": [[2, 1, True]]}).anomalies] == ["wrong-reply"]
    late = replied(4.9, later=8, news={"late": [[2, 2, True]]})
    assert (late.verdict, late.excuses, late.stats["answered"]) == (Verdict.VALID, [], 2)
