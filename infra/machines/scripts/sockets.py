# SPDX-License-Identifier: Apache-2.0
"""Connections that end silently, like those of a machine that loses its power.

A process that is killed closes its connections, and the kernel notifies the peers (FIN or RST). Here its sockets are
copied before (pidfd_getfd(2), Linux 5.6) and set into repair mode (TCP_REPAIR of linux/tcp.h, made for CRIU): a
socket that is closed in it sends nothing (`tcp_close` and `tcp_disconnect` in net/ipv4/tcp.c). Later packets of peers
are answered by a reset, as by a machine that has started again.

The part of `volume.py` that knows sockets. It runs as root on the host, without any package.
"""

import contextlib
import ctypes
import os
import socket

PIDFD_GETFD = 438
TCP_REPAIR = 19

_libc = ctypes.CDLL(None, use_errno=True)


def muted(ends: list[tuple[int, int]]) -> tuple[list[socket.socket], int]:
    """The TCP connections of stopped processes (number, pidfd), from now on mute, to be closed when the processes have
    ended; and the number of sockets that this kernel does not let us copy or mute: their peers will notice. Listening
    sockets have no peers.
    """
    found, refused = [], 0
    for pid, end in ends:
        for name in _descriptors(pid):
            copy = _libc.syscall(PIDFD_GETFD, end, name, 0)
            if copy < 0:
                refused += 1
                continue
            held = socket.socket(fileno=copy)
            if _connects(held):
                try:
                    held.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
                    found.append(held)
                    continue
                except OSError:
                    refused += 1
            held.close()
    return found, refused


def _connects(held: socket.socket) -> bool:
    tcp = held.type == socket.SOCK_STREAM and held.family in (socket.AF_INET, socket.AF_INET6)
    return tcp and not held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


def _descriptors(pid: int) -> list[int]:
    """The descriptors of a process that are sockets."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    found.append(int(name))
    return found
