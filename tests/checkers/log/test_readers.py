# SPDX-License-Identifier: Apache-2.0
"""Messages that readers skip, and permitted moves of a consumer's own position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sim.rocketmq import names
from stories import Story

from checkers.messages.log import LogAnomalies, LogLinearizable, Replicas
from results.op import OpType
from results.verdict import CheckResult, Verdict


def log(story: Story) -> CheckResult:
    return LogAnomalies().check(story.record)


def three(second: OpType = "ok") -> Story:
    """Messages 1, 2, 3 at offsets 0, 1, 2; the outcome of the second is as given."""
    story = Story()
    story.send(1, 0)
    story.send(2, 1 if second == "ok" else None, second, process=1)
    story.send(3, 2)
    return story


@pytest.mark.parametrize(
    ("second", "expected"),
    [("ok", {"poll-skip"}), ("info", {"poll-skip"}), ("fail", {"poll-skip", "aborted-read"})],
)
@pytest.mark.parametrize("asked", [0, 1])
def test_a_reader_is_taken_past_a_message_by_the_answer_s_first_offset(
    asked: int, second: OpType, expected: set[str]
) -> None:
    story = three(second)
    story.poll(1, 2)
    story.call("poll", asked, [[0, 1], [2, 3]][asked:], process=8, node="n1", min=0, max=3)
    story.final(1, 2, 3)
    wanted = expected if asked == 1 else (expected - {"poll-skip"}) | {"hole"}
    assert names([log(story)]) == wanted


def test_a_message_that_was_acknowledged_after_the_poll_was_asked_is_passed_all_the_same() -> None:
    story = Story()
    story.put(1, "invoke", "send", 2)
    story.send(1, 0)
    story.send(3, 2, process=2)
    story.put(8, "invoke", "poll", 1)
    story.put(1, "ok", "send", [1, 2], node="n1")
    story.put(8, "ok", "poll", [[2, 3]], node="n1", min=0, max=3)
    story.final(1, 2, 3)
    assert names([log(story)]) == {"poll-skip"}


def test_an_answer_that_begins_behind_an_offset_at_which_nothing_stands_shows_a_hole() -> None:
    story = Story()
    story.send(1, 0)
    story.send(3, 2)
    story.call("poll", 1, [[2, 3]], process=8, node="n1", min=0, max=3)
    result = log(story)
    assert names([result]) == {"hole"}
    assert "no message at 1" in result.anomalies[0].summary


@pytest.mark.parametrize(("following", "expected"), [(3, {"poll-skip"}), (1, set())])
@pytest.mark.parametrize("sent_before", [True, False])
def test_an_empty_answer_does_not_send_a_reader_past_messages(
    sent_before: bool, following: int, expected: set[str]
) -> None:
    story = three() if sent_before else Story()
    story.call("poll", 1, [], process=8, node="n1", min=0, max=3, next=following)
    if not sent_before:
        story.ops += [replace(op, index=op.index + 2, time=op.time + 2_000_000) for op in three().ops]
    story.final(1, 2, 3)
    assert names([log(story)]) == expected


def test_what_vanished_is_not_passed() -> None:
    story = three("info")
    story.poll(1, 2)
    story.call("poll", 1, [], process=8, node="n1", min=0, max=3, next=2)
    story.final(1, begin=0)
    assert "poll-skip" not in names([log(story)])


def test_an_answer_to_no_offset_passes_nothing_in_front_of_it() -> None:
    story = three()
    story.next_poll(2, 3)
    assert names([log(story)]) == set(), "no reader requested offset 1"


# A consumer's own position.


def consumer() -> Story:
    """Messages 1 to 6 at offsets 0 to 5, of which a consumer was given two."""
    story = Story()
    for n in range(6):
        story.send(n + 1, n)
    story.next_poll(0, 1, 2)
    return story


def judged(story: Story) -> set[str]:
    story.final(1, 2, 3, 4, 5, 6)
    return names([judge.check(story.record) for judge in (LogAnomalies(), LogLinearizable(), Replicas())])


@pytest.mark.parametrize(
    ("begin", "expected"),
    [(0, {"position-regression"}), (1, {"position-regression"}), (2, set()), (3, {"position-jump"})],
)
@pytest.mark.parametrize("between", [None, "fail", "empty"])
def test_a_poll_goes_on_where_the_one_before_it_ended(begin: int, expected: set[str], between: str | None) -> None:
    story = consumer()
    if between == "fail":
        story.call("poll", None, None, "fail", process=8)
    if between == "empty":
        story.next_poll(2)
    story.next_poll(begin, begin + 1, begin + 2)
    assert judged(story) == expected


def test_what_a_process_did_is_told() -> None:
    story = consumer()
    story.next_poll(4, 5)
    story.next_poll(1, 2)
    text = [a.summary for a in log(story).anomalies]
    assert "process 8 was at offset 5, and continued at 1, without a seek, assignment or crash in between" in text[0]
    assert "process 8 was at offset 2, and continued at 4, past message 3, acknowledged by n1" in text[1]


@pytest.mark.parametrize("begin", [0, 4])
@pytest.mark.parametrize(
    "reason",
    ["start", "failed-start", "seek", "seek-all", "assign", "crash", "process", "key", "named", "fail-of-another"],
)
def test_there_are_reasons_to_go_elsewhere(reason: str, begin: int) -> None:
    story = consumer()
    more: dict[str, Any] = {}
    if reason == "start":
        more["start"] = True
    elif reason == "failed-start":
        story.call("poll", None, None, "fail", process=8, start=True)
    elif reason == "seek":
        story.call("seek", begin, begin, process=8)
    elif reason in ("seek-all", "assign", "crash"):
        kept = {"assign": ["t:a:1"]}.get(reason)
        story.put(8, "invoke", reason.removesuffix("-all"), kept, key=None)
        story.put(8, "ok", reason.removesuffix("-all"), kept, key=None)
    elif reason == "process":
        more["process"] = 11
    elif reason == "key":
        story.call("seek", 0, 0, process=8)
    elif reason == "named":
        story.call("poll", begin, [[begin, begin + 1]], process=8, node="n1")
        assert judged(story) == set()
        return
    elif reason == "fail-of-another":
        story.call("seek", 0, 0, process=3)
        story.next_poll(begin, begin + 1)
        assert judged(story) == {"position-jump" if begin else "position-regression"}
        return
    story.next_poll(begin, begin + 1, **more)
    assert judged(story) == set()


def test_an_assignment_that_keeps_the_queue_changes_nothing() -> None:
    story = consumer()
    story.put(8, "invoke", "assign", ["t:a:0", "t:a:1"], key=None)
    story.put(8, "ok", "assign", ["t:a:0", "t:a:1"], key=None)
    story.next_poll(0, 1)
    assert judged(story) == {"position-regression"}


@pytest.mark.parametrize(("begin", "expected"), [(4, set()), (5, {"position-jump"}), (2, {"poll-skip"})])
def test_a_reset_to_the_oldest_message_is_no_jump(begin: int, expected: set[str]) -> None:
    story = consumer()
    story.call("poll", None, [], process=8, node="n1", min=4, max=6, next=4)
    story.next_poll(begin, begin + 1, min=4)
    assert names([log(story)]) - {"poll-skip"} == expected - {"poll-skip"}


@pytest.mark.parametrize(("following", "expected"), [(0, set()), (1, {"position-regression"})])
def test_a_client_may_go_back_where_the_server_points(following: int, expected: set[str]) -> None:
    story = consumer()
    story.next_poll(2, next=following)
    story.next_poll(0, 1)
    assert judged(story) == expected


@pytest.mark.parametrize(("asked", "expected"), [(2, set()), (0, {"position-regression"}), (4, {"position-jump"})])
def test_polls_that_name_their_offset_are_one_session_after_a_start(asked: int, expected: set[str]) -> None:
    story = Story()
    for n in range(6):
        story.send(n + 1, n)
    story.poll(0, 1, 2, start=True)
    story.poll(asked, asked + 1)
    assert judged(story) == expected


def test_a_jump_beyond_the_end_of_a_queue_passes_nothing() -> None:
    story = consumer()
    story.next_poll(2, 3, 4, 5, 6)
    story.call("poll", 9, [], process=8, node="n1", start=True)
    story.call("poll", 20, [], process=8, node="n1", min=0, max=6, next=6)
    assert judged(story) == set()


@pytest.mark.parametrize(("permitted", "legal"), [({"lost": "one copy"}, True), ({}, False)])
def test_who_goes_back_to_where_messages_are_gone_is_excused_as_their_loss_is(
    permitted: dict[str, str], legal: bool
) -> None:
    story = Story()
    story.send(1, 0)
    story.send(2, 1)
    story.next_poll(0, 1, 2)
    story.send(3, 1, process=2)
    story.next_poll(1, 3)
    story.final(1, 3)
    record = replace(story.record, environment={"permits": permitted})
    result = LogAnomalies().check(record)
    assert names([result]) == {"lost", "position-regression"}
    assert result.verdict == (Verdict.VALID if legal else Verdict.INVALID)
    assert all(a.legal == ("one copy" if legal else None) for a in result.anomalies)
