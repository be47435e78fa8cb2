# SPDX-License-Identifier: Apache-2.0
"""The common part of the monitors on columns: from an order to an outcome, or to the earliest proof that none exists.

A monitor has columns of its own (`RegisterOps`, `QueueOps`, `LogOps`), made from `history.op_columns`. It returns the
rows in an order that explains them, or raises.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from checkers.linearizability.history.arrays import NO_ROWS, Bools, Longs
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.history.op_columns import OpColumns, from_problem
from checkers.linearizability.models.specification import Model
from checkers.linearizability.monitors.refusal import Contradiction, Undecided
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict


def reject(rows: npt.NDArray[np.intp], *others: npt.NDArray[np.intp]) -> None:
    """Raises Contradiction if `rows` is not empty: each of these ops is one, with those at its place in `others`."""
    if len(rows):
        raise Contradiction(int(rows[0]), *(int(other[0]) for other in others))


class Ops(Protocol):
    """Columns of a monitor: a NamedTuple of arrays with a row for each op, in order of call.

    call, ret  places of its events; `ret` is NEVER without a return.
    source     its name (`OpColumns.source`).
    """

    @property
    def call(self) -> Longs: ...
    @property
    def ret(self) -> Longs: ...
    @property
    def source(self) -> Longs: ...
    def __iter__(self) -> Iterator[Any]: ...
    def _replace(self, *, ret: Longs) -> Self: ...


C = TypeVar("C", bound=Ops)


@dataclass(frozen=True, slots=True)
class Monitor(Generic[C]):
    """A monitor on columns.

    columns  makes its columns of the ops; None if it has no rule for one of them.
    order    the rows in an order that explains them. Raises Contradiction if no such order exists, or Undecided.
    pure     ops that change nothing.
    replay   the error in such an order, or None (`witness`).
    """

    name: str
    columns: Callable[[OpColumns, Model[Any]], C | None]
    order: Callable[[C], Longs]
    pure: Callable[[C], Bools]
    replay: Callable[[C, Longs], str | None]

    def judge(self, problem: Problem, nothing: Hashable = None) -> Outcome | None:
        """Valid with a witness, invalid with the earliest return that proves it and the ops to blame, or None if no
        rule applies. `nothing`: see `from_problem`.
        """
        columns, work = self.columns(from_problem(problem, nothing), problem.table.model), len(problem.events)
        if columns is None:
            return None
        try:
            return Outcome(Verdict.VALID, self.name, work, witness=columns.source[self.order(columns)].tolist())
        except Undecided:
            return None
        except Contradiction:
            position, known, blamed = first_proof(columns, self.pure(columns), self.order)
        core = known.source[blamed][known.ret[blamed] < NEVER].tolist()
        return Outcome(Verdict.INVALID, self.name, work, position, core=core)


def first_proof(ops: C, pure: Bools, test: Callable[[C], object]) -> tuple[int, C, Longs]:
    """The position of the earliest return up to which `test` raises Contradiction, the ops known by then (`until`), and
    the rows of those to blame. `test` raises for the whole, and for every longer part once it raises.

    A monitor may have no rule for a part of a history that it decided as a whole: then the answer is a later return, at
    which the history is refuted as well, and no row is blamed.
    """

    def refuted(known: C) -> Longs | None:
        try:
            test(known)
        except Undecided:
            return None
        except Contradiction as found:
            return np.array(found.rows, np.int64)
        return None

    returns: list[int] = np.sort(ops.ret[ops.ret < NEVER]).tolist()

    def proves(position: int) -> bool:
        return refuted(until(ops, pure, position)) is not None

    position = returns[bisect_left(returns, True, hi=len(returns) - 1, key=proves)]
    known = until(ops, pure, position)
    blamed = refuted(known)
    return position, known, NO_ROWS if blamed is None else blamed


def until(ops: C, pure: Bools, position: int) -> C:
    """The ops as known right after the event at `position`, like `Problem.before`."""
    still_open = ops.ret > position
    keep = (ops.call <= position) & ~(still_open & pure)
    return chosen(ops._replace(ret=np.where(still_open, NEVER, ops.ret)), keep)


def chosen(ops: C, keep: Bools) -> C:
    """The chosen rows alone."""
    return type(ops)(*(column[keep] for column in ops))
