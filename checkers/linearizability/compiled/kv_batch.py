"""Many keys of a store with put, append and get, each with a table of its own, in one compiled call.

Keys have no string in common: one table of all would be large and empty. Their calls become numbers and their strings
one row of characters; the tables that follow from these, and the verdicts, are compiled.

A string matters only as long as some get may still show it, or a longer one that begins with it (`KV.narrow`). So the
states are beginnings of strings that gets showed; of those, only the ones that tokens lead to: from nothing, or from
what a put left, one append after the other. All other strings are one more state.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.linearizability.closed_table import MAX_STATES, worth
from checkers.linearizability.compiled.batch_kernel import BATCH, judge, quick_steps, room
from checkers.linearizability.compiled.code_cache import Part, ensure
from checkers.linearizability.compiled.jit import compiled, inlined, loop
from checkers.linearizability.compiled.kernel import INVALID, POSITION, SPENT, WORK, Space
from checkers.linearizability.compiled.workspace import workspace
from checkers.linearizability.history.events import NEVER, NONE, Bytes, Ints, Longs
from checkers.linearizability.history.table import BLIND, ILLEGAL, PURE, Dense
from results.history import Call
from results.op import FAIL, OK, Op

_GET: Final = 0
_PUT: Final = 1
_APPEND: Final = 2
_CODES: Final = {"get": _GET, "put": _PUT, "append": _APPEND}

_AT_ONCE: Final = 1 << 22
"""Characters in a batch of keys. A key that has more is one by itself."""


class KvBatch:
    """Keys one behind the other. `begin`: the number of the first.

    ops      three numbers each: its kind, when it was called, when it returned; those of key k from `3 * first[k]` on.
    strings  of every kind, and `fs`, what it does with that; those of key k from `kinds[k]` on.
    """

    def __init__(self, begin: int) -> None:
        self.begin, self.characters = begin, 0
        self.ops, self.first = array("q"), array("q", [0])
        self.strings: list[str] = []
        self.fs, self.kinds = bytearray(), array("q", [0])

    def add(self, calls: Sequence[Call]) -> None:
        """One more key; without any op where a call is not quite what it should be: others say what is wrong."""
        with suppress(ValueError, TypeError, OverflowError):
            self._add(calls)
        self.first.append(len(self.ops) // 3)
        self.kinds.append(len(self.fs))

    def _add(self, calls: Sequence[Call]) -> None:
        numbers: dict[str, dict[str, int]] = {"get": {}, "put": {}, "append": {}}
        strings: list[str] = []
        fs, ops = bytearray(), list[int]()
        for call in calls:
            invoke, completion = call.invoke, call.completion
            f, value, end = invoke.f, invoke.value, NEVER
            own = numbers.get(f)
            if own is None or invoke.process < 0:
                continue
            if completion is not None:
                if completion.f != f:
                    raise ValueError("it is completed by another one")
                if completion.type == OK:
                    end = completion.index
                    if f == "get":
                        value = "" if completion.value is None else completion.value
                elif completion.type == FAIL:
                    continue
            if end == NEVER and f == "get":
                if value is None or isinstance(value, str):
                    continue
                raise TypeError("no string")
            kind = own.get(value)
            if kind is None:
                kind = own[value] = len(strings)
                strings.append(value)
                fs.append(_CODES[f])
            ops += kind, invoke.index, end
        characters = len("".join(strings))  # (Takes nothing but strings.)
        self.ops += array("q", ops)
        self.strings += strings
        self.fs += fs
        self.characters += characters


Characters = npt.NDArray[np.uint32]


class Texts(NamedTuple):
    """Strings: number n has the characters from `at[n]` to `at[n + 1]`."""

    characters: Characters
    at: Longs


_worth: Final = inlined(worth)


@inlined
def _common(texts: Texts, one: int, other: int, at: int) -> int:
    """How many characters of `one` stand in `other` from place `at` on."""
    i, j = texts.at[one], texts.at[other] + at
    most = min(texts.at[one + 1] - i, texts.at[other + 1] - j)
    found = 0
    while found < most and texts.characters[i + found] == texts.characters[j + found]:
        found += 1
    return found


@inlined
def _state(state_at: Ints, place: int, step: Ints, states: int) -> int:
    """A state for what is in front of that place, if it has none yet. Returns how many there are."""
    if state_at[place] >= 0:
        return states
    state_at[place], step[states] = states, ILLEGAL
    return states + 1


@compiled
def _table(texts: Texts, fs: Bytes, low: int, cells: int) -> Dense:
    """The closed table of a key; its kind k does `fs[k]` with the text `low + k`. State 0 is "". `legal` is empty where
    the table would have more than `cells`.
    """
    kinds = len(fs)
    most = min(MAX_STATES, cells // kinds) - 1
    size = texts.at[low + 1 : low + kinds + 1] - texts.at[low : low + kinds]
    step, leads = np.empty((most + 2, kinds), np.int32), np.full(kinds, NONE, np.int32)
    step[0] = ILLEGAL
    flags, target, first = np.zeros(kinds, np.uint8), np.full(kinds, ILLEGAL, np.int32), np.zeros(kinds + 1, np.int32)
    # Of a string that is not the beginning of another one: where the states of its places stand in `state_at`.
    base, used = np.full(kinds, NONE, np.int64), 0
    state_at = np.full((size * (fs == _GET)).sum() + kinds, NONE, np.int32)
    states = 1
    for get in np.argsort(-size):
        if fs[get] != _GET:
            continue
        shared, like = 0, NONE
        for other in range(kinds):
            if base[other] >= 0 and shared < size[get]:
                common = _common(texts, low + get, low + other, 0)
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
            if fs[put] == _PUT and _common(texts, low + put, low + get, 0) == size[put]:
                states = _state(own, size[put], step, states)
                leads[put] = own[size[put]]
        for place in range(len(own)):
            if own[place] >= 0:
                if states + kinds > most:
                    return Dense(step, flags, target, target[:0], first)
                for append in range(kinds):
                    if fs[append] == _APPEND and _common(texts, low + append, low + get, place) == size[append]:
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
    """Does each op end after it began, and has no other event its time? `events` are in order of time."""
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
    ops: Longs, first: Longs, characters: Characters, sizes: Longs, fs: Bytes, kinds: Longs, space: Space, rows: int,
    quick: Longs, verdict: Bytes, failing: Longs, work: Longs,
) -> None:  # fmt: skip
    """Judges every key as `batch_kernel` does a history. `sizes`: of the strings."""
    at = np.zeros(len(sizes) + 1, np.int64)
    at[1:] = np.cumsum(sizes)
    texts = Texts(characters, at)
    place, group = room(np.max(first[1:] - first[:-1])), np.arange(np.max(kinds[1:] - kinds[:-1]), dtype=np.int32)
    for key in range(len(first) - 1):
        low, high = kinds[key], kinds[key + 1]
        own = ops[3 * first[key] : 3 * first[key + 1]]
        if low == high:
            continue
        dense = _table(texts, fs[low:high], low, _worth(2 * len(own) // 3))
        if not len(dense.legal):
            continue
        kind, call, ret = own[::3].astype(np.int32), own[1::3].copy(), own[2::3].copy()
        code = judge(kind, call, ret, dense, group[: high - low], place, space, rows, quick)
        if code >= SPENT or not _in_order(place.events[: 2 * len(ret) - (ret == NEVER).sum()], call, ret):
            continue
        verdict[key], work[key] = code, space.told[WORK]
        if code == INVALID:
            failing[key] = call[place.events[space.told[POSITION]] >> 1]


def walk_keys(histories: Sequence[Sequence[Call]], memory: int, verdict: Bytes, failing: Longs, work: Longs) -> None:
    """`batch_kernel.walk_packed` for keys of `KV`. Nothing stays of those that it does not decide."""
    ensure(KEYS)
    for batch in _batches(histories):
        space, rows = workspace().prepare(MAX_STATES, memory)
        first = np.array(batch.first)
        characters = np.frombuffer("".join(batch.strings).encode("utf-32-le", "surrogatepass"), np.uint32)
        sizes = np.array(list(map(len, batch.strings)))
        own = slice(batch.begin, batch.begin + len(first) - 1)
        _judge_keys(
            np.array(batch.ops), first, characters, sizes, np.array(batch.fs), np.array(batch.kinds), space, rows,
            quick_steps(), verdict[own], failing[own], work[own],
        )  # fmt: skip


def _batches(histories: Iterable[Sequence[Call]]) -> Iterator[KvBatch]:
    batch = KvBatch(0)
    for key, calls in enumerate(histories):
        batch.add(calls)
        if batch.characters > _AT_ONCE:
            yield batch
            batch = KvBatch(key + 1)
    if batch.strings:
        yield batch


def _run_keys() -> None:
    op = Op(0, 0, 0, "invoke", "put", "k", "a"), Op(1, 1, 0, "ok", "put", "k", "a")
    walk_keys([[Call(*op)]], 1 << 26, np.zeros(1, np.uint8), *np.full((2, 1), NONE, np.int64))


KEYS: Final = Part("keys", _run_keys, 10, BATCH)
