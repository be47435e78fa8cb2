"""Memory of the compiled searches: allocated once, grown by doubling up to a budget, and used again."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from checkers.linearizability.columns import LATE, Columns, Dense, Ints, Words
from checkers.linearizability.kernel import TOO_BIG, TOO_LONG, walk
from checkers.linearizability.rows import BYTES_A_ROW, CAPACITY, CHAIN, Longs, Rows, new_rows
from checkers.linearizability.slots import lay_out, width_of

_SMALL: Final = 1 << 9
_FEW_NODES: Final = 1 << 12
_BATCH: Final = 1 << 22
"""Bytes of rows that a batch works with; a history that needs more is checked on its own."""
_TOKEN_WORDS: Final = 64
"""Fields of unknown ops fill at most that many words: enough for a thousand kinds of them."""


class Workspace:
    """What one thread needs. `rows` of the three sets and the nodes of the tree are as large as they ever had to be."""

    def __init__(self) -> None:
        self.capacity = self.words = self.states = 0
        self.front = self.todo = self.passed = new_rows(1, 1, 1)
        self.tree: Ints = np.zeros(3 * _FEW_NODES, np.int32)
        self.told: Longs = np.zeros(4, np.int64)
        self.guards: Words = np.zeros(_TOKEN_WORDS, np.uint64)
        self.layout = _layout(1)
        self.width = 1

    @staticmethod
    def can_count(history: Columns) -> bool:
        """Do the counters of this history's unknown ops certainly fit into a row?"""
        late = history.kind[history.events[~history.events & 1 == 1] >> 1]
        late = np.bincount(late[history.ret[history.events[~history.events & 1 == 1] >> 1] == LATE])
        bits = np.ceil(np.log2(late[late > 0] + 1)) + 1
        # A field never lies across two words, so that up to half of a word stays empty.
        return float(bits.sum()) <= 32 * _TOKEN_WORDS

    @property
    def bytes(self) -> int:
        """What the sets and the tree take right now."""
        return self.need(self.capacity, self.words) + self.tree.nbytes

    @staticmethod
    def need(capacity: int, words: int) -> int:
        """Bytes of three sets of that many rows."""
        return 3 * capacity * (8 * words + BYTES_A_ROW)

    def node(self, row: int) -> int:
        """The tree node of a configuration that the last walk left."""
        return int(self.front.links[CHAIN + int(self.front.links[CAPACITY]) + row])

    def reserve(self, capacity: int, words: int, states: int) -> None:
        """At least that much. What there was is freed first, so that both are never held at a time."""
        if capacity > self.capacity or words > self.words or states > self.states:
            self.capacity, self.words = max(capacity, self.capacity), max(words, self.words)
            self.states = max(states, self.states, 64)
            self.front = self.todo = self.passed = new_rows(1, 1, 1)
            self.front, self.todo, self.passed = (new_rows(self.capacity, self.words, self.states) for _ in range(3))

    def prepare(self, dense: Dense, memory: int) -> None:
        """Room for a batch of histories of this table, unless that is more than `memory` bytes."""
        states, kinds = dense.step.shape
        self.release(memory)
        if kinds > self.layout[0].shape[0]:
            self.layout = _layout(2 * kinds)
        words = 8
        capacity = _SMALL
        while self.need(2 * capacity, words) <= min(memory, _BATCH):
            capacity *= 2
        self.reserve(capacity, words, states)

    def release(self, memory: int) -> None:
        """The sets and the tree back to the beginning, if they are larger than `memory` bytes."""
        if self.bytes > memory:
            self.capacity = self.words = self.states = 0
            self.front = self.todo = self.passed = new_rows(1, 1, 1)
            self.tree = np.zeros(3 * _FEW_NODES, np.int32)

    def walk(self, history: Columns, dense: Dense, mode: int, beam: int, budget: int, memory: int) -> int:
        """`kernel.walk` with as much room as it takes, up to `memory` bytes (then TOO_BIG or TOO_LONG)."""
        states, kinds = dense.step.shape
        masks = max(1, -(-width_of(history) // 64))
        self.release(memory)
        if kinds > self.layout[0].shape[0]:
            self.layout = _layout(2 * kinds)
        token_words = lay_out(history, kinds, *self.layout, self.guards)
        self.width = words = 1 + 2 * masks + token_words
        capacity = _SMALL
        while True:
            self.reserve(capacity, words, states)
            code = walk(
                history, dense, masks, token_words, self.layout, self.guards, mode, beam, budget,
                self.front, self.todo, self.passed, self.tree, self.told,
            )  # fmt: skip
            if code == TOO_BIG:
                capacity = 2 * self.capacity
                if self.need(capacity, self.words) + self.tree.nbytes > memory:
                    return code
            elif code == TOO_LONG:
                if self.bytes + self.tree.nbytes > memory:
                    return code
                nodes = 2 * self.tree.shape[0]
                self.tree = np.zeros(1, np.int32)
                self.tree = np.zeros(nodes, np.int32)
            else:
                return code


def _layout(kinds: int) -> tuple[Ints, Ints, Ints]:
    return np.zeros(kinds, np.int32), np.zeros(kinds, np.int32), np.zeros(kinds, np.int32)


class _Local(threading.local):
    def __init__(self) -> None:
        self.space = Workspace()


_LOCAL: Final = _Local()


def workspace() -> Workspace:
    """This thread's."""
    return _LOCAL.space


__all__ = ["Rows", "Workspace", "workspace"]
