# SPDX-License-Identifier: Apache-2.0
"""WGL, compiled: as in `search.wgl`, with a cache of hashes instead of sets.

(ops linearized, state) is stored as one 64-bit sum of random numbers per op and state (Zobrist 1970), so a step costs
the same in a history of any length. Two different pairs may have the same sum; then the search may miss an order, but
never invents one, and WGL only answers `valid`.

Source: Wing and Gong (1993); Lowe (2017); Horn and Kroening (2015) for the linked list.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.linearizability.compiled.jit import compiled
from checkers.linearizability.compiled.kernel import INVALID, SPENT, VALID
from checkers.linearizability.history.arrays import NO_BITS, Dense, Ints, Words
from checkers.linearizability.history.columns import Columns
from checkers.linearizability.history.events import NEVER, PURE

BYTES_A_STEP: Final = 32 + 16
"""Bytes of a stored pair: a new table is a quarter full, and the table before still exists."""

_MULTIPLY: Final = np.uint64(0xFF51AFD7ED558CCD)
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(33)


@compiled
def _random(number: int) -> np.uint64:
    """The same 64 bits for the same number (the mixer of MurmurHash3)."""
    x = np.uint64(number + 1) * _STEP
    x = (x ^ (x >> _SHIFT)) * _MULTIPLY
    x = (x ^ (x >> _SHIFT)) * _STEP
    return x ^ (x >> _SHIFT)


@compiled
def _remember(cache: Words, key: np.uint64) -> bool:
    """Adds a key. True if it is new."""
    size = np.uint64(cache.shape[0] - 1)
    place = key & size
    while cache[place] != NO_BITS:
        if cache[place] == key:
            return False
        place = (place + np.uint64(1)) & size
    cache[place] = key
    return True


@compiled
def search(history: Columns, dense: Dense, budget: int, order: Ints) -> tuple[int, int, int]:
    """(VALID, INVALID or SPENT; steps; ops in `order`, or the event that no found order passes). INVALID only means:
    this search found nothing.

    Cells of the list: the events of completed ops as they come; an unknown op stands behind the calls of completed ones
    that come before the next return, so that it is tried last. (Behind the last return nothing is needed.)
    """
    ops, events = history.kind.shape[0], history.events.shape[0]
    event_of = np.zeros(events + 1, np.int32)
    call_cell, return_cell = np.full(ops, -1, np.int32), np.full(ops, -1, np.int32)
    late = np.zeros(ops, np.int32)
    cell = waiting = missing = 0
    for event in history.events:
        op = event >> 1
        if event & 1:
            for i in range(waiting):
                event_of[cell] = 2 * late[i]
                call_cell[late[i]] = cell
                cell += 1
            waiting = 0
            return_cell[op] = cell
            missing += 1
        elif history.ret[op] == NEVER:
            late[waiting] = op
            waiting += 1
            continue
        else:
            call_cell[op] = cell
        event_of[cell] = event
        cell += 1
    end = cell
    following, preceding = np.arange(1, end + 2).astype(np.int32), np.arange(-1, end).astype(np.int32)
    following[end], preceding[0] = 0, end
    size = 64
    limit = min(budget, 1 << 22)
    while size < 2 * min(limit, 4 * events + 64):
        size *= 2
    cache = np.zeros(size, np.uint64)
    remembered = 0
    states = np.zeros(ops + 1, np.int32)
    depth = steps = reached = 0
    state, sum_ = 0, NO_BITS
    this = int(following[end])
    while missing:
        steps += 1
        if steps > budget:
            return SPENT, steps, reached
        if this != end and not event_of[this] & 1:
            op = int(event_of[this] >> 1)
            after = int(dense.step[state, history.kind[op]])
            # An unknown op that changes nothing is never needed.
            if after >= 0 and not (history.ret[op] == NEVER and after == state):
                with_op = sum_ ^ _random(op)
                if _remember(cache, with_op ^ _random(ops + after)):
                    remembered += 1
                    if 2 * remembered > cache.shape[0]:
                        if remembered > limit:
                            return SPENT, steps, reached
                        cache = _larger(cache)
                    order[depth], states[depth] = op, state
                    depth += 1
                    state, sum_ = after, with_op
                    following[preceding[this]] = following[this]
                    preceding[following[this]] = preceding[this]
                    back = int(return_cell[op])
                    if back >= 0:
                        missing -= 1
                        following[preceding[back]] = following[back]
                        preceding[following[back]] = preceding[back]
                    this = int(following[end])
                    continue
            this = int(following[this])
            continue
        # A return that is not placed, or the end: undo the last step. (The cell of a return is its position.)
        if this != end:
            reached = max(reached, this)
        if depth == 0:
            return INVALID, steps, reached
        depth -= 1
        op, state = int(order[depth]), int(states[depth])
        sum_ ^= _random(op)
        back = int(return_cell[op])
        if back >= 0:
            missing += 1
            following[preceding[back]] = back
            preceding[following[back]] = back
        this = int(call_cell[op])
        following[preceding[this]] = this
        preceding[following[this]] = this
        # A pure op was right here: every failure behind it occurs without it, too.
        this = end if dense.flags[history.kind[op]] & PURE else int(following[this])
    return VALID, steps, depth


@compiled
def _larger(cache: Words) -> Words:
    grown = np.zeros(2 * cache.shape[0], np.uint64)
    for key in cache:
        if key != NO_BITS:
            _remember(grown, key)
    return grown
