# SPDX-License-Identifier: Apache-2.0
"""Many histories of one model, one behind the other in arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers.linearizability.history.arrays import Ints, Longs
from checkers.linearizability.history.encode import Problem, calls_of, encode
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.history.table import Table
from checkers.linearizability.models.specification import Model
from results.history import Call, History


@dataclass(frozen=True, slots=True)
class Packed:
    """Many histories of one model, one behind the other.

    table        the meaning of the kinds. It may have kinds that no history has.
    kind         kind of every op.
    call, ret    the times of its begin and end, on any clock of its history; `ret` is NEVER if the outcome is unknown.
                 At equal times a call comes before a return: calls that touch are concurrent.
    first        the ops of history h are `first[h]` to `first[h + 1]`.
    source       index of each op's invocation, for reports.
    """

    table: Table
    kind: Ints
    call: Longs
    ret: Longs
    first: Longs
    source: Longs

    def __len__(self) -> int:
        return len(self.first) - 1

    def problem(self, history: int) -> Problem:
        """One history, for a search. Unknown ops that change nothing are left out, as in `encode`."""
        begin, end = int(self.first[history]), int(self.first[history + 1])
        kind, call, ret = (column[begin:end].tolist() for column in (self.kind, self.call, self.ret))
        pure = self.table.pure
        stamped = [(call[op], 0, 2 * op) for op in range(end - begin) if ret[op] != NEVER or not pure[kind[op]]]
        stamped += [(ret[op], 1, 2 * op + 1) for op in range(end - begin) if ret[op] != NEVER]
        events = [event for _, _, event in sorted(stamped)]
        return Problem(self.table, kind, self.source[begin:end].tolist(), events)


def pack(histories: Iterable[Sequence[Call] | History], model: Model[Any]) -> Packed:
    """Calls of one object each, as arrays with a shared table. Raises ValueError as `encode` does, with the history."""
    table = Table(model)
    columns: tuple[list[int], ...] = ([], [], [], [])
    first = [0]
    for number, history in enumerate(histories):
        try:
            one = encode(calls_of(history), model, table)
        except ValueError as problem:
            raise ValueError(f"history {number}: {problem}") from None
        for column, more in zip(columns, (one.kind, one.call, one.ret, one.source), strict=True):
            column.extend(more)
        first.append(first[-1] + len(one.kind))
    table.seal_kinds()
    kind, call, ret, source = (np.array(column, np.int64) for column in columns)
    return Packed(table, kind.astype(np.int32), call, ret, np.array(first, np.int64), source)
