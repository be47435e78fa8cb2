# SPDX-License-Identifier: Apache-2.0
"""Power failures: machines stop at one instant, and data that they had not synced to their disks is gone.

The sequence: all servers of all nodes hit are stopped, the file systems of their data are cut off from their disks
(ext4's shutdown, without a flush of the journal), the servers are killed, the file systems are mounted again. No peer
is notified: connections stay open on their side until they send something, which is answered by a reset. Data that the
journal or the disk held at the instant of the cut is there; data that was only in the page cache is not. The servers
start again at the heal. This is the state that a disk without a volatile cache has after a power cut; torn writes
within a page do not occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.api import Evidence, Injection, NoTarget, Target, labelled
from harness.cluster_view import ClusterView
from infra.machines.api import Lease, ProcessId
from infra.machines.primitives import volume
from infra.machines.primitives.volume import Data, PowerCycle
from infra.options import option
from infra.systems.api import Deployment
from nemesis.process import Leases
from nemesis.volumes import VolumeFault, VolumeOptions, missing, restart, running, volume_of
from results.strikes import Effect


class PowerCut(Injection):
    """Several nodes lose their power at one instant. The first of them is its place.

    struck   node -> kind of server -> the process that ended.
    """

    def __init__(self, nodes: Sequence[str], data: Data = "ordered") -> None:
        self.node, self.nodes, self.data = nodes[0], nodes, data
        self.struck: dict[str, dict[str, ProcessId]] = {}
        self.cycle: PowerCycle | None = None

    @property
    def detail(self) -> Any:
        """`changed`: see `PowerCycle`; judges read it."""
        changed = {} if self.cycle is None else {name: list(files) for name, files in self.cycle.changed.items()}
        return {"nodes": list(self.nodes), "changed": changed}

    @property
    def effects(self) -> Sequence[Effect]:
        """The effects; once injected, only of the nodes where a server ran: no other was cut off from its disk."""
        return [Effect(kind, node) for node in self.struck or self.nodes for kind in ("down", "unsynced-lost")]

    def describe(self, labels: Mapping[str, str]) -> str:
        return " ".join(labelled(node, labels) for node in self.nodes)

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        """Takes the leases, which start the servers again, first. If the harness dies in the middle of the cut, the
        nodes finish the cut and then start the servers.
        """
        leases = Leases()
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            found = list(pool.map(lambda name: running(deployment, name), self.nodes))
            self.struck = {name: running for name, running in zip(self.nodes, found, strict=True) if running}
            if not self.struck:
                return None
            for held in [pool.submit(restart, deployment, name, ttl_s) for name in self.struck]:
                leases.take(held.result)
        try:
            self.cycle = volume.power_cycle(
                {volume_of(deployment, name): list(found.values()) for name, found in self.struck.items()},
                deployment.record.traits.durable,
            )
        except BaseException:
            leases.heal()
            raise
        return leases

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the processes are gone without a notice to any peer, and if on each node a file that was never
        synced is gone and a synced one is not.
        """
        if self.cycle is None:
            return Evidence(False, "no server was running, so no machine lost its power")
        cycle, names = self.cycle, list(self.struck)
        count = sum(len(found) for found in self.struck.values())
        wrong = [
            name
            for name in names
            if name not in cycle.lost or name not in cycle.kept or cycle.data.get(name) != self.data
        ]
        unmuted = f", {cycle.not_muted} sockets could not be muted" if cycle.not_muted else ""
        what = (
            f"{count} servers stopped, {cycle.muted} connections ended without a word{unmuted}; {len(names)} disks cut "
            f"off within {cycle.cut_within_ms:.0f} ms, mounted again after {cycle.mounted_ms:.0f} ms; unsynced file "
            f"gone on {len(cycle.lost)} of {len(names)} nodes, synced file there on {len(cycle.kept)}"
            f"{', data=writeback' if 'writeback' in cycle.data.values() else ''}"
        )
        return Evidence(not wrong and cycle.killed == count and not cycle.not_muted, what)

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if each server has a new process, and prepares the disks for the next failure."""
        left = missing(deployment, self.struck)
        volume.mark([volume_of(deployment, name) for name in self.struck])
        return Evidence(not left, f"servers of {', '.join(self.struck)}: {left or 'all run'}")


@dataclass(frozen=True)
class PowerOptions(VolumeOptions):
    """The options of the fault."""

    data: Data = option(
        "ordered",
        "Mode of the journal (ext4). With writeback, the size of a new file may be on the disk before its content, and "
        "then it holds what its blocks held: NUL bytes, mostly.",
    )


class PowerFailure(VolumeFault):
    """The nodes hit lose their power at one instant; their servers start again at the heal. A role means its node."""

    name = "power-failure"
    summary = "cuts the power of nodes at one instant: what was not synced to disk is gone"
    Options: ClassVar[type] = PowerOptions
    default_target: ClassVar[str] = "all"

    @property
    def data(self) -> Data:
        """The mode of the journal that it needs."""
        mode: Data = self.options.data
        return mode

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        hit = [node for node in target.nodes if view.servers.get(node)]
        if not hit:
            raise NoTarget(f"no server runs on {', '.join(target.nodes)}")
        return {hit[0]: PowerCut(hit, self.data)}
