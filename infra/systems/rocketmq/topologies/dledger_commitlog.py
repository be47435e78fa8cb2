# SPDX-License-Identifier: Apache-2.0
"""Brokers whose CommitLog is a DLedger log: one Raft group, without slaves that only copy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from infra.machines.api import InfraError, Node
from infra.systems.api import REPLICATION, Server
from infra.systems.rocketmq.servers import BROKER, jvm, settings
from infra.systems.rocketmq.topologies.base import RocketmqTopology
from infra.systems.rocketmq.topologies.layout import BROKERS, DLEDGER_PORT, Layout, NodeRoles, first_nodes
from infra.systems.settings import Default
from results.deployment import Traits


@dataclass(frozen=True)
class DledgerCommitlogOptions:
    """The options of the topology."""

    brokers: int | None = BROKERS


class DledgerCommitlogTopology(RocketmqTopology):
    """The profiles do not differ: a message is acknowledged when a majority has it, whatever the settings."""

    name = "dledger-commitlog"
    summary = "one group with DLedger as its CommitLog: Raft elects the master, a majority stores"
    Options: ClassVar[type] = DledgerCommitlogOptions
    changing: ClassVar[Collection[str]] = ("brokerId", "brokerRole")
    traits: ClassVar[Traits] = Traits(offsets_copied_s=10.0, raft_log=True, durable=("currterm",))

    def _layout(self, nodes: Sequence[str]) -> Layout:
        brokers = first_nodes(nodes, self.options.brokers)
        return {
            node: NodeRoles(self._kinds(nodes, i, broker=node in brokers), "a" if node in brokers else None)
            for i, node in enumerate(nodes)
        }

    def _mode(self, kind: str, place: NodeRoles) -> Mapping[str, Default]:
        return settings.DLEDGER if kind == BROKER else {}

    def further(self, node: Node, name: str, group: str, slot: int) -> Server:
        raise InfraError(f"the topology {self.name} has one Raft group of brokers, and no further ones")

    def _own(self, kind: str, node: Node) -> Mapping[str, str]:
        own = dict(super()._own(kind, node))
        if kind == BROKER:
            peers = [node for node in self._nodes if self._places[node.name].group is not None]
            own |= {
                "dLegerGroup": own["brokerName"],
                "dLegerPeers": ";".join(f"{peer.name}-{peer.address}:{DLEDGER_PORT}" for peer in peers),
                "dLegerSelfId": node.name,
            }
        return own

    def _heap(self, kind: str) -> Sequence[str]:
        return list(jvm.WITH_DLEDGER) if kind == BROKER else super()._heap(kind)

    def _ports(self, kind: str) -> Mapping[str, int]:
        """The brokers copy by Raft, and their HA service is off."""
        return {**super()._ports(kind), **({REPLICATION: DLEDGER_PORT} if kind == BROKER else {})}
