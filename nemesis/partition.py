# SPDX-License-Identifier: Apache-2.0
"""Partitions: nodes that cannot receive from each other. The four partitions of RIP-59, with its names.

A node drops *incoming* packets from the peers of its grudge. The rules are in a packet filter table that contains
nothing else. Both ends of a cut link do this. Dropping outgoing packets would give the sender an error that no broken
network produces. Connections stay open and hang, as with an unplugged cable in the core of a network.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from harness.api import Evidence, Fault, Injection, NoTarget, Target, labelled
from harness.cluster_view import ClusterView
from infra.machines.api import Lease
from infra.machines.primitives import network
from infra.systems.api import Deployment
from nemesis import grudge
from nemesis.patience import eventually
from results.strikes import Effect


@dataclass
class Cut(Injection):
    """A node that drops packets from its `peers`."""

    node: str
    peers: Sequence[str]
    patience_s: float = 5.0
    """The time that a probe may take to be counted, or a table to disappear."""
    tables: set[str] = field(default_factory=set)
    """The tables that it made."""

    @property
    def detail(self) -> Any:
        return list(self.peers)

    @property
    def effects(self) -> Sequence[Effect]:
        return [Effect("cut-off", self.node, peers=tuple(self.peers))]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease:
        node = deployment.node(self.node)
        before = set(network.own_tables(node))
        lease = network.drop_packets(node, [deployment.node(name).address for name in self.peers], ttl_s)
        try:
            self.tables = set(network.own_tables(node)) - before
        except BaseException:
            lease.heal()
            raise
        return lease

    def seen(self, deployment: Deployment) -> Evidence:
        """Lets every dropped peer send a datagram, and probes if the node's drop counter for that peer rises."""
        node = deployment.node(self.node)
        peers = {name: deployment.node(name) for name in self.peers}
        before = network.dropped(node)
        grown: dict[str, int] = {}

        def all_counted() -> bool:
            for name, peer in peers.items():
                if name not in grown:
                    network.send_probe(peer, node.address)
            now = network.dropped(node)
            for name, peer in peers.items():
                more = now.get(peer.address, 0) - before.get(peer.address, 0)
                if more > 0:
                    grown[name] = more
            return len(grown) == len(peers)

        seen = eventually(all_counted, self.patience_s)
        counted = ", ".join(f"{grown[name]} from {name}" for name in peers if name in grown) or "none"
        missed = [name for name in peers if name not in grown]
        tail = f"; still heard: {', '.join(missed)}" if missed else ""
        return Evidence(seen, f"packets dropped since the probes: {counted}{tail}")

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if the tables of this strike are gone; those of an overlapping strike do not count."""
        node = deployment.node(self.node)
        gone = eventually(lambda: not self.tables.intersection(network.own_tables(node)), self.patience_s)
        left = ", ".join(sorted(self.tables))
        return Evidence(gone, "the packet filter table is gone" if gone else f"still there: {left}")


class Partition(Fault):
    """The base of all partitions: a grudge, and its effect on each node."""

    default_target: ClassVar[str] = "one"

    @abstractmethod
    def grudge(self, view: ClusterView, target: Target, rng: Random) -> grudge.Grudge:
        """Returns node -> the nodes whose packets it drops. Raises NoTarget."""

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        held = self.grudge(view, target, rng)
        # Written in the order of the nodes, for those who read it.
        return {
            node: Cut(node, [peer for peer in view.nodes if peer in held[node]]) for node in view.nodes if node in held
        }

    def describe(self, injections: Sequence[Injection], labels: Mapping[str, str]) -> str:
        """The sides of the cut: `n1 n4 | n2 n3 (leader) n5`; nodes with one grudge are on one side."""
        sides: dict[tuple[str, ...], list[str]] = {}
        for injection in injections:
            sides.setdefault(tuple(injection.detail), []).append(labelled(injection.node, labels))
        between = " | " if len(sides) == 2 else " "
        return between.join(" ".join(side) for side in sides.values())


class PartitionRandomNode(Partition):
    """Separates the nodes hit (by default: a single one) from the rest."""

    name = "partition-random-node"
    summary = "isolates one random node"

    def grudge(self, view: ClusterView, target: Target, rng: Random) -> grudge.Grudge:
        return grudge.complete_grudge([target.nodes, [node for node in view.nodes if node not in target.nodes]])


class PartitionHalves(Partition):
    """Two random halves that do not hear each other; the nodes hit are in the smaller one, as far as it holds them."""

    name = "partition-halves"
    summary = "cuts the network into two random halves"

    def grudge(self, view: ClusterView, target: Target, rng: Random) -> grudge.Grudge:
        return grudge.complete_grudge(grudge.bisect(_shuffled(view.nodes, target.nodes, rng)))


class PartitionMajoritiesRing(Partition):
    """Every node hears a majority, and no two the same one; the ring's order is random (the target has no effect)."""

    name = "partition-majorities-ring"
    summary = "every node hears a majority, and no two nodes hear the same one"

    def grudge(self, view: ClusterView, target: Target, rng: Random) -> grudge.Grudge:
        return grudge.majorities_ring(_shuffled(view.nodes, (), rng))


class Bridge(Partition):
    """Two halves that do not hear each other, and a node (the one hit) that hears both."""

    name = "bridge"
    summary = "cuts the network into two halves; one node hears both"

    def grudge(self, view: ClusterView, target: Target, rng: Random) -> grudge.Grudge:
        middle, *others = _shuffled(view.nodes, target.nodes, rng)
        # The bridge is the first node of the larger half: see `grudge.bridge`.
        place = len(view.nodes) // 2
        return grudge.bridge([*others[:place], middle, *others[place:]])


class PartitionLeader(PartitionRandomNode):
    """Separates the leader (a master, or a Raft group's leader) from the rest."""

    name = "partition-leader"
    summary = "isolates the master (or the leader)"
    default_target: ClassVar[str] = "leader"


class PartitionLeaderMinority(Partition):
    """Separates the leader and one of its followers from the rest.

    The follower is chosen so that of each kind of server most are on the other side, if possible the one that leads its
    kind too (the controllers' leader), so that they can elect another master; a follower that is in sync comes first,
    so that the cut-off side works longest as if nothing had happened.
    """

    name = "partition-leader-minority"
    summary = "isolates the master and one slave from most controllers and name servers"
    default_target: ClassVar[str] = "leader"

    def grudge(self, view: ClusterView, target: Target, rng: Random) -> grudge.Grudge:
        """Raises NoTarget if every choice would leave the other side without a majority."""
        leader = target.nodes[0]
        followers = [node for node in view.group_of(leader) if node != leader]
        rng.shuffle(followers)
        fit = [node for node in followers if self._leaves_majorities(view, {leader, node})]
        if not fit:
            raise NoTarget(f"no follower of {leader} leaves the other side most nodes, controllers and name servers")
        in_sync = view.in_sync or followers
        mate = min(fit, key=lambda node: (node in view.leading.values(), node not in in_sync))
        side = [node for node in view.nodes if node in (leader, mate)]
        return grudge.complete_grudge([side, [n for n in view.nodes if n not in side]])

    @staticmethod
    def _leaves_majorities(view: ClusterView, side: set[str]) -> bool:
        """True if the other side has most nodes, and most of each kind without data (of three or more)."""
        helpers = [kind for kind in view.kinds() if kind not in view.main.values()]
        everybody = [view.nodes, *(view.having(kind) for kind in helpers)]
        return all(2 * len(side.intersection(who)) < len(who) for who in everybody if len(who) > 2)


def _shuffled(nodes: Sequence[str], first: Sequence[str], rng: Random) -> list[str]:
    """All nodes in random order, those of `first` before the others."""
    front, back = list(first), [node for node in nodes if node not in first]
    rng.shuffle(front)
    rng.shuffle(back)
    return front + back
