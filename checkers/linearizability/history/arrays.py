# SPDX-License-Identifier: Apache-2.0
"""The arrays of monitors and of compiled code, and a model as a closed table of them.

A plain search of a small history needs none of this: numpy takes longer to load than most such histories to decide. So
the modules of that way name these types for a type checker alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.history.events import BLIND, ILLEGAL, PURE

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

NO_BITS: Final = np.uint64(0)
ONE_BIT: Final = np.uint64(1)
LOW_HALF: Final = np.uint64(0xFFFFFFFF)
"""Words for compiled code, which must not mix them with signed numbers."""

NO_ROWS: Final = np.zeros(0, np.int64)
"""No rows at all."""


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


def derived(cells: Ints | Sequence[Sequence[int]]) -> Dense:
    """The closed table of some cells [states, kinds]: everything else follows from them, without the model."""
    cells = np.asarray(cells, np.int32)
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
