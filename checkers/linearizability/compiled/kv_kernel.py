# ruff: noqa: SIM110 - what is compiled is loops
"""Keys with put, append and get, compiled: from their strings to a table, and from there to a verdict.

A string matters only as long as some get may still show it, or a longer one that it begins: the states are the
beginnings of strings that were seen, and one more for all others (`KV.narrow`). Not all beginnings, either, but those
to which tokens lead: from nothing, or from what a put left, one append after the other.

A position in a string that was seen stands for what is in front of it. Two such strings share the states of what they
have in common; `place` has the state at every position of those that are not the beginning of another one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.closed_table import MAX_CELLS, MAX_STATES
from checkers.linearizability.compiled.batch_kernel import inserted, judge, room
from checkers.linearizability.compiled.jit import compiled, inlined
from checkers.linearizability.compiled.kernel import INVALID, POSITION, VALID, WORK, Space
from checkers.linearizability.compiled.kv_batch import APPEND, GET, PUT
from checkers.linearizability.history.events import NEVER, Bytes, Ints, Longs, Words
from checkers.linearizability.history.table import BLIND, PURE, Dense

Characters = npt.NDArray[np.uint32]

_MOST_GETS: Final = 2_000
"""Different strings that the gets of a key may show: each is compared with the others."""

_BASE: Final = np.uint64(0x100000001B3)
_SHIFT: Final = np.uint64(24)


class Texts(NamedTuple):
    """Strings of one key: number n has the characters from `at[n]` to `at[n + 1]`."""

    characters: Characters
    at: Longs


class Tokens(NamedTuple):
    """What is appended. `kind` of each, in a hash table by its characters (-1: a free place); `lengths`: those there
    are, shortest first; `powers`: of the base of hashes, with those exponents.
    """

    kind: Ints
    text: Ints
    hashes: Words
    lengths: Longs
    powers: Words


@inlined
def _common(texts: Texts, one: int, other: int) -> int:
    """How many characters two strings begin with together."""
    i, j = texts.at[one], texts.at[other]
    most = min(texts.at[one + 1] - i, texts.at[other + 1] - j)
    found = 0
    while found < most and texts.characters[i + found] == texts.characters[j + found]:
        found += 1
    return found


@inlined
def _hash(characters: Characters, begin: int, end: int) -> np.uint64:
    """A polynomial of the characters (Karp and Rabin, 1987): that of a part follows from those of two beginnings."""
    found = np.uint64(0)
    for i in range(begin, end):
        found = found * _BASE + np.uint64(characters[i])
    return found


@inlined
def _slot(hashed: np.uint64, last: int) -> int:
    """Where in a table of `last` + 1 places."""
    return np.int64((hashed * _BASE) >> _SHIFT) & last  # type: ignore[return-value]


@compiled
def _tokens(texts: Texts, what: Bytes, text: Ints, kinds: int) -> Tokens:
    size = 4
    while size < 2 * kinds:
        size *= 2
    kind, of_text, hashes = np.full(size, -1, np.int32), np.zeros(size, np.int32), np.zeros(size, np.uint64)
    lengths = np.zeros(kinds, np.int64)
    count = 0
    for k in range(kinds):
        if what[k] != APPEND:
            continue
        begin, end = texts.at[text[k]], texts.at[text[k] + 1]
        hashed = _hash(texts.characters, begin, end)
        slot = _slot(hashed, size - 1)
        while kind[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        kind[slot], of_text[slot], hashes[slot] = k, text[k], hashed
        place = 0
        while place < count and lengths[place] < end - begin:
            place += 1
        if place == count or lengths[place] != end - begin:
            for i in range(count, place, -1):
                lengths[i] = lengths[i - 1]
            lengths[place] = end - begin
            count += 1
    powers = np.ones(count, np.uint64)
    for i in range(count):
        for _ in range(lengths[i]):
            powers[i] *= _BASE
    return Tokens(kind, of_text, hashes, lengths[:count], powers)


@inlined
def _token(tokens: Tokens, texts: Texts, begin: int, length: int, hashed: np.uint64) -> int:
    """The kind that appends just these characters, or -1."""
    characters = texts.characters
    last = len(tokens.kind) - 1
    slot = _slot(hashed, last)
    while tokens.kind[slot] >= 0:
        own = texts.at[tokens.text[slot]]
        if tokens.hashes[slot] == hashed and texts.at[tokens.text[slot] + 1] - own == length:
            same = 0
            while same < length and characters[own + same] == characters[begin + same]:
                same += 1
            if same == length:
                return int(tokens.kind[slot])
        slot = (slot + 1) & last
    return -1


@compiled
def table(texts: Texts, what: Bytes, text: Ints, kinds: int, worth: int) -> Dense:
    """The closed table of a key whose kind k does `what[k]` with the string `text[k]`; the state 0 is the empty string.

    Its cells are none where they would be more than `worth`, or there are more states than `MAX_STATES`.
    """
    too_large = Dense(
        np.zeros((0, 0), np.int32), np.zeros(0, np.uint8), np.zeros(0, np.int32), np.zeros(0, np.int32),
        np.zeros(1, np.int32),
    )  # fmt: skip
    most = min(MAX_STATES, worth // kinds) - 1
    tokens = _tokens(texts, what, text, kinds)
    gets = characters = longest = 0
    for kind in range(kinds):
        if what[kind] == GET:
            gets += 1
            size = texts.at[text[kind] + 1] - texts.at[text[kind]]
            characters += size
            longest = max(longest, size)
    if gets > _MOST_GETS or most < 1:
        return too_large
    shorter, get_of = np.zeros(gets, np.int64), np.zeros(gets, np.int64)
    gets = 0
    for kind in range(kinds):
        if what[kind] == GET:
            shorter[gets], get_of[gets] = texts.at[text[kind]] - texts.at[text[kind] + 1], kind
            gets += 1
    order = np.argsort(shorter)  # long strings first
    place, used = np.full(characters + gets, -1, np.int32), 0
    hashes = np.zeros(longest + 1, np.uint64)  # of what is in front of each position of a string
    base = np.full(kinds, -1, np.int64)  # where a get's string begins in `place`, if it is there
    leads = np.full(kinds, -1, np.int32)
    links, found = np.zeros(8 * kinds + 3 * len(tokens.lengths), np.int32), 0  # state, append, state after it; ...
    states = 1
    for i in range(gets):
        get = get_of[order[i]]
        begin, size = texts.at[text[get]], texts.at[text[get] + 1] - texts.at[text[get]]
        shared, other = 0, -1
        for j in range(i):
            earlier = get_of[order[j]]
            if base[earlier] >= 0:
                common = _common(texts, text[get], text[earlier])
                if common >= shared:
                    shared, other = common, earlier
                if common == size:
                    break
        if other >= 0 and shared == size:
            leads[get] = place[base[other] + size]
            continue
        own = place[used : used + size + 1]
        base[get] = used
        used += size + 1
        own[0] = 0
        if other >= 0:
            for position in range(shared + 1):
                own[position] = place[base[other] + position]
        for put in range(kinds):
            if what[put] == PUT:
                end = texts.at[text[put] + 1] - texts.at[text[put]]
                if end <= size and _common(texts, text[put], text[get]) == end:
                    if own[end] < 0:
                        own[end] = states
                        states += 1
                    leads[put] = own[end]
        for position in range(size):
            hashes[position + 1] = hashes[position] * _BASE + np.uint64(texts.characters[begin + position])
        for position in range(size + 1):
            if own[position] < 0:
                continue
            if found + 3 * len(tokens.lengths) > len(links):
                links = _longer(links)
            for n in range(len(tokens.lengths)):
                length = tokens.lengths[n]
                end = position + length
                if end > size:
                    break
                hashed = hashes[end] - hashes[position] * tokens.powers[n]
                kind = _token(tokens, texts, begin + position, length, hashed)
                if kind < 0:
                    continue
                if own[end] < 0:
                    own[end] = states
                    states += 1
                links[found], links[found + 1], links[found + 2] = own[position], kind, own[end]
                found += 3
            if states > most:
                return too_large
        leads[get] = own[size]
    unseen = states
    step = np.full((states + 1, kinds), -1, np.int32)
    for kind in range(kinds):
        if what[kind] != GET:
            if leads[kind] < 0:
                leads[kind] = unseen
            for state in range(states + 1):
                step[state, kind] = leads[kind]
        elif leads[kind] >= 0:
            step[leads[kind], kind] = leads[kind]
    for link in range(0, found, 3):
        step[links[link], links[link + 1]] = links[link + 2]
    return _derived(step)


@compiled
def _derived(step: Ints) -> Dense:
    """As `closed_table` does it."""
    states, kinds = step.shape
    flags, target = np.zeros(kinds, np.uint8), np.full(kinds, -1, np.int32)
    legal, first = np.zeros(states * kinds, np.int32), np.zeros(kinds + 1, np.int32)
    found = 0
    for kind in range(kinds):
        pure = blind = True
        for state in range(states):
            after = step[state, kind]
            if after >= 0:
                legal[found] = state
                found += 1
                pure = pure and after == state
            blind = blind and after >= 0 and after == step[0, kind]
        first[kind + 1] = found
        if pure:
            flags[kind] = PURE
        elif blind:
            flags[kind] = BLIND
            target[kind] = step[0, kind]
    return Dense(step, flags, target, legal[:found], first)


@compiled
def _longer(numbers: Ints) -> Ints:
    grown = np.zeros(2 * len(numbers), np.int32)
    for i in range(len(numbers)):
        grown[i] = numbers[i]
    return grown


@compiled
def _at_once(call: Longs, ret: Longs) -> bool:
    """Do two events have the same time?"""
    stamps, which = np.zeros(2 * len(call), np.int64), np.zeros(2 * len(call), np.int32)
    count = 0
    for op in range(len(call)):
        stamps[count] = call[op]
        count += 1
        if ret[op] != NEVER:
            stamps[count] = ret[op]
            count += 1
    stamps, which = stamps[:count], which[:count]
    if not inserted(stamps, which):
        stamps.sort()
    for i in range(1, count):
        if stamps[i] == stamps[i - 1]:
            return True
    return False


@compiled
def walk_stores(
    ops: Longs, first: Longs, characters: Characters, lengths: Longs, texts: Longs, space: Space, rows: int,
    verdict: Bytes, failing: Longs,
) -> int:  # fmt: skip
    """Judges every key of a portion (`stores.KvBatch`; `lengths` of its strings, which are in `characters` one behind
    the other). Leaves `verdict` and `failing` as they are where that decides nothing. Returns the work.
    """
    longest = 0
    for key in range(first.shape[0] - 1):
        longest = max(longest, first[key + 1] - first[key])
    place, group = room(longest), np.arange(longest, dtype=np.int32)
    at = np.zeros(len(lengths) + 1, np.int64)
    for i in range(len(lengths)):
        at[i + 1] = at[i] + lengths[i]
    kind, call, ret = np.zeros(longest, np.int32), np.zeros(longest, np.int64), np.zeros(longest, np.int64)
    what, text = np.zeros(longest, np.uint8), np.zeros(longest, np.int32)
    work = 0
    for key in range(first.shape[0] - 1):
        begin, count = first[key], first[key + 1] - first[key]
        if count == 0:
            continue
        number = np.full(3 * (texts[key + 1] - texts[key]), -1, np.int32)
        kinds = events = 0
        for op in range(count):
            row = 4 * (begin + op)
            own = 3 * ops[row + 1] + ops[row]
            if number[own] < 0:
                number[own] = kinds
                what[kinds], text[kinds] = ops[row], ops[row + 1]
                kinds += 1
            kind[op], call[op], ret[op] = number[own], ops[row + 2], ops[row + 3]
            events += 1 if ret[op] == NEVER else 2
        if _at_once(call[:count], ret[:count]):
            continue
        strings = Texts(characters, at[texts[key] : texts[key + 1] + 1])
        dense = table(strings, what, text, kinds, min(2_000 + 100 * events, MAX_CELLS))
        if dense.step.shape[0] == 0:
            continue
        code = judge(kind[:count], call[:count], ret[:count], dense, group[: dense.flags.shape[0]], place, space, rows)
        work += space.told[WORK]
        if code == VALID:
            verdict[key] = VALID
        elif code == INVALID:
            verdict[key] = INVALID
            failing[key] = call[place.events[space.told[POSITION]] >> 1]
    return work
