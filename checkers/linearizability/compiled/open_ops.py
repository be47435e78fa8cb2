# ruff: noqa: SIM110 - what is compiled is loops
"""What the compiled search does to one row, or to the books it keeps of the open ops. `kernel` says what for.

An open op that is going to return has a *slot*: a bit that is used again later. An unknown one is counted, in a field
of its kind (`lay_out`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.linearizability.compiled.jit import compiled, inlined
from checkers.linearizability.history.columns import Columns
from checkers.linearizability.history.events import NEVER, Bytes, Ints, Words
from checkers.linearizability.history.table import BLIND, PURE, Dense

_ONE: Final = np.uint64(1)
_NONE: Final = np.uint64(0)
_SHIFT: Final = np.uint64(58)
_DE_BRUIJN: Final = np.uint64(0x03F79D71B4CB0A89)
_PLACES: Final = np.zeros(64, np.int64)
for _i in range(64):
    _PLACES[((1 << _i) * 0x03F79D71B4CB0A89 & 0xFFFFFFFFFFFFFFFF) >> 58] = _i


@inlined
def lowest(word: np.uint64) -> int:
    """The number of the lowest bit of a word that has one (de Bruijn's sequence)."""
    return _PLACES[(word & (~word + _ONE)) * _DE_BRUIJN >> _SHIFT]  # type: ignore[no-any-return]


@compiled
def width_of(history: Columns) -> int:
    """The most completed ops that are open at a time."""
    most = now = 0
    for event in history.events:
        if event & 1:
            now -= 1
        elif history.ret[event >> 1] != NEVER:
            now += 1
            most = max(most, now)
    return most


@compiled
def lay_out(history: Columns, kinds: int, word: Ints, shift: Ints, field: Ints, group: Ints, guards: Words) -> int:
    """A field per group of kinds of unknown ops, with a guard bit on top, none across two words. How many words.

    `group[kind]` is the kind whose field it shares, or -1: not counted. The others are filled.
    """
    field[:] = 0
    for event in history.events:
        if not event & 1 and history.ret[event >> 1] == NEVER and group[history.kind[event >> 1]] >= 0:
            field[group[history.kind[event >> 1]]] += 1
    words = used = 0
    for kind in range(kinds):
        if field[kind] == 0:
            continue
        bits = 1
        while field[kind] >> bits:
            bits += 1
        if words == 0 or used + bits + 1 > 64:
            words, used = words + 1, 0
            guards[words - 1] = _NONE
        word[kind], shift[kind], field[kind] = words - 1, used, (1 << bits) - 1
        guards[words - 1] |= _ONE << np.uint64(used + bits)
        used += bits + 1
    return words


@inlined
def absorb(row: Words, at: int, state: int, masks: int, readable: Words) -> None:
    """Takes every open pure op that is legal in the state, and what is done cannot hide any more."""
    for w in range(at + 1, at + 1 + masks):
        row[w] |= readable[state * masks + w - at - 1]
        row[w + masks] &= ~row[w]


@inlined
def open_gap(row: Words, at: int, masks: int, classes: Words) -> None:
    """A blind step was taken: everything blind or pure that is open and not done may go right in front of it."""
    for w in range(masks):
        row[at + 1 + masks + w] = (classes[w] | classes[masks + w]) & ~row[at + 1 + w]


@inlined
def hides_more(row: Words, masks: int, classes: Words) -> bool:
    """Is there an open blind op, not done, that could go in front of a blind step taken now, and nowhere yet?"""
    for w in range(masks):
        if classes[masks + w] & ~row[1 + w] & ~row[1 + masks + w]:
            return True
    return False


@inlined
def serve(row: Words, at: int, target: int, masks: int, readable: Words) -> None:
    """A hidden op that leaves `target` serves the reads in the same gap."""
    for w in range(masks):
        served = readable[target * masks + w] & row[at + 1 + masks + w]
        row[at + 1 + w] |= served
        row[at + 1 + masks + w] &= ~served


@inlined
def waits(before: Ints, slot: int, row: Words) -> bool:
    """Does an open op of the same kind return earlier, and is not placed yet?"""
    other = before[slot]
    while other >= 0:
        if not row[1 + (other >> 6)] >> np.uint64(other & 63) & _ONE:
            return True
        other = before[other]
    return False


@inlined
def waits_in_gap(before: Ints, slot: int, row: Words, masks: int) -> bool:
    """Does an op of the same kind that can go into the same gap return earlier? One called later than the gap cannot
    take this one's place there.
    """
    other = before[slot]
    while other >= 0:
        if row[1 + masks + (other >> 6)] >> np.uint64(other & 63) & _ONE:
            return True
        other = before[other]
    return False


@inlined
def leads_on(state: int, base: Words, masks: int, movable: Words) -> bool:
    """Is there an open op that changes `state` and is not placed in `base`?"""
    for w in range(masks):
        if movable[state * masks + w] & ~base[1 + w]:
            return True
    return False


@inlined
def token_leads_on(state: int, step: Ints, flags: Bytes, token: Ints, tokens: int) -> bool:
    """Is there an unknown op that changes `state`, but not blindly?"""
    for i in range(tokens):
        if not flags[token[i]] & BLIND and step[state, token[i]] >= 0:
            return True
    return False


@inlined
def copy(source: Words, at: int, row: Words, place: int, width: int) -> None:
    for w in range(width):
        row[place + w] = source[at + w]


@inlined
def close_slot(
    slot: int,
    kind: int,
    masks: int,
    dense: Dense,
    classes: Words,
    readable: Words,
    movable: Words,
    before: Ints,
    last: Ints,
) -> None:
    """The op in `slot` has returned."""
    w, bit = slot >> 6, _ONE << np.uint64(slot & 63)
    if not dense.flags[kind] & BLIND:
        where = readable if dense.flags[kind] & PURE else movable
        for i in range(dense.first[kind], dense.first[kind + 1]):
            where[dense.legal[i] * masks + w] &= ~bit
    if not dense.flags[kind] & PURE:
        # It was the first to return, so that it ends its chain.
        this = last[kind]
        if this == slot:
            last[kind] = -1
        else:
            while before[this] != slot:
                this = before[this]
            before[this] = -1
    for group in range(3):
        classes[group * masks + w] &= ~bit


@inlined
def open_slot(
    op: int,
    history: Columns,
    masks: int,
    dense: Dense,
    classes: Words,
    readable: Words,
    movable: Words,
    before: Ints,
    last: Ints,
    slot_op: Ints,
) -> int:
    """A slot for a completed op that is called now.

    `last[kind]` is the open mutator of that kind that returns last, `before[slot]` the one that returns before that in
    `slot`; -1: there is none.
    """
    kind = history.kind[op]
    slot = 0
    for w in range(masks):
        free = ~(classes[w] | classes[masks + w] | classes[2 * masks + w])
        if free:
            slot = 64 * w + lowest(free)
            break
    word, bit = slot >> 6, _ONE << np.uint64(slot & 63)
    slot_op[slot] = op
    if not dense.flags[kind] & BLIND:
        where = readable if dense.flags[kind] & PURE else movable
        for i in range(dense.first[kind], dense.first[kind + 1]):
            where[dense.legal[i] * masks + word] |= bit
    if dense.flags[kind] & PURE:
        classes[word] |= bit
        return slot
    group = 1 if dense.flags[kind] & BLIND else 2
    classes[group * masks + word] |= bit
    this, later = last[kind], -1
    while this >= 0 and history.ret[slot_op[this]] > history.ret[op]:
        this, later = before[this], this
    before[slot] = this
    if later < 0:
        last[kind] = slot
    else:
        before[later] = slot
    return slot
