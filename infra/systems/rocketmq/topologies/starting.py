# SPDX-License-Identifier: Apache-2.0
"""The start of a cluster: room on its machines, an order of the servers in which none waits long for another, and the
configuration that they then have.

Nodes may share a machine (containers, namespaces): nodes with the same boot id of the kernel do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from infra.machines.api import InfraError, Node
from infra.systems.java import DATA, LOG, JavaServer
from infra.systems.mends.apply import require_applied
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin
from infra.systems.rocketmq.servers import BROKER, CONTROLLER, NAMESRV, PROXY, jvm
from infra.systems.rocketmq.topologies.files import find_mismatch, live_changes
from infra.systems.rocketmq.topologies.layout import GROUP_OF_PROXIES
from infra.systems.settings import properties
from infra.systems.starting import Stage

FULL_PERCENT: Final = 85
"""`diskSpaceCleanForciblyRatio`, which brokers do not let users raise: above it they delete unread messages, too."""

_LOOK: Final = (
    "cat /proc/sys/kernel/random/boot_id; awk '$1 == \"MemAvailable:\" {print $2}' /proc/meminfo; "
    "df -P -k \"$1\" | awk 'NR == 2 {print $4, $5}'"
)


@dataclass(frozen=True)
class _Seen:
    boot: str
    memory_mb: int
    disk_mb: int
    used_percent: int


def check_space(nodes: Sequence[Node], servers: Callable[[Node], Sequence[str]]) -> None:
    """Raises InfraError if the memory or the disk is too small, or the disk too full for a broker."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        seen = dict(zip(nodes, pool.map(_look, nodes), strict=True))
    machines: dict[str, list[Node]] = {}
    for node, found in seen.items():
        machines.setdefault(found.boot, []).append(node)
    for together in machines.values():
        kinds = [kind for node in together for kind in servers(node)]
        who = together[0].name if len(together) == 1 else f"{together[0].name}..{together[-1].name} (one machine)"
        memory = min(seen[node].memory_mb for node in together)
        if (wanted := sum(jvm.RESIDENT_MB[kind] for kind in kinds)) > memory:
            raise InfraError(
                f"{who}: {memory} MiB of memory are free, and its {len(kinds)} servers take about {wanted}; "
                "fewer nodes or brokers fit, or a larger machine"
            )
        disk = min(seen[node].disk_mb for node in together)
        if (wanted := sum(jvm.FILES_MB[kind] for kind in kinds)) > disk:
            raise InfraError(f"{who}: {disk} MiB are free under {DATA}, and its servers write about {wanted} in a run")
    for node, found in seen.items():
        if found.used_percent >= FULL_PERCENT and "broker" in servers(node):
            raise InfraError(
                f"{node.name}: the disk under {DATA} is {found.used_percent} % full; from {FULL_PERCENT} % on brokers "
                "delete messages that nobody has read, which would look like a loss: free some space"
            )


def _look(node: Node) -> _Seen:
    output = node.run(["sh", "-c", _LOOK, "space", DATA]).text.split()
    try:
        boot, memory, disk, used = output
        return _Seen(boot, int(memory) >> 10, int(disk) >> 10, int(used.rstrip("%")))
    except ValueError:
        raise InfraError(f"{node.name}: does not report its memory and disk: {' '.join(output)[:100]}") from None


_STAGES: Final = ((NAMESRV, CONTROLLER), (BROKER,), (PROXY,))
"""Brokers query name servers and controllers at their start, and again only seconds later."""

_AT_ONCE: Final = 4
"""Small servers that start at one time."""

_SETTINGS_S: Final = 10.0


async def make_group_of_proxies(brokers: Sequence[tuple[str, int]], timeout_s: float) -> None:
    """Makes the group on every broker, before any proxy starts: a broker ignores the heartbeat of a group that it does
    not know (`ClientManageProcessor.heartBeat`), and the proxy sends the next one 30 s later. Until then it hears
    nothing of the clients of others. Raises InfraError if a broker does not answer within `timeout_s`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*(_make_group(*broker, timeout_s) for broker in brokers))
    except (RemotingError, TimeoutError) as problem:
        raise InfraError(f"the group of the proxies was not made within {timeout_s:.0f} s: {problem}") from None


async def _make_group(host: str, port: int, timeout_s: float) -> None:
    async with BrokerAdmin(host, port, deadline_s=timeout_s) as broker:
        with suppress(AdminError):  # a slave of before 5.2.0 refuses, and copies it from its master
            await broker.create_group(GROUP_OF_PROXIES)


def stages_of(servers: Sequence[JavaServer]) -> list[Stage]:
    """The servers in the order of their start. All brokers at once: after a restart one may wait for another, the only
    one that may become master.
    """
    staged = [[server for kind in kinds for server in servers if server.kind == kind] for kinds in _STAGES]
    return [
        Stage(some, len(some) if BROKER in kinds else _AT_ONCE) for kinds, some in zip(_STAGES, staged, strict=True)
    ]


def read_back(
    servers: Sequence[JavaServer],
    requested: Callable[[str, Node], Mapping[str, str]],
    chosen: Mapping[str, Mapping[str, str]],
    changing: Collection[str],
) -> None:
    """Reads every server's effective configuration, keeps it on the node for `collect`, and compares it with the
    requested one. A server that ran before (on a kept cluster) is changed, as far as it accepts that while it runs.
    `servers` are ordered by node. `requested` returns the configuration of a kind of server at a node; `chosen` has the
    user's settings of each kind, `changing` those that the cluster changes by itself. Raises InfraError for the first
    setting that did not take effect, and the first mend.
    """

    def one(server: JavaServer) -> None:
        node, kind = server.node, server.kind
        require_applied(server)
        if kind == PROXY:
            return  # has no such request
        reply = server.admin.settings(_SETTINGS_S)
        asked = requested(kind, node)
        if changes := live_changes(kind, asked, reply):
            node.run(server.admin.change_command(changes))
            reply = server.admin.settings(_SETTINGS_S)
        node.write(f"{LOG}/effective-{kind}.properties", properties(reply))
        if text := find_mismatch(asked, reply, chosen[kind], changing):
            raise InfraError(f"{node.name}: {kind}.{text}")

    def all_at(group: Sequence[JavaServer]) -> None:
        for server in group:
            one(server)

    nodes = [list(group) for _, group in groupby(servers, key=lambda server: server.node.name)]
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(all_at, nodes))
