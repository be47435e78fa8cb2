# SPDX-License-Identifier: Apache-2.0
"""An adapter for blocking clients: each gets its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from harness.api import Completion
from results.op import Op

T = TypeVar("T")
_Job = tuple[Callable[[], Any], asyncio.Future[Any]]


class BlockingClient(Protocol):
    """As `harness.api.Client`, with ordinary methods that may block."""

    def open(self) -> None: ...

    def invoke(self, op: Op) -> Completion: ...

    def close(self) -> None: ...


class Blocking:
    """A `harness.api.Client` around one that blocks.

    All calls to a client are made from one thread, in order. When the interpreter gives up on a call that hangs, the
    thread stays in it: it is a daemon, so it keeps neither the run nor the program from ending. Give the blocking
    client its own deadlines; this is only the last resort.
    """

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def open(self) -> None:
        await self._call(self._client.open)

    async def invoke(self, op: Op) -> Completion:
        return await self._call(lambda: self._client.invoke(op))

    async def close(self) -> None:
        if self._thread is not None:
            try:
                await self._call(self._client.close)
            finally:
                self._jobs.put(None)

    async def _call(self, job: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="blocking-client", daemon=True)
            self._thread.start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, future))
        return await future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            if future.cancelled():
                # Given up on before it began: what was not started yet must not take place at all.
                continue
            try:
                _tell(future, work(), None)
            except BaseException as problem:
                _tell(future, None, problem)


def _tell(future: asyncio.Future[Any], result: Any, problem: BaseException | None) -> None:
    """Passes an outcome to the event loop, if both still exist and wait for it."""

    def hand_over() -> None:
        if future.done():
            return
        if problem is None:
            future.set_result(result)
        elif isinstance(problem, Exception) and not isinstance(problem, StopIteration):
            future.set_exception(problem)
        else:
            future.set_exception(RuntimeError(f"{type(problem).__name__}: {problem}"))

    loop = future.get_loop()
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(hand_over)
        except RuntimeError:
            # The loop was closed in between: the run is over and no one waits.
            return
