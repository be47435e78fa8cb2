"""Special cases that need no search: near-linear time, however many clients, however many unknown ops.

Each monitor takes a problem and answers valid (with a witness), invalid (with the event that proves it and a few ops
that contradict each other already), or None where it does not apply: another model, values that are not unique, a
mix of ops that it has no rule for. `monitor` picks one by the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.models.log import Log
from checkers.linearizability.models.registry import (
    KV,
    CasRegister,
    FifoQueue,
    GrowOnlySet,
    Model,
    Mutex,
    Register,
    Set,
)
from checkers.linearizability.monitors.locks import mutex_by_deadlines
from checkers.linearizability.monitors.logs import log_by_offsets
from checkers.linearizability.monitors.queues import unique_fifo
from checkers.linearizability.monitors.registers import written_once
from checkers.linearizability.monitors.sets import set_by_inclusion
from checkers.linearizability.monitors.strings import unique_tokens
from checkers.linearizability.monitors.unique import unique_register
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

Monitor = Callable[[Problem], Outcome | None]

_MANY: Final = 2_000
"""Events from which on arrays are worth their overhead."""


def register(problem: Problem) -> Outcome | None:
    """Both ways give the same verdict."""
    if len(problem.events) >= _MANY and not any(kind.f.startswith("cas") for kind in problem.table.kinds):
        return written_once(problem)
    return unique_register(problem)


MONITORS: Final[dict[type[Model[Any]], Monitor]] = {
    Register: register,
    CasRegister: register,
    KV: unique_tokens,
    GrowOnlySet: set_by_inclusion,
    Set: set_by_inclusion,
    FifoQueue: unique_fifo,
    Mutex: mutex_by_deadlines,
    Log: log_by_offsets,
}
"""By the very class: a subclass may mean something else."""


def monitor(problem: Problem) -> Outcome | None:
    """A verdict without a search, or None."""
    special = MONITORS.get(type(problem.table.model))
    return None if special is None else special(problem)


def first_refuted(problem: Problem) -> int:
    """The earliest return up to which the monitor refutes the history (longer prefixes stay refuted)."""

    def refuted(position: int) -> bool:
        found = monitor(problem.before(position + 1))
        return found is not None and found.verdict == Verdict.INVALID

    return earliest_return(problem, len(problem.events) - 1, refuted)


def earliest_return(problem: Problem, last: int, refuted: Callable[[int], bool]) -> int:
    """The position of the first return that is refuted, if the last one up to `last` is."""
    returns = [position for position, event in enumerate(problem.events[: last + 1]) if event & 1]
    low, high = 0, len(returns) - 1
    while low < high:
        middle = (low + high) // 2
        if refuted(returns[middle]):
            high = middle
        else:
            low = middle + 1
    return returns[low]
