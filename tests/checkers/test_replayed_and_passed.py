# SPDX-License-Identifier: Apache-2.0
"""`Replayed`: what a reset brought back before a later one passed over it counts, and nothing else about it does."""

from __future__ import annotations

from checkers.messages.consuming.replayed import Replayed
from results.verdict import CheckResult, Verdict
from tests.stories import S, TimedStory


def judged(*again_s: float) -> CheckResult:
    """A message is received at 2 s; a reset goes back to it at 3 s, one to the end at 6 s; it comes again so late."""
    story = TimedStory()
    about = {"group": "g", "member": "m0"}
    story.call(0.1, "join", None, None, "m0-1", **about)
    story.call(1, "send", "t:a:0", 1, [0, 1], node="n1", ask={"properties": {"TAGS": "a"}})
    for at, offset in ((3, 0), (6, 1)):
        story.call(at, "reset", "t:a:0", offset, {"t:a:0": offset}, group="g", node="n1", to="offset")
    events: list[tuple[float, list[object]]] = [(0.5, ["started", "c"])]
    for n, at in enumerate((2.0, *again_s)):
        events += [(at, ["delivered", n, "t:a:0", 0, 1, 0, "a"]), (at + 0.1, ["done", n, True])]
    shown = [[kind, int((90.01 - at) * S), 1, *rest] for at, (kind, *rest) in events]
    story.call(90, "take", None, None, shown, **about)
    read = {"min": 0, "max": 1, "next": 1, "done": True, "phase": "final", "node": "n1"}
    story.call(91, "replica-read", "t:a:0", 0, [[0, 1]], **read)
    return Replayed().check(story.run())


def test_what_came_before_a_later_reset_passed_over_it_is_evidence() -> None:
    result = judged(4.0)
    assert result.verdict == Verdict.VALID
    assert (result.stats["back"], result.stats["replayed"]) == (1, 1)


def test_what_a_later_reset_may_have_passed_over_is_none() -> None:
    """It did not come, or it came after the later reset, so that the first one may not be the reason."""
    for again in ((), (8.0,)):
        result = judged(*again)
        assert result.verdict == Verdict.UNKNOWN, again
        assert result.anomalies == []
