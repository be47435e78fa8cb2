"""The transport interface: the functions of a machine that nodes, leases and fault primitives need.

`Remote` is deliberately small: run a command to its end, or start one and keep its stdin and stdout. Everything else
(files, daemons, leases, probes) is built from these two in `infra.machines.node` and `infra.machines.lease`, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

CAP: Final = 16 << 20
"""Bytes kept of stdout, and of stderr, unless the caller says otherwise."""


@dataclass(frozen=True)
class ExecResult:
    """The result of a command. `code` -1: ended by a signal, if the way to the machine gives no status for that."""

    code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False


class Stream(Protocol):
    """A command that runs, with its stdin and stdout. When the control program dies, its stdin ends."""

    def send(self, data: bytes, deadline: float) -> bool:
        """Write to its stdin, until `deadline` (of `time.monotonic`). False: it takes nothing any more."""

    def line(self, deadline: float) -> str | None:
        """Its next line, or None at the end of its stdout or at the deadline."""

    @property
    def stderr(self) -> str:
        """The text on stderr so far, in one line."""

    def close(self) -> None:
        """Closes the stream: its stdin ends. Never raises."""


class Remote(Protocol):
    """A way in which commands reach one machine. Thread-safe. Commands are argv lists; no shell ever sees a value.

    where  what it connects to, for messages.
    """

    @property
    def where(self) -> str: ...

    def execute(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        deadline_s: float,
        cap: int = CAP,
        sink: Callable[[bytes], object] | None = None,
    ) -> ExecResult:
        """Run to the end, stdout and stderr drained together. With `sink`, stdout goes there and is not kept.

        Raises NodeUnreachable when the end was not seen within `deadline_s`: then it may or may not have run. A command
        that may have run is never sent again. InfraError: it certainly did not run.
        """

    def open(self, argv: Sequence[str], timeout_s: float = 30) -> Stream:
        """Start a command and keep it. It has no deadline on the machine. Raises NodeUnreachable, InfraError."""

    def connect(self, timeout_s: float) -> None:
        """Be ready for commands. Raises NodeUnreachable while the machine does not answer, InfraError where it never
        will.
        """

    def close(self) -> None:
        """End everything that hangs on this way: streams, and with them leases. A later command opens it again."""
