"""A process of its own for a client that others wrote: requests and answers are lines of JSON, one at a time.

A request that is not answered in time costs the process its life, because nobody knows when it would answer. Who uses
it starts another one, and tells that one what it has to know.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_START_S: Final = 20.0
"""Interpreter and libraries on a machine that is busy; part of no request's deadline."""

_LINE_LIMIT: Final = 1 << 20


class WorkerError(Exception):
    """No answer. One line: what happened to the process."""


class NotStarted(WorkerError):
    """The process did not come up, so nothing was asked of it. The text is its own where it gave one."""


class Worker:
    """One process, `python -m MODULE ARGS`. Its home directory is a temporary one: these clients write logs there."""

    def __init__(self, module: str, *args: str) -> None:
        self.module, self.args = module, args
        self._process: asyncio.subprocess.Process | None = None
        self._home: Path | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Have it ready for requests. Raises NotStarted."""
        self._home = Path(tempfile.mkdtemp(prefix="harness-client-"))
        try:
            with (self._home / "errors").open("wb") as errors:
                self._process = await asyncio.create_subprocess_exec(
                    *_python(self.module, self.args),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    cwd=self._home,
                    env={**os.environ, "HOME": str(self._home)},
                    limit=_LINE_LIMIT,
                )
        except OSError as e:
            await self.close()
            raise NotStarted(f"the client's process could not be started: {e}") from None
        try:
            said = await self._answer(_START_S)
        except WorkerError as e:
            await self.close()
            raise NotStarted(str(e)) from None
        if "error" in said:
            await self.close()
            raise NotStarted(f"{said['error']}: {said['why']}")

    async def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to a request. Raises WorkerError; then the process has ended."""
        assert self._process is not None, "start comes first"
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
        """End it at once. Idempotent."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        home, self._home = self._home, None
        if home is not None:
            shutil.rmtree(home, ignore_errors=True)

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
        said = json.loads(line)
        assert isinstance(said, dict)
        return said

    async def _last_words(self) -> str:
        """How the process ended, and the last line it wrote."""
        assert self._process is not None
        assert self._home is not None
        code = await self._process.wait()
        lines = (self._home / "errors").read_text(errors="replace").strip().splitlines()
        how = f"killed by signal {-code}" if code < 0 else f"ended with {code}"
        return f"the client's process was {how}" + (f": {lines[-1][:200]}" if lines else "")


def _python(module: str, args: Sequence[str]) -> list[str]:
    """Our own interpreter. Warnings of foreign packages are theirs."""
    return [sys.executable, "-W", "ignore", "-m", module, *args]
