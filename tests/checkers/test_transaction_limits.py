# SPDX-License-Identifier: Apache-2.0
"""Limits of questions: half messages that brokers give up, by hand and in simulated runs."""

from __future__ import annotations

import pytest
from sim.rocketmq import names
from transaction_stories import Story, a_question

from results.verdict import Verdict

CHECK_MAX = 3


def story(until: float = 60) -> Story:
    """With an undecided half message that is given up as it should be."""
    it = Story(until)
    a_question(it)
    undecided(it, 800, 1)
    return it


def undecided(it: Story, identity: int, at: float, first: float | None = None, questions: int = CHECK_MAX) -> float:
    """A half message that is given up after so many questions; returns the time."""
    it.half(at, identity)
    asked = at + 5 if first is None else first
    for n in range(questions):
        it.ask(asked + 5 * n, identity)
    it.give_up(asked + 5 * questions - 4.9, identity)
    return asked + 5 * questions - 4.9


def test_a_half_message_that_is_given_up_after_its_questions_is_silent() -> None:
    result = story().result(CHECK_MAX)
    assert (result.verdict, result.anomalies) == (Verdict.VALID, []), result.reason
    assert (result.stats["given_up"], result.stats["given_up_ended"]) == (1, 0)
    assert "1 given up" in result.reason


@pytest.mark.parametrize("questions", [0, 2])
def test_what_is_given_up_without_all_questions_is_told(questions: int) -> None:
    """#8158: with a long immunity time, a broker counts rounds in which it does not ask."""
    it = story()
    it.half(1, 1, immunity_s=0 if questions else 30)
    for n in range(questions):
        it.ask(6 + 5 * n, 1)
    it.give_up(20, 1)
    result = it.result(CHECK_MAX)
    assert names([result]) == {"given-up-unasked"}
    (anomaly,) = result.anomalies
    assert "message 1 (t:a:0), half at n1" in anomaly.summary
    assert "given up 00:20.0 (count of the broker: 3)" in anomaly.summary
    assert anomaly.details["asked"] == questions


def test_questions_that_one_replaced_before_a_client_took_it_count() -> None:
    it = story()
    it.half(1, 1)
    it.call(16, "check", None, None, 1, node="n1", group="a", waited_ms=0, replaces=2)
    it.give_up(16.5, 1)
    assert names([it.result(CHECK_MAX)]) == set()


@pytest.mark.parametrize(
    ("fault", "questions", "excused"),
    [
        ((12, 13), 2, True),  # one round of 5 s, and the 5 s after it: two questions may be lost
        ((12, 13), 1, True),
        ((12, 13), 0, False),
        ((40, 41), 2, False),  # after it was given up
    ],
)
def test_no_more_questions_are_excused_than_a_fault_may_hide(
    fault: tuple[float, float], questions: int, excused: bool
) -> None:
    it = story()
    it.half(1, 1)
    for n in range(questions):
        it.ask(6 + 0.1 * n, 1)
    it.give_up(20, 1)
    it.fault(*fault, "n1")
    result = it.result(CHECK_MAX)
    assert names([result]) == (set() if excused else {"given-up-unasked"})
    assert [(e.rule, e.used) for e in result.excuses] == ([("given-up-unasked", 1)] if excused else [])


def test_what_was_given_up_is_owed_no_question() -> None:
    it = story(90)
    undecided(it, 1, 1)
    assert names([it.result(CHECK_MAX)]) == set()
    it = story(90)
    it.half(1, 1)
    it.ask(6, 1)
    assert names([it.result(CHECK_MAX)]) == {"never-asked"}


def test_a_refused_half_message_is_never_given_up() -> None:
    it = story()
    it.half(1, 1, "fail")
    for at in (6, 11, 16):
        it.ask(at, 1)
    it.give_up(16.1, 1)
    assert names([it.result(CHECK_MAX)]) == {"aborted-read"}


def test_a_half_message_that_no_client_sent_is_told() -> None:
    it = story()
    it.give_up(16.1, 77, group="a")
    assert names([it.result(CHECK_MAX)]) == {"never-sent"}


def test_without_the_topic_nothing_is_proven() -> None:
    it = story()
    it.finish()
    assert "not read to the end: nowhere" in it.judge(check_max=CHECK_MAX).reason
    it.call(61, "given-up", "TRANS_CHECK_MAX_TIME_TOPIC:b:0", 0, 0, "fail", ask={})
    result = it.judge(check_max=CHECK_MAX)
    assert result.verdict == Verdict.UNKNOWN
    assert "TRANS_CHECK_MAX_TIME_TOPIC:b:0" in result.reason
    quiet = Story()
    a_question(quiet)
    assert quiet.result(CHECK_MAX).reason == "no half message was given up"
