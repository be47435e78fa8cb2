# SPDX-License-Identifier: Apache-2.0
"""Valid is said only of an order that was replayed: monitors and searches whose order is wrong get no verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz.unique import UNIQUE, histories, model_of
from models_at_work import told

from checkers.linearizability import CasRegister, Linearizable, Problem, check, direct
from checkers.linearizability.decide import decide
from checkers.linearizability.fast import FAST, fast
from checkers.linearizability.monitors import logs, queues, registers
from checkers.linearizability.outcome import Outcome
from results.history import Call, History
from results.op import Op
from results.sealed import read_columns, seal
from results.verdict import Verdict

Judge = Callable[[Problem], Outcome | None]


def without_its_last_op(judge: Judge) -> Judge:
    def wrong(problem: Problem) -> Outcome | None:
        found = judge(problem)
        return found and (found if not found.witness else replace(found, witness=found.witness[:-1]))

    return wrong


@pytest.mark.parametrize("family", [family for family, (model, _) in UNIQUE.items() if model != "mutex"])
@pytest.mark.slow
def test_a_monitor_whose_order_is_wrong_gets_no_verdict(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, model = Random(f"replay/{family}"), model_of(family)
    judge = fast(model).monitor
    assert judge is not None
    right = [calls for _ in range(60) for calls in histories(family, rng) if check(calls, model).witness]
    monkeypatch.setitem(FAST, type(model), replace(fast(model), monitor=without_its_last_op(judge), partition=None))
    seen = 0
    for calls in right:
        result = check(calls, model)
        seen += "failed its replay" in result.reason
        assert ("failed its replay" in result.reason) == (result.verdict == Verdict.UNKNOWN), told(calls)
    assert seen > 20


@pytest.mark.parametrize("module", [registers, queues, logs])
def test_columns_whose_order_is_wrong_get_no_verdict(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not handed on to another way, either: a defect of the checker has to be seen."""
    family = {registers: "register", queues: "fifo-queue", logs: "log"}[module]
    rng, model, seen = Random(f"columns/{family}"), model_of(family), 0
    monitor = replace(module.MONITOR, order=lambda ops: module.MONITOR.order(ops)[:-1])
    right = [calls for _ in range(60) for calls in histories(family, rng) if check(calls, model).witness]
    monkeypatch.setitem(FAST, type(model), replace(fast(model), columns=lambda: monitor))
    monkeypatch.setattr(direct, "MANY", 1)
    for calls in right:
        result = check(calls, model)
        seen += "failed its replay" in result.reason
        assert ("failed its replay" in result.reason) == (result.verdict == Verdict.UNKNOWN), told(calls)
    assert seen > 20


def test_a_sealed_history_whose_order_is_wrong_gets_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [Op(0, 0, 0, "invoke", "write", "k", 1), Op(1, 1, 0, "ok", "write", "k", 1)]
    seal(ops, tmp_path / "history.parquet")
    columns = read_columns(tmp_path / "history.parquet")
    found = Linearizable(CasRegister()).examine_columns(columns)
    assert found is not None
    assert found[0].verdict == Verdict.VALID
    monitor = replace(registers.MONITOR, order=lambda ops: registers.MONITOR.order(ops)[:-1])
    monkeypatch.setitem(FAST, CasRegister, replace(fast(CasRegister()), columns=lambda: monitor))
    found = Linearizable(CasRegister()).examine_columns(columns)
    assert found is not None
    assert found[0].verdict == Verdict.UNKNOWN
    assert "failed its replay" in found[0].reason


def test_a_search_whose_order_is_wrong_gets_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    module = __import__(decide.__module__, fromlist=["_stages"])
    stages = module._stages

    def wrong(problem: Problem, *rest: Any) -> Any:
        for search, steps in stages(problem, *rest):
            yield without_its_last_op(search), steps

    monkeypatch.setattr(module, "_stages", wrong)
    result = check(repeated([1, 2, 1]), CasRegister())
    assert result.verdict == Verdict.UNKNOWN
    assert "failed its replay" in result.reason
    assert result.witness is None


def repeated(values: Sequence[int]) -> Sequence[Call]:
    """Writes of values, so that no monitor of unique values applies."""
    return History(
        Op(2 * i + end, 0, 0, "ok" if end else "invoke", "write", "k", value)
        for i, value in enumerate(values)
        for end in (0, 1)
    ).calls
