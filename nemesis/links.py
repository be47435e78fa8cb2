# SPDX-License-Identifier: Apache-2.0
"""The links that packet faults act on: their ends, direction, and ports.

A link is directed: packets go from its sender to its receiver. One of them is a node that the strike hits, the other a
peer. A peer may be the clients: the control program, from whose machine all clients come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final, Literal

from harness.api import NoTarget, Target
from harness.cluster_view import ClusterView
from harness.nemesis.targets import nodes_with_role
from infra.machines.api import InfraError
from infra.options import option
from infra.systems.api import REPLICATION, Deployment
from results.strikes import CLIENTS

ALL: Final = "all"
OWN_GROUP: Final = "own-group"
OTHER_GROUPS: Final = "other-groups"
ANY: Final = "any"

_NODE: Final = re.compile(r"n[0-9]+")
_HIGHEST_PORT: Final = 65535

Direction = Literal["in", "out", "both"]


@dataclass(frozen=True)
class PortOptions:
    """The options that choose packets of a link."""

    port: str = option(
        ANY,
        "Packets from or to any port, the ports that clients use (clients), the replication ports (replication), or a "
        "number.",
        metavar="any|clients|replication|N",
    )

    def __post_init__(self) -> None:
        """Raises ValueError."""
        number = int(self.port) if re.fullmatch(r"[0-9]{1,5}", self.port) else 0
        if self.port not in (ANY, CLIENTS, REPLICATION) and not 0 < number <= _HIGHEST_PORT:
            raise ValueError(f"port is {self.port!r}; any, clients, replication or a number up to 65535 is right")


@dataclass(frozen=True)
class ClientOptions(PortOptions):
    """The options of a fault that acts only on packets from clients."""

    direction: ClassVar[Direction] = "in"
    words: ClassVar[Sequence[str]] = (CLIENTS,)
    roles: ClassVar[Sequence[str]] = ()


@dataclass(frozen=True)
class LinkOptions(PortOptions):
    """The options of packet faults that act on arrival. Such a fault can act on packets from clients, but not on
    packets to them: no fault acts on the control program's machine.
    """

    peers: tuple[str, ...] = option(
        (ALL,),
        "Other ends of the links: all (other nodes), own-group or other-groups (replica groups), clients, a role such "
        "as master, or nodes; several: n1+n3.",
    )
    direction: Direction = option(
        "in", "Packets that arrive at the target (in), at the peers (out), or both.", metavar="in|out|both"
    )

    with_clients: ClassVar[Direction] = "in"

    def __post_init__(self) -> None:
        """Raises ValueError."""
        super().__post_init__()
        if not self.words:
            raise ValueError("peers is empty; all, clients, a role or nodes are right")
        if CLIENTS in self.words and self.direction != self.with_clients:
            raise ValueError(f"direction is {self.direction!r}; with the peers clients, {self.with_clients!r} is right")

    @property
    def words(self) -> list[str]:
        """The peers, one by one."""
        return [word.strip() for one in self.peers for word in one.split("+") if word.strip()]

    @property
    def roles(self) -> list[str]:
        """The peers that are roles: their nodes are not known before the strike."""
        return [w for w in self.words if w not in (ALL, OWN_GROUP, OTHER_GROUPS, CLIENTS) and not _NODE.fullmatch(w)]


@dataclass(frozen=True)
class SenderLinkOptions(LinkOptions):
    """The options of a fault that acts on the sender: on packets to clients, and not on packets from them."""

    direction: Direction = option(
        "out", "Packets that the target sends (out), that its peers send to it (in), or both.", metavar="in|out|both"
    )

    with_clients: ClassVar[Direction] = "out"


@dataclass(frozen=True)
class Link:
    """Packets from one end to another; an end is a node, or `CLIENTS`."""

    sender: str
    receiver: str


def links(view: ClusterView, target: Target, options: LinkOptions | ClientOptions, rng: Random) -> list[Link]:
    """The links of a strike, each of them once. Raises NoTarget if no link exists."""
    held = {role: nodes_with_role(role, view, rng).nodes for role in options.roles}
    missing = [role for role, nodes in held.items() if not nodes]
    if missing:
        raise NoTarget(f"no {missing[0]} is known")
    found: dict[Link, None] = {}
    for node in target.nodes:
        for peer in _peers(view, node, options.words, held):
            if options.direction in ("in", "both"):
                found[Link(peer, node)] = None
            if options.direction in ("out", "both"):
                found[Link(node, peer)] = None
    if not found:
        raise NoTarget(f"{', '.join(target.nodes)}: no other node is among the peers {', '.join(options.words)}")
    return list(found)


def _peers(view: ClusterView, node: str, words: Sequence[str], held: Mapping[str, Sequence[str]]) -> list[str]:
    """A node's peers, in the order of the nodes; the clients are the last."""
    group = view.group_of(node)
    others = [member for members in view.groups.values() for member in members if member not in group]
    known = {ALL: view.nodes, OWN_GROUP: group, OTHER_GROUPS: others, CLIENTS: [CLIENTS], **held}
    strange = [word for word in words if word not in known and word not in view.nodes]
    if strange:
        raise NoTarget(f"there is no node {strange[0]}")
    found = {peer for word in words for peer in known.get(word, [word])}
    return [peer for peer in (*view.nodes, CLIENTS) if peer in found and peer != node]


def ports(deployment: Deployment, port: str, nodes: Iterable[str]) -> tuple[int, ...]:
    """The ports that an option means, of the servers of these nodes; empty: any. Raises InfraError if no server has
    such a port.
    """
    if port == ANY:
        return ()
    if port.isdigit():
        return (int(port),)
    servers = [server for node in nodes if node != CLIENTS for server in deployment.servers(node)]
    found = {
        number
        for server in servers
        for kind, number in server.ports.items()
        if (kind == REPLICATION) == (port == REPLICATION)
    }
    if not found:
        raise InfraError(f"no server there has a port for {port}; port = 'any' or a number is right")
    return tuple(sorted(found))
