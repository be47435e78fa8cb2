# SPDX-License-Identifier: Apache-2.0
"""Sequence and repetition: limits, repetition, barriers, and repetition until success."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from harness.generator.base import (
    EMPTY,
    PENDING,
    Generator,
    GeneratorError,
    Pending,
    Source,
    Step,
    as_generator,
    concat,
    place,
    synchronize,
)
from harness.generator.context import Context, ProcessMap
from results.op import INVOKE, OK, Op


def limit(n: int, source: Source) -> Generator:
    """At most `n` ops."""
    _whole(n, "limit")
    return _Limit(n, as_generator(source)) if n else EMPTY


def once(source: Source) -> Generator:
    """Only the first op."""
    return limit(1, source)


@dataclass(frozen=True, slots=True, eq=False)
class _Limit(Generator):
    left: int
    gen: Generator

    def op(self, ctx: Context) -> Step:
        step = self.gen.op(ctx)
        if step is None:
            return None
        what, rest = step
        if isinstance(what, Pending):
            return what, self if rest is self.gen else _Limit(self.left, rest)
        return what, _Limit(self.left - 1, rest) if self.left > 1 else EMPTY

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event)
        return self if gen is self.gen else _Limit(self.left, gen)


def repeat(source: Source, n: int | None = None) -> Generator:
    """The first op of `source` repeatedly, for ever or `n` times: its state does not move on."""
    if n is not None:
        return limit(n, repeat(source))
    return _Repeat(as_generator(source))


@dataclass(frozen=True, slots=True, eq=False)
class _Repeat(Generator):
    gen: Generator

    def op(self, ctx: Context) -> Step:
        step = self.gen.op(ctx)
        if step is None:
            return None
        what, rest = step
        if isinstance(what, Pending) and rest is not self.gen:
            return what, _Repeat(rest)
        return what, self

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event)
        return self if gen is self.gen else _Repeat(gen)


def cycle(source: Source, n: int | None = None) -> Generator:
    """All of `source`, and again from its beginning, for ever or `n` times in all. Ends if it has no op at all."""
    if n is not None:
        _whole(n, "cycle")
    fresh = as_generator(source)
    return _Cycle(fresh, fresh, n, barren=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Cycle(Generator):
    """`barren`: this round has given no op yet."""

    fresh: Generator
    gen: Generator
    left: int | None
    barren: bool

    def op(self, ctx: Context) -> Step:
        if self.left == 0:
            return None
        left, gen, barren = self.left, self.gen, self.barren
        step = gen.op(ctx)
        while step is None:
            left = None if left is None else left - 1
            if left == 0 or barren:
                return None
            barren = True
            step = self.fresh.op(ctx)
        what, rest = step
        return what, _Cycle(self.fresh, rest, left, barren and isinstance(what, Pending))

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event)
        return self if gen is self.gen else _Cycle(self.fresh, gen, self.left, self.barren)


def phases(*sources: Source) -> Generator:
    """Each in turn; the next begins when all ops of the one before have completed."""
    return concat(*(synchronize(source) for source in sources))


def until(wanted: Callable[[Op], bool], source: Source) -> Generator:
    """`source` until `wanted` accepts a completion of one of its own ops. Then it has no more ops; some may be open.

    For recovery: `time_limit(30, until(workload.acknowledges, writes))`.
    """
    return _Until(as_generator(source), 0, wanted)


def until_ok(source: Source) -> Generator:
    """`source` until one of its own ops is `ok`."""
    return until(lambda op: op.type == OK, source)


@dataclass(frozen=True, slots=True, eq=False)
class _Own(Generator):
    """A generator that knows its own ops: `mine` are the threads with an open one."""

    gen: Generator
    mine: int

    @abstractmethod
    def _going_on(self, gen: Generator, mine: int) -> Generator: ...

    def op(self, ctx: Context) -> Step:
        step = self.gen.op(ctx)
        if step is None:
            return None
        what, rest = step
        if isinstance(what, Pending):
            return what, self if rest is self.gen else self._going_on(rest, self.mine)
        placed = place(what, ctx)
        assert placed.process is not None
        # Not EMPTY, even if nothing is left: the generator around this one still needs the completion.
        return placed, self._going_on(rest, self.mine | ctx.bit(placed.process))

    def update(self, ctx: Context, event: Op) -> Generator:
        gen, mine = self.gen.update(ctx, event), self.mine
        if mine and event.type != INVOKE:
            mine &= ~ctx.bit(event.process)
        return self if gen is self.gen and mine == self.mine else self._going_on(gen, mine)


@dataclass(frozen=True, slots=True, eq=False)
class _Until(_Own):
    wanted: Callable[[Op], bool]

    def _going_on(self, gen: Generator, mine: int) -> Generator:
        return _Until(gen, mine, self.wanted)

    def update(self, ctx: Context, event: Op) -> Generator:
        if self.mine and event.type != INVOKE and self.mine & ctx.bit(event.process) and self.wanted(event):
            return EMPTY
        return _Own.update(self, ctx, event)


def concurrency_limit(n: int, source: Source) -> Generator:
    """At most `n` ops of `source` open at a time."""
    if n < 1:
        raise GeneratorError(f"concurrency_limit is {n}; at least 1 op must be allowed")
    return _ConcurrencyLimit(as_generator(source), 0, n)


@dataclass(frozen=True, slots=True, eq=False)
class _ConcurrencyLimit(_Own):
    n: int

    def _going_on(self, gen: Generator, mine: int) -> Generator:
        return _ConcurrencyLimit(gen, mine, self.n)

    def op(self, ctx: Context) -> Step:
        return _Own.op(self, ctx) if self.mine.bit_count() < self.n else (PENDING, self)


def process_limit(n: int, source: Source) -> Generator:
    """`source` while at most `n` different processes could have taken its ops. Ends when a crash brings one more.

    This bounds the state of a checker, without the slow trickle of ops at the end of a limit per process.
    """
    if n < 1:
        raise GeneratorError(f"process_limit is {n}; at least 1 process must be allowed")
    return _ProcessLimit(n, as_generator(source), frozenset(), None, 0)


@dataclass(frozen=True, slots=True, eq=False)
class _ProcessLimit(Generator):
    """`seen`: processes that were possible so far, computed from `process_map` and `threads`."""

    n: int
    gen: Generator
    seen: frozenset[int]
    process_map: ProcessMap | None
    threads: int

    def op(self, ctx: Context) -> Step:
        seen = self.seen
        if ctx.process_map is not self.process_map or ctx.threads != self.threads:
            takers = ctx.takers
            seen |= {p for thread, p in enumerate(ctx.process_map.processes) if takers >> thread & 1}
        if len(seen) > self.n:
            return None
        step = self.gen.op(ctx)
        return None if step is None else (step[0], _ProcessLimit(self.n, step[1], seen, ctx.process_map, ctx.threads))

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event)
        return self if gen is self.gen else _ProcessLimit(self.n, gen, self.seen, self.process_map, self.threads)


def _whole(n: int, what: str) -> None:
    if n < 0:
        raise GeneratorError(f"{what} is {n}; a count from 0 is right")
