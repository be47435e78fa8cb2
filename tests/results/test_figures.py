# SPDX-License-Identifier: Apache-2.0
"""One figure has one value, wherever it is shown."""

from __future__ import annotations

import pytest

from checkers.run.stats import summary
from results.figures import SECOND, clock, many
from results.history import History
from results.impact import CALM, impacts
from results.op import Op
from results.report.tables import stats

MS = 1_000_000


def reads(*took_ms: int) -> History:
    """One after the other, each of so many milliseconds."""
    ops: list[Op] = []
    for number, ms in enumerate(took_ms):
        begin = number * SECOND
        ops.append(Op(len(ops), begin, 0, "invoke", "read"))
        ops.append(Op(len(ops), begin + ms * MS, 0, "ok", "read", value=1))
    return History(ops)


@pytest.mark.parametrize("count", range(1, 12))
def test_the_median_is_the_same_in_the_verdict_the_faults_and_the_report(count: int) -> None:
    history = reads(*range(1, count + 1))
    median = (count + 1) // 2
    (calm,) = impacts(history)
    assert (calm.fault, calm.p50_ms, summary(history.calls)["p50"]) == (CALM, median, median)
    (row,) = stats(history.calls)
    assert row.quantiles[0] == f"{median} ms"


def test_a_moment_never_has_sixty_seconds() -> None:
    assert [clock(ns * MS) for ns in (0, 59_940, 59_970, 60_000, 118_400, 3_599_970)] == [
        "00:00.0",
        "00:59.9",
        "01:00.0",
        "01:00.0",
        "01:58.4",
        "60:00.0",
    ]


def test_a_number_of_things() -> None:
    assert [many(1, "message"), many(1_200, "message"), many(2, "history", "histories")] == [
        "1 message",
        "1,200 messages",
        "2 histories",
    ]
