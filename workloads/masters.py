# SPDX-License-Identifier: Apache-2.0
"""The master of a broker group, as reported by the cluster: looked up as clients do, cached, never trusted.

With controllers, the harness queries their leader (1004); otherwise it queries the routes of the name servers (105). It
queries all of them at once, because some may be cut off. The answer with the highest epoch counts. Without epochs, the
most frequent answer counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from infra.systems.remoting.connection import Malformed, RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, Controller, NameServer
from workloads.places import TopicLayout

S = TypeVar("S")
T = TypeVar("T")

_ASK_S: Final = 0.8
_SILENCE: Final = "no node reports one"
_GAP_S: Final = 0.1
"""The shortest time between two lookups, regardless of the number of refused clients."""


class Masters:
    """Shared by all clients of a run; one event loop."""

    def __init__(self, places: TopicLayout) -> None:
        self._places = places
        self._known: dict[str, str] = {}
        self._looked: dict[str, float] = {}
        self._found: dict[str, str | None] = {}
        """The result of the last lookup."""
        self.silence = _SILENCE
        """The reason why the last lookup found no master, in a few words."""
        self._locks = {group: asyncio.Lock() for group in places.groups}
        self._controllers = {g: [Controller(*at, deadline_s=_ASK_S) for at in places.controllers] for g in self._locks}
        self._name_servers = {g: [NameServer(*at, deadline_s=_ASK_S) for at in places.nameservers] for g in self._locks}
        """Own connections for each group: a connection carries one call at a time."""

    def known(self, group: str) -> str | None:
        """The cached master, without a request."""
        return self._known.get(group)

    async def find(self, group: str, *, refused_by: str | None = None) -> str | None:
        """The master's node; None if no server names one. `refused_by`: the node that just refused to be master."""
        known = self._known.get(group)
        if known is not None and known != refused_by:
            return known
        loop = asyncio.get_running_loop()
        came = loop.time()
        async with self._locks[group]:
            if self._looked.get(group, float("-inf")) >= came:
                return self._found.get(group)  # another client looked it up meanwhile
            wait = self._looked.get(group, float("-inf")) + _GAP_S - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            try:
                found = await self._ask(group)
            finally:
                # Lookups are rare, so a connection is not worth keeping; nothing would close it at the end.
                for server in (*self._controllers[group], *self._name_servers[group]):
                    await server.close()
            self._looked[group], self._found[group] = loop.time(), found
            if found is not None:
                self._known[group] = found
            return found

    async def _ask(self, group: str) -> str | None:
        if self._places.controllers:
            answers = await self._all(self._controllers[group], lambda controller: controller.replica_info(group))
            best = max(answers, key=lambda info: info.master_epoch, default=None)
            return None if best is None else self._places.node_at(best.master_address)
        topic = next(iter(self._places.topics(group)))
        routes = await self._all(self._name_servers[group], lambda server: server.route(topic))
        named: Counter[str] = Counter()
        for route in routes:
            for broker in (route or {}).get("brokerDatas", []):
                address = (broker.get("brokerAddrs") or {}).get("0")
                if broker.get("brokerName") == group and (node := self._places.node_at(address or "")):
                    named[node] += 1
        return named.most_common(1)[0][0] if named else None

    async def _all(self, servers: Sequence[S], ask: Callable[[S], Awaitable[T]]) -> list[T]:
        """The answers of the servers that gave one."""
        self.silence = _SILENCE

        async def one(server: S) -> list[T]:
            try:
                return [await ask(server)]
            except Malformed as problem:
                # Not the silence of a server: it may have named a master in an unreadable answer.
                self.silence = str(problem)
            except (RemotingError, AdminError):
                pass
            return []

        return [answer for answers in await asyncio.gather(*map(one, servers)) for answer in answers]
