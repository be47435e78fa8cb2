# SPDX-License-Identifier: Apache-2.0
"""Many keys of a store with put, append and get, each with its own table, in one compiled call.

Keys have no string in common: one table of all would be large and empty. Their calls become numbers and their strings
one row of characters; compiled code makes the tables from these, and the verdicts.

A string matters only as long as some get may still show it, or a longer one that begins with it (`KV.narrow`). So the
states are beginnings of strings that gets showed; of those, only the ones that tokens lead to: from the empty string,
or from the string of a put, one append after the other. All other strings are one more state.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.closed_table import MAX_STATES, worth
from checkers.linearizability.compiled.batch_kernel import BATCH, judge, quick_steps, room
from checkers.linearizability.compiled.code_cache import Part, ensure
from checkers.linearizability.compiled.jit import compiled, inlined, loop
from checkers.linearizability.compiled.kernel import INVALID, POSITION, SPENT, WORK, Space
from checkers.linearizability.compiled.workspace import workspace
from checkers.linearizability.history.arrays import Bytes, Dense, Ints, Longs
from checkers.linearizability.history.events import BLIND, ILLEGAL, NEVER, NONE, PURE
from results.history import Call
from results.op import FAIL, OK, Op

_GET: Final = 0
_PUT: Final = 1
_APPEND: Final = 2
_CODES: Final = {"get": _GET, "put": _PUT, "append": _APPEND, "delete": _PUT}

_AT_ONCE: Final = 1 << 22
"""Characters in a batch of keys. A key with more of them is a batch by itself."""


class KvBatch:
    """Keys one behind the other. `begin`: the number of the first.

    ops      four numbers each: code of the operation, number of its string, times of call and return; those of key k
             from `4 * first[k]` on.
    strings  all different ones of a key; those of key k from `texts[k]` on.
    """

    def __init__(self, begin: int) -> None:
        self.begin, self.characters = begin, 0
        self.ops, self.first = array("q"), array("q", [0])
        self.strings: list[str] = []
        self.texts = array("q", [0])

    def add(self, calls: Sequence[Call]) -> None:
        """Adds a key. Raises ValueError, TypeError or OverflowError if a call is malformed."""
        numbers: dict[str, int] = {}
        ops: list[int] = []
        for call in calls:
            invoke, completion = call.invoke, call.completion
            f = invoke.f
            if invoke.process < 0:
                continue
            code = _CODES.get(f)
            if code is None:
                raise ValueError("it is none of the model's")
            argument = "" if f == "delete" else invoke.value
            if completion is not None:
                if completion.f != f:
                    raise ValueError("it is completed by another one")
                if completion.type == OK:
                    value = argument if code else completion.value
                    if value is None and not code:
                        value = ""
                    ops += code, numbers.setdefault(value, len(numbers)), invoke.index, completion.index
                    continue
                if completion.type == FAIL:
                    continue
            if code:
                ops += code, numbers.setdefault(argument, len(numbers)), invoke.index, NEVER
            elif invoke.value is not None and not isinstance(invoke.value, str):
                raise TypeError("no string")
        characters = len("".join(numbers))  # (Takes nothing but strings.)
        self.ops += array("q", ops)
        self.strings += numbers
        self.characters += characters
        self.close()

    def close(self) -> None:
        """Ends a key. A key that `add` refused has no op here: its single check reports the error."""
        self.first.append(len(self.ops) // 4)
        self.texts.append(len(self.strings))


Characters = npt.NDArray[np.uint32]


class Texts(NamedTuple):
    """Strings: number n has `size[n]` characters from `at[n]` on."""

    characters: Characters
    at: Longs
    size: Longs


_worth: Final = inlined(worth)


@inlined
def _common(texts: Texts, one: int, other: int, at: int) -> int:
    """The number of leading characters of `one` that are also in `other` from place `at` on."""
    i, j = texts.at[one], texts.at[other] + at
    most = min(texts.size[one], texts.size[other] - at)
    found = 0
    while found < most and texts.characters[i + found] == texts.characters[j + found]:
        found += 1
    return found


@inlined
def _state(state_at: Ints, place: int, step: Ints, states: int) -> int:
    """Makes a state for the characters in front of that place, if it has none yet. Returns the number of states."""
    if state_at[place] >= 0:
        return states
    state_at[place], step[states] = states, ILLEGAL
    return states + 1


@compiled
def _table(texts: Texts, fs: Bytes, cells: int) -> Dense:
    """The closed table of a key; its kind k does `fs[k]` with the text k. State 0 is "". `legal` is empty if the table
    would have more than `cells`.
    """
    kinds, size = len(fs), texts.size
    most = min(MAX_STATES, cells // kinds) - 1
    step, leads = np.empty((most + 2, kinds), np.int32), np.full(kinds, NONE, np.int32)
    step[0] = ILLEGAL
    flags, target, first = np.zeros(kinds, np.uint8), np.full(kinds, ILLEGAL, np.int32), np.zeros(kinds + 1, np.int32)
    # For a string that is not the beginning of another one: the place of its states in `state_at`.
    base, used = np.full(kinds, NONE, np.int64), 0
    state_at = np.full((size * (fs == _GET)).sum() + kinds, NONE, np.int32)
    states = 1
    for get in np.argsort(-size):
        if fs[get] != _GET:
            continue
        shared, like = 0, NONE
        for other in range(kinds):
            if base[other] >= 0 and shared < size[get]:
                common = _common(texts, get, other, 0)
                if common >= shared:
                    shared, like = common, other
        if like >= 0 and shared == size[get]:
            leads[get] = state_at[base[like] + shared]
            continue
        own = state_at[used : used + size[get] + 1]
        base[get], used = used, used + len(own)
        own[0] = 0
        if like >= 0:
            own[: shared + 1] = state_at[base[like] : base[like] + shared + 1]
        for put in range(kinds):
            if fs[put] == _PUT and _common(texts, put, get, 0) == size[put]:
                states = _state(own, size[put], step, states)
                leads[put] = own[size[put]]
        for place in range(len(own)):
            if own[place] >= 0:
                if states + kinds > most:
                    return Dense(step, flags, target, target[:0], first)
                for append in range(kinds):
                    if fs[append] == _APPEND and _common(texts, append, get, place) == size[append]:
                        end = place + size[append]
                        states = _state(own, end, step, states)
                        step[own[place], append] = own[end]
        leads[get] = own[size[get]]
    step[states] = ILLEGAL
    legal, count = np.empty((states + 1) * kinds, np.int32), 0
    for kind in range(kinds):
        if fs[kind] == _GET and leads[kind] >= 0:
            step[leads[kind], kind] = leads[kind]
        blind = fs[kind] != _GET
        for state in range(states + 1):
            if fs[kind] == _PUT:
                step[state, kind] = leads[kind]
            if fs[kind] != _GET and step[state, kind] < 0:
                step[state, kind] = states
            if step[state, kind] >= 0:
                legal[count] = state
                count += 1
            blind = blind and step[state, kind] == step[0, kind]
        first[kind + 1] = count
        if fs[kind] == _GET:
            flags[kind] = PURE
        elif blind:
            flags[kind], target[kind] = BLIND, step[0, kind]
    return Dense(step[: states + 1], flags, target, legal[:count], first)


@loop
def _in_order(events: Ints, call: Longs, ret: Longs) -> bool:
    """True if each op ends after it began, and no two events have one time. `events` are in order of time."""
    before = NONE
    for event in events:
        op = event >> 1
        now = ret[op] if event & 1 else call[op]
        if now == before or ret[op] <= call[op]:
            return False
        before = now
    return True


@compiled
def _judge_keys(
    ops: Longs, first: Longs, texts: Longs, characters: Characters, sizes: Longs, space: Space, rows: int,
    quick: Longs, verdict: Bytes, failing: Longs, work: Longs,
) -> None:  # fmt: skip
    """Judges every key as `batch_kernel` does a history. `sizes`: of the strings."""
    longest, at = np.max(first[1:] - first[:-1]), np.cumsum(sizes) - sizes
    place, group = room(longest), np.arange(longest, dtype=np.int32)
    for key in range(len(first) - 1):
        low, high = texts[key], texts[key + 1]
        own = ops[4 * first[key] : 4 * first[key + 1]]
        if low == high:
            continue
        call, ret = own[2::4].copy(), own[3::4].copy()
        kind, what, kinds = np.empty(len(call), np.int32), np.empty(len(call), np.int64), 0
        number = np.full(3 * (high - low), NONE, np.int32)
        for op in range(len(call)):
            code = 3 * own[4 * op + 1] + own[4 * op]
            if number[code] < 0:
                number[code], what[kinds] = kinds, code
                kinds += 1
            kind[op] = number[code]
        text, fs = low + what[:kinds] // 3, (what[:kinds] % 3).astype(np.uint8)
        dense = _table(Texts(characters, at[text], sizes[text]), fs, _worth(2 * len(call)))
        if not len(dense.legal):
            continue
        code = judge(kind, call, ret, dense, group[:kinds], place, space, rows, quick)
        if code >= SPENT or not _in_order(place.events[: 2 * len(ret) - (ret == NEVER).sum()], call, ret):
            continue
        verdict[key], work[key] = code, space.told[WORK]
        if code == INVALID:
            failing[key] = call[place.events[space.told[POSITION]] >> 1]


def walk_keys(histories: Sequence[Sequence[Call]], memory: int, verdict: Bytes, failing: Longs, work: Longs) -> None:
    """`batch_kernel.walk_packed` for keys of `KV`. The entries of keys that it does not decide stay unchanged."""
    ensure(KEYS)
    for batch in _batches(histories):
        space, rows = workspace().prepare(MAX_STATES, memory)
        ops, first, texts = map(np.array, (batch.ops, batch.first, batch.texts))
        characters = np.frombuffer("".join(batch.strings).encode("utf-32-le", "surrogatepass"), np.uint32)
        sizes = np.array(list(map(len, batch.strings)))
        own = slice(batch.begin, batch.begin + len(first) - 1)
        told = verdict[own], failing[own], work[own]
        _judge_keys(ops, first, texts, characters, sizes, space, rows, quick_steps(), *told)


def _batches(histories: Iterable[Sequence[Call]]) -> Iterator[KvBatch]:
    batch = KvBatch(0)
    for key, calls in enumerate(histories):
        try:
            batch.add(calls)
        except (ValueError, TypeError, OverflowError):
            batch.close()
        if batch.characters > _AT_ONCE:
            yield batch
            batch = KvBatch(key + 1)
    if batch.strings:
        yield batch


def _run_keys() -> None:
    op = Op(0, 0, 0, "invoke", "put", "k", "a"), Op(1, 1, 0, "ok", "put", "k", "a")
    walk_keys([[Call(*op)]], 1 << 26, np.zeros(1, np.uint8), *np.full((2, 1), NONE, np.int64))


KEYS: Final = Part("keys", _run_keys, 10, BATCH)
