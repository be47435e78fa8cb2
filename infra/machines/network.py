# SPDX-License-Identifier: Apache-2.0
"""Addresses of the harness: one /24 of 198.18.0.0/15 per cluster, never shared, never routed off the machine.

198.18.0.0/15 is reserved for benchmarks between networks (RFC 2544, RFC 6890): no host on the Internet uses it. A /24
is claimed by binding an abstract socket named after it. Two clusters that start at the same time cannot claim the same
/24, and the kernel releases it when its owner ends.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError

POOL: Final = IPv4Network("198.18.0.0/15")
MAX_NODES: Final = 200
_FIRST_NODE: Final = 11
FIRST_SPARE: Final = _FIRST_NODE + MAX_NODES
"""The first of the spare addresses, up to the end of the network, for nodes that get another one."""
_ROUTES: Final = Path("/proc/net/route")


class Subnet:
    """A /24 that this process holds. `.1` is the control node, `.11` the first node."""

    def __init__(self, network: IPv4Network, claim: socket.socket) -> None:
        self.network = network
        self._claim = claim

    @property
    def control(self) -> str:
        """The control node's address in it."""
        return str(self.network[1])

    def node(self, index: int) -> str:
        """The address of the node with this index (0 is `n1`)."""
        if not 0 <= index < MAX_NODES:
            raise InfraError(f"node number {index + 1}: a cluster has 1 to {MAX_NODES} nodes")
        return str(self.network[_FIRST_NODE + index])

    def release(self) -> None:
        """Releases the network. Idempotent."""
        self._claim.close()


def subnets(run_id: str) -> Iterator[Subnet]:
    """Yields free /24s, each held meanwhile: keep the one that works, `release` the others.

    Starts at a place drawn from the run id, so that an address from an old log is rarely in use again at once.
    Raises InfraError if none is left.
    """
    blocks = list(POOL.subnets(new_prefix=24))
    start = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:4], "big") % len(blocks)
    used = routed(_ROUTES.read_text().splitlines()) if _ROUTES.exists() else []
    for block in blocks[start:] + blocks[:start]:
        if any(block.overlaps(other) for other in used):
            continue
        claim = _claim(block)
        if claim is not None:
            yield Subnet(block, claim)
    raise InfraError(f"no free /24 left in {POOL}: {len(used)} routes of this machine lie in it; try `harness clean`")


def routed(lines: Iterable[str]) -> list[IPv4Network]:
    """The networks inside the pool that the lines of /proc/net/route hold. Wider routes (the default) do not count."""
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) < 8 or fields[0] == "Iface":
            continue
        address, mask = (IPv4Address(int(fields[i], 16).to_bytes(4, "little")) for i in (1, 7))
        network = IPv4Network((address, str(mask)), strict=False)
        if network.prefixlen > POOL.prefixlen and network.subnet_of(POOL):
            found.append(network)
    return found


def seal_pool() -> None:
    """Makes this machine answer "no route" for addresses of the pool that no live cluster has.

    Without it, packets for a lost node would follow the default route off the machine. The route is the worst
    of all by metric and the widest, so live clusters always win; it stays until `harness clean` finds no cluster any
    more (`open_pool`). Needs root and iproute2; without them it is left out.
    """
    _route("add")  # "File exists" is what we want


def open_pool() -> bool:
    """Removes the route of `seal_pool`; returns whether one existed."""
    return _route("del")


def _route(verb: str) -> bool:
    if os.geteuid() != 0:
        return False
    argv = ["ip", "route", verb, "unreachable", str(POOL), "metric", "9999"]
    try:
        return subprocess.run(argv, capture_output=True, timeout=10, check=False).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


def _claim(block: IPv4Network) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0rocketmq-harness-{block.network_address}")
    except OSError:
        claim.close()
        return None
    return claim
