# SPDX-License-Identifier: Apache-2.0
"""Faults of several steps in a fixed order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.api import Evidence, Fault, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import Lease
from infra.machines.primitives import process
from infra.options import Seconds, option
from infra.systems.api import Deployment
from nemesis.process import STOPPED, Kill, Leases
from results.strikes import Effect


@dataclass(frozen=True)
class PauseOptions:
    """The options of the fault."""

    pause: Seconds = option(1.0, "Time between the stop of the slaves and the kill of their master.", low=0.05, high=10)


class PausedKill(Kill):
    """The slaves stand still for a while, then the master on `node` is killed, then they continue.

    The master is started again at the heal; of the slaves nothing is left to heal.
    """

    def __init__(self, node: str, kind: str, slaves: Mapping[str, str], pause_s: float) -> None:
        """`slaves`: node -> the kind of its server."""
        super().__init__(node, [kind])
        self.slaves, self.pause_s = slaves, pause_s
        self.paused: list[str] = []
        """The slaves that were seen to stand still."""
        self.paused_s = 0.0

    @property
    def detail(self) -> Any:
        return {**super().detail, "pause": dict(self.slaves)}

    @property
    def effects(self) -> Sequence[Effect]:
        # The slaves stand still for a moment only, at the beginning: they are slow then, and serve afterwards.
        slow = [Effect("slow", node, (kind,)) for node, kind in self.slaves.items()]
        return [*super().effects, *slow]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        """Holds the slaves by their own leases, which last little longer than this needs: if the harness dies in the
        middle, they continue.
        """
        began = time.monotonic()
        held = Leases()
        try:
            with ThreadPoolExecutor(len(self.slaves)) as pool:
                stops = [pool.submit(self._stop, deployment, name, kind) for name, kind in self.slaves.items()]
            for stop in stops:
                held.take(stop.result)
            self.paused = [name for name, kind in self.slaves.items() if self._stands_still(deployment, name, kind)]
            time.sleep(max(0.0, self.pause_s - (time.monotonic() - began)))
            lease = super().inject(deployment, ttl_s)
        finally:
            held.heal()
        self.paused_s = time.monotonic() - began
        return lease

    def _stop(self, deployment: Deployment, slave: str, kind: str) -> Lease | None:
        running = deployment.server(slave, kind).process()
        if running is None:
            return None
        return process.stop_process(deployment.node(slave), running, ttl_s=15 + self.pause_s)

    def _stands_still(self, deployment: Deployment, slave: str, kind: str) -> bool:
        running = deployment.server(slave, kind).process()
        return running is not None and process.process_state(deployment.node(slave), running) == STOPPED

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the master is gone, and if all slaves were seen to stand still before."""
        killed = super().seen(deployment)
        what = f"{', '.join(self.paused) or 'no slave'} stopped for {self.paused_s:.1f} s; {killed.what}"
        return Evidence(killed.seen and set(self.paused) == set(self.slaves), what)


class PauseSlavesKillMaster(Fault):
    """All slaves stop (SIGSTOP); a second later their master is killed; then the slaves continue. The master is started
    again at the heal.

    Sends that the master acknowledged in that second are on no slave. A master that waits for its slaves acknowledged
    nothing, so nothing may be lost; one that does not wait loses them.
    """

    name = "pause-slaves-kill-master"
    summary = "stops all slaves, kills their master a second later, and continues the slaves"
    Options: ClassVar[type] = PauseOptions
    default_target: ClassVar[str] = "leader"

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        """Only the master's node is a place of this strike; its injection names the slaves that are stopped."""
        master = target.nodes[0]
        slaves = {node: view.main[node] for node in view.group_of(master) if node != master and node in view.main}
        if master not in view.main or not slaves:
            raise NoTarget(f"{master} has no slaves")
        return {master: PausedKill(master, view.main[master], slaves, self.options.pause)}
