# SPDX-License-Identifier: Apache-2.0
"""Transactions of Java producers, whose ends nobody answers: planted violations are found, and good runs are silent."""

from __future__ import annotations

from typing import Any

import pytest
from sim.rocketmq import names
from transaction_stories import JavaStory

from results.verdict import Verdict


def story(until: float = 60) -> JavaStory:
    """A transaction that is rolled back when the broker asks: without any question the run says nothing."""
    it = JavaStory(until)
    it.half(0.5, 900)
    it.decide(6, 900, "rollback", asked=True)
    return it


def test_what_java_producers_do_right_is_silent() -> None:
    it = story()
    it.committed(1, 1)
    it.half(2, 2)
    it.decide(2.1, 2, "rollback", asked=False)
    it.half(3, 3)
    it.decide(3.1, 3, None, asked=False)
    it.decide(8, 3, "commit", asked=True, member="m1")
    it.deliver(8.01, 3)
    it.half(4, 4, "fail")
    result = it.result()
    assert (result.verdict, result.anomalies) == (Verdict.VALID, [])
    assert (result.stats["one_way"], result.stats["asked"], result.stats["asked_of_others"]) == (4, 2, 1)
    assert (result.stats["delivered"], result.stats["committed"]) == (2, 0)


@pytest.mark.parametrize(
    ("asked", "delivered", "forgotten"),
    [(None, None, True), (24, 24.1, False), (None, 2.2, False), (25.5, None, True), (24.5, None, True)],
)
def test_a_commit_that_may_not_have_arrived_is_asked_about(
    asked: float | None, delivered: float | None, forgotten: bool
) -> None:
    """The limit is 23 s: the timeout, two intervals and 10 s, from the last commit on."""
    it = story(90)
    it.half(1, 1)
    it.decide(1.1, 1, "commit", asked=False)
    if asked is not None:
        it.decide(asked, 1, "commit", asked=True)
    if delivered is not None:
        it.deliver(delivered, 1)
    result = it.result()
    assert names([result]) == ({"commit-forgotten"} if forgotten else set())
    for anomaly in result.anomalies:
        assert anomaly.limit_s == 23
        assert "never seen" in anomaly.summary
    permitted = it.judge(permits={"lost": "acknowledged by one replica"})
    assert permitted.verdict == Verdict.VALID


def test_the_limit_for_a_commit_starts_again_with_each_question() -> None:
    it = story(90)
    it.half(1, 1)
    it.decide(1.1, 1, "commit", asked=False)
    for at in (20, 40):
        it.decide(at, 1, "commit", asked=True)
    assert names([it.result()]) == set()


@pytest.mark.parametrize("known", [True, False])
def test_a_group_that_takes_nothing_owes_nothing(known: bool) -> None:
    """A library that finds no broker does not say which group would have taken the half message."""
    it = story(60)
    it.half(9, 1)
    it.decide(9.1, 1, None, asked=False)
    for n in range(60):
        if 10 <= n < 50 and known:
            it.half(n + 0.2, 1000 + n, "fail")
        it.half(n + 0.3, 2000 + n, queue="t:b:0")
        it.decide(n + 0.4, 2000 + n, "rollback", asked=False, node="n4")
    it.decide(55, 1, "rollback", asked=True)
    assert names([it.result()]) == (set() if known else {"never-asked"})


@pytest.mark.parametrize("until", [23, 26])
def test_a_commit_is_forgotten_only_after_the_limit(until: float) -> None:
    it = story(until)
    it.half(1, 1)
    it.decide(1.1, 1, "commit", asked=False)
    assert names([it.result()]) == (set() if until == 23 else {"commit-forgotten"})


def test_a_commit_beside_a_rollback_may_be_rolled_back() -> None:
    """The library itself rolls back what was not stored surely enough, whatever the listener says later."""
    it = story()
    it.half(1, 1)
    it.decide(1.1, 1, "rollback", asked=False)
    it.decide(8, 1, "commit", asked=True)
    assert names([it.result()]) == set()


@pytest.mark.parametrize(
    ("answers", "read_at", "expected"),
    [
        ([(1.1, "rollback", False)], 3, {"uncommitted-read"}),
        ([(1.1, None, False), *((t, None, True) for t in range(6, 60, 6))], 3, {"uncommitted-read"}),
        ([(1.1, None, False), (8, "commit", True)], 8.001, set()),
        ([(1.1, None, False), (8, "commit", True)], 7.4, {"uncommitted-read"}),
        ([(1.1, None, False), (8.15, "commit", True)], 7.996, set()),
        ([(1.1, "commit", False)], 1.05, set()),
    ],
)
def test_what_no_producer_committed_is_never_read(answers: Any, read_at: float, expected: set[str]) -> None:
    """A report may arrive later than the reads that its commit caused: then it is no proof."""
    it = story()
    it.half(1, 1)
    for at, answer, asked in answers:
        it.decide(at, 1, answer, asked=asked)
    it.deliver(read_at, 1)
    it.read(read_at, "t:a:0", "n1")
    assert names([it.result()]) == expected


@pytest.mark.parametrize(
    ("gone", "asked", "late"),
    [
        ({}, [24], False),
        ({}, [24.2], True),
        ({"m0": (5, 7)}, [24.2], True),  # m1 is there
        ({"m0": (5, 9), "m1": (6, 9)}, [31.9], False),  # nobody can be asked: the limit begins again
        ({"m0": (5, 9), "m1": (6, 9)}, [32.5], True),
        ({"m0": (2, 60), "m1": (2, 60)}, [], False),
        ({"m0": (2, 30), "m1": (2, 30)}, [50], False),
        ({}, [20, 40], False),  # 50 s after the half message, the broker may have asked 15 times
    ],
)
def test_a_broker_asks_the_producers_that_are_there(gone: Any, asked: list[float], late: bool) -> None:
    it = JavaStory(60)
    it.gone = gone
    it.half(0.5, 900)
    it.decide(1.5, 900, "rollback", asked=True)
    it.half(1, 1)
    it.decide(1.1, 1, None, asked=False)
    for at in asked:
        it.decide(at, 1, "rollback", asked=True, member="m1")
    assert names([it.result()]) == ({"never-asked"} if late else set())


@pytest.mark.parametrize(
    ("again", "fault", "legal"),
    [
        (31, None, False),  # its message was read, so the broker knew of the commit
        (31, (20.3, 40, "n1"), True),
        (31, (28, 40, "n1"), False),
        (20.35, None, True),  # no reader saw the first copy before
    ],
)
def test_a_one_way_commit_that_was_read_is_not_asked_about_again(again: float, fault: Any, legal: bool) -> None:
    it = story()
    it.half(19.9, 1)
    it.decide(20, 1, "commit", asked=False)
    it.deliver(20.1, 1)
    it.decide(again, 1, "commit", asked=True)
    it.deliver(again + 0.05, 1)
    if fault is not None:
        it.fault(*fault)
    result = it.result()
    assert [(a.name, a.legal is not None) for a in result.anomalies] == [("delivered-again", legal)]


def test_a_commit_that_is_read_late_may_have_been_late() -> None:
    """Half message at 17, so the broker may ask from 20 on: with the record of its decision the first commit came after
    that.
    """
    for read_at, legal in ((18.4, False), (18.6, True)):
        it = story()
        it.half(17, 1)
        it.decide(17.1, 1, "commit", asked=False)
        it.deliver(read_at, 1)
        it.read(read_at, "t:a:0", "n1")
        it.decide(24, 1, "commit", asked=True)
        it.deliver(24.05, 1)
        (anomaly,) = it.result().anomalies
        assert (anomaly.name, anomaly.legal is not None) == ("delivered-again", legal)


def test_a_question_to_a_producer_of_another_group_is_found() -> None:
    it = story()
    it.committed(1, 1)
    it.call(30, "check", None, None, 1, node="n1", group="a", waited_ms=0, stranger="strangers")
    result = it.result()
    assert names([result]) == {"asked-elsewhere"}
    assert result.stats["asked"] == 1
