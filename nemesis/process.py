"""Faults of processes: killed, killed with a cold cache, stopped. RIP-59's three, by its names.

Each acts on the server processes that run on a node when the fault strikes: on all of them, or, where the target is a
role, on the server that has it. Where none runs (an overlapping fault has killed it already, or it died by itself)
nothing is done, and the evidence says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from harness.api import Evidence, Fault, NoTarget, Nothing, Site, labelled
from harness.nemesis.view import Scene
from infra.machines import primitives
from infra.machines.api import InfraError, Lease, ProcessId
from nemesis.patience import eventually

STOPPED: Final = "T"
"""The state of a stopped process (proc(5))."""
_GONE = ("", "Z")
"""No such process; or dead, and only its exit code waits to be collected (proc(5))."""


MAIN_SERVERS: Final = ("broker", "server")
"""Without them a node serves nobody: it is down. Without one of its other servers it is not."""


class ProcessFault(Fault):
    """What all process faults share; the detail of a node says what is done to which of its servers."""

    action: ClassVar[str]
    patience_s: ClassVar[float] = 5.0
    """How long the effect may take to show."""
    return_s: ClassVar[float] = 10.0
    """How long a restarted server's process may take to appear. (Whether it then *serves* is judged, not awaited.)"""

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        return self.aim_at(Scene(nodes, servers=dict.fromkeys(nodes, ("server",))), hit, None, rng)

    def aim_at(self, scene: Scene, hit: Sequence[str], role: str | None, rng: Random) -> Mapping[str, Any]:
        """A node's servers, all of them, or just the one that has the role."""
        aimed = {node: dict.fromkeys(scene.kinds(node, role), self.action) for node in hit}
        if not any(aimed.values()):
            raise NoTarget(f"no server runs on {', '.join(hit)}")
        return {node: servers for node, servers in aimed.items() if servers}

    def impairs(self, nodes: Sequence[str], details: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
        return {node: [node] for node, servers in details.items() if any(kind in servers for kind in MAIN_SERVERS)}

    def downs(self, nodes: Sequence[str], details: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        return {node: tuple(servers) for node, servers in details.items()}

    def told(self, details: Mapping[str, Any], labels: Mapping[str, str]) -> str:
        """The nodes, and behind those that have other servers as well which of them are hit."""
        return " ".join(
            labelled(node, labels) + (f" [{' '.join(servers)}]" if not set(servers) & set(MAIN_SERVERS) else "")
            for node, servers in details.items()
        )

    def missing(self, site: Site, states: Collection[str]) -> Mapping[str, ProcessId]:
        """Of the processes acted on, those that come into none of these states in time."""
        left = dict(self.struck(site))

        def all_there() -> bool:
            for kind in list(left):
                if primitives.process_state(site.node, left[kind]) in states:
                    del left[kind]
            return not left

        eventually(all_there, self.patience_s)
        return left

    @staticmethod
    def struck(site: Site) -> dict[str, ProcessId]:
        """The processes this strike acted on at this node, by kind of server; empty where there was nothing to do."""
        found: dict[str, ProcessId] = site.notes.setdefault("struck", {})
        return found


class KillRandomProcesses(ProcessFault):
    """SIGKILL; the servers are started again at the end."""

    name = "kill-random-processes"
    summary = "servers of random nodes are killed (SIGKILL) and started again"
    default_target: ClassVar[str] = "random"
    action: ClassVar[str] = "SIGKILL, restart"

    def inject(self, site: Site, detail: Any, ttl_s: float) -> Lease:
        leases = Leases()
        for kind in detail:
            process = site.topology.process(site.node, kind)
            if process is None:
                continue
            self.struck(site)[kind] = process
            start = site.topology.start_command(site.node, kind)
            leases.take(partial(primitives.kill_and_restart, site.node, process, start, ttl_s))
        return leases if leases else Nothing()

    def seen(self, site: Site, detail: Any) -> Evidence:
        if not self.struck(site):
            return Evidence(False, "no server was running, so none was killed")
        left = self.missing(site, _GONE)
        said = (
            f"{named(kind, process)} {'outlived SIGKILL' if kind in left else 'is gone'}"
            for kind, process in self.struck(site).items()
        )
        return Evidence(not left, "; ".join(said))

    def healed(self, site: Site, detail: Any) -> Evidence:
        """For each server another process than the one that was killed runs."""
        found: dict[str, ProcessId] = {}

        def returned() -> bool:
            for kind, before in self.struck(site).items():
                if kind not in found:
                    now = site.topology.process(site.node, kind)
                    if now is not None and now != before:
                        found[kind] = now
            return len(found) == len(self.struck(site))

        back = eventually(returned, self.return_s)
        said = (
            f"{named(kind, found[kind])} runs"
            if kind in found
            else f"no {kind} process {self.return_s:g} s after the restart; its log tells why"
            for kind in self.struck(site)
        )
        return Evidence(back, "; ".join(said))


class CrashRandomNodes(KillRandomProcesses):
    """SIGKILL, and the node's data leaves its file cache; the server is started again at the end.

    What was written survives all the same, synced or not: the kernel writes dirty pages back before it drops them.
    It is a restart with a cold cache, not a loss of power.
    """

    name = "crash-random-nodes"
    summary = "servers of random nodes are killed, their file cache is dropped, and they are started again"
    action: ClassVar[str] = "SIGKILL, file cache dropped, restart"

    left_bytes: ClassVar[int] = 1 << 20
    """As much of the data may still be cached afterwards: what other processes hold open cannot be dropped."""

    def inject(self, site: Site, detail: Any, ttl_s: float) -> Lease:
        lease = super().inject(site, detail, ttl_s)
        if not self.struck(site):
            return lease
        try:
            dirs = self._dirs(site)
            site.notes["cached"] = primitives.cached_bytes(site.node, dirs)
            primitives.drop_file_cache(site.node, dirs)
        except BaseException:
            lease.heal()
            raise
        return lease

    def seen(self, site: Site, detail: Any) -> Evidence:
        killed = super().seen(site, detail)
        if not self.struck(site):
            return killed
        left = primitives.cached_bytes(site.node, self._dirs(site))
        told = f"{killed.what}; {_mib(site.notes['cached'])} of its data were cached, now {_mib(left)}"
        return Evidence(killed.seen and left <= self.left_bytes, told)

    def _dirs(self, site: Site) -> list[str]:
        """The data of the servers that were killed: what others on the node have mapped stays cached."""
        dirs = (place for kind in self.struck(site) for place in site.topology.data_dirs(site.node, kind))
        return list(dict.fromkeys(dirs))


class HammerTime(ProcessFault):
    """SIGSTOP, and SIGCONT at the end: a long pause, as of a garbage collector or a frozen virtual machine."""

    name = "hammer-time"
    summary = "servers of random nodes are stopped (SIGSTOP) and go on later (SIGCONT)"
    action: ClassVar[str] = "SIGSTOP, SIGCONT"

    def inject(self, site: Site, detail: Any, ttl_s: float) -> Lease:
        leases = Leases()
        for kind in detail:
            process = site.topology.process(site.node, kind)
            if process is None:
                continue
            if primitives.process_state(site.node, process) == STOPPED:
                # Its first SIGCONT would end both strikes: the one that came first keeps it.
                site.notes["already"] = process
                continue
            self.struck(site)[kind] = process
            leases.take(partial(primitives.stop_process, site.node, process, ttl_s))
        return leases if leases else Nothing()

    def seen(self, site: Site, detail: Any) -> Evidence:
        if not self.struck(site):
            already = "already" in site.notes
            return Evidence(False, "was stopped already" if already else "no server was running, so none was stopped")
        left = self.missing(site, (STOPPED,))
        said = (
            f"{named(kind, process)} is {'not ' if kind in left else ''}stopped"
            for kind, process in self.struck(site).items()
        )
        return Evidence(not left, "; ".join(said))

    def healed(self, site: Site, detail: Any) -> Evidence:
        """No process is stopped: it runs, or it is gone (an overlapping fault killed it)."""
        state: dict[str, str] = {}

        def all_run() -> bool:
            for kind, process in self.struck(site).items():
                if state.get(kind, STOPPED) == STOPPED:
                    state[kind] = primitives.process_state(site.node, process)
            return STOPPED not in state.values()

        well = eventually(all_run, self.patience_s)
        words = {STOPPED: "is still stopped", **dict.fromkeys(_GONE, "was killed meanwhile")}
        said = (
            f"{named(kind, process)} {words.get(state[kind], 'goes on')}" for kind, process in self.struck(site).items()
        )
        return Evidence(well, "; ".join(said))


class Leases:
    """Several leases of one node as one: its servers, each held on its own."""

    def __init__(self) -> None:
        self._held: list[Lease] = []

    def __bool__(self) -> bool:
        return bool(self._held)

    def take(self, inject: Callable[[], Lease]) -> None:
        """One more. Where it fails, those that are held are healed, and what it raised is raised."""
        try:
            self._held.append(inject())
        except BaseException:
            self.heal()
            raise

    def heal(self, timeout_s: float = 30) -> None:
        """All of them, in the order in which they were taken, even if one fails. Raises InfraError for the first."""
        deadline = time.monotonic() + timeout_s
        problems: list[InfraError] = []
        for lease in self._held:
            try:
                lease.heal(max(1.0, deadline - time.monotonic()))
            except InfraError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]


def named(kind: str, process: ProcessId) -> str:
    """`broker process 184`; the only server of a node needs no kind."""
    return f"process {process.pid}" if kind == "server" else f"{kind} process {process.pid}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
