# SPDX-License-Identifier: Apache-2.0
"""Independent objects: the same ops on one key after another, or on several keys at once.

A checker whose cost grows fast with the length of a history can check many short histories, one per key. If the
generator of a key returns an op without a key, the op gets this key. (Jepsen's `independent.clj`.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TypeAlias

from harness.generator.adapters import map_
from harness.generator.base import (
    EMPTY,
    Generator,
    GeneratorError,
    Invocation,
    Lazy,
    Pending,
    Source,
    Step,
    as_generator,
    place,
)
from harness.generator.choice import sooner
from harness.generator.context import Context, members
from harness.generator.dice import draw, split
from results.op import Op

Make: TypeAlias = Callable[[str], Source]


def sequential_keys(keys: Iterable[str], make: Make) -> Generator:
    """All ops of `make(key)` for one key after another."""
    known = Lazy(keys)

    def nth(n: int) -> Source:
        key = known.get(n)
        return None if key is None else _keyed(key, make(key))

    return as_generator(nth)


def concurrent_keys(threads: int, keys: Iterable[str], make: Make) -> Generator:
    """Groups of `threads` client threads; each group takes a key, does `make(key)`, and takes the next key.

    The group sees only its own threads, and hears only of them. The concurrency must be a multiple of `threads`.
    """
    if threads < 1:
        raise GeneratorError(f"concurrent_keys is given {threads} threads for each key; at least 1 is right")
    return _ConcurrentKeys(threads, Lazy(keys), make, (), 0)


@dataclass(frozen=True, slots=True, eq=False)
class _ConcurrentKeys(Generator):
    """groups  (its threads, the generator of its key); () before the first op.
    taken      keys that were given out.
    """

    size: int
    keys: Lazy
    make: Make
    groups: tuple[tuple[int, Generator], ...]
    taken: int

    def op(self, ctx: Context) -> Step:
        groups = list(self.groups or self._grouped(ctx))
        taken = self.taken
        wait: Pending | None = None
        first = ctx.turn % len(groups)
        for at in (*range(first, len(groups)), *range(first)):
            threads, gen = groups[at]
            inner = ctx.narrowed(threads)
            step = gen.op(inner)
            barren = 0
            while step is None:
                key = self.keys.get(taken)
                barren = _patience(barren)
                if key is None:
                    groups[at] = threads, EMPTY
                    break
                taken += 1
                step = _keyed(key, self.make(key)).op(inner)
            if step is None:
                continue
            what, rest = step
            groups[at] = threads, rest
            if not isinstance(what, Pending):
                return place(what, inner), self._with(groups, taken)
            wait = sooner(wait, what)
        return None if wait is None else (wait, self._with(groups, taken))

    def update(self, ctx: Context, event: Op) -> Generator:
        bit = ctx.bit(event.process)
        for at, (threads, gen) in enumerate(self.groups):
            if threads & bit:
                after = gen.update(ctx.narrowed(threads), event)
                if after is gen:
                    return self
                return self._with([*self.groups[:at], (threads, after), *self.groups[at + 1 :]], self.taken)
        return self

    def _grouped(self, ctx: Context) -> list[tuple[int, Generator]]:
        threads = list(members(ctx.takers))
        if not threads or len(threads) % self.size:
            raise GeneratorError(
                f"concurrent_keys needs groups of {self.size} threads, but there are {len(threads)}; "
                f"the concurrency must be a multiple of {self.size}"
            )
        starts = range(0, len(threads), self.size)
        return [(sum(1 << t for t in threads[i : i + self.size]), EMPTY) for i in starts]

    def _with(self, groups: list[tuple[int, Generator]], taken: int) -> _ConcurrentKeys:
        return _ConcurrentKeys(self.size, self.keys, self.make, tuple(groups), taken)


def key_window(
    rng: Random,
    width: int,
    per_key: int | None,
    make: Make,
    *,
    prefix: str = "k",
    keys: Iterable[str] | None = None,
) -> Generator:
    """Ops on `width` keys at a time, each op on a random one of them. When a key has had `per_key` ops (None: no
    limit), or `make(key)` ends, the next key takes its place. Keys are `k0`, `k1`, ..., or those given by `keys`;
    when they run out, the window narrows, and ends with the last.

    The stream of ops depends on the seed alone: it is the same however fast the servers answer and whichever
    processes do it. (So if the drawn key is pending, all wait for it; and the generators of `make` should not depend on
    the results of their ops.) `make` is called once for each key, in order of the keys, and
    may draw seeds from an `rng` of its own.
    """
    if width < 1 or (per_key is not None and per_key < 1):
        raise GeneratorError(f"key_window has width {width} and {per_key} ops per key; at least 1 of each is right")
    made = _Made(Lazy(keys if keys is not None else (f"{prefix}{n}" for n in count())), make)
    slots = [slot for slot in (made.slot(n, per_key) for n in range(width)) if slot is not None]
    return _KeyWindow(made, per_key, split(rng), tuple(slots), len(slots), 0, None)


class _Made:
    """The results of `make` for each key. Kept, so that a second call of a generator makes nothing twice."""

    def __init__(self, keys: Lazy, make: Make) -> None:
        self._keys, self._make = keys, make
        self._made: list[tuple[str, Generator]] = []

    def slot(self, n: int, per_key: int | None) -> _Slot | None:
        """The n-th key at its beginning; None beyond the last. Keys must be requested in order."""
        if n == len(self._made):
            key = self._keys.get(n)
            if key is None:
                return None
            self._made.append((key, as_generator(self._make(key))))
        key, gen = self._made[n]
        return key, gen, per_key


_Slot: TypeAlias = tuple[str, Generator, int | None]
"""A key, the generator of its ops, and the number of ops left."""


@dataclass(frozen=True, slots=True, eq=False)
class _KeyWindow(Generator):
    """`following`: number of the next key; `n`: of the next draw; `at`: the slot that was drawn and is pending."""

    made: _Made
    per_key: int | None
    seed: int
    slots: tuple[_Slot, ...]
    following: int
    n: int
    at: int | None

    def op(self, ctx: Context) -> Step:
        slots, following, n, at = self.slots, self.following, self.n, self.at
        barren = 0
        while slots:
            if at is None:
                at = draw(self.seed, n) % len(slots)
                n += 1
            key, gen, left = slots[at]
            step = gen.op(ctx)
            if step is None:
                barren = _patience(barren)
                slot = self.made.slot(following, self.per_key)
                slots = (*slots[:at], *((slot,) if slot else ()), *slots[at + 1 :])
                following, at = following + (slot is not None), None
                continue
            what, rest = step
            if isinstance(what, Pending):
                slots = (*slots[:at], (key, rest, left), *slots[at + 1 :])
                return what, _KeyWindow(self.made, self.per_key, self.seed, slots, following, n, at)
            if left is not None:
                left -= 1
            rest = EMPTY if left == 0 else rest
            slots = (*slots[:at], (key, rest, left), *slots[at + 1 :])
            after = _KeyWindow(self.made, self.per_key, self.seed, slots, following, n, None)
            return what if what.key is not None else what.on(key), after
        return None

    def update(self, ctx: Context, event: Op) -> Generator:
        wanted = event.key
        for at, slot in enumerate(self.slots):
            if slot[0] == wanted:
                key, gen, left = slot
                after = gen.update(ctx, event)
                if after is gen:
                    return self
                slots = (*self.slots[:at], (key, after, left), *self.slots[at + 1 :])
                return _KeyWindow(self.made, self.per_key, self.seed, slots, self.following, self.n, self.at)
        return self


def _patience(barren: int) -> int:
    """Counts one more key without ops. Raises GeneratorError after too many, as endless keys would lead to."""
    if barren == 10_000:
        raise GeneratorError("10,000 keys in a row gave no op; the generator of a key must have some")
    return barren + 1


def _keyed(key: str, source: Source) -> Generator:
    def name(op: Invocation) -> Invocation:
        return op if op.key is not None else op.on(key)

    return map_(name, source)
