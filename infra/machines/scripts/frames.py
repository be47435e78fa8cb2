# SPDX-License-Identifier: Apache-2.0
"""A proxy for RocketMQ's frames, on the node itself: it counts them by code, and can hold, lose or repeat one of them.

    python3 -c TEXT CONTROL PORT MARK       starts the proxy; ends with 0 once it listens

Connections arrive by a REDIRECT rule of iptables; the kernel returns their original destination. The proxy's own
connections have the mark MARK, so that the rule lets them pass. CONTROL is the path of a socket for commands (each
is sent by a short script beside this one):

    arm ID KEY=VALUE...     from now on, do something with a frame; see `Rule`
    disarm ID               no longer; frames that are held for it are passed on
    report                  `count PORT request|response CODE TOWARDS NUMBER` for all frames since the start, and
                            `fired ID TIME_MS NUMBER` for each frame with which something was done

A frame (RemotingCommand) is a length, the header's length with the encoding in its highest byte, a header as JSON or
binary, and a body. An answer has the code of its request here, found by its number (`opaque`). Other bytes are passed
on unchanged and counted with the code -1.

While no rule is armed, bytes are passed on as they come, and are divided into frames later, many at a time.

Uses the standard library alone, without what python3-minimal lacks.
"""

from __future__ import annotations

import errno
import heapq
import os
import re
import select
import signal
import socket
import struct
import sys
import time

_ORIGINAL_DST = 80
_MARK = 36
_LONGEST = 64 << 20
_FULL = 1 << 20
"""Bytes that wait for one end before the other is no longer read."""
_READ = 1 << 16
_REMEMBERED = 10_000
"""The most requests without an answer that are remembered for a connection."""
_UNREAD = 1 << 18
"""Bytes that were passed on, and are not counted yet."""

RAW = -1
_CODE = re.compile(rb'"code"\s*:\s*(-?[0-9]+)')
_FLAG = re.compile(rb'"flag"\s*:\s*([0-9]+)')
_OPAQUE = re.compile(rb'"opaque"\s*:\s*(-?[0-9]+)')
_ONE_WAY = 2


class NoFrame(Exception):
    """These bytes are no frame."""


def read_header(frame: bytes) -> tuple[int, int, int]:
    """Code, flag and number of a whole frame, with its length in front. Raises NoFrame."""
    (word,) = struct.unpack_from("!I", frame, 4)
    encoding, length = word >> 24, word & 0xFFFFFF
    if length > len(frame) - 8:
        raise NoFrame
    header = frame[8 : 8 + length]
    if encoding == 1 and length >= 13:
        code, _, _, opaque, flag = struct.unpack_from("!hBhii", header, 0)
        return code, flag, opaque
    found = _CODE.search(header) if encoding == 0 else None
    flags, opaques = _FLAG.findall(header), _OPAQUE.findall(header)
    if found is None or not flags or not opaques:
        raise NoFrame
    return int(found[1]), int(flags[-1]), int(opaques[-1])


class Rule:
    """A rule for some frames.

    port      of the server; 0: any. code: of the request. answer: it acts on the answers to such requests.
    which     the n-th such frame from now on; 0: every one.
    act       delay (`delay` seconds), hold (until the rule is disarmed), drop, close (both ends of its connection),
              repeat (it is passed on twice), kill (the process in `pidfile`, with SIGKILL).
    passes    with kill: the frame is passed on first.
    """

    def __init__(self, name: str, words: list[str]) -> None:
        given = dict(word.split("=", 1) for word in words)
        self.name = name
        self.port = int(given.get("port", "0"))
        self.code = int(given["code"])
        self.answer = given.get("frame") == "response"
        self.which = int(given.get("which", "1"))
        self.act = given["act"]
        self.delay = float(given.get("delay", "0"))
        self.pidfile = given.get("pidfile", "")
        self.passes = given.get("passes") == "true"
        self.met = 0
        self.held: list[tuple[End, bytes]] = []

    def takes(self, port: int, code: int, answer: bool) -> bool:
        """True if it acts on this frame. Counts it."""
        if code != self.code or answer != self.answer or self.port not in (0, port):
            return False
        self.met += 1
        return self.which in (0, self.met)


class End:
    """One socket of a connection: the one that opened it, or the server.

    asked     numbers of its requests -> code. heard: the events that epoll reports of it.
    received  bytes that are not divided into frames yet; the first `ahead` of them are passed on already.
    """

    def __init__(self, sock: socket.socket, port: int, towards: str) -> None:
        self.sock, self.port, self.towards = sock, port, towards
        self.other: End = self
        self.open = True
        self.connecting = False
        self.ended = False
        self.raw = False
        self.received = bytearray()
        self.ahead = 0
        self.waiting = bytearray()
        self.asked: dict[int, int] = {}
        self.heard = 0


class Proxy:
    """All connections, the rules, and the counts."""

    def __init__(self, listener: socket.socket, control: socket.socket, mark: int) -> None:
        self.listener, self.control, self.mark = listener, control, mark
        self.poll = select.epoll()
        self.ends: dict[int, End] = {}
        self.rules: dict[str, Rule] = {}
        self.counts: dict[tuple[int, str, int, str], int] = {}
        self.fired: list[tuple[str, int, int]] = []
        self.late: list[tuple[float, int, End, bytes]] = []
        self.turn = 0

    def serve(self) -> None:
        """Serves for ever."""
        for sock in (self.listener, self.control):
            sock.setblocking(False)
            self.poll.register(sock, select.EPOLLIN)
        while True:
            wait = max(0.0, self.late[0][0] - time.monotonic()) if self.late else -1
            for number, events in self.poll.poll(wait):
                if number == self.listener.fileno():
                    self._accept()
                elif number == self.control.fileno():
                    self._obey()
                elif number in self.ends:
                    self._turn(self.ends[number], events)
            while self.late and self.late[0][0] <= time.monotonic():
                _, _, end, frame = heapq.heappop(self.late)
                self._pass(end, frame)

    def _accept(self) -> None:
        try:
            opener, _ = self.listener.accept()
        except OSError:
            return
        try:
            address, port = self.destination(opener)
        except OSError:  # no rule redirected it
            opener.close()
            return
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if self.mark:
            server.setsockopt(socket.SOL_SOCKET, _MARK, self.mark)
        here, there = End(opener, port, "server"), End(server, port, "opener")
        here.other, there.other = there, here
        there.connecting = True
        for end in (here, there):
            end.sock.setblocking(False)
            end.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ends[end.sock.fileno()] = end
            self.poll.register(end.sock, 0)
        code = server.connect_ex((address, port))
        if code not in (0, errno.EINPROGRESS):
            self._close(here)
            return
        self._listen(here)

    def destination(self, opener: socket.socket) -> tuple[str, int]:
        """The original destination of a redirected connection. Raises OSError."""
        packed = opener.getsockopt(socket.SOL_IP, _ORIGINAL_DST, 16)
        (port,) = struct.unpack_from("!H", packed, 2)
        return socket.inet_ntoa(packed[4:8]), port

    def _listen(self, end: End) -> None:
        """Registers the events to wait for at both ends of a connection."""
        there = end.other
        quiet = not (end.waiting or there.waiting or end.ended or there.ended)
        if quiet and end.heard == there.heard == select.EPOLLIN:
            return
        for one in (end, end.other):
            if not one.open:
                continue
            mask = select.EPOLLOUT if one.connecting or one.waiting else 0
            if not one.ended and not one.other.connecting and not one.connecting and len(one.other.waiting) < _FULL:
                mask |= select.EPOLLIN
            if mask != one.heard:
                one.heard = mask
                self.poll.modify(one.sock, mask)

    def _turn(self, end: End, events: int) -> None:
        try:
            if end.connecting and events:
                problem = end.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if problem:
                    raise OSError(problem, "no connection")
                end.connecting = False
            elif events & (select.EPOLLERR | select.EPOLLHUP) and not events & select.EPOLLIN:
                raise OSError(errno.ECONNRESET, "reset")
            if events & select.EPOLLIN:
                self._receive(end)
            if end.open and end.waiting and events & select.EPOLLOUT:
                self._send(end)
        except BlockingIOError:
            pass
        except OSError:
            self._close(end)
        if end.open:
            self._listen(end)

    def _receive(self, end: End) -> None:
        data = end.sock.recv(_READ)
        if not data:
            end.ended = True
            self._read_passed(end)
            self._pass_rest(end)
            return
        end.received += data
        # A late frame must not come between two parts of another one.
        if not self.rules and not self.late and not end.raw:
            whole = end.ahead + len(data) == len(end.received)
            self._pass(end.other, data if whole else bytes(memoryview(end.received)[end.ahead :]))
            end.ahead = len(end.received)
            if end.ahead >= _UNREAD:
                self._read_passed(end)
            return
        while end.open and (taken := self._take(end)) is not None:
            self._meet(end, *taken)
        if end.open and end.raw:
            self._pass_rest(end)

    def _take(self, end: End) -> tuple[bytes, int, int, int, int] | None:
        """The next whole frame: its bytes, how many of these are passed on already, code, flag and number. None: it has
        not arrived yet, or (`raw`) no more follow.
        """
        if end.raw or len(end.received) < 8:
            return None
        (length,) = struct.unpack_from("!I", end.received, 0)
        if not 4 <= length <= _LONGEST:
            end.raw = True
            return None
        size = 4 + length
        if len(end.received) < size:
            return None
        frame = bytes(memoryview(end.received)[:size])
        try:
            code, flag, number = read_header(frame)
        except NoFrame:
            end.raw = True
            return None
        del end.received[:size]
        passed = min(size, end.ahead)
        end.ahead -= passed
        return frame, passed, code, flag, number

    def _read_passed(self, end: End) -> None:
        """Counts the frames of a connection that were passed on; requests first, since answers are found by them."""
        answers = []
        for one in (end, end.other):
            while one.ahead and (taken := self._take(one)) is not None:
                _, _, code, flag, number = taken
                if flag & 1:
                    answers.append((one, code, flag, number))
                else:
                    self._note(one, code, flag, number)
            if one.raw and one.ahead:
                self._count(one, False, RAW)
                del one.received[: one.ahead]
                one.ahead = 0
        for answer in answers:
            self._note(*answer)

    def _pass_rest(self, end: End) -> None:
        """Passes on bytes that are no frame, and the end of the stream."""
        if end.received:
            self._count(end, False, RAW)
            if len(end.received) > end.ahead:
                self._pass(end.other, bytes(memoryview(end.received)[end.ahead :]))
            end.received.clear()
            end.ahead = 0
        if end.ended and end.other.open and not end.other.waiting:
            end.other.sock.shutdown(socket.SHUT_WR)
        if end.ended and end.other.ended and not end.waiting and not end.other.waiting:
            self._close(end)

    def _meet(self, end: End, frame: bytes, passed: int, code: int, flag: int, number: int) -> None:
        """Handles a whole frame from an end. No rule acts on one that is passed on in part already."""
        answer, code = self._note(end, code, flag, number)
        for rule in () if passed else self.rules.values():
            if rule.takes(end.port, code, answer):
                self.fired.append((rule.name, time.time_ns() // 1_000_000, rule.met))
                self._act(rule, end, frame)
                return
        if passed < len(frame):
            self._pass(end.other, frame[passed:])

    def _note(self, end: End, code: int, flag: int, number: int) -> tuple[bool, int]:
        """Counts a frame. Returns whether it is an answer, and the code of its request."""
        answer = bool(flag & 1)
        if answer:
            code = end.other.asked.pop(number, RAW)
        elif not flag & _ONE_WAY:
            if len(end.asked) >= _REMEMBERED:
                del end.asked[next(iter(end.asked))]
            end.asked[number] = code
        self._count(end, answer, code)
        return answer, code

    def _count(self, end: End, answer: bool, code: int) -> None:
        key = end.port, "response" if answer else "request", code, end.towards
        self.counts[key] = self.counts.get(key, 0) + 1

    def _act(self, rule: Rule, end: End, frame: bytes) -> None:
        if rule.act == "delay":
            self.turn += 1
            heapq.heappush(self.late, (time.monotonic() + rule.delay, self.turn, end.other, frame))
        elif rule.act == "hold":
            rule.held.append((end.other, frame))
        elif rule.act == "close":
            self._close(end)
        elif rule.act == "repeat":
            self._pass(end.other, frame + frame)
        elif rule.act == "kill":
            if rule.passes:
                self._pass(end.other, frame)
            kill(rule.pidfile)
        # `drop`: nothing.

    def _pass(self, end: End, frame: bytes) -> None:
        if not end.open:
            return
        sent = 0
        if not end.waiting and not end.connecting:
            try:
                sent = end.sock.send(frame)
                if sent == len(frame) and end.other.ended:
                    end.sock.shutdown(socket.SHUT_WR)
            except BlockingIOError:
                pass
            except OSError:
                self._close(end)
                return
        if sent < len(frame):
            end.waiting += frame[sent:]
            self._listen(end)

    def _send(self, end: End) -> None:
        sent = end.sock.send(end.waiting)
        del end.waiting[:sent]
        if not end.waiting and end.other.ended:
            end.sock.shutdown(socket.SHUT_WR)

    def _close(self, end: End) -> None:
        """Closes both ends at once: the peers see a reset if bytes were on their way."""
        self._read_passed(end)
        for one in (end, end.other):
            if one.open:
                one.open = False
                del self.ends[one.sock.fileno()]
                self.poll.unregister(one.sock)
                one.sock.close()

    def _obey(self) -> None:
        asker, _ = self.control.accept()
        with asker:
            asker.settimeout(2)
            try:
                words = asker.recv(1 << 16).decode().split("\x1f")
                asker.sendall(self._answer(words).encode())
            except (OSError, ValueError, KeyError) as problem:
                asker.sendall(f"error {problem!r}".encode())

    def _answer(self, words: list[str]) -> str:
        for end in list(self.ends.values()):
            self._read_passed(end)
        if words[0] == "arm":
            self.rules[words[1]] = Rule(words[1], words[2:])
        elif words[0] == "disarm":
            rule = self.rules.pop(words[1], None)
            for end, frame in rule.held if rule is not None else ():
                self._pass(end, frame)
        else:
            lines = [f"count {' '.join(map(str, key))} {number}" for key, number in sorted(self.counts.items())]
            lines += [f"fired {name} {at} {number}" for name, at, number in self.fired]
            return "\n".join(["ok", *lines])
        return "ok"


def kill(pidfile: str) -> None:
    """Kills the process that a file names, if it runs."""
    try:
        with open(pidfile) as noted:
            os.kill(int(noted.read().split()[0]), signal.SIGKILL)
    except (OSError, ValueError, IndexError):
        return


def serve(path: str, port: int, mark: int) -> int:
    """Returns the exit code of the command; 0: a separate process listens."""
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        problem = os.read(told, 1000).decode()
        if problem != "listens":
            sys.stderr.write(f"{problem or 'the proxy ended at once'}\n")
        return int(problem != "listens")
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    try:
        if os.path.exists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", port))
        listener.listen(512)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        control.bind(path)
        control.listen(16)
    except OSError as problem:
        os.write(tell, f"the proxy cannot listen: {problem.strerror}".encode())
        return 1
    os.write(tell, b"listens")
    os.close(tell)
    Proxy(listener, control, mark).serve()
    return 0


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
