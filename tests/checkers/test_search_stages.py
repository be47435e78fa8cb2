# SPDX-License-Identifier: Apache-2.0
"""Stages of the search that answer one side only, or count coarsely; and what a check may take."""

from __future__ import annotations

import importlib
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from effort import effort
from tiny_histories import FAMILIES, brute_force, problems, told

from benchmarks.checker.families import Row, Shape, packed
from benchmarks.checker.nasty import Nasty, late, lived, storm, swaps
from checkers.linearizability import Budget, CasRegister, Problem, Transition, batch, verify_witness
from checkers.linearizability.budget import Meter
from checkers.linearizability.closed_table import enumerate_states
from checkers.linearizability.compiled.code_cache import ensure
from checkers.linearizability.compiled.searches import SEARCH, Compiled
from checkers.linearizability.compiled.workspace import Workspace
from checkers.linearizability.decide import cegar, decide
from checkers.linearizability.evidence.core import core_of
from checkers.linearizability.history.columns import columns
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.history.table import Table
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.search.cegar import FREE, by_target, overdrawn
from checkers.linearizability.search.portfolio import JIT, PORTFOLIO, THOROUGH, WGL, Stage
from checkers.linearizability.search.state_flow import _Flows, state_flow
from results.verdict import Verdict

ensure(SEARCH)


def meter(memory: int = 10**8) -> Meter:
    return Meter(4_000_000, memory)


def hard(shape: Shape) -> Problem:
    return next(iter(lived(shape))).problem()


MANY_UNKNOWN = [
    Shape(120, 8, unknown=20, late=late, broken=broken) for late in (False, True) for broken in (False, True)
]


@pytest.mark.parametrize("shape", MANY_UNKNOWN, ids=str)
def test_counting_coarsely_decides_what_drowns_in_unknown_ops(shape: Shape) -> None:
    problem = hard(shape)
    fast = Compiled.of(problem)
    assert fast is not None
    for outcome in (fast.cegar(meter()), cegar(problem, meter())):
        assert outcome.verdict == (Verdict.INVALID if shape.broken else Verdict.VALID)
        assert outcome.work < 200_000
        if outcome.witness is not None:
            assert verify_witness(problem, outcome.witness) is None


def test_kinds_are_grouped_by_the_state_they_leave() -> None:
    table = Table(CasRegister())
    kinds = [
        Transition("write", 1),
        Transition("cas", (1, 2)),
        Transition("write", 2),
        Transition("cas", (2, 1)),
        Transition("read", 1),
    ]
    for kind in kinds:
        table.kind(kind)
    table.seal_kinds()
    group = by_target(enumerate_states(table), len(kinds))
    assert group[0] == group[3]
    assert group[1] == group[2]
    assert group[0] != group[1]
    assert list(by_target(None, 3)) == [0, 1, 2]


def test_what_an_order_uses_too_often() -> None:
    called = {4: [10, 20], 7: [5]}
    assert overdrawn([(4, 15), (7, 15), (4, 25)], called) == set()
    assert overdrawn([(4, 15), (4, 18)], called) == {4}
    assert overdrawn([(7, 15), (7, 99), (4, 12)], called) == {7}
    assert overdrawn([(4, FREE)], called) == {4}


@pytest.mark.parametrize("family", FAMILIES)
def test_state_flow_only_refutes_what_is_wrong(family: str) -> None:
    refuted = 0
    for problem in problems(family, seed=21, count=500):
        outcome = state_flow(problem, meter())
        assert outcome.verdict in (Verdict.INVALID, Verdict.UNKNOWN)
        if outcome.verdict == Verdict.INVALID:
            refuted += 1
            assert not brute_force(problem), told(problem)
            assert not brute_force(problem.before(outcome.position + 1)), told(problem)
    assert refuted > effort(20)


class NothingUnknownHappens(_Flows):
    def perhaps(self, kind: int) -> None:
        pass


class WritesLeaveTheInitialState(_Flows):
    def done(self, kind: int) -> None:
        super().done(kind)
        if len(self.legal[kind]) == self.size:
            self.net[0] -= 1


@pytest.mark.parametrize("mutant", [NothingUnknownHappens, WritesLeaveTheInitialState])
def test_the_fuzz_notices_wrong_counts(mutant: type[_Flows], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module(state_flow.__module__), "_Flows", mutant)
    wrong = [
        problem
        for problem in problems("cas-register", seed=21, count=500)
        if state_flow(problem, meter()).verdict == Verdict.INVALID and brute_force(problem)
    ]
    assert wrong


def test_state_flow_tells_that_a_storm_of_cas_leads_back() -> None:
    for width in (8, 40):
        problem = storm(width, broken=True).problem()
        outcome = state_flow(problem, meter())
        assert outcome.verdict == Verdict.INVALID
        assert [problem.table.states[state] for state in outcome.states] == [0]
        assert problem.what(problem.events[outcome.position] >> 1) == Transition("read", 3)
        assert state_flow(storm(width, broken=False).problem(), meter()).verdict == Verdict.UNKNOWN


def in_a_new_thread(run: Callable[[], Any]) -> Any:
    """There the workspace is new."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(run()))
    thread.start()
    thread.join()
    return answers[0]


def kinds_of_unknown(count: int) -> Nasty:
    """A counter for each makes rows wide."""
    rows = [Row(Transition("cas", (i, i + 1)), i / count, NEVER) for i in range(count)]
    seen = (count // 2, count, 3)
    rows += [
        Row(Transition("write", 0), 2, 3),
        *(Row(Transition("read", value), 4 + i, 4.5 + i) for i, value in enumerate(seen)),
    ]
    return Nasty(f"{count} kinds of unknown cas", rows, valid=False)


def never_quiet(nasty: Nasty) -> Nasty:
    """With a write over all the time, so that no stretch of time ends."""
    return nasty._replace(rows=[Row(Transition("write", 9), -1.0, 99.0), *nasty.rows])


def test_a_check_does_not_depend_on_what_was_checked_before() -> None:
    """Verdict, work and reason, with budgets that end the search for steps, for rows and for nodes."""
    histories = [
        never_quiet(storm(40, broken=True)).problem(),
        kinds_of_unknown(150).problem(),
        swaps(12, broken=True).problem(),
        hard(Shape(300, 30, broken=True)),
        hard(Shape(100, 8, unknown=12, late=True)),
    ]
    budgets = [Budget(steps=60_000, per_event=20, memory=memory) for memory in (1 << 17, 1 << 20, 1 << 26)]

    def told_of(cases: Sequence[tuple[Problem, Budget]]) -> list[Outcome]:
        return [decide(problem, budget) for problem, budget in cases]

    cases = [(problem, budget) for budget in budgets for problem in histories]
    alone = [in_a_new_thread(lambda case=case: told_of([case]))[0] for case in cases]
    assert {outcome.verdict for outcome in alone} == {Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN}
    assert in_a_new_thread(lambda: told_of(cases)) == alone
    assert in_a_new_thread(lambda: told_of(cases[::-1])) == alone[::-1]


@pytest.mark.parametrize("unknown", [False, True])
def test_a_batch_tries_what_comes_first(unknown: bool) -> None:
    """One try of each search, and all that comes behind them is thorough."""
    own = [stage for stage in PORTFOLIO if stage.unknown in (None, unknown)]
    assert [stage.search for stage in own[:2]] == [WGL, JIT]
    assert own[2:] == [stage for stage in THOROUGH if stage.unknown in (None, unknown)]


ALL_ALLOWED, LESS_THAN_TRIED = Budget(), Budget(steps=25_000, per_event=0)
LITTLE_MEMORY = Budget(memory=1 << 20)


@pytest.mark.parametrize("budget", [ALL_ALLOWED, LESS_THAN_TRIED, LITTLE_MEMORY], ids=str)
def test_a_search_goes_on_where_the_batch_gave_up(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends as one from the beginning does: verdict, evidence and work. Not where that could not try as much."""
    decider = importlib.import_module(decide.__module__)
    stages, went_on, ended = decider._stages, [], set()

    def noted(problem: Problem, allowed: int, portfolio: Sequence[Stage]) -> Any:
        went_on.append(portfolio is THOROUGH)
        return stages(problem, allowed, portfolio)

    def twice(problem: Problem, budget: Budget, tried: tuple[int, int]) -> Outcome:
        outcome, whole = decide(problem, budget, tried=tried), decide(problem, budget)
        assert (outcome.verdict, outcome.work) == (whole.verdict, whole.work)
        # (A batch does not report what ran out.)
        assert outcome == whole or outcome.verdict == Verdict.UNKNOWN
        ended.add(outcome.verdict)
        return outcome

    monkeypatch.setattr(decider, "_stages", noted)
    monkeypatch.setattr(batch, "decide", twice)
    monkeypatch.setattr(batch, "earliest", lambda problem, outcome, budget: outcome.position)
    for broken in (False, True):
        shapes = (
            Shape(120, 8, unknown=20, late=True, broken=broken),
            Shape(250, 10, values=None, unknown=20, late=True, broken=broken),
            Shape(500, 50, broken=broken),
        )
        known = [nasty for shape in shapes for nasty in lived(shape)]
        for nasty in (*known, late(40, broken), swaps(20, broken), storm(24, broken)):
            found = batch.check_batch(packed(CasRegister(), [nasty.rows]), budget=budget)
            assert (found.failing_op[0] != NONE) == (found[0] == Verdict.INVALID)
    assert {Verdict.VALID, Verdict.INVALID} <= ended or budget == LESS_THAN_TRIED
    # (Every other one is the whole.)
    assert set(went_on[::2]) == {ALL_ALLOWED: {True}, LESS_THAN_TRIED: {True, False}, LITTLE_MEMORY: {False}}[budget]
    assert not any(went_on[1::2])


def test_a_walk_ends_at_the_same_row_however_large_the_workspace_is() -> None:
    problem = storm(40, broken=True).problem()
    dense = enumerate_states(problem.table)
    assert dense is not None
    history = columns(problem, dense)
    new, used = Workspace(), Workspace()
    used.reserve(1 << 15, 40, 64, 1 << 15, 1 << 30)
    for memory in (1 << 16, 1 << 18, 1 << 20, 1 << 22):
        for mode in (0, 1):
            ends = []
            for space in (new, used):
                ends.append((space.walk(history, dense, mode, 10**9, memory), *space.told.tolist()))
                assert space.bytes <= memory
            assert ends[0] == ends[1]


@pytest.mark.parametrize("memory", [1 << 18, 1 << 20, 1 << 23])
def test_the_budget_of_bytes_is_kept(memory: int) -> None:
    """By histories that would take more; whatever the workspace held before, and while it grows."""
    histories = [storm(40, broken=True), kinds_of_unknown(300)]
    for nasty in histories:
        problem = nasty.problem()
        dense = enumerate_states(problem.table)
        assert dense is not None
        history = columns(problem, dense)

        tracemalloc.start()
        try:
            space = Workspace()
            begin = tracemalloc.get_traced_memory()[0]
            space.walk(history, dense, 1, 300_000, memory)
            assert tracemalloc.get_traced_memory()[1] - begin <= 1.1 * memory + 20_000
        finally:
            tracemalloc.stop()
        assert space.bytes <= memory
    outcome = decide(histories[0].problem(), Budget(memory=memory, steps=200_000, per_event=0))
    assert outcome.verdict == Verdict.INVALID


def resident(line: str) -> int:
    """Bytes of this process, now (`VmRSS`) or at most since they were last forgotten (`VmHWM`)."""
    told = Path("/proc/self/status").read_text().split(line + ":")[1]
    return 1024 * int(told.split()[0])


def test_wgl_keeps_its_budget_of_bytes() -> None:
    """Its table grows in compiled code, which only the system sees."""
    fast = Compiled.of(never_quiet(storm(40, broken=True)).problem())
    assert fast is not None
    memory = 1 << 26
    fast.wgl(Meter(1_000, memory))
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    outcome = fast.wgl(Meter(10**9, memory))
    assert outcome.verdict == Verdict.UNKNOWN
    assert outcome.work > 10**6
    assert resident("VmHWM") - before <= 1.1 * memory


def test_a_violation_at_the_end_of_a_dense_history_has_a_small_core() -> None:
    """All before it is over, and nothing of that is needed to see it."""
    problem = hard(Shape(830, 10, unknown=20, broken=True))
    outcome = decide(problem, Budget())
    core = core_of(problem.before(outcome.position + 1), Budget())
    assert (core.complete, core.anywhere) == (True, True)
    assert len(core.ops) <= 2 * (1 + 20)


def test_random_stretches() -> None:
    """The closed rule for possible ends against trying every order of a few cas and writes at the same time."""
    rng = Random(5)
    table = Table(CasRegister())
    cas = [table.kind(Transition("cas", (a, b))) for a in range(4) for b in range(4) if a != b]
    writes = [table.kind(Transition("write", value)) for value in range(4)]
    reads = [table.kind(Transition("read", value)) for value in range(4)]
    table.seal_kinds()
    exact = np.zeros(2, int)
    for _ in range(400):
        width = rng.randrange(1, 6)
        some = [rng.choice(writes)] + [
            rng.choice(cas) if rng.random() < 0.85 else rng.choice(writes) for _ in range(width)
        ]
        kind = [*some, rng.choice(reads)]
        calls = [0, 1, *(2 * op for op in range(1, width + 1)), *(2 * op + 1 for op in range(1, width + 1))]
        problem = Problem(table, kind, [*range(len(kind))], [*calls, 2 * width + 2, 2 * width + 3])
        truth = brute_force(problem)
        found = state_flow(problem, meter()).verdict == Verdict.INVALID
        assert not (truth and found), told(problem)
        exact += [not truth, found]
    assert exact[1] > 0.7 * exact[0], "most of what is wrong with concurrent ops shows in the state flow"
