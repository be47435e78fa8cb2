# SPDX-License-Identifier: Apache-2.0
"""Explains why a history is not linearizable, as briefly as is true.

An explanation has the earliest return that proves the violation, the states possible just before it, the *core* (a few
acknowledged ops that contradict each other, `core`), and one sentence on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from checkers.linearizability.budget import Budget
from checkers.linearizability.decide import decide
from checkers.linearizability.evidence.core import Core, core_of
from checkers.linearizability.fast import earliest_return, fast, first_refuted, partition
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NONE
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.search.portfolio import CEGAR, STATE_FLOW, THOROUGH
from results.verdict import Verdict

_LATE: Final = frozenset({STATE_FLOW, CEGAR})
"""Algorithms that may need a later return than the earliest that proves a violation."""

_NAMED: Final = 6
"""Ops or states that a sentence names before it only counts."""


class Explanation(NamedTuple):
    """op: the one that cannot be placed, also in `core.ops`. states: values as readable text. story: one clause."""

    op: int
    states: Sequence[str]
    core: Core
    story: str


def explain(problem: Problem, outcome: Outcome, budget: Budget) -> Explanation:
    """The explanation of `outcome`, an invalid one of `problem`."""
    position = earliest(problem, outcome, budget)
    op = problem.events[position] >> 1
    if position != outcome.position or outcome.algorithm == STATE_FLOW:
        # (State flow gives the states at the beginning of a stretch of time, which is not just before its end.)
        outcome = replace(outcome, states=())
    states = _states(problem, outcome, position, op, budget)
    core = core_of(problem.before(position + 1), budget, {*outcome.core, op} if outcome.core else ())
    if op not in core.ops:
        # The monitor had no rule for a shorter part: the core is a proof as of the return of its last op.
        op = max(core.ops, key=lambda other: problem.ret[other])
        position = problem.ret[op]
    return Explanation(op, sorted(map(problem.table.narrowed.tell, states)), core, _story(problem, position, op, core))


def earliest(problem: Problem, outcome: Outcome, budget: Budget) -> int:
    """The position of the earliest return that proves the violation: the ops that had returned by then have no order.

    The complete search and most monitors stop there. CEGAR, state flow and objects that consist of several may need a
    later return. Then prefixes are decided, within the budget for explanations, from the first return that no search
    had an order to pass. (If a prefix has no order, the whole has none.)
    """
    if outcome.position == NONE:
        return first_refuted(problem)
    if outcome.algorithm not in _LATE and (outcome.states or not partition(problem)):
        return outcome.position
    left = budget.explain // 2

    def refuted(position: int) -> bool:
        nonlocal left
        # (A search that gave up on the whole before this return would give up on this prefix, too.)
        found = decide(problem.before(position + 1), replace(budget, steps=left // 4, per_event=0), THOROUGH)
        left -= found.work
        return found.verdict == Verdict.INVALID

    earlier = [at for at in range(max(outcome.passed, 0), outcome.position) if problem.events[at] & 1]
    # Most are not late at all: a test of the return before it shows that.
    if left <= 0 or not earlier or not refuted(earlier[-1]):
        return outcome.position
    return earliest_return(earlier, refuted)


def _states(problem: Problem, outcome: Outcome, position: int, op: int, budget: Budget) -> Sequence[object]:
    """The states possible just before the failing return; none if that would cost more than the budget.

    A search knows them. For a monitor that does not, the model's record may have a way to find them.
    """
    before = fast(problem.table.model).states
    if outcome.states or before is None:
        return [problem.table.states[state] for state in outcome.states]
    return before(problem, outcome.algorithm, position, op, budget.explain)


def _story(problem: Problem, position: int, op: int, core: Core) -> str:
    """The particular contradiction, in one clause."""
    story = fast(problem.table.model).story
    clause = "" if story is None else story(problem, position, op, core.ops)
    if clause:
        return clause
    others = [other for other in core.ops if other != op]
    if not others:
        return "no state that could be reached allows it"
    named = ", ".join(problem.describe(other) for other in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    since = f", in whatever state the {problem.table.model.noun} was before them" if core.anywhere else ""
    return f"it contradicts {named}{more}{since}"


def sentence(problem: Problem, found: Explanation, key: str | None) -> str:
    """The violation in one sentence: the op, the possible states, and the ops that it contradicts."""
    model = problem.table.model
    on = "" if key is None else f" on key {key}"
    if not found.states:
        could = ""
    elif len(found.states) > _NAMED:
        could = f" the {model.noun} could be one of {len(found.states)} values at that time, this not among them;"
    else:
        could = f" the {model.noun} could only be {' or '.join(found.states)} at that time;"
    what = model.describe(problem.what(found.op))
    return f"op {problem.source[found.op]}: {what}{on} cannot be placed:{could} {found.story}"
