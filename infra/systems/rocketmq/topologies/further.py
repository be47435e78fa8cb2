"""Brokers beside those of a layout: each has its own ports, folders and names (`Topology.further`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.systems.api import REPLICATION, Server
from infra.systems.rocketmq.servers import BROKER

SLOTS: Final = 40
"""The number of addresses of a node for further brokers."""

_FIRST_PORT: Final = 12911
_STEP: Final = 10
"""A broker listens on its port, on the one two below it, and on the one above it (HA)."""


def further_ports(slot: int) -> Mapping[str, int]:
    """See `infra.systems.api.Server.ports`."""
    port = _FIRST_PORT + _STEP * (slot % SLOTS)
    return {BROKER: port, REPLICATION: port + 1}


def further_settings(server: Server) -> Mapping[str, str]:
    """The settings in which such a broker differs from a broker of the layout."""
    (home,) = server.data_dirs
    return {
        "brokerName": str(server.group),
        "brokerIP1": server.node.address,
        "brokerIP2": server.node.address,
        "listenPort": str(server.ports[BROKER]),
        "haListenPort": str(server.ports[REPLICATION]),
        "storePathRootDir": f"{home}/store",
        "storePathCommitLog": f"{home}/store/commitlog",
    }
