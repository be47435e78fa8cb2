# SPDX-License-Identifier: Apache-2.0
"""Producers that brokers can ask about the outcome of their transactions. Each keeps the questions until a client takes
them: our own client, with a heartbeat to each broker (39), and the proxies' client, with a stream to each proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.clients.proxy import ProxyError, ProxyHalf, ProxyListener
from infra.systems.rocketmq.message_body import id_of
from infra.systems.rocketmq.protocol.client import Half, check_of
from infra.systems.rocketmq.protocol.messages import MessageError
from workloads.brokers import shown_id
from workloads.heartbeats import Heartbeats
from workloads.questions import Question, Questions

_LISTENS_S: Final = 1.0
"""The time of one request for the questions of a proxy. After it, the client may send its settings again."""

_AGAIN_S: Final = 0.3
"""The pause before a new stream to a proxy that had ended the last one, or that is not there."""


class AskedProducer:
    """The producer of a run; one event loop. It sends heartbeats while a client has joined it.

    `endpoints`: node -> host and port of its broker; they may change.
    """

    def __init__(self, endpoints: Mapping[str, tuple[str, int]], group: str) -> None:
        self._endpoints, self.group = endpoints, group
        self._questions = Questions[Half]()
        self._heartbeats: Heartbeats | None = None
        self._users = 0
        self.nonsense = 0
        """Requests that looked like a question and could not be read."""

    def join(self) -> None:
        """Starts the heartbeats with the first client that joins. Each client that joined must leave."""
        self._users += 1
        if self._heartbeats is None:
            self._heartbeats = Heartbeats(self._endpoints, self.group, self.hear, producers=[self.group])

    async def leave(self) -> None:
        """Ends the heartbeats with the last client that leaves."""
        self._users -= 1
        if self._users == 0 and self._heartbeats is not None:
            heartbeats, self._heartbeats = self._heartbeats, None
            await heartbeats.end()

    async def take(self, wait_s: float) -> Question[Half] | None:
        """The next question; None: no question came in that time."""
        return await self._questions.take(wait_s)

    def hear(self, node: str, frame: Frame) -> None:
        """Takes a broker's pushed frame: keeps it if it is a question."""
        try:
            check = check_of(frame)
        except MessageError:
            self.nonsense += 1
            return
        if check is not None:
            self._questions.put(node, check.half, shown_id(check.message))


class ProxyAsked:
    """The producer of a run at all proxies; one event loop. It listens while a client has joined it."""

    def __init__(self, listeners: Sequence[ProxyListener]) -> None:
        self._listeners = listeners
        self._questions = Questions[ProxyHalf]()
        self._tasks: list[asyncio.Task[None]] = []
        self._users = 0
        self.broken: dict[str, str] = {}
        """Proxy -> why it has no stream at this moment."""

    @property
    def deaf(self) -> str | None:
        """The reason why no proxy has a stream at this moment; None: one has."""
        if len(self.broken) < len(self._listeners):
            return None
        return "; ".join(f"{name}: {why}" for name, why in sorted(self.broken.items()))

    def join(self) -> None:
        """Starts to listen with the first client that joins. Each client that joined must leave."""
        self._users += 1
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen(listener)) for listener in self._listeners]

    async def leave(self) -> None:
        """Ends the streams with the last client that leaves."""
        self._users -= 1
        if self._users or not self._tasks:
            return
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(listener.close() for listener in self._listeners))

    async def take(self, wait_s: float) -> Question[ProxyHalf] | None:
        """The next question; None: no question came in that time."""
        return await self._questions.take(wait_s)

    async def _listen(self, listener: ProxyListener) -> None:
        while True:
            try:
                questions = await listener.listen(_LISTENS_S)
                self.broken.pop(listener.name, None)
            except ProxyError as problem:
                self.broken[listener.name] = str(problem)
                await asyncio.sleep(_AGAIN_S)
                continue
            for question in questions:
                self._questions.put(listener.name, question.half, id_of(question.body))
