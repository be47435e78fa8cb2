# SPDX-License-Identifier: Apache-2.0
"""The same history with gaps between its offsets has the same anomalies, if gaps are allowed (`--offsets sparse`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sim.rocketmq import Bug, simulate

from checkers.base.api import judge
from harness.parts import registry
from results.formats.messages import in_our_form
from results.history import History
from results.op import Op
from results.record import RunRecord

_SHOWING = ("poll", "replica-read", "consume")


def stretched(ops: Iterator[Op]) -> Iterator[Op]:
    """The ops with each offset at three times its place. A bound lies anywhere in the gap in front of it."""

    def far(offset: Any, gap: int = 0) -> Any:
        return max(0, 3 * offset - gap) if type(offset) is int else offset

    for op in ops:
        value, extra = op.value, dict(op.extra)
        for gap, name in enumerate(("offset", "min", "max")):
            if name in extra:
                extra[name] = far(extra[name], gap)
        if "next" in extra:
            extra["next"] = far(extra["next"], 1)
        if op.f == "send" and isinstance(value, list):
            value = [far(value[0]), value[1]]
        elif op.f in _SHOWING and isinstance(value, list):
            value = [[far(offset), identity] for offset, identity in value]
        elif op.f in (*_SHOWING, "max-offset", "seek", "commit", "committed"):
            value = far(value, 2)
        yield replace(op, value=value, extra=extra)


def anomalies(history: History, offsets: Any) -> tuple[str, list[str]]:
    found = in_our_form(history, offsets).history
    judges = registry.workload_class("log").judges({op.f for op in found.clients}, False)
    result = judge(RunRecord(found), judges or ())
    return result.verdict.value, [anomaly.name for anomaly in result.anomalies]


@pytest.mark.parametrize("bug", [None, Bug.DUPLICATE, Bug.SWAP, Bug.STALE, Bug.SKIP, Bug.HOLE, Bug.LEAP, Bug.REWIND])
def test_gaps_hide_and_invent_nothing(bug: Bug | None) -> None:
    record, _ = simulate(1, bug, strikes_at=())
    dense = History(replace(op, index=at) for at, op in enumerate(record.history.clients))
    wanted = anomalies(dense, "dense")
    assert wanted[0] == ("invalid" if bug else "valid")
    assert anomalies(History(stretched(iter(dense))), "sparse") == wanted


@pytest.mark.parametrize("seed", range(3))
def test_polls_as_final_reads_find_nothing_in_a_good_run(seed: int) -> None:
    """Readers lag, poll empty, and begin anywhere: no message may count as lost for that."""
    record, _ = simulate(seed, None, strikes_at=())
    polls = [op for op in record.history.clients if op.f != "replica-read"]
    history = History(replace(op, index=at) for at, op in enumerate(polls))
    assert anomalies(history, None)[1] == []
