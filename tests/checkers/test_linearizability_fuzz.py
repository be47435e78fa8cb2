# SPDX-License-Identifier: Apache-2.0
"""The linearizability checker against brute force, against itself, and against its own weakened selves.

Thousands of tiny random histories: short and long calls, results right and wrong, up to 60 % unknown ops.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from effort import effort
from tiny_histories import FAMILIES, brute_force, calls, problems, told

from checkers.linearizability import INCONSISTENT, Budget, Problem, encode, verify_witness
from checkers.linearizability.budget import Meter
from checkers.linearizability.decide import cegar, decide, uncounted
from checkers.linearizability.evidence.core import StepBudget, without_past
from checkers.linearizability.evidence.explain import explain
from checkers.linearizability.fast import monitor
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.monitors import few_registers, registers
from checkers.linearizability.search.jit_linearization import Configurations, Entry, JustInTime, Path
from checkers.linearizability.search.wgl import wgl
from results.history import Call
from results.op import Op
from results.verdict import Verdict


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_every_algorithm_agrees_with_brute_force(family: str) -> None:
    seen = set()
    for problem in problems(family, seed=1):
        truth = Verdict.VALID if brute_force(problem) else Verdict.INVALID
        seen.add(truth)
        full = JustInTime(problem, Meter(10**6, 10**9)).run()
        coarse, refined = uncounted(problem, Meter(10**6, 10**9)), cegar(problem, Meter(10**6, 10**9))
        deep = wgl(problem, Meter(10**6, 10**9))
        special = monitor(problem)
        assert decide(problem, Budget()).verdict == truth, told(problem)
        assert full.verdict == truth, told(problem)
        assert coarse.verdict in (Verdict.UNKNOWN, truth), told(problem)
        assert refined.verdict == truth, told(problem)
        assert deep.verdict == (truth if truth == Verdict.VALID else Verdict.UNKNOWN), told(problem)
        assert special is None or special.verdict == truth, told(problem)
        for outcome in (full, deep, special):
            if outcome is not None and outcome.verdict == Verdict.VALID:
                assert outcome.witness is not None
                assert verify_witness(problem, outcome.witness) is None, told(problem)
    assert seen == {Verdict.VALID, Verdict.INVALID}


@pytest.mark.parametrize("family", FAMILIES)
def test_explanations_are_true_and_minimal(family: str) -> None:
    """The failing return is the earliest proof; the core alone is refuted by brute force, and no op of it can go."""
    found = 0
    for problem in problems(family, seed=2, count=250):
        outcome = decide(problem, Budget())
        if outcome.verdict != Verdict.INVALID:
            continue
        found += 1
        why = explain(problem, outcome, Budget())
        end = problem.ret[why.op]
        assert brute_force(problem.before(end)), told(problem)
        whole = problem.before(end + 1)
        core = whole.relaxed(set(whole.completed) - set(why.core.ops))
        assert not brute_force(core), told(problem)
        assert why.core.complete
        assert not why.core.anywhere
        assert why.op in why.core.ops
        for op in why.core.ops:
            assert brute_force(core.relaxed([op])), told(problem)
        if outcome.algorithm == "unique-value register":
            # The states are exactly those that a read at that moment could have seen.
            full = JustInTime(problem, Meter(10**6, 10**9)).run()
            assert {problem.table.states[s] for s in full.states} == {
                None if state == "absent" else int(state) for state in why.states
            }, told(problem)
    assert found > effort(30)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_core_without_a_past_is_true_and_minimal(family: str) -> None:
    """From every state, with nothing but what was called or still open when the core begins."""
    found = 0
    for problem in problems(family, seed=6, count=250):
        outcome = decide(problem, Budget())
        if outcome.verdict != Verdict.INVALID:
            continue
        end = problem.ret[explain(problem, outcome, Budget()).op]
        whole = problem.before(end + 1)
        cut = without_past(whole, StepBudget(Budget()))
        states = reachable(problem)
        if cut is None:
            # Not even all of it is refuted from every state; or there are too many states.
            assert len(states) > 64 or any(brute_force(whole, state) for state in states), told(problem)
            continue
        found += 1
        assert cut.complete
        assert cut.anywhere
        assert problem.events[end] >> 1 in cut.ops
        begin = min(whole.call[op] for op in cut.ops)
        over = {op for op in whole.completed if whole.ret[op] < begin}
        rest = Problem(whole.table, whole.kind, whole.source, [e for e in whole.events if e >> 1 not in over])
        core = rest.relaxed(set(rest.completed) - set(cut.ops))
        assert not any(brute_force(core, state) for state in states), told(problem)
        for op in cut.ops:
            assert any(brute_force(core.relaxed([op]), state) for state in states), told(problem)
    assert found > effort(10)


def reachable(problem: Problem) -> set[Any]:
    """The states that any sequence of the history's ops leads to, short sequences first, where there is no end."""
    model, kinds = problem.table.model, problem.table.kinds
    found, todo = {model.initial}, [model.initial]
    while todo and len(found) < 150:
        state = todo.pop(0)
        after = {model.step(state, kind) for kind in kinds} - {INCONSISTENT} - found
        found |= after
        todo += after
    return found


def _valid(problem: Problem) -> bool:
    return decide(problem, Budget()).verdict == Verdict.VALID


@pytest.mark.parametrize("family", ["cas-register", "unique-values", "kv"])
@pytest.mark.slow
def test_what_must_not_change_a_verdict_does_not(family: str) -> None:
    """Laws that need no oracle, on histories of up to 30 ops."""
    model, draw, _ = FAMILIES[family]
    assert draw is not None
    follows = "put" if family == "kv" else "write"
    rng = Random(3)
    for _ in range(300):
        made = calls(rng, draw, rng.choice((0, 0.2)), most=rng.choice((8, 30)))
        problem = encode(made, model)
        some = rng.sample(problem.completed, len(problem.completed) // 3)
        if _valid(problem):
            assert _valid(problem.relaxed(some)), "knowing less of a valid history keeps it valid"
            assert _valid(problem.before(rng.randint(0, len(problem.events)))), "so does cutting its end"
            assert _valid(_widened(problem, rng)), "so does a call that takes longer"
        elif problem.completed:
            end = 2 * len(made)
            late = (Op(end, end, 99, "invoke", follows, "k", "z"), Op(end + 1, end, 99, "ok", follows, "k", "z"))
            more = [*made, Call(*late)]
            assert not _valid(encode(more, model)), "an invalid history stays so, whatever follows"
        renamed = [Call(_process(c.invoke), None if c.completion is None else _process(c.completion)) for c in made]
        assert _valid(encode(renamed, model)) == _valid(problem), "who asked does not matter"


def _process(op: Op) -> Op:
    return Op(op.index * 3, op.time * 7, 1000 - op.process, op.type, op.f, op.key, op.value)


def _widened(problem: Problem, rng: Random) -> Problem:
    """One return moves behind the event after it."""
    events = list(problem.events)
    returns = [i for i in range(len(events) - 1) if events[i] & 1]
    if returns:
        at = rng.choice(returns)
        events[at], events[at + 1] = events[at + 1], events[at]
    return Problem(problem.table, problem.kind, problem.source, events)


class EndlessTokens(JustInTime):
    """Lets an unknown op happen as often as it likes."""

    def _lay_out_tokens(self) -> None:
        super()._lay_out_tokens()
        self.token_shift = dict.fromkeys(self.token_shift, self.guards.bit_length() + 1)


class NoTokens(JustInTime):
    """Takes unknown ops for failed ones."""

    def _call(self, op: int) -> None:
        if self.problem.ret[op] != NEVER:
            super()._call(op)


class TokensDoNotMatter(JustInTime):
    """Takes configurations that used different unknown ops for equal."""

    def _admit(self, where: Configurations, state: int, mutators: int, entry: Entry) -> bool:
        guards, self.guards = self.guards, 0
        try:
            return super()._admit(where, state, mutators, entry)
        finally:
            self.guards = guards


class AbsorbsAnything(JustInTime):
    """Lets every open read see what it likes."""

    def _absorbable(self, state: int) -> int:
        return sum(self.open_pure.values())


class HidesAnything(JustInTime):
    """Hides writes that were not open when the last one took effect."""

    def _witness(self, path: Path | None) -> list[int]:
        return [0]

    def _settle(self, state: int, mutators: int, entry: Entry, blind: bool, op: int, bit: int, pure: bool) -> None:
        done, _, used, path = entry
        super()._settle(state, mutators, (done, self.open_blind & ~mutators, used, path), blind, op, bit, pure)


class NeverOverwrites(JustInTime):
    """Skips overwriting a blind write although somebody saw it."""

    def _settle(self, state: int, mutators: int, entry: Entry, blind: bool, op: int, bit: int, pure: bool) -> None:
        super()._settle(state, mutators, entry, blind, op, bit, pure)
        self.todo = [(s, m, e, True) for s, m, e, _ in self.todo]


class OnlyTheReturning(JustInTime):
    """Never puts another open op in front of the one that returns."""

    def _settle(self, state: int, mutators: int, entry: Entry, blind: bool, op: int, bit: int, pure: bool) -> None:
        if not pure:
            kind = self.problem.kind[op]
            after = self.step(state, kind)
            if after >= 0 and not mutators & bit:
                super()._settle(after, mutators | bit, entry, False, op, bit, pure)
                return
        super()._settle(state, mutators, entry, blind, op, bit, pure)


WEAKENED = [
    EndlessTokens,
    NoTokens,
    TokensDoNotMatter,
    AbsorbsAnything,
    HidesAnything,
    NeverOverwrites,
    OnlyTheReturning,
]


@pytest.mark.parametrize("weakened", WEAKENED, ids=lambda w: w.__name__)
@pytest.mark.slow
def test_fuzz_notices_a_weakened_search(weakened: type[JustInTime]) -> None:
    assert any(
        (_answer(weakened, problem) == Verdict.VALID) != brute_force(problem)
        for family in ("lived", "cas-register", "unique-values")
        for problem in problems(family, seed=4, count=5_000, least=5_000)
    )


def _answer(search: type[JustInTime], problem: Problem) -> Verdict:
    return search(problem, Meter(10**5, 10**9)).run().verdict


def test_fuzz_notices_weakened_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    def noticed() -> bool:
        for problem in problems("unique-values", seed=5, count=6_000, least=3_000):
            try:
                outcome = registers.unique_register(problem)
            except IndexError:
                return True  # a history in which nothing had returned was refuted
            if outcome is not None and (outcome.verdict == Verdict.VALID) != brute_force(problem):
                return True
        return False

    assert not noticed()
    join = registers._join

    def without_cover(ops: registers.RegisterOps, found: registers.Zones) -> np.ndarray:
        return np.full(2 * len(ops.call) + 2, -1)

    def all_happened(
        ops: registers.RegisterOps, found: registers.Zones, writer: np.ndarray, comes_from: dict[int, int]
    ) -> None:
        found.needed[list(comes_from)] = True
        join(ops, found, writer, comes_from)

    def short_zones(ops: registers.RegisterOps, found: registers.Zones, *more: Any) -> None:
        join(ops, found._replace(first=found.first.copy(), last=found.last.copy()), *more)

    weakened = {
        "zones that may overlap": ("_cover", without_cover),
        "unknown swaps that must have happened": ("_join", all_happened),
        "chains with the zone of their first value": ("_join", short_zones),
    }
    for how, (name, wrong) in weakened.items():
        with monkeypatch.context() as patch:
            patch.setattr(registers, name, wrong)
            assert noticed(), how


@pytest.mark.parametrize("family", ["unique-writes", "unique-values"])
def test_short_registers_are_decided_as_by_columns(family: str) -> None:
    """The plain edition of the monitor (`few_registers`): the same verdict, order, proof and ops to blame."""
    found: Counter[Verdict] = Counter()
    for problem in problems(family, seed=11, count=3_000, least=1_000):
        outcome, by_columns = few_registers.unique_register(problem), registers.unique_register(problem)
        assert outcome == by_columns
        if outcome is not None:
            found[outcome.verdict] += 1
    assert min(found.values()) > 50, found
