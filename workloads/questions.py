# SPDX-License-Identifier: Apache-2.0
"""The questions of brokers about transactions, from their arrival until a client takes them.

A broker writes a half message again with every question, and treats each of these records as a separate transaction: an
answer ends the one that it names. A broker may have several records of one message (an acting master hands over all
that it has), and asks about each of them; so each question is answered, as by a producer in Java.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Generic, NamedTuple, TypeVar

from infra.systems.rocketmq.clients.proxy import ProxyHalf
from infra.systems.rocketmq.protocol.sending import Half

H = TypeVar("H", Half, ProxyHalf)

SAME_ROUND_S: Final = 2.0
"""Questions about one message so close together are about different records of it. A later one is about the same
record, from the broker's next round, as no client has answered in between.
"""


class Question(NamedTuple, Generic[H]):
    """One question. `source`: the node that it came from: the broker's, or the proxy's. `message`: the id of the
    message, or what its body has instead. `at`: the time of its arrival (s, by the clock of the event loop).
    `replaces`: the number of questions of earlier rounds about the message that it replaces, because no client had
    taken them: the broker has another record by now.
    """

    source: str
    half: H
    message: int | str
    at: float
    replaces: int = 0


class Questions(Generic[H]):
    """The questions that nobody has taken yet, in the order of their arrival. One event loop."""

    def __init__(self) -> None:
        self._waiting: list[Question[H]] = []
        self._came = asyncio.Event()

    def put(self, source: str, half: H, message: int | str) -> None:
        """Adds a question that has just come."""
        now = asyncio.get_running_loop().time()
        old = [
            q
            for q in self._waiting
            if (q.source, q.half.transaction_id) == (source, half.transaction_id) and q.at < now - SAME_ROUND_S
        ]
        if old:
            self._waiting = [q for q in self._waiting if q not in old]
        self._waiting.append(Question(source, half, message, now, sum(1 + q.replaces for q in old)))
        self._came.set()

    async def take(self, wait_s: float) -> Question[H] | None:
        """The next question; None: no question came in that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not self._waiting:
                    self._came.clear()
                    await self._came.wait()
        if not self._waiting:
            return None
        return self._waiting.pop(0)
