# SPDX-License-Identifier: Apache-2.0
"""The definition of a generator, the single op, and plain data as generators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from harness.generator.context import Context
from harness.generator.dice import Dice, split
from results.op import Op

_NO_EXTRA: Final[Mapping[str, Any]] = MappingProxyType({})

LOG: Final = ":log"
"""The `f` of a pseudo-op that the interpreter prints and never journals (see `log`)."""


class GeneratorError(ValueError):
    """A generator was built or behaves wrongly. One line: the fault, and what would be right."""


@dataclass(frozen=True, slots=True)
class Pending:
    """No op now. Call `op` again after the next completion, or at `until` (ns since the start of the run) if set."""

    until: int | None = None

    def or_at(self, time: int) -> Pending:
        """Pending, but until `time` at the latest."""
        return self if self.until is not None and self.until <= time else Pending(time)


PENDING: Final = Pending()
"""No op until something completes."""


class Generator(ABC):
    """A pure value that returns the next op.

    Neither method changes anything: called twice with the same context, a generator returns the same answer twice.
    The caller keeps the generator that came with the answer, and calls that one next.
    """

    __slots__ = ()

    @abstractmethod
    def op(self, ctx: Context) -> Step:
        """Returns what to do now:

        None                 nothing, ever again.
        (Pending, next)      nothing yet.
        (Invocation, next)   this, at once. If it names a process, that process is free; else `ctx` has a free
                             thread for it. Its `time`, if set, is when it was due: not after `ctx.time`.
        """

    def update(self, ctx: Context, event: Op) -> Generator:
        """The generator after an invocation or completion took place. `ctx` shows the moment after it."""
        return self

    def __rshift__(self, following: Source) -> Generator:
        """`a >> b`: first all of `a`; when all its ops have completed, `b` (see `then`)."""
        return then(self, following)


@dataclass(frozen=True, slots=True)
class Invocation(Generator):
    """One operation to invoke; as a generator, it yields itself, once.

    f, key, value, extra   as in `results.op.Op`. `extra` and `value` are JSON values and must not be changed.
    time                   ns since the start of the run before which it must not be invoked; in a generator's
                           answer: the time when it was due.
    process                the process that must execute it; None: any free client.
    """

    f: str
    key: str | None = None
    value: Any = field(default=None, hash=False)
    extra: Mapping[str, Any] = field(default_factory=lambda: _NO_EXTRA, hash=False)
    time: int | None = None
    process: int | None = None

    def op(self, ctx: Context) -> Step:
        if self.time is not None and self.time > ctx.time:
            return Pending(self.time), self
        if self.process is None:
            return (self, EMPTY) if ctx.free_takers else (PENDING, self)
        if ctx.is_free(self.process):
            return self, EMPTY
        # A process that crashed never acts again, so its op can never be done.
        return (PENDING, self) if ctx.runs(self.process) else None

    def due(self, time: int) -> Invocation:
        """The same, due at `time`."""
        return Invocation(self.f, self.key, self.value, self.extra, time, self.process)

    def by(self, process: int) -> Invocation:
        """The same, done by `process`."""
        return Invocation(self.f, self.key, self.value, self.extra, self.time, process)

    def on(self, key: str) -> Invocation:
        """The same, on the object `key`."""
        return Invocation(self.f, key, self.value, self.extra, self.time, self.process)


Step: TypeAlias = tuple[Invocation | Pending, Generator] | None
"""The answer of `Generator.op`."""

Source: TypeAlias = Generator | Sequence["Source"] | Callable[[int], "Source"] | None
"""A generator, or data that stand for one (see `as_generator`)."""


@dataclass(frozen=True, slots=True)
class _Empty(Generator):
    """No ops at all."""

    def op(self, ctx: Context) -> Step:
        return None


EMPTY: Final[Generator] = _Empty()
"""The generator that has nothing to do."""


def as_generator(source: Source) -> Generator:
    """Plain data as generators.

    Invocation          itself, once.
    function of n       called with 0, 1, 2, ...: what it returns is exhausted, then it is called again; None ends.
                        It must be a function: the same for the same n.
    sequence            each element exhausted in turn. Updates go to the element that is being exhausted.
    None                nothing.
    """
    if isinstance(source, Generator):
        return source
    if source is None:
        return EMPTY
    if callable(source):
        return _Function(source)
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return concat(*source)
    raise GeneratorError(
        f"{source!r} is not a generator; a Generator, an Invocation, a function of n, a sequence of these, or None is"
    )


def concat(*sources: Source) -> Generator:
    """Each in turn; the next begins as soon as one has no more ops (its ops may still be open)."""
    return _Sequence(tuple(sources), 0, EMPTY)


def drawn(rng: Random, make: Callable[[Random, int], Source]) -> Generator:
    """Yields the results of `make(dice, n)`, for n = 0, 1, 2, ...; None ends it.

    `dice` is a `Random` whose rolls depend on `rng`'s seed and on n alone, so `make` can roll as it likes and
    still gives the same answer to the same n:

        drawn(rng, lambda dice, n: Invocation(dice.choice(["read", "write"]), value=n))
    """
    seed, dice = split(rng), Dice()
    return _Function(lambda n: make(dice.at(seed, n), n))


@dataclass(frozen=True, slots=True, eq=False)
class _Function(Generator):
    """Calls with n; `product` is what the last call returned and is not exhausted yet."""

    call: Callable[[int], Source]
    n: int = 0
    product: Generator | None = None

    def op(self, ctx: Context) -> Step:
        n, product = self.n, self.product
        barren = 0
        while True:
            if product is None:
                source = self.call(n)
                if source is None:
                    return None
                product, n = as_generator(source), n + 1
            step = product.op(ctx)
            if step is not None:
                what, rest = step
                return what, _Function(self.call, n, None if rest is EMPTY else rest)
            product = None
            barren += 1
            if barren > 10_000:
                raise GeneratorError(
                    f"the function {self.call!r} gave 10,000 generators without an op; it must return None to end"
                )

    def update(self, ctx: Context, event: Op) -> Generator:
        if self.product is None:
            return self
        product = self.product.update(ctx, event)
        return self if product is self.product else _Function(self.call, self.n, product)


@dataclass(frozen=True, slots=True, eq=False)
class _Sequence(Generator):
    """`head` is being exhausted; then come `sources[n]` and the rest."""

    sources: tuple[Source, ...]
    n: int
    head: Generator

    def op(self, ctx: Context) -> Step:
        n, head = self.n, self.head
        while True:
            step = None if head is EMPTY else head.op(ctx)
            if step is not None:
                what, rest = step
                return what, _Sequence(self.sources, n, rest)
            if n == len(self.sources):
                return None
            head, n = as_generator(self.sources[n]), n + 1

    def update(self, ctx: Context, event: Op) -> Generator:
        head = self.head.update(ctx, event)
        return self if head is self.head else _Sequence(self.sources, self.n, head)


def place(invocation: Invocation, ctx: Context) -> Invocation:
    """The invocation with a process: its own, or a free one of the context."""
    if invocation.process is not None:
        return invocation
    return invocation.by(ctx.process_map.processes[ctx.pick()])


class Lazy:
    """The elements of an iterable by position, each read from it once. `None` beyond its end."""

    def __init__(self, elements: Iterable[str]) -> None:
        self._rest: Iterator[str] = iter(elements)
        self._read: list[str] = []

    def get(self, n: int) -> str | None:
        while len(self._read) <= n:
            element = next(self._rest, None)
            if element is None:
                return None
            self._read.append(element)
        return self._read[n]


def synchronize(source: Source) -> Generator:
    """Waits until every thread of the context is free, then `source`."""
    return _Synchronize(as_generator(source))


@dataclass(frozen=True, slots=True, eq=False)
class _Synchronize(Generator):
    gen: Generator

    def op(self, ctx: Context) -> Step:
        return self.gen.op(ctx) if ctx.free == ctx.threads else (PENDING, self)

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event)
        return self if gen is self.gen else _Synchronize(gen)


def then(first: Source, following: Source) -> Generator:
    """`first`; when all its ops have completed, `following`. Also written `first >> following`."""
    return concat(first, synchronize(following))
