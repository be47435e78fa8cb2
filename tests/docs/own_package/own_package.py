# SPDX-License-Identifier: Apache-2.0
"""A user's package: one of each kind of plug-in, each with an option of its own.

`own-register`, `own-pause`, `own-service` and `own-machines` run on the simulated service, `own-mix` and `own-restart`
on real nodes. The harness does not know this package; `test_own_package.py` installs it and runs it from the command
line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from sim.rig import SimBackend, SimClient, SimCluster, SimImpairment, SimPause, SimTopology
from sim.service import Bug, Service

from rocketmq_harness import (
    Checker,
    Client,
    ClusterSpec,
    ClusterView,
    DeploymentRecord,
    Generator,
    Injection,
    Invocation,
    Kill,
    Lease,
    ProcessFault,
    ProcessId,
    RegisterOptions,
    RegisterWorkload,
    RunContext,
    Seconds,
    Server,
    ServerSettings,
    SettingsError,
    Stats,
    Target,
    kill_process,
    option,
)
from rocketmq_harness import generator as gen


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


@dataclass(frozen=True)
class OwnMixOptions(RegisterOptions):
    reads: int = option(10, "One op in so many is a read.", low=2, high=100)


class OwnMix(RegisterWorkload):
    name = "own-mix"
    summary = "registers with reads and writes alone"
    Options = OwnMixOptions

    def generator(self, rng: Random, phase: str) -> Generator:
        def ops(key: str, n: int) -> Invocation:
            return Invocation("read", key) if n % self.options.reads == 0 else Invocation("write", key, n + 1)

        return gen.key_window(rng, 3, self.options.ops_per_key, lambda key: lambda n: ops(key, n), prefix=f"{phase}.")

    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        return [Stats(["read", "write"]) if c.name == "stats" else c for c in super().checkers(deployment)]


@dataclass(frozen=True)
class OwnRestartOptions:
    orderly: bool = option(True, "End the server with SIGTERM, and not with SIGKILL.")


class OwnRestartInjection(Kill):
    orderly = True

    def end(self, server: Server, running: ProcessId, ttl_s: float) -> Lease:
        lease = server.node.lease([], [server.start_command()], ttl_s=ttl_s)
        if self.orderly:
            server.stop()
        else:
            kill_process(server.node, running)
        return lease


class OwnRestart(ProcessFault):
    name = "own-restart"
    summary = "one server is ended and started again"
    default_target = "one"
    injection = OwnRestartInjection
    Options = OwnRestartOptions

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        found = super().aim(view, target, rng)
        for injection in found.values():
            injection.orderly = self.options.orderly  # type: ignore[attr-defined]
            injection.action = "SIGTERM, start" if self.options.orderly else "SIGKILL, start"  # type: ignore[attr-defined]
        return found
