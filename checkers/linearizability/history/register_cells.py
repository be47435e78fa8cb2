# SPDX-License-Identifier: Apache-2.0
"""A register's closed table, without a call of `step` per cell: a state is a value, and each kind knows its own."""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.linearizability.history.arrays import Ints
from checkers.linearizability.history.events import ILLEGAL
from checkers.linearizability.history.table import Table

_MOST: Final = 4_000_000
"""The largest number of cells: here each costs a few bytes and almost no time."""


def register_cells(table: Table, max_states: int) -> Ints | None:
    """The cells [states, kinds], or None if they are too many."""
    kinds = table.kinds
    writers = [kind for kind in kinds if kind.f in ("write", "cas")]
    written = dict.fromkeys(kind.value[1] if kind.f == "cas" else kind.value for kind in writers)
    if 1 + len(written) > max_states or (1 + len(written)) * len(kinds) > _MOST:
        return None
    for value in written:
        table.intern(value)
    cells = np.full((len(table.states), max(len(kinds), 1)), ILLEGAL, dtype=np.int32)
    for number, kind in enumerate(kinds):
        held = table.known(kind.value[0] if kind.f in ("cas", "cas-refused") else kind.value)
        if kind.f == "write":
            cells[:, number] = held
        elif kind.f == "cas-refused":
            cells[:, number] = np.arange(len(table.states))
            if held >= 0:
                cells[held, number] = ILLEGAL
        elif held >= 0:
            cells[held, number] = held if kind.f == "read" else table.known(kind.value[1])
    return cells
