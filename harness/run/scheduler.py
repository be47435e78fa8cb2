# SPDX-License-Identifier: Apache-2.0
"""The state of a run: the free threads, the process of each thread, the next op, and the index of every event.

The interpreter and the simulation both use this class, so a simulation behaves like a run. It does no I/O and has no
clock: the caller passes the time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from harness.generator import EMPTY, LOG, Generator, GeneratorError, Invocation, Pending
from harness.generator.adapters import breach
from harness.generator.context import Context, ProcessMap
from results.op import INFO, INVOKE, NEMESIS, Op, OpType

_log = logging.getLogger("harness.run")
_NO_EXTRA: Final[Mapping[str, Any]] = MappingProxyType({})

MAIN: Final = "main"
"""The phase that is not written into the history."""


class OpScheduler:
    """The bookkeeping of one run. Indices, turns and processes continue from phase to phase.

    Every step costs the same for ten threads and for a thousand, but for a crash (a copy of the processes).
    """

    def __init__(self, concurrency: int, *, nemesis: bool) -> None:
        start = Context.start(concurrency, nemesis=nemesis)
        self.process_map: ProcessMap = start.process_map
        self.generator: Generator = EMPTY
        self._phase: Mapping[str, Any] = _NO_EXTRA
        self._threads = start.threads
        self._free = start.threads
        self._turn = 0
        self._index = 0

    @property
    def idle(self) -> bool:
        """True if no op is open."""
        return self._free == self._threads

    def begin(self, generator: Generator, phase: str) -> None:
        """Begins a phase: ops come from `generator` now."""
        self.generator = generator
        self._phase = _NO_EXTRA if phase == MAIN else MappingProxyType({"phase": phase})

    def context(self, now: int) -> Context:
        """The moment as the generator sees it."""
        return Context(now, self._free, self._threads, self._turn, self.process_map)

    def ask(self, now: int) -> Op | Pending | None:
        """Returns the generator's next step: an invocation, whose thread is now busy; Pending; None: it has ended.

        The caller must pass an invocation to the generator before the next call. Raises GeneratorError if the generator
        breaks its contract.
        """
        while True:
            ctx = Context(now, self._free, self._threads, self._turn, self.process_map)
            step = self.generator.op(ctx)
            if step is None:
                self.generator = EMPTY
                return None
            wrong = breach(step, ctx)
            if wrong is not None:
                raise GeneratorError(f"the generator returned {step[0]!r}: {wrong}")
            what, self.generator = step
            if isinstance(what, Pending):
                return what
            if what.f != LOG:
                return self._invoke(what, ctx)
            _log.info("%s", what.value)

    def _invoke(self, what: Invocation, ctx: Context) -> Op:
        process_map = self.process_map
        process = what.process
        thread = ctx.pick() if process is None else process_map.thread_of(process)
        if process is None:
            process = process_map.processes[thread]
        extra = what.extra
        scheduled = what.time
        if self._phase or (scheduled is not None and scheduled != ctx.time):
            extra = {**extra, **self._phase}
            if scheduled is not None and scheduled != ctx.time:
                extra["scheduled"] = scheduled
        op = Op(self._index, ctx.time, process, INVOKE, what.f, what.key, what.value, None, extra)
        self._index += 1
        self._turn += 1
        self._free ^= 1 << thread
        return op

    def complete(
        self,
        invoked: Op,
        now: int,
        kind: OpType,
        value: Any = None,
        error: str | None = None,
        extra: Mapping[str, Any] = _NO_EXTRA,
        *,
        ends: bool = False,
    ) -> Op:
        """Completes an open op; the caller must pass the event to the generator. After `info`, or if it `ends` the
        process, a client's thread runs the next process.
        """
        process = invoked.process
        thread = self.process_map.thread_of(process)
        op = Op(self._index, now, process, kind, invoked.f, invoked.key, value, error, extra)
        self._index += 1
        self._free |= 1 << thread
        if process != NEMESIS and (ends or kind == INFO):
            self.process_map = self.process_map.next_process(thread)
        return op

    def event(self, now: int, f: str, value: Any) -> Op:
        """Makes an event that no process invoked and that frees no thread (`results.op.Op.is_event`)."""
        op = Op(self._index, now, NEMESIS, INFO, f, None, value)
        self._index += 1
        return op

    def tell(self, event: Op) -> None:
        """Passes an event to the generator, after it was recorded. The two steps are separate so that a generator that
        fails here breaks no history.
        """
        self.generator = self.generator.update(self.context(event.time), event)
