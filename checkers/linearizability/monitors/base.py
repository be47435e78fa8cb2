"""What the monitors share: the times of a history's ops as arrays, and the way from an order to an outcome.

A monitor is a function of columns: it returns the rows in an order that explains them, or raises. The columns come from
a `Problem`, or from anywhere else that has millions of ops in arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, Bools, Longs, Times
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict


def times(problem: Problem) -> Times:
    events = np.array(problem.events, dtype=np.int64)
    op = events[events & 1 == 0] >> 1
    call, ret = np.array(problem.call, dtype=np.int64), np.array(problem.ret, dtype=np.int64)
    return Times(op, call[op], ret[op])


class Undecided(Exception):
    """There is no rule for this history."""


class Contradiction(Exception):
    """No order exists. `rows`: of a few ops that contradict each other already, whatever became of the others."""

    def __init__(self, *rows: int) -> None:
        self.rows = rows


def reject(rows: npt.NDArray[np.intp]) -> None:
    """Raises Contradiction if there is any: each of these ops is one."""
    if len(rows):
        raise Contradiction(int(rows[0]))


class Ops(Protocol):
    """Columns of any monitor."""

    @property
    def when(self) -> Times: ...

    def chosen(self, keep: Bools, when: Times) -> Self:
        """Those ops alone, with these times."""


Columns = TypeVar("Columns", bound=Ops)


def judged(
    problem: Problem, name: str, ops: Columns, pure: Bools, order_of: Callable[[Columns], Longs]
) -> Outcome | None:
    """`order_of` returns the rows in an order that explains them, or raises Contradiction or Undecided (then None).

    `pure`: ops that change nothing. Invalid comes with the earliest return that proves it and the ops to blame.
    """
    work = len(problem.events)
    found: Contradiction

    def refuted(keep: Bools, when: Times) -> bool:
        nonlocal found
        try:
            order_of(ops.chosen(keep, when))
        except Undecided:
            return False
        except Contradiction as contradiction:
            found = contradiction
            return True
        return False

    try:
        return Outcome(Verdict.VALID, name, work, witness=ops.when.op[order_of(ops)].tolist())
    except Undecided:
        return None
    except Contradiction as contradiction:
        found = contradiction
    position = first_proof(ops.when, pure, refuted)
    known = until(ops.when, pure, position)
    if refuted(*known):
        core = [int(op) for op in known[1].op[list(found.rows)] if 0 <= problem.ret[op] <= position]
        return Outcome(Verdict.INVALID, name, work, position, core=core)
    return Outcome(Verdict.INVALID, name, work, position)


def until(whole: Times, pure: Bools, position: int) -> tuple[Bools, Times]:
    """What was known right after the event at `position`, as `Problem.before`: which ops are kept, and their times."""
    still_open = whole.ret > position
    keep = (whole.call <= position) & ~(still_open & pure)
    return keep, Times(whole.op[keep], whole.call[keep], np.where(still_open, NEVER, whole.ret)[keep])


def first_proof(whole: Times, pure: Bools, refuted: Callable[[Bools, Times], bool]) -> int:
    """The position of the earliest return up to which `refuted` holds. It holds for the whole, and stays once it does.

    A monitor may be at a loss about a part of what it decided as a whole: then the answer is a later return, at which
    the history is refuted as well.
    """
    returns = np.sort(whole.ret[whole.ret < NEVER])
    low, high = 0, len(returns) - 1
    while low < high:
        middle = (low + high) // 2
        if refuted(*until(whole, pure, int(returns[middle]))):
            high = middle
        else:
            low = middle + 1
    return int(returns[low])
