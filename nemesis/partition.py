"""Partitions: nodes that do not hear one another. RIP-59's four, by its names.

A node drops what *comes in* from the peers it holds a grudge against, by a packet filter table of ours that holds
nothing else; both ends of a cut link do so. Dropping on the way out would give the sender an error that no broken
network produces. Connections stay open and hang, as with a pulled cable in the core of a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from harness.api import Evidence, Fault, NoTarget, Site, labelled
from harness.nemesis.view import CONTROLLER, NAME_SERVER, Scene
from infra.machines import primitives
from infra.machines.api import Lease
from nemesis import grudge
from nemesis.patience import eventually


class Partition(Fault):
    """What all partitions share; the detail of a node is the list of the peers it drops."""

    default_target: ClassVar[str] = "one"
    patience_s: ClassVar[float] = 5.0
    """How long a probe may take to be counted, or a table to disappear."""

    def inject(self, site: Site, detail: Any, ttl_s: float) -> Lease:
        before = set(primitives.own_tables(site.node))
        lease = primitives.drop_packets(site.node, [site.peer(name).address for name in detail], ttl_s)
        try:
            site.notes["tables"] = set(primitives.own_tables(site.node)) - before
        except BaseException:
            lease.heal()
            raise
        return lease

    def seen(self, site: Site, detail: Any) -> Evidence:
        """Every dropped peer sends a datagram, and the node's drop counter for that peer has gone up after it."""
        peers = {name: site.peer(name) for name in detail}
        before = primitives.dropped(site.node)
        grown: dict[str, int] = {}

        def all_counted() -> bool:
            for name, peer in peers.items():
                if name not in grown:
                    primitives.send_probe(peer, site.node.address)
            now = primitives.dropped(site.node)
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

    def healed(self, site: Site, detail: Any) -> Evidence:
        """The tables that this strike made are gone; those of an overlapping one are its own affair."""
        made: set[str] = site.notes.get("tables", set())
        gone = eventually(lambda: not made.intersection(primitives.own_tables(site.node)), self.patience_s)
        return Evidence(gone, "the packet filter table is gone" if gone else f"still there: {', '.join(sorted(made))}")

    def impairs(self, nodes: Sequence[str], details: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
        return {node: list(dropped) for node, dropped in details.items()}

    def told(self, details: Mapping[str, Any], labels: Mapping[str, str]) -> str:
        """The sides of the cut: `n1 n4 | n2 n3 (leader) n5`; nodes with one grudge stand on one side."""
        sides: dict[tuple[str, ...], list[str]] = {}
        for node, dropped in details.items():
            sides.setdefault(tuple(dropped), []).append(labelled(node, labels))
        between = " | " if len(sides) == 2 else " "
        return between.join(" ".join(side) for side in sides.values())


class PartitionRandomNode(Partition):
    """The nodes hit (by default: a single one) against the rest."""

    name = "partition-random-node"
    summary = "one random node hears nobody, and nobody hears it"

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        return grudge.complete_grudge([hit, [node for node in nodes if node not in hit]])


class PartitionHalves(Partition):
    """Two random halves that do not hear each other; the nodes hit are in the smaller one, as far as it holds them."""

    name = "partition-halves"
    summary = "two random halves that do not hear each other"

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        return _in_order(grudge.complete_grudge(grudge.bisect(_shuffled(nodes, hit, rng))), nodes)


class PartitionMajoritiesRing(Partition):
    """Every node hears a majority, and no two the same one; the ring's order is random (the target has no say)."""

    name = "partition-majorities-ring"
    summary = "every node hears a majority, and no two nodes the same one"

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        return _in_order(grudge.majorities_ring(_shuffled(nodes, (), rng)), nodes)


class Bridge(Partition):
    """Two halves that do not hear each other, and a node (the one hit) that hears both."""

    name = "bridge"
    summary = "two halves that do not hear each other, and one node that hears both"

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        middle, *others = _shuffled(nodes, hit, rng)
        # The bridge is the first node of the larger half: see `grudge.bridge`.
        place = len(nodes) // 2
        return _in_order(grudge.bridge([*others[:place], middle, *others[place:]]), nodes)


class PartitionLeader(PartitionRandomNode):
    """Who leads (a master, or a Raft group's leader) against the rest."""

    name = "partition-leader"
    summary = "the master (or the leader) hears nobody, and nobody hears it"
    default_target: ClassVar[str] = "leader"


class PartitionLeaderMinority(Partition):
    """Who leads and one of its followers against the rest.

    The follower is chosen so that most controllers and most name servers are on the other side, if possible the leader
    of the controllers too, so that they can elect another master; a follower that is in sync comes first, so that the
    cut-off side believes longest that it is well.
    """

    name = "partition-leader-minority"
    summary = "the master and one slave against the rest, which has most controllers and name servers"
    default_target: ClassVar[str] = "leader"

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        return self.aim_at(Scene(nodes, groups={"": nodes}, leaders={"": hit[0]}), hit, None, rng)

    def aim_at(self, scene: Scene, hit: Sequence[str], role: str | None, rng: Random) -> Mapping[str, Any]:
        """Raises NoTarget where every choice would leave the other side without a majority."""
        leader = hit[0]
        followers = [node for node in scene.group_of(leader) if node != leader]
        rng.shuffle(followers)
        fit = [node for node in followers if self._leaves_majorities(scene, {leader, node})]
        if not fit:
            raise NoTarget(f"no follower of {leader} leaves the other side most nodes, controllers and name servers")
        in_sync = scene.in_sync or followers
        mate = min(fit, key=lambda node: (node == scene.controller_leader, node not in in_sync))
        side = [node for node in scene.nodes if node in (leader, mate)]
        return _in_order(grudge.complete_grudge([side, [n for n in scene.nodes if n not in side]]), scene.nodes)

    @staticmethod
    def _leaves_majorities(scene: Scene, side: set[str]) -> bool:
        everybody = [scene.nodes, scene.having(CONTROLLER), scene.having(NAME_SERVER)]
        return all(2 * len(side.intersection(who)) < len(who) for who in everybody if who)


def _shuffled(nodes: Sequence[str], first: Sequence[str], rng: Random) -> list[str]:
    """All nodes in random order, those of `first` before the others."""
    front, back = list(first), [node for node in nodes if node not in first]
    rng.shuffle(front)
    rng.shuffle(back)
    return front + back


def _in_order(held: Mapping[str, Sequence[str]], nodes: Sequence[str]) -> dict[str, list[str]]:
    """The same grudge written in the order of the nodes, for those who read it."""
    return {node: [peer for peer in nodes if peer in held[node]] for node in nodes if node in held}
