"""Checks the memory and disk of the machines before anything is started.

Nodes may share a machine (containers, namespaces): nodes with the same boot id of the kernel do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from infra.machines.api import InfraError, Node
from infra.systems.java import DATA
from infra.systems.rocketmq.servers import jvm

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
