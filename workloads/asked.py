"""A producer that brokers can ask what became of its transactions (39): it sends heartbeats to all of them, and keeps
their questions until somebody takes them.

A broker writes a half message anew with every question, and each of these records is a transaction of its own to it: an
answer ends the one that it names. A broker may have several records of one message (an acting master hands over all
that it has), and asks about each of them; so each question is answered, as a producer in Java does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol.client import Broker, Half, check_of
from infra.systems.rocketmq.protocol.messages import Message, MessageError

SAME_ROUND_S: Final = 2.0
"""Questions about one message so close together are about different records of it. One that comes later is about the
same one, from the broker's next round; nobody has answered in between.
"""

_BEAT_S: Final = 1.0
"""Between two heartbeats to a broker. One that was restarted has forgotten its producers and asks nobody until then."""


class Question(NamedTuple):
    """One question. `at`: when it came (s, by the clock of the event loop). `replaces`: how many questions of earlier
    rounds about the message it replaces, because nobody had taken them: the broker has another record by now.
    """

    node: str
    half: Half
    message: Message
    at: float
    replaces: int


class AskedProducer:
    """The producer of a run; one event loop. It is there while somebody has joined it.

    `endpoints`: node -> host and port of its broker; they may change.
    """

    def __init__(self, endpoints: Mapping[str, tuple[str, int]], group: str) -> None:
        self._endpoints, self.group = endpoints, group
        self._questions: list[Question] = []
        """In the order in which they came."""
        self._came = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._users = 0
        self.nonsense = 0
        """Requests that looked like a question and could not be read."""

    def join(self) -> None:
        """Be there from now on. One who joined leaves."""
        self._users += 1
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._beat(node)) for node in self._endpoints]

    async def leave(self) -> None:
        """The last one ends the heartbeats."""
        self._users -= 1
        if self._users == 0:
            tasks, self._tasks = self._tasks, []
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def take(self, wait_s: float) -> Question | None:
        """The next question; None: there was none in that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not self._questions:
                    self._came.clear()
                    await self._came.wait()
        if not self._questions:
            return None
        return self._questions.pop(0)

    def hear(self, node: str, frame: Frame) -> None:
        """What a broker pushed."""
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

    async def _beat(self, node: str) -> None:
        """Heartbeats to one broker, whatever becomes of them."""
        link: Broker | None = None
        try:
            while True:
                host, port = self._endpoints[node]
                if link is None or (link.host, link.port) != (host, port):
                    if link is not None:
                        await link.close()
                    link = Broker(host, port, deadline_s=_BEAT_S, on_request=lambda frame: self.hear(node, frame))
                await link.heartbeat(f"{self.group}@{node}", producers=[self.group])
                await asyncio.sleep(_BEAT_S)
        finally:
            if link is not None:
                await link.close()
