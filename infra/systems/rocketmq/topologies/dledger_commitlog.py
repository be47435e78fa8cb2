"""Brokers whose CommitLog is a DLedger log: one Raft group, and no slaves that merely copy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from infra.machines.api import Node, ServerSettings
from infra.systems.java import Launch
from infra.systems.rocketmq.servers import BROKER, settings
from infra.systems.rocketmq.topologies.base import RocketmqTopology
from infra.systems.rocketmq.topologies.controller import broker_count
from infra.systems.rocketmq.topologies.layout import DLEDGER_PORT, Layout, Place
from infra.systems.settings import Default


class DledgerCommitlogTopology(RocketmqTopology):
    """Option: `brokers`, how many nodes have one (default: all), the first ones.

    The profiles do not differ: a message is acknowledged when a majority has it, whatever the settings.
    """

    name = "dledger-commitlog"
    summary = "one group whose CommitLog is a DLedger: Raft elects the master, a majority stores"
    known_options: ClassVar[Collection[str]] = ("brokers", "proxy")
    changing: ClassVar[Collection[str]] = ("brokerId", "brokerRole")

    def __init__(self, server_settings: ServerSettings, launch: Launch | None = None) -> None:
        super().__init__(server_settings, launch)
        self._brokers = broker_count(self._options)

    def _layout(self, nodes: Sequence[str]) -> Layout:
        brokers = nodes[: self._brokers] if self._brokers is not None else nodes
        return {
            node: Place(self._kinds(nodes, i, broker=node in brokers), "a" if node in brokers else None)
            for i, node in enumerate(nodes)
        }

    def _mode(self, kind: str, place: Place) -> Mapping[str, Default]:
        return settings.DLEDGER if kind == BROKER else {}

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

    def permits(self) -> Mapping[str, str]:
        return {}
