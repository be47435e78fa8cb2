"""Special cases that need no search: near-linear time, however many clients, however many unknown ops.

Each monitor takes a problem and answers valid (with a witness), invalid (with the event that proves it and a few ops
that contradict each other already), or None where it does not apply: another model, values that are not unique, a
mix of ops that it has no rule for. `monitor` picks one by the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from checkers.linearizability.encode import Problem
from checkers.linearizability.log import Log
from checkers.linearizability.models import CasRegister, Model, Register
from checkers.linearizability.monitors.logs import log_by_offsets
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.unique import unique_register

Monitor = Callable[[Problem], Outcome | None]

MONITORS: Final[dict[type[Model[Any]], Monitor]] = {
    Register: unique_register,
    CasRegister: unique_register,
    Log: log_by_offsets,
}
"""By the very class: a subclass may mean something else."""


def monitor(problem: Problem) -> Outcome | None:
    """A verdict without a search, or None."""
    special = MONITORS.get(type(problem.table.model))
    return None if special is None else special(problem)
