# SPDX-License-Identifier: Apache-2.0
"""Process faults: kill, kill with a cold cache, stop. The three of RIP-59, with its names.

Each fault acts on the server processes that run on a node when it strikes: on all of them, or, if the target is a role,
on the server with this role. If no server runs there (an overlapping fault has killed it, or it died by itself), the
fault does nothing, and the evidence reports this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from harness.api import Evidence, Fault, Injection, NoTarget, Target, labelled
from harness.cluster_view import ClusterView
from harness.nemesis.targets import target_kinds
from infra.machines.api import InfraError, Lease, ProcessId
from infra.machines.primitives import page_cache, process
from infra.systems.api import Deployment, Server
from nemesis.patience import eventually
from results.strikes import Effect

STOPPED: Final = "T"
"""The state of a stopped process (proc(5))."""
GONE: Final = ("", "Z")
"""No such process; or dead, and only its exit code waits to be collected (proc(5))."""


class ProcessInjection(Injection):
    """An action on some servers of a node.

    kinds   of these servers. struck: the processes that were acted on, by kind; empty where there was nothing to do.
    others  whether the node has other servers, which holds data and is not among these: then the words name the kinds.
    """

    action: ClassVar[str]
    patience_s: float = 5.0
    """The time that the effect may take to show."""

    def __init__(self, node: str, kinds: Sequence[str], others: bool = False) -> None:
        self.node, self.kinds, self._others = node, kinds, others
        self.struck: dict[str, ProcessId] = {}

    @property
    def detail(self) -> Any:
        return dict.fromkeys(self.kinds, self.action)

    @property
    def effects(self) -> Sequence[Effect]:
        return [Effect("down", self.node, tuple(self.kinds))]

    def describe(self, labels: Mapping[str, str]) -> str:
        """The node; if its data server is not hit, followed by the kinds that are."""
        return labelled(self.node, labels) + (f" [{' '.join(self.kinds)}]" if self._others else "")

    def running(self, deployment: Deployment) -> Mapping[str, tuple[Server, ProcessId]]:
        """The running ones of its servers."""
        servers = {kind: deployment.server(self.node, kind) for kind in self.kinds}
        found = {kind: (server, server.process()) for kind, server in servers.items()}
        return {kind: (server, running) for kind, (server, running) in found.items() if running is not None}

    def missing(self, deployment: Deployment, states: Collection[str]) -> Mapping[str, ProcessId]:
        """The struck processes that do not reach one of these states in time."""
        node, left = deployment.node(self.node), dict(self.struck)

        def all_there() -> bool:
            for kind in list(left):
                if process.process_state(node, left[kind]) in states:
                    del left[kind]
            return not left

        eventually(all_there, self.patience_s)
        return left


class Kill(ProcessInjection):
    """SIGKILL; the servers are started again at the end."""

    action: ClassVar[str] = "SIGKILL, restart"
    return_s: float = 10.0
    """The time that a restarted server's process may take to appear. (A judge decides if it then *serves*.)"""

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        leases = Leases()
        for kind, (server, running) in self.running(deployment).items():
            self.struck[kind] = running
            leases.take(partial(self.end, server, running, ttl_s))
        return leases if leases else None

    def end(self, server: Server, running: ProcessId, ttl_s: float) -> Lease:
        """Ends the server's process; the node itself starts it again when the lease ends."""
        return process.kill_and_restart(server.node, running, server.start_command(), ttl_s)

    def seen(self, deployment: Deployment) -> Evidence:
        if not self.struck:
            return Evidence(False, "no server was running, so none was killed")
        left = self.missing(deployment, GONE)
        signal = self.action.partition(",")[0]
        found = (
            f"{named(kind, killed)} {f'outlived {signal}' if kind in left else 'is gone'}"
            for kind, killed in self.struck.items()
        )
        return Evidence(not left, "; ".join(found))

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if each server has another process than the killed one."""
        found: dict[str, ProcessId] = {}

        def returned() -> bool:
            for kind, before in self.struck.items():
                if kind not in found:
                    now = deployment.server(self.node, kind).process()
                    if now is not None and now != before:
                        found[kind] = now
            return len(found) == len(self.struck)

        back = eventually(returned, self.return_s)
        lines = (
            f"{named(kind, found[kind])} runs"
            if kind in found
            else f"no {kind} process {self.return_s:g} s after the restart; see its log"
            for kind in self.struck
        )
        return Evidence(back, "; ".join(lines))


class ColdKill(Kill):
    """SIGKILL, and the node's data leaves its file cache; the servers are started again at the end."""

    action: ClassVar[str] = "SIGKILL, file cache dropped, restart"
    left_bytes: int = 1 << 20
    """So many bytes may still be cached afterwards: data that other processes hold open cannot be dropped."""
    cached: int = 0
    """Bytes of the data that were cached before."""

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        lease = super().inject(deployment, ttl_s)
        if lease is None:
            return None
        try:
            node, dirs = deployment.node(self.node), self._dirs(deployment)
            self.cached = page_cache.cached_bytes(node, dirs)
            page_cache.drop_file_cache(node, dirs)
        except BaseException:
            lease.heal()
            raise
        return lease

    def seen(self, deployment: Deployment) -> Evidence:
        killed = super().seen(deployment)
        if not self.struck:
            return killed
        left = page_cache.cached_bytes(deployment.node(self.node), self._dirs(deployment))
        what = f"{killed.what}; {_mib(self.cached)} of its data were cached, now {_mib(left)}"
        return Evidence(killed.seen and left <= self.left_bytes, what)

    def _dirs(self, deployment: Deployment) -> list[str]:
        """The data of the killed servers: files that others on the node have mapped stay cached."""
        dirs = (place for kind in self.struck for place in deployment.server(self.node, kind).data_dirs)
        return list(dict.fromkeys(dirs))


class Stop(ProcessInjection):
    """SIGSTOP, and SIGCONT at the end."""

    action: ClassVar[str] = "SIGSTOP, SIGCONT"
    already = False
    """True if one of the servers was stopped before, by an overlapping strike."""

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        leases, node = Leases(), deployment.node(self.node)
        for kind, (_, running) in self.running(deployment).items():
            if process.process_state(node, running) == STOPPED:
                # Its first SIGCONT would end both strikes: the one that came first keeps it.
                self.already = True
                continue
            self.struck[kind] = running
            leases.take(partial(process.stop_process, node, running, ttl_s))
        return leases if leases else None

    def seen(self, deployment: Deployment) -> Evidence:
        if not self.struck:
            return Evidence(
                False, "was stopped already" if self.already else "no server was running, so none was stopped"
            )
        left = self.missing(deployment, (STOPPED,))
        found = (
            f"{named(kind, stopped)} is {'not ' if kind in left else ''}stopped"
            for kind, stopped in self.struck.items()
        )
        return Evidence(not left, "; ".join(found))

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if no process is stopped: it runs, or it is gone (an overlapping fault killed it)."""
        node = deployment.node(self.node)
        state: dict[str, str] = {}

        def all_run() -> bool:
            for kind, stopped in self.struck.items():
                if state.get(kind, STOPPED) == STOPPED:
                    state[kind] = process.process_state(node, stopped)
            return STOPPED not in state.values()

        well = eventually(all_run, self.patience_s)
        words = {STOPPED: "is still stopped", **dict.fromkeys(GONE, "was killed meanwhile")}
        found = (f"{named(kind, stopped)} {words.get(state[kind], 'goes on')}" for kind, stopped in self.struck.items())
        return Evidence(well, "; ".join(found))


class ProcessFault(Fault):
    """The base of all process faults: it chooses the servers to strike on each node."""

    injection: ClassVar[type[ProcessInjection]]
    """The injection of a fault without options; a fault with options overrides `place`."""

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        """Returns a place for each node: all of its servers, or just the one that has the role."""
        kinds = {node: target_kinds(view, node, target) for node in target.nodes}
        found = {node: self.place(node, hit, view.main.get(node) not in hit, rng) for node, hit in kinds.items() if hit}
        if not found:
            raise NoTarget(f"no server runs on {', '.join(target.nodes)}")
        return found

    def place(self, node: str, kinds: Sequence[str], others: bool, rng: Random) -> ProcessInjection:
        """Returns the action on one node; see `ProcessInjection`."""
        return self.injection(node, kinds, others)


class KillRandomProcesses(ProcessFault):
    """SIGKILL; the servers are started again at the end."""

    name = "kill-random-processes"
    summary = "kills servers of random nodes (SIGKILL) and starts them again"
    default_target: ClassVar[str] = "random"
    injection: ClassVar[type[ProcessInjection]] = Kill


class CrashRandomNodes(ProcessFault):
    """SIGKILL, and the node's data leaves its file cache; the server is started again at the end.

    All written data survives, synced or not: the kernel writes dirty pages back before it drops them.
    It is a restart with a cold cache, not a loss of power.
    """

    name = "crash-random-nodes"
    summary = "kills servers of random nodes, drops their file cache, and starts them again"
    default_target: ClassVar[str] = "random"
    injection: ClassVar[type[ProcessInjection]] = ColdKill


class HammerTime(ProcessFault):
    """SIGSTOP, and SIGCONT at the end: a long pause, as of a garbage collector or a frozen virtual machine."""

    name = "hammer-time"
    summary = "stops servers of random nodes (SIGSTOP) and continues them (SIGCONT)"
    injection: ClassVar[type[ProcessInjection]] = Stop


class Leases:
    """Several leases as one."""

    def __init__(self) -> None:
        self._held: list[Lease] = []

    def __bool__(self) -> bool:
        return bool(self._held)

    def take(self, inject: Callable[[], Lease | None]) -> None:
        """Takes one more, if `inject` returns one. If that fails, heals all held ones, and raises the same error."""
        try:
            lease = inject()
        except BaseException:
            self.heal()
            raise
        if lease is not None:
            self._held.append(lease)

    def heal(self, timeout_s: float = 30) -> None:
        """Heals all of them, in the order in which they were taken, even if one fails. Raises the first InfraError."""
        deadline = time.monotonic() + timeout_s
        problems: list[InfraError] = []
        for lease in self._held:
            try:
                lease.heal(max(1.0, deadline - time.monotonic()))
            except InfraError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]


def named(kind: str, found: ProcessId) -> str:
    """`broker process 184`; the only server of a node needs no kind."""
    return f"process {found.pid}" if kind == "server" else f"{kind} process {found.pid}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
