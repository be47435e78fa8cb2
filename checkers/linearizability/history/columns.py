"""What compiled code works on: arrays of integers, and a model as a *closed* table of transitions.

`step(state, kind)` of a model is called from Python only while a table is closed: breadth first from the initial state,
every kind in every state. A table that has too many states is never closed, and never reaches compiled code: a cell
that nobody filled would read as "cannot happen", and a valid history as invalid.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.history.encode import ILLEGAL, Problem, Table
from checkers.linearizability.models.registry import CasRegister, Register

Ints = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

PURE: Final = 1
"""The kind leaves every state as it is, where it can happen at all."""

BLIND: Final = 2
"""The kind can happen in every state and always leaves the same one."""

LATE: Final = 2**31 - 1
"""The return position of an op that never returned."""

MAX_STATES: Final = 4096
MAX_CELLS: Final = 2_000_000
"""Cells cost about a microsecond each, in Python."""

_REGISTER_CELLS: Final = 4_000_000
"""The cells of a register cost a few bytes, and next to no time."""


class Dense(NamedTuple):
    """A closed table; all arrays C-contiguous and writable, so that one compiled variant serves every table.

    step      [states, kinds], the state after, or ILLEGAL.
    flags     [kinds], PURE and BLIND.
    target    [kinds], the state that a blind kind leaves, else ILLEGAL.
    legal     states in which kind k can happen are `legal[first[k]:first[k + 1]]`.
    first     [kinds + 1].
    """

    step: Ints
    flags: Bytes
    target: Ints
    legal: Ints
    first: Ints


class Columns(NamedTuple):
    """One history: `events` as in `Problem` (2 * op a call, 2 * op + 1 its return), `kind` and `ret` per op.

    Events of ops that constrain nothing are not there. `ret` is a position in `events`, LATE when there is none.
    """

    events: Ints
    kind: Ints
    ret: Ints


def worth(events: int) -> int:
    """Cells that a history of so many events may cost: a model with endless states must not delay a short one."""
    return min(2_000 + 100 * events, MAX_CELLS)


def close(table: Table, max_states: int = MAX_STATES, max_cells: int = MAX_CELLS) -> Dense | None:
    """The whole table, or None when it is larger than that. The answer is kept until the table has new kinds."""
    kinds = len(table.kinds)
    if table.dense is not None and table.dense.flags.shape[0] == max(kinds, 1):
        return table.dense
    if table.larger_than == (kinds, max_states) and len(table.states) * kinds > max_cells:
        return None
    if type(table.model) in (Register, CasRegister):
        return _close_register(table, max_states)
    step = table.step
    rows: list[list[int]] = []
    while len(rows) < len(table.states):
        if len(table.states) > max_states or len(table.states) * kinds > max_cells:
            table.larger_than = (kinds, max_states)
            table.settle()
            return None
        state = len(rows)
        rows.append([step(state, kind) for kind in range(kinds)])
    table.settle()
    cells = np.array(rows, dtype=np.int32).reshape(len(rows), kinds)
    if kinds == 0:
        cells = np.full((1, 1), ILLEGAL, dtype=np.int32)
    table.dense = _derive(np.ascontiguousarray(cells))
    return table.dense


def _close_register(table: Table, max_states: int) -> Dense | None:
    """A register's table without a call of `step` per cell: a state is a value, and each kind knows its own."""
    kinds = table.kinds
    written = {kind.value[1] if kind.f == "cas" else kind.value for kind in kinds if kind.f in ("write", "cas")}
    if 1 + len(written) > max_states or (1 + len(written)) * len(kinds) > _REGISTER_CELLS:
        table.larger_than = (len(kinds), max_states)
        return None
    for kind in kinds:
        if kind.f in ("write", "cas"):
            table.intern(kind.value[1] if kind.f == "cas" else kind.value)
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
    table.dense = _derive(cells)
    return table.dense


def _derive(cells: Ints) -> Dense:
    """Everything else follows from the cells, with no knowledge of the model."""
    states, kinds = cells.shape
    if int(cells.min()) < ILLEGAL or int(cells.max()) >= states:
        raise AssertionError("a table that is not closed must not be used")
    possible = cells >= 0
    same = cells == np.arange(states, dtype=np.int32)[:, None]
    pure = np.all(same | ~possible, axis=0)
    blind = np.all(possible & (cells == cells[0]), axis=0) & ~pure
    flags = (pure * PURE + blind * BLIND).astype(np.uint8)
    target = np.where(blind, cells[0], ILLEGAL).astype(np.int32)
    first = np.zeros(kinds + 1, dtype=np.int32)
    np.cumsum(possible.sum(axis=0), out=first[1:])
    legal = np.nonzero(possible.T)[1].astype(np.int32)
    return Dense(cells, flags, target, legal, first)


def columns(problem: Problem, dense: Dense) -> Columns:
    """A problem's ops as arrays. Unknown ops that can change nothing constrain nothing, and are left out."""
    kind = np.array(problem.kind, dtype=np.int32)
    events = np.array(problem.events, dtype=np.int32)
    ret = np.array(problem.ret, dtype=np.int32)
    ret[ret < 0] = LATE
    op = events >> 1
    useless = (ret[op] == LATE) & ((dense.flags[kind[op]] & PURE) != 0) if len(events) else np.zeros(0, dtype=bool)
    if useless.any():
        events = np.ascontiguousarray(events[~useless])
        returns = np.nonzero(events & 1)[0]
        ret[events[returns] >> 1] = returns
    return Columns(events, kind, ret)
