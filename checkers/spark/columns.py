# SPDX-License-Identifier: Apache-2.0
"""Converts many histories of an op table to the arrays of the engine's batch call, without a Python object per op.

Only simple histories use this path: well-formed histories of a register. All others are listed and checked as single
histories. Both paths give the same verdicts (a test compares them on histories of every kind).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.linearizability.fast import fast
from checkers.linearizability.history.arrays import Bools, Longs
from checkers.linearizability.history.arrow import Calls, Rows, coded
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.history.packed import Packed
from checkers.linearizability.history.table import Table
from checkers.linearizability.models.specification import Model, Transition
from checkers.linearizability.models.values import freeze
from results.op_table import runs_of

_OK: Final = 1
"""The code of `ok` in `Rows.kind`."""

MAX_KINDS: Final = 2_000
"""Different ops in one call: the engine's table has a cell for each of them in each state."""


@dataclass(frozen=True)
class Part:
    """Histories that were packed, and those that were not.

    spans    (run, first row, end) of every history in the part.
    odd      numbers of the spans that have to be checked one by one.
    packed   the others, an object for each of their keys; None if no history was packed.
    owner    for each object of `packed` the number of its span. key: its key.
    completed   the number of its acknowledged ops. calls: the number of all its ops.
    """

    spans: Sequence[tuple[str, int, int]]
    odd: Sequence[int]
    packed: Packed | None
    owner: Longs
    key: Sequence[str | None]
    completed: Longs
    calls: Longs


def applies(model: Model[Any]) -> bool:
    """True if this path supports a model: the effect of an op must follow from its name and its value."""
    return fast(model).by_value


def pack_part(table: pa.Table, model: Model[Any], ignore: Collection[str] = ()) -> Part:
    """The rows of `results.op_table.read_part` (whole runs) as `Packed`. Ops whose name is in `ignore` are left out; a
    history with others that the model does not know, or in which nothing is known to have happened, is odd.
    """
    spans = runs_of(table)
    rows = Rows(table, spans)
    fs = model.fs.difference(ignore)
    odd = rows.odd_runs()
    odd |= runs_with(table, spans, frozenset(rows.fs) - model.fs, ignore)
    odd |= ~_active(rows, fs)
    calls = rows.calls(fs, odd)
    kinds = _Kinds(rows, model)
    number = kinds.number(calls)
    if len(kinds.table.kinds) > MAX_KINDS:
        odd[:] = True
    odd[np.unique(rows.run[calls.invoke[number < 0]])] = True
    useful = (number >= 0) & ~odd[rows.run[calls.invoke]]
    # An unknown op that could only read changes nothing, and is left out, as by `encode`.
    pure = np.array([*kinds.table.pure, False], np.bool_)[number]
    kept = useful & ((calls.ok) | ~pure)
    run, key = rows.run[calls.invoke], rows.key[calls.invoke]
    order = np.lexsort((calls.invoke, key, run))
    groups, sizes, completed = _groups(run[order], key[order], useful[order], calls.ok[order])
    order = order[kept[order]]
    kinds.table.seal_kinds()
    if not len(groups):
        return Part(spans, np.nonzero(odd)[0].tolist(), None, np.zeros(0, np.int64), [], completed, sizes)
    slot = np.searchsorted(groups, _pair(run[order], key[order]))
    first = np.zeros(len(groups) + 1, np.int64)
    np.cumsum(np.bincount(slot, minlength=len(groups)), out=first[1:])
    packed = Packed(
        kinds.table,
        number[order].astype(np.int32),
        rows.index[calls.invoke[order]],
        np.where(calls.ok[order], rows.index[calls.done[order]], NEVER),
        first,
        rows.index[calls.invoke[order]],
    )
    names = [*rows.keys, None]
    key_of = [names[code] for code in ((groups & _LOW) - 1).tolist()]
    return Part(spans, np.nonzero(odd)[0].tolist(), packed, groups >> _SHIFT, key_of, completed, sizes)


_SHIFT: Final = np.int64(31)
_LOW: Final = np.int64(2**31 - 1)


def _pair(run: Longs, key: Longs) -> Longs:
    """(run, key) as one number, in the order of runs and then keys; the key -1 (none) comes first."""
    return (run << _SHIFT) | (key + 1)


def _groups(run: Longs, key: Longs, useful: Bools, ok: Bools) -> tuple[Longs, Longs, Longs]:
    """The objects, and the number of calls and of acknowledged calls of each. Sorted input."""
    pair = _pair(run, key)[useful]
    groups, at, sizes = np.unique(pair, return_index=True, return_counts=True)
    if not len(groups):
        return groups, np.zeros(0, np.int64), np.zeros(0, np.int64)
    return groups, sizes.astype(np.int64), np.add.reduceat(ok[useful].astype(np.int64), at)


class _Kinds:
    """The kinds of the ops, as numbers of a table that they share."""

    def __init__(self, rows: Rows, model: Model[Any]) -> None:
        self.rows, self.model = rows, model
        self.fs = [model.aliases.get(f, f) for f in rows.fs]
        self.table = Table(model)

    def number(self, calls: Calls) -> Longs:
        """The kind of each call; -1 if the model does not accept it (a check as a single history reports the error)."""
        rows = self.rows
        watched = np.array([f in self.model.observers for f in self.fs] + [False])
        f = rows.f[calls.invoke]
        seen = watched[f] & calls.ok
        value = np.where(seen, rows.value[calls.done], rows.value[calls.invoke])
        known = seen | ~watched[f]
        code = ((f * (len(rows.values) + 1) + value + 1) << 1) | known
        different, place = np.unique(code, return_inverse=True)
        width = len(rows.values) + 1
        return np.array([self._kind(int(c), width) for c in different], np.int64)[place] if len(code) else code

    def _kind(self, code: int, width: int) -> int:
        f, value = divmod(code >> 1, width)
        try:
            data = None if value == 0 else json.loads(self.rows.values[value - 1])
            return self.table.kind(Transition(self.fs[f], freeze(data), bool(code & 1)))
        except (ValueError, RecursionError):
            return -1


def runs_with(
    table: pa.Table, spans: Sequence[tuple[str, int, int]], fs: frozenset[str], ignore: Collection[str] = ()
) -> Bools:
    """A mask of histories in which a client does any of `fs` that is not in `ignore`."""
    codes, names = coded(table["f"])
    wanted = fs.difference(ignore)
    there = np.array([f in wanted for f in names.to_pylist()] + [False])[codes] & (table["process"].to_numpy() >= 0)
    found = np.zeros(len(spans), np.bool_)
    starts = [start for _, start, _ in spans]
    found[np.searchsorted(starts, np.nonzero(there)[0], side="right") - 1] = True
    return found


def _active(rows: Rows, fs: frozenset[str]) -> Bools:
    """A mask of runs in which an op of `fs` is known to have happened."""
    known = np.array([f in fs for f in rows.fs] + [False])
    has = np.zeros(len(rows.spans), np.bool_)
    has[rows.run[known[rows.f] & (rows.process >= 0) & (rows.kind == _OK)]] = True
    return has
