# SPDX-License-Identifier: Apache-2.0
"""The core of a refuted history: a few acknowledged ops that contradict each other already.

It is found by sound relaxations only, each kept if the rest is still refuted. A pure op is left out. A mutator becomes
an op that "perhaps happened, at some time or never"; it is never left out, as its effect may make the rest possible.
Since relaxing more never makes a valid history invalid, one pass down to single ops leaves a core of which no op can be
spared.

If values repeat, such a core can be large: every write of 1 without a certain time could still take effect and explain
a read of 1. So a second relaxation is tried then: the past is cut off. Ops that had returned when the first op of the
core was called are over, open ones perhaps happen, and the object may be in *any* state that it can ever be in. For a
search, such a history begins with an op for each state, all at the same time: the last one of them chooses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from checkers.linearizability.budget import Budget, Meter
from checkers.linearizability.decide import refuters
from checkers.linearizability.fast import monitor
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import ILLEGAL, NEVER, NONE
from checkers.linearizability.history.table import Table
from checkers.linearizability.models.specification import Inconsistent, Model, Transition
from results.verdict import Verdict

SMALL: Final = 8
"""The largest core that a person can follow. A larger one is tried again with the past cut off."""

_MOST_STATES: Final = 64
_MOST_CELLS: Final = 40_000
"""Tables for which the past is cut off. Larger ones belong to models whose values seldom repeat."""

_BEGIN: Final = "(begin in)"


class Core(NamedTuple):
    """ops: by call. complete: none can be spared (otherwise the budget ended the search).

    anywhere: they contradict each other in every state at the call of the first of them, with the ops that had returned
    by then over. Otherwise: from the beginning on, whatever the outcome of all other ops.
    """

    ops: Sequence[int]
    complete: bool
    anywhere: bool = False


def core_of(problem: Problem, budget: Budget, blamed: Collection[int] = ()) -> Core:
    """A small core of a problem that is refuted by its last event. `blamed`: an algorithm's own core, or nothing.

    The op that returns last is in it.
    """
    purse = StepBudget(budget)
    if blamed:
        trial = problem.relaxed(op for op in problem.completed if op not in blamed)
        special = monitor(trial)
        if special is not None and special.verdict == Verdict.INVALID:
            problem = trial
    core = _shrunk(problem, problem.completed, purse, budget.explain // 2)
    if core.complete and len(core.ops) <= SMALL:
        return core
    later = without_past(problem, purse)
    return core if later is None or len(later.ops) >= len(core.ops) else later


def without_past(problem: Problem, purse: StepBudget) -> Core | None:
    """A core that needs no past (`Core.anywhere`), or None: none was found, or the search would cost too much."""
    beginnings = _states(problem.table)
    if beginnings is None:
        return None
    past = _Past(problem, beginnings)
    position, among = _latest(problem, past, purse), problem.completed
    while position is not None:
        window = past.cut(position).relaxed(op for op in problem.completed if op not in among)
        if not purse.refutes(window):
            return None
        core = _shrunk(window, [op for op in among if window.ret[op] != NEVER], purse, 0)
        first = problem.call[core.ops[0]]
        if first == position:
            return core._replace(anywhere=True)
        # Ops that returned in between are over, too, if the past ends at the first op of the core.
        position, among = first, list(core.ops)
    return None


class StepBudget:
    """The steps that are left for the whole explanation."""

    def __init__(self, budget: Budget) -> None:
        self.left, self.memory = budget.explain, budget.memory

    def refutes(self, problem: Problem) -> bool:
        """True if the problem is certainly not linearizable."""
        special = monitor(problem)
        if special is not None:
            self.left -= special.work
            return special.verdict == Verdict.INVALID
        self.left -= len(problem.events)
        for search in refuters(problem):
            meter = Meter(max(0, min(self.left, 1_000 + 20 * len(problem.events))), self.memory)
            found = search(meter)
            self.left -= meter.work
            if found.verdict != Verdict.UNKNOWN:
                return found.verdict == Verdict.INVALID
        return False


def _shrunk(problem: Problem, among: Sequence[int], purse: StepBudget, keep: int) -> Core:
    """The core that is left of the completed ops `among` after all relaxations; `keep` steps of the purse stay."""
    core, size = list(among), max(1, len(among) // 2)
    while size:
        at = 0
        while at < len(core):
            if purse.left <= keep:
                return Core(sorted(core, key=problem.call.__getitem__), complete=False)
            trial = problem.relaxed(core[at : at + size])
            if purse.refutes(trial):
                problem = trial
                del core[at : at + size]
            else:
                at += size
        size //= 2
    return Core(sorted(core, key=problem.call.__getitem__), complete=True)


def _latest(problem: Problem, past: _Past, purse: StepBudget) -> int | None:
    """The position of a late call from which on the history is refuted from every state, or None."""
    calls = [position for position, event in enumerate(problem.events) if not event & 1]
    # From the end on, and further back each time: a short part is cheap, and the latest call is wanted.
    high = len(calls)
    for size in (1 << power for power in range(len(calls).bit_length() + 1)):
        first = max(0, len(calls) - size)
        if purse.refutes(past.cut(calls[first])):
            # The first one from which on it is not refuted (or the purse is empty) comes right behind the latest.
            behind = bisect_left(
                calls, True, first + 1, high, key=lambda call: purse.left <= 0 or not purse.refutes(past.cut(call))
            )
            return calls[behind - 1]
        high = first
    return None


def _states(table: Table) -> list[Any] | None:
    """All states that any sequence of the history's ops leads to, or None if they are too many."""
    reached, todo = {0}, [0]
    kinds = len(table.kinds)
    while todo:
        if len(reached) > _MOST_STATES or len(reached) * (kinds + len(reached)) > _MOST_CELLS:
            return None
        state = todo.pop()
        after = {table.step(state, kind) for kind in range(kinds)} - {ILLEGAL}
        todo += after - reached
        reached |= after
    return [table.states[state] for state in sorted(reached)]


class _Anywhere(Model[Any]):
    """Another model, with ops that put the object into a given state."""

    name, fs = "anywhere", frozenset({_BEGIN})

    def __init__(self, model: Model[Any]) -> None:
        self.model, self.initial = model, model.initial

    def step(self, state: Any, op: Transition) -> Any | Inconsistent:
        return op.value if op.f == _BEGIN else self.model.step(state, op)

    def pure(self, op: Transition) -> bool:
        return op.f != _BEGIN and self.model.pure(op)

    def blind(self, op: Transition) -> bool:
        return op.f == _BEGIN or self.model.blind(op)


class _Past:
    """Cuts off the past of a problem."""

    def __init__(self, problem: Problem, beginnings: Sequence[Any]) -> None:
        self.problem = problem
        table, first = problem.table, len(problem.kind)
        # The same kinds by the same numbers; behind them, one for each state to begin in, and an op of each.
        self.table = Table(_Anywhere(table.narrowed))
        for kind in [*table.kinds, *(Transition(_BEGIN, state) for state in beginnings)]:
            self.table.kind(kind)
        self.table.seal_kinds()
        self.kind = [*problem.kind, *range(len(table.kinds), len(self.table.kinds))]
        self.source = [*problem.source, *[NONE] * len(beginnings)]
        choosing = range(first, len(self.kind))
        self.begin = [2 * op for op in choosing] + [2 * op + 1 for op in choosing]

    def cut(self, position: int) -> Problem:
        """The problem from `position` on, from every state: first the ops that choose one, then the open ops."""
        before, after = self.problem.events[:position], self.problem.events[position:]
        begun = {event >> 1 for event in after if not event & 1}
        ended = {event >> 1 for event in before if event & 1}
        calls = (event for event in before if not event & 1)
        perhaps = [event for event in calls if event >> 1 not in ended and not self.problem.pure(event >> 1)]
        events = [*self.begin, *perhaps, *(event for event in after if event >> 1 in begun)]
        return Problem(self.table, self.kind, self.source, events)
