# SPDX-License-Identifier: Apache-2.0
"""The input of compiled code: arrays of integers, and a model as a *closed* table of transitions (`closed_table`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.linearizability.history.arrays import Dense, Ints, Longs
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, PURE


class Columns(NamedTuple):
    """One history: `events` as in `Problem` (2 * op a call, 2 * op + 1 its return), `kind` and `ret` per op.

    Events of ops that constrain nothing are left out. `ret` is a position in `events`, or NEVER.
    """

    events: Ints
    kind: Ints
    ret: Longs


def columns(problem: Problem, dense: Dense) -> Columns:
    """A problem's ops as arrays. Unknown ops that can change nothing constrain nothing, and are left out."""
    kind = np.array(problem.kind, dtype=np.int32)
    events = np.array(problem.events, dtype=np.int32)
    ret = np.array(problem.ret, dtype=np.int64)
    op = events >> 1
    useless = (ret[op] == NEVER) & ((dense.flags[kind[op]] & PURE) != 0)
    events = events[~useless]
    returns = np.nonzero(events & 1)[0]
    ret[events[returns] >> 1] = returns
    return Columns(events, kind, ret)
