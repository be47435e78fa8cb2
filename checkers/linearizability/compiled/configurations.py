# SPDX-License-Identifier: Apache-2.0
"""Sets of configurations for compiled code: rows of 64-bit words, none dominated by another one of those compared.

A row is `[state | unseen << 32, linearized..., hidable..., tokens...]`: `masks` words of one bit per slot, twice, then
the packed counters of unknown ops with a guard bit on top of each. The number of words depends on the history alone, so
one compiled variant serves 5 clients and 5,000.

Rows of one state are chained, newest first; the chain is walked for dominance, up to `_SCAN` rows (a missed one costs
work, but the verdict stays right). As long as a set is smaller than that, no equal row is missed either. A larger one
has a hash table, too, whose entries carry the epoch in which they were made: to empty it costs nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.linearizability.compiled.jit import inlined, loop
from checkers.linearizability.history.arrays import LOW_HALF, NO_BITS, Longs, Words

_SCAN: Final = 128

REJECTED: Final = -1
FULL: Final = -2
GONE: Final = -2
"""In `following`: the row was dominated after it was added."""

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)


class Rows(NamedTuple):
    """`words`: rows one after the other. `links`: everything else, in one array, as each array costs a call 10 ns:

    number of rows; epoch; capacity; limit of rows; then per row the next one in its chain, and its node (see `kernel`);
    two hash entries a row (the row, the epoch); per state the head of its chain, and the epoch.
    """

    words: Words
    links: Longs


COUNT: Final = 0
EPOCH: Final = 1
CAPACITY: Final = 2
LIMIT: Final = 3
CHAIN: Final = 4
"""The begin of the chain; the nodes begin `capacity` behind it, the hash table's rows another `capacity`, and so on."""

BYTES_A_ROW: Final = 8 * (1 + 1 + 2 + 2)
"""The memory of a row, besides its words."""


BYTES_A_STATE: Final = 8 * 2


def new_rows(capacity: int, words: int, states: int) -> Rows:
    """Memory for `capacity` (a power of two) rows, of `words` words together."""
    links = np.zeros(CHAIN + 6 * capacity + 2 * states, np.int64)
    links[CAPACITY] = links[LIMIT] = capacity
    return Rows(np.zeros(words, np.uint64), links)


@inlined
def empty(links: Longs) -> None:
    links[COUNT] = 0
    links[EPOCH] += 1


@loop
def _hash(words: Words, at: int, width: int) -> np.uint64:
    found = NO_BITS
    for i in range(width):
        found = (found ^ words[at + i]) * _MIX
        found ^= found >> _HALF
    return found


@inlined
def _compare(a: Words, i: int, b: Words, j: int, masks: int, width: int, classes: Words) -> int:
    """Compares the rows `a[i]` and `b[j]`, of the same state: 1 the first is at least as good, 2 the second, 0 neither.

    `classes`: bits of the open ops that are pure, blind, others; then the guard bits of the counters. A blind op that
    can still hide is better than a linearized one: it can do either.
    """
    first, second = a[i] >> _HALF <= b[j] >> _HALF, b[j] >> _HALF <= a[i] >> _HALF
    for w in range(masks):
        one, two = a[i + 1 + w], b[j + 1 + w]
        hides, hides_too = a[i + 1 + masks + w], b[j + 1 + masks + w]
        differ = one ^ two
        if differ & classes[2 * masks + w]:
            return 0
        pure, blind = classes[w], classes[masks + w]
        if (two | hides_too) & ~one & pure & ~(hides & ~two) | (differ | hides_too) & ~hides & blind:
            first = False
        if (one | hides) & ~two & pure & ~(hides_too & ~one) | (differ | hides) & ~hides_too & blind:
            second = False
        if not first and not second:
            return 0
    for w in range(1 + 2 * masks, width):
        guard = classes[w - 1 + masks]
        if ((b[j + w] | guard) - a[i + w]) & guard != guard:
            first = False
        if ((a[i + w] | guard) - b[j + w]) & guard != guard:
            second = False
    return 1 if first else 2 if second else 0


@loop
def _find(words: Words, row: Words, at_row: int, width: int, links: Longs) -> int:
    """The place of this row in the hash table, or -1 if the row is there already."""
    capacity = links[CAPACITY]
    size, table = 2 * capacity - 1, CHAIN + 2 * capacity
    place = table + int(np.int64(_hash(row, at_row, width) & np.uint64(size)))
    while links[place + size + 1] == links[EPOCH]:
        at = links[place] * width
        same = True
        for i in range(width):
            if words[at + i] != row[at_row + i]:
                same = False
                break
        if same:
            return -1
        place = table + ((place - table + 1) & size)
    return int(place)


@loop
def _index(words: Words, width: int, links: Longs) -> None:
    """Puts all rows into the hash table, which is empty."""
    for number in range(links[COUNT]):
        place = _find(words, words, number * width, width, links)
        if place >= 0:
            links[place] = number
            links[place + 2 * links[CAPACITY]] = links[EPOCH]


@inlined
def _unrivalled(
    words: Words, row: Words, at: int, masks: int, width: int, classes: Words, links: Longs, head: int
) -> bool:
    """True if no row in this chain is at least as good as `row[at]`. Removes those that are now no better than it."""
    this, before = links[head], -1
    for _ in range(_SCAN):
        if this < 0:
            break
        after = links[CHAIN + this]
        better = _compare(words, this * width, row, at, masks, width, classes)
        if better == 1:
            return False
        if better == 2:
            links[CHAIN + this] = GONE
            if before < 0:
                links[head] = after
            else:
                links[CHAIN + before] = after
        else:
            before = this
        this = after
    return True


@inlined
def admit(rows: Rows, row: Words, at: int, node: int, masks: int, width: int, classes: Words) -> int:
    """Adds `row[at]` unless another row is at least as good. Returns its number, REJECTED, or FULL."""
    words, links = rows.words, rows.links
    epoch, count, capacity = links[EPOCH], links[COUNT], links[CAPACITY]
    place = -1
    if count >= _SCAN:
        place = _find(words, row, at, width, links)
        if place < 0:
            return REJECTED
    states = (links.shape[0] - CHAIN - 6 * capacity) >> 1
    head = CHAIN + 6 * capacity + int(np.int64(row[at] & LOW_HALF))
    if links[head + states] != epoch:
        links[head + states] = epoch
        links[head] = -1
    elif not _unrivalled(words, row, at, masks, width, classes, links, head):
        return REJECTED
    if count >= links[LIMIT]:
        return FULL
    if place >= 0:
        links[place] = count
        links[place + 2 * capacity] = epoch
    for i in range(width):
        words[count * width + i] = row[at + i]
    links[CHAIN + count] = links[head]
    links[CHAIN + capacity + count] = node
    links[head] = count
    links[COUNT] = count + 1
    if count + 1 == _SCAN:
        _index(words, width, links)
    return int(count)
