# SPDX-License-Identifier: Apache-2.0
"""Transactions: every planted violation is found, by hand and in simulated runs, and good runs are silent."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from sim.rocketmq import names
from stories import S
from transaction_stories import MASTERS, QUEUES, ProxyStory, Story, a_question

from results.deployment import Traits
from results.op import OpType
from results.verdict import CheckResult, Verdict


def story(until: float = 60) -> Story:
    it = Story(until)
    a_question(it)
    return it


def test_transactions_that_end_as_they_should_are_silent() -> None:
    it = story()
    it.committed(1, 1)
    it.half(2, 2)
    it.end(2.1, 2, "rollback")
    it.half(3, 3)
    it.ask(8, 3)
    it.end(8.1, 3)
    it.deliver(8.105, 3)
    result = it.result()
    assert (result.verdict, result.anomalies) == (Verdict.VALID, [])
    assert result.stats["asked"] == 2
    assert (result.stats["committed"], result.stats["rolled_back"], result.stats["delivered"]) == (2, 2, 2)
    assert "2 of 2 committed messages delivered, 2 transactions asked about" in result.reason


def test_a_committed_message_that_is_nowhere_is_lost() -> None:
    it = story()
    it.half(1, 1)
    it.end(1.1, 1)
    assert names([it.result()]) == {"committed-lost"}


def test_a_loss_that_the_configuration_permits_is_legal() -> None:
    it = story()
    it.half(1, 1)
    it.end(1.1, 1)
    result = it.result(permits={"lost": "acknowledged by one replica"})
    assert (result.verdict, result.anomalies[0].legal) == (Verdict.VALID, "acknowledged by one replica")


def test_what_was_committed_just_now_may_still_come() -> None:
    it = story(20)
    it.half(10, 1)
    it.end(10.1, 1)
    result = it.result()
    assert (result.verdict, result.anomalies) == (Verdict.UNKNOWN, [])
    assert "1 committed messages were not yet due" in result.reason


@pytest.mark.parametrize(
    ("ends", "read_at", "expected"),
    [
        ([("rollback", "ok")], 3, {"rolled-back-read"}),
        ([("rollback", "info")], 3, {"uncommitted-read"}),
        ([], 3, {"uncommitted-read"}),
        ([("commit", "fail")], 3, {"uncommitted-read"}),
        ([("commit", "info")], 3, set()),
        ([("commit", "ok")], 3, set()),
        ([("commit", "ok")], 1.05, {"uncommitted-read"}),
    ],
)
def test_what_is_not_committed_is_never_read(
    ends: Sequence[tuple[str, OpType]], read_at: float, expected: set[str]
) -> None:
    it = story()
    it.half(1, 1)
    for how, type_ in ends:
        it.end(2, 1, how, type_)
    it.deliver(read_at, 1)
    for at in (8, 13, 18, 23, 28, 33, 38, 43, 48, 53, 58):
        it.ask(at, 1)
    assert names([it.result()]) == expected


@pytest.mark.parametrize(("type_", "expected"), [("info", set()), ("fail", {"aborted-read"})])
def test_what_was_refused_never_comes(type_: OpType, expected: set[str]) -> None:
    it = story()
    it.half(1, 1, type_)
    it.ask(6, 1)
    it.end(6.1, 1)
    it.deliver(6.105, 1)
    it.committed(2, 2)
    assert names([it.result()]) == expected


def test_what_nobody_sent_is_told() -> None:
    it = story()
    it.committed(1, 1)
    it.deliver(6.4, 77)
    it.deliver(6.4, "?ab")
    result = it.result()
    assert names([result]) == {"never-sent"}
    assert result.anomalies[0].details["count"] == 2


BOUND = 3 + 2 * 5 + 10


@pytest.mark.parametrize(
    ("asked", "late"),
    [((6,), True), ((6, 11, 16, 30, 40, 50, 59), False), ((24, 40, 58), False), ((24.1, 40, 58), True), ((), True)],
)
def test_an_open_half_message_is_asked_about(asked: Sequence[float], late: bool) -> None:
    it = story()
    it.half(1, 1)
    for at in asked:
        it.ask(at, 1)
    result = it.result()
    assert names([result]) == ({"never-asked"} if late else set())
    for anomaly in result.anomalies:
        assert anomaly.limit_s == BOUND
        assert anomaly.window[1] - anomaly.window[0] > BOUND * S


def test_a_question_counts_from_when_it_came_not_from_when_it_was_taken() -> None:
    it = story(50)
    it.half(1, 1)
    it.ask(24, 1)
    it.ask(49, 1, waited_ms=10_000)
    assert names([it.result()]) == set()


def test_brokers_ask_a_number_of_times_and_then_give_up() -> None:
    it = story(120)
    it.half(1, 1)
    for n in range(15):
        it.ask(6 + 5 * n, 1)
    assert names([it.result()]) == set()


@pytest.mark.parametrize("outcome", ["ok", "info", "fail"])
def test_after_an_end_only_one_that_failed_leaves_it_open(outcome: OpType) -> None:
    it = story()
    it.half(1, 1)
    it.end(1.1, 1, "rollback", outcome)
    assert names([it.result()]) == ({"never-asked"} if outcome == "fail" else set())


@pytest.mark.parametrize(
    ("fault", "stand_in", "asked", "late"),
    [
        ((10, 50, "n1"), True, 32, False),  # the limit starts again when a fault begins
        ((10, 50, "n1"), True, 34, True),  # a fault that lasts is no excuse: a slave acts
        ((10, 50, "n1"), False, 58, False),  # nobody does
        ((10, 50, "n1", "n2", "n3"), True, 58, False),  # nobody has it
    ],
)
def test_the_limit_starts_again_with_a_fault(fault: Any, stand_in: bool, asked: float, late: bool) -> None:
    it = story(60)
    it.half(9, 1)
    it.fault(*fault)
    for n in range(60):
        it.half(n + 0.2, 1000 + n, "fail" if 10 <= n < 50 else "ok")
        it.half(n + 0.3, 2000 + n, "ok", queue="t:b:0")
        for identity in (1000 + n, 2000 + n):
            it.end(n + 0.4, identity, "rollback", "info")
    it.ask(asked, 1, "n4")
    it.end(asked + 0.1, 1, "rollback", node="n4")
    result = it.result(traits=Traits(stands_in=stand_in))
    assert names([result]) == ({"never-asked"} if late else set())


def test_a_master_that_serves_nobody_owes_nothing() -> None:
    it = story(60)
    it.half(9, 1)
    for n in range(60):
        it.half(n + 0.2, 1000 + n, "fail" if 10 <= n < 50 else "ok")
        it.half(n + 0.3, 2000 + n, "ok", queue="t:b:0")
        for identity in (1000 + n, 2000 + n):
            it.end(n + 0.4, identity, "rollback", "info")
    it.ask(55, 1)
    it.end(55.1, 1, "rollback")
    assert names([it.result()]) == set()


@pytest.mark.parametrize("both", [True, False])
def test_after_the_last_refusal_nothing_is_owed(both: bool) -> None:
    """No master serves at the end, or none of the group: without new half messages nothing would show that it does."""
    it = story(90)
    it.half(9, 1)
    for n in range(40):
        for queue in QUEUES:
            identity = 1000 * (1 + (queue == "t:b:0")) + n
            refused = n >= 12 and (both or queue == "t:a:0")
            it.half(n + 0.2, identity, "fail" if refused else "ok", queue=queue)
            it.end(n + 0.4, identity, "rollback", "info")
    assert names([it.result()]) == set()


def twice(it: Story, first: float, again: float, node: str = "n4", type_: OpType = "ok") -> None:
    """Message 1: committed, asked about again by b's master, committed there as well."""
    it.half(first - 0.1, 1)
    it.end(first, 1, type_=type_)
    it.deliver(first + 0.005, 1)
    it.ask(again, 1, node)
    it.end(again + 0.1, 1, node=node)
    it.deliver(again + 0.105, 1, "t:b:0" if node == "n4" else "t:a:0")


@pytest.mark.parametrize(
    ("fault", "legal"),
    [
        (None, False),
        ((20.3, 40, "n1"), True),  # right after the decision
        ((25.4, 40, "n1"), True),
        ((26, 40, "n1"), False),  # long after it
        ((15, 40, "n4"), False),  # in force, but not at the node that took the decision
        ((15, 40, "n1"), True),  # at the node that took it: cut off, it may have been alone
    ],
)
@pytest.mark.parametrize("node", ["n4", "n1"])
def test_a_second_copy_is_permitted_once_after_a_fault(fault: Any, legal: bool, node: str) -> None:
    it = story()
    twice(it, 20, 31, node)
    if fault is not None:
        it.fault(*fault)
    elif node == "n4":
        legal = True  # n4 asks for a: a slave acted although nothing had happened
    result = it.result()
    assert [(a.name, a.legal is not None) for a in result.anomalies] == [("delivered-again", legal)]
    assert result.verdict == (Verdict.VALID if legal else Verdict.INVALID)
    assert (result.stats["copies"], result.stats["asked_again"]) == (1, 1)


def test_a_third_copy_takes_a_second_fault() -> None:
    it = story()
    twice(it, 20, 31)
    it.fault(20.3, 40, "n1")
    it.ask(45, 1)
    it.end(45.1, 1)
    it.deliver(45.2, 1)
    result = it.result()
    assert [(a.name, a.legal) for a in result.anomalies] == [("delivered-again", None)]
    assert result.stats["most_copies"] == 3
    assert "n4 asked 00:31.0, commit at n4 00:31.1 (ok)" in result.anomalies[0].summary


def test_an_undecided_message_is_asked_about_by_one_broker_group() -> None:
    it = story()
    it.half(9, 1)
    it.fault(10, 30, "n1")
    for at, node, queue in ((17, "n4", "t:b:0"), (40, "n1", "t:a:0")):
        it.ask(at, 1, node)
        it.end(at + 0.1, 1, node=node)
        it.deliver(at + 0.105, 1, queue)
    assert [(a.name, a.legal) for a in it.result().anomalies] == [("delivered-again", None)]


@pytest.mark.parametrize(("ask_at", "end_at", "legal"), [(20, 20.1, False), (20, 24.9, True)])
def test_who_answers_late_may_be_asked_again(ask_at: float, end_at: float, legal: bool) -> None:
    it = story()
    it.half(15, 1)
    it.ask(ask_at, 1)
    it.end(end_at, 1)
    it.deliver(end_at + 0.005, 1)
    it.ask(25, 1)
    it.end(25.1, 1)
    it.deliver(25.2, 1)
    assert [(a.name, a.legal is not None) for a in it.result().anomalies] == [("delivered-again", legal)]


def test_a_commit_of_unknown_outcome_may_be_made_again() -> None:
    it = story()
    twice(it, 20, 25, "n1", "info")
    assert [(a.name, a.legal is not None) for a in it.result().anomalies] == [("delivered-again", True)]


# Through a proxy: the ends are one-way, and the proxy does not say to which node it sent them.


def proxied(until: float = 60) -> ProxyStory:
    it = ProxyStory(until)
    a_question(it)
    return it


def test_transactions_through_a_proxy_that_end_as_they_should_are_silent() -> None:
    it = proxied()
    it.committed(1, 1)
    it.half(2, 2)
    it.end(2.1, 2, "rollback")
    it.half(3, 3)
    it.end(3.1, 3, type_="fail")  # the proxy no longer knew it
    it.ask(8, 3, "n5")
    it.end(8.1, 3, node="n5")
    it.deliver(8.105, 3)
    result = it.result()
    assert (result.verdict, result.anomalies) == (Verdict.VALID, [])
    assert (result.stats["committed"], result.stats["one_way"], result.stats["delivered"]) == (0, 5, 2)
    assert "2 of 2 committed messages delivered" in result.reason


@pytest.mark.parametrize(("asked", "forgotten"), [(None, True), (22, False), (26, True)])
def test_a_commit_through_a_proxy_is_delivered_or_asked_about_again(asked: float | None, forgotten: bool) -> None:
    it = proxied()
    it.half(1, 1)
    it.end(1.1, 1)
    if asked is not None:
        it.ask(asked, 1)
        it.end(asked + 0.1, 1)
        if not forgotten:
            it.deliver(asked + 0.105, 1)
    result = it.result()
    assert names([result]) == ({"commit-forgotten"} if forgotten else set())
    if asked is not None and forgotten:
        assert "the proxy of n4" in result.anomalies[0].summary


def test_what_was_rolled_back_through_a_proxy_is_never_read() -> None:
    it = proxied()
    it.half(1, 1)
    it.end(1.1, 1, "rollback")
    it.deliver(1.2, 1)
    assert names([it.result()]) == {"uncommitted-read"}


@pytest.mark.parametrize(("deaf_until", "late"), [(None, True), (8, True), (36, False)])
def test_nobody_can_be_asked_while_no_proxy_has_a_stream(deaf_until: int | None, late: bool) -> None:
    """The limit is 23 s, and the half message is judged until 51 s, as brokers give up."""
    it = proxied()
    it.half(1, 1)
    for at in range(2, deaf_until or 0):
        it.call(at + 0.95, "check", None, None, None, deaf=True)
    result = it.result()
    assert names([result]) == ({"never-asked"} if late else set())
    assert result.stats["deaf"] == (deaf_until - 2 if deaf_until else 0)


@pytest.mark.parametrize(("until", "late"), [(24, True), (33, False)])
def test_brokers_count_the_questions_that_a_struck_proxy_lost(until: float, late: bool) -> None:
    """They give up after 15 rounds: 75 s; the judge expects nothing after ten, at 51 s."""
    it = proxied(until=100)
    it.half(1, 1)
    for at in range(7, int(until), 5):
        it.ask(at, 1)
    assert names([it.result()]) == ({"never-asked"} if late else set())


@pytest.mark.parametrize(
    ("fault", "legal"),
    [
        (None, False),
        ((21.3, 40, "n1"), True),  # right after the decision, which a reader saw at 20.5 s
        ((27.4, 40, "n1"), False),  # long after it
        ((15, 40, "n2"), True),  # the end may have gone to any node of the group
        ((15, 40, "n4"), False),  # but not to one of another group
    ],
)
def test_a_second_copy_through_a_proxy_takes_a_fault_at_its_group(fault: Any, legal: bool) -> None:
    it = proxied()
    it.half(19.9, 1)
    it.end(20, 1)
    it.deliver(20.005, 1)
    it.ask(31, 1)
    it.end(31.1, 1)
    it.deliver(31.105, 1)
    if fault is not None:
        it.fault(*fault)
    assert [(a.name, a.legal is not None) for a in it.result().anomalies] == [("delivered-again", legal)]


def test_more_copies_than_commits_are_never_permitted() -> None:
    it = story()
    it.half(19.9, 1)
    it.end(20, 1, type_="info")
    it.fault(20.3, 40, "n1")
    it.deliver(20.005, 1)
    it.deliver(30, 1)
    assert [(a.name, a.legal) for a in it.result().anomalies] == [("delivered-again", None)]


def test_what_is_not_proven_is_unknown() -> None:
    nothing = Story()
    assert nothing.result().reason == "no half message was acknowledged"
    it = Story()
    it.committed(1, 1)
    assert "not proven" in it.judge().reason
    result = it.result()
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, "no broker asked about any half message")
    it = story()
    it.committed(1, 1)
    it.finish()
    it.call(61, "replica-read", "t:a:1", 0, [], ask={"node": "n1"}, max=3)
    assert "t:a:1 at n1" in it.judge().reason


BUGS = (
    *("committed-lost", "rolled-back-read", "uncommitted-read", "aborted-read"),
    *("never-asked", "delivered-again", "never-sent"),
)


def simulated(seed: int, bug: str | None = None) -> CheckResult:
    """A run of random transactions, with a fault of a's master or none. Its brokers are right, `bug` once not."""
    rng, it = Random(seed), Story(80)
    it.until = 80
    fault = rng.choice([None, (rng.uniform(8, 20), rng.uniform(2, 12))])
    if fault is not None:
        it.fault(fault[0], fault[0] + fault[1], "n1")
    victim = rng.randint(1, 24)
    for identity in range(1, 25):
        at, queue = rng.uniform(0, 25), rng.choice(list(QUEUES))
        mine = bug if identity == victim else None
        down = fault is not None and queue == "t:a:0" and fault[0] <= at <= fault[0] + fault[1]
        outcome: OpType = rng.choice(["ok", "ok", "ok", "info"])
        if down or mine == "aborted-read":
            outcome = "fail"
        elif mine is not None:
            outcome = "ok"
        it.half(at, identity, outcome, queue)
        if outcome == "fail":
            if mine is not None and mine != "never-sent":
                it.deliver(at + 2, identity, queue)
            continue
        live(it, rng, identity, at, queue, outcome, fault, mine)
    if bug == "never-sent":
        it.deliver(30, rng.choice([99, "?00"]))
    for n in range(80):
        if n % 2 == 0:
            for queue in QUEUES:
                it.half(n + 0.5, 1000 + n + len(queue) * (queue == "t:b:0") * 1000, queue=queue)
                it.end(n + 0.55, 1000 + n + len(queue) * (queue == "t:b:0") * 1000, "rollback")
    it.finish(every_s=1)
    return it.judge()


def live(
    it: Story, rng: Random, identity: int, at: float, queue: str, outcome: OpType, fault: Any, bug: str | None
) -> None:
    """The life of one half message that a broker may have."""
    decision = rng.choice(["commit", "commit", "rollback"])
    node, home = MASTERS[QUEUES[queue]], queue
    decision = {"committed-lost": "commit", "delivered-again": "commit", "rolled-back-read": "rollback"}.get(
        bug or "", decision
    )
    exists = outcome == "ok" or rng.random() < 0.5
    now = at + 0.05
    if bug in ("uncommitted-read", "never-asked"):
        if bug == "uncommitted-read":
            it.deliver(now + 1, identity, home)
        for n in range(10 if bug == "uncommitted-read" else 0):
            it.ask(at + 6 + 7 * n, identity, node)
        return
    if outcome == "info":
        if exists and rng.random() < 0.5:
            it.ask(at + 30, identity, node)
        return
    if rng.random() < 0.5:  # asked first; in a fault of its group by the other one
        struck = fault is not None and QUEUES[queue] == "a" and fault[0] - 9 <= at <= fault[0]
        now = fault[0] + rng.uniform(6, 10) if struck and fault is not None else at + rng.uniform(3.1, 9)
        node, home = ("n4", "t:b:0") if struck else (node, home)
        it.ask(now, identity, node)
        now += rng.uniform(0.02, 0.3)
    it.end(now, identity, decision, node=node)
    if (decision == "commit") != (bug in ("committed-lost", "rolled-back-read")):
        it.deliver(now + 0.005, identity, home)
    decided = now
    near = fault is not None and decided <= fault[0] <= decided + 5.4 and node == "n1"
    if bug == "delivered-again":
        for n in range(3):  # more than one fault explains
            it.ask(decided + 6 * (n + 1), identity, node)
            it.end(decided + 6 * (n + 1) + 0.1, identity, node=node)
            it.deliver(decided + 6 * (n + 1) + 0.105, identity, home)
    elif near and bug is None and decision == "commit" and rng.random() < 0.6:
        it.ask(fault[0] + 8, identity, "n4")
        it.end(fault[0] + 8.1, identity, node="n4")
        it.deliver(fault[0] + 8.105, identity, "t:b:0")


def test_good_runs_raise_no_alarm() -> None:
    alarms = {seed: r.reason for seed in range(30) if (r := simulated(seed)).verdict != Verdict.VALID}
    assert alarms == {}


@pytest.mark.slow
@pytest.mark.nightly
def test_a_thousand_good_runs() -> None:
    alarms = {seed: r.reason for seed in range(1000) if (r := simulated(seed)).verdict != Verdict.VALID}
    assert alarms == {}


@pytest.mark.parametrize("bug", BUGS)
def test_every_planted_violation_is_found(bug: str) -> None:
    for seed in range(12):
        result = simulated(seed, bug)
        assert bug in {a.name for a in result.anomalies if a.legal is None}, (seed, result.reason)
