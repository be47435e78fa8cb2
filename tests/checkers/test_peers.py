# SPDX-License-Identifier: Apache-2.0
"""Cases of Jepsen's `kafka_test` and `checker_test`, and of the tests of Knossos and Porcupine, in our own words.

`tests/data/peers/*.jsonl` has a case a line: its ops as [process, type, f, value, extra], what Jepsen says of it, what
we say, and, where that is not the same, why. Transactions of several messages are taken apart, or left out: RocketMQ
has none over several queues.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability import INCONSISTENT, Inconsistent, Linearizable, Model, Register, Transition, check
from checkers.linearizability.models import MODELS
from checkers.messages.log import LogAnomalies
from checkers.messages.ops import validate
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.verdict import Verdict

PEERS = Path(__file__).parents[1] / "data" / "peers"

SAME_AS = {
    "G1a": "aborted-read",
    "lost-write": "lost",
    "duplicate": "duplicated",
    "inconsistent-offsets": "inconsistent-offsets",
    "nonmonotonic-send": "reordered",
    "nonmonotonic-poll": "position-regression",
    "poll-skip": "position-jump",
    "int-nonmonotonic-poll": "nonmonotonic-poll",
    "int-poll-skip": "hole",
    "int-send-skip": "no name",
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


_Sets = frozenset[frozenset[int]]


class SomeOf(Model[_Sets]):
    """A register that keeps some subset of what is put (`put-any`), and shows some of that (`get-any`) or all of it.

    What may be in there is the state: a model that is not deterministic becomes one of all its possible states.
    """

    name, noun, fs = "some-of", "register", frozenset({"put-any", "get-any", "get-all"})
    observers = frozenset({"get-any", "get-all"})
    initial = frozenset({frozenset[int]()})

    def pure(self, op: Transition) -> bool:
        return False

    def step(self, state: _Sets, op: Transition) -> _Sets | Inconsistent:
        if op.f == "put-any":
            return frozenset(frozenset(some) for n in range(len(op.value) + 1) for some in combinations(op.value, n))
        if not op.known:
            return state
        shown = frozenset(op.value)
        left = frozenset(one for one in state if (shown <= one if op.f == "get-any" else shown == one))
        return left or INCONSISTENT


@pytest.mark.parametrize("case", cases("linearizability.jsonl"))
def test_linearizability(case: dict[str, Any]) -> None:
    makes: dict[str, type[Model[Any]]] = {**MODELS, SomeOf.name: SomeOf}
    model = makes[case["model"]]
    history = record(case, "k").history
    indices = [op.extra.get("index", op.index) for op in history]
    history = History(replace(op, index=index) for op, index in zip(history, indices, strict=True))
    given = model() if "initial" not in case else Register(case["initial"])
    found = check(history, given)
    assert found.verdict.value == case["ours"], found.reason
    assert ("why" in case) != (case["peer"] == case["ours"])
    if "failing_op" in case:
        assert found.failing_op == case["failing_op"]
