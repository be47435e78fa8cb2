# SPDX-License-Identifier: Apache-2.0
"""The ops of one object as columns of numbers: the input of the monitors, for any number of ops.

They come from a `Problem`, or, to avoid an object for each op, from plain calls (`from_calls`) or the columns of a
sealed history (`arrow.objects`). In the last two, values are whole numbers, texts or None: `encode` would make a
`Transition` of each op, which costs far more than the answer if a million values differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.linearizability.history.arrays import Bools, Longs
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER
from results.bulk import making_many
from results.history import Call
from results.op import FAIL, OK

_NO_ALIASES: Final[Mapping[str, str]] = {}

NOTHING: Final = -1
"""The number of `None`."""

LARGEST: Final = 10**18
"""The largest whole number that is exact; all larger ones count as this one."""


class OpColumns(NamedTuple):
    """Ops of one object, which its model knows, in order of call. Values are numbers: equal ones are equal values,
    NOTHING is None.

    f            place in `fs`.
    argument     value; of a cas, the expected one.
    result       value, if it is known; of a cas, the one it leaves. (`f` determines which of the two an op has; the
                 other one means nothing.)
    known        True if the result is known. Otherwise the op may or may not have happened (failed ones are left out).
    call, ret    places of its events in the order of time; `ret` is NEVER without a return.
    source       the name of each op: the index of its invocation in the history, or its number in the problem.
    whole        makes, by number of a value, the whole number that it is, or NEVER. (The last entry is for NOTHING.)
    """

    fs: Sequence[str]
    f: Longs
    argument: Longs
    result: Longs
    known: Bools
    call: Longs
    ret: Longs
    source: Longs
    whole: Callable[[], Longs]

    def of(self, *names: str) -> Bools:
        """A mask of the ops with one of these names."""
        return np.array([f in names for f in self.fs], np.bool_)[self.f]

    def kept(self, rows: Bools | Longs | slice) -> OpColumns:
        return self._replace(
            f=self.f[rows], argument=self.argument[rows], result=self.result[rows], known=self.known[rows],
            call=self.call[rows], ret=self.ret[rows], source=self.source[rows],
        )  # fmt: skip


def from_problem(problem: Problem, nothing: Hashable = None) -> OpColumns:
    """The ops of a problem. `nothing`: the value that gets the number NOTHING."""
    numbers: dict[Any, int] = {nothing: NOTHING}
    fs: dict[str, int] = {}
    kinds, pairs = problem.table.kinds, {"cas", *problem.table.model.pairs}
    events = np.array(problem.events, np.int64)
    op = events[events & 1 == 0] >> 1
    kind = np.array(problem.kind, np.int64)[op]
    f = np.array([fs.setdefault(one.f, len(fs)) for one in kinds], np.int64)
    if pairs.isdisjoint(fs):
        # (An op has an argument or a result, and the other one is never read.)
        argument = result = np.array([numbers.setdefault(one.value, len(numbers) - 1) for one in kinds], np.int64)[kind]
    else:
        values = [one.value if one.f in pairs else (one.value, one.value) for one in kinds]
        argument, result = (
            np.array([numbers.setdefault(value[side], len(numbers) - 1) for value in values], np.int64)[kind]
            for side in (0, 1)
        )
    known = np.array([one.known for one in kinds], np.bool_)[kind]
    call, ret = np.array(problem.call, np.int64)[op], np.array(problem.ret, np.int64)[op]
    return OpColumns(list(fs), f[kind], argument, result, known, call, ret, op, lambda: _whole(numbers))


def from_calls(calls: Sequence[Call], aliases: Mapping[str, str] = _NO_ALIASES) -> OpColumns | None:
    """The calls of one object that may have happened. None if a value is not plain. `aliases`: those of its model."""
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
            ok, result, ret = False, None, NEVER
            if completion is not None and completion.type == OK:
                ok, result, ret = True, completion.value, completion.index
            argument = invoke.value
            for value in (argument, result):
                if type(value) is not int and type(value) is not str and value is not None:
                    return None
            columns.append((
                fs.setdefault(invoke.f, len(fs)), numbers.setdefault(argument, len(numbers) - 1),
                numbers.setdefault(result, len(numbers) - 1), ok, invoke.index, ret,
            ))  # fmt: skip
    f, arguments, results, ok_, called, returned = np.array(columns, np.int64).reshape(-1, 6).T.copy()
    if not _in_order(called, returned):
        return None
    names = [aliases.get(f, f) for f in fs]
    return OpColumns(names, f, arguments, results, ok_ == 1, called, returned, called, lambda: _whole(numbers))


def _whole(values: Iterable[Any]) -> Longs:
    """The whole number that each value is, or NEVER; the first value has the number NOTHING."""
    found = [
        value
        if type(value) is int and -LARGEST < value < LARGEST
        else max(-LARGEST, min(int(value), LARGEST))
        if isinstance(value, int | float) and value % 1 == 0
        else NEVER
        for value in values
    ]
    return np.array([*found[1:], found[0]], np.int64)


def _in_order(call: Longs, ret: Longs) -> bool:
    """True if calls are in order, each before its own return, and no two events have one place."""
    events = np.concatenate((call, ret[ret < NEVER]))
    return bool((np.diff(call) > 0).all() and (ret > call).all() and len(np.unique(events)) == len(events))
