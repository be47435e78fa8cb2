# SPDX-License-Identifier: Apache-2.0
"""An unknown blind op that leaves the state as it was, with a write hidden in front of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tiny_histories import brute_force

from checkers.linearizability import KV, CasRegister, Model, Problem, Transition, verify_witness
from checkers.linearizability.budget import Budget, Meter
from checkers.linearizability.compiled.code_cache import ensure
from checkers.linearizability.compiled.searches import SEARCH, Compiled
from checkers.linearizability.decide import cegar, decide, just_in_time
from checkers.linearizability.history.table import Table
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

ensure(SEARCH)

Row = tuple[str, Any, int, int]
"""f, value, call, return (-1: unknown)"""

OVERWRITTEN: dict[str, tuple[Model[Any], list[Row]]] = {
    # 1, 2 (in front of an unknown 1, where nobody sees it), 1, the cas - and no 2 any more, at which the 2 returns.
    "cas-register": (
        CasRegister(),
        [
            ("write", 1, 0, -1), ("write", 1, 1, 2), ("write", 2, 3, 6), ("cas", (1, 3), 4, 5), ("read", 3, 7, 8),
        ],
    ),
    "kv": (
        KV(),
        [
            ("put", "a", 0, -1), ("append", "b", 1, 9), ("append", "b", 2, 3), ("put", "a", 4, 5), ("put", "b", 6, 11),
            ("append", "a", 7, 13), ("append", "b", 8, 10), ("get", "aabb", 12, 14),
        ],
    ),
}  # fmt: skip


def problem_of(model: Model[Any], rows: list[Row]) -> Problem:
    table = Table(model)
    kinds = [table.kind(Transition(f, value)) for f, value, _, _ in rows]
    table.seal_kinds()
    stamped = [(at, 2 * op + end) for op, row in enumerate(rows) for end, at in enumerate(row[2:]) if at >= 0]
    return Problem(table, kinds, range(len(rows)), [event for _, event in sorted(stamped)])


def compiled(problem: Problem) -> Compiled:
    fast = Compiled.of(problem)
    assert fast is not None
    return fast


SEARCHES: dict[str, Callable[[Problem, Meter], Outcome]] = {
    "plain just-in-time": just_in_time,
    "plain cegar": cegar,
    "just-in-time": lambda problem, meter: compiled(problem).just_in_time(meter),
    "cegar": lambda problem, meter: compiled(problem).cegar(meter),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", OVERWRITTEN)
def test_it_is_needed_for_what_it_overwrites(name: str, search: str) -> None:
    """Once called invalid: an unknown op that leaves the state as it was was thought to be of no use."""
    problem = problem_of(*OVERWRITTEN[name])
    assert brute_force(problem)
    outcome = SEARCHES[search](problem, Meter(10**6, 10**8))
    assert outcome.verdict == Verdict.VALID
    assert verify_witness(problem, outcome.witness or ()) is None


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_without_it_there_is_no_order(name: str) -> None:
    model, rows = OVERWRITTEN[name]
    problem = problem_of(model, rows[1:])
    assert not brute_force(problem)
    for search in SEARCHES.values():
        assert search(problem, Meter(10**6, 10**8)).verdict == Verdict.INVALID


def test_the_portfolio_was_wrong_where_wgl_gets_lost() -> None:
    """Behind ten writes that are read in a hidden order while all of them are open."""
    order = [13, 19, 10, 16, 12, 18, 11, 17, 14, 15]
    burst: list[Row] = [("write", 10 + i, i, 100 + i) for i in range(10)]
    burst += [("read", value, 20 + 2 * i, 21 + 2 * i) for i, value in enumerate(order)]
    model, rows = OVERWRITTEN["cas-register"]
    later = [(f, value, call + 200, -1 if ret < 0 else ret + 200) for f, value, call, ret in rows]
    outcome = decide(problem_of(model, burst + later), Budget())
    assert (outcome.verdict, outcome.algorithm) == (Verdict.VALID, "just-in-time linearization")
