# SPDX-License-Identifier: Apache-2.0
"""Grudges: the packets that each node drops. Pure functions on node names, after Jepsen's `nemesis.clj`.

A grudge maps a node to the nodes whose packets it drops. A node that drops nothing is not in the map. All grudges made
here are symmetric: if a drops b, then b drops a. (A one-way cut is a different fault.)

>>> complete_grudge(bisect(["n1", "n2", "n3"]))
{'n1': ['n2', 'n3'], 'n2': ['n1'], 'n3': ['n1']}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Grudge = dict[str, list[str]]


def bisect(nodes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Cuts a list in two halves, the smaller one first.

    >>> bisect(["a", "b", "c", "d", "e"])
    (['a', 'b'], ['c', 'd', 'e'])
    """
    middle = len(nodes) // 2
    return list(nodes[:middle]), list(nodes[middle:])


def split_one(nodes: Sequence[str], loner: str) -> tuple[list[str], list[str]]:
    """One node against the rest.

    >>> split_one(["a", "b", "c"], "b")
    (['b'], ['a', 'c'])
    """
    if loner not in nodes:
        raise ValueError(f"{loner} is not one of {', '.join(nodes)}")
    return [loner], [node for node in nodes if node != loner]


def complete_grudge(components: Sequence[Sequence[str]]) -> Grudge:
    """No traffic between any two components, all traffic inside each. Components must not share a node."""
    everyone = [node for component in components for node in component]
    if len(set(everyone)) != len(everyone):
        raise ValueError(f"a node is in two components: {components}")
    return invert({node: component for component in components for node in component}, everyone)


def bridge(nodes: Sequence[str]) -> Grudge:
    """Two halves that do not hear each other, and one node that hears both: the first of the larger half.

    With an odd number of nodes both sides are a majority together with the bridge.

    >>> bridge(["a", "b", "c", "d", "e"])
    {'a': ['d', 'e'], 'b': ['d', 'e'], 'd': ['a', 'b'], 'e': ['a', 'b']}
    """
    left, right = bisect(nodes)
    return complete_grudge([left, right[1:]])


def majorities_ring(nodes: Sequence[str]) -> Grudge:
    """Every node hears a majority, and no two nodes the same one. The order of `nodes` is the order of the ring.

    Each node hears a window of the ring with itself in the centre. The window is the smallest odd number that is a
    majority: for four and five nodes that is Jepsen's exact ring (oneself and two neighbours). For more nodes Jepsen
    builds such a graph by chance (`majorities-ring-stochastic`); a ring of wider windows does it exactly: the window
    is shorter than the ring, so that windows with different centres differ.

    With three nodes and two heard by each, the links of a ring would work one way only. So three nodes get a line,
    whose middle hears both ends. For one or two nodes no such graph exists: the grudge is empty.
    """
    count = len(nodes)
    if count < 3:
        return {}
    if count == 3:
        return complete_grudge([nodes[:1], nodes[2:]])
    majority = count // 2 + 1
    reach = majority // 2
    hears = {
        node: [nodes[(centre + step) % count] for step in range(-reach, reach + 1)] for centre, node in enumerate(nodes)
    }
    return invert(hears, nodes)


def invert(hears: Mapping[str, Sequence[str]], nodes: Sequence[str]) -> Grudge:
    """Converts the nodes that each node hears to those that it drops; `nodes`: all nodes. Omits nodes that hear all."""
    grudge = {node: [peer for peer in nodes if peer not in set(heard)] for node, heard in hears.items()}
    return {node: dropped for node, dropped in grudge.items() if dropped}


def symmetric(grudge: Mapping[str, Sequence[str]]) -> bool:
    """True if every link is cut in both directions or in none."""
    return all(node in grudge.get(peer, ()) for node, dropped in grudge.items() for peer in dropped)


def view(grudge: Mapping[str, Sequence[str]], node: str, nodes: Sequence[str]) -> set[str]:
    """The nodes that `node` hears, itself included."""
    return set(nodes) - set(grudge.get(node, ()))
