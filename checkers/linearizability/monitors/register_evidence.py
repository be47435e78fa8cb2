# SPDX-License-Identifier: Apache-2.0
"""The evidence for a violation of a register: the possible states, and the fate of the value that an op saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.models.specification import Transition, show
from checkers.linearizability.monitors.conditions import UNIQUE_REGISTER
from checkers.linearizability.monitors.few_registers import unique_register
from results.verdict import Verdict

States = Callable[[Problem, str, int, int, int], "Sequence[object]"]
"""(problem, algorithm that refuted it, position of the failing return, its op, most steps) -> the states possible just
before; none if that would cost more.
"""

Story = Callable[[Problem, int, int, "Sequence[int]"], str]
"""(problem, position of the failing return, its op, core) -> one clause, or ""."""


def states_before(problem: Problem, algorithm: str, position: int, op: int, most: int) -> Sequence[object]:
    """The values that a read could have returned then, each probed. Empty unless the monitor refuted the history."""
    if algorithm != UNIQUE_REGISTER:
        return []
    table = problem.table
    earlier = problem.before(position).without(op)
    began = max((earlier.call[o] for o in earlier.completed if not earlier.pure(o)), default=NONE)
    candidates = [table.model.initial]
    for other in earlier.ops:
        # A write that returned before another acknowledged one began is certainly overwritten.
        if not earlier.pure(other) and earlier.ret[other] > began:
            what = earlier.what(other)
            candidates.append(what.value[1] if what.f == "cas" else what.value)
    if len(candidates) * len(earlier.events) > most:
        return []
    possible = []
    for value in candidates:
        probe = unique_register(earlier.then(table.kind(Transition("read", value))))
        if probe is not None and probe.verdict == Verdict.VALID:
            possible.append(value)
    return possible


def story(problem: Problem, position: int, op: int, core: Sequence[int]) -> str:
    """One clause on the fate of the value that the op saw, or ""."""
    what = problem.what(op)
    if what.f not in ("read", "cas"):
        return ""
    seen = what.value if what.f == "read" else what.value[0]
    initial = seen == problem.table.model.initial
    writers = [w for w in problem.before(position).ops if w != op and _leaves(problem.what(w)) == (seen,)]
    if not writers and not initial:
        return f"nothing had written {show(seen)} until then"
    written = problem.ret[writers[0]] if writers else NONE
    if len(writers) + initial > 1 or written == NEVER:
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
    origin = problem.describe(writers[0]) if writers else f"the initial value {show(seen)}"
    by = "by" if _leaves(problem.what(gone[-1])) else "before"
    return f"{origin} had been overwritten {by} {problem.describe(gone[-1])}"


def _leaves(what: Transition) -> tuple[object, ...]:
    """The value that a register's op leaves, if it changes the register at all."""
    if what.f in ("read", "cas-refused"):
        return ()
    return (what.value[1] if what.f == "cas" else what.value,)


def _shows(what: Transition) -> tuple[object, ...]:
    """The value that a register certainly held at the end of this op, if the op shows it."""
    return (what.value,) if what.f == "read" else _leaves(what)
