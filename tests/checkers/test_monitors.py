# SPDX-License-Identifier: Apache-2.0
"""The monitors against brute force, on what real objects did with unique values, and with an answer falsified."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from effort import effort
from fuzz.unique import MOST, RARE, UNIQUE, histories, model_of
from models_at_work import brute_force, told

from checkers.linearizability import ANYTHING, CasRegister, Set, check, encode, verify_witness
from checkers.linearizability.budget import Meter
from checkers.linearizability.fast import monitor
from checkers.linearizability.search.jit_linearization import JustInTime
from results.history import History
from results.op import Op
from results.verdict import Verdict


@pytest.mark.parametrize("family", [family for family in UNIQUE if family != "set"])
def test_a_monitor_agrees_with_brute_force(family: str) -> None:
    rng, model = Random(f"monitors/{family}"), model_of(family)
    decided = {Verdict.VALID: 0, Verdict.INVALID: 0, None: 0}
    tried = effort(250, 250)
    for _ in range(tried):
        for calls in histories(family, rng):
            problem = encode(calls, model)
            outcome = monitor(problem)
            decided[outcome.verdict if outcome else None] += 1  # type: ignore[index]
            if outcome is None:
                continue
            truth = brute_force(calls, model)
            assert (outcome.verdict == Verdict.VALID) == truth, told(calls)
            if truth:
                assert outcome.witness is not None
                assert verify_witness(problem, outcome.witness) is None, told(calls)
                continue
            result = check(calls, model)
            assert result.failing_op in result.core, told(calls)
            if result.core_starts_anywhere:
                continue
            spared = {call.invoke.index for call in calls if call.invoke.index not in result.core}
            assert not brute_force(calls, model, perhaps=spared), told(calls)
            # A monitor may be at a loss about a part of the history; it is never too early.
            found = JustInTime(problem, Meter(10**6, 10**9)).run()
            assert outcome.position == -1 or found.position <= outcome.position, told(calls)
    assert min(decided[Verdict.VALID], decided[Verdict.INVALID]) > (10 if family in RARE else 25) * tried // 250
    assert (decided[None] > 100 * tried // 250) == (family in RARE), "it hardly ever applies, or applies too often"


def test_a_register_of_unknown_start_is_one_that_starts_with_something() -> None:
    """Its model against the definition: some start explains the history. And its monitor against that."""
    rng, start = Random("any start"), {"v": 3}
    work = replace(UNIQUE["cas-register"][1], make=lambda: dict(start))
    seen: set[tuple[bool, bool]] = set()
    for _ in range(effort(300, 120)):
        for calls in histories("cas-register", rng, work):
            some = any(brute_force(calls, CasRegister(value)) for value in (None, *range(1, MOST + 1), "another"))
            problem = encode(calls, CasRegister(ANYTHING))
            assert brute_force(calls, CasRegister(ANYTHING)) == some, told(calls)
            outcome = monitor(problem)
            seen.add((some, outcome is not None))
            if outcome is None:
                continue
            assert (outcome.verdict == Verdict.VALID) == some, told(calls)
            assert not some or verify_witness(problem, outcome.witness or ()) is None, told(calls)
            result = check(calls, CasRegister(ANYTHING))
            assert some or result.failing_op in result.core or not problem.completed, told(calls)
    assert len(seen) == 4, seen


@pytest.mark.slow
def test_elements_of_a_set_are_objects_of_their_own() -> None:
    """Thirty elements, thirty clients: 2 ** 30 states for a search of the whole."""
    rng = Random("elements")
    ops: list[Op] = []
    there: set[int] = set()
    for _ in range(60):
        began = [(rng.choice(("add", "remove", "contains")), rng.randrange(30)) for _ in range(30)]
        ops += [Op(len(ops) + i, 0, i, "invoke", f, "k", element) for i, (f, element) in enumerate(began)]
        for client in rng.sample(range(30), 30):
            f, element = began[client]
            answer = element in there if f == "contains" else element
            if f != "contains":
                (there.add if f == "add" else there.discard)(element)
            ops.append(Op(len(ops), 0, client, "ok", f, "k", answer))
    assert check(History(ops), Set()).verdict == Verdict.VALID
    gone = next(element for element in range(30) if element not in there)
    lie = [Op(len(ops), 0, 0, "invoke", "contains", "k", gone), Op(len(ops) + 1, 0, 0, "ok", "contains", "k", True)]
    wrong = check(History([*ops, *lie]), Set())
    assert (wrong.verdict, wrong.failing_op) == (Verdict.INVALID, len(ops))
