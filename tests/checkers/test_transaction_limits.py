# SPDX-License-Identifier: Apache-2.0
"""Limits of questions: half messages that brokers give up, by hand and in simulated runs."""

from __future__ import annotations

from random import Random

import pytest
from sim.rocketmq import names
from transaction_stories import Story, a_question

from results.verdict import CheckResult, Verdict

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


@pytest.mark.parametrize(("at", "early"), [(20, True), (29, True), (31.1, False)])
def test_no_question_comes_within_the_immunity_time(at: float, early: bool) -> None:
    it = story(90)
    it.half(1, 1, immunity_s=30)
    for n in range(CHECK_MAX):
        it.ask(at + 5 * n, 1)
    it.give_up(at + 10.1, 1)
    assert names([it.result(CHECK_MAX)]) == ({"asked-early"} if early else set())


def test_a_fault_of_clocks_permits_an_early_question() -> None:
    it = story(90)
    it.half(1, 1, immunity_s=30)
    for at in (20, 25, 30):
        it.ask(at, 1)
    it.give_up(30.1, 1)
    it.fault(10, 12, "n1", fault="clock-skew")
    result = it.result(CHECK_MAX)
    assert [(a.name, a.legal is not None) for a in result.anomalies] == [("asked-early", True)]


def test_an_immune_half_message_is_owed_a_question_after_its_time() -> None:
    it = story(90)
    it.half(1, 1, immunity_s=30)
    for at in (50, 55, 60):
        it.ask(at, 1)
    it.give_up(60.1, 1)
    assert names([it.result(CHECK_MAX)]) == set()
    it = story(90)
    it.half(1, 1, immunity_s=30)
    assert names([it.result(CHECK_MAX)]) == {"never-asked"}


@pytest.mark.parametrize(
    ("fault", "missing", "legal"),
    [
        (None, False, False),
        ((18, 20), False, True),  # around the last question
        ((30, 32), False, False),  # long after it
        ((30, 32), True, True),  # the new master may lack the topic
    ],
)
def test_an_undecided_half_message_is_given_up_after_the_last_question(
    fault: tuple[float, float] | None, missing: bool, legal: bool
) -> None:
    it = Story(90)
    a_question(it)
    queue = "t:b:0" if missing else "t:a:0"
    it.half(1, 800)
    for at in (6, 11, 16):
        it.ask(at, 800)
    it.give_up(16.1, 800)
    it.half(1, 1, queue=queue)
    for at in (6, 11, 16):
        it.ask(at, 1, "n4" if missing else "n1")
    if fault is not None:
        it.fault(*fault, "n1")
    found = [(a.name, a.legal is not None) for a in it.result(CHECK_MAX).anomalies]
    assert found == [("not-given-up", legal)]


def test_no_more_questions_come_than_the_limit() -> None:
    it = story()
    undecided(it, 1, 1, questions=CHECK_MAX + 1)
    assert names([it.result(CHECK_MAX)]) == {"not-given-up"}


BUGS = ("given-up-unasked", "asked-early", "not-given-up", "never-asked")


def simulated(seed: int, bug: str | None = None) -> CheckResult:
    """A run of random half messages, with a fault of a's master or none. Its brokers are right, `bug` once not."""
    rng, it = Random(seed), Story(100)
    fault = rng.choice([None, (rng.uniform(8, 25), rng.uniform(1, 6))]) if bug is None else None
    down = (0.0, 0.0) if fault is None else (fault[0], sum(fault) + 2)
    if fault is not None:
        it.fault(fault[0], sum(fault), "n1")
    victim = rng.randint(1, 20)
    for identity in range(1, 21):
        at, queue = rng.uniform(0, 20), rng.choice(["t:a:0", "t:b:0"])
        if queue == "t:a:0" and down[0] - 1 <= at <= down[1]:
            queue = "t:b:0"
        mine = bug if identity == victim else None
        immunity = rng.choice([None, 12]) if mine is None else 12
        it.half(at, identity, queue=queue, immunity_s=immunity)
        live(it, rng, identity, at, queue, immunity or 3, down, mine)
    it.finish(every_s=2)
    it.read_given_up()
    return it.judge(check_max=CHECK_MAX)


def live(
    it: Story,
    rng: Random,
    identity: int,
    at: float,
    queue: str,
    immunity: int,
    down: tuple[float, float],
    bug: str | None,
) -> None:
    """The rounds of the brokers for one half message: a question that a fault hits is lost, and counted."""
    node = "n1" if queue == "t:a:0" else "n4"
    struck = queue == "t:a:0"
    decided = rng.choice([None, None, "commit", "rollback"]) if bug is None else None
    if bug == "never-asked":
        return
    round_ = at + immunity + rng.uniform(0.1, 4.9)
    if bug == "asked-early":
        round_ = at + rng.uniform(3, immunity - 1.5)
    counted = 0
    while counted < CHECK_MAX:
        if struck and down[0] - 0.1 <= round_ <= down[1]:
            if round_ <= down[1] - 2:
                round_ = down[1] - 2 + rng.uniform(0, 5)  # nobody counts while it is down
                continue
            heard = rng.random() < 0.5
        else:
            heard = True
        counted += 1
        if heard and not (bug == "given-up-unasked" and counted == 2):
            it.ask(round_, identity, node)
            if decided is not None:
                it.end(round_ + 0.1, identity, decided, node=node)
                if decided == "commit":
                    it.deliver(round_ + 0.105, identity, queue)
                return
        round_ += 5 + rng.uniform(0, 0.1)
    if bug != "not-given-up":
        it.give_up(round_ - 4.9, identity)


def test_good_runs_raise_no_alarm() -> None:
    alarms = {seed: r.reason for seed in range(30) if names([r := simulated(seed)])}
    assert alarms == {}


@pytest.mark.slow
@pytest.mark.nightly
def test_a_thousand_good_runs() -> None:
    alarms = {seed: r.reason for seed in range(1000) if names([r := simulated(seed)])}
    assert alarms == {}


@pytest.mark.parametrize("bug", BUGS)
def test_every_planted_violation_is_found(bug: str) -> None:
    for seed in range(12):
        result = simulated(seed, bug)
        assert {a.name for a in result.anomalies if a.legal is None} == {bug}, (seed, result.reason)
