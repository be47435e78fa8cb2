# SPDX-License-Identifier: Apache-2.0
"""Holds back the packets of a netfilter queue, on the node itself: python3 and its standard library alone.

    python3 -c TEXT delayer NAME QUEUE MARK DELAY_S JITTER_S TTL_S

NAME only marks the process's command line. The command ends with 0 as soon as the queue is bound (and with 1 and a
line on stderr if that fails: another process has it, say); a separate process continues until SIGTERM, or for TTL_S
seconds. At its end it releases all packets that it holds. If it is killed, the kernel drops those, and later packets
pass, since the rule has `--queue-bypass`.

Each packet waits DELAY_S, plus or minus a random part of at most JITTER_S. Then the bit MARK of its mark is cleared and
the rules of its hook are applied again (NF_REPEAT): so it passes this queue once, and other queues after it.

The messages are those of linux/netfilter/nfnetlink_queue.h. Only metadata is copied: the content of a packet stays in
the kernel.
"""

from __future__ import annotations

import heapq
import os
import random
import select
import signal
import socket
import struct
import sys
import time

_NETFILTER = 12
_QUEUE = 3 << 8
_PACKET, _VERDICT, _CONFIG = _QUEUE | 0, _QUEUE | 1, _QUEUE | 2
_ERROR = 2
_REQUEST, _ACK = 1, 4

_CFG_CMD, _CFG_PARAMS, _CFG_MAXLEN, _CFG_MASK, _CFG_FLAGS = 1, 2, 3, 4, 5
_BIND = 1
_COPY_META = 1
_FAIL_OPEN, _GSO = 1, 4
_MAXLEN = 100_000
"""The most packets that wait; further ones pass at once (FAIL_OPEN)."""

_ATTR_VERDICT, _ATTR_MARK = 2, 3
_NF_REPEAT = 4
_ID_AT = 24
"""Offset of the packet's id: after nlmsghdr (16), nfgenmsg (4) and the header of the first attribute (4)."""
_SECOND_ATTR_AT = 32

_SOL_NETLINK, _NO_ENOBUFS = 270, 5
_RCVBUFFORCE = 33
_RECEIVE_BYTES = 8 << 20
_AT_ONCE = 64
"""Verdicts in one message to the kernel."""


def attribute(kind: int, payload: bytes) -> bytes:
    """A netlink attribute, padded to 4 bytes."""
    return struct.pack("=HH", 4 + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)


def message(kind: int, queue: int, body: bytes, flags: int = _REQUEST) -> bytes:
    """nlmsghdr, nfgenmsg and attributes."""
    return struct.pack("=IHHII", 20 + len(body), kind, flags, 0, 0) + struct.pack("!BBH", 0, 0, queue) + body


def verdict(queue: int, packet: int, mark: int) -> bytes:
    """The verdict that applies the rules to this packet again, with this mark."""
    body = attribute(_ATTR_VERDICT, struct.pack("!II", _NF_REPEAT, packet)) + attribute(
        _ATTR_MARK, struct.pack("!I", mark)
    )
    return message(_VERDICT, queue, body)


def packets(data: bytes) -> list[tuple[int, int]]:
    """(id, mark) of the packets that a datagram from the kernel lists."""
    found = []
    at = 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if length < 16:
            break
        if kind == _PACKET:
            (number,) = struct.unpack_from("!I", data, at + _ID_AT)
            found.append((number, _mark(data, at + _SECOND_ATTR_AT, at + length)))
        at += (length + 3) & ~3
    return found


def _mark(data: bytes, at: int, end: int) -> int:
    while at + 8 <= end:
        length, kind = struct.unpack_from("=HH", data, at)
        if kind & 0x3FFF == _ATTR_MARK:
            (mark,) = struct.unpack_from("!I", data, at + 4)
            return int(mark)
        at += max(4, (length + 3) & ~3)
    return 0


class Delayer:
    """A queue, and its waiting packets, ordered by the time when they are due."""

    def __init__(self, queue: int, mark: int, delay_s: float, jitter_s: float) -> None:
        self.queue, self.mark, self.delay_s, self.jitter_s = queue, mark, delay_s, jitter_s
        self.waiting: list[tuple[float, int, int]] = []
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)

    def bind(self) -> None:
        """Takes the queue. Raises OSError if another process has it."""
        self.socket.bind((os.getpid(), 0))  # the kernel's list of queues then names this process
        self.socket.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _RECEIVE_BYTES)
        except PermissionError:  # in a user namespace
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        self._configure(_CFG_CMD, struct.pack("!BBH", _BIND, 0, 0))
        self._configure(_CFG_PARAMS, struct.pack("!IB", 0, _COPY_META))
        self._configure(_CFG_MAXLEN, struct.pack("!I", _MAXLEN))
        flags = struct.pack("!I", _FAIL_OPEN | _GSO)
        self._configure(_CFG_FLAGS, flags, attribute(_CFG_MASK, flags))
        self.socket.setblocking(False)

    def _configure(self, kind: int, payload: bytes, more: bytes = b"") -> None:
        self.socket.send(message(_CONFIG, self.queue, more + attribute(kind, payload), _REQUEST | _ACK))
        while True:
            data = self.socket.recv(1 << 16)
            if struct.unpack_from("=H", data, 4)[0] == _ERROR:
                break
            self._take(data, time.monotonic())
        (code,) = struct.unpack_from("=i", data, 16)
        if code:
            raise OSError(-code, os.strerror(-code))

    def serve(self, until: float) -> None:
        """Serves until this time of `time.monotonic`, or until a signal raises SystemExit; then no packet waits."""
        try:
            while (now := time.monotonic()) < until:
                due = min(self.waiting[0][0], until) if self.waiting else until
                if select.select([self.socket], [], [], max(0.0, min(due - now, 1.0)))[0]:
                    self._receive()
                self._release(time.monotonic())
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._receive()
            self._release(float("inf"))

    def _receive(self) -> None:
        now = time.monotonic()
        for _ in range(256):
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return
            self._take(data, now)

    def _take(self, data: bytes, now: float) -> None:
        for number, mark in packets(data):
            wait = self.delay_s + random.uniform(-self.jitter_s, self.jitter_s)
            heapq.heappush(self.waiting, (now + wait, number, mark))

    def _release(self, now: float) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            batch: list[bytes] = []
            while self.waiting and self.waiting[0][0] <= now and len(batch) < _AT_ONCE:
                _, number, mark = heapq.heappop(self.waiting)
                batch.append(verdict(self.queue, number, mark & ~self.mark))
            self.socket.send(b"".join(batch))


def start(queue: int, mark: int, delay_s: float, jitter_s: float, ttl_s: float) -> int:
    """Returns the exit code of the command; 0: a separate process has bound the queue."""
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        problem = os.read(told, 1000).decode()
        if problem != "bound":
            sys.stderr.write(f"{problem or 'the delayer ended at once'}\n")
        return int(problem != "bound")
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    delayer = Delayer(queue, mark, delay_s, jitter_s)
    try:
        delayer.bind()
    except OSError as problem:
        os.write(tell, f"queue {queue} cannot be bound: {problem.strerror}".encode())
        return 1
    os.write(tell, b"bound")
    os.close(tell)
    delayer.serve(time.monotonic() + ttl_s)
    return 0


if __name__ == "__main__":
    _, _, _, _queue, _bit, *_times = sys.argv
    sys.exit(start(int(_queue), int(_bit), *map(float, _times)))
