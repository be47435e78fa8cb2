# SPDX-License-Identifier: Apache-2.0
"""Histories that are hard for a search: each is decided, within the work that a second allows."""

from __future__ import annotations

import pytest

from benchmarks.checker.nasty import Nasty, corpus
from checkers.linearizability import Budget, verify_witness
from checkers.linearizability.compiled.jit import enabled
from checkers.linearizability.decide import decide
from results.verdict import Verdict

CORPUS = list(corpus())

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("nasty", CORPUS, ids=[nasty.name for nasty in CORPUS])
def test_it_is_decided(nasty: Nasty) -> None:
    problem = nasty.problem()
    outcome = decide(problem, Budget())
    assert outcome.verdict == (Verdict.VALID if nasty.valid else Verdict.INVALID)
    if enabled():
        assert outcome.work <= nasty.steps
    if outcome.witness is not None:
        assert verify_witness(problem, outcome.witness) is None
