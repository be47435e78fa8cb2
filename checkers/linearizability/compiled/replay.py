# SPDX-License-Identifier: Apache-2.0
"""From the tree of a recorded walk (`kernel`) to an order of ops: the witness of a valid history."""

from __future__ import annotations

import numpy as np

from checkers.linearizability.compiled.jit import compiled
from checkers.linearizability.compiled.kernel import GAP
from checkers.linearizability.history.arrays import Dense, Ints
from checkers.linearizability.history.columns import Columns
from checkers.linearizability.history.events import BLIND, NEVER, PURE


@compiled
def replay_tree(history: Columns, dense: Dense, tree: Ints, node: int, until: int, order: Ints) -> int:
    """Fills `order` with the ops that the path to `node` took before or at the event `until`; returns their number.

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
    # Ops are linked in order; `gap` is the op in front of the last blind step.
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
