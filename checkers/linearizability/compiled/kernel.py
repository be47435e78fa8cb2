"""The complete search, compiled: what `frontier` describes, on rows of 64-bit words, with one reduction more.

*Gap placement.* A blind op that was open when a later blind one took effect can be put right in front of it. It then
also serves every read that was open at that moment and wants its value. So a blind op is placed *now* only for the sake
of the op that returns, or of one that changes the state; the k! orders of k overlapping writes are never tried.
A row's `hidable` words hold the open ops, blind or pure, that were open at the last blind step and are not done.

A walk records, if it is asked to, a tree of nodes `(before, step, position)`: the steps it took at the return at
`position`. `step` is an op; `GAP + op`: put in front of the last blind step; `~kind`: an unknown op. Pure ops are not
recorded: `replay` finds them again, as they are always taken as early as possible.

Source: Lowe, "Testing for linearizability" (2017); Horn and Kroening (2015); Knossos' `linear`; the gaps are ours,
fuzzed against brute force.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.linearizability.compiled.configurations import CAPACITY, CHAIN, COUNT, FULL, GONE, Rows, admit, empty
from checkers.linearizability.compiled.jit import compiled
from checkers.linearizability.compiled.open_ops import (
    absorb,
    close_slot,
    copy,
    hides_more,
    leads_on,
    lowest,
    open_gap,
    open_slot,
    serve,
    token_leads_on,
    waits,
    waits_in_gap,
)
from checkers.linearizability.history.columns import Columns
from checkers.linearizability.history.events import NEVER, Ints, Longs, Words
from checkers.linearizability.history.table import BLIND, PURE, Dense

INVALID: Final = 0
VALID: Final = 1
SPENT: Final = 2
TOO_BIG: Final = 3
"""The workspace is too small: more room and another try, or an end to it."""
TOO_LONG: Final = 4
"""The nodes are used up."""

RECORD: Final = 1
EVERY_STATE: Final = 2
"""Do not skip states that are only detours: for naming all that was possible."""

GAP: Final = 1 << 30

SAME: Final = 1 << 40
TO_DO: Final = 0
PASSED: Final = 1
ROOM: Final = 64
"""Rows made of one configuration before they are put into their sets."""

WORK: Final = 0
POSITION: Final = 1
LEFT: Final = 2
"""Indices in `told`: candidates tried; the event reached; configurations left (before `POSITION`, when invalid)."""

_ONE: Final = np.uint64(1)
_NONE: Final = np.uint64(0)
_UNSEEN: Final = np.uint64(1 << 32)
_LOW: Final = np.uint64(0xFFFFFFFF)

BYTES_A_NODE: Final = 3 * 4


@compiled
def settle(
    made: Words,
    steps: Longs,
    count: int,
    masks: int,
    width: int,
    classes: Words,
    sets: tuple[Words, Longs, Words, Longs],
    tree: Ints,
    used: Longs,
    node: int,
    position: int,
) -> bool:
    """Puts the rows that were made of one configuration (its node is `node`) into their sets. False: there is no room.

    `steps`: two numbers a row, the step that made it (see the top; SAME: none), and TO_DO or PASSED. A step that was
    taken becomes a node, if there is a tree. One that is full ends the walk soon after this.
    """
    todo_words, todo_links, passed_words, passed_links = sets
    for i in range(count):
        step = steps[2 * i]
        if steps[2 * i + 1] == TO_DO:
            number = admit(todo_words, todo_links, made, i * width, node, masks, width, classes)
        else:
            number = admit(passed_words, passed_links, made, i * width, node, masks, width, classes)
        if number == FULL:
            return False
        at = used[0]
        if number >= 0 and step != SAME and 3 * at + 3 <= tree.shape[0]:
            tree[3 * at], tree[3 * at + 1], tree[3 * at + 2] = node, step, position
            if steps[2 * i + 1] == TO_DO:
                todo_links[CHAIN + todo_links[CAPACITY] + number] = at
            else:
                passed_links[CHAIN + passed_links[CAPACITY] + number] = at
            used[0] = at + 1
    return True


@compiled
def walk(
    history: Columns,
    dense: Dense,
    masks: int,
    token_words: int,
    layout: tuple[Ints, Ints, Ints, Ints],
    guards: Words,
    mode: int,
    beam: int,
    budget: int,
    front: Rows,
    todo: Rows,
    passed: Rows,
    tree: Ints,
    told: Longs,
) -> int:
    """One walk over one history. Returns INVALID, VALID, SPENT, TOO_BIG or TOO_LONG; fills `told`.

    `layout`: see `lay_out`. Where it lets kinds share a counter, or not be counted, only `INVALID` is a proof.
    `beam`: keep so many configurations after each return (0: all of them). With a beam `INVALID` says nothing.
    """
    states, kinds = dense.step.shape
    token_word, token_shift, token_field, token_group = layout
    record = mode & RECORD != 0
    width = 1 + 2 * masks + token_words
    slots = 64 * masks
    classes = np.zeros(3 * masks + token_words, np.uint64)  # open ops: pure, blind, others; then guard bits
    for w in range(token_words):
        classes[3 * masks + w] = guards[w]
    readable, movable = np.zeros(states * masks, np.uint64), np.zeros(states * masks, np.uint64)
    table, flags, targets = dense.step, dense.flags, dense.target
    front_words, todo_words, passed_words = front.words, todo.words, passed.words
    front_links, todo_links, passed_links = front.links, todo.links, passed.links
    sets = todo_words, todo_links, passed_words, passed_links
    nodes, todo_nodes = CHAIN + front_links[CAPACITY], CHAIN + todo_links[CAPACITY]
    events, op_kind, op_ret = history.events, history.kind, history.ret
    before, last = np.full(slots, -1, np.int32), np.full(kinds, -1, np.int32)  # see `open_slot`
    slot_op, slot_kind = np.zeros(slots, np.int32), np.zeros(slots, np.int32)
    slot_of = np.zeros(history.kind.shape[0], np.int32)
    called, known = np.zeros(kinds, np.int32), np.zeros(kinds, np.uint8)
    token = np.zeros(kinds, np.int32)
    tokens = 0
    made, base = np.zeros(ROOM * width, np.uint64), np.zeros(width, np.uint64)
    steps = np.zeros(2 * ROOM, np.int64)
    used = np.zeros(1, np.int64)
    work, root = 0, -1
    count = 1
    front_words[:width] = _NONE
    front_links[nodes + 0] = root
    told[WORK] = told[POSITION] = told[LEFT] = 0
    for position in range(events.shape[0]):
        told[POSITION], told[WORK], told[LEFT] = position, work, count
        op = events[position] >> 1
        kind = int(op_kind[op])
        pure, blind = flags[kind] & PURE != 0, flags[kind] & BLIND != 0
        if not events[position] & 1:
            if op_ret[op] == NEVER:
                if not known[kind]:
                    known[kind] = 1
                    token[tokens] = kind
                    tokens += 1
                if token_group[kind] >= 0:
                    called[token_group[kind]] += 1
                continue
            slot = open_slot(op, history, masks, dense, classes, readable, movable, before, last, slot_op)
            slot_of[op], slot_kind[slot] = slot, kind
            if pure:
                bit = _ONE << np.uint64(slot & 63)
                for i in range(count):
                    if table[int(np.int64(front_words[i * width])), kind] >= 0:
                        front_words[i * width + 1 + (slot >> 6)] |= bit
            continue
        slot = int(slot_of[op])
        place, bit = 1 + (slot >> 6), _ONE << np.uint64(slot & 63)
        all_have_it = True
        for i in range(count):
            if not front_words[i * width + place] & bit:
                all_have_it = False
                break
        if all_have_it:
            for i in range(count):
                front_words[i * width + place] &= ~bit
            close_slot(slot, kind, masks, dense, classes, readable, movable, before, last)
            continue
        empty(todo_links)
        empty(passed_links)
        fits = True
        for i in range(count):
            node = front_links[nodes + i]
            copy(front_words, i * width, base, 0, width)
            n = at = 0
            if base[place] & bit:
                base[place] &= ~bit
                base[place + masks] &= ~bit
                steps[0], steps[1] = SAME, PASSED
            else:
                if base[place + masks] & bit:
                    if blind:
                        copy(base, 0, made, 0, width)
                        serve(made, 0, targets[kind], masks, readable)
                        made[place + masks] &= ~bit
                        steps[0], steps[1] = GAP + op, PASSED
                        n, at = 1, width
                    elif pure:
                        for w in range(masks):
                            left = classes[masks + w] & base[1 + masks + w]
                            while left:
                                other = 64 * w + lowest(left)
                                left &= left - _ONE
                                work += 1
                                target = targets[slot_kind[other]]
                                if table[target, kind] < 0 or waits_in_gap(before, other, base, masks):
                                    continue
                                if n == ROOM:
                                    fits = fits and settle(
                                        made, steps, n, masks, width, classes, sets, tree, used, node, position
                                    )
                                    n = at = 0
                                copy(base, 0, made, at, width)
                                made[at + 1 + w] |= _ONE << np.uint64(other & 63)
                                made[at + 1 + masks + w] &= ~made[at + 1 + w]
                                serve(made, at, target, masks, readable)
                                made[at + place] &= ~bit
                                steps[2 * n], steps[2 * n + 1] = GAP + slot_op[other], PASSED
                                n, at = n + 1, at + width
                if n == ROOM:
                    fits = fits and settle(made, steps, n, masks, width, classes, sets, tree, used, node, position)
                    n = at = 0
                steps[2 * n], steps[2 * n + 1] = SAME, TO_DO
            copy(base, 0, made, at, width)
            fits = fits and settle(made, steps, n + 1, masks, width, classes, sets, tree, used, node, position)
        this = 0
        while fits and this < todo_links[COUNT]:
            if todo_links[CHAIN + this] == GONE:
                this += 1
                continue
            copy(todo_words, this * width, base, 0, width)
            node = todo_links[todo_nodes + this]
            this += 1
            state, unseen = int(np.int64(base[0] & _LOW)), base[0] & _UNSEEN != _NONE
            base[0] &= _LOW
            n = at = 0
            work += 1
            if work > budget:
                told[WORK] = work
                return SPENT
            # The op itself.
            if not pure and not (unseen and blind) and not waits(before, slot, base):
                after = int(table[state, kind])
                if after >= 0:
                    copy(base, 0, made, 0, width)
                    made[0] = np.uint64(after)
                    made[place] |= bit
                    absorb(made, 0, after, masks, readable)
                    if blind:
                        open_gap(made, 0, masks, classes)
                    made[place] &= ~bit
                    made[place + masks] &= ~bit
                    steps[0], steps[1] = op, PASSED
                    n, at = 1, width
            # Another open op first.
            for group in range(1, 3):
                if group == 1 and unseen:
                    continue
                for w in range(masks):
                    left = classes[group * masks + w] & ~base[1 + w]
                    if group == 2:
                        left &= movable[state * masks + w]
                    if w == slot >> 6:
                        left &= ~bit
                    while left:
                        other = 64 * w + lowest(left)
                        left &= left - _ONE
                        if waits(before, other, base):
                            continue
                        after = int(table[state, slot_kind[other]])
                        if (
                            group == 1
                            and not mode & EVERY_STATE
                            and not (table[after, kind] >= 0 and not blind)
                            and not leads_on(after, base, masks, movable)
                            and not (tokens and token_leads_on(after, table, flags, token, tokens))
                        ):
                            continue
                        work += 1
                        if n == ROOM:
                            fits = fits and settle(
                                made, steps, n, masks, width, classes, sets, tree, used, node, position
                            )
                            n = at = 0
                        copy(base, 0, made, at, width)
                        made[at] = np.uint64(after)
                        made[at + 1 + w] |= _ONE << np.uint64(other & 63)
                        absorb(made, at, after, masks, readable)
                        if group == 1:
                            open_gap(made, at, masks, classes)
                        steps[2 * n], steps[2 * n + 1] = slot_op[other], TO_DO
                        if made[at + place] & bit:
                            made[at + place] &= ~bit
                            made[at + place + masks] &= ~bit
                            steps[2 * n + 1] = PASSED
                        elif group == 1:
                            made[at] |= _UNSEEN
                        n, at = n + 1, at + width
            # An unknown op first.
            for i in range(tokens):
                other, shared = int(token[i]), int(token_group[token[i]])
                other_blind = flags[other] & BLIND != 0
                after = int(table[state, other])
                if after < 0 or (other_blind and unseen):
                    continue
                # One that changes nothing is needed only if a blind op of another value goes in front of it.
                if after == state and not (other_blind and hides_more(base, masks, classes)):
                    continue
                work += 1
                if n == ROOM:
                    fits = fits and settle(made, steps, n, masks, width, classes, sets, tree, used, node, position)
                    n = at = 0
                copy(base, 0, made, at, width)
                if shared >= 0:
                    word, shift = at + 1 + 2 * masks + token_word[shared], np.uint64(token_shift[shared])
                    spent = int(np.int64((made[word] >> shift) & np.uint64(token_field[shared])))
                    if spent >= called[shared]:
                        continue
                    made[word] += _ONE << shift
                made[at] = np.uint64(after)
                absorb(made, at, after, masks, readable)
                gained = False
                for w in range(1, 1 + masks):
                    if made[at + w] != base[w]:
                        gained = True
                if other_blind:
                    if (
                        not gained
                        and not mode & EVERY_STATE
                        and not (table[after, kind] >= 0 and not blind)
                        and not leads_on(after, base, masks, movable)
                        and not token_leads_on(after, table, flags, token, tokens)
                    ):
                        continue
                    open_gap(made, at, masks, classes)
                steps[2 * n], steps[2 * n + 1] = ~other, TO_DO
                if made[at + place] & bit:
                    made[at + place] &= ~bit
                    made[at + place + masks] &= ~bit
                    steps[2 * n + 1] = PASSED
                elif other_blind and not gained:
                    made[at] |= _UNSEEN
                n, at = n + 1, at + width
            fits = fits and settle(made, steps, n, masks, width, classes, sets, tree, used, node, position)
            if record and 3 * used[0] + 3 > tree.shape[0]:
                return TOO_LONG
            if beam and todo_links[COUNT] > 32 * beam:
                break
        if record and 3 * used[0] + 3 > tree.shape[0]:
            return TOO_LONG
        if not fits:
            return TOO_BIG
        kept = 0
        for i in range(passed_links[COUNT]):
            if passed_links[CHAIN + i] == GONE or (beam and kept >= beam):
                continue
            for w in range(width):
                front_words[kept * width + w] = passed_words[i * width + w]
            front_links[nodes + kept] = passed_links[CHAIN + passed_links[CAPACITY] + i]
            kept += 1
        if kept == 0:
            told[WORK] = work
            return INVALID
        count = kept
        close_slot(slot, kind, masks, dense, classes, readable, movable, before, last)
    told[POSITION], told[WORK], told[LEFT] = events.shape[0], work, count
    return VALID


@compiled
def replay(history: Columns, dense: Dense, tree: Ints, node: int, until: int, order: Ints) -> int:
    """Fills `order` with the ops that the path to `node` took before or at the event `until`; how many.

    Unknown ops are named by the order of their calls within their kind.
    """
    steps = 0
    this = int(node)
    while this >= 0:
        steps += 1
        this = int(tree[3 * this])
    path = np.zeros(steps, np.int64)
    this = int(node)
    for i in range(steps - 1, -1, -1):
        path[i] = this
        this = int(tree[3 * this])
    # Ops are linked in order; `gap` is what stands in front of the last blind step.
    ops = history.kind.shape[0]
    following = np.full(ops + 1, -1, np.int64)
    last, gap = ops, -1
    waiting, since = np.zeros(ops, np.int32), np.zeros(ops, np.int32)
    pending = 0
    unknown = np.full(ops, -1, np.int64)
    first, newest = np.full(dense.flags.shape[0], -1, np.int64), np.full(dense.flags.shape[0], -1, np.int64)
    state = 0
    at = 0
    gap_state = 0
    gap_position = -1
    for position in range(min(until + 1, history.events.shape[0])):
        op = int(history.events[position] >> 1)
        kind = int(history.kind[op])
        if not history.events[position] & 1:
            if history.ret[op] == NEVER:
                if first[kind] < 0:
                    first[kind] = op
                else:
                    unknown[newest[kind]] = op
                newest[kind] = op
            elif dense.flags[kind] & PURE:
                if dense.step[state, kind] >= 0:
                    following[last], last = op, op
                else:
                    waiting[pending], since[pending] = op, position
                    pending += 1
            continue
        while at < steps and tree[3 * path[at] + 2] == position:
            step = int(tree[3 * path[at] + 1])
            at += 1
            hidden = step >= GAP
            if hidden:
                step -= GAP
            elif step < 0:
                other = ~step
                step = first[other]
                if step < 0:
                    return -1
                first[other] = unknown[step]
            this_kind = int(history.kind[step])
            if hidden:
                following[step] = following[gap]
                following[gap] = step
                gap, gap_state = step, int(dense.target[this_kind])
            else:
                if dense.flags[this_kind] & BLIND:
                    gap, gap_position = last, position
                state = int(dense.step[state, this_kind])
                following[last], last = step, step
            kept = 0
            for i in range(pending):
                read = int(waiting[i])
                if hidden:
                    if since[i] < gap_position and dense.step[gap_state, history.kind[read]] >= 0:
                        following[read] = following[gap]
                        following[gap] = read
                        gap = read
                        continue
                elif dense.step[state, history.kind[read]] >= 0:
                    following[last], last = read, read
                    continue
                waiting[kept], since[kept] = read, since[i]
                kept += 1
            pending = kept
    found = 0
    this = int(following[ops])
    while this >= 0:
        order[found] = this
        found += 1
        this = int(following[this])
    return found
