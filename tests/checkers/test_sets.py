# SPDX-License-Identifier: Apache-2.0
"""Sets that are read as a whole: decided by the chain of their reads, with many clients and unknown adds."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from models_at_work import brute_force

from checkers.linearizability import GrowOnlySet, Model, Set, check, encode, verify_witness
from checkers.linearizability.monitors.sets import NAME, set_by_inclusion
from results.history import History
from results.op import Op
from results.verdict import Verdict

MODELS: tuple[Model[Any], ...] = (Set(), GrowOnlySet())


class Busy:
    """A real set at work: so many clients at a time, each op at one moment between its call and its return."""

    def __init__(self, seed: str, clients: int, unknown: int, count: int = 400) -> None:
        self.rng, self.unknown, self.left = Random(seed), unknown, count
        self.free, self.ops, self.there = list(range(clients)), [], set[int]()
        self.open: dict[int, tuple[str, Any]] = {}
        self.done: dict[int, Any] = {}
        while self.left or self.open:
            self._next()

    def _next(self) -> None:
        if self.left and self.free and self.rng.random() < 0.6:
            process = self.free.pop(self.rng.randrange(len(self.free)))
            self.left -= 1
            self.open[process] = ("add", self.left) if self.rng.random() < 0.5 else ("read", None)
            self._log(process, "invoke", self.open[process][1])
        elif self.open:
            process = self.rng.choice(list(self.open))
            f, element = self.open[process]
            if process in self.done:
                self._log(process, "ok", self.done.pop(process))
                self.free.append(process)
                del self.open[process]
            elif f == "add" and self.unknown and self.rng.random() < 0.3:
                self.unknown -= 1
                if self.rng.random() < 0.5:
                    self.there.add(element)
                self._log(process, "info", element)
                self.free.append(1_000 + process)
                del self.open[process]
            else:
                if f == "add":
                    self.there.add(element)
                self.done[process] = element if f == "add" else sorted(self.there)

    def _log(self, process: int, type_: Any, value: Any) -> None:
        at = len(self.ops)
        self.ops.append(Op(at, at, process, type_, self.open[process][0], "k", value))


def history(clients: int, unknown: int, *, falsified: bool = False) -> History:
    busy = Busy(f"{clients}/{unknown}", clients, unknown)
    assert busy.unknown == 0
    ops = list(busy.ops)
    if falsified:
        reads = [call for call in History(ops).calls if call.invoke.f == "read" and call.completion is not None]
        answer = reads[100].completion
        assert answer is not None
        # An element that a read had shown before this one was called: no order has this one now.
        shown = next(c.completion.value for c in reads if c.completion and c.completion.value)
        ops[answer.index] = replace(answer, value=[one for one in answer.value if one != shown[0]])
    return History(ops)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize(("clients", "unknown"), [(10, 5), (50, 20)])
def test_a_set_at_work_is_valid_with_a_witness(model: Model[Any], clients: int, unknown: int) -> None:
    ops = history(clients, unknown)
    found = check(ops, model)
    assert (found.verdict, found.algorithm) == (Verdict.VALID, NAME)
    assert found.work < 40_000, "an event, and an element that a read lists, is looked at once"
    problem = encode(ops.calls, model)
    number = {source: op for op, source in enumerate(problem.source)}
    assert verify_witness(problem, [number[index] for index in found.witness or ()]) is None


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize(("clients", "unknown"), [(10, 5), (50, 20)])
def test_a_read_that_lost_an_element_is_found_with_its_core(model: Model[Any], clients: int, unknown: int) -> None:
    ops = history(clients, unknown, falsified=True)
    found = check(ops, model)
    assert (found.verdict, found.algorithm, found.core_is_minimal) == (Verdict.INVALID, NAME, True)
    assert len(found.core) <= 2
    assert found.failing_op in found.core
    assert found.work < 600_000


def one_by_one(*ops: tuple[str, Any, Any]) -> History:
    """(f, argument, result) one after the other."""
    return History(
        Op(2 * i + end, 0, 0, "ok" if end else "invoke", f, "k", result if end else argument)
        for i, (f, argument, result) in enumerate(ops)
        for end in (0, 1)
    )


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_no_set_lists_an_element_twice(model: Model[Any]) -> None:
    """Not even where the list is as long as the set."""
    twice = one_by_one(("add", 1, 1), ("add", 2, 2), ("read", None, [1, 1]))
    assert check(twice, model).verdict == Verdict.INVALID
    assert not brute_force(twice.calls, model)


def test_a_remove_that_can_have_found_its_element_is_left_to_the_search() -> None:
    removed = one_by_one(("add", 1, 1), ("remove", 1, 1), ("read", None, []))
    assert set_by_inclusion(encode(removed.calls, Set())) is None
    assert check(removed, Set()).verdict == Verdict.VALID
    early = one_by_one(("remove", 1, 1), ("remove", 2, 2), ("add", 1, 1), ("read", None, []))
    outcome = set_by_inclusion(encode(early.calls, Set()))
    assert outcome is not None
    assert outcome.verdict == Verdict.INVALID


def test_a_long_set_is_replayed_without_copies() -> None:
    """20,000 elements: a new set after each add would be 200,000,000 elements."""
    adds = one_by_one(*(("add", i, i) for i in range(20_000)), ("read", None, list(range(20_000))))
    found = check(adds, Set())
    assert (found.verdict, found.work) == (Verdict.VALID, 2 * 20_001 + 20_000)
