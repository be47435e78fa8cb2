# SPDX-License-Identifier: Apache-2.0
"""Models whose states never end: what a search made of them counts as memory, too."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest
from fuzz.middle import Shape, lived

from checkers.linearizability import MODELS, Problem, encode
from checkers.linearizability.batch import VALID, check_batch
from checkers.linearizability.budget import Budget, Meter
from checkers.linearizability.decide import just_in_time, uncounted
from checkers.linearizability.history.table import Table
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.search.wgl import wgl
from results.verdict import Verdict

MEMORY = 2**20


def endless(name: str) -> Problem:
    """Unknown ops, as often as one likes: queues of any length."""
    return encode(lived(Random(f"endless/{name}"), name, Shape(120, 12, 1000, 0.1, 3)), MODELS[name]())


@pytest.mark.parametrize("search", [just_in_time, uncounted, wgl])
@pytest.mark.parametrize("name", ["fifo-queue", "unordered-queue", "stack", "log"])
def test_a_search_in_endless_states_keeps_its_budget(name: str, search: Callable[[Problem, Meter], Outcome]) -> None:
    problem = endless(name)
    tracemalloc.start()
    try:
        outcome = search(problem, Meter(8_000, MEMORY))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome.verdict != Verdict.INVALID
    assert peak < 1.1 * MEMORY


def test_many_of_them_in_a_batch_do_not_pay_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share a table; what it holds when a history's turn comes is on no account."""
    histories = [lived(Random(f"batch/{number}"), "stack", Shape(60, 4, 1000, 0, 1)) for number in range(20)]
    model, budget = MODELS["stack"](), Budget(memory=1_000_000)
    alone = [check_batch([calls], model, budget).verdict[0] for calls in histories]
    assert alone.count(VALID) > 10
    assert check_batch(histories, model, budget).verdict.tolist() == alone
    monkeypatch.setattr(Table, "settle", lambda self: None)
    assert check_batch(histories, model, budget).verdict.tolist() != alone
