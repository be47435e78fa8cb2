# SPDX-License-Identifier: Apache-2.0
"""The view of the cluster when a fault strikes: the servers of each node, the leaders, and the replicas in sync.

It is a value, so that the `aim` of a fault is a pure function of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from results.deployment import DeploymentRecord


@dataclass(frozen=True)
class ClusterView:
    """The cluster as it was last seen.

    nodes    all nodes.
    servers  node -> kinds of servers that run there, in the order of their start.
    main     node -> the kind that holds its data; nodes without such a server are left out.
    groups   replica group -> its nodes.
    leaders  replica group -> its leading node (a broker group's master); groups without a known one are left out.
    in_sync  the nodes that are reported as in sync; None: no server reports it.
    leading  kind of server -> the node whose server of that kind leads the others of its kind (the controllers).
    clients  the nodes without servers, on which programs of applications run.
    """

    nodes: Sequence[str]
    servers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    main: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    leaders: Mapping[str, str] = field(default_factory=dict)
    in_sync: Sequence[str] | None = None
    leading: Mapping[str, str] = field(default_factory=dict)
    clients: Sequence[str] = ()

    @staticmethod
    def of(record: DeploymentRecord, clients: Sequence[str] = ()) -> ClusterView:
        """The servers of each node; no roles are known yet."""
        servers: dict[str, list[str]] = {node: [] for node in record.nodes}
        for server in record.servers:
            servers[server.node].append(server.kind)
        main = {server.node: server.kind for server in record.servers if server.group is not None}
        return ClusterView(list(record.nodes), servers, main, record.groups, clients=clients)

    @staticmethod
    def assumed(nodes: Sequence[str], leader: str) -> ClusterView:
        """A plain group of one server a node, and one application. It shows, before a cluster exists, if a fault can
        act at all.
        """
        main = dict.fromkeys(nodes, "server")
        servers = dict.fromkeys(nodes, ("server",))
        return ClusterView(nodes, servers, main, {"": nodes}, {"": leader}, clients=("c1",))

    def having(self, kind: str) -> list[str]:
        """The nodes on which a server of this kind runs."""
        return [node for node in self.nodes if kind in self.servers.get(node, ())]

    def kinds(self) -> list[str]:
        """All kinds of servers of the cluster, in the order of their start."""
        return list(dict.fromkeys(kind for node in self.nodes for kind in self.servers.get(node, ())))

    def group_of(self, node: str) -> list[str]:
        """All nodes of a node's replica group; [] if it is in none."""
        return next((list(members) for members in self.groups.values() if node in members), [])

    def labels(self, words: Mapping[str, str]) -> dict[str, str]:
        """Node -> its role in a word for people, for those that lead. `words`: `infra.systems.api.Topology.roles`."""
        found = dict.fromkeys(self.leaders.values(), words.get("leader", "leader"))
        for kind, node in self.leading.items():
            found[node] = ", ".join(filter(None, (found.get(node), f"{kind} leader")))
        return found
