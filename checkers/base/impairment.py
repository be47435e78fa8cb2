# SPDX-License-Identifier: Apache-2.0
"""The effect of active faults: which nodes hear one another, majorities, and times of certain force."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from results.fault_intervals import FaultInterval
from results.history import History
from results.op import INVOKE, SERVER_DIED
from results.strikes import CLIENTS, Effect, EffectKind

FOREVER: Final = 2**62
"""The end (ns) of an interval that does not end."""

ANY: Final = ""
"""In place of a kind of server: any kind (`FaultInterval.impairs`)."""


def majority_connected(
    nodes: Sequence[str], active: Iterable[FaultInterval], quorums: Mapping[str, Collection[str]] | None = None
) -> bool:
    """True if some nodes all hear one another while these faults are active, and have a majority of the servers up.

    `quorums`: kind of servers that needs a majority (controllers, brokers) -> its nodes; None: one kind, on every node.
    A server that is down is missing among its own kind only: a node without its broker still has its controller.

    A node that clients do not reach counts as all of them: it may lead, and nothing makes the others elect another one.
    """
    active = list(active)
    if any(CLIENTS in peers for interval in active for peers in interval.impairs.values()):
        return False
    _, deaf = _hearing(nodes, active)
    needed = [(len(at), frozenset(at) - _down(kind, active)) for kind, at in (quorums or {ANY: nodes}).items()]

    def found(group: frozenset[str]) -> bool:
        if any(len(up & group) * 2 <= size for size, up in needed):
            return False
        pair = next(((a, b) for a in group for b in deaf[a] & group), None)
        # Of two that do not hear each other one is removed. Few such groups keep a majority, so this ends soon.
        return pair is None or any(found(group - {node}) for node in pair)

    return found(frozenset().union(*(up for _, up in needed)))


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
    """True if both nodes are up and no fault keeps one from hearing the other."""
    down, deaf = _hearing([node, other], active)
    return not down & {node, other} and other not in deaf[node]


def is_away(node: str, kind: str, nodes: Sequence[str], active: Iterable[FaultInterval]) -> bool:
    """True if the faults keep a node's server of a kind from serving: it is down or halted, or the node does not hear a
    majority of the nodes (itself included).
    """
    active = list(active)
    halted = any(
        e.halted and e.node == node and (not e.servers or kind in e.servers) for one in active for e in one.effects
    )
    deaf = _hearing(nodes, active)[1].get(node, set())
    return halted or node in _down(kind, active) or len(deaf) * 2 >= len(nodes)


def certain_times(history: History, faults: Iterable[FaultInterval]) -> list[tuple[int, int, FaultInterval]]:
    """(from, to, fault): the time of its certain effect, from the end of its injection to the start of its heal."""
    done: dict[int, int] = {}
    healing: dict[int, int] = {}
    for op in history.nemesis:
        number = op.value.get("id") if isinstance(op.value, Mapping) else None
        if isinstance(number, int) and op.f == "inject" and op.type != INVOKE:
            done.setdefault(number, op.time)
        elif isinstance(number, int) and op.f == "heal":
            healing.setdefault(number, op.time)
    return [(done[i.id], healing.get(i.id, FOREVER), i) for i in faults if i.id in done and i.seen]


def ended_by_damage(
    history: History, faults: Sequence[FaultInterval], quorums: Mapping[str, Collection[str]] | None = None
) -> list[FaultInterval]:
    """The servers that ended by themselves after a fault had damaged their files, as further intervals: such a server
    is down until a later fault that stopped it starts it again. It serves nothing wrong, and owes no service.
    """
    found = []
    for op in history.nemesis:
        died = op.value if op.f == SERVER_DIED and isinstance(op.value, Mapping) else {}
        node, kind = str(died.get("node")), str(died.get("server"))
        if any(fault.start_ns <= op.time and _does(fault, "data-damaged", node, kind) for fault in faults):
            starts = (f.end_ns for f in faults if f.start_ns > op.time and _does(f, "down", node, kind))
            alone = {} if quorums else {node: [node]}
            end = min((at for at in starts if at is not None), default=None)
            effect = Effect("down", node, (kind,))
            found.append(FaultInterval(SERVER_DIED, 0, op.time, end, seen=True, impairs=alone, effects=[effect]))
    return found


def _does(fault: FaultInterval, what: EffectKind, node: str, kind: str) -> bool:
    return any(e.kind == what and e.node == node and (not e.servers or kind in e.servers) for e in fault.effects)


def _down(kind: str, active: Iterable[FaultInterval]) -> set[str]:
    """The nodes whose server of a kind is down."""
    found: set[str] = set()
    for interval in active:
        if kind == ANY or not interval.effects:  # a foreign history may only report which nodes are down
            found |= {node for node, peers in interval.impairs.items() if node in peers}
        else:
            found |= {e.node for e in interval.effects if e.kind == "down" and (not e.servers or kind in e.servers)}
    return found


def _hearing(nodes: Sequence[str], active: Iterable[FaultInterval]) -> tuple[set[str], dict[str, set[str]]]:
    """The nodes that are down, and node -> the nodes that it does not hear, or that do not hear it."""
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
