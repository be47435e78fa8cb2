"""Histories that are hard for a search: each is decided, within the work that a second allows."""

from __future__ import annotations

import pytest
from nasty_histories import Nasty, corpus

from checkers.linearizability import Budget, verify_witness
from checkers.linearizability.decide import decide
from checkers.linearizability.jit import enabled
from results.verdict import Verdict

CORPUS = list(corpus())

UNDECIDED = (
    "40 cas at the same time, broken",
    "250 ops, 10 clients, 5 values, 40 unknown, broken, 0",
    "250 ops, 10 clients, 5 values, 40 unknown, broken, 1",
    "250 ops, 10 clients, 5 values, 40 unknown and late, broken, 0",
    "250 ops, 10 clients, 5 values, 40 unknown and late, broken, 1",
)
"""They end `unknown`: refuting them needs a relaxation that the search lacks. Whoever adds it is told by `strict`."""

UNSTEADY = (
    "830 ops, 10 clients, 5 values, 20 unknown, broken, 0",
    "830 ops, 10 clients, 5 values, 20 unknown, broken, 1",
)
"""Decided in a fresh process, `unknown` in one that has checked large histories before. It must not hang on that."""


def _case(nasty: Nasty) -> object:
    marks = []
    if nasty.name in UNDECIDED:
        marks.append(pytest.mark.xfail(reason="the search has no relaxation that refutes it", strict=True))
    elif nasty.name in UNSTEADY:
        marks.append(pytest.mark.xfail(reason="hangs on what the process checked before", strict=False))
    return pytest.param(nasty, id=nasty.name, marks=marks)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("nasty", [_case(nasty) for nasty in CORPUS])
def test_it_is_decided(nasty: Nasty) -> None:
    problem = nasty.problem()
    outcome = decide(problem, Budget())
    assert outcome.verdict == (Verdict.VALID if nasty.valid else Verdict.INVALID)
    if enabled():
        assert outcome.work <= nasty.steps
    if outcome.witness is not None:
        assert verify_witness(problem, outcome.witness) is None
