# SPDX-License-Identifier: Apache-2.0
"""The requests to each name server: the members of a broker group (901), and the route of a topic (105).

Name servers do not communicate with one another, so each one gets its own requests. Both are reads: they fail, or are
ok.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from harness.api import Completion, RunContext
from harness.generator import Invocation
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, NameServer
from infra.systems.rocketmq.topologies.layout import CLUSTER
from results.op import Op
from workloads.places import TopicLayout

ASK_S: Final = 1.0


def name_servers(context: RunContext) -> Mapping[str, tuple[str, int]]:
    """Node -> host and port of its name server."""
    found = context.deployment.record.having("namesrv")
    return {server.node: (server.host, server.ports["namesrv"]) for server in found}


def questions(f: str, groups: Sequence[str], nodes: Sequence[str]) -> list[Invocation]:
    """`members` or `route` of each group, at each of the name servers on these nodes."""
    return [Invocation(f, group, None, {"name_server": node}) for group in groups for node in nodes]


class NameServerClient:
    """The connections of one logical process to the name servers."""

    def __init__(self, places: TopicLayout, servers: Mapping[str, tuple[str, int]]) -> None:
        self.places = places
        self._links = {node: NameServer(*at, deadline_s=ASK_S) for node, at in servers.items()}

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()

    async def ask(self, op: Op) -> Completion:
        """`members`: broker id -> node. `route`: `addresses` (broker id -> node) and `permission` of the group's part
        of the topic's route, or empty. Ids are texts, as in JSON; an unknown address stays unchanged.
        """
        group, node = str(op.key), str(op.extra["name_server"])
        asks: Mapping[str, Callable[[NameServer, str], Awaitable[Any]]] = {
            "members": self._members,
            "route": self._route,
        }
        extra = {"name_server": node}
        try:
            return Completion("ok", await asks[op.f](self._links[node], group), extra=extra)
        except (RemotingError, AdminError) as problem:
            return Completion("fail", None, str(problem), extra)

    async def _members(self, server: NameServer, group: str) -> dict[str, str]:
        return self._named(await server.member_group(CLUSTER, group))

    async def _route(self, server: NameServer, group: str) -> dict[str, Any]:
        route = await server.route(next(iter(self.places.topics(group)))) or {}
        brokers = [b for b in route.get("brokerDatas") or [] if b.get("brokerName") == group]
        queues = [q for q in route.get("queueDatas") or [] if q.get("brokerName") == group]
        addresses = (brokers[0].get("brokerAddrs") or {}) if brokers else {}
        return {"addresses": self._named(addresses), "permission": queues[0].get("perm") if queues else None}

    def _named(self, addresses: Mapping[Any, str]) -> dict[str, str]:
        return {str(number): self.places.node_at(at) or at for number, at in addresses.items()}
