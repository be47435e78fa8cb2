# SPDX-License-Identifier: Apache-2.0
"""The servers of each node of a RocketMQ cluster, and their ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.machines.api import SettingsError
from infra.options import option
from infra.systems.rocketmq.servers import PROXY
from results.deployment import Traits

CLUSTER: Final = "harness"
"""The cluster's name in every broker's configuration."""

NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
HA_PORT: Final = 10912
CONTROLLER_PORT: Final = 9878
"""The port of a DLedger controller, for Raft and requests alike."""
JRAFT_PORT: Final = 9880
JRAFT_RPC_PORT: Final = 9770
"""The port of requests to a JRaft controller, which is separate from that of Raft."""
PROXY_GRPC_PORT: Final = 8081
PROXY_REMOTING_PORT: Final = 8080
PROXY_REMOTING: Final = "proxy-remoting"
"""The name of the proxy's second port among its ports."""
DLEDGER_PORT: Final = 40911

GROUP_OF_PROXIES: Final = "CID_DefaultHeartBeatSyncerTopic"
"""The group in which proxies report their clients to one another (`HeartbeatSyncer`). A broker that makes groups by
itself, as is the default, makes this one for the first proxy; ours make none, and the proxies would ask for ever.
"""

QUORUM_SIZE: Final = 3
"""Name servers and controllers are on the first three nodes: the smallest number of controllers that outlives one."""


@dataclass(frozen=True)
class NodeRoles:
    """The servers of one node.

    kinds      of its server processes, in the order of their start.
    group      name of its broker's group, None without a broker.
    broker_id  if the configuration sets it: 0 is the master; None: controllers or an election decide.
    """

    kinds: Sequence[str]
    group: str | None = None
    broker_id: int | None = None


Layout = Mapping[str, NodeRoles]
"""Name of a node -> its servers."""


def groups(layout: Layout) -> dict[str, list[str]]:
    """Name of a broker group -> its nodes, in their order."""
    found: dict[str, list[str]] = {}
    for node, place in layout.items():
        if place.group is not None:
            found.setdefault(place.group, []).append(node)
    return found


BROKERS: Final = option(None, "Number of nodes with a broker, counted from the first.  [default: all]", low=1)
"""An option that several topologies have."""


@dataclass(frozen=True)
class ReplicasOptions:
    """The option of the topologies with fixed masters."""

    replicas: int | None = option(
        None, "One broker group of so many replicas, on the first nodes.  [default: several groups]", low=1
    )


COPIED_SLOWLY: Final = Traits(offsets_copied_s=60.0, copies_last_file=True)
"""Without an election slaves fetch their master's offsets every 60 s (`BrokerController`, 5.1.0 to 5.5.0)."""


def one_group(nodes: Sequence[str], replicas: int, kinds: Mapping[str, Sequence[str]]) -> Layout:
    """A group `a` on the first nodes, the first of them its master. kinds: node -> its kinds of servers, including a
    broker. Raises SettingsError for too few nodes.
    """
    if replicas > len(nodes):
        raise SettingsError(f"replicas is {replicas}; 1 to {len(nodes)}, as many as there are nodes, is right")
    return {
        node: NodeRoles(kinds[node], "a", i) if i < replicas else NodeRoles(kinds[node]) for i, node in enumerate(nodes)
    }


def first_nodes(nodes: Sequence[str], brokers: int | None) -> Sequence[str]:
    """The nodes that run a broker. Raises SettingsError for too few nodes."""
    if brokers is None:
        return nodes
    if brokers > len(nodes):
        raise SettingsError(f"brokers is {brokers}; 1 to {len(nodes)}, as many as there are nodes, is right")
    return nodes[:brokers]


def proxies_inside(proxy: Mapping[str, str], kinds: Collection[str]) -> bool:
    """True if each broker's process has a proxy inside, by the settings of proxies (`proxyMode`, `ProxyMode`).

    kinds: the further kinds of servers of the run. Raises SettingsError.
    """
    mode = proxy.get("proxyMode", "cluster").lower()
    if mode not in ("cluster", "local"):
        raise SettingsError(f"setting 'proxy.proxyMode': cluster and local are right, not {mode!r}")
    if mode == "local" and PROXY not in kinds:
        raise SettingsError("setting 'proxy.proxyMode' is local, and no client here uses a proxy")
    return mode == "local"
