# SPDX-License-Identifier: Apache-2.0
"""Generators that choose one of several: any ready one, a random one, or the next in turn."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from harness.generator.base import EMPTY, Generator, GeneratorError, Pending, Source, Step, as_generator
from harness.generator.context import Context
from harness.generator.dice import split, unit
from results.op import Op


def any_(*sources: Source) -> Generator:
    """An op of any source that has one; if several have, each in its turn, so that none starves. Updates go to all.
    Ends when all have ended.
    """
    return _Any(tuple(as_generator(source) for source in sources), 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Any(Generator):
    """`turn`: the one that is called first. Ended ones stay, as EMPTY, so that the turns of the others do not shift."""

    gens: tuple[Generator, ...]
    turn: int

    def op(self, ctx: Context) -> Step:
        gens = self.gens
        n = len(gens)
        changed: list[Generator] | None = None
        wait: Pending | None = None
        for at in (*range(self.turn, n), *range(self.turn)):
            before = gens[at]
            if before is EMPTY:
                continue
            step = before.op(ctx)
            what, rest = step if step is not None else (None, EMPTY)
            if rest is not before:
                if changed is None:
                    changed = list(gens)
                changed[at] = rest
            if isinstance(what, Pending):
                wait = sooner(wait, what)
            elif what is not None:
                return what, _Any(tuple(changed) if changed else gens, (at + 1) % n)
        if wait is None:
            return None
        return wait, _Any(tuple(changed), self.turn) if changed else self

    def update(self, ctx: Context, event: Op) -> Generator:
        gens = _updated(self.gens, ctx, event)
        return self if gens is self.gens else _Any(gens, self.turn)


def shortest_any(*sources: Source) -> Generator:
    """As `any_`, but ends as soon as one of them ends."""
    return _ShortestAny(tuple(as_generator(source) for source in sources), 0)


@dataclass(frozen=True, slots=True, eq=False)
class _ShortestAny(Generator):
    gens: tuple[Generator, ...]
    turn: int

    def op(self, ctx: Context) -> Step:
        n = len(self.gens)
        gens = list(self.gens)
        chosen: Step = None
        wait: Pending | None = None
        for at in (*range(self.turn, n), *range(self.turn)):
            step = gens[at].op(ctx)
            if step is None:
                return None
            what, rest = step
            if isinstance(what, Pending):
                gens[at] = rest
                wait = sooner(wait, what)
            elif chosen is None:
                chosen = what, self
                gens[at], turn = rest, (at + 1) % n
        if chosen is not None:
            return chosen[0], _ShortestAny(tuple(gens), turn)
        return None if wait is None else (wait, _ShortestAny(tuple(gens), self.turn))

    def update(self, ctx: Context, event: Op) -> Generator:
        gens = _updated(self.gens, ctx, event)
        return self if gens is self.gens else _ShortestAny(gens, self.turn)


def mix(rng: Random, sources: Mapping[Source, float] | Sequence[Source]) -> Generator:
    """Each op from a random one of `sources`: a list (all alike), or a dictionary source -> weight.

    The source of the n-th op depends on the seed and n alone. So if the drawn one is pending, the mix waits for it:
    another one would make the stream depend on timing (`any_` does that). One that ends is left out from then on;
    an Invocation ends after one op, so write `repeat(Invocation("read"))`, or a function.

        mix(rng, {read: 2, write: 2, cas: 1})
    """
    weights = sources if isinstance(sources, Mapping) else None
    gens = tuple(as_generator(source) for source in sources)
    shares = tuple(weights.values()) if weights is not None else (1.0,) * len(gens)
    for share in shares:
        if not (math.isfinite(share) and share > 0):
            raise GeneratorError(f"a weight of a mix is {share!r}; a finite number above 0 is right")
    return _Mix(gens, tuple(accumulate(shares)), split(rng), 0, None)


@dataclass(frozen=True, slots=True, eq=False)
class _Mix(Generator):
    """`sums` are cumulative weights; `at` is the source that was drawn for op `n` and is still pending."""

    gens: tuple[Generator, ...]
    sums: tuple[float, ...]
    seed: int
    n: int
    at: int | None

    def op(self, ctx: Context) -> Step:
        gens, sums, n, at = self.gens, self.sums, self.n, self.at
        while gens:
            if at is None:
                at = bisect_right(sums, unit(self.seed, n) * sums[-1], 0, len(sums) - 1)
            step = gens[at].op(ctx)
            if step is None:
                shares = [b - a for a, b in zip((0.0, *sums), sums, strict=False)]
                del shares[at]
                gens, sums = gens[:at] + gens[at + 1 :], tuple(accumulate(shares))
                n, at = n + 1, None
                continue
            what, rest = step
            if rest is not gens[at]:
                gens = (*gens[:at], rest, *gens[at + 1 :])
            if isinstance(what, Pending):
                return what, _Mix(gens, sums, self.seed, n, at)
            return what, _Mix(gens, sums, self.seed, n + 1, None)
        return None

    def update(self, ctx: Context, event: Op) -> Generator:
        gens = _updated(self.gens, ctx, event)
        return self if gens is self.gens else _Mix(gens, self.sums, self.seed, self.n, self.at)


def flip_flop(a: Source, b: Source) -> Generator:
    """An op of `a`, one of `b`, one of `a`, ... Ends when the one whose turn it is has ended."""
    return _FlipFlop((as_generator(a), as_generator(b)), 0)


@dataclass(frozen=True, slots=True, eq=False)
class _FlipFlop(Generator):
    gens: tuple[Generator, ...]
    turn: int

    def op(self, ctx: Context) -> Step:
        step = self.gens[self.turn].op(ctx)
        if step is None:
            return None
        what, rest = step
        gens = (rest, self.gens[1]) if self.turn == 0 else (self.gens[0], rest)
        return what, _FlipFlop(gens, self.turn if isinstance(what, Pending) else 1 - self.turn)

    def update(self, ctx: Context, event: Op) -> Generator:
        gens = _updated(self.gens, ctx, event)
        return self if gens is self.gens else _FlipFlop(gens, self.turn)


def sooner(a: Pending | None, b: Pending) -> Pending:
    """The one of two waits that is over first; a wait without a time lasts longest."""
    if a is None or a.until is None:
        return b
    return a if b.until is None or a.until <= b.until else b


def _updated(gens: tuple[Generator, ...], ctx: Context, event: Op) -> tuple[Generator, ...]:
    """All generators after an event; the same tuple if none changed."""
    changed: list[Generator] | None = None
    for at, gen in enumerate(gens):
        after = gen.update(ctx, event)
        if after is not gen:
            if changed is None:
                changed = list(gens)
            changed[at] = after
    return gens if changed is None else tuple(changed)
