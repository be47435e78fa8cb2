"""Faults of processes: killed, killed with a cold cache, stopped. RIP-59's three, by its names.

Each acts on the server process that runs on a node when the fault strikes. Where none runs (an overlapping fault has
killed it already, or it died by itself) nothing is done, and the evidence says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from harness.api import Evidence, Fault, Nothing, Site
from infra import faults as primitives
from infra.api import Lease, ProcessId
from nemesis.patience import eventually

_STOPPED = "T"
_GONE = ("", "Z")
"""No such process; or dead, and only its exit code waits to be collected (proc(5))."""


class ProcessFault(Fault):
    """What all process faults share; the detail of a node says what is done to its server."""

    action: ClassVar[str]
    patience_s: ClassVar[float] = 5.0
    """How long the effect may take to show."""
    return_s: ClassVar[float] = 10.0
    """How long a restarted server's process may take to appear. (Whether it then *serves* is judged, not awaited.)"""

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        return dict.fromkeys(hit, self.action)

    @staticmethod
    def struck(site: Site) -> ProcessId | None:
        """The process this strike acted on at this node, or None when there was nothing to do."""
        return site.notes.get("struck")


class KillRandomProcesses(ProcessFault):
    """SIGKILL; the server is started again at the end."""

    name = "kill-random-processes"
    summary = "servers of random nodes are killed (SIGKILL) and started again"
    default_target: ClassVar[str] = "random"
    action: ClassVar[str] = "SIGKILL, restart"

    def inject(self, site: Site, detail: Any, ttl_s: float) -> Lease:
        process = site.topology.process(site.node)
        if process is None:
            return Nothing()
        site.notes["struck"] = process
        return primitives.kill_and_restart(site.node, process, site.topology.start_command(site.node), ttl_s)

    def seen(self, site: Site, detail: Any) -> Evidence:
        process = self.struck(site)
        if process is None:
            return Evidence(False, "no server was running, so none was killed")
        gone = eventually(lambda: primitives.process_state(site.node, process) in _GONE, self.patience_s)
        return Evidence(gone, f"process {process.pid} {'is gone' if gone else 'outlived SIGKILL'}")

    def healed(self, site: Site, detail: Any) -> Evidence:
        """Another process than the one that was killed runs."""
        process = site.notes["struck"]
        found: list[ProcessId] = []

        def returned() -> bool:
            now = site.topology.process(site.node)
            if now is not None and now != process:
                found.append(now)
            return bool(found)

        if eventually(returned, self.return_s):
            return Evidence(True, f"process {found[0].pid} runs")
        return Evidence(False, f"no server process {self.return_s:g} s after the restart; its log tells why")


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
        if self.struck(site) is None:
            return lease
        try:
            dirs = site.topology.data_dirs(site.node)
            site.notes["cached"] = primitives.cached_bytes(site.node, dirs)
            primitives.drop_file_cache(site.node, dirs)
        except BaseException:
            lease.heal()
            raise
        return lease

    def seen(self, site: Site, detail: Any) -> Evidence:
        killed = super().seen(site, detail)
        if self.struck(site) is None:
            return killed
        left = primitives.cached_bytes(site.node, site.topology.data_dirs(site.node))
        told = f"{killed.what}; {_mib(site.notes['cached'])} of its data were cached, now {_mib(left)}"
        return Evidence(killed.seen and left <= self.left_bytes, told)


class HammerTime(ProcessFault):
    """SIGSTOP, and SIGCONT at the end: a long pause, as of a garbage collector or a frozen virtual machine."""

    name = "hammer-time"
    summary = "servers of random nodes are stopped (SIGSTOP) and go on later (SIGCONT)"
    action: ClassVar[str] = "SIGSTOP, SIGCONT"

    def inject(self, site: Site, detail: Any, ttl_s: float) -> Lease:
        process = site.topology.process(site.node)
        if process is None:
            return Nothing()
        if primitives.process_state(site.node, process) == _STOPPED:
            # Its first SIGCONT would end both strikes: the one that came first keeps it.
            site.notes["already"] = process
            return Nothing()
        site.notes["struck"] = process
        return primitives.stop_process(site.node, process, ttl_s)

    def seen(self, site: Site, detail: Any) -> Evidence:
        process = self.struck(site)
        if process is None:
            already = "already" in site.notes
            return Evidence(False, "was stopped already" if already else "no server was running, so none was stopped")
        stopped = eventually(lambda: primitives.process_state(site.node, process) == _STOPPED, self.patience_s)
        return Evidence(stopped, f"process {process.pid} is {'' if stopped else 'not '}stopped")

    def healed(self, site: Site, detail: Any) -> Evidence:
        """The process is not stopped: it runs, or it is gone (an overlapping fault killed it)."""
        process = site.notes["struck"]
        state = [""]

        def runs() -> bool:
            state[0] = primitives.process_state(site.node, process)
            return state[0] != _STOPPED

        if not eventually(runs, self.patience_s):
            return Evidence(False, f"process {process.pid} is still stopped")
        return Evidence(True, f"process {process.pid} {'was killed meanwhile' if state[0] in _GONE else 'goes on'}")


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
