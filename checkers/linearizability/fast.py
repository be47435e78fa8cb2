# SPDX-License-Identifier: Apache-2.0
"""The special methods of the engine for models, besides their `step`: one record a model, in one place.

A record is optional. A model without one is searched; each entry is a shorter way to the same verdict, which tests
compare with brute force. A record belongs to one class alone: a subclass may mean something else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.partition import by_element
from checkers.linearizability.history.table import Table
from checkers.linearizability.models.containers import FifoQueue, GrowOnlySet, Set
from checkers.linearizability.models.kv import KV
from checkers.linearizability.models.locks import Mutex
from checkers.linearizability.models.log import Log
from checkers.linearizability.models.registers import CasRegister, Register, Undetermined
from checkers.linearizability.models.specification import Model
from checkers.linearizability.monitors import register_evidence
from checkers.linearizability.monitors.conditions import no_element_twice, no_value_twice
from checkers.linearizability.monitors.few_registers import unique_register
from checkers.linearizability.monitors.locks import mutex_by_deadlines
from checkers.linearizability.monitors.sets import set_by_inclusion
from checkers.linearizability.monitors.strings import unique_tokens
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

if TYPE_CHECKING:
    from checkers.linearizability.history.arrays import Ints
    from checkers.linearizability.history.op_columns import OpColumns
    from checkers.linearizability.monitors.base import Monitor
    from checkers.linearizability.monitors.registers import Few


@dataclass(frozen=True, slots=True, kw_only=True)
class Fast:
    """monitor       decides without a search, or answers None. Near-linear time.
    partition     the objects that one consists of, each decided by itself (locality); empty for a single object.
    cells         the closed table [states, kinds] without a call of `step` per cell, or None if it is too large.
    columns       loads the monitor for histories that come as columns (`direct`).
    refute_columns  a few ops of such a history that contradict each other.
    states        states possible before a return that a monitor refuted, if a search would cost too much.
    story         one clause on the particular contradiction, or "".
    by_value      True if an op's name and value determine its effect (columns need no `Model.kind`).
    own_tables    True if histories of a batch have nothing in common: a table for each (`batch.Apart`).
    """

    monitor: Callable[[Problem], Outcome | None] | None = None
    partition: Callable[[Problem], Sequence[Problem]] | None = None
    cells: Callable[[Table, int], Ints | None] | None = None
    columns: Callable[[], Monitor[Any]] | None = None
    refute_columns: Callable[[OpColumns, Model[Any]], Few | None] | None = None
    states: register_evidence.States | None = None
    story: register_evidence.Story | None = None
    by_value: bool = False
    own_tables: bool = False


# What needs numpy is imported at its first use: numpy takes longer to load than a small history takes to check, and
# most of these have no use for it.


def _unique_register(problem: Problem) -> Outcome | None:
    return unique_register(problem) if no_value_twice(problem) else None


def _register_of_any_start(problem: Problem) -> Outcome | None:
    if not no_value_twice(problem):
        return None
    from checkers.linearizability.monitors.any_start import register_of_any_start

    return register_of_any_start(problem)


def _register_cells(table: Table, max_states: int) -> Ints | None:
    from checkers.linearizability.history.register_cells import register_cells

    return register_cells(table, max_states)


def _register_columns() -> Monitor[Any]:
    from checkers.linearizability.monitors.registers import MONITOR

    return MONITOR


def _refute_register(ops: OpColumns, model: Model[Any]) -> Few | None:
    from checkers.linearizability.monitors.registers import refute_register

    return refute_register(ops, model)


def _queue_columns() -> Monitor[Any]:
    from checkers.linearizability.monitors.queues import MONITOR

    return MONITOR


def _unique_queue(problem: Problem) -> Outcome | None:
    return _queue_columns().judge(problem) if no_element_twice(problem) else None


def _log_columns() -> Monitor[Any]:
    from checkers.linearizability.monitors.logs import MONITOR

    return MONITOR


def _log_by_offsets(problem: Problem) -> Outcome | None:
    return _log_columns().judge(problem)


_REGISTER: Final = Fast(
    monitor=_unique_register,
    cells=_register_cells,
    columns=_register_columns,
    refute_columns=_refute_register,
    states=register_evidence.states_before,
    story=register_evidence.story,
    by_value=True,
)

_STARTED_REGISTER: Final = replace(_REGISTER, columns=None, refute_columns=None)
"""For a start value other than absent: columns have no number for it."""

_ANY_REGISTER: Final = Fast(monitor=_register_of_any_start)

FAST: Final[Mapping[type[Model[Any]], Fast]] = {
    Register: _REGISTER,
    CasRegister: _REGISTER,
    KV: Fast(monitor=unique_tokens, own_tables=True),
    GrowOnlySet: Fast(monitor=set_by_inclusion),
    Set: Fast(monitor=set_by_inclusion, partition=by_element),
    FifoQueue: Fast(monitor=_unique_queue, columns=_queue_columns),
    Mutex: Fast(monitor=mutex_by_deadlines),
    Log: Fast(monitor=_log_by_offsets, columns=_log_columns),
}

_NOTHING: Final = Fast()


def fast(model: Model[Any]) -> Fast:
    """The record of a model, or an empty one. It depends on the start value, too."""
    record = FAST.get(type(model), _NOTHING)
    if type(model) in (Register, CasRegister) and model.initial is not None:
        return _ANY_REGISTER if isinstance(model.initial, Undetermined) else _STARTED_REGISTER
    return _NOTHING if type(model) is KV and model.initial != "" else record


def monitor(problem: Problem) -> Outcome | None:
    """A verdict without a search, or None."""
    decide = fast(problem.table.model).monitor
    return None if decide is None else decide(problem)


def partition(problem: Problem) -> Sequence[Problem]:
    """The problems that this one consists of, short ones first; empty for a single object."""
    divide = fast(problem.table.model).partition
    return () if divide is None else divide(problem)


def first_refuted(problem: Problem) -> int:
    """The earliest return up to which a monitor refutes the history (longer prefixes stay refuted)."""

    def refuted(position: int) -> bool:
        found = monitor(problem.before(position + 1))
        return found is not None and found.verdict == Verdict.INVALID

    return earliest_return([position for position, event in enumerate(problem.events) if event & 1], refuted)


def earliest_return(returns: Sequence[int], refuted: Callable[[int], bool]) -> int:
    """The first of these positions that is refuted, if the last one is."""
    return returns[bisect_left(returns, True, hi=len(returns) - 1, key=refuted)]
