"""Why a history is not linearizable, as small as it can honestly be told.

First the earliest return that proves it, and the states possible just before. Then the *core*, acknowledged ops that
contradict each other already (`core`), and one sentence on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from checkers.linearizability.budget import Budget
from checkers.linearizability.decide import decide
from checkers.linearizability.evidence.core import Core, core_of
from checkers.linearizability.history.encode import NEVER, Problem
from checkers.linearizability.history.partition import parts
from checkers.linearizability.models.registry import Register, Transition, show
from checkers.linearizability.monitors import earliest_return, first_refuted
from checkers.linearizability.monitors.unique import NAME as UNIQUE
from checkers.linearizability.monitors.unique import unique_register
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.search.cegar import NAME as REFINED
from checkers.linearizability.search.state_flow import NAME as BALANCE
from results.verdict import Verdict

_LATE: Final = frozenset({BALANCE, REFINED})
"""Algorithms that may need a later return than the earliest that proves a violation."""

_NAMED: Final = 6
"""Ops or states that a sentence names before it only counts."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """op: the one that cannot be placed, `core.ops` has it too. states: values for people. story: one clause."""

    op: int
    states: Sequence[str]
    core: Core
    story: str


def explain(problem: Problem, outcome: Outcome, budget: Budget) -> Explanation:
    """`outcome` is an invalid one of `problem`."""
    position = earliest(problem, outcome, budget)
    op = problem.events[position] >> 1
    if position != outcome.position or outcome.algorithm == BALANCE:
        # (Books tell the states at the beginning of a stretch of time, which is not just before its end.)
        outcome = replace(outcome, states=())
    states = _states(problem, outcome, position, op, budget)
    core = core_of(problem.before(position + 1), budget, {*outcome.core, op} if outcome.core else ())
    if op not in core.ops:
        # A monitor that had no rule for a shorter part: what the core proves, it proves when its last op returns.
        op = max(core.ops, key=lambda other: problem.ret[other])
        position = problem.ret[op]
    return Explanation(op, sorted(map(problem.table.narrowed.tell, states)), core, _story(problem, position, op, core))


def earliest(problem: Problem, outcome: Outcome, budget: Budget) -> int:
    """The position of the earliest return that proves the violation: what had returned until then has no order.

    The complete search and most monitors stop there. Where many unknown ops are counted coarsely, where books are kept,
    and where an object consists of several, a later return was enough; then prefixes are decided, as far as the budget
    for explanations goes. (Prefixes of one that has no order may have none, but not the other way round.)
    """
    if outcome.position == NEVER:
        return first_refuted(problem)
    if outcome.algorithm not in _LATE and (outcome.states or not parts(problem)):
        return outcome.position
    left = budget.explain // 2

    def refuted(position: int) -> bool:
        nonlocal left
        found = decide(problem.before(position + 1), replace(budget, steps=left // 4, per_event=0))
        left -= found.work
        return found.verdict == Verdict.INVALID

    return earliest_return(problem, outcome.position, refuted) if left > 0 else outcome.position


def _states(problem: Problem, outcome: Outcome, position: int, op: int, budget: Budget) -> list[object]:
    """The states possible just before the failing return; none when that would cost more than the budget.

    The search knows them. Otherwise every value is probed: could a read of it have been answered at that moment?
    """
    table = problem.table
    if outcome.states or outcome.algorithm != UNIQUE:
        return [table.states[s] for s in outcome.states]
    earlier = problem.before(position).without(op)
    began = max((earlier.call[o] for o in earlier.completed if not earlier.pure(o)), default=NEVER)
    candidates = [table.model.initial]
    for other in earlier.ops:
        # A write that returned before another acknowledged one began is certainly overwritten.
        if not earlier.pure(other) and (earlier.ret[other] == NEVER or earlier.ret[other] > began):
            what = earlier.what(other)
            candidates.append(what.value[1] if what.f == "cas" else what.value)
    if len(candidates) * len(earlier.events) > budget.explain:
        return []
    possible = []
    for value in candidates:
        probe = unique_register(earlier.then(table.kind(Transition("read", value))))
        if probe is not None and probe.verdict == Verdict.VALID:
            possible.append(value)
    return possible


def _story(problem: Problem, position: int, op: int, core: Core) -> str:
    """What in particular is wrong, in one clause."""
    told = _register_story(problem, position, op, core.ops)
    if told:
        return told
    others = [other for other in core.ops if other != op]
    if not others:
        return "no state that could be reached allows it"
    named = ", ".join(tell(problem, other) for other in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    since = f", in whatever state the {problem.table.model.noun} was before them" if core.anywhere else ""
    return f"it contradicts {named}{more}{since}"


def _register_story(problem: Problem, position: int, op: int, core: Sequence[int]) -> str:
    """Registers: what became of the value that the op saw."""
    if not isinstance(problem.table.model, Register):
        return ""
    what = problem.what(op)
    if what.f not in ("read", "cas"):
        return ""
    seen = what.value if what.f == "read" else what.value[0]
    writers = [w for w in problem.before(position).ops if w != op and _leaves(problem.what(w)) == (seen,)]
    if not writers and seen != problem.table.model.initial:
        return f"nothing had written {show(seen)} until then"
    if len(writers) > 1 or (writers and seen == problem.table.model.initial):
        return ""
    written = problem.ret[writers[0]] if writers else NEVER
    if writers and written == NEVER:
        return ""
    gone = [
        other
        for other in core
        if _shows(problem.what(other)) not in ((), (seen,))
        and problem.call[other] > written
        and problem.ret[other] < problem.call[op]
    ]
    if not gone:
        return ""
    origin = tell(problem, writers[0]) if writers else f"the initial value {show(seen)}"
    by = "by" if _leaves(problem.what(gone[-1])) else "before"
    return f"{origin} had been overwritten {by} {tell(problem, gone[-1])}"


def _leaves(what: Transition) -> tuple[object, ...]:
    """The value a register's op leaves behind, if it changes it at all."""
    if what.f in ("read", "cas-refused"):
        return ()
    return (what.value[1] if what.f == "cas" else what.value,)


def _shows(what: Transition) -> tuple[object, ...]:
    """The value that a register certainly held at the end of this op, if it says so."""
    return (what.value,) if what.f == "read" else _leaves(what)


def tell(problem: Problem, op: int) -> str:
    """`write 4 (op 80)`."""
    return f"{problem.table.model.describe(problem.what(op))} (op {problem.source[op]})"


def sentence(problem: Problem, found: Explanation, key: str | None) -> str:
    """The violation in one sentence: which op, what the states were, what it contradicts."""
    model = problem.table.model
    on = "" if key is None else f" on key {key}"
    if not found.states:
        could = ""
    elif len(found.states) > _NAMED:
        could = f" the {model.noun} could be one of {len(found.states)} values at that time, this not among them;"
    else:
        could = f" the {model.noun} could only be {' or '.join(found.states)} at that time;"
    told = model.describe(problem.what(found.op))
    return f"op {problem.source[found.op]}: {told}{on} cannot be placed:{could} {found.story}"
