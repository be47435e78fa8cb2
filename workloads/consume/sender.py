# SPDX-License-Identifier: Apache-2.0
"""Sends by RocketMQ's own Java client: one process with a `DefaultMQProducer` on a node of its own, for all clients.

Each send names its queue, so the library makes one attempt; `workloads.applications.library` explains its result. A
request is a send, too: its result is that of the message, whatever becomes of the reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

from infra.machines.api import InfraError, Node
from infra.systems.outcome import Outcome
from infra.systems.rocketmq.applications.process import Application, Program
from infra.systems.rocketmq.message_body import id_of
from infra.systems.rocketmq.protocol.sending import Sent
from workloads.applications.library import MARGIN_S, START_S, sent_of
from workloads.consume.work import REQUEST
from workloads.places import Queue

PRODUCER: Final = "producer"

LARGE: Final = 128 * 1024
"""Bytes of a large body."""

LARGEST: Final = 4 * 1024 * 1024 - 4096
"""Bytes of the largest ones: a little less than `maxMessageSize`."""

_WAYS: Final[Mapping[str, int]] = {"sync": 50, "async": 25, "batch": 23, "oneway": 2}
"""The ways of sending, with the share (%) of each."""


_SCAN_S: Final = 1.1
"""The library looks once a second for requests whose time is over (`RequestFutureHolder.startScheduledTask`)."""


def asks_by_callback(message: int) -> bool:
    """True if a request is made with a callback, and False if its caller waits; it follows from its id."""
    return Random(f"request/{message}").random() < 0.5


def way_of(message: int) -> str:
    """The way in which a message is sent; it follows from its id."""
    return Random(f"way/{message}").choices(list(_WAYS), list(_WAYS.values()))[0]


def size_of(message: int, large: float, usual: int) -> int:
    """Bytes of a message's body: so many percent are large, and a tenth of these as large as possible."""
    dice = Random(f"size/{message}")
    if dice.random() * 100 >= large:
        return usual
    return LARGEST if dice.random() < 0.1 else LARGE


class Sender:
    """The process; its methods belong to one event loop.

    produce  the command that starts the producer. large: the share (%) of large bodies. raft_log: see `outcome_of`.
    """

    def __init__(
        self, node: Node, program: Program, produce: Mapping[str, Any], *, large: float, usual: int, raft_log: bool
    ) -> None:
        self._node, self._program, self._produce = node, program, produce
        self._large, self._usual, self._raft_log = large, usual, raft_log
        self._application: Application | None = None
        self._reading: asyncio.Task[None] | None = None
        self._awaited: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._answered: set[int] = set()
        """The requests that have a result."""
        self._asked: dict[int, Application] = {}
        """The requests that have no result yet, each with the process that got it."""
        self._news: dict[str, list[Any]] = {}
        """The news that no completion shows yet: `again`, `late` and `ended` of `send`."""
        self._users = 0
        self._starts = 0
        self._starting = asyncio.Lock()

    async def open(self) -> None:
        """Puts the program on the node, and starts it. Raises InfraError."""
        await asyncio.to_thread(self._program.prepare)
        await asyncio.to_thread(self._program.install, self._node)
        self._application = await self._start()

    def use(self) -> None:
        """Notes a user. Each one must call `leave`."""
        self._users += 1

    async def leave(self) -> None:
        """Ends the process with the last user."""
        self._users -= 1
        if self._users == 0 and self._application is not None:
            application, self._application = self._application, None
            if self._reading is not None:
                self._reading.cancel()
            with suppress(InfraError):
                await application.kill()

    async def send(
        self, queue: Queue, message: int, properties: Mapping[str, str], deadline_s: float
    ) -> tuple[Sent, dict[str, Any]]:
        """Sends a message to a queue: one attempt. Returns its result and, of a request, what became of it:

        within_ms   the time for the reply, from some time after the begin of the op on.
        reply, own  the message in the reply; True if the reply has the request's correlation id.
        unanswered  the exception of the library when no reply came.
        open        True if the process has reported no result yet; a later send shows it.

        Any send may show news of earlier requests:

        again       further results of requests that had one already, each with the message in the reply, or None.
        late        results that came after the end of the op, each with the message in the reply, or None, and `own`.
        ended       requests whose process ended without a result, or took no command any more.
        """
        end = asyncio.get_running_loop().time() + deadline_s
        try:
            async with self._starting:
                application = self._application = self._application or await self._start()
        except InfraError as problem:
            return Sent(Outcome("fail", f"nothing was sent: {problem}")), {}
        left = max(0.0, end - asyncio.get_running_loop().time())
        command = self._command(queue, message, properties, left)
        future = self._awaited[message] = asyncio.get_running_loop().create_future()
        asks = command["how"].startswith(REQUEST)
        extra: dict[str, Any] = {"within_ms": command["timeout_ms"]} if asks else {}
        if asks:
            self._asked[message] = application
        try:
            async with asyncio.timeout(left):
                await application.tell(command)
                fields = await future
            sent = sent_of(fields, wraps=asks or command["how"] == "async", raft_log=self._raft_log)
        except TimeoutError:
            sent = Sent(Outcome("info", "timed out: the producer did not report a result"))
        except InfraError as problem:
            sent = Sent(Outcome("info", str(problem)))
            if self._asked.pop(message, None) is not None:
                self._tell_later("ended", message)
        finally:
            del self._awaited[message]
        if asks:
            extra |= self._replied(future)
        news, self._news = self._news, {}
        return sent, extra | news

    def _replied(self, future: asyncio.Future[Mapping[str, Any]]) -> dict[str, Any]:
        if future.cancelled() or not future.done():
            return {"open": True}
        fields = future.result()
        if "reply" in fields:
            return {"reply": id_of(str(fields["reply"]).encode()), "own": fields["own"]}
        return {"unanswered": fields.get("unanswered", fields.get("error"))}

    def _tell_later(self, what: str, news: Any) -> None:
        self._news.setdefault(what, []).append(news)

    def _command(self, queue: Queue, message: int, properties: Mapping[str, str], left: float) -> dict[str, Any]:
        size = size_of(message, self._large, self._usual)
        # Batches of large bodies would be larger than a broker takes.
        how = "sync" if size != self._usual else way_of(message)
        left -= MARGIN_S
        if REQUEST in properties:
            how = f"{REQUEST}-async" if asks_by_callback(message) else REQUEST
            left -= _SCAN_S
        return {
            "do": "send",
            "name": PRODUCER,
            "n": message,
            "topic": queue.topic,
            "broker": queue.group,
            "queue": queue.number,
            "body": str(message),
            "size": size,
            "tags": properties.get("TAGS", ""),
            "keys": f"key-{message}",
            "properties": {name: value for name, value in properties.items() if name != "TAGS"},
            "how": how,
            "timeout_ms": max(1, int(left * 1000)),
        }

    async def _start(self) -> Application:
        self._starts += 1
        application = Application(self._node, "application-producer", self._program.argv)
        instance = f"{PRODUCER}-{self._starts}"
        try:
            await application.start(START_S)
            command = {"do": "produce", "name": PRODUCER, "instance": instance, **self._produce}
            await application.ask(command, "started", START_S)
        except BaseException:
            application.close()
            raise
        self._reading = asyncio.get_running_loop().create_task(self._read(application))
        return application

    async def _read(self, application: Application) -> None:
        over = False
        while not over:
            over = application.ended  # its last events may come with its end
            for event in await application.take(1.0):
                message = event.fields.get("n", 0)
                if "reply" in event.fields or "unanswered" in event.fields:
                    text = event.fields.get("reply")
                    reply = None if text is None else id_of(str(text).encode())
                    if message in self._answered:
                        self._tell_later("again", [message, reply])
                        continue
                    self._answered.add(message)
                    self._asked.pop(message, None)
                    if message not in self._awaited or self._awaited[message].done():
                        self._tell_later("late", [message, reply, bool(event.fields.get("own"))])
                future = self._awaited.get(message)
                if future is not None and not future.done():
                    future.set_result(event.fields)
        for message in [message for message, process in self._asked.items() if process is application]:
            del self._asked[message]
            self._tell_later("ended", message)
        if self._application is application:
            self._application = None  # the next send starts another one
