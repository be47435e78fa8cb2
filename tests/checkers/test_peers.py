"""The cases of Jepsen's `kafka_test` and `checker_test` that apply to judges of messages and of sets, in our own words.

`tests/data/peers/*.jsonl` has a case a line: its ops as [process, type, f, value, extra], what Jepsen says of it, what
we say, and, where that is not the same, why. Transactions of several messages are taken apart, or left out: RocketMQ
has none over several queues.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability import Linearizable
from checkers.linearizability.models import MODELS
from checkers.log import LogAnomalies
from checkers.message_ops import validate
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Verdict

PEERS = Path(__file__).parents[1] / "data" / "peers"

SAME_AS = {
    "G1a": "phantom",
    "lost-write": "lost",
    "duplicate": "duplicated",
    "inconsistent-offsets": "inconsistent-offsets",
    "nonmonotonic-send": "reordered",
    "nonmonotonic-poll": "position-regression",
    "poll-skip": "position-jump",
    "int-nonmonotonic-poll": "nonmonotonic-poll",
    "int-poll-skip": "hole",
    "int-send-skip": "no name of ours",
}
"""Jepsen's name -> ours."""


def cases(name: str) -> list[Any]:
    rows = [json.loads(line) for line in (PEERS / name).read_text().splitlines()]
    return [pytest.param(row, id=f"{row['from']}: {row['case']}") for row in rows]


def record(case: dict[str, Any], key: str | None) -> RunRecord:
    ops = []
    for at, (process, type_, f, value, *more) in enumerate(case["ops"]):
        extra = dict(more[0]) if more else {}
        ops.append(Op(at, at * 1_000_000, process, type_, f, extra.pop("key", key), value, None, extra))
    return RunRecord(History(ops))


@pytest.mark.parametrize("case", cases("kafka.jsonl"))
def test_logs(case: dict[str, Any]) -> None:
    run = record(case, "x")
    assert validate(run.history) == []
    result = LogAnomalies().check(run)
    assert sorted({a.name for a in result.anomalies}) == case["ours"]
    assert (result.verdict == Verdict.INVALID) == bool(case["ours"])
    assert ("why" in case) != (sorted(SAME_AS[name] for name in case["jepsen"]) == case["ours"])


@pytest.mark.parametrize("case", cases("sets_and_queues.jsonl"))
def test_sets_and_queues(case: dict[str, Any]) -> None:
    result = Linearizable(MODELS[case["model"]]()).check(record(case, None))
    assert result.verdict.value == case["ours"]
    assert ("why" in case) != (case["jepsen"] == case["ours"])
