# SPDX-License-Identifier: Apache-2.0
"""The heartbeats of one client to all brokers, and the frames that brokers push over the same connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol.client import Broker

_BEAT_S: Final = 1.0
"""The time between two heartbeats to a broker. A restarted broker does not know its clients until the next one."""

_ANSWER_S: Final = 3.0
"""The longest time for a broker's answer to one; then the connection is closed, as by the Java client.
The first heartbeat of a group can take more than a second: the broker makes the retry topic and registers it.
"""

Hear = Callable[[str, Frame], None]
"""A function that takes a node and a frame that its broker pushed; it must not block."""


class Heartbeats:
    """The heartbeats of one client; one event loop. `endpoints`: node -> host and port of its broker; may change."""

    def __init__(
        self,
        endpoints: Mapping[str, tuple[str, int]],
        client_id: str,
        hear: Hear,
        *,
        producers: Sequence[str] = (),
        consumers: Sequence[str] = (),
        topics: Sequence[str] = (),
    ) -> None:
        self.client_id = client_id
        self._endpoints, self._hear = endpoints, hear
        self._producers, self._consumers, self._topics = producers, consumers, topics
        self._links: dict[str, Broker] = {}
        self._answered = {node: asyncio.Event() for node in endpoints}
        self._tasks = [asyncio.create_task(self._beat(node)) for node in endpoints]

    async def first(self) -> list[str]:
        """The nodes that have answered a heartbeat, once all have answered, or one interval is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_BEAT_S):
                await asyncio.gather(*(event.wait() for event in self._answered.values()))
        return [node for node, event in self._answered.items() if event.is_set()]

    async def leave(self, group: str) -> None:
        """Ends them, and reports to every broker that this consumer leaves; a broker that does not get the report
        notices the closed connection.
        """
        await self._stop()
        await asyncio.gather(*(link.leave(self.client_id, consumer=group) for link in self._links.values()))
        await self._close()

    async def end(self) -> None:
        """Ends them without a report to the brokers."""
        await self._stop()
        await self._close()

    async def _stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self) -> None:
        links, self._links = self._links, {}
        for link in links.values():
            await link.close()

    async def _beat(self, node: str) -> None:
        """Sends heartbeats to one broker, also after errors."""
        while True:
            host, port = self._endpoints[node]
            link = self._links.get(node)
            if link is None or (link.host, link.port) != (host, port):
                if link is not None:
                    await link.close()
                link = Broker(host, port, deadline_s=_ANSWER_S, on_request=lambda frame: self._hear(node, frame))
                self._links[node] = link
            answer = await link.heartbeat(
                self.client_id, producers=self._producers, consumers=self._consumers, topics=self._topics
            )
            if answer.outcome.type == "ok":
                self._answered[node].set()
            await asyncio.sleep(_BEAT_S)
