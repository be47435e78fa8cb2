# SPDX-License-Identifier: Apache-2.0
"""Timing: rates, gaps, time limits, pauses, and scripts of times.

A clock starts at the first call of a generator, so a `time_limit` in the second phase counts from there. A rate holds
for all clients together, not for each client.

Backlog: if all threads are busy, or the servers stall, ops become due without a free thread. They are issued later, as
fast as threads become free, but at most `catch_up` seconds' worth of them; older ones are dropped. So after a stall of
a minute at 100 ops/s, at most 100 ops follow without a gap (`catch_up` of 1 s), not 6,000. Each op carries its due time
(`Invocation.time`, `extra["scheduled"]` in the history), so a latency measured from there includes the wait for a
thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from harness.generator.base import EMPTY, Generator, GeneratorError, Invocation, Pending, Source, Step, as_generator
from harness.generator.context import Context
from harness.generator.dice import split, unit
from results.op import Op

SECOND = 1_000_000_000
"""ns"""

CATCH_UP_S = 1.0
"""The part of a missed schedule, in seconds, that is made up for."""


def rate(ops_per_s: float, source: Source, *, rng: Random | None = None, catch_up: float = CATCH_UP_S) -> Generator:
    """`source` at `ops_per_s` over all clients, the first at once: evenly, or, with an `rng`, at exponentially
    distributed gaps (arrivals of a Poisson process), which depend on its seed alone. See above for `catch_up`.
    """
    if not (math.isfinite(ops_per_s) and ops_per_s > 0):
        raise GeneratorError(f"rate is {ops_per_s!r}; a number of ops per second above 0 is right")
    mean = SECOND / ops_per_s
    if rng is None:
        # Differences of rounded moments, so that rounding never adds up.
        return _paced(lambda n: round((n + 1) * mean) - round(n * mean), source, catch_up)
    seed = split(rng)
    return _paced(lambda n: round(-math.log1p(-unit(seed, n)) * mean), source, catch_up)


def stagger(rng: Random, mean_s: float, source: Source, *, catch_up: float = CATCH_UP_S) -> Generator:
    """`source` with gaps drawn evenly from 0 to twice `mean_s` seconds."""
    width, seed = 2 * ns(mean_s, "stagger"), split(rng)
    return _paced(lambda n: int(unit(seed, n) * width), source, catch_up)


def delay(gap_s: float, source: Source, *, catch_up: float = CATCH_UP_S) -> Generator:
    """`source` with gaps of `gap_s` seconds from start to start."""
    gap = ns(gap_s, "delay")
    return _paced(lambda n: gap, source, catch_up)


def _paced(gap: Callable[[int], int], source: Source, catch_up: float) -> Generator:
    return _Paced(gap, ns(catch_up, "catch_up"), as_generator(source), 0, None)


@dataclass(frozen=True, slots=True, eq=False)
class _Paced(Generator):
    """`due`: when op `n` should start; `gap(n)`: ns from there to op n+1."""

    gap: Callable[[int], int]
    catch_up: int
    gen: Generator
    n: int
    due: int | None

    def op(self, ctx: Context) -> Step:
        gen, now = self.gen, ctx.time
        if gen is EMPTY:
            return None
        due = now if self.due is None else self.due
        if now < due:
            return Pending(due), self
        step = gen.op(ctx)
        if step is None:
            return None
        what, rest = step
        if isinstance(what, Pending):
            same = rest is gen and due == self.due
            return what, self if same else _Paced(self.gap, self.catch_up, rest, self.n, due)
        due = max(due, now - self.catch_up)
        following = _Paced(self.gap, self.catch_up, rest, self.n + 1, due + self.gap(self.n))
        return what.due(due if what.time is None else max(due, what.time)), following

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event)
        return self if gen is self.gen else _Paced(self.gap, self.catch_up, gen, self.n, self.due)


def time_limit(seconds: float, source: Source) -> Generator:
    """`source` for so long. Ops that are open at the end may complete; none is invoked any more."""
    return _TimeLimit(ns(seconds, "time_limit"), as_generator(source), None)


@dataclass(frozen=True, slots=True, eq=False)
class _TimeLimit(Generator):
    length: int
    gen: Generator
    end: int | None

    def op(self, ctx: Context) -> Step:
        end = ctx.time + self.length if self.end is None else self.end
        if ctx.time >= end:
            return None
        step = self.gen.op(ctx)
        if step is None:
            return None
        what, rest = step
        if isinstance(what, Pending):
            what = what.or_at(end)
        return what, self if rest is self.gen and end == self.end else _TimeLimit(self.length, rest, end)

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event)
        return self if gen is self.gen else _TimeLimit(self.length, gen, self.end)


def sleep(seconds: float) -> Generator:
    """No op for so long. In a sequence: a pause between two elements."""
    return _Sleep(ns(seconds, "sleep"), None)


@dataclass(frozen=True, slots=True, eq=False)
class _Sleep(Generator):
    length: int
    end: int | None

    def op(self, ctx: Context) -> Step:
        end = ctx.time + self.length if self.end is None else self.end
        if ctx.time >= end:
            return None
        return Pending(end), self if self.end is not None else _Sleep(self.length, end)


def cycle_times(*seconds_and_sources: float | Source) -> Generator:
    """`cycle_times(5, writes, 10, reads)`: 5 s of `writes`, 10 s of `reads`, 5 s of `writes` from where they were
    left, ... A source that ends leaves its windows empty; the whole ends when all have ended.
    """
    lengths, sources = seconds_and_sources[0::2], seconds_and_sources[1::2]
    if not lengths or len(lengths) != len(sources):
        raise GeneratorError("cycle_times takes pairs: a number of seconds, then a generator")
    windows: list[int] = []
    gens: list[Generator] = []
    for length, source in zip(lengths, sources, strict=True):
        if not isinstance(length, int | float) or isinstance(source, int | float):
            raise GeneratorError(f"cycle_times got {length!r}, {source!r}; seconds, then a generator is right")
        windows.append(ns(length, "cycle_times"))
        gens.append(as_generator(source))
    if not all(windows):
        raise GeneratorError("cycle_times has a window of 0 s; every window must be longer")
    return _CycleTimes(tuple(windows), tuple(gens), None)


@dataclass(frozen=True, slots=True, eq=False)
class _CycleTimes(Generator):
    windows: tuple[int, ...]
    gens: tuple[Generator, ...]
    start: int | None

    def op(self, ctx: Context) -> Step:
        start = ctx.time if self.start is None else self.start
        into = (ctx.time - start) % sum(self.windows)
        at = 0
        while into >= self.windows[at]:
            into -= self.windows[at]
            at += 1
        window_end = ctx.time - into + self.windows[at]
        gens = self.gens
        step = gens[at].op(ctx)
        if step is None:
            gens = (*gens[:at], EMPTY, *gens[at + 1 :])
            if all(gen is EMPTY for gen in gens):
                return None
            return Pending(window_end), _CycleTimes(self.windows, gens, start)
        what, rest = step
        if isinstance(what, Pending):
            what = what.or_at(window_end)
        return what, _CycleTimes(self.windows, (*gens[:at], rest, *gens[at + 1 :]), start)

    def update(self, ctx: Context, event: Op) -> Generator:
        gens = tuple(gen.update(ctx, event) for gen in self.gens)
        same = all(a is b for a, b in zip(gens, self.gens, strict=True))
        return self if same else _CycleTimes(self.windows, gens, self.start)


def script(entries: Iterable[tuple[float, Invocation]]) -> Generator:
    """Each invocation at its time, in seconds since the script began (for a phase's outermost generators: since the
    phase began). If every thread is busy at that time, it waits for one, and the others wait behind it: none is
    left out.
    """
    moments: list[tuple[int, Invocation]] = []
    for at, invocation in entries:
        moment = ns(at, "a moment of a script")
        if moments and moment < moments[-1][0]:
            raise GeneratorError(f"a script goes from {moments[-1][0] / SECOND:g} s back to {at:g} s; sort it by time")
        moments.append((moment, invocation))
    return _Script(tuple(moments), 0, None) if moments else EMPTY


@dataclass(frozen=True, slots=True, eq=False)
class _Script(Generator):
    moments: tuple[tuple[int, Invocation], ...]
    n: int
    start: int | None

    def op(self, ctx: Context) -> Step:
        start = ctx.time if self.start is None else self.start
        for n in range(self.n, len(self.moments)):
            moment, invocation = self.moments[n]
            step = invocation.due(start + moment).op(ctx)
            if step is not None:
                what = step[0]
                if isinstance(what, Pending):
                    return what, self if start == self.start and n == self.n else _Script(self.moments, n, start)
                last = n + 1 == len(self.moments)
                return what, EMPTY if last else _Script(self.moments, n + 1, start)
        return None


def ns(seconds: float, what: str) -> int:
    """Seconds as whole nanoseconds; GeneratorError that names `what` unless finite and not negative."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise GeneratorError(f"{what} is {seconds!r}; a finite number of seconds from 0 is right")
    return round(seconds * SECOND)
