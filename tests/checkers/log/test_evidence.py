# SPDX-License-Identifier: Apache-2.0
"""Proofs of an anomaly, and what proves none: answers without acknowledgements, deletion for age, unnamed replicas."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.rocketmq import names
from stories import Story

from checkers.messages.log import LogAnomalies, LogLinearizable, Replicas
from results.verdict import CheckResult, Verdict

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


def log(story: Story) -> CheckResult:
    return LogAnomalies().check(story.record)


def all_of(story: Story) -> list[CheckResult]:
    return [judge.check(story.record) for judge in (LogAnomalies(), LogLinearizable(), Replicas())]


# Nothing was acknowledged.


def refused(story: Story) -> None:
    story.send(1, None, "fail")
    story.poll(0, 1)


def unsent(story: Story) -> None:
    story.poll(0, 77)


def stored_twice(story: Story) -> None:
    story.send(1, None, "info")
    story.poll(0, 1, 1)


def hollow(story: Story) -> None:
    story.send(1, None, "info", process=1)
    story.send(2, None, "info", process=2)
    story.poll(0, 1, None, 2)


def backwards(story: Story) -> None:
    story.send(1, None, "info", process=1)
    story.call("poll", 1, [[0, 1]], process=7, node="n1")


@pytest.mark.parametrize(
    ("play", "expected"),
    [
        (refused, "aborted-read"),
        (unsent, "never-sent"),
        (stored_twice, "duplicated"),
        (hollow, "hole"),
        (backwards, "nonmonotonic-poll"),
    ],
)
def test_a_proof_needs_no_acknowledgement(play: Callable[[Story], None], expected: str) -> None:
    story = Story()
    play(story)
    result = log(story)
    assert (result.verdict, names([result])) == (INVALID, {expected})
    assert "None" not in str([a.summary for a in result.anomalies])


def test_without_acknowledgement_and_proof_nothing_is_known() -> None:
    story = Story()
    story.send(1, None, "info")
    story.poll(0, 1)
    assert log(story).reason == "no message was acknowledged"
    assert log(Story()).reason == "no message was sent"


# A message of unknown outcome whose place was named.


@pytest.mark.parametrize(("at", "expected"), [(1, {"inconsistent-offsets"}), (3, set())])
def test_an_uncertain_answer_that_names_an_offset_is_held_to_it(at: int, expected: set[str]) -> None:
    story = Story()
    story.put(5, "invoke", "send", 2)
    for n in range(4):
        if n != at:
            story.send(n + 10, n)
    story.put(5, "info", "send", 2, node="n1", offset=3)
    shown = [2 if n == at else n + 10 for n in range(4)]
    story.poll(0, *shown)
    story.final(*shown)
    result = log(story)
    assert names([result]) == expected
    assert not expected or "message 2 of unknown outcome, was put at offset 3" in result.anomalies[0].summary


def test_an_uncertain_message_may_be_gone_and_its_offset_another_s() -> None:
    story = Story()
    story.call("send", 2, 2, "info", process=5, node="n1", offset=0)
    story.send(1, 0, node="n2")
    story.final(1)
    assert [r.verdict for r in all_of(story)] == [VALID] * 3


# Final readings that do not say of which node they are.


@pytest.mark.parametrize("other", [None, "n2"])
def test_a_final_reading_need_not_name_its_node(other: str | None) -> None:
    story = Story()
    story.send(1, 0)
    story.call("replica-read", 0, [[0, 1]], process=9, done=True)
    if other:
        story.final(1, node=other)
    assert [r.verdict for r in all_of(story)] == [VALID] * 3
    gone = Story()
    gone.send(1, 0)
    gone.send(2, 1)
    gone.call("replica-read", 0, [[0, 1]], process=9, done=True)
    assert names([log(gone)]) == {"lost"}


def test_a_final_reading_that_names_no_offset_begins_at_the_start() -> None:
    story = Story()
    story.send(1, 0)
    story.send(2, 1)
    story.call("replica-read", None, [[0, 1], [1, 2]], process=9, done=True)
    assert [r.verdict for r in all_of(story)] == [VALID] * 3


# What was deleted for its age.


@pytest.mark.parametrize(("read", "verdict"), [(True, VALID), (False, UNKNOWN)])
def test_what_expired_is_not_lost(read: bool, verdict: Verdict) -> None:
    story = Story()
    story.send(1, 0)
    story.send(2, 1)
    if read:
        story.poll(0, 1)
    story.final(2, begin=1, min=1)
    found = all_of(story)
    assert (names(found), [r.verdict for r in found]) == (set(), [verdict, VALID, VALID])
    asked_low = Story()
    asked_low.ops = story.ops[:-2]
    asked_low.call("replica-read", 0, [[1, 2]], process=9, node="n1", min=1, max=2, next=2, done=True)
    assert [r.verdict for r in all_of(asked_low)] == [verdict, VALID, VALID]


def test_a_reader_that_was_sent_past_what_expired_proves_no_loss() -> None:
    story = Story()
    story.send(1, 0)
    story.send(2, 1)
    story.call("poll", 0, [[1, 2]], process=7, node="n1", min=1, max=2)
    assert names([log(story)]) == set()


def test_behind_what_expired_a_loss_is_a_loss() -> None:
    story = Story()
    for n in range(4):
        story.send(n + 1, n)
    story.final(2, 3, begin=1, min=1)
    assert names([log(story)]) == {"lost"}


@pytest.mark.parametrize(("role", "lost"), [({}, False), ({"role": "master"}, True)])
def test_what_one_replica_deleted_is_decided_by_one_that_spans_it_or_by_the_master(
    role: dict[str, str], lost: bool
) -> None:
    story = Story()
    for n in range(6):
        story.send(n + 1, n)
    story.final(1, 2, node="n1", **role)
    story.final(5, 6, node="n2", begin=4, min=4)
    assert ("lost" in names([log(story)])) == lost, "n1 may be behind, and n2 may have had them"
    story.final(1, 2, 3, 7, 5, 6, node="n3")
    assert "lost" in names([log(story)]), "n3 spans offset 3, and has another message there"


# Where a queue begins.


def test_a_queue_may_begin_anywhere() -> None:
    story = Story()
    story.send(1, 537)
    assert LogLinearizable().check(story.record).verdict == VALID
    story.send(2, 538)
    story.call("poll", 0, [[537, 1], [538, 2]], process=7, node="n1")
    story.call("replica-read", 0, [[537, 1], [538, 2]], process=9, node="n1", done=True)
    assert [r.verdict for r in all_of(story)] == [VALID] * 3
    story.send(3, 540)
    assert names(all_of(story)) >= {"nonlinearizable"}, "539 is nobody's"


def test_the_minimum_that_a_broker_names_tells_where_a_queue_begins() -> None:
    story = Story()
    story.call("poll", 0, [], process=7, node="n1", min=0, max=0)
    story.send(1, 1)
    found = LogLinearizable().check(story.record)
    assert names([found]) == {"nonlinearizable"}
    assert "message 1 acknowledged at offset 1" in found.anomalies[0].summary


@pytest.mark.parametrize("known", [True, False])
def test_what_others_had_sent_before_is_none_of_a_run_s_messages(known: bool) -> None:
    story = Story()
    if known:
        story.call("max-offset", None, 2)
    story.send(1, 2)
    story.poll(0, "?6f6c64", 99, 1, min=0, max=3)
    story.final("?6f6c64", 99, 1)
    assert names(all_of(story)) == (set() if known else {"never-sent", "nonlinearizable"})


def test_an_end_that_was_asked_for_while_sends_went_on_is_no_beginning() -> None:
    story = Story()
    story.send(1, 0)
    story.call("max-offset", None, 1)
    story.final(1)
    story.poll(0, 1, 55)
    assert "never-sent" in names([log(story)])
