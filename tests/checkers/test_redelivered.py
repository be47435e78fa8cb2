# SPDX-License-Identifier: Apache-2.0
"""A message that comes again after the process which finished it has gone: excused only for what the run shows."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.messages.consuming.delivered import Delivered
from results.deployment import DeploymentRecord, ServerRecord, Traits
from results.record import Observation
from results.verdict import CheckResult, Verdict
from tests.stories import S, TimedStory

QUEUE = "t:a:0"
END_S = 200.0

Events = dict[str, list[tuple[float, list[Any]]]]


def judged(
    events: Events,
    *,
    holds: bool,
    crash: float | None = None,
    fault: float | None = None,
    master: float | None = None,
    off: float | None = None,
    commits: bool = True,
    at: str = "n1",
    acting: bool = False,
) -> CheckResult:
    """Two messages in one queue, and the reports of members (s, event). m0 crashes, a fault of a second begins, n2
    becomes master, or an administrator switches the group off for a second, at these times (s). at: the node of the
    fault; n1 and n2 have the queue's broker group. acting: a slave may act as the master.
    """
    story = TimedStory()
    for member in events:
        story.call(0.1, "join", None, None, f"{member}-1", group="g", member=member)
    for n in range(2):
        story.call(1 + n / 10, "send", QUEUE, n + 1, [n, n + 1], node="n1", ask={"properties": {}})
    if fault is not None:
        story.fault(fault, fault + 1, at)
    if off is not None:
        for when, enabled in ((off, False), (off + 1, True)):
            settings = {"consumeEnable": enabled}
            story.call(when, "update-group", None, settings, settings, group="g", acked=["n1"], unsure=[])
    for member, of in events.items():
        taken = crash if member == "m0" and crash is not None else END_S
        shown = [[kind, int((taken - since) * S), 1, *rest] for since, (kind, *rest) in of]
        story.call(
            taken - 0.01, "crash" if taken == crash else "take", None, None, shown, took=0.01, group="g", member=member
        )
    read = {"min": 0, "max": 2, "next": 2, "done": True, "phase": "final", "node": "n1"}
    story.call(END_S + 1, "replica-read", QUEUE, 0, [[0, 1], [1, 2]], **read)
    nodes = ["n1" if master is None or s < master else "n2" for s in range(int(END_S))]
    seen = [Observation(s * S, n, "leader", term=1, extra={"broker_name": "a"}) for s, n in enumerate(nodes)]
    servers = [ServerRecord(node, "broker", group=group) for node, group in (("n1", "a"), ("n2", "a"), ("n3", "b"))]
    servers.append(ServerRecord("n4", "proxy"))
    addresses = {f"n{i}": f"10.0.0.{i}" for i in range(1, 5)}
    groups, traits = {"a": ["n1", "n2"], "b": ["n3"]}, Traits(acting_master=acting)
    deployed = DeploymentRecord("t", addresses, servers, groups=groups, traits=traits)
    run = story.run(observations=seen, deployment=deployed)
    return Delivered(holds=holds, quiet_s=10, commits=commits).check(run)


def work(n: int, at: float, offset: int = 0, took: float = 0.1) -> list[tuple[float, list[Any]]]:
    return [(at, ["delivered", n, QUEUE, offset, offset + 1, 0, None]), (at + took, ["done", n, True])]


def moved(left: float, **how: Any) -> CheckResult:
    """m0 finishes both messages at 2 s, the queue goes to m1 at `left` (s), which gets the first one again."""
    first = how.pop("first", 0.1)
    m0 = [(1.0, ["queues", [QUEUE]]), *work(1, 2.0, took=first), *work(2, 2.0, 1), (left, ["queues", []])]
    m1 = [(1.0, ["queues", []]), (left, ["queues", [QUEUE]]), *work(1, left + 0.1)]
    return judged({"m0": sorted(m0), "m1": m1}, holds=True, **how)


def names(result: CheckResult) -> list[tuple[str, int]]:
    return [(anomaly.name, anomaly.cases) for anomaly in result.anomalies]


def test_what_was_finished_long_before_the_queue_moved_was_committed() -> None:
    """Members commit every few seconds: what they finished 17 s before is behind the group's offset."""
    assert names(moved(20)) == [("redelivered-late", 1)]
    soon = moved(15)
    assert soon.verdict == Verdict.VALID
    assert [(e.rule, e.used) for e in soon.excuses] == [("redelivered", 1)]


@pytest.mark.parametrize(("offset", "left", "found"), [(1, 5.5, True), (1, 4.9, False), (0, 60, False)])
def test_a_commit_by_hand_counts_at_once(offset: int, left: float, found: bool) -> None:
    """m0 commits at 3 s. Two seconds later the broker has it; what is not committed comes again, however late."""
    m0 = [(1.0, ["queues", [QUEUE]]), *work(1, 2.0), *work(2, 2.0, 1), (3.0, ["committed", {QUEUE: offset}])]
    m1 = [(1.0, ["queues", []]), (left, ["queues", [QUEUE]]), *work(1, left + 0.1)]
    result = judged({"m0": [*sorted(m0, key=lambda each: each[0]), (left, ["queues", []])], "m1": m1}, holds=True)
    assert names(result) == [("redelivered-late", 1)] * found
    assert [(e.rule, e.used) for e in result.excuses] == [("redelivered", 1)] * (not found)


def test_a_process_that_does_not_have_the_queue_gets_nothing_of_it() -> None:
    """The queue stays with m0: nothing excuses what m1 gets, unless it had it within a second, or reports nothing."""

    def beside(*reports: tuple[float, list[Any]]) -> CheckResult:
        m0 = [(1.0, ["queues", [QUEUE]]), *work(1, 2.0), *work(2, 2.0, 1)]
        return judged({"m0": sorted(m0), "m1": sorted([*work(1, 6.0), *reports])}, holds=True)

    began, had = (4.9, ["started", "m1@1"]), (1.0, ["queues", [QUEUE]])
    for bad in ((), (had, (4.9, ["queues", []])), ((7.1, ["queues", [QUEUE]]),)):
        assert names(beside(began, *bad)) == [("redelivered-late", 1)], bad
    for good in ((began, had, (5.1, ["queues", []])), (began, (6.9, ["queues", [QUEUE]])), ()):
        assert beside(*good).verdict == Verdict.VALID, good
    late = (5.1, ["started", "m1@1"])
    assert beside(late).verdict == Verdict.VALID, "a library may deliver before its start has ended"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"fault": 10}, "a fault or a change of master"),
        ({"master": 10}, "a fault or a change of master"),
        ({"off": 10}, "the group was switched off"),
        ({"commits": False}, "its queue went to another member"),
    ],
)
def test_what_may_keep_a_group_from_committing_is_looked_up_and_counted(how: dict[str, Any], why: str) -> None:
    result = moved(60, **how)
    assert result.verdict == Verdict.VALID, names(result)
    assert [(e.rule, e.used) for e in result.excuses] == [("redelivered", 1)]
    assert why in result.excuses[0].why


@pytest.mark.parametrize("how", [{"fault": 100}, {"master": 100}, {"off": 100}])
def test_what_came_after_the_queue_had_moved_excuses_nothing(how: dict[str, Any]) -> None:
    assert names(moved(60, **how)) == [("redelivered-late", 1)]


def test_an_unfinished_message_keeps_the_offset_below_the_later_ones() -> None:
    """m0 works on the first message until 50 s: it commits its offset, and the second one comes again with reason."""
    m0 = [(1.0, ["queues", [QUEUE]]), *work(1, 2.0, took=48.0), *work(2, 2.0, 1), (60.0, ["queues", []])]
    m1 = [(1.0, ["queues", []]), (60.0, ["queues", [QUEUE]]), *work(1, 60.1, 1)]
    result = judged({"m0": sorted(m0, key=lambda each: each[0]), "m1": m1}, holds=True)
    assert result.verdict == Verdict.VALID, names(result)
    assert names(moved(60, first=30)) == [("redelivered-late", 1)], "finished at 32 s, and committed by 48 s"


def test_a_former_owner_that_goes_late_may_commit_an_older_offset() -> None:
    """m1 has had the queue before m0, and gives it up at 30 s: until m0 commits again, its offset holds."""

    def both(left: float) -> CheckResult:
        m0 = [(1.5, ["queues", [QUEUE]]), *work(1, 2.0), *work(2, 2.0, 1), (left, ["queues", []])]
        m1 = [(1.0, ["queues", [QUEUE]]), (30.0, ["queues", []]), (left, ["queues", [QUEUE]]), *work(1, left + 0.1)]
        return judged({"m0": m0, "m1": m1}, holds=True)

    assert both(40).verdict == Verdict.VALID
    assert names(both(50)) == [("redelivered-late", 1)]


@pytest.mark.parametrize(("left", "found"), [(15.0, False), (20.0, True)])
@pytest.mark.parametrize("before", [[], [(0.5, ["queues", [QUEUE]]), (0.9, ["queues", []])]])
def test_a_delivery_before_the_report_of_its_queue_is_judged_by_the_same_limit(
    before: list[tuple[float, list[Any]]], left: float, found: bool
) -> None:
    """Members report a queue up to a second after they get its first message. m1 may also have had it long ago."""
    m0 = [(1.0, ["queues", [QUEUE]]), *work(1, 2.0), *work(2, 2.0, 1), (left, ["queues", []])]
    m1 = [(0.4, ["started", "m1@1"]), *before, *work(1, left + 0.1), (left + 0.3, ["queues", [QUEUE]])]
    result = judged({"m0": sorted(m0), "m1": sorted(m1)}, holds=True)
    assert names(result) == [("redelivered-late", 1)] * found
    assert [(e.rule, e.used) for e in result.excuses] == [("redelivered", 1)] * (not found)


def test_an_acknowledgement_is_sent_soon_after_the_success() -> None:
    """A process that pops acknowledges at once: its end excuses what it finished shortly before, and nothing else."""

    def popped(crash: float) -> CheckResult:
        events: Events = {"m0": [*work(1, 2.0), *work(2, 2.0, 1)], "m1": work(1, 60.0)}
        return judged({member: sorted(of) for member, of in events.items()}, holds=False, crash=crash)

    soon = popped(6)
    assert soon.verdict == Verdict.VALID
    assert [(e.rule, e.used) for e in soon.excuses] == [("redelivered", 1)]
    assert "its acknowledgement may be missing" in soon.excuses[0].why
    assert names(popped(8)) == [("redelivered-late", 1)]
    assert names(popped(100)) == [("redelivered-to-holder", 1)], "it came again while the process lived"


@pytest.mark.parametrize("confirmed", [True, False])
def test_an_acknowledgement_that_a_broker_confirmed_is_not_missing(confirmed: bool) -> None:
    """A simple consumer reports its acknowledgement before it is sent, and its success after the broker's answer."""
    m0 = [*work(1, 2.0), *work(2, 2.0, 1), *([(2.05, ["acking", 1])] if confirmed else [])]
    events: Events = {"m0": sorted(m0, key=lambda each: each[0]), "m1": work(1, 60.0)}
    result = judged(events, holds=False, crash=4)
    assert names(result) == [("redelivered-late", 1)] * confirmed
    assert [e.rule for e in result.excuses] == ["redelivered"] * (not confirmed)


@pytest.mark.parametrize(
    ("confirmed", "at", "found"),
    [
        (True, "n1", 0),
        (True, "n3", 1),
        (True, "n4", 1),
        (False, "n1", 0),
        (False, "n3", 1),
        (False, "n4", 0),
        (False, "c1", 0),
    ],
)
def test_a_fault_far_from_an_acknowledgement_does_not_take_it(confirmed: bool, at: str, found: int) -> None:
    """n1 is a broker of the queue's group, n3 of another one, n4 has a proxy, c1 a member. One without an answer may
    have been lost on the way through a proxy; a slave that acts as the master stores it in any group.
    """
    m0 = [*work(1, 2.0), *work(2, 2.0, 1), *([(2.05, ["acking", 1])] if confirmed else [])]
    events: Events = {"m0": sorted(m0, key=lambda each: each[0]), "m1": work(1, 60.0)}
    result = judged(events, holds=False, fault=4, at=at)
    assert names(result) == [("redelivered-to-holder", 1)] * found
    assert [e.rule for e in result.excuses] == ["redelivered"] * (1 - found)
    acting = judged(events, holds=False, fault=4, at=at, acting=True)
    assert names(acting) == [("redelivered-to-holder", 1)] * (found and confirmed)
