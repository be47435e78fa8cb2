"""What the monitors share: the times of a history's ops as arrays, and the earliest event that proves a violation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.encode import Problem

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LATE: Final = 1 << 62
"""The return of an op that never returned."""


class Times(NamedTuple):
    """op    numbers of the ops that are there, in order of call.
    call  position of each one's call among the events.
    ret   position of each one's return, LATE where there is none.
    """

    op: Longs
    call: Longs
    ret: Longs

    def chosen(self, keep: Bools) -> Times:
        return Times(self.op[keep], self.call[keep], self.ret[keep])


def times(problem: Problem) -> Times:
    events = np.array(problem.events, dtype=np.int64)
    op = events[events & 1 == 0] >> 1
    call, ret = np.array(problem.call, dtype=np.int64), np.array(problem.ret, dtype=np.int64)
    ret[ret < 0] = LATE
    return Times(op, call[op], ret[op])


def until(whole: Times, pure: Bools, position: int) -> tuple[Bools, Times]:
    """What was known right after the event at `position`, as `Problem.before`: which ops are kept, and their times."""
    still_open = whole.ret > position
    keep = (whole.call <= position) & ~(still_open & pure)
    return keep, Times(whole.op[keep], whole.call[keep], np.where(still_open, LATE, whole.ret)[keep])


def first_proof(whole: Times, pure: Bools, refuted: Callable[[Bools, Times], bool]) -> int:
    """The position of the earliest return up to which `refuted` holds. It holds for the whole, and stays once it does.

    A monitor may be at a loss about a part of what it decided as a whole: then the answer is a later return, at which
    the history is refuted as well.
    """
    returns = np.sort(whole.ret[whole.ret < LATE])
    low, high = 0, len(returns) - 1
    while low < high:
        middle = (low + high) // 2
        if refuted(*until(whole, pure, int(returns[middle]))):
            high = middle
        else:
            low = middle + 1
    return int(returns[low])
