# SPDX-License-Identifier: Apache-2.0
"""Numbered datagrams and their echoes, to measure a link: python3 and its standard library alone.

    python3 -c TEXT listen TTL_S                                      prints the port, once it is bound
    python3 -c TEXT send ADDRESS PORT SOURCE COUNT GAP_S SIZE         prints how many were sent
    python3 -c TEXT ping ADDRESS PORT SOURCE COUNT TIMEOUT_S          prints the round trips that came back, in ms
    python3 -c TEXT report PORT SETTLE_S                              prints what arrived; ends the listener

(Debian's python3-minimal, which has no json, must be enough.)

UDP, in both directions between SOURCE (0: any) on the sender's side and PORT. A listener lives in a process of its own,
until its report or for TTL_S seconds. The report is requested on the loopback interface, which no fault touches.
Everything is measured in user space, at the sockets.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time

_NUMBERED, _PING, _REPORT, _END = b"N", b"P", b"R", b"E"
_HEAD = struct.Struct("!cI")
_BUFFER = 8 << 20
_RCVBUFFORCE = 33


class Arrivals:
    """The datagrams of a listener: numbered ones in all, different ones, those behind a later one, bytes, times."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.arrived = self.behind = self.bytes = 0
        self.last_number = -1
        self.first = self.last = 0.0

    def take(self, number: int, size: int, now: float) -> None:
        """Counts one more datagram."""
        self.first = self.first or now
        self.last = now
        self.arrived += 1
        self.bytes += size
        if number not in self.numbers:
            self.numbers.add(number)
            self.behind += number < self.last_number
        self.last_number = max(self.last_number, number)

    def told(self) -> str:
        """The line of the report: `arrived different behind bytes seconds`."""
        return f"{self.arrived} {len(self.numbers)} {self.behind} {self.bytes} {self.last - self.first:.6f}"


def listen(ttl_s: float) -> None:
    """Binds a port, prints it, and serves it in a separate process."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("0.0.0.0", 0))
    try:
        server.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _BUFFER)
    except PermissionError:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    print(server.getsockname()[1], flush=True)
    if os.fork():
        return
    os.setsid()
    signal.alarm(int(ttl_s) + 1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    _serve(server)


def _serve(server: socket.socket) -> None:
    found = Arrivals()
    while True:
        data, sender = server.recvfrom(1 << 16)
        if len(data) < _HEAD.size:
            continue
        kind, number = _HEAD.unpack_from(data)
        ours = sender[0] == "127.0.0.1"
        if kind == _NUMBERED:
            found.take(number, len(data), time.monotonic())
        elif kind == _PING:
            server.sendto(data, sender)
        elif kind == _REPORT and ours:
            server.sendto(found.told().encode(), sender)
        elif kind == _END and ours:
            return


def _towards(address: str, port: int, source: int) -> socket.socket:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # several probes at once may need the same source
    client.bind(("0.0.0.0", source))
    client.connect((address, port))
    return client


def send(address: str, port: int, source: int, count: int, gap_s: float, size: int) -> None:
    """Sends numbered datagrams of `size` bytes of payload, one every `gap_s`; 0: as fast as the kernel takes them."""
    client = _towards(address, port, source)
    begun = time.monotonic()
    for number in range(count):
        wait = begun + number * gap_s - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        client.send(_HEAD.pack(_NUMBERED, number).ljust(size, b"."))
    print(count)


def ping(address: str, port: int, source: int, count: int, timeout_s: float) -> None:
    """Sends one after the other; each waits for its echo, for at most `timeout_s`. The second missing echo ends it."""
    client = _towards(address, port, source)
    found = []
    missing = 0
    for number in range(count):
        begun = time.monotonic()
        client.send(_HEAD.pack(_PING, number))
        try:
            while True:
                client.settimeout(max(0.001, begun + timeout_s - time.monotonic()))
                if _HEAD.unpack_from(client.recv(1 << 16)) == (_PING, number):
                    break
        except OSError:
            missing += 1
            if missing == 2:
                break
            continue
        found.append(round((time.monotonic() - begun) * 1000, 3))
    print(*found)


def report(port: int, settle_s: float) -> None:
    """Prints the arrivals, once nothing new has come for `settle_s`."""
    client = _towards("127.0.0.1", port, 0)
    client.settimeout(5)
    before = b""
    while True:
        client.send(_HEAD.pack(_REPORT, 0))
        now = client.recv(1 << 16)
        if now == before:
            break
        before = now
        time.sleep(settle_s)
    client.send(_HEAD.pack(_END, 0))
    print(now.decode())


def main(command: str, *words: str) -> None:
    """See the module."""
    match command:
        case "listen":
            listen(float(words[0]))
        case "send":
            send(words[0], int(words[1]), int(words[2]), int(words[3]), float(words[4]), int(words[5]))
        case "ping":
            ping(words[0], int(words[1]), int(words[2]), int(words[3]), float(words[4]))
        case "report":
            report(int(words[0]), float(words[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
