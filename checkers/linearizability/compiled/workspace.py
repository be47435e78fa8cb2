# SPDX-License-Identifier: Apache-2.0
"""Memory of the compiled searches: allocated once, grown by doubling up to a budget, and reused.

The limit of a walk depends on its history and the budget alone, never on the memory of an earlier walk: a history has
the same verdict, and costs the same work, whatever this process checked before.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from checkers.linearizability.compiled import configurations, kernel
from checkers.linearizability.compiled.configurations import BYTES_A_ROW, BYTES_A_STATE, CAPACITY, CHAIN, LIMIT
from checkers.linearizability.compiled.kernel import BYTES_A_NODE
from checkers.linearizability.compiled.open_ops import lay_out
from checkers.linearizability.history.arrays import Dense, Ints, Longs
from checkers.linearizability.history.columns import Columns
from checkers.linearizability.search.cegar import Groups

_SMALL: Final = 1 << 9
_FEW_NODES: Final = 1 << 12
BATCH_WORDS: Final = 8
"""Width of a row, in words, for which a batch reserves memory; of wider rows fewer fit."""
_BATCH: Final = 1 << 22
"""Bytes of rows in a batch; a history that needs more is checked on its own."""


class Workspace(threading.local):
    """The memory of one thread. The numbers of rows and nodes are the largest that were ever needed."""

    def __init__(self) -> None:
        self.told: Longs = np.zeros(kernel.TOLD, np.int64)
        self.width = 1
        self.states = 0
        self.front = self.todo = self.passed = configurations.new_rows(1, 1, 1)
        self.tree: Ints = np.zeros(3, np.int32)

    @property
    def bytes(self) -> int:
        """The current size of the sets and the tree, in bytes."""
        return 3 * (self.front.words.nbytes + self.front.links.nbytes) + self.tree.nbytes

    @property
    def capacity(self) -> int:
        """The current number of rows of a set, of any width."""
        return int(self.front.links[CAPACITY])

    def node(self, row: int) -> int:
        """The tree node of a configuration that the last walk left."""
        return int(self.front.links[CHAIN + self.capacity + row])

    def reserve(self, rows: int, width: int, states: int, nodes: int, memory: int) -> None:
        """Allocates memory for at least `rows` rows of `width` words in each set, and `nodes` nodes.

        Larger arrays stay, unless all together would exceed `memory` bytes. Old arrays are freed before new ones are
        made: the two never exist at the same time.
        """
        cells, had = self.front.words.shape[0], self.tree.shape[0] // 3
        needed = 1 << (rows - 1).bit_length(), rows * width, states, nodes
        kept = max(needed[0], self.capacity), max(needed[1], cells), max(states, self.states), max(nodes, had)
        capacity, cells, states, nodes = kept if _bytes(*kept) <= memory else needed
        anew = (capacity, cells, states) != (self.capacity, self.front.words.shape[0], self.states)
        if anew:
            self.front = self.todo = self.passed = configurations.new_rows(1, 1, 1)
        if nodes != had:
            self.tree = np.zeros(3, np.int32)
            self.tree = np.zeros(3 * nodes, np.int32)
        if anew:
            self.front, self.todo, self.passed = (configurations.new_rows(capacity, cells, states) for _ in range(3))
            self.states = states

    def prepare(self, states: int, memory: int) -> tuple[kernel.Space, int]:
        """Memory for a batch of histories with tables of at most `states` states, and the largest number of rows of a
        set, with `BATCH_WORDS` words each.
        """
        rows = max(_most(min(memory, _BATCH), BATCH_WORDS), _SMALL)
        self.reserve(rows, BATCH_WORDS, max(states, 64), 1, max(memory, _BATCH))
        return self._space(0), rows

    def walk(
        self, history: Columns, dense: Dense, mode: int, budget: int, memory: int, groups: Groups | None = None
    ) -> int:
        """Calls `kernel.walk` with growing memory, up to `memory` bytes (then TOO_BIG or TOO_LONG).

        With `RECORD`, half of the memory is for the tree. `groups`: see `cegar`; by default each kind counts.
        """
        states, kinds = dense.step.shape
        layout = lay_out(history, np.arange(kinds, dtype=np.int32) if groups is None else np.array(groups, np.int32))
        self.width = width = layout.width
        room = max(states, 64)
        memory -= 16 * layout.masks * states + 8 * (width + 2) * kernel.most_made(layout.masks, kinds)
        trees = memory // 2 if mode & kernel.RECORD else 0
        most_rows, most_nodes = _most(memory - trees - 3 * BYTES_A_STATE * room, width), trees // BYTES_A_NODE
        self.told[:] = 0
        rows, nodes = min(_SMALL, most_rows), min(_FEW_NODES, most_nodes)
        while most_rows > 0:
            self.reserve(rows, width, room, nodes, memory)
            rows = min(most_rows, self.capacity, self.front.words.shape[0] // width)
            nodes = min(most_nodes, self.tree.shape[0] // 3)
            for some in (self.front, self.todo, self.passed):
                some.links[LIMIT] = rows
            code = kernel.walk(history, dense, layout, mode, budget, self._space(nodes))
            if code == kernel.TOO_BIG and rows < most_rows:
                rows = min(2 * rows, most_rows)
            elif code == kernel.TOO_LONG and nodes < most_nodes:
                nodes = min(4 * nodes, most_nodes)
            else:
                return int(code)
        return kernel.TOO_BIG

    def _space(self, nodes: int) -> kernel.Space:
        return kernel.Space(self.front, self.todo, self.passed, self.tree[: 3 * nodes], self.told)


def _bytes(capacity: int, cells: int, states: int, nodes: int) -> int:
    """The size of three sets and the tree."""
    return 3 * (8 * cells + BYTES_A_ROW * capacity + BYTES_A_STATE * states) + BYTES_A_NODE * nodes


def _most(memory: int, width: int) -> int:
    """The number of rows of each of three sets, a power of two, that fit into `memory` bytes."""
    rows = memory // (3 * (8 * width + BYTES_A_ROW))
    return 1 << (rows.bit_length() - 1) if rows > 0 else 0


_WORKSPACE: Final = Workspace()


def workspace() -> Workspace:
    """This thread's workspace."""
    return _WORKSPACE
