# SPDX-License-Identifier: Apache-2.0
"""Controller mode (RIP-44): one group of brokers; three controllers elect its master.

The controllers use DLedger or JRaft. They are separate servers or run inside the name servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from infra.machines.api import InfraError, Node, SettingsError
from infra.machines.primitives.bits import FileKind
from infra.options import option
from infra.systems.api import REPLICATION, ServerSettings
from infra.systems.java import DATA
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, NAMESRV, PROXY, artifacts, jvm, settings
from infra.systems.rocketmq.topologies.base import RocketmqTopology
from infra.systems.rocketmq.topologies.bounds import lag_within_s
from infra.systems.rocketmq.topologies.layout import (
    CONTROLLER_PORT,
    JRAFT_PORT,
    JRAFT_RPC_PORT,
    QUORUM_SIZE,
    Layout,
    NodeRoles,
    first_nodes,
)
from infra.systems.rocketmq.topologies.members import forget
from infra.systems.settings import Default
from results.deployment import Traits
from results.permission import Permission, Permissions

_RAFT_GROUP: Final = "controllers"

_JRAFT_SINCE: Final = "5.2.0"

_RETRY_MS: Final = 6000
"""A broker whose group has no master requests an election every 5 s (`ReplicasManager`), and may be late."""

_JRAFT_SNAPSHOTS: Final = {
    "snapshot": FileKind("**/snapshot/snapshot_*/data"),
    "snapshot-meta": FileKind("**/snapshot/snapshot_*/__raft_snapshot_meta"),
}
_DLEDGER_SNAPSHOTS: Final = {
    "snapshot": FileKind("**/snapshot/snapshot_*/data"),
    "snapshot-meta": FileKind("**/snapshot/snapshot_*/snapshot_meta"),
}
"""The snapshot settings of DLedger 0.3.2 and later."""

_GONE: Final = ("lost", "dirty-read")
"""The anomalies of a change of master that drops messages."""


@dataclass(frozen=True)
class ControllerOptions:
    """The options of the topology."""

    controller_type: Literal["dledger", "jraft", "dledger-embedded", "jraft-embedded"] = option(
        "dledger", "Raft of the controllers; embedded: they run inside the name servers."
    )
    brokers: int | None = option(
        None, "Number of nodes with a broker, counted from the first; 0: controllers alone.  [default: all]", low=0
    )
    log_reads: bool = option(
        False,
        "processReadEvent: DLedger controllers append an entry for each read. Without it, one that is cut off answers "
        "from its memory. (JRaft controllers always do.)",
    )


class ControllerTopology(RocketmqTopology):
    """One group of brokers."""

    name = "controller"
    summary = "one group; three controllers (DLedger or JRaft) elect its master (RIP-44)"
    Options: ClassVar[type] = ControllerOptions
    kinds: ClassVar[Sequence[str]] = (NAMESRV, CONTROLLER, BROKER, PROXY)
    changing: ClassVar[Collection[str]] = ("brokerId", "brokerRole")
    # Every 3 s, if more than 10 s have passed (`ReplicasManager.handleSlaveSynchronize`): 10.6 to 12.8 s were measured.
    traits: ClassVar[Traits] = Traits(
        offsets_copied_s=12.0, in_sync=True, durable=("brokerIdentity", "epochFileCheckpoint", "currterm", "raft_meta")
    )

    def __init__(self, server_settings: ServerSettings, options: ControllerOptions | None = None) -> None:
        super().__init__(server_settings, options)
        kind = self.options.controller_type
        self._jraft, self._embedded = kind.startswith("jraft"), kind.endswith("-embedded")
        old = [version for version in self._all_versions() if artifacts.before(version, _JRAFT_SINCE)]
        if self._jraft and old and server_settings.launch.jars is None:
            raise SettingsError(f"--controller-type {kind}: RocketMQ has it since {_JRAFT_SINCE}, not in {old[0]}")
        self.controller_port = JRAFT_RPC_PORT if self._jraft else CONTROLLER_PORT

    def _layout(self, nodes: Sequence[str]) -> Layout:
        brokers = first_nodes(nodes, self.options.brokers)
        first_kinds = [NAMESRV] if self._embedded else [NAMESRV, CONTROLLER]
        return {
            node: NodeRoles(
                self._kinds(nodes, i, first_kinds, broker=node in brokers), "a" if node in brokers else None
            )
            for i, node in enumerate(nodes)
        }

    def _mode(self, kind: str, place: NodeRoles) -> Mapping[str, Default]:
        controller = {**settings.CONTROLLER, **(settings.JRAFT if self._jraft else {})}
        match kind:
            case "broker":
                return {**settings.CONTROLLED, **(settings.STRICT_CONTROLLED if self.profile == "strict" else {})}
            case "controller":
                return controller
            case "namesrv" if self._embedded:
                return controller
        return {}

    def _own(self, kind: str, node: Node) -> Mapping[str, str]:
        own = dict(super()._own(kind, node))
        match kind:
            case "broker":
                own["controllerAddr"] = ";".join(f"{host}:{port}" for host, port in self.controllers())
                own["brokerRole"] = "SLAVE"  # as in the shipped samples; the controllers decide
            case "controller":
                own |= self._raft(node)
            case "namesrv" if self._embedded:
                own |= {**self._raft(node), **self._chosen[CONTROLLER], "enableControllerInNamesrv": "true"}
        return own

    def _raft(self, node: Node) -> dict[str, str]:
        """A controller's own place among its peers."""
        voters = self._nodes[:QUORUM_SIZE]
        store = {"controllerStorePath": f"{DATA}/controller/store"}
        if self._jraft:
            return store | {
                "controllerType": "jRaft",
                "jRaftGroupId": _RAFT_GROUP,
                "jRaftServerId": f"{node.address}:{JRAFT_PORT}",
                "jRaftInitConf": ",".join(f"{voter.address}:{JRAFT_PORT}" for voter in voters),
                "jRaftControllerRPCAddr": ",".join(f"{voter.address}:{JRAFT_RPC_PORT}" for voter in voters),
            }
        # A controller reports it as `isProcessReadEvent`, a name that it does not accept.
        reads = {"processReadEvent": "true"} if self.options.log_reads else {}
        return {
            **store,
            **reads,
            "controllerType": "DLedger",
            "controllerDLegerGroup": _RAFT_GROUP,
            "controllerDLegerPeers": ";".join(f"{voter.name}-{voter.address}:{CONTROLLER_PORT}" for voter in voters),
            "controllerDLegerSelfId": node.name,
        }

    def forget(self, node: Node, timeout_s: float) -> str:
        group = self._places[node.name].group
        if group is None:
            raise InfraError(f"{node.name}: no broker is there")
        return asyncio.run(forget(self.controllers(), group, node.address, timeout_s))

    def controllers(self) -> Sequence[tuple[str, int]]:
        return [(node.address, self.controller_port) for node in self._nodes[:QUORUM_SIZE]]

    def _ports(self, kind: str) -> Mapping[str, int]:
        """An embedded controller is a part of its name server."""
        found = dict(super()._ports(kind))
        if kind == CONTROLLER or (self._embedded and kind == NAMESRV):
            raft = JRAFT_PORT if self._jraft else CONTROLLER_PORT
            found |= {CONTROLLER: self.controller_port, REPLICATION: raft}
        return found

    def _files(self, kind: str) -> Mapping[str, FileKind]:
        """The files of a kind of server. JRaft keeps its log in RocksDB, whose records have no layout here."""
        if kind == BROKER or CONTROLLER not in self._ports(kind):
            return super()._files(kind)
        return _JRAFT_SNAPSHOTS if self._jraft else {**super()._files(kind), **_DLEDGER_SNAPSHOTS}

    def quorums(self) -> Mapping[str, Sequence[str]]:
        """A majority of the controllers elects, and a majority of the brokers copies: a half with most brokers cannot
        elect a master by itself.
        """
        found = {NAMESRV if self._embedded else CONTROLLER: [node.name for node in self._nodes[:QUORUM_SIZE]]}
        return found | {kind: brokers for kind, brokers in super().quorums().items() if brokers}

    def _heap(self, kind: str) -> Sequence[str]:
        return list(jvm.HEAP[CONTROLLER if self._embedded and kind == NAMESRV else kind])

    def _facts(self) -> Traits:
        return replace(super()._facts(), elects_in_sync=not self._elects_any())

    def _elects_any(self) -> bool:
        """True if the controllers may elect a replica that is not in sync."""
        place = NodeRoles((BROKER, CONTROLLER), "a")
        return self.configured(CONTROLLER, place).get("enableElectUncleanMaster") == "true"

    def permits(self) -> Permissions:
        """The anomalies that the settings permit, whatever the profile's name."""
        place = NodeRoles((BROKER, CONTROLLER), "a")
        limit_ms = self.configured(BROKER, place).get("controllerHeartBeatTimeoutMills", "")
        locks: dict[str, Permission | str] = dict(super().permits())
        if limit_ms.isdecimal() and int(limit_ms) < _RETRY_MS:
            locks["never-running"] = (
                f"controllerHeartBeatTimeoutMills={limit_ms}: a broker without a master sends heartbeats only when it "
                "asks for an election, every 5 s; before that the controllers have given it up, and elect nobody"
            )
        if self._elects_any():
            return locks | dict.fromkeys(
                _GONE, "enableElectUncleanMaster=true: a replica that lacks messages may become master"
            )
        broker = self.configured(BROKER, place)
        if broker.get("allAckInSyncStateSet") == "true":
            return locks
        why = (
            f"profile {self.profile}: with allAckInSyncStateSet=false a master acknowledges, and shows, what a replica "
            "that may become master does not have yet; a change of master drops it"
        )
        return locks | dict.fromkeys(_GONE, Permission(why, lag_within_s(broker)))
