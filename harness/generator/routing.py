# SPDX-License-Identifier: Apache-2.0
"""Assignment of ops to threads: clients or nemesis, some threads, or a separate generator per thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.generator.base import EMPTY, PENDING, Generator, GeneratorError, Pending, Source, Step, as_generator, place
from harness.generator.choice import any_, sooner
from harness.generator.context import Context, ProcessMap, members
from results.op import NEMESIS, Op


def clients(source: Source, nemesis_source: Source = None) -> Generator:
    """`source` on the clients' threads; with a second one, that on the nemesis's at the same time."""
    part = _OnThreads(_clients, as_generator(source), "clients")
    return part if nemesis_source is None else any_(part, nemesis(nemesis_source))


def nemesis(source: Source, clients_source: Source = None) -> Generator:
    """`source` on the nemesis's thread; with a second one, that on the clients' at the same time."""
    part = _OnThreads(_nemesis, as_generator(source), "nemesis")
    return part if clients_source is None else any_(part, clients(clients_source))


def on_threads(wanted: Callable[[int], bool], source: Source) -> Generator:
    """`source` on the threads that `wanted` accepts (0 .. concurrency-1; the nemesis's is -1). It sees no others."""
    known: dict[ProcessMap | int, int] = {}

    def select(ctx: Context) -> int:
        found = known.get(ctx.threads)
        if found is None:
            last = ctx.process_map.concurrency
            found = sum(1 << t for t in members(ctx.threads) if wanted(NEMESIS if t == last else t))
            known[ctx.threads] = found
        return found

    return _OnThreads(select, as_generator(source), "on_threads")


def reserve(*counts_and_sources: int | Source, default: Source = None) -> Generator:
    """`reserve(5, writes, 10, reads, default=cas)`: the first 5 client threads do `writes`, the next 10 `reads`, the
    rest `default`. Each part sees only its threads, and hears only of them.
    """
    counts, sources = counts_and_sources[0::2], counts_and_sources[1::2]
    if len(counts) != len(sources):
        raise GeneratorError("reserve takes pairs: a number of threads, then what they do")
    parts: list[Generator] = []
    first = 0
    for count, source in zip(counts, sources, strict=True):
        if not isinstance(count, int) or count < 1 or isinstance(source, int):
            raise GeneratorError(f"reserve got {count!r}, {source!r}; a number of threads, then a generator is right")
        parts.append(_OnThreads(_slice(first, first + count), as_generator(source), "reserve"))
        first += count
    if default is not None:
        parts.append(_OnThreads(_slice(first, None), as_generator(default), "reserve"))
    return any_(*parts)


def _clients(ctx: Context) -> int:
    return ctx.process_map.clients


def _nemesis(ctx: Context) -> int:
    return ctx.process_map.nemesis


def _slice(start: int, stop: int | None) -> Callable[[Context], int]:
    """Selects threads by their position among the context's clients."""
    known: dict[int, int] = {}

    def select(ctx: Context) -> int:
        takers = ctx.takers
        found = known.get(takers)
        if found is None:
            mine = list(members(takers))
            if stop is not None and len(mine) < stop:
                raise GeneratorError(f"reserve needs {stop} threads, but there are {len(mine)}; raise the concurrency")
            found = known[takers] = sum(1 << t for t in mine[start:stop])
        return found

    return select


@dataclass(frozen=True, slots=True, eq=False)
class _OnThreads(Generator):
    select: Callable[[Context], int]
    gen: Generator
    name: str

    def op(self, ctx: Context) -> Step:
        inner = ctx.narrowed(self.select(ctx))
        step = self.gen.op(inner)
        if step is None:
            return None
        if not inner.threads:
            raise GeneratorError(f"{self.name}: there is no such thread here to do its ops")
        what, rest = step
        after = self if rest is self.gen else _OnThreads(self.select, rest, self.name)
        if isinstance(what, Pending) or inner.takers == ctx.takers:
            # Without a process it goes to the same threads anyway.
            return what, after
        return place(what, inner), after

    def update(self, ctx: Context, event: Op) -> Generator:
        threads = self.select(ctx)
        if not threads & ctx.bit(event.process):
            return self
        gen = self.gen.update(ctx.narrowed(threads), event)
        return self if gen is self.gen else _OnThreads(self.select, gen, self.name)


def each_thread(source: Source) -> Generator:
    """Every thread does all of `source` on its own. Ends when all have."""
    return _Each(as_generator(source), by_process=False)


def each_process(source: Source) -> Generator:
    """Every process does all of `source` on its own: after a crash, the thread's next process begins again."""
    return _Each(as_generator(source), by_process=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Each(Generator):
    """copies       thread -> the generator of its remaining ops; () before the first op.
    left         the threads that are not known to be done.
    process_map  the processes that the copies belong to.
    """

    fresh: Generator
    by_process: bool
    copies: tuple[Generator, ...] = ()
    left: int = 0
    process_map: ProcessMap | None = field(default=None)

    def op(self, ctx: Context) -> Step:
        takers, processes = ctx.takers, ctx.process_map.processes
        copies, left = self._now(ctx)
        wait: Pending | None = None
        for thread in members(ctx.free & takers & left, ctx.turn % ctx.process_map.concurrency):
            step = copies[thread].op(ctx.narrowed(1 << thread))
            if step is None:
                copies[thread] = EMPTY
                left ^= 1 << thread
                continue
            what, copies[thread] = step
            if isinstance(what, Pending):
                wait = sooner(wait, what)
            else:
                return what.by(processes[thread]), self._with(copies, left, ctx)
        busy = takers & ~ctx.free
        if not takers & left and not (self.by_process and busy):
            return None
        return wait or PENDING, self._with(copies, left, ctx)

    def update(self, ctx: Context, event: Op) -> Generator:
        if not self.copies:
            return self
        thread = ctx.process_map.thread_of(event.process)
        before = self.copies[thread]
        after = before.update(ctx.narrowed(1 << thread), event)
        if after is before:
            return self
        copies = list(self.copies)
        copies[thread] = after
        return _Each(self.fresh, self.by_process, tuple(copies), self.left, self.process_map)

    def _now(self, ctx: Context) -> tuple[list[Generator], int]:
        """The copies, and the threads with a copy left, after the births since the last call."""
        if not self.copies:
            return [self.fresh] * len(ctx.process_map.processes), ctx.threads
        copies, left = list(self.copies), self.left
        if self.by_process and self.process_map is not None and ctx.process_map is not self.process_map:
            for thread, (old, new) in enumerate(
                zip(self.process_map.processes, ctx.process_map.processes, strict=True)
            ):
                if old != new:
                    copies[thread] = self.fresh
                    left |= 1 << thread
        return copies, left

    def _with(self, copies: list[Generator], left: int, ctx: Context) -> _Each:
        return _Each(self.fresh, self.by_process, tuple(copies), left, ctx.process_map)
