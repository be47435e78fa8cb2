# SPDX-License-Identifier: Apache-2.0
"""Models whose operations have a choice: some order and some choices explain the history, or none do."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from effort import effort
from tiny_histories import calls, small_values

from checkers.linearizability import Budget, NondeterministicModel, Problem, Transition, check, encode
from results.verdict import Verdict


class Cache(NondeterministicModel[object]):
    """Keeps what is written, or drops it; what it holds may go at any read, too."""

    name = noun = "cache"
    fs, observers = frozenset({"write", "read", "cas"}), frozenset({"read"})
    starts = (None, 0)

    def steps(self, state: object, op: Transition) -> tuple[object, ...]:
        if op.f == "write":
            return (op.value, None)
        if op.f == "cas":
            return (op.value[1],) if op.value[0] == state else ()
        return (state, None) if not op.known or op.value == state else ()


def explained(problem: Problem, model: Cache) -> bool:
    """Straight from the definition: an order, and for each operation one of its choices."""
    completed, kinds = frozenset(problem.completed), problem.table.kinds

    def possible(placed: frozenset[int], state: Any) -> bool:
        if completed <= placed:
            return True
        first_return = min(problem.ret[op] for op in completed - placed)
        return any(
            possible(placed | {op}, after)
            for op in problem.ops
            if op not in placed and problem.call[op] < first_return
            for after in model.steps(state, kinds[problem.kind[op]])
        )

    return any(possible(frozenset(), state) for state in model.starts)


def test_the_verdict_is_that_of_all_orders_and_choices() -> None:
    rng, found, model = Random(5), Counter[Verdict](), Cache()
    for number in range(effort(300)):
        history = calls(rng, small_values(("write", "read", "read", "cas")), crash=0.3 * (number % 2), most=5)
        if not any(call.outcome == "ok" for call in history):
            continue  # (Nothing is known to have happened: that is no verdict.)
        verdict = check(history, model, Budget()).verdict
        assert (verdict == Verdict.VALID) == explained(encode(history, model), model), history
        found[verdict] += 1
    assert min(found[Verdict.VALID], found[Verdict.INVALID]) > effort(40)


def test_a_violation_names_the_states_that_were_possible() -> None:
    """Each of them as text, and not as a set of Python's."""
    rng = Random(1)
    while True:
        result = check(calls(rng, small_values(("write", "read")), crash=0, most=5), Cache())
        if result.verdict == Verdict.INVALID and len(result.states) == 1 and " or " in result.states[0]:
            break
    assert "frozenset" not in result.reason
    assert result.core
