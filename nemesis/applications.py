# SPDX-License-Identifier: Apache-2.0
"""Faults of applications: their processes stand still, or their nodes are cut off from all servers.

Programs of applications (`--workload consume`) run on nodes of their own. These faults choose among them, so `target`
has no meaning for them. A member that is killed, or leaves, is an op of the workload (`--member-goes-every`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from harness.api import Evidence, Fault, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease, Node, ProcessId
from infra.machines.primitives import process
from infra.options import option
from infra.systems.api import APPLICATION_PIDS, Deployment
from nemesis.partition import Cut
from nemesis.patience import eventually
from nemesis.process import GONE, STOPPED, Leases
from results.strikes import Effect

APPLICATION: Final = "application"
"""In place of the kind of a server, in effects."""

_LIST: Final = '[ -d "$1" ] || exit 0; cd -- "$1" && ls'


@dataclass(frozen=True)
class ApplicationOptions:
    """The options of these faults."""

    count: int = option(1, "So many nodes of applications, chosen at random; at most all of them.", low=1, high=64)


class ApplicationFault(Fault):
    """The base of these faults: it chooses the nodes."""

    Options: ClassVar[type] = ApplicationOptions
    default_target: ClassVar[str] = "all"
    at_applications: ClassVar[bool] = True

    def chosen(self, view: ClusterView, rng: Random) -> Sequence[str]:
        """The nodes of a strike, in order. Raises NoTarget."""
        if not view.clients:
            raise NoTarget("no node has programs of applications")
        drawn = rng.sample(list(view.clients), min(self.options.count, len(view.clients)))
        return [node for node in view.clients if node in drawn]


@dataclass
class Pause(Injection):
    """SIGSTOP for the programs of a node, and SIGCONT at the end. patience_s: the time that an effect may take."""

    node: str
    patience_s: float = 5.0
    struck: list[ProcessId] = field(default_factory=list)

    @property
    def detail(self) -> Any:
        return {APPLICATION: "SIGSTOP, SIGCONT"}

    @property
    def effects(self) -> Sequence[Effect]:
        return [Effect("down", self.node, (APPLICATION,))]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        leases, node = Leases(), deployment.node(self.node)
        for running in programs(node):
            if process.process_state(node, running) == STOPPED:
                continue  # by an overlapping strike, which ends it
            leases.take(partial(self._stop, node, running, ttl_s))
        return leases if leases else None

    def _stop(self, node: Node, running: ProcessId, ttl_s: float) -> Lease | None:
        try:
            lease = process.stop_process(node, running, ttl_s)
        except InfraError:
            if process.process_state(node, running) in GONE:
                return None  # its member has just crashed or left
            raise
        self.struck.append(running)
        return lease

    def seen(self, deployment: Deployment) -> Evidence:
        if not self.struck:
            return Evidence(False, "no program was running, so none was stopped")
        states = self._states(deployment, lambda state: state == STOPPED or state in GONE)
        found = [f"process {p.pid} is {_word(state)}" for p, state in states]
        return Evidence(any(state == STOPPED for _, state in states), "; ".join(found))

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if no process is stopped: it runs, or it is gone (its member crashed or left)."""
        states = self._states(deployment, lambda state: state != STOPPED)
        found = [f"process {p.pid} {'goes on' if state not in (STOPPED, *GONE) else f'is {_word(state)}'}"
                 for p, state in states]  # fmt: skip
        return Evidence(all(state != STOPPED for _, state in states), "; ".join(found))

    def _states(self, deployment: Deployment, fine: Callable[[str], bool]) -> list[tuple[ProcessId, str]]:
        """Each struck process with its state, once all of them are `fine`, or after the patience."""
        node = deployment.node(self.node)
        states: list[tuple[ProcessId, str]] = []

        def all_fine() -> bool:
            states[:] = [(running, process.process_state(node, running)) for running in self.struck]
            return all(fine(state) for _, state in states)

        eventually(all_fine, self.patience_s)
        return states


class PauseApplications(ApplicationFault):
    """Programs of applications stand still: a long pause of a garbage collector, or a frozen machine."""

    name = "pause-applications"
    summary = "stops programs of applications (SIGSTOP) and continues them (SIGCONT)"

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        return {node: Pause(node) for node in self.chosen(view, rng)}


class CutOff(Injection):
    """A node of applications that hears no server, and is heard by none. servers: the names of their nodes."""

    def __init__(self, node: str, servers: Sequence[str]) -> None:
        self.node, self.servers = node, servers
        self._parts = [Cut(node, servers), *(Cut(server, [node]) for server in servers)]

    @property
    def detail(self) -> Any:
        return list(self.servers)

    @property
    def effects(self) -> Sequence[Effect]:
        """That of the application alone: all servers hear each other."""
        return [Effect("cut-off", self.node, peers=tuple(self.servers))]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        leases = Leases()
        for part in self._parts:
            leases.take(partial(part.inject, deployment, ttl_s))
        return leases

    def seen(self, deployment: Deployment) -> Evidence:
        return _all_of(self._parts, [part.seen(deployment) for part in self._parts])

    def healed(self, deployment: Deployment) -> Evidence:
        return _all_of(self._parts, [part.healed(deployment) for part in self._parts])


class CutApplications(ApplicationFault):
    """Nodes of applications are cut off from all servers, in both directions. The control program reaches them."""

    name = "cut-applications"
    summary = "cuts nodes of applications off from all servers"

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        return {node: CutOff(node, list(view.nodes)) for node in self.chosen(view, rng)}


def _all_of(parts: Sequence[Cut], found: Sequence[Evidence]) -> Evidence:
    """The evidence of all parts as one."""
    text = "; ".join(f"{part.node}: {each.what}" for part, each in zip(parts, found, strict=True))
    return Evidence(all(each.seen for each in found), text)


def programs(node: Node) -> list[ProcessId]:
    """The running programs of applications on a node. Raises InfraError."""
    names = node.run(["sh", "-c", _LIST, "list", APPLICATION_PIDS]).text.split()
    found = (node.process(f"{APPLICATION_PIDS}/{name}") for name in names)
    return [running for running in found if running is not None]


def _word(state: str) -> str:
    return "stopped" if state == STOPPED else "gone" if state in GONE else "running"
