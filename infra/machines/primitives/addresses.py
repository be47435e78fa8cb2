# SPDX-License-Identifier: Apache-2.0
"""Addresses of nodes: another one replaces a node's own, in the same network.

From then on `Node.address` is the new one. The node is no longer reachable at the old one, except by the control
program's SSH: the leases are held over that connection.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from threading import Lock
from typing import Final

from infra.machines import scripts
from infra.machines.api import Cluster, InfraError, Node
from infra.machines.network import FIRST_SPARE
from infra.machines.primitives.network import TABLE_PREFIX, control_connection

_SCRIPT: Final = scripts.text("readdress.sh")
_GONE: Final = f"{TABLE_PREFIX}gone_"
"""The prefix of the tables with the packet rules of an old address; the address follows it."""
_TAKING: Final = Lock()


@dataclass(frozen=True)
class Move:
    """A node's old and new address. control: source of the control program's connection; port: its end on the node."""

    old: str
    new: str
    control: str
    port: int

    def argv(self) -> list[str]:
        """The argv of the move, for leases."""
        return self._argv("move")

    def back_argv(self) -> list[str]:
        """The argv that undoes the move."""
        return self._argv("back")

    def _argv(self, command: str) -> list[str]:
        table = _GONE + self.old.replace(".", "_")
        words = [command, self.old, self.new, self.control, str(self.port), table]
        return ["bash", "--norc", "-c", _SCRIPT, "readdress", *words]


def why_not(cluster: Cluster) -> str | None:
    """The reason why the nodes of a cluster keep their addresses, with the remedy; None: they can change."""
    if "network" in cluster.facts:
        return None
    return (
        f"machines of the backend {cluster.backend} keep their addresses; --cluster docker or local has its own network"
    )


def take(cluster: Cluster, node: Node) -> Move:
    """Gives a node an address that no node has had in this network. `node.address` changes at once; the caller then
    changes the node (`Move.argv`), or gives the address up. Raises InfraError if no address is left.
    """
    control, port = control_connection(node)
    if not control:
        raise InfraError(f"{node.name}: it does not report the address of the control program's connection")
    network = ipaddress.IPv4Network(cluster.facts["network"])
    with _TAKING:
        # Each new one is above all others, so the highest in use is the latest.
        highest = max(ipaddress.IPv4Address(each.address) for each in cluster.nodes)
        new = max(highest + 1, network[FIRST_SPARE])
        if new >= network.broadcast_address:
            raise InfraError(f"no address is left in {network} for {node.name}")
        move = Move(node.address, str(new), control, port)
        node.address = move.new
    return move


def has_rules(node: Node) -> bool:
    """True if another fault holds packet rules on a node: these name the addresses at that fault's beginning."""
    tables = [line.split()[-1] for line in node.run(["nft", "list", "tables"]).text.splitlines()]
    return any(name.startswith(TABLE_PREFIX) and not name.startswith(_GONE) for name in tables)


def answers(node: Node, address: str, port: int) -> bool:
    """True if a node can open a connection to an address."""
    argv = ["timeout", "2", "bash", "-c", ': < "/dev/tcp/$1/$2"', "connect", address, str(port)]
    return node.run(argv, check=False).code == 0
