# SPDX-License-Identifier: Apache-2.0
"""The transport interface: the functions of a machine that nodes, leases and fault primitives need.

`Remote` is deliberately small: run a command to its end, or start one and keep its stdin and stdout. Everything else
(files, daemons, leases, probes) is built from these two in `infra.machines.node` and `infra.machines.lease`, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

CAP: Final = 16 << 20
"""Bytes kept of stdout, and of stderr, unless the caller sets another limit."""


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
        """Writes to its stdin, until `deadline` (of `time.monotonic`). False: it takes no more data."""

    def line(self, deadline: float) -> str | None:
        """Its next line, or None at the end of its stdout or at the deadline."""

    @property
    def stderr(self) -> str:
        """The text on stderr so far, in one line."""

    def close(self) -> None:
        """Closes the stream: its stdin ends. Never raises."""


class Remote(Protocol):
    """The way of commands to one machine. Thread-safe. Commands are argv lists; no shell ever sees a value.

    where  its destination, for messages.
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
        """Runs a command to its end, stdout and stderr drained together. With `sink`, stdout goes there and is not
        kept.

        Raises NodeUnreachable if the end was not seen within `deadline_s`: then it may or may not have run. A command
        that may have run is never sent again. InfraError: it certainly did not run.
        """

    def open(self, argv: Sequence[str], timeout_s: float = 30) -> Stream:
        """Starts a command and keeps it. It has no deadline on the machine. Raises NodeUnreachable, InfraError."""

    def connect(self, timeout_s: float) -> None:
        """Prepares for commands. Raises NodeUnreachable while the machine is silent, InfraError if it will stay so."""

    def close(self) -> None:
        """Ends everything that depends on this way: streams, and with them leases. A later command opens it again."""
