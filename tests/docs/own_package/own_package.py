"""A user's package: one of each kind of plug-in, each with an option of its own, on the simulated service.

Nothing of the harness knows it; `test_own_package.py` installs it and runs it from the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from harness.api import Client, Injection, RunContext, Target
from harness.cluster_view import ClusterView
from infra.machines.api import ClusterSpec, SettingsError
from infra.options import Seconds, option
from infra.systems.api import ServerSettings
from sim.rig import SimBackend, SimClient, SimCluster, SimImpairment, SimPause, SimTopology
from sim.service import Bug, Service
from workloads.register import RegisterOptions, RegisterWorkload


@dataclass(frozen=True)
class OwnRegisterOptions(RegisterOptions):
    pinned: bool = option(True, "Whether every second client stays with one node.")


class OwnRegister(RegisterWorkload):
    name = "own-register"
    summary = "registers on the simulated service"
    topologies = ("own-service",)
    Options = OwnRegisterOptions

    def client(self, context: RunContext, thread: int) -> Client:
        service: Service = context.deployment.topology.service  # type: ignore[attr-defined]
        home = service.nodes[thread // 2 % len(service.nodes)] if self.options.pinned and thread % 2 else None
        return SimClient(service, home)


@dataclass(frozen=True)
class OwnPauseOptions:
    share: float = option(0.5, "How many of the nodes that are hit stand still.", low=0.01, high=1)


class OwnPause(SimPause):
    name = "own-pause"
    summary = "some of the nodes that are hit stand still"
    Options = OwnPauseOptions

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        some = list(target.nodes)[: max(1, round(len(target.nodes) * self.options.share))]
        return {some[0]: SimImpairment(some, [], cut=False)}


@dataclass(frozen=True)
class OwnServiceOptions:
    bug: Literal["none", "lost_write"] = option("none", "What is wrong with the service.")


class OwnService(SimTopology):
    name = "own-service"
    summary = "the simulated service"
    Options = OwnServiceOptions

    def __init__(self, settings: ServerSettings, options: OwnServiceOptions | None = None) -> None:
        self.options = options or OwnServiceOptions()
        self.restarted = False

    def fits(self, nodes: Sequence[str]) -> None:
        if len(nodes) < 3:
            raise SettingsError(f"the topology {self.name} needs 3 nodes")
        bug = None if self.options.bug == "none" else Bug[self.options.bug.upper()]
        self.service = Service(nodes, Random(1), bug)


@dataclass(frozen=True)
class OwnMachinesOptions:
    boot: Seconds = option(Seconds(0.0), "How long the machines take to boot.", high=5)


class OwnMachines(SimBackend):
    name = "own-machines"
    Options = OwnMachinesOptions

    def provision(self, spec: ClusterSpec) -> SimCluster:
        cluster = super().provision(spec)
        options: Any = spec.options
        cluster.facts = {**cluster.facts, "boot_s": str(options.boot)}
        return cluster
