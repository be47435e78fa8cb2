# SPDX-License-Identifier: Apache-2.0
"""Generators that observe, change or drop the ops of another generator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from harness.generator.base import (
    EMPTY,
    LOG,
    Generator,
    GeneratorError,
    Invocation,
    Pending,
    Source,
    Step,
    as_generator,
)
from harness.generator.context import Context
from results.op import Op

_log = logging.getLogger("harness.generator")


def map_(change: Callable[[Invocation], Invocation], source: Source) -> Generator:
    """Every op changed by a function. Updates pass unchanged."""
    return _Map(change, as_generator(source))


def f_map(names: Mapping[str, str], source: Source) -> Generator:
    """Ops with another `f`: `f_map({"start": "inject"}, g)`. Names that are not in the mapping stay.

    Updates come back with the old names, so that `g` knows its own ops again; if several names map to the same one,
    with the first of them.
    """
    back: dict[str, str] = {}
    for old, new in names.items():
        back.setdefault(new, old)
    renamed = map_(lambda op: replace(op, f=names.get(op.f, op.f)), source)
    assert isinstance(renamed, _Map)
    return replace(renamed, event=lambda op: replace(op, f=back.get(op.f, op.f)))


@dataclass(frozen=True, slots=True, eq=False)
class _Map(Generator):
    change: Callable[[Invocation], Invocation]
    gen: Generator
    event: Callable[[Op], Op] | None = None

    def op(self, ctx: Context) -> Step:
        step = self.gen.op(ctx)
        if step is None:
            return None
        what, rest = step
        after = self if rest is self.gen else _Map(self.change, rest, self.event)
        return what if isinstance(what, Pending) else self.change(what), after

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event if self.event is None else self.event(event))
        return self if gen is self.gen else _Map(self.change, gen, self.event)


def filter_(keep: Callable[[Invocation], bool], source: Source) -> Generator:
    """Only the ops that `keep` accepts; the others are never invoked."""
    return _Filter(keep, as_generator(source))


@dataclass(frozen=True, slots=True, eq=False)
class _Filter(Generator):
    keep: Callable[[Invocation], bool]
    gen: Generator

    def op(self, ctx: Context) -> Step:
        gen = self.gen
        for _ in range(100_000):
            step = gen.op(ctx)
            if step is None:
                return None
            what, rest = step
            if isinstance(what, Pending) or self.keep(what):
                return what, self if rest is self.gen else _Filter(self.keep, rest)
            gen = rest
        raise GeneratorError("filter dropped 100,000 ops in a row; no op matches it")

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event)
        return self if gen is self.gen else _Filter(self.keep, gen)


def on_update(react: Callable[[Generator, Context, Op], Generator], source: Source) -> Generator:
    """`react(generator, ctx, event)` returns the generator after every event.

    It replaces the usual update: return `generator.update(ctx, event)` if nothing special happens.
    """
    return _OnUpdate(react, as_generator(source))


@dataclass(frozen=True, slots=True, eq=False)
class _OnUpdate(Generator):
    react: Callable[[Generator, Context, Op], Generator]
    gen: Generator

    def op(self, ctx: Context) -> Step:
        step = self.gen.op(ctx)
        return None if step is None else (step[0], _OnUpdate(self.react, step[1]))

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.react(self.gen, ctx, event)
        return self if gen is self.gen else _OnUpdate(self.react, gen)


def trace(label: str, source: Source, *, to: Callable[[str], None] = _log.info) -> Generator:
    """Reports every question, answer and update: to the log, or to a function that takes a line."""
    return _Trace(label, as_generator(source), to)


@dataclass(frozen=True, slots=True, eq=False)
class _Trace(Generator):
    label: str
    gen: Generator
    to: Callable[[str], None]

    def op(self, ctx: Context) -> Step:
        step = self.gen.op(ctx)
        self.to(f"{self.label} {ctx.time / 1e9:.3f} s: {'ended' if step is None else step[0]}")
        return None if step is None else (step[0], _Trace(self.label, step[1], self.to))

    def update(self, ctx: Context, event: Op) -> Generator:
        self.to(f"{self.label} {ctx.time / 1e9:.3f} s: hears {event}")
        return _Trace(self.label, self.gen.update(ctx, event), self.to)


def validate(source: Source) -> Generator:
    """Checks every answer against the contract of `Generator.op`; GeneratorError names the line that it breaks.

    For generators of one's own. The interpreter and the simulation put it around everything.
    """
    return _Validate(as_generator(source))


@dataclass(frozen=True, slots=True, eq=False)
class _Validate(Generator):
    gen: Generator

    def op(self, ctx: Context) -> Step:
        step = self.gen.op(ctx)
        if step is None:
            return None
        fault = breach(step, ctx)
        if fault is not None:
            raise GeneratorError(f"{type(self.gen).__name__} answered {step!r}: {fault}")
        what, rest = step
        return what, self if rest is self.gen else _Validate(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        gen = self.gen.update(ctx, event)
        if not isinstance(gen, Generator):
            raise GeneratorError(f"the update of {type(self.gen).__name__} gave {gen!r}, which is no generator")
        return self if gen is self.gen else _Validate(gen)


def breach(step: object, ctx: Context) -> str | None:
    """The fault in an answer that is not None; None if it has no fault."""
    if not (isinstance(step, tuple) and len(step) == 2):
        return "an answer is None, or a pair of what to do and the generator after it"
    what, rest = step
    if not isinstance(rest, Generator):
        return f"{rest!r} is no generator"
    if isinstance(what, Pending):
        if what.until is not None and what.until <= ctx.time:
            return f"it waits for {what.until} ns, but the time is already {ctx.time} ns"
        return None
    if not isinstance(what, Invocation):
        return f"{what!r} is neither Pending nor an Invocation"
    if what.time is not None and what.time > ctx.time:
        return f"it is due at {what.time} ns, but the time is {ctx.time} ns; Pending({what.time}) is right until then"
    if what.f == LOG:
        return None
    if what.process is None:
        return None if ctx.free_takers else "no thread is free for it; PENDING is right"
    return None if ctx.is_free(what.process) else f"process {what.process} is not free"


def log(text: str) -> Generator:
    """A line in the log of the run, when its turn comes. Takes no thread and leaves nothing in the history."""
    return _Log(text)


@dataclass(frozen=True, slots=True)
class _Log(Generator):
    text: str

    def op(self, ctx: Context) -> Step:
        return Invocation(LOG, value=self.text), EMPTY
