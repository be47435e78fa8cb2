# SPDX-License-Identifier: Apache-2.0
"""An asyncio event loop with a jumping clock: when all tasks wait, the clock jumps to the next timer.

A minute of a simulated cluster takes milliseconds and always has the same course, because nothing depends on the speed
of the machine. For tests only. A task must not wait for anything outside the loop (sockets, threads, subprocesses),
because no time passes meanwhile. Work for an executor runs in the loop and takes no time.

    assert virtual_time.run(main()) == ...
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")

_RESOLUTION_S = 1e-9
"""The resolution that the loop takes its clock to have."""


class Deadlock(RuntimeError):
    """Every task waits, and no timer is set that could wake one."""


class _Jumping(selectors.SelectSelector):
    """Instead of waiting for I/O, moves the clock on by as long as it should have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("all tasks wait and no timer is set: in virtual time nothing can wake them")
        self.now += max(0.0, timeout)
        if timeout > 0 and self.now + _RESOLUTION_S == self.now:
            # Beyond 97 days a float no longer knows the nanosecond by which asyncio lets a timer be early; without
            # it a timer counts as due only when its time is over.
            self.now = math.nextafter(self.now, math.inf)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop; its `time()` starts at 0 seconds."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self._clock_resolution = _RESOLUTION_S

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Runs it at once, in no time: while a thread works, this clock would jump past every deadline."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as problem:
            done.set_exception(problem)
        return done


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
