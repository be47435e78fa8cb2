# SPDX-License-Identifier: Apache-2.0
"""A process of an application on a node: commands go to its stdin, events come from its stdout, as lines of JSON.

The protocol is that of docs/clients.md; any program that speaks it will do. An event gets the time of its arrival, by
this machine's clock, or an earlier one if the process names its own (`Clock`). A process whose stdin ends must end at
once: so no application outlives the control program.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, Protocol

from infra.machines.api import InfraError, Node
from infra.machines.node import PROCESS_OF
from infra.machines.remote.api import Stream
from infra.systems.api import APPLICATION_PIDS
from infra.systems.java import LOG

_LINE_S: Final = 0.5
_COMMAND_S: Final = 5.0

_RUN: Final = 'log=$1; shift; cd -- "${log%/*}" && exec "$@" 2>>"$log"'
"""Shell: runs a program whose stderr goes to a file, so that it never blocks."""

_NOTE: Final = (
    PROCESS_OF
    + """
mkdir -p -- "${1%/*}" && printf '%s %s\\n' "$2" "$(started_of "$2")" > "$1"
"""
)
"""Shell: notes a process in a pid file, as `Node.spawn` does."""


class ApplicationError(InfraError):
    """A process that does not follow a command. One line."""


class Event(NamedTuple):
    """One event. at: the time of its arrival, or of what it reports, if that is known (ns, `time.monotonic_ns`)."""

    at: int
    fields: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.fields.get("event"))


class Clock:
    """The clock of a process, beside this machine's: each of its events names a time (`clock`, us).

    An event may wait in a pipe, for longer than two processes need to hand a message over. The fastest event so far
    shows how the clocks differ, but for its own way. The time of another one is too late by at most that, and never
    later than its arrival. The clock must be monotonic: no setting of the time may move it.

    Threads share a pipe: one may take the time first, and write last. So own times may go back a little, and that is
    kept. But the events that follow a faster one come no earlier than those before it, which had the larger difference:
    each thread's events stay in their order.
    """

    def __init__(self) -> None:
        self._difference: int | None = None
        self._last = self._earliest = 0

    def time(self, own_us: int, arrived: int) -> int:
        """The time (ns) of an event, by this machine's clock."""
        own = own_us * 1000
        if self._difference is None or arrived - own < self._difference:
            self._difference, self._earliest = arrived - own, self._last
        at = max(own + self._difference, self._earliest)
        self._last = max(self._last, at)
        return at


class _Awaited(NamedTuple):
    """An event that somebody waits for; the future's None: the process has ended."""

    kind: str
    fields: Mapping[str, Any]
    future: asyncio.Future[Event | None]

    def matches(self, event: Event) -> bool:
        """True for such an event, or a failure of the same part."""
        same = all(event.fields.get(name) == value for name, value in self.fields.items())
        return same and event.kind in (self.kind, "failed") and not self.future.done()


class Program(Protocol):
    """A program on the nodes. `prepare` is called once, before any `install`; both may block, and raise InfraError."""

    def prepare(self) -> None: ...

    def install(self, node: Node) -> None: ...

    @property
    def argv(self) -> Sequence[str]: ...


class Application:
    """One process. Its methods belong to one event loop.

    label  the name of its log on the node. argv: the program.
    """

    def __init__(self, node: Node, label: str, argv: Sequence[str]) -> None:
        self.node, self.label, self._argv = node, label, argv
        self.pid = 0
        self.ended = False
        """True after the end of its stdout: the process is gone."""
        self._stream: Stream | None = None
        self._writing = threading.Lock()
        self._events: deque[Event] = deque()
        self._awaited: list[_Awaited] = []
        self._came = asyncio.Event()

    @property
    def log(self) -> str:
        """The file of its stderr on the node."""
        return f"{LOG}/{self.label}.log"

    async def start(self, timeout_s: float) -> Event:
        """Starts the process, and returns its `hello`. Raises InfraError."""
        loop = asyncio.get_running_loop()
        with self._awaiting("hello") as hello:
            self._stream = await asyncio.to_thread(self._open)
            threading.Thread(target=self._read, args=(self._stream, loop), name=self.label, daemon=True).start()
            found = self._good(await self._next(hello, timeout_s))
        self.pid = int(found.fields["pid"])
        note = ["sh", "-c", _NOTE, "note", f"{APPLICATION_PIDS}/{self.label}.pid", str(self.pid)]
        await asyncio.to_thread(self.node.run, note, check=False)  # one that has ended already has no number any more
        return found

    async def ask(self, command: Mapping[str, Any], kind: str, timeout_s: float) -> Event:
        """Sends a command to a part, and returns its next event of a kind, which no `take` gets then. Raises
        ApplicationError: it did not come in time, the process failed, or it ended.
        """
        return self._good(await self._request(command, kind, timeout_s, name=command["name"]))

    async def call(self, command: Mapping[str, Any], kind: str, timeout_s: float) -> Event:
        """Sends a command with a number (`n`) to a part, and returns its event of a kind with this number, or the one
        that says it failed. No `take` gets it. Raises ApplicationError: none came in time, or the process has ended.
        """
        return await self._request(command, kind, timeout_s, name=command["name"], n=command["n"])

    async def _request(self, command: Mapping[str, Any], kind: str, timeout_s: float, **fields: Any) -> Event:
        with self._awaiting(kind, **fields) as answer:
            await self.tell(command)
            return await self._next(answer, timeout_s)

    @contextmanager
    def _awaiting(self, kind: str, **fields: Any) -> Iterator[_Awaited]:
        awaited = _Awaited(kind, fields, asyncio.get_running_loop().create_future())
        self._awaited.append(awaited)
        try:
            yield awaited
        finally:
            self._awaited.remove(awaited)

    async def _next(self, awaited: _Awaited, timeout_s: float) -> Event:
        try:
            async with asyncio.timeout(timeout_s):
                found = await awaited.future
        except TimeoutError:
            raise ApplicationError(f"{self.label}: no {awaited.kind!r} within {timeout_s:g} s") from None
        if found is None:
            raise ApplicationError(f"{self.label}: the process has ended; its log: {await self.last_words()}")
        return found

    def _good(self, event: Event) -> Event:
        if event.kind == "failed":
            raise ApplicationError(f"{self.label}: {event.fields.get('error')}: {event.fields.get('why')}")
        return event

    def _open(self) -> Stream:
        node: Any = self.node
        node.run(["mkdir", "-p", LOG])
        stream: Stream = node.open(["sh", "-c", _RUN, "application", self.log, *self._argv])
        return stream

    async def tell(self, command: Mapping[str, Any]) -> None:
        """Sends a command; several tasks may do so at once. Raises ApplicationError if the process takes none."""
        stream = self._stream
        data = json.dumps(command).encode() + b"\n"
        if stream is None or not await asyncio.to_thread(self._write, stream, data):
            raise ApplicationError(f"{self.label}: the process takes no commands")

    def _write(self, stream: Stream, data: bytes) -> bool:
        """Writes a whole line, also if the task that wanted it is cancelled meanwhile: lines never mix."""
        with self._writing:
            return stream.send(data, time.monotonic() + _COMMAND_S)

    async def take(self, wait_s: float) -> list[Event]:
        """All events so far; waits for the first one at most `wait_s`."""
        if not self._events and not self.ended:
            await self._wait(wait_s)
        found = list(self._events)
        self._events.clear()
        return found

    async def signal(self, name: str) -> None:
        """Sends a signal (`KILL`, `STOP`, `CONT`) to the process. One that is gone is no error. Raises InfraError."""
        if self.pid:
            await asyncio.to_thread(self.node.run, ["kill", "-s", name, str(self.pid)], check=False)

    async def kill(self) -> None:
        """Kills the process, and waits for the end of its events. One that has not reported its number yet ends by the
        end of its stdin. Raises InfraError.
        """
        if not self.pid:
            self.close()
            return
        await self.signal("KILL")
        end = time.monotonic() + _COMMAND_S
        while not self.ended:
            if time.monotonic() > end:
                raise ApplicationError(f"{self.label}: process {self.pid} did not end although it was killed")
            await self._wait(0.1)
        self.close()

    def close(self) -> None:
        """Closes its stdin, so that it ends. Never raises."""
        if self._stream is not None:
            self._stream.close()

    async def _wait(self, seconds: float) -> None:
        self._came.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._came.wait()

    async def last_words(self) -> str:
        """The end of its log, in one line. Raises InfraError."""
        done = await asyncio.to_thread(self.node.run, ["tail", "-n", "3", "--", self.log], check=False)
        return " ".join(done.text.split()) or "empty"

    def _read(self, stream: Stream, loop: asyncio.AbstractEventLoop) -> None:
        """Passes all lines to the event loop, until the process ends or the loop is closed."""

        def hand_over(event: Event | None) -> None:
            if event is None:
                self.ended = True
                for each in self._awaited:
                    if not each.future.done():
                        each.future.set_result(None)
            elif (awaited := next((each for each in self._awaited if each.matches(event)), None)) is not None:
                awaited.future.set_result(event)
            else:
                self._events.append(event)
            self._came.set()

        clock = Clock()
        while not loop.is_closed():
            deadline = time.monotonic() + _LINE_S
            try:
                line = stream.line(deadline)
            except (OSError, ValueError):  # closed under it
                line, deadline = None, float("inf")
            event = None if line is None else _event(clock, time.monotonic_ns(), line)
            if line is None and time.monotonic() >= deadline:
                continue
            try:
                loop.call_soon_threadsafe(hand_over, event)
            except RuntimeError:  # closed in between: nobody waits for it
                return
            if event is None:
                return


def _event(clock: Clock, arrived: int, line: str) -> Event:
    fields = dict(_parsed(line))
    own = fields.pop("clock", None)
    return Event(clock.time(own, arrived) if type(own) is int else arrived, fields)


def _parsed(line: str) -> Mapping[str, Any]:
    """The fields of an event; a line that is none becomes one of kind `nonsense`."""
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    return fields if isinstance(fields, dict) and "event" in fields else {"event": "nonsense", "line": line[:200]}
