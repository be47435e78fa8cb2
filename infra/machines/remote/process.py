# SPDX-License-Identifier: Apache-2.0
"""Commands as processes of this machine: `infra.machines.remote.api.Remote` for machines that a local program can
enter.

`prefix` is the command that enters the machine (`nsenter --target PID --all --`, `chroot DIR`, `docker exec -i NAME`);
empty means this machine. It needs no network, so no fault can cut the control program off from a node.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from infra.machines.api import InfraError, NodeUnreachable
from infra.machines.remote.api import CAP, ExecResult, Stream

_CHUNK = 1 << 16


class ProcessRemote:
    """Implements `infra.machines.remote.api.Remote`. name: of the node, for messages."""

    def __init__(self, name: str, prefix: Sequence[str] = ()) -> None:
        self.name, self._prefix = name, list(prefix)
        self._streams: list[PipeStream] = []

    @property
    def where(self) -> str:
        return " ".join(self._prefix) or "this machine"

    def execute(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        deadline_s: float,
        cap: int = CAP,
        sink: Callable[[bytes], object] | None = None,
    ) -> ExecResult:
        with self._start(argv) as process:
            try:
                return _drained(process, stdin, time.monotonic() + deadline_s, cap, sink)
            except TimeoutError:
                process.kill()
                raise NodeUnreachable(f"{self.name}: the end of the command was not seen in time") from None

    def open(self, argv: Sequence[str], timeout_s: float = 30) -> Stream:
        stream = PipeStream(self._start(argv))
        self._streams.append(stream)
        return stream

    def connect(self, timeout_s: float) -> None:
        self.execute(["true"], deadline_s=timeout_s)

    def close(self) -> None:
        while self._streams:
            self._streams.pop().close()

    def _start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [*self._prefix, *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Away from our terminal: a Ctrl-C must not end what holds a fault.
                start_new_session=True,
                cwd="/",
            )
        except (OSError, ValueError) as problem:
            raise InfraError(f"{self.name}: {argv[0] if argv else 'nothing'} cannot be started: {problem}") from None


class PipeStream:
    """A process with its pipes; implements `infra.machines.remote.api.Stream`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._rest = process, b""

    def send(self, data: bytes, deadline: float) -> bool:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def line(self, deadline: float) -> str | None:
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return None
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                return None
            data = os.read(self._process.stdout.fileno(), 4096)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")

    @property
    def stderr(self) -> str:
        assert self._process.stderr is not None
        if self._process.stderr.closed or not select.select([self._process.stderr], [], [], 0)[0]:
            return ""
        return " ".join(os.read(self._process.stderr.fileno(), 4096).decode(errors="replace").split())

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError, ValueError):
                assert pipe is not None
                pipe.close()
        self._process.poll()


def _drained(
    process: subprocess.Popen[bytes],
    stdin: bytes,
    deadline: float,
    cap: int,
    sink: Callable[[bytes], object] | None,
) -> ExecResult:
    """Feeds and drains a process until it has ended. Raises TimeoutError."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    kept: dict[int, bytearray] = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out = process.stdout.fileno()
    truncated, left = False, memoryview(stdin)
    os.set_blocking(process.stdin.fileno(), False)
    reading = set(kept)
    while reading or left:
        wait = deadline - time.monotonic()
        if wait <= 0:
            raise TimeoutError
        writing = [process.stdin] if left else []
        if not left and not process.stdin.closed:
            process.stdin.close()
        ready, writable, _ = select.select(list(reading), writing, [], wait)
        if writable:
            try:
                left = left[os.write(process.stdin.fileno(), left[:_CHUNK]) :]
            except BrokenPipeError:  # it ends without having read all: its exit code shows the reason
                left = left[:0]
        for fd in ready:
            data = os.read(fd, _CHUNK)
            if not data:
                reading.discard(fd)
            elif fd == out and sink is not None:
                sink(data)
            else:
                room = cap - len(kept[fd])
                truncated = truncated or len(data) > room
                kept[fd] += data[:room]
    try:
        code = process.wait(max(0.001, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    stdout, stderr = (bytes(data) for data in kept.values())
    return ExecResult(code if code >= 0 else -1, stdout, stderr, truncated)
