# SPDX-License-Identifier: Apache-2.0
"""The independent judge of witnesses (`witness`), for orders of millions of ops that are columns: real time first, then
the results of each object. An array has a row for each op that is placed, in that order; equal numbers are equal
values, and a negative one is no value.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.linearizability.history.arrays import Bools, Longs
from checkers.linearizability.history.events import NEVER, NONE


def out_of_time(call: Longs, ret: Longs, order: Longs) -> str | None:
    """The error in an order, or None. Right means: every completed op once, every unknown op at most once, and none
    before one that had returned by its call.
    """
    times = np.bincount(order, minlength=len(call))
    if (times > 1).any() or (times[ret < NEVER] == 0).any():
        return "an op is placed twice, or a completed one is not placed"
    if (np.maximum.accumulate(call[order]) > ret[order]).any():
        return "an op had returned before one placed in front of it was called"
    return None


_IMPOSSIBLE: Final = "an op cannot happen where it is placed"


def register_wrong(write: Bools, value: Longs, expects: Longs) -> str | None:
    """The error in a register's order, or None. Every read shows, and every cas expects, the value written last; 0
    before that. `expects`: NONE for no cas.
    """
    last = np.maximum.accumulate(np.where(write, np.arange(len(write)), -1))
    before = np.concatenate(([-1], last[:-1]))[: len(write)]
    held = np.where(before < 0, 0, value[before])
    seen = np.where(write, expects, value)
    return None if ((seen == held) | (write & (expects == NONE))).all() else _IMPOSSIBLE


def queue_wrong(put: Bools, empty: Bools, element: Longs) -> str | None:
    """The error in a queue's order, or None. The n-th element taken is the n-th put in (a negative one is unknown); a
    queue reported as empty has none left.
    """
    taken = ~put & ~empty
    puts, takes = np.cumsum(put), np.cumsum(taken)
    if (takes > puts).any() or (takes != puts)[empty].any():
        return _IMPOSSIBLE
    right = element[put][: np.count_nonzero(taken)]
    return None if ((element[taken] == right) | (element[taken] < 0)).all() else _IMPOSSIBLE


def log_wrong(append: Bools, read: Bools, end: Bools, entry: Longs, offset: Longs) -> str | None:
    """The error in a log's order, or None. Appends go to one offset after the other (-1: unknown), and a read shows the
    entry there (-1: none). `end` ops return the next offset, and all others the first, which is 0.
    """
    count = np.cumsum(append)
    appended = entry[append]
    if ((offset != count - 1) & (offset != -1))[append].any() or (offset != count)[end].any():
        return _IMPOSSIBLE
    inside = read & (offset >= 0) & (offset < count)
    there = np.full(len(read), -1, np.int64)
    there[inside] = appended[offset[inside]]
    right = (there == entry)[read].all() and (offset == 0)[~(append | read | end)].all()
    return None if right else _IMPOSSIBLE
