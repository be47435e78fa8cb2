# SPDX-License-Identifier: Apache-2.0
"""A message that a push consumer popped may come again after a refused acknowledgement, and only then."""

from __future__ import annotations

from checkers.messages.consuming.delivered import Delivered
from results.verdict import CheckResult
from tests.stories import S, TimedStory
from workloads.consume.crew import show


def judged(*events: tuple[float, list[object]]) -> CheckResult:
    """A group of one member that pops, with one message, and these reports (s, event)."""
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {"TAGS": "a"}})
    shown = [[kind, int((90.01 - at) * S), 1, *rest] for at, (kind, *rest) in events]
    story.call(90, "take", None, None, shown, **about)
    read = {"min": 0, "max": 1, "next": 1, "done": True, "phase": "final", "node": "n1"}
    story.call(91, "replica-read", "t:a:0", 0, [[0, 1]], **read)
    return Delivered(holds=False).check(story.run())


FIRST = [(2.0, ["delivered", 1, "t:a:0", 0, 1, 0, "a"]), (2.1, ["done", 1, True])]
SECOND_TIME = [(13.0, ["delivered", 2, "t:a:0", 0, 1, 1, "a"]), (13.1, ["done", 2, True])]
THIRD = [(24.0, ["delivered", 3, "t:a:0", 0, 1, 1, "a"]), (24.1, ["done", 3, True])]
REFUSED = [(2.2, ["ack-refused", 1, 2])]


def test_a_refused_acknowledgement_permits_one_delivery_and_is_counted() -> None:
    """Without the refusal the second delivery is an anomaly; with it the third one is, whose own was not refused."""
    assert [(a.name, a.cases) for a in judged(*FIRST, *SECOND_TIME).anomalies] == [("redelivered-to-holder", 1)]
    excused = judged(*FIRST, *REFUSED, *SECOND_TIME)
    assert excused.anomalies == []
    assert [(e.rule, e.used) for e in excused.excuses] == [("redelivered", 1)]
    assert "refused its acknowledgement (code 2)" in excused.excuses[0].why
    again = judged(*FIRST, *REFUSED, *SECOND_TIME, *THIRD)
    assert [(a.name, a.cases) for a in again.anomalies] == [("redelivered-to-holder", 1)]


def test_a_refusal_after_the_redelivery_permits_nothing() -> None:
    """A broker refuses an acknowledgement that comes too late: that is no reason for what came before it."""
    late = judged(*FIRST, *SECOND_TIME, (14.0, ["ack-refused", 1, 2]))
    assert [(a.name, a.cases) for a in late.anomalies] == [("redelivered-to-holder", 1)]


def test_the_report_of_a_process_is_kept() -> None:
    assert show({"event": "ack-refused", "name": "m0", "n": 3, "code": 2}) == ["ack-refused", 3, 2]
