# SPDX-License-Identifier: Apache-2.0
"""The columns of a history (`results.sealed.SCHEMA`) as numbers: no Python object stands for an op.

For one history, or many that lie one behind the other (`results.op_table`). Texts become numbers by way of Arrow's
dictionaries; invocations meet their completions in one sort by process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.linearizability.history.arrays import Bools, Longs
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.history.op_columns import NOTHING, OpColumns
from results.history import Call
from results.op import FAIL, INFO, INVOKE, OK, Op

_NO_ALIASES: Final[Mapping[str, str]] = {}
_TYPES: Final = (INVOKE, OK, FAIL, INFO)

_DECISIVE: Final = ("index", "time", "process", "type", "f", "key", "value")

_PLAIN: Final = r'^(?:0|-?[1-9][0-9]{0,17}|"[ !#-\[\]-~]*")$'
"""JSON texts that are equal if their values are: whole numbers, and strings without escapes."""

_WHOLE: Final = r"^(?:0|-?[1-9][0-9]{0,17})$"


class Calls(NamedTuple):
    """Rows of invocations that are not known to have failed, and of their completions (-1: no completion)."""

    invoke: Longs
    done: Longs
    ok: Bools


class Rows:
    """The columns as numbers."""

    def __init__(self, table: pa.Table, spans: Sequence[tuple[str, int, int]]) -> None:
        self.spans = spans
        self.index = table["index"].to_numpy()
        self.time = table["time"].to_numpy()
        self.process = table["process"].to_numpy()
        self.type, types = coded(table["type"])
        self.f, fs = coded(table["f"])
        self.key, keys = coded(table["key"])
        self.value, self.texts = coded(table["value"])
        self.fs, self.keys = fs.to_pylist(), keys.to_pylist()
        starts = np.array([start for _, start, _ in spans], np.int64)
        self.run = np.repeat(np.arange(len(spans)), np.diff([*starts, len(table)]))
        self.place = np.arange(len(table)) - starts[self.run] if len(spans) else np.zeros(0, np.int64)
        kind = np.array([_TYPES.index(t) if t in _TYPES else -1 for t in types.to_pylist()] + [-1])
        self.kind = kind[self.type]
        # Of one process in order of index: an invocation and its completion are neighbours. (The rows of a run lie one
        # behind the other and in order of index, and the sort is stable; short numbers are sorted fastest.)
        low, high = int(self.process.min(initial=0)), int(self.process.max(initial=0))
        if (high - low + 1) * max(len(spans), 1) < 1 << 62:
            self.by_process = np.argsort(_short(self.run * (high - low + 1) + (self.process - low)), kind="stable")
        else:
            self.by_process = np.lexsort((self.process, self.run))

    @cached_property
    def values(self) -> list[str]:
        """The different values, as JSON; `value` counts in them."""
        return self.texts.to_pylist()  # type: ignore[no-any-return]

    def odd_runs(self) -> Bools:
        """A mask of runs that break an invariant (`checkers.run.wellformed`), or in which no client acts."""
        acted = np.zeros(len(self.spans), np.bool_)
        acted[self.run[self.process >= 0]] = True
        return self.malformed_runs() | ~acted

    def malformed_runs(self) -> Bools:
        """A mask of runs that break an invariant (`checkers.run.wellformed`)."""
        odd = np.zeros(len(self.spans), np.bool_)
        odd[self.run[(self.index != self.place) | (self.kind < 0)]] = True
        same = self.run[1:] == self.run[:-1]
        odd[self.run[1:][same & (self.time[1:] < self.time[:-1])]] = True
        at, after = self.by_process[:-1], self.by_process[1:]
        neighbours = (self.run[at] == self.run[after]) & (self.process[at] == self.process[after])
        invoke, follows = self.kind[at] == 0, self.kind[after] == 0
        alike = (self.f[at] == self.f[after]) & (self.key[at] == self.key[after])
        gone = (self.kind[at] == 3) & (self.process[at] >= 0)
        wrong = neighbours & np.where(invoke, follows | ~alike, ~follows | gone)
        odd[self.run[at[wrong]]] = True
        if len(self.by_process):
            opens = np.concatenate(([True], ~neighbours))
            odd[self.run[self.by_process[opens & (self.kind[self.by_process] != 0)]]] = True
        return odd

    def calls(self, fs: frozenset[str], odd: Bools) -> Calls:
        """The clients' calls of these ops, of all runs that are not odd."""
        wanted = np.array([f in fs for f in self.fs] + [False])[self.f]
        at = self.by_process
        after = np.concatenate((at[1:], [-1])) if len(at) else at
        starts = (self.kind[at] == 0) & (self.process[at] >= 0) & wanted[at] & ~odd[self.run[at]]
        invoke, done = at[starts], after[starts]
        mine = (done >= 0) & (self.run[invoke] == self.run[done]) & (self.process[invoke] == self.process[done])
        done = np.where(mine, done, -1)
        outcome = np.where(mine, self.kind[done], 3)
        kept = outcome != 2
        return Calls(invoke[kept], done[kept], outcome[kept] == 1)

    def calls_in_order(self, fs: frozenset[str], odd: Bools) -> Calls:
        """`calls`, by row of the invocation; they come by process, and there are as many rows as it takes to sort."""
        found = self.calls(fs, odd)
        called = np.zeros(len(self.kind), np.bool_)
        called[found.invoke] = True
        done, ok = np.full(len(called), -1, np.int64), np.zeros(len(called), np.bool_)
        done[found.invoke], ok[found.invoke] = found.done, found.ok
        return Calls(np.nonzero(called)[0], done[called], ok[called])


def objects(
    table: pa.Table, fs: frozenset[str], aliases: Mapping[str, str] = _NO_ALIASES
) -> list[tuple[str | None, OpColumns]] | None:
    """The objects (by key) of a sealed history's columns (`results.sealed.SCHEMA`), with the clients' ops of `fs` on
    each; `aliases`: those of the model. None if the history is malformed, or a value in it is not plain.
    """
    rows = Rows(table, [("", 0, len(table))])
    odd = rows.odd_runs()
    if odd.any():
        return None
    calls = rows.calls_in_order(fs, odd)
    argument = rows.value[calls.invoke]
    result = np.where(calls.ok, rows.value[calls.done], NOTHING)
    used = np.zeros(len(rows.texts) + 1, np.bool_)
    used[argument] = used[result] = True
    plain = pc.match_substring_regex(rows.texts.filter(pa.array(used[:-1])), _PLAIN)
    if not pc.all(plain, min_count=0).as_py():
        return None

    def whole() -> Longs:
        numbers = pc.if_else(pc.match_substring_regex(rows.texts, _WHOLE), rows.texts, pa.scalar(None, rows.texts.type))
        return np.append(numbers.cast(pa.int64()).fill_null(NEVER).to_numpy(zero_copy_only=False), NEVER)

    ret = np.where(calls.ok, calls.done, NEVER)
    fs_ = [aliases.get(f, f) for f in rows.fs]
    ops = OpColumns(fs_, rows.f[calls.invoke], argument, result, calls.ok, calls.invoke, ret, calls.invoke, whole)
    key = rows.key[calls.invoke]
    if (key[1:] < key[:-1]).any():
        order = np.argsort(_short(key + 1), kind="stable")
        ops, key = ops.kept(order), key[order]
    codes, begins = np.unique(key, return_index=True)
    names = [*rows.keys, None]
    return [
        (names[code], _ranked(ops.kept(slice(begin, end))))
        for code, begin, end in zip(codes.tolist(), begins, [*begins[1:], len(key)], strict=True)
    ]


def calls_at(table: pa.Table, fs: frozenset[str], source: Sequence[int]) -> list[Call]:
    """A few of the calls that `objects` found, by the indices of their invocations (which are rows)."""
    rows = Rows(table.select(_DECISIVE), [("", 0, len(table))])
    found = rows.calls_in_order(fs, np.zeros(1, np.bool_))
    chosen = np.isin(found.invoke, source)
    return [
        Call(_op(table, invoke), None if done < 0 else _op(table, done))
        for invoke, done in zip(found.invoke[chosen].tolist(), found.done[chosen].tolist(), strict=True)
    ]


def _op(table: pa.Table, row: int) -> Op:
    """One row as an op."""
    cell = {name: table[name][row].as_py() for name in _DECISIVE}
    value = None if cell["value"] is None else json.loads(cell["value"])
    return Op(cell["index"], cell["time"], cell["process"], cell["type"], cell["f"], cell["key"], value)


def _ranked(ops: OpColumns) -> OpColumns:
    """The columns with places among the object's own events alone: the monitors' arrays have a cell for each place."""
    returned = ops.ret < NEVER
    events = np.concatenate((ops.call, ops.ret[returned]))
    low, high = int(events.min()), int(events.max())
    if high - low < 4 * len(events):
        there = np.zeros(high - low + 1, np.int64)
        there[events - low] = 1
        place = np.cumsum(there) - 1
        call, ret = place[ops.call - low], np.where(returned, place[np.where(returned, ops.ret - low, 0)], NEVER)
    else:
        stamps = np.sort(events)
        call, ret = np.searchsorted(stamps, ops.call), np.where(returned, np.searchsorted(stamps, ops.ret), NEVER)
    return ops._replace(call=call, ret=ret)


def _short(numbers: Longs) -> npt.NDArray[np.integer[Any]]:
    """The same, in 16 bits if they fit: numpy then sorts by radix."""
    fits = len(numbers) and numbers.min() >= 0 and numbers.max() < 1 << 16
    return numbers.astype(np.uint16) if fits else numbers


def coded(column: pa.ChunkedArray) -> tuple[Longs, pa.Array]:
    """A text column as numbers into an array of different texts; -1 for null."""
    plain = column.combine_chunks().dictionary_encode()
    codes = plain.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, plain.dictionary
