"""Faults of more than one step, in an order that matters."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, ClassVar, Final

from harness.api import Evidence, NoTarget, Nothing, Site
from harness.nemesis.view import Scene
from infra.machines import primitives
from infra.machines.api import Lease, Node
from nemesis.process import STOPPED, KillRandomProcesses, Leases

PAUSE_S: Final = 1.0
"""How long the slaves stand still before their master is killed: some hundred acknowledgements' worth of load."""


class PauseSlavesKillMaster(KillRandomProcesses):
    """All slaves stop (SIGSTOP); a second later their master is killed; then the slaves go on. The master is started
    again at the heal.

    What the master acknowledged in that second stands on no slave. A master that waits for its slaves acknowledged
    nothing, so nothing may be lost; one that does not loses it.
    """

    name = "pause-slaves-kill-master"
    summary = "all slaves stop; a second later their master is killed, and the slaves go on"
    default_target: ClassVar[str] = "leader"
    action: ClassVar[str] = "SIGKILL, restart"

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        main = dict.fromkeys(nodes, "server")
        return self.aim_at(Scene(nodes, main=main, groups={"": nodes}, leaders={"": hit[0]}), hit, "leader", rng)

    def aim_at(self, scene: Scene, hit: Sequence[str], role: str | None, rng: Random) -> Mapping[str, Any]:
        """The master's node alone is struck; its detail names those who are stopped for it: `{"pause": {"n2": ..}}`."""
        master = hit[0]
        slaves = [node for node in scene.group_of(master) if node != master and node in scene.main]
        if master not in scene.main or not slaves:
            raise NoTarget(f"{master} has no slaves")
        return {master: {scene.main[master]: self.action, "pause": {node: scene.main[node] for node in slaves}}}

    def inject(self, site: Site, detail: Any, ttl_s: float) -> Lease:
        """The slaves are held by leases of their own that last little longer than this needs: should we die in the
        middle, they go on.
        """
        slaves: Mapping[str, str] = detail["pause"]
        began = time.monotonic()
        held = Leases()
        try:
            with ThreadPoolExecutor(len(slaves)) as pool:
                stops = [pool.submit(self._stop, site, site.peer(name), kind) for name, kind in slaves.items()]
            for stop in stops:
                held.take(stop.result)
            stopped = [name for name, kind in slaves.items() if self._stands_still(site, site.peer(name), kind)]
            site.notes["paused"] = stopped
            time.sleep(max(0.0, PAUSE_S - (time.monotonic() - began)))
            lease = super().inject(site, {kind: what for kind, what in detail.items() if kind != "pause"}, ttl_s)
        finally:
            held.heal()
        site.notes["paused_s"] = time.monotonic() - began
        return lease

    def _stop(self, site: Site, slave: Node, kind: str) -> Lease:
        process = site.topology.process(slave, kind)
        return Nothing() if process is None else primitives.stop_process(slave, process, ttl_s=15 + PAUSE_S)

    def _stands_still(self, site: Site, slave: Node, kind: str) -> bool:
        process = site.topology.process(slave, kind)
        return process is not None and primitives.process_state(slave, process) == STOPPED

    def seen(self, site: Site, detail: Any) -> Evidence:
        """The master is gone, and all slaves were seen to stand still before."""
        killed = super().seen(site, detail)
        paused: Sequence[str] = site.notes.get("paused", ())
        told = f"{', '.join(paused) or 'nobody'} stood still for {site.notes.get('paused_s', 0):.1f} s; {killed.what}"
        return Evidence(killed.seen and set(paused) == set(detail["pause"]), told)

    def downs(self, nodes: Sequence[str], details: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        return {node: tuple(kind for kind in detail if kind != "pause") for node, detail in details.items()}

    def told(self, details: Mapping[str, Any], labels: Mapping[str, str]) -> str:
        return super().told({node: self.downs((), details)[node] for node in details}, labels)
