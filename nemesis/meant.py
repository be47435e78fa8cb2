# SPDX-License-Identifier: Apache-2.0
"""The servers that a fault with an option `kind` means, and the claims that keep two strikes off the same thing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from threading import Lock

from harness.api import NoTarget, Target
from harness.cluster_view import ClusterView
from harness.nemesis.targets import target_kinds
from infra.systems.api import REPLICATION, Deployment, Server


def kinds_meant(view: ClusterView, target: Target, kinds: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Node -> kinds of servers there: those of `kinds` or, without any, those that the target means.

    A kind that no server of the view has as its own is on every node: controllers may be inside name servers, and a
    plan is checked before there is a cluster. The injection determines the real servers (`servers_of`).
    """
    known = view.kinds()
    found = {
        node: [kind for kind in kinds if kind in view.servers.get(node, ()) or kind not in known]
        if kinds
        else target_kinds(view, node, target)
        for node in target.nodes
    }
    if not any(found.values()):
        raise NoTarget(f"no {' or '.join(kinds) or 'server'} runs on {', '.join(target.nodes)}")
    return {node: hit for node, hit in found.items() if hit}


def servers_of(deployment: Deployment, node: str, kinds: Sequence[str]) -> list[Server]:
    """A node's servers of these kinds, or with one inside, each of them once; a kind that is not there is left out."""
    return list(dict.fromkeys(server for kind in kinds for server in deployment.servers(node, kind)))


def missing_kind(deployment: Deployment, kinds: Sequence[str]) -> str | None:
    """The reason why a fault that needs these kinds has nothing to do, and the remedy; None: all of them exist."""
    ports = dict.fromkeys(kind for server in deployment.servers() for kind in (server.kind, *server.ports))
    there = [kind for kind in ports if kind != REPLICATION]
    absent = [kind for kind in kinds if kind not in there]
    if not absent:
        return None
    return f"the topology {deployment.topology.name} has no {absent[0]}; it has {', '.join(there)}"


class Claims:
    """Things that strikes change and restore: of two strikes at the same thing the first has it until its heal, the
    other leaves it alone. Otherwise the heal of one would undo the change of the other. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: set[object] = set()

    def take(self, things: Collection[object]) -> set[object]:
        """Takes those that are free, and returns them. Things are hashable."""
        with self._lock:
            free = set(things) - self._taken
            self._taken |= free
            return free

    def release(self, things: Collection[object]) -> None:
        """Releases things, also those that are free already."""
        with self._lock:
            self._taken -= set(things)
