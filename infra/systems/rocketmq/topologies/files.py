"""The configuration files of servers: what is not to be chosen, how they are written, and whether they took effect."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

from infra.systems.java import LOG
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, NAMESRV, PROXY
from infra.systems.settings import properties

OURS: Final[Mapping[str, Collection[str]]] = {
    NAMESRV: ("listenPort", "rocketmqHome", "kvConfigPath", "configStorePath", "enableControllerInNamesrv"),
    CONTROLLER: (
        *("controllerType", "controllerStorePath", "controllerDLegerGroup", "controllerDLegerPeers"),
        *("controllerDLegerSelfId", "jRaftGroupId", "jRaftServerId", "jRaftInitConf", "jRaftControllerRPCAddr"),
        *("rocketmqHome", "configStorePath"),
    ),
    BROKER: (
        *("brokerClusterName", "brokerName", "brokerId", "namesrvAddr", "brokerIP1", "brokerIP2", "listenPort"),
        *("haListenPort", "storePathRootDir", "storePathCommitLog", "rocketmqHome", "controllerAddr"),
        *("enableControllerMode", "enableDLegerCommitLog", "dLegerGroup", "dLegerPeers", "dLegerSelfId"),
        "enableSlaveActingMaster",
    ),
    PROXY: ("rocketMQClusterName", "proxyClusterName", "namesrvAddr", "grpcServerPort", "remotingListenPort"),
}
"""What the topology itself decides, by kind of server."""


def settings_file(kind: str) -> str:
    """Where it lies on the node."""
    return f"{LOG}/{kind}.{'json' if kind == PROXY else 'properties'}"


def rendered(kind: str, named: Mapping[str, str]) -> bytes:
    """A configuration file: JSON for the proxy, properties for the others."""
    if kind != PROXY:
        return properties(named)
    return json.dumps({name: _typed(value) for name, value in sorted(named.items())}, indent=1).encode()


def _typed(value: str) -> bool | int | str:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isascii() and value.isdigit() else value


def find_mismatch(
    requested: Mapping[str, str], reply: Mapping[str, str], wanted: Collection[str], changing: Collection[str]
) -> str | None:
    """The first setting that a server has otherwise than requested, in words; None when all are as they should be.

    A setting of ours that the server does not have is one of later versions; the user's own (`wanted`) must be there.
    """
    for name, value in requested.items():
        got = reply.get(name)
        if name in changing or (got is None and name not in wanted):
            continue
        if not _same(value, got):
            return f"{name}={value} did not take effect: the value is {got}"
    return None


def _same(requested: str, got: str | None) -> bool:
    if got is None:
        return False
    if requested.strip().lower() == got.strip().lower():
        return True
    try:
        return float(requested) == float(got)
    except ValueError:
        return False
