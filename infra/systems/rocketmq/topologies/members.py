# SPDX-License-Identifier: Apache-2.0
"""Brokers that join and leave: those beside a layout (`Topology.further`), each with its own ports, folders and names;
the list of members that the controllers keep, and an operator's removals from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from infra.machines.api import InfraError
from infra.systems.api import REPLICATION, Server
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, Controller
from infra.systems.rocketmq.servers import BROKER
from infra.systems.rocketmq.topologies.layout import CLUSTER

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


_ASK_S: Final = 2.0
_AGAIN_S: Final = 0.5


async def forget(controllers: Sequence[tuple[str, int]], group: str, address: str, timeout_s: float) -> str:
    """Makes the controllers forget the broker at an address (`mqadmin cleanBrokerMetadata`), and checks that they did.
    As long as they take it for alive, they refuse. Raises InfraError if they refuse, or do not know it, until the time
    is over.
    """
    asked: list[int] = []
    problem = "no controller leads"
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    ids = await _step(controllers, group, address)
                    if asked and not ids:
                        return f"the controllers forgot id {asked[0]} of group {group}"
                    if ids is not None:
                        asked = ids or asked
                        problem = f"the controllers know it as id {ids[0]}" if ids else "the controllers do not know it"
                except (RemotingError, AdminError) as why:
                    problem = str(why)
                await asyncio.sleep(_AGAIN_S)
    except TimeoutError:
        raise InfraError(f"{address}: group {group} does not forget it: {problem}") from None


async def _step(controllers: Sequence[tuple[str, int]], group: str, address: str) -> list[int] | None:
    """The ids of the address that the leader knew, and got the request to forget; None: no controller leads."""
    for host, port in controllers:
        try:
            async with Controller(host, port, deadline_s=_ASK_S) as controller:
                if not (await controller.metadata()).is_leader:
                    continue
                known = (await controller.sync_state([group])).get(group) or {}
                replicas = [*(known.get("inSyncReplicas") or []), *(known.get("notInSyncReplicas") or [])]
                ids = [
                    int(r["brokerId"])
                    for r in replicas
                    if str(r.get("brokerAddress") or r.get("address")).partition(":")[0] == address
                ]
                if ids:
                    await controller.clean_broker_data(CLUSTER, group, ids)
                return ids
        except RemotingError:
            continue
    return None
