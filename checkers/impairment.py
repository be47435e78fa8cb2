"""What nodes hear while faults are active: whether a majority was connected; when a fault was certainly in force."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from results.fault_intervals import FaultInterval
from results.history import History
from results.op import INVOKE
from results.strikes import CLIENTS

FOREVER: Final = 2**62
"""The end (ns) of what does not end."""


def majority_connected(
    nodes: Sequence[str], active: Iterable[FaultInterval], quorums: Sequence[Collection[str]] | None = None
) -> bool:
    """Whether some nodes are up and all hear one another while these faults are active, more than half of all.

    `quorums`: kinds of servers that need a majority each (controllers, brokers), as sets of nodes; None: one kind, on
    every node.

    A node that clients do not reach counts as all of them: it may lead, and nothing makes the others elect another one.
    """
    active = list(active)
    if any(CLIENTS in peers for interval in active for peers in interval.impairs.values()):
        return False
    down, deaf = _hearing(nodes, active)
    needed = [frozenset(quorum) for quorum in quorums or (nodes,)]

    def found(group: frozenset[str]) -> bool:
        if any(len(quorum & group) * 2 <= len(quorum) for quorum in needed):
            return False
        pair = next(((a, b) for a in group for b in deaf[a] & group), None)
        # Of two that do not hear each other one must go. A majority is left only a few times, so this ends soon.
        return pair is None or any(found(group - {node}) for node in pair)

    return found(frozenset(nodes) - down)


def sides(nodes: Sequence[str], interval: FaultInterval) -> list[tuple[str, ...]]:
    """The parts into which a fault cuts the nodes, largest first: those of one part hear one another, if only through
    others of it. Nodes that are down belong to none.
    """
    down, deaf = _hearing(nodes, [interval])
    left = [n for n in nodes if n not in down]
    found: list[tuple[str, ...]] = []
    while left:
        part, todo = set(), [left[0]]
        while todo:
            node = todo.pop()
            part.add(node)
            todo += [n for n in left if n not in part and n not in deaf[node]]
        found.append(tuple(n for n in nodes if n in part))
        left = [n for n in left if n not in part]
    return sorted(found, key=lambda part: -len(part))


def hears(node: str, other: str, active: Iterable[FaultInterval]) -> bool:
    """Whether both nodes are up and nothing keeps one from hearing the other."""
    down, deaf = _hearing([node, other], active)
    return not down & {node, other} and other not in deaf[node]


def certain_times(history: History, faults: Iterable[FaultInterval]) -> list[tuple[int, int, FaultInterval]]:
    """(from, to, fault): when its effect was certainly there: from the end of its injection to the heal's start."""
    done: dict[int, int] = {}
    healing: dict[int, int] = {}
    for op in history.nemesis:
        number = op.value.get("id") if isinstance(op.value, Mapping) else None
        if isinstance(number, int) and op.f == "inject" and op.type != INVOKE:
            done.setdefault(number, op.time)
        elif isinstance(number, int) and op.f == "heal":
            healing.setdefault(number, op.time)
    return [(done[i.id], healing.get(i.id, FOREVER), i) for i in faults if i.id in done and i.seen]


def _hearing(nodes: Sequence[str], active: Iterable[FaultInterval]) -> tuple[set[str], dict[str, set[str]]]:
    """The nodes that are down, and node -> whom it does not hear, or is not heard by."""
    down: set[str] = set()
    deaf: dict[str, set[str]] = {n: set() for n in nodes}
    for interval in active:
        for node, peers in interval.impairs.items():
            for peer in peers:
                if peer == node:
                    down.add(node)
                elif node in deaf and peer in deaf:
                    deaf[node].add(peer)
                    deaf[peer].add(node)
    return down, deaf
