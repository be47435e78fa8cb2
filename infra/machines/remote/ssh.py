# SPDX-License-Identifier: Apache-2.0
"""Commands over SSH: `infra.machines.remote.api.Remote` on one connection.

sshd's `exec` takes one string and passes it to the user's login shell, so an argv list becomes a string in exactly one
place (`command_line`), by `shlex.join`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from typing import Final

import paramiko

from infra.machines.api import InfraError, NodeUnreachable
from infra.machines.remote.api import CAP, ExecResult, Stream
from infra.machines.remote.ssh_connection import Connection, shut

_LONGEST_LINE: Final = (128 << 10) - 64
"""Linux' limit for one argument (MAX_ARG_STRLEN), and the whole line is one argument of the login shell; less what
`ssh_connection` puts around it.
"""


def command_line(argv: Sequence[str]) -> bytes:
    """The argv as one line for a POSIX shell, which splits it into the same words again.

    Words may hold any character but NUL; undecodable bytes of file names may be there as surrogates.
    """
    if not argv:
        raise ValueError("an empty command")
    if any("\0" in word for word in argv):
        raise ValueError(f"a command cannot hold a NUL character: {list(argv)!r}")
    return shlex.join(argv).encode("utf-8", "surrogateescape")


class SshRemote:
    """Implements `infra.machines.remote.api.Remote`. `sudo`: commands run through `sudo -n` (a user who is not root).

    Connects on first use, and again if the connection is found dead before a command was sent.
    """

    def __init__(self, connection: Connection, *, sudo: bool = False) -> None:
        self.connection = connection
        self._sudo = sudo

    @property
    def where(self) -> str:
        return self.connection.where

    def execute(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        deadline_s: float,
        cap: int = CAP,
        sink: Callable[[bytes], object] | None = None,
    ) -> ExecResult:
        line = self._line(argv)
        return self.connection.execute(line, stdin=stdin, deadline_s=deadline_s, cap=cap, sink=sink)

    def open(self, argv: Sequence[str], timeout_s: float = 30) -> Stream:
        channel = self.connection.open_channel(timeout_s)
        try:
            self.connection.start(channel, b"exec " + self._line(argv), timeout_s)
        except NodeUnreachable:
            shut(channel)
            raise
        return ChannelStream(channel)

    def connect(self, timeout_s: float) -> None:
        self.connection.connect(timeout_s)

    def close(self) -> None:
        self.connection.close()

    def _line(self, argv: Sequence[str]) -> bytes:
        line = command_line(argv)
        if self._sudo:
            # sudo drops the environment; our address is queried before a network is cut (`control_address`).
            line = b'sudo -n -- env "SSH_CONNECTION=$SSH_CONNECTION" ' + line
        if len(line) >= _LONGEST_LINE:
            raise InfraError(
                f"{self.connection.name}: a command of {len(line)} bytes is too long (limit {_LONGEST_LINE}); "
                "pass data by stdin"
            )
        return line


class ChannelStream:
    """A command on its own channel; implements `infra.machines.remote.api.Stream`."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel, self._rest = channel, b""

    def send(self, data: bytes, deadline: float) -> bool:
        try:
            self._channel.settimeout(max(0.001, deadline - time.monotonic()))
            self._channel.sendall(data)
        except (OSError, EOFError, paramiko.SSHException):
            return False
        return True

    def line(self, deadline: float) -> str | None:
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._channel.settimeout(left)
            try:
                data = self._channel.recv(4096)
            except (OSError, EOFError, paramiko.SSHException):
                return None
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")

    @property
    def stderr(self) -> str:
        ready = self._channel.recv_stderr(4096) if self._channel.recv_stderr_ready() else b""
        return " ".join(ready.decode(errors="replace").split())

    def close(self) -> None:
        shut(self._channel)
