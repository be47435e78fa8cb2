"""The ops of one object as columns of numbers: what the monitors work on, however many ops there are.

They come from a `Problem`, or, where no object shall stand for an op, from plain calls (`from_calls`) or the columns of
a sealed history (`arrow.objects`). In the last two, values are whole numbers, texts or nothing at all: `encode` would
make a `Transition` of each op, which costs far more than the answer where a million values differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, Bools, Longs
from results.bulk import making_many
from results.history import Call
from results.op import FAIL, OK

NOTHING: Final = -1
"""The number of `None`."""

LARGEST: Final = 10**18
"""Whole numbers count up to here; all that are larger are one."""


class OpColumns(NamedTuple):
    """Ops of one object, in order of call. Values are numbers: equal ones are equal values, NOTHING is None.

    f            place in `fs`.
    asked, got   the argument, and the result where it is known. Of a cas: what it expects, and what it leaves.
    known        is the result known? Otherwise nobody knows whether it happened (there are none that failed).
    call, ret    places of its events in the order of time; `ret` is NEVER where there is none.
    source       the name of each op: the index of its invocation in the history, or its number in the problem.
    whole        makes, by number of a value, the whole number that it is, or NEVER. (The last one is of NOTHING.)
    """

    fs: Sequence[str]
    f: Longs
    asked: Longs
    got: Longs
    known: Bools
    call: Longs
    ret: Longs
    source: Longs
    whole: Callable[[], Longs]

    def of(self, *names: str) -> Bools:
        """Which ops are one of these."""
        return np.array([f in names for f in self.fs], np.bool_)[self.f]

    def kept(self, rows: Bools | Longs | slice) -> OpColumns:
        return self._replace(
            f=self.f[rows], asked=self.asked[rows], got=self.got[rows], known=self.known[rows],
            call=self.call[rows], ret=self.ret[rows], source=self.source[rows],
        )  # fmt: skip


def from_problem(problem: Problem, nothing: Hashable = None) -> OpColumns:
    """The ops of a problem. `nothing`: the value that gets the number NOTHING."""
    numbers: dict[Any, int] = {nothing: NOTHING}
    fs: dict[str, int] = {}
    kinds: list[tuple[int, int, int, bool]] = []
    model = problem.table.model
    for kind in problem.table.kinds:
        asked = got = nothing
        if kind.f in model.pairs or kind.f == "cas":
            asked, got = kind.value
        elif kind.known and kind.f in model.observers:
            got = kind.value
        else:
            asked = kind.value
        f = fs.setdefault(kind.f, len(fs))
        first = numbers.setdefault(asked, len(numbers) - 1)
        kinds.append((f, first, numbers.setdefault(got, len(numbers) - 1), kind.known))
    events = np.array(problem.events, np.int64)
    op = events[events & 1 == 0] >> 1
    rows = np.array(kinds, np.int64).reshape(-1, 4)[np.array(problem.kind, np.int64)[op]]
    f_, asked_, got_, known = rows.T
    call, ret = np.array(problem.call, np.int64)[op], np.array(problem.ret, np.int64)[op]
    return OpColumns(list(fs), f_, asked_, got_, known == 1, call, ret, op, lambda: _whole(numbers))


def from_calls(calls: Sequence[Call]) -> OpColumns | None:
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
    return OpColumns(list(fs), f, asked_, got_, ok_ == 1, called, returned, called, lambda: _whole(numbers))


def _whole(values: Iterable[Any]) -> Longs:
    """The whole number that each value is, or NEVER; the first value has the number NOTHING."""
    found = [
        max(-LARGEST, min(int(value), LARGEST)) if isinstance(value, int | float) and value % 1 == 0 else NEVER
        for value in values
    ]
    return np.array([*found[1:], found[0]], np.int64)


def _in_order(call: Longs, ret: Longs) -> bool:
    """Calls one after the other, each before its own return, and no two events at one place."""
    events = np.concatenate((call, ret[ret < NEVER]))
    return bool((np.diff(call) > 0).all() and (ret > call).all() and len(np.unique(events)) == len(events))
