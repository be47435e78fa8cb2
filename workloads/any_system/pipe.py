# SPDX-License-Identifier: Apache-2.0
"""A client program as a client: one line of JSON in for each invocation, one line of JSON out for its completion.

    in   {"op": "write", "key": "k3", "value": 7}
    out  {"type": "ok"}

The program gets one operation at a time. If it dies, is silent until the deadline, or prints anything else, the
operation is `info`, and the program is killed: the next process of its thread starts a new one. `extra["accident"]` of
the operation is then `died`, `silent` or `garbled`; `checkers.run.client_programs` counts them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from harness.api import Completion
from results.op import FAIL, INFO, OK, Op

log = logging.getLogger("harness.client")

_LINE: Final = 1 << 20
_END_S: Final = 1.0
_SHOWN: Final = 200
_LOGGED: Final = 100
"""Lines of stderr of one program that the run's log keeps."""

Result = Callable[[Op, Mapping[str, Any]], Any]
"""The value of an acknowledged op, from the program's answer. Raises ValueError for a value that the op cannot have."""


class PipeClient:
    """The client of one process; implements `harness.api.Client`.

    argv, env  the program; it starts in `folder`. node: the node that it uses. deadline_s: of an operation.
    result     see `Result`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        node: str,
        deadline_s: float,
        result: Result,
    ) -> None:
        self._argv, self._env, self._folder, self._result = list(argv), env, folder, result
        self._node, self._deadline_s = node, deadline_s
        self._process: asyncio.subprocess.Process | None = None
        self._errors: asyncio.Task[None] | None = None
        self._last = ""

    async def open(self) -> None:
        """Starts the program. Raises OSError."""
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._folder,
            env={**os.environ, **self._env},
            limit=_LINE,
            start_new_session=True,
        )
        self._errors = asyncio.create_task(self._drain())

    async def invoke(self, op: Op) -> Completion:
        request = {"op": op.f, "key": op.key, "value": op.value}
        extra = {"node": self._node}
        try:
            async with asyncio.timeout(self._deadline_s):
                line = await self._ask(json.dumps(request).encode() + b"\n")
        except TimeoutError:
            return _lost("silent", f"no line of the client within {self._deadline_s:g} s", extra)
        except (OSError, EOFError):
            return _lost("died", f"the client has ended: {await self._last_words()}", extra)
        except ValueError:
            return _lost("garbled", f"the client printed a line of more than {_LINE} bytes", extra)
        try:
            return self._completion(op, line, extra)
        except ValueError as problem:
            shown = line.decode(errors="replace").strip()[:_SHOWN]
            return _lost("garbled", f"the client's answer {shown!r} {problem}", extra)

    async def close(self) -> None:
        """Ends the program with all that it has started: it loses its stdin, and is killed after a second."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if self._errors is not None:
            self._errors.cancel()
            await asyncio.gather(self._errors, return_exceptions=True)

    async def _ask(self, request: bytes) -> bytes:
        """Sends a line and returns the next one. Raises OSError, EOFError, ValueError."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line

    def _completion(self, op: Op, line: bytes, extra: Mapping[str, Any]) -> Completion:
        """The completion that a line is. Raises ValueError."""
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError("is not JSON") from None
        if not isinstance(answer, dict) or answer.get("type") not in (OK, FAIL, INFO):
            raise ValueError('has no "type" that is "ok", "fail" or "info"')
        if answer["type"] == OK:
            return Completion(OK, self._result(op, answer), None, extra)
        error = answer.get("error")
        text = "the client gave no reason" if error is None else " ".join(str(error).split())[:_SHOWN]
        return Completion(answer["type"], None, text, extra)

    async def _last_words(self) -> str:
        """The exit code of the program, and the last line on its stderr."""
        process = self._process
        assert process is not None
        try:
            async with asyncio.timeout(_END_S):
                code = await process.wait()
                if self._errors is not None:
                    await asyncio.shield(self._errors)
        except TimeoutError:
            return "it closed its output"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{how}: {self._last or 'nothing on stderr'}"

    async def _drain(self) -> None:
        """Reads stderr, so that the program never blocks on it, into the log of the run."""
        process = self._process
        assert process is not None
        assert process.stderr is not None
        left = _LOGGED
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # a very long line
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()[:_SHOWN]
            if text:
                self._last = text
                if left > 0:
                    log.info("client at %s: %s", self._node, text)
                left -= 1


def _lost(accident: str, why: str, extra: Mapping[str, Any]) -> Completion:
    """The completion of an op whose program is not used any more."""
    return Completion(INFO, None, why, {**extra, "accident": accident})
