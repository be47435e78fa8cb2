# SPDX-License-Identifier: Apache-2.0
"""The configuration files of servers: the settings that users cannot choose, the format, the check that they took
effect, and the changes that a running server accepts.
"""

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
"""The settings that the topology itself decides, by kind of server."""

LIVE: Final[Mapping[str, Mapping[str, str]]] = {
    BROKER: {
        "inSyncReplicas": "1",
        "minInSyncReplicas": "1",
        "enableAutoInSyncReplicas": "false",
        "allAckInSyncStateSet": "false",
        "haMaxGapNotInSync": str(256 << 20),
        "slaveTimeout": "3000",
        "maxTransferCountOnMessageInMemory": "32",
        "recallMessageEnable": "false",
    },
}
"""By kind of server: settings that take effect as soon as they are changed, and the server's own defaults.

A broker reads these for each message (`CommitLog.asyncPutMessage`, `calcNeedAckNums`, `DefaultHAService`,
`DefaultMessageStore.isTheBatchFull`, `RecallMessageProcessor`; the same in 5.1.0, 5.1.1, 5.2.0 and 5.3.3). It reports
new values of all other settings, too, but keeps to the old ones of many.
"""


def settings_file(kind: str) -> str:
    """The path of the configuration on the node."""
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
    """The first setting that a server has otherwise than requested, in words; None if all are as requested.

    A setting of the harness that the server does not have belongs to later versions; the user's own (`wanted`) must be
    there.
    """
    for name, value in requested.items():
        got = reply.get(name)
        if name in changing or (got is None and name not in wanted):
            continue
        if not _same(value, got):
            return f"{name}={value} did not take effect: the value is {got}"
    return None


def live_changes(kind: str, requested: Mapping[str, str], reply: Mapping[str, str]) -> dict[str, str]:
    """Changes to a server that runs already, among the settings that it accepts while it runs: name -> value. A setting
    that was not requested gets the server's own default.
    """
    wanted = {name: requested.get(name, own) for name, own in LIVE.get(kind, {}).items() if name in reply}
    return {name: value for name, value in wanted.items() if not _same(value, reply[name])}


def _same(requested: str, got: str | None) -> bool:
    if got is None:
        return False
    if requested.strip().lower() == got.strip().lower():
        return True
    try:
        return float(requested) == float(got)
    except ValueError:
        return False
