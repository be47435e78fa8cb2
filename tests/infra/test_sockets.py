# SPDX-License-Identifier: Apache-2.0
"""Connections that are muted before their process ends; what cannot be muted is counted."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from infra.machines.scripts import sockets


def _talk(ready: int, done: int) -> None:
    """Hold the sockets until the other side is done. Those of other tests are closed: they must not be muted."""
    for name in set(map(int, os.listdir("/proc/self/fd"))) - {ready, done}:
        with suppress(OSError):
            os.close(name)
    server = socket.create_server(("127.0.0.1", 0))
    held = [server, socket.create_connection(server.getsockname()), server.accept()[0], *socket.socketpair()]
    os.write(ready, bytes([len(held)]))
    os.read(done, 1)


@contextmanager
def talking() -> Iterator[tuple[int, int]]:
    """A process (number, pidfd) with a listening socket, a connection to itself (two ends) and a pair without TCP."""
    ready, done = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _talk(ready[1], done[0])
        finally:
            os._exit(0)
    os.close(ready[1])
    os.close(done[0])
    end = os.pidfd_open(pid)
    try:
        os.read(ready[0], 1)
        yield pid, end
    finally:
        for name in (end, ready[0], done[1]):
            os.close(name)
        os.waitpid(pid, 0)


def test_both_ends_of_a_connection_are_muted() -> None:
    with talking() as process:
        found, told = sockets.muted([process])
        for held in found:
            held.close()
        if os.geteuid():
            assert not found
            assert told >= 2
        else:
            assert (len(found), told) == (2, 0)


def test_a_socket_that_cannot_be_copied_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_libc", SimpleNamespace(syscall=lambda *words: -1))
    with talking() as process:
        assert sockets.muted([process]) == ([], 5)


def test_a_connection_that_the_kernel_does_not_mute_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "TCP_REPAIR", 9999)
    with talking() as process:
        assert sockets.muted([process]) == ([], 2)
