# SPDX-License-Identifier: Apache-2.0
"""A producer that brokers can ask about the outcome of its transactions (39): it sends heartbeats to all of them, and
keeps their questions until a client takes them.

A broker writes a half message again with every question, and treats each of these records as a separate transaction: an
answer ends the one that it names. A broker may have several records of one message (an acting master hands over all
that it has), and asks about each of them; so each question is answered, as by a producer in Java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol.client import Half, check_of
from infra.systems.rocketmq.protocol.messages import Message, MessageError
from workloads.heartbeats import Heartbeats

SAME_ROUND_S: Final = 2.0
"""Questions about one message so close together are about different records of it. A later one is about the same
record, from the broker's next round, as no client has answered in between.
"""


class Question(NamedTuple):
    """One question. `at`: the time of its arrival (s, by the clock of the event loop). `replaces`: the number of
    questions of earlier rounds about the message that it replaces, because no client had taken them: the broker has
    another record by now.
    """

    node: str
    half: Half
    message: Message
    at: float
    replaces: int


class AskedProducer:
    """The producer of a run; one event loop. It sends heartbeats while a client has joined it.

    `endpoints`: node -> host and port of its broker; they may change.
    """

    def __init__(self, endpoints: Mapping[str, tuple[str, int]], group: str) -> None:
        self._endpoints, self.group = endpoints, group
        self._questions: list[Question] = []
        """In the order of their arrival."""
        self._came = asyncio.Event()
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

    async def take(self, wait_s: float) -> Question | None:
        """The next question; None: no question came in that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not self._questions:
                    self._came.clear()
                    await self._came.wait()
        if not self._questions:
            return None
        return self._questions.pop(0)

    def hear(self, node: str, frame: Frame) -> None:
        """Takes a broker's pushed frame: keeps it if it is a question."""
        try:
            check = check_of(frame)
        except MessageError:
            self.nonsense += 1
            return
        if check is None:
            return
        now = asyncio.get_running_loop().time()
        old = [
            q
            for q in self._questions
            if (q.node, q.half.transaction_id) == (node, check.half.transaction_id) and q.at < now - SAME_ROUND_S
        ]
        if old:
            self._questions = [q for q in self._questions if q not in old]
        replaces = sum(1 + q.replaces for q in old)
        self._questions.append(Question(node, check.half, check.message, now, replaces))
        self._came.set()
