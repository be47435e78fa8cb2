# SPDX-License-Identifier: Apache-2.0
"""The failing op is the first whose return proves the violation, whichever algorithm found it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from effort import effort
from models_at_work import WORK, falsified, lived, told
from tiny_histories import brute_force, problems
from tiny_histories import told as told_problem

from benchmarks.checker.families import Shape, packed, register
from checkers.linearizability import Budget, CasRegister, Problem, Set, check, encode
from checkers.linearizability.batch import check_batch
from checkers.linearizability.budget import Meter
from checkers.linearizability.compiled.searches import Compiled
from checkers.linearizability.decide import cegar, decide
from checkers.linearizability.evidence.explain import earliest, explain
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.search.state_flow import state_flow
from results.verdict import Verdict

Search = Callable[[Problem, Meter], Outcome]


def first_proof(problem: Problem) -> int:
    """Straight from the definition: the first return up to which there is no order."""
    return next(at for at, e in enumerate(problem.events) if e & 1 and not brute_force(problem.before(at + 1)))


@pytest.mark.parametrize("search", [state_flow, cegar], ids=["state flow", "cegar"])
def test_a_stage_that_notices_late_is_told_the_first(search: Search) -> None:
    late = found = 0
    for problem in problems("cas-register", seed=31, count=600):
        outcome = search(problem, Meter(10**6, 10**8))
        if outcome.verdict != Verdict.INVALID:
            continue
        found += 1
        first = first_proof(problem)
        late += outcome.position != first
        assert outcome.position >= first, told_problem(problem)
        assert earliest(problem, outcome, Budget()) == first, told_problem(problem)
        explained = explain(problem, outcome, Budget())
        assert problem.ret[explained.op] == first
        assert explained.op in explained.core.ops
    assert found > effort(100)
    assert late > 0 or search is cegar, "no stage was late: nothing was tested"


def test_cegar_tells_how_far_an_order_was_left() -> None:
    """Most often up to the return that it names, so that nothing has to be decided to see that it is the first."""
    named = late = 0
    for seed in range(400):
        rng = Random(f"left/{seed}")
        unknown = rng.randrange(2, 9)
        shape = Shape(30 + rng.randrange(30), 5, values=4, unknown=unknown, late=True, broken=True)
        rows = register(rng, shape)
        problem = packed(CasRegister(), [rows]).problem(0)
        fast = Compiled.of(problem)
        assert fast is not None
        outcome, whole = fast.cegar(Meter(10**7, 10**8)), fast.just_in_time(Meter(10**7, 10**8))
        assert outcome.verdict == whole.verdict
        if outcome.verdict == Verdict.INVALID:
            named += outcome.passed == whole.position
            late += outcome.position > whole.position
            assert outcome.passed <= whole.position, seed
            assert earliest(problem, outcome, Budget()) == whole.position
    assert named > effort(100)
    assert late > 5, "no order that is none was left: nothing was tested"


def test_without_steps_for_it_the_op_stays() -> None:
    some = [p for p in problems("cas-register", seed=31, count=600) if not brute_force(p)]
    outcomes = [(p, state_flow(p, Meter(10**6, 10**8))) for p in some]
    late = [(p, o) for p, o in outcomes if o.verdict == Verdict.INVALID and o.position != first_proof(p)]
    assert late
    for problem, outcome in late:
        assert earliest(problem, outcome, Budget(explain=0)) == outcome.position


def test_a_set_fails_at_its_first_bad_element() -> None:
    """The shortest part is decided first, and need not be the first that is wrong."""
    rng, late, wrong = Random("elements"), 0, 0
    while wrong < 60:
        calls = lived(rng, "set", 0.1, 12, replace(WORK["set"], ask=_ask_elements))
        for _ in range(2):
            calls = falsified(rng, "set", calls)
        problem = encode(calls, Set())
        outcome = decide(problem, Budget())
        if outcome.verdict != Verdict.INVALID:
            continue
        wrong += 1
        first = first_proof(problem)
        late += outcome.position != first
        # (The search of the whole, which a single check of so few ops can afford, knows the first anyway.)
        assert problem.ret[explain(problem, outcome, Budget()).op] == first, told(calls)
        failing = problem.source[problem.events[first] >> 1]
        assert check(calls, Set()).failing_op == check_batch([calls], Set()).failing_op[0] == failing
    assert late > 0


def _ask_elements(rng: Random, op: int) -> tuple[str, int]:
    return rng.choice(("add", "remove", "contains")), rng.randrange(3)


def test_single_and_batch_name_the_same_op() -> None:
    rng = Random("named")
    named = 0
    for _ in range(150):
        calls = falsified(rng, "cas-register", lived(rng, "cas-register", 0.2))
        result = check(calls, CasRegister())
        if result.verdict == Verdict.INVALID:
            named += 1
            assert check_batch([calls], CasRegister()).failing_op[0] == result.failing_op, told(calls)
    assert named > 20
