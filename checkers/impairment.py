"""When was a majority of the nodes up and connected? For the availability check, from the faults that were in force."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from results.bands import Band


def majority_connected(nodes: Sequence[str], active: Iterable[Band]) -> bool:
    """Whether more than half of the nodes are up and all hear one another while these faults are in force.

    The group is looked for greedily (the worst connected node leaves first): for more than a handful of nodes it
    may miss one, never invent one, so that an availability anomaly is never judged on a group that was not there.
    """
    down: set[str] = set()
    deaf: dict[str, set[str]] = {n: set() for n in nodes}
    for band in active:
        for node, peers in band.impairs.items():
            for peer in peers:
                if peer == node:
                    down.add(node)
                elif node in deaf and peer in deaf:
                    deaf[node].add(peer)
                    deaf[peer].add(node)
    group = [n for n in nodes if n not in down]
    while len(group) * 2 > len(nodes):
        missing = {n: len(deaf[n].intersection(group)) for n in group}
        worst = max(group, key=lambda n: missing[n])
        if missing[worst] == 0:
            return True
        group.remove(worst)
    return False
