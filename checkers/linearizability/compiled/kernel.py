# SPDX-License-Identifier: Apache-2.0
"""Just-in-time linearization, compiled: as in `search.jit_linearization`, on rows of 64-bit words, with one reduction
more.

*Gap placement.* A blind op that was open when a later blind one took effect can be put right in front of it. It then
also serves every read that was open at that moment and wants its value. So a blind op is placed *now* only for the sake
of the op that returns, or of one that changes the state; the k! orders of k overlapping writes are never tried.
A row's `hidable` words hold the open ops, blind or pure, that were open at the last blind step and are not done.

With `RECORD`, a walk records a tree of nodes `(before, step, position)`: the steps it took at the return at `position`.
`step` is an op; `GAP + op`: put in front of the last blind step; `~kind`: an unknown op. Pure ops are not recorded:
`replay.replay_tree` finds them again, as they are always taken as early as possible.

Source: Lowe, "Testing for linearizability" (2017); Horn and Kroening (2015); Knossos' `linear`. Gap placement is new,
fuzzed against brute force, with mutants of each reduction (`tests/checkers/test_kernel_mutants.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.linearizability.compiled.configurations import CAPACITY, CHAIN, COUNT, FULL, GONE, Rows, admit, empty
from checkers.linearizability.compiled.jit import compiled, inlined, loop
from checkers.linearizability.compiled.open_ops import (
    Layout,
    OpenOps,
    absorb,
    close_slot,
    copy,
    hides_more,
    lowest,
    none_open,
    open_gap,
    open_slot,
    serve,
    waits,
)
from checkers.linearizability.history.arrays import LOW_HALF, NO_BITS, ONE_BIT, Bytes, Dense, Ints, Longs, Words
from checkers.linearizability.history.columns import Columns
from checkers.linearizability.history.events import BLIND, NEVER, PURE

INVALID: Final = 0
VALID: Final = 1
SPENT: Final = 2
TOO_BIG: Final = 3
"""The workspace is too small: the caller tries again with more memory, or gives up."""
TOO_LONG: Final = 4
"""The nodes are used up."""
_ON: Final = 5
"""The walk goes on."""

RECORD: Final = 1
EVERY_STATE: Final = 2
"""Do not skip states that are only detours: needed to name all possible states."""

GAP: Final = 1 << 30

SAME: Final = 1 << 40
"""Instead of a step: the row is unchanged."""
TO_DO: Final = 0
PASSED: Final = 1

WORK: Final = 0
POSITION: Final = 1
NODES: Final = 2
KINDS: Final = 3
TOLD: Final = 4
"""Indices of a walk's counters, and their number: candidates tried; event reached; nodes used; unknown kinds called."""

_UNSEEN: Final = np.uint64(1 << 32)
"""In a row's state: a blind step reached it, and no op has read it. To overwrite it would be a detour."""

BYTES_A_NODE: Final = 3 * 4


class Space(NamedTuple):
    """The memory of a walk.

    front   configurations after the last return; when the result is INVALID, those before the event at `POSITION`.
    todo    configurations in which the returning op must still be placed. passed: those that have it.
    tree    three numbers a node (see the top), or empty.

    The last field is the walk's counters (indices: `WORK`, `POSITION`, `NODES`, `KINDS`).
    """

    front: Rows
    todo: Rows
    passed: Rows
    tree: Ints
    told: Longs


class _Walk(NamedTuple):
    """The data that the pieces of a walk share.

    called   by group of kinds: unknown ops called so far. unknown: their kinds, in order of first call.
    base     the current row.
    made     the rows made of it; `steps` has two numbers for each, the step that made it, and TO_DO or PASSED.
    """

    history: Columns
    dense: Dense
    layout: Layout
    open: OpenOps
    called: Ints
    unknown: Ints
    base: Words
    made: Words
    steps: Longs
    space: Space


def most_made(masks: int, kinds: int) -> int:
    """The largest number of rows made of one: each open op goes next, or each kind of unknown op, or none."""
    return 64 * masks + kinds + 2


_most_made = compiled(most_made)


@compiled
def walk(history: Columns, dense: Dense, layout: Layout, mode: int, budget: int, space: Space) -> int:
    """One walk over one history. Returns INVALID, VALID, SPENT, TOO_BIG or TOO_LONG; fills `space`.

    If kinds share a counter in the layout, or are not counted, only INVALID is a proof.
    """
    kinds = dense.flags.shape[0]
    most = _most_made(layout.masks, kinds)
    one = _Walk(
        history, dense, layout, none_open(history, dense, layout), np.zeros(kinds, np.int32), np.zeros(kinds, np.int32),
        np.zeros(layout.width, np.uint64), np.empty(most * layout.width, np.uint64), np.empty(2 * most, np.int64),
        space,
    )  # fmt: skip
    return _walk(one, np.zeros(kinds, np.uint8), mode, budget)


@loop
def _walk(walk: _Walk, known: Bytes, mode: int, budget: int) -> int:
    """Walks all events. `known`: by kind, 1 if an unknown op of it was called; all 0 at the start."""
    history, front, told = walk.history, walk.space.front, walk.space.told
    front.words[: walk.layout.width] = NO_BITS
    front.links[CHAIN + front.links[CAPACITY]] = -1
    front.links[COUNT] = 1
    told[:] = 0
    for position in range(history.events.shape[0]):
        told[POSITION] = position
        op = history.events[position] >> 1
        if not history.events[position] & 1:
            if history.ret[op] == NEVER:
                _call_unknown(walk, history.kind[op], known)
            else:
                _call(walk, op)
            continue
        slot = walk.open.slot[op]
        if not _all_have(walk, slot):
            ended = _return(walk, op, mode, budget)
            if ended != _ON:
                return ended
        close_slot(slot, walk.layout.masks, walk.dense, walk.open)
    told[POSITION] = history.events.shape[0]
    return VALID


@inlined
def _call_unknown(walk: _Walk, kind: int, known: Bytes) -> None:
    """Handles the call of an op that never returns: one more of its kind may be used from now on."""
    if not known[kind]:
        known[kind] = 1
        walk.unknown[walk.space.told[KINDS]] = kind
        walk.space.told[KINDS] += 1
    if walk.layout.group[kind] >= 0:
        walk.called[walk.layout.group[kind]] += 1


@inlined
def _call(walk: _Walk, op: int) -> None:
    """Handles the call of an op that returns later. A pure op is placed at once in every row that permits it."""
    kind = walk.history.kind[op]
    slot = open_slot(op, walk.layout.masks, walk.history, walk.dense, walk.open)
    if walk.dense.flags[kind] & PURE:
        front = walk.space.front
        bit = ONE_BIT << np.uint64(slot & 63)
        for i in range(front.links[COUNT]):
            row = i * walk.layout.width
            if walk.dense.step[int(np.int64(front.words[row])), kind] >= 0:
                front.words[row + 1 + (slot >> 6)] |= bit


@inlined
def _all_have(walk: _Walk, slot: int) -> bool:
    """True if all configurations have placed this op already. Then it is removed from them, and nothing more is due."""
    front, width = walk.space.front, walk.layout.width
    place, bit = 1 + (slot >> 6), ONE_BIT << np.uint64(slot & 63)
    for i in range(front.links[COUNT]):
        if not front.words[i * width + place] & bit:
            return False
    for i in range(front.links[COUNT]):
        front.words[i * width + place] &= ~bit
    return True


@inlined
def _return(walk: _Walk, op: int, mode: int, budget: int) -> int:
    """Handles the return of an op: a configuration passes if it has the op, or gets it after steps of other open ops.

    Returns _ON, or the result that ends the walk.
    """
    front, todo, told = walk.space.front, walk.space.todo, walk.space.told
    width = walk.layout.width
    empty(todo.links)
    empty(walk.space.passed.links)
    fits = True
    for i in range(front.links[COUNT]):
        copy(front.words, i * width, walk.base, 0, width)
        n = _pass(walk, op)
        fits = fits and _settle(walk.made, walk.steps, n, walk.open.classes, walk.layout.masks, width, walk.space,
                                front.links[CHAIN + front.links[CAPACITY] + i])  # fmt: skip
    this = 0
    while fits and this < todo.links[COUNT]:
        if todo.links[CHAIN + this] == GONE:
            this += 1
            continue
        told[WORK] += 1
        if told[WORK] > budget:
            return SPENT
        copy(todo.words, this * width, walk.base, 0, width)
        unseen = walk.base[0] & _UNSEEN != NO_BITS
        walk.base[0] &= LOW_HALF
        n = _place_it(walk, 0, op, unseen)
        n = _place_others(walk, n, op, unseen, mode)
        n = _place_unknown(walk, n, op, unseen, mode)
        fits = _settle(walk.made, walk.steps, n, walk.open.classes, walk.layout.masks, width, walk.space,
                       todo.links[CHAIN + todo.links[CAPACITY] + this])  # fmt: skip
        this += 1
        if mode & RECORD and 3 * told[NODES] + 3 > walk.space.tree.shape[0]:
            return TOO_LONG
    if mode & RECORD and 3 * told[NODES] + 3 > walk.space.tree.shape[0]:
        return TOO_LONG
    if not fits:
        return TOO_BIG
    return _ON if _advance(front, walk.space.passed, width) else INVALID


@inlined
def _advance(front: Rows, passed: Rows, width: int) -> bool:
    """Makes the rows that passed, without those dominated later, the new front. False if no row is left."""
    kept = 0
    for i in range(passed.links[COUNT]):
        if passed.links[CHAIN + i] != GONE:
            if kept == 0:
                front.links[COUNT] = 0
            copy(passed.words, i * width, front.words, kept * width, width)
            front.links[CHAIN + front.links[CAPACITY] + kept] = passed.links[CHAIN + passed.links[CAPACITY] + i]
            kept += 1
    if kept:
        front.links[COUNT] = kept
    return kept > 0


@inlined
def _pass(walk: _Walk, op: int) -> int:
    """Makes rows of the base: it passes if it has the op, or if the op fits into an earlier gap; else it is continued.

    Returns the number of rows made.
    """
    slot, kind = walk.open.slot[op], walk.history.kind[op]
    base, masks = walk.base, walk.layout.masks
    place, bit = 1 + (slot >> 6), ONE_BIT << np.uint64(slot & 63)
    n = 0
    if not base[place] & bit and base[place + masks] & bit:
        if walk.dense.flags[kind] & BLIND:
            n = _put_into_gap(walk, 0, slot, slot)
        elif walk.dense.flags[kind] & PURE:
            n = _put_writer_into_gap(walk, slot, kind)
    copy(base, 0, walk.made, n * walk.layout.width, walk.layout.width)
    return _made(walk, n, SAME, slot, False)


@inlined
def _put_writer_into_gap(walk: _Walk, slot: int, kind: int) -> int:
    """Puts open blind ops that leave the value read by the op in `slot` into the gap. Returns the number of rows."""
    masks, base, n = walk.layout.masks, walk.base, 0
    for w in range(masks):
        left = walk.open.classes[masks + w] & base[1 + masks + w]
        while left:
            other = 64 * w + lowest(left)
            left &= left - ONE_BIT
            walk.space.told[WORK] += 1
            target = walk.dense.target[walk.open.kind[other]]
            # (One called later than the gap cannot take this one's place there.)
            if walk.dense.step[target, kind] >= 0 and not waits(walk.open.before, other, base, 1 + masks, ONE_BIT):
                n = _put_into_gap(walk, n, other, slot)
    return n


@inlined
def _put_into_gap(walk: _Walk, n: int, blind: int, slot: int) -> int:
    """Makes row n: the open blind op goes in front of the last blind step, which also places the op in `slot`."""
    width, masks = walk.layout.width, walk.layout.masks
    at = n * width
    word, bit = blind >> 6, ONE_BIT << np.uint64(blind & 63)
    copy(walk.base, 0, walk.made, at, width)
    walk.made[at + 1 + word] |= bit
    walk.made[at + 1 + masks + word] &= ~bit
    serve(walk.made, at, walk.dense.target[walk.open.kind[blind]], masks, walk.open.readable)
    return _made(walk, n, GAP + walk.open.op[blind], slot, False)


@inlined
def _place_it(walk: _Walk, n: int, op: int, unseen: bool) -> int:
    """Places the returning op next. Returns the number of rows, of which `n` existed before."""
    slot, kind = walk.open.slot[op], walk.history.kind[op]
    flags = walk.dense.flags[kind]
    if flags & PURE or (unseen and flags & BLIND) or waits(walk.open.before, slot, walk.base, 1, NO_BITS):
        return n
    after = walk.dense.step[int(np.int64(walk.base[0])), kind]
    if after < 0:
        return n
    _place(walk, n, slot, after)
    return _made(walk, n, op, slot, False)


@inlined
def _place_others(walk: _Walk, n: int, op: int, unseen: bool, mode: int) -> int:
    """Places another open op first: a blind one (group 1), or one that changes the state otherwise (group 2)."""
    masks, base, kind = walk.layout.masks, walk.base, walk.history.kind[op]
    slot, state = walk.open.slot[op], int(np.int64(walk.base[0]))
    for group in range(1, 3):
        if group == 1 and unseen:
            continue
        for w in range(masks):
            left = walk.open.classes[group * masks + w] & ~base[1 + w]
            if group == 2:
                left &= walk.open.movable[state * masks + w]
            if w == slot >> 6:
                left &= ~(ONE_BIT << np.uint64(slot & 63))
            while left:
                other = 64 * w + lowest(left)
                left &= left - ONE_BIT
                if waits(walk.open.before, other, base, 1, NO_BITS):
                    continue
                after = walk.dense.step[state, walk.open.kind[other]]
                if group == 1 and not mode & EVERY_STATE and not _leads_on(walk, after, kind):
                    continue
                walk.space.told[WORK] += 1
                _place(walk, n, other, after)
                n = _made(walk, n, walk.open.op[other], slot, group == 1)
    return n


@inlined
def _place_unknown(walk: _Walk, n: int, op: int, unseen: bool, mode: int) -> int:
    """Places an unknown op first."""
    layout, base, state = walk.layout, walk.base, int(np.int64(walk.base[0]))
    for i in range(walk.space.told[KINDS]):
        kind = walk.unknown[i]
        group = layout.group[kind]
        blind = walk.dense.flags[kind] & BLIND != 0
        after = walk.dense.step[state, kind]
        if after < 0 or (blind and unseen):
            continue
        # One that changes nothing is needed only if a blind op of another value goes in front of it.
        if after == state and not (blind and hides_more(base, layout.masks, walk.open.classes)):
            continue
        walk.space.told[WORK] += 1
        at = n * layout.width
        copy(base, 0, walk.made, at, layout.width)
        if group >= 0:
            word, shift = at + 1 + 2 * layout.masks + layout.word[group], np.uint64(layout.shift[group])
            if int(np.int64((base[word - at] >> shift) & np.uint64(layout.field[group]))) >= walk.called[group]:
                continue
            walk.made[word] += ONE_BIT << shift
        walk.made[at] = np.uint64(after)
        absorb(walk.made, at, after, layout.masks, walk.open.readable)
        seen = False
        for w in range(1, 1 + layout.masks):
            seen = seen or walk.made[at + w] != base[w]
        if blind:
            if not seen and not mode & EVERY_STATE and not _leads_on(walk, after, walk.history.kind[op]):
                continue
            open_gap(walk.made, at, layout.masks, walk.open.classes)
        n = _made(walk, n, ~kind, walk.open.slot[op], blind and not seen)
    return n


@inlined
def _leads_on(walk: _Walk, state: int, kind: int) -> bool:
    """True if a blind step to `state` is of use now: for the returning op of `kind`, unless that is blind itself, or
    for an op that changes the state. (Reads of `state` are served later, in the gap.)
    """
    if walk.dense.step[state, kind] >= 0 and not walk.dense.flags[kind] & BLIND:
        return True
    masks = walk.layout.masks
    for w in range(masks):
        if walk.open.movable[state * masks + w] & ~walk.base[1 + w]:
            return True
    for i in range(walk.space.told[KINDS]):
        if not walk.dense.flags[walk.unknown[i]] & BLIND and walk.dense.step[state, walk.unknown[i]] >= 0:
            return True
    return False


@inlined
def _place(walk: _Walk, n: int, slot: int, after: int) -> None:
    """Makes row n: the base after a step of the op in `slot`."""
    masks, at = walk.layout.masks, n * walk.layout.width
    copy(walk.base, 0, walk.made, at, walk.layout.width)
    walk.made[at] = np.uint64(after)
    walk.made[at + 1 + (slot >> 6)] |= ONE_BIT << np.uint64(slot & 63)
    absorb(walk.made, at, after, masks, walk.open.readable)
    if walk.dense.flags[walk.open.kind[slot]] & BLIND:
        open_gap(walk.made, at, masks, walk.open.classes)


@inlined
def _made(walk: _Walk, n: int, step: int, slot: int, unseen: bool) -> int:
    """Completes row n, made by `step`. It passes if it has the op in `slot`, which is then removed. Returns n + 1."""
    at, masks = n * walk.layout.width, walk.layout.masks
    place, bit = at + 1 + (slot >> 6), ONE_BIT << np.uint64(slot & 63)
    walk.steps[2 * n], walk.steps[2 * n + 1] = step, TO_DO
    if walk.made[place] & bit:
        walk.made[place] &= ~bit
        walk.made[place + masks] &= ~bit
        walk.steps[2 * n + 1] = PASSED
    elif unseen:
        walk.made[at] |= _UNSEEN
    return n + 1


@loop
def _settle(
    made: Words, steps: Longs, count: int, classes: Words, masks: int, width: int, space: Space, node: int
) -> bool:
    """Puts the rows that were made of one configuration (its node is `node`) into their sets. False if a set is full.

    With a tree, each step becomes a node. A full tree ends the walk soon after this.
    """
    tree, told = space.tree, space.told
    for i in range(count):
        step = steps[2 * i]
        rows = space.todo if steps[2 * i + 1] == TO_DO else space.passed
        number = admit(rows, made, i * width, node, masks, width, classes)
        if number == FULL:
            return False
        at = told[NODES]
        if number >= 0 and step != SAME and 3 * at + 3 <= tree.shape[0]:
            tree[3 * at], tree[3 * at + 1], tree[3 * at + 2] = node, step, told[POSITION]
            rows.links[CHAIN + rows.links[CAPACITY] + number] = at
            told[NODES] = at + 1
    return True
