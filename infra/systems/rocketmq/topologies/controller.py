"""Controller mode (RIP-44): one group of brokers whose master is elected by three controllers.

The controllers agree by DLedger or by JRaft, and are servers of their own or stand inside the name servers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final

from infra.machines.api import Node, ServerSettings, SettingsError
from infra.systems.java import DATA, Launch
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, NAMESRV, jvm, settings
from infra.systems.rocketmq.topologies.base import RocketmqTopology
from infra.systems.rocketmq.topologies.layout import CONTROLLER_PORT, JRAFT_PORT, JRAFT_RPC_PORT, SEATS, Layout, Place
from infra.systems.settings import Default

TYPES: Final = ("dledger", "jraft", "dledger-embedded", "jraft-embedded")

_RAFT_GROUP: Final = "controllers"

_GONE: Final = ("lost", "dirty-read")
"""What it looks like when a change of master drops messages."""


class ControllerTopology(RocketmqTopology):
    """Options: `controller_type`, one of `TYPES`; `brokers`, how many nodes have one (default: all), the first ones."""

    name = "controller"
    summary = "one group whose master three controllers elect (RIP-44), by DLedger or JRaft"
    known_options: ClassVar[Collection[str]] = ("controller_type", "brokers", "proxy")
    changing: ClassVar[Collection[str]] = ("brokerId", "brokerRole")

    def __init__(self, server_settings: ServerSettings, launch: Launch | None = None) -> None:
        super().__init__(server_settings, launch)
        self.controller_type = self._options.get("controller_type", TYPES[0])
        if self.controller_type not in TYPES:
            raise SettingsError(f"--controller-type {self.controller_type}: there are {', '.join(TYPES)}")
        self._jraft = self.controller_type.startswith("jraft")
        self._embedded = self.controller_type.endswith("-embedded")
        if self._jraft and self.version in ("5.1.0", "5.1.1") and self._user_jars is None:
            raise SettingsError(f"--controller-type {self.controller_type}: RocketMQ has it from 5.2.0 on")
        self.controller_port = JRAFT_RPC_PORT if self._jraft else CONTROLLER_PORT
        self._brokers = broker_count(self._options)

    def _layout(self, nodes: Sequence[str]) -> Layout:
        brokers = nodes[: self._brokers] if self._brokers is not None else nodes
        seats = [NAMESRV] if self._embedded else [NAMESRV, CONTROLLER]
        return {
            node: Place(self._kinds(nodes, i, seats, broker=node in brokers), "a" if node in brokers else None)
            for i, node in enumerate(nodes)
        }

    def _mode(self, kind: str, place: Place) -> Mapping[str, Default]:
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
        seats = self._nodes[:SEATS]
        store = {"controllerStorePath": f"{DATA}/controller/store"}
        if self._jraft:
            return store | {
                "controllerType": "jRaft",
                "jRaftGroupId": _RAFT_GROUP,
                "jRaftServerId": f"{node.address}:{JRAFT_PORT}",
                "jRaftInitConf": ",".join(f"{seat.address}:{JRAFT_PORT}" for seat in seats),
                "jRaftControllerRPCAddr": ",".join(f"{seat.address}:{JRAFT_RPC_PORT}" for seat in seats),
            }
        return store | {
            "controllerType": "DLedger",
            "controllerDLegerGroup": _RAFT_GROUP,
            "controllerDLegerPeers": ";".join(f"{seat.name}-{seat.address}:{CONTROLLER_PORT}" for seat in seats),
            "controllerDLegerSelfId": node.name,
        }

    def controllers(self) -> Sequence[tuple[str, int]]:
        return [(node.address, self.controller_port) for node in self._nodes[:SEATS]]

    def carrier(self, server: str) -> str:
        """An embedded controller is a part of its name server."""
        return NAMESRV if self._embedded and server == CONTROLLER else server

    def _heap(self, kind: str) -> Sequence[str]:
        return list(jvm.HEAP[CONTROLLER if self._embedded and kind == NAMESRV else kind])

    def permits(self) -> Mapping[str, str]:
        """What the settings come to, whatever the profile is called."""
        place = Place((BROKER, CONTROLLER), "a")
        if self.configured(CONTROLLER, place).get("enableElectUncleanMaster") == "true":
            return dict.fromkeys(
                _GONE, "enableElectUncleanMaster=true: a replica that lacks messages may become master"
            )
        if self.configured(BROKER, place).get("allAckInSyncStateSet") == "true":
            return {}
        why = (
            f"profile {self.profile}: with allAckInSyncStateSet=false a master acknowledges, and shows, what a replica "
            "that may become master does not have yet; a change of master drops it"
        )
        return dict.fromkeys(_GONE, why)


def broker_count(given: Mapping[str, str]) -> int | None:
    """The option `brokers`: how many; None: as many as there are nodes. Raises InfraError."""
    text = given.get("brokers")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise SettingsError(f"--brokers {text}: a number from 1 on is right")
    return int(text)
