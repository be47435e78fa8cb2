# SPDX-License-Identifier: Apache-2.0
"""Generators for consumers that pop: they acknowledge most messages, extend some first, and let some return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from typing import Any, Final

from harness.generator import EMPTY, PENDING, Generator, Invocation, Step
from harness.generator.context import Context, members
from results.op import FAIL, INFO, INVOKE, OK, Op

INVISIBLE_MS: Final = 6000
"""Long enough for an acknowledgement under load, short enough to see messages return within a run."""

FORGOTTEN: Final = 0.05
EXTENDED: Final = 0.05
"""Shares of all deliveries: never acknowledged; acknowledged after their invisible time was changed."""

REVIVAL_S: Final = 9
"""The longest time for the broker's revival of a message after its time (seen: 2 s)."""

Job = Invocation
"""The next op for a delivery: an `ack` or an `extend`."""


@dataclass(frozen=True, slots=True, eq=False)
class Poppers(Generator):
    """Consumers of a group on the threads it may use, for ever. The ops on a delivery depend on its message, its pop
    and `seed` alone.

    group, sources   the consumer group; the keys to pop from (`topic:broker group:-1`: any queue), in turn.
    jobs             thread -> the next ops for its deliveries.
    turns            the number of pops.
    invisible_ms     the time for which a popped message is hidden from others.
    """

    group: str
    sources: tuple[str, ...]
    seed: int
    invisible_ms: int = INVISIBLE_MS
    jobs: Mapping[int, tuple[Job, ...]] = field(default_factory=dict)
    turns: int = 0

    def op(self, ctx: Context) -> Step:
        for thread in members(ctx.free_takers, ctx.turn % ctx.process_map.concurrency):
            process = ctx.process(thread)
            jobs = self.jobs.get(thread, ())
            if jobs:
                return jobs[0].by(process), self
            source = self.sources[self.turns % len(self.sources)]
            return pop(self.group, source, self.invisible_ms).by(process), replace(self, turns=self.turns + 1)
        return PENDING, self

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f not in ("pop", "ack", "extend") or event.type == INVOKE:
            return self
        thread = ctx.process_map.thread_of(event.process)
        jobs = self.jobs.get(thread, ())
        if event.type == INFO:
            jobs = ()  # the process is gone, and its deliveries with it
        elif event.f == "pop":
            jobs = () if event.type == FAIL else self._jobs(event)
        elif event.f == "extend" and event.type == OK and jobs:
            jobs = (replace(jobs[0], f="ack", value=[event.value[0]]), *jobs[1:])
        else:
            jobs = jobs[1:]
        return replace(self, jobs={**self.jobs, thread: jobs})

    def _jobs(self, event: Op) -> tuple[Job, ...]:
        found: list[Job] = []
        for ack in acks(self.group, event.value):
            luck = Random(f"{self.seed}/{ack.extra['id']}/{event.index}").random()
            if luck >= FORGOTTEN + EXTENDED:
                found.append(ack)
            elif luck >= FORGOTTEN:
                found.append(replace(ack, f="extend", value=[*ack.value, self.invisible_ms]))
        return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class PopDrain(Generator):
    """A source popped and acknowledged until no more messages come; then the broker's figures for each of `queues`.

    It is drained after enough pops in a row return nothing, each after the broker waited a second for a message: all
    messages popped before (for `invisible_ms`) had the time to come back. Ops that fail are tried again, `tries` in a
    row; an `info` ends it, and nothing is proven then.

    enough  the number of such pops, if it differs: for helpers, which only pop the available messages.
    """

    group: str
    source: str
    queues: tuple[str, ...]
    invisible_ms: int = INVISIBLE_MS
    tries: int = 20
    enough: int | None = None
    quiet: int = 0
    failures: int = 0
    jobs: tuple[Job, ...] = ()
    process: int | None = None
    open: bool = False

    def op(self, ctx: Context) -> Step:
        if self.open or (self.process is None and not ctx.free_takers):
            return PENDING, self
        process = ctx.process(ctx.pick()) if self.process is None else self.process
        if not ctx.is_free(process):
            return (PENDING, self) if ctx.runs(process) else None
        if self.jobs:
            found = self.jobs[0]
        elif self.quiet < self._enough:
            found = pop(self.group, self.source, wait_s=1.0)
        elif self.queues:
            found = Invocation("drain", self.queues[0], None, {"group": self.group})
        else:
            return None
        return found.by(process), replace(self, open=True, process=process)

    @property
    def _enough(self) -> int:
        return ceil(self.invisible_ms / 1000) + REVIVAL_S if self.enough is None else self.enough

    def update(self, ctx: Context, event: Op) -> Generator:
        if not self.open or event.type == INVOKE or event.process != self.process:
            return self
        if event.type == INFO or (event.type == FAIL and self.failures + 1 >= self.tries):
            return EMPTY
        if event.type == FAIL and event.f != "ack":
            return replace(self, open=False, failures=self.failures + 1)
        done = replace(self, open=False, failures=0)
        match event.f:
            case "ack":
                return replace(done, jobs=self.jobs[1:])
            case "drain":
                return replace(done, queues=self.queues[1:])
        jobs = tuple(acks(self.group, event.value))
        return replace(done, jobs=jobs, quiet=0 if jobs else self.quiet + 1)


def acks(group: str, popped: Iterable[Sequence[Any]]) -> Iterator[Job]:
    """Yields the acknowledgement of each message that a pop returned: queue, offset, id, handle."""
    for queue, offset, message, handle, *_ in popped:
        yield Invocation("ack", queue, [handle], {"group": group, "queue": queue, "offset": offset, "id": message})


def pop(group: str, source: str, invisible_ms: int = INVISIBLE_MS, wait_s: float = 0.0) -> Invocation:
    """A pop; with `wait_s` the broker waits so long for a message."""
    return Invocation("pop", source, None, {"group": group, "invisible_ms": invisible_ms, "wait_s": wait_s})
