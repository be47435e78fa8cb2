"""What compiled code works on: arrays of integers, and a model as a *closed* table of transitions (`closed_table`)."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.linearizability.history.encode import ILLEGAL, Problem
from checkers.linearizability.history.events import NEVER, Bytes, Ints, Longs

PURE: Final = 1
"""The kind leaves every state as it is, where it can happen at all."""

BLIND: Final = 2
"""The kind can happen in every state and always leaves the same one."""


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

    Events of ops that constrain nothing are not there. `ret` is a position in `events`, or NEVER.
    """

    events: Ints
    kind: Ints
    ret: Longs


def derived(cells: Ints) -> Dense:
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
    ret = np.array(problem.ret, dtype=np.int64)
    op = events >> 1
    useless = (ret[op] == NEVER) & ((dense.flags[kind[op]] & PURE) != 0) if len(events) else np.zeros(0, dtype=bool)
    if useless.any():
        events = np.ascontiguousarray(events[~useless])
        returns = np.nonzero(events & 1)[0]
        ret[events[returns] >> 1] = returns
    return Columns(events, kind, ret)
