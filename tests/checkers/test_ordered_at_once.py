# SPDX-License-Identifier: Apache-2.0
"""`Ordered` with message groups: reports of two processes are compared no closer than 20 ms; those of one are."""

from __future__ import annotations

import pytest

from checkers.messages.consuming.ordered import Ordered
from results.verdict import CheckResult
from tests.stories import S, TimedStory


def judged(late_s: float, members: str = "m0 m1") -> CheckResult:
    """Offset 1 of a message group comes at 5 s; the member of offset 0 reports its end so much later."""
    story = TimedStory()
    first, second = members.split()
    for n, member in enumerate(sorted({first, second})):
        story.call(0.1 + n / 100, "join", None, None, f"{member}-1", group="g", member=member)
    for n in range(2):
        ask = {"properties": {"TAGS": "a", "__SHARDINGKEY": "x"}}
        story.call(1 + n / 10, "send", "t:a:0", n + 1, [n, n + 1], node="n1", ask=ask)
    events = [
        (first, 5 + late_s - 0.001, ["delivered", 1, "t:a:0", 0, 1, 0, "a"]),
        (first, 5 + late_s, ["done", 1, True]),
        (second, 5.0, ["delivered", 2, "t:a:0", 1, 2, 0, "a"]),
        (second, 5.0005, ["done", 2, True]),
    ]
    for n, member in enumerate(sorted({first, second})):
        mine = sorted((at, kind, rest) for of, at, (kind, *rest) in events if of == member)
        at = 90 + n
        shown = [[kind, int((at + 0.01 - then) * S), 1, *rest] for then, kind, rest in mine]
        story.call(at, "take", None, None, shown, group="g", member=member)
    read = {"min": 0, "max": 2, "next": 2, "done": True, "phase": "final", "node": "n1"}
    story.call(95, "replica-read", "t:a:0", 0, [[0, 1], [1, 2]], **read)
    return Ordered(None, 1, within="__SHARDINGKEY").check(story.run())


def test_two_processes_that_report_at_once_are_in_no_known_order() -> None:
    """Seen on real servers: 4.5 ms, between members that hand a queue over within a millisecond."""
    result = judged(0.015)
    assert result.anomalies == []
    assert [(e.rule, e.used) for e in result.excuses] == [("out-of-order", 1)]


@pytest.mark.parametrize(("late_s", "members"), [(0.025, "m0 m1"), (0.015, "m0 m0")])
def test_more_than_that_or_one_process_is_out_of_order(late_s: float, members: str) -> None:
    assert "out-of-order" in {a.name for a in judged(late_s, members).anomalies}
