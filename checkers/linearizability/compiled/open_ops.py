# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: SIM110 - what is compiled is loops
"""The steps of the compiled search on one row, or on its record of the open ops. `kernel` explains their purpose.

An open op that returns later has a *slot*: a bit that is reused afterwards. An unknown one is counted, in a field of
its kind (`Layout`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.linearizability.compiled.jit import compiled, inlined
from checkers.linearizability.history.arrays import ONE_BIT, Dense, Ints, Words
from checkers.linearizability.history.columns import Columns
from checkers.linearizability.history.events import BLIND, NEVER, PURE

_SHIFT: Final = np.uint64(58)
_DE_BRUIJN: Final = np.uint64(0x03F79D71B4CB0A89)
_PLACES: Final = np.zeros(64, np.int64)
for _i in range(64):
    _PLACES[((1 << _i) * 0x03F79D71B4CB0A89 & 0xFFFFFFFFFFFFFFFF) >> 58] = _i


@inlined
def lowest(word: np.uint64) -> int:
    """The number of the lowest bit of a word that has one (de Bruijn's sequence)."""
    return _PLACES[(word & (~word + ONE_BIT)) * _DE_BRUIJN >> _SHIFT]  # type: ignore[no-any-return]


class Layout(NamedTuple):
    """The layout of a row (`configurations`).

    masks, width        words of one bit per open op; words of a row in all.
    word, shift, field  by the kind of an unknown op: the word of its counter (0 is the first one with counters), its
                        lowest bit, and a mask of its width.
    group               the kind whose counter it shares, or -1: it is not counted.
    guards              the guard bits of each word with counters.
    """

    masks: int
    width: int
    word: Ints
    shift: Ints
    field: Ints
    group: Ints
    guards: Words


@compiled
def lay_out(history: Columns, group: Ints) -> Layout:
    """Lays out a counter per group of kinds of unknown ops, with a guard bit on top, none across two words.

    The bits for completed ops are as many as are open at the same time, at most.
    """
    kinds = group.shape[0]
    word, shift, field = np.zeros(kinds, np.int32), np.zeros(kinds, np.int32), np.zeros(kinds, np.int32)
    counters = now = most = 0
    for event in history.events:
        if event & 1:
            now -= 1
        elif history.ret[event >> 1] != NEVER:
            now += 1
            most = max(most, now)
        else:
            own = group[history.kind[event >> 1]]
            if own >= 0:
                counters += not field[own]
                field[own] += 1
    guards = np.zeros(counters, np.uint64)
    words = used = 0
    for kind in range(kinds):
        if field[kind] == 0:
            continue
        bits = 1
        while field[kind] >> bits:
            bits += 1
        if words == 0 or used + bits + 1 > 64:
            words, used = words + 1, 0
        word[kind], shift[kind], field[kind] = words - 1, used, (1 << bits) - 1
        guards[words - 1] |= ONE_BIT << np.uint64(used + bits)
        used += bits + 1
    masks = max(1, (most + 63) >> 6)
    return Layout(masks, 1 + 2 * masks + words, word, shift, field, group, guards[:words])


class OpenOps(NamedTuple):
    """The completed ops that are open now. The bits of an op are those of its slot.

    classes             open ops that are pure, blind, others (`masks` words each); then the guard bits of the counters.
    readable, movable   by state: the open pure ops that can happen there; the open others.
    op, kind            by slot. slot: by op.
    last                by kind: the slot of the mutator that returns last, or -1: none is open.
    before              by slot: that of the mutator of the same kind that returns before it, or -1.
    """

    classes: Words
    readable: Words
    movable: Words
    op: Ints
    kind: Ints
    slot: Ints
    last: Ints
    before: Ints


@compiled
def none_open(history: Columns, dense: Dense, layout: Layout) -> OpenOps:
    states, kinds = dense.step.shape
    masks = layout.masks
    classes = np.zeros(3 * masks + layout.guards.shape[0], np.uint64)
    classes[3 * masks :] = layout.guards
    return OpenOps(
        classes, np.zeros(states * masks, np.uint64), np.zeros(states * masks, np.uint64),
        np.zeros(64 * masks, np.int32), np.zeros(64 * masks, np.int32), np.zeros(history.kind.shape[0], np.int32),
        np.full(kinds, -1, np.int32), np.full(64 * masks, -1, np.int32),
    )  # fmt: skip


@inlined
def absorb(row: Words, at: int, state: int, masks: int, readable: Words) -> None:
    """Takes every open pure op that is legal in the state. A done op cannot hide any more."""
    for w in range(at + 1, at + 1 + masks):
        row[w] |= readable[state * masks + w - at - 1]
        row[w + masks] &= ~row[w]


@inlined
def open_gap(row: Words, at: int, masks: int, classes: Words) -> None:
    """Opens the gap of a blind step: every blind or pure op that is open and not done may go right in front of it."""
    for w in range(masks):
        row[at + 1 + masks + w] = (classes[w] | classes[masks + w]) & ~row[at + 1 + w]


@inlined
def hides_more(row: Words, masks: int, classes: Words) -> bool:
    """True if an open blind op, not done and not hidable yet, could go in front of a blind step taken now."""
    for w in range(masks):
        if classes[masks + w] & ~row[1 + w] & ~row[1 + masks + w]:
            return True
    return False


@inlined
def serve(row: Words, at: int, target: int, masks: int, readable: Words) -> None:
    """Serves the reads in the gap of a hidden op that leaves `target`."""
    for w in range(masks):
        served = readable[target * masks + w] & row[at + 1 + masks + w]
        row[at + 1 + w] |= served
        row[at + 1 + masks + w] &= ~served


@inlined
def waits(before: Ints, slot: int, row: Words, words: int, bit: np.uint64) -> bool:
    """True if an open op of the same kind returns earlier, and has this bit in the masks of `row` from `words` on."""
    other = before[slot]
    while other >= 0:
        if row[words + (other >> 6)] >> np.uint64(other & 63) & ONE_BIT == bit:
            return True
        other = before[other]
    return False


@inlined
def copy(source: Words, at: int, row: Words, place: int, width: int) -> None:
    for w in range(width):
        row[place + w] = source[at + w]


@inlined
def close_slot(slot: int, masks: int, dense: Dense, ops: OpenOps) -> None:
    """Frees the slot of an op that has returned."""
    kind = ops.kind[slot]
    w, bit = slot >> 6, ONE_BIT << np.uint64(slot & 63)
    if not dense.flags[kind] & BLIND:
        where = ops.readable if dense.flags[kind] & PURE else ops.movable
        for i in range(dense.first[kind], dense.first[kind + 1]):
            where[dense.legal[i] * masks + w] &= ~bit
    if not dense.flags[kind] & PURE:
        # It was the first to return, so that it ends its chain.
        this = ops.last[kind]
        if this == slot:
            ops.last[kind] = -1
        else:
            while ops.before[this] != slot:
                this = ops.before[this]
            ops.before[this] = -1
    for group in range(3):
        ops.classes[group * masks + w] &= ~bit


@inlined
def open_slot(op: int, masks: int, history: Columns, dense: Dense, ops: OpenOps) -> int:
    """A slot for a completed op that is called now."""
    kind = history.kind[op]
    slot = 0
    for w in range(masks):
        free = ~(ops.classes[w] | ops.classes[masks + w] | ops.classes[2 * masks + w])
        if free:
            slot = 64 * w + lowest(free)
            break
    word, bit = slot >> 6, ONE_BIT << np.uint64(slot & 63)
    ops.op[slot], ops.kind[slot], ops.slot[op] = op, kind, slot
    if not dense.flags[kind] & BLIND:
        where = ops.readable if dense.flags[kind] & PURE else ops.movable
        for i in range(dense.first[kind], dense.first[kind + 1]):
            where[dense.legal[i] * masks + word] |= bit
    if dense.flags[kind] & PURE:
        ops.classes[word] |= bit
        return slot
    group = 1 if dense.flags[kind] & BLIND else 2
    ops.classes[group * masks + word] |= bit
    this, later = ops.last[kind], -1
    while this >= 0 and history.ret[ops.op[this]] > history.ret[op]:
        this, later = ops.before[this], this
    ops.before[slot] = this
    if later < 0:
        ops.last[kind] = slot
    else:
        ops.before[later] = slot
    return slot
