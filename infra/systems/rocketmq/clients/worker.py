# SPDX-License-Identifier: Apache-2.0
"""A separate process for a foreign client: requests and answers are lines of JSON, one at a time.

If a request is not answered in time, the process is killed, because the time of its answer is unknown. The user of the
worker starts another process and initialises it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_START_S: Final = 60.0
"""Interpreter and libraries on a machine that is busy; part of no request's deadline."""

_LINE_LIMIT: Final = 1 << 20


class WorkerError(Exception):
    """No answer. One line: the end of the process."""


class NotStarted(WorkerError):
    """The process did not start, so it got no request. The text is its own if it gave one."""


class Worker:
    """One process, `python -m MODULE ARGS`. Its home directory is a temporary one: these clients write logs there."""

    def __init__(self, module: str, *args: str) -> None:
        self.module, self.args = module, args
        self._process: asyncio.subprocess.Process | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None
        """The home directory; removed at the latest when the program ends."""

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Makes it ready for requests. Raises NotStarted."""
        self._home = tempfile.TemporaryDirectory(prefix="harness-client-", ignore_cleanup_errors=True)
        home = self._home.name
        try:
            with (Path(home) / "errors").open("wb") as errors:
                self._process = await asyncio.create_subprocess_exec(
                    *_python(self.module, self.args),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    cwd=home,
                    env={**os.environ, "HOME": home},
                    limit=_LINE_LIMIT,
                )
        except OSError as e:
            await self.close()
            raise NotStarted(f"the client's process could not be started: {e}") from None
        try:
            reply = await self._answer(_START_S)
        except WorkerError as e:
            await self.close()
            raise NotStarted(str(e)) from None
        except BaseException:
            await self.close()
            raise
        if "error" in reply:
            await self.close()
            raise NotStarted(f"{reply['error']}: {reply['why']}")

    async def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to a request. Raises WorkerError; then the process has ended."""
        assert self._process is not None, "start must be called first"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            await self._process.stdin.drain()
            return await self._answer(timeout_s)
        except ConnectionError:
            why = await self._last_words()
            await self.close()
            raise WorkerError(why) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends it at once. Idempotent."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        home, self._home = self._home, None
        if home is not None:
            home.cleanup()

    async def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise WorkerError(f"no answer within {timeout_s:.3g} s; the client's process was killed") from None
        if not line:
            raise WorkerError(await self._last_words())
        reply = json.loads(line)
        assert isinstance(reply, dict)
        return reply

    async def _last_words(self) -> str:
        """The end of the process, and the last line that it wrote."""
        assert self._process is not None
        assert self._home is not None
        code = await self._process.wait()
        lines = (Path(self._home.name) / "errors").read_text(errors="replace").strip().splitlines()
        how = f"killed by signal {-code}" if code < 0 else f"ended with {code}"
        return f"the client's process was {how}" + (f": {lines[-1][:200]}" if lines else "")


class Standby:
    """A worker that is kept ready: started in the background, so that an operation that is given up meanwhile does not
    restart it, and started again by the operation that finds it dead. One operation at a time, others wait.
    """

    def __init__(self, start: Callable[[], Coroutine[Any, Any, Worker]]) -> None:
        self._start = start
        self._lock = asyncio.Lock()
        self._starting: asyncio.Task[Worker] | None = None
        self._worker: Worker | None = None

    async def ready(self) -> Worker:
        """The running worker. Raises NotStarted, and any error of `start`."""
        if self._worker is not None:
            if self._worker.alive:
                return self._worker
            await self._worker.close()
            self._worker = None
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        starting = self._starting
        try:
            self._worker = await asyncio.shield(starting)
        finally:
            if starting.done():
                self._starting = None
        return self._worker

    async def ask(
        self, request: Callable[[float], Mapping[str, Any]], timeout_s: float, *, grace_s: float = 0
    ) -> dict[str, Any]:
        """The answer to the request that `request` makes from the seconds that are left for it. The process is killed
        `grace_s` after the time-out. Raises NotStarted if no request was sent, else WorkerError.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(until):
                await self._lock.acquire()
        except TimeoutError:
            raise NotStarted("the previous operation has not ended yet") from None
        try:
            try:
                async with asyncio.timeout_at(until):
                    worker = await self.ready()
            except TimeoutError:
                raise NotStarted("the client's process is still starting") from None
            left = max(0.0, until - loop.time())
            return await worker.ask(request(left), left + grace_s)
        finally:
            self._lock.release()

    async def close(self) -> None:
        """Ends the process, also one that is about to start. The next operation starts another one."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close()


def _python(module: str, args: Sequence[str]) -> list[str]:
    """The command of this interpreter, without warnings of foreign packages. It ignores the working directory (-P)."""
    return [sys.executable, "-P", "-W", "ignore", "-m", module, *args]
