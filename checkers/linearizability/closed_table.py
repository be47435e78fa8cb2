# SPDX-License-Identifier: Apache-2.0
"""A model as a closed table: every kind in every state that can be reached.

`step(state, kind)` of a model is called from Python only here: breadth first from the initial state. A table with too
many states is never closed, and never reaches compiled code: an unfilled cell would read as "cannot happen", and a
valid history as invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from checkers.linearizability.fast import fast
from checkers.linearizability.history.events import ILLEGAL
from checkers.linearizability.history.table import Table

if TYPE_CHECKING:
    from checkers.linearizability.history.arrays import Dense

MAX_STATES: Final = 4096
MAX_CELLS: Final = 2_000_000
"""Cells cost about a microsecond each, in Python."""


def worth(events: int) -> int:
    """The limit of cells for a history of so many events: a model with endless states must not delay a short one."""
    return min(2_000 + 100 * events, MAX_CELLS)


def enumerate_states(table: Table, max_states: int = MAX_STATES, max_cells: int = MAX_CELLS) -> Dense | None:
    """The whole table, or None if it is larger than `max_cells`. The answer is kept until the table has new kinds."""
    kinds = len(table.kinds)
    if table.dense is not None and table.dense.flags.shape[0] == max(kinds, 1):
        return table.dense
    if table.larger_than == (kinds, max_states) and len(table.states) * kinds > max_cells:
        return None
    cells_of = fast(table.model).cells
    cells = _stepped(table, max_states, max_cells) if cells_of is None else cells_of(table, max_states)
    table.settle()
    if cells is None:
        table.larger_than = (kinds, max_states)
        return None
    # Imported here: a history that is decided without the whole table needs no numpy.
    from checkers.linearizability.history.arrays import derived

    table.dense = derived(cells)
    return table.dense


def _stepped(table: Table, max_states: int, max_cells: int) -> Sequence[Sequence[int]] | None:
    """The cells [states, kinds], by a step for each; None if they are too many."""
    kinds, rows = range(len(table.kinds)), list[list[int]]()
    while len(rows) < len(table.states):
        if len(table.states) > max_states or len(table.states) * len(kinds) > max_cells:
            return None
        rows.append([table.step(len(rows), kind) for kind in kinds] or [ILLEGAL])
    return rows
