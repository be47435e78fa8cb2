# SPDX-License-Identifier: Apache-2.0
"""The judges of the workload `consume`: silent about good groups, and right about the others."""

from __future__ import annotations

import pytest

from checkers.messages.consuming import Delivered, Ordered
from results.record import RunRecord
from results.verdict import CheckResult, Verdict
from tests.effort import effort
from tests.sim.consumers import Bug, Group

GOOD = {"concurrently": {}, "filtered": {"filtered": True}, "orderly": {"orderly": True},
        "orderly, filtered": {"orderly": True, "filtered": True}}  # fmt: skip


def judged(group: Group, run: RunRecord) -> list[CheckResult]:
    wanted = group.tags
    return [Delivered(wanted).check(run), *([Ordered(wanted).check(run)] if group.orderly else [])]


@pytest.mark.parametrize("kind", GOOD)
def test_silent_about_good_groups(kind: str) -> None:
    """A false alarm would cost the workload its readers: crashes, moves of queues and retries are no violation."""
    again = 0
    for seed in range(effort(64, 4)):
        group = Group(seed, **GOOD[kind])
        for result in judged(group, group.run()):
            assert result.verdict == Verdict.VALID, (seed, result.reason, [a.summary for a in result.anomalies])
            again += sum(excuse.used for excuse in result.excuses if excuse.rule == "redelivered")
    assert again, "no member ended or moved with work that was not committed: the runs show too little"


FINDS = {
    Bug.SKIP: ("lost-to-group", {"failing": 0.0}),
    Bug.STUCK: ("undelivered", {}),
    Bug.LEAK: ("filtered-delivered", {"filtered": True}),
    Bug.LOST_RETRY: ("retry-lost", {}),
    Bug.AGAIN: ("redelivered-to-holder", {}),
    Bug.EARLY: ("out-of-order", {"orderly": True}),
    Bug.SHARED: ("two-owners", {"orderly": True}),
}


@pytest.mark.parametrize("bug", FINDS)
def test_finds_planted_bugs(bug: Bug) -> None:
    """Each promise has a planted violation, found under its own name in most runs in which it struck."""
    name, how = FINDS[bug]
    struck = found = 0
    for seed in range(effort(16, 4)):
        group = Group(seed, bug=bug, **how)
        results = judged(group, group.run())
        if not group.planted:
            continue
        struck += 1
        found += any(a.name == name for result in results for a in result.anomalies)
    assert struck, "the bug was never planted"
    assert found >= struck * 0.75, (struck, found)


def test_a_busy_group_is_not_judged() -> None:
    """A group that still gets messages when the run ends proves nothing about those that it did not get."""
    result = Delivered().check(Group(3, end_s=15.0).run())
    assert result.verdict == Verdict.UNKNOWN
    assert "still busy" in result.reason
