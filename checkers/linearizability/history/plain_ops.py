"""Ops whose values are plain (whole numbers, texts, nothing at all) as columns, without an object for every op.

`encode` makes a `Transition` of each op first; with a million different values that costs far more than the answer.
Here the columns come from the calls, or from those of a sealed history (`arrow`), at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.linearizability.history.events import NEVER, Bools, Longs, Times
from results.bulk import making_many
from results.history import Call
from results.op import FAIL, OK

NOTHING: Final = -1
"""The number of `None`."""

_LARGEST: Final = 10**18


class PlainOps(NamedTuple):
    """Ops of one object, in order of call. Values are numbers: equal ones are equal values, NOTHING is None.

    f            place in `fs`.
    asked, got   the argument; the result, where the op is acknowledged.
    ok           is it acknowledged? Otherwise nobody knows whether it happened (there are none that failed).
    call, ret    places of its events in the order of time; `ret` is NEVER where there is none.
    source       index of its invocation in the history.
    whole        by number of a value: the whole number that it is.
    is_whole     and whether it is one. (The last row of both is of NOTHING.)
    """

    fs: Sequence[str]
    f: Longs
    asked: Longs
    got: Longs
    ok: Bools
    call: Longs
    ret: Longs
    source: Longs
    whole: Longs
    is_whole: Bools

    def of(self, *names: str) -> Bools:
        """Which ops are one of these."""
        return np.array([f in names for f in self.fs], np.bool_)[self.f]

    def kept(self, rows: Bools | Longs | slice) -> PlainOps:
        return self._replace(
            f=self.f[rows], asked=self.asked[rows], got=self.got[rows], ok=self.ok[rows],
            call=self.call[rows], ret=self.ret[rows], source=self.source[rows],
        )  # fmt: skip

    @property
    def when(self) -> Times:
        return Times(np.arange(len(self.f)), self.call, self.ret)


def from_calls(calls: Sequence[Call]) -> PlainOps | None:
    """The calls of one object that may have happened. None where a value is not plain."""
    numbers: dict[Any, int] = {None: NOTHING}
    fs: dict[str, int] = {}
    columns: list[tuple[int, int, int, bool, int, int]] = []
    with making_many():
        for call in calls:
            invoke, completion = call.invoke, call.completion
            if completion is not None:
                if completion.f != invoke.f:
                    return None
                if completion.type == FAIL:
                    continue
            ok, got, ret = False, None, NEVER
            if completion is not None and completion.type == OK:
                ok, got, ret = True, completion.value, completion.index
            asked = invoke.value
            for value in (asked, got):
                if type(value) is not int and type(value) is not str and value is not None:
                    return None
            columns.append((
                fs.setdefault(invoke.f, len(fs)), numbers.setdefault(asked, len(numbers) - 1),
                numbers.setdefault(got, len(numbers) - 1), ok, invoke.index, ret,
            ))  # fmt: skip
    f, asked_, got_, ok_, called, returned = np.array(columns, np.int64).reshape(-1, 6).T.copy()
    if not _in_order(called, returned):
        return None
    values = list(numbers)[1:]
    whole = [value if type(value) is int and abs(value) < _LARGEST else NEVER for value in values]
    known = np.array([*whole, NEVER], np.int64)
    return PlainOps(list(fs), f, asked_, got_, ok_ == 1, called, returned, called, known, known != NEVER)


def _in_order(call: Longs, ret: Longs) -> bool:
    """Calls one after the other, each before its own return, and no two events at one place."""
    events = np.concatenate((call, ret[ret < NEVER]))
    return bool((np.diff(call) > 0).all() and (ret > call).all() and len(np.unique(events)) == len(events))
