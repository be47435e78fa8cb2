# SPDX-License-Identifier: Apache-2.0
"""Decides a register with an unknown start by one with a known start.

A value that a read (or a cas) saw before the call of any op that leaves it can only be the start. If such a value
exists, the register starts with it. If none exists, and no other op can have seen the start either, the start does not
matter: the register starts with a value that no op ever names. Then the monitor of unique values decides (`registers`).
Otherwise no rule applies.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.history.table import Table
from checkers.linearizability.models.registers import CasRegister
from checkers.linearizability.models.specification import UNSEEN, Transition
from checkers.linearizability.monitors.registers import unique_register
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

NAME: Final = "unique-value register of any start"


def register_of_any_start(problem: Problem) -> Outcome | None:
    """Valid with a witness, invalid (without a position), or None if no rule applies."""
    kinds = [problem.what(op) for op in range(len(problem.kind))]
    # An observer of unknown outcome need not have happened.
    saw = [kind.f in CasRegister.observers for kind in kinds]
    problem = Problem(
        problem.table, problem.kind, problem.source,
        [event for event in problem.events if not saw[event >> 1] or problem.ret[event >> 1] != NEVER],
    )  # fmt: skip
    if not problem.completed:
        return None
    written: dict[Hashable, int] = {}
    first_return = NEVER
    for op in problem.ops:
        if (left := _leaves(kinds[op])) is not None:
            written[left[0]] = min(written.get(left[0], NEVER), problem.call[op])
            first_return = min(first_return, problem.ret[op])
    # An op that was called later cannot have seen the start.
    early = [op for op in problem.ops if problem.call[op] < first_return and _sees(kinds[op]) is not None]
    forced: Hashable = UNSEEN
    for op in early:
        (seen,) = _sees(kinds[op]) or (None,)
        if problem.ret[op] < written.get(seen, NEVER):
            forced = seen
            break
    outcome = unique_register(_started(problem, forced))
    if outcome is None or (outcome.verdict == Verdict.INVALID and forced is UNSEEN and early):
        return None
    if outcome.verdict == Verdict.INVALID:
        return Outcome(Verdict.INVALID, NAME, outcome.work)
    return Outcome(outcome.verdict, NAME, outcome.work, witness=outcome.witness)


def _started(problem: Problem, start: Hashable) -> Problem:
    """The same ops by the same numbers, for a register that starts with `start`."""
    model = CasRegister()
    model.initial = start
    table = Table(model)
    for kind in problem.table.kinds:
        table.kind(kind)
    table.seal_kinds()
    return Problem(table, problem.kind, problem.source, problem.events)


def _leaves(kind: Transition) -> tuple[Hashable] | None:
    return (kind.value,) if kind.f == "write" else (kind.value[1],) if kind.f == "cas" else None


def _sees(kind: Transition) -> tuple[Hashable] | None:
    return (kind.value,) if kind.f == "read" and kind.known else (kind.value[0],) if kind.f == "cas" else None
