# SPDX-License-Identifier: Apache-2.0
"""The anomaly that stands for several cases: the limit, the window and the text of one and the same case."""

from __future__ import annotations

from stories import TimedStory

from checkers.base.cases import Case, anomalies
from checkers.base.timeline import RunTimeline

S = 1_000_000_000


def test_the_limit_is_that_of_the_case_described() -> None:
    """Cases of one list may have different limits. A shortage of processors excuses a case by `limit_s`: the limit of
    another one would make an `invalid` run `unknown`, or the reverse.
    """
    short = Case(0, 11 * S, [0], "the shorter", limit=10 * S)
    long = Case(20 * S, 36 * S, [1], "the longer", limit=15 * S)
    story = TimedStory()
    story.call(0, "send", "t", 1, 1)
    scene = RunTimeline(story.run())
    for cases in ([short, long], [long, short]):
        (found,) = anomalies(scene, "late", cases, "{n} were late")
        assert (found.limit_s, found.window) == (15, (20 * S, 36 * S))
        assert found.summary.startswith("2 were late: the longer.")
