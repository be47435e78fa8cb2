# SPDX-License-Identifier: Apache-2.0
"""A few of the histories of `tests.fuzz.middle`, and whether it would notice a wrong stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from effort import effort
from fuzz import middle
from fuzz.middle import FAMILIES, fuzz

from checkers.linearizability import Budget, LinearResult, Model, check
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.outcome import Outcome
from results.history import Call
from results.verdict import Verdict

QUICK = ("cas-register", "unique cas-register", "unique register", "unique kv", "mutex")
FEW = {
    "fifo-queue": 8,
    "unique fifo-queue": 8,
    "unordered-queue": 8,
    "counter": 20,
    "unique log": 20,
    "fenced-lock": 20,
}
"""So many histories of these are enough to have valid and invalid ones among them; the night has more."""
LONGEST = ("unique fifo-queue, drained", "stack")
"""A minute for eight histories: the night alone."""


@pytest.mark.parametrize("family", QUICK)
def test_all_ways_agree(family: str) -> None:
    tally = fuzz(family, effort(8, least=8), seed=1, plain_every=4)
    assert not tally.wrong, tally.wrong[0]
    assert tally.histories >= 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "count"),
    [(family, FEW.get(family, 60)) for family in FAMILIES if family not in LONGEST]
    + [pytest.param(family, 60, marks=pytest.mark.nightly) for family in (*FEW, *LONGEST)],
)
def test_all_ways_agree_on_every_model(family: str, count: int) -> None:
    tally = fuzz(family, effort(count, least=min(count, 15)), seed=2, plain_every=10)
    assert not tally.wrong, tally.wrong[0]
    assert tally.valid
    assert tally.invalid


def test_a_wrong_stage_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def always_valid(problem: Problem) -> Outcome:
        return Outcome(Verdict.VALID, "wrong", 0, witness=problem.ops)

    monkeypatch.setattr(middle, "monitor", always_valid)
    assert any("bad witness" in line for line in fuzz("cas-register", 8, 3, 0).wrong)


def test_another_failing_op_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(calls: Sequence[Call], model: Model[Any], budget: Budget) -> LinearResult:
        result = check(calls, model, budget)
        return replace(result, failing_op=min(result.core, default=None))

    monkeypatch.setattr(middle, "check", other)
    assert any("is called the failing one" in line for line in fuzz("cas-register", 12, 4, 0).wrong)
