# SPDX-License-Identifier: Apache-2.0
"""The simulated service as a backend, a topology and faults: `harness.run.lifecycle` runs it unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar

from harness.api import Client, Completion, Evidence, Fault, Injection, RunContext, Target, Workload
from harness.cluster_view import ClusterView
from harness.nemesis.schedule import strikes
from harness.parts.registry import FaultSet
from harness.plan.plan import Plan
from harness.run.parts import Parts, Prepared
from infra.machines.api import Capability, ClusterSpec, Completed, InfraError, Leftover, NodeHost, Share
from infra.options import NoOptions
from infra.systems.api import Deployment, Launch, Server, Status
from results.deployment import DeploymentRecord, ServerRecord
from results.op import Op
from results.strikes import Effect
from sim.service import Bug, Service
from workloads.register import RegisterWorkload


class SimNode:
    """A node that has only a name."""

    def __init__(self, name: str) -> None:
        self.name, self.address = name, "198.18.0.1"

    def process(self, pidfile: str) -> None:
        raise InfraError(f"{self.name} has only a name, and runs nothing")

    def run(self, argv: Sequence[str], **how: Any) -> Completed:
        raise InfraError(f"{self.name} has only a name, and runs nothing")

    def close(self) -> None:
        """Nothing is open."""


class SimCluster:
    backend = "sim"
    run_id = "sim"
    destructive = True

    def __init__(self, count: int) -> None:
        self.nodes = [SimNode(f"n{i + 1}") for i in range(count)]
        self.clients: Sequence[SimNode] = ()
        self.facts: Mapping[str, str] = {"backend": "sim"}
        self.destroyed = False

    def host(self, name: str) -> NodeHost:
        raise InfraError(f"{name} is simulated, and has no host")

    def destroy(self) -> None:
        self.destroyed = True

    def keep(self, note: str) -> None:
        raise InfraError("nothing is kept")


class SimBackend:
    name = "sim"
    Options: ClassVar[type] = NoOptions
    auto_rank: ClassVar[int | None] = None
    keeps: ClassVar[bool] = False
    makes_clients: ClassVar[bool] = False

    def nodes_of(self, options: Any) -> int | None:
        return None

    def check(self, options: Any, nodes: int, destructive: bool) -> None:
        """Everything is permitted."""

    def reuse(self, spec: ClusterSpec) -> SimCluster:
        raise InfraError("nothing is kept")

    def __init__(self) -> None:
        self.cluster: SimCluster | None = None

    def probe(self) -> Capability:
        return Capability(True, "simulated")

    def provision(self, spec: ClusterSpec) -> SimCluster:
        self.cluster = SimCluster(spec.nodes)
        return self.cluster

    def leftovers(self) -> list[Leftover]:
        return []

    def clean(self, run_id: str) -> None:
        """Nothing is left behind."""


class SimServer:
    """The service on one node. There is no process to watch."""

    kind = "server"
    pidfile = "/server.pid"
    ports: ClassVar[Mapping[str, int]] = {"server": 1}
    group = "sim"
    data_dirs: ClassVar[Sequence[str]] = ()

    def __init__(self, node: Any, topology: SimTopology) -> None:
        self.node, self._topology = node, topology
        self.launch = Launch(version="1")

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.node.address, 1

    def start(self) -> None:
        """It runs."""

    def start_command(self) -> Sequence[str]:
        return ["true"]

    def stop(self, timeout_s: float = 20) -> None:
        self._topology.restarted = True

    def process(self) -> None:
        """No process exists to watch."""

    def last_words(self) -> str:
        return "all is well"


class SimTopology:
    name = "sim"
    summary: ClassVar[str] = "simulated"
    Options: ClassVar[type] = NoOptions
    default_version: ClassVar[str] = "1"
    kinds: ClassVar[Sequence[str]] = ("server",)
    profiles: ClassVar[Sequence[str]] = ()
    roles: Mapping[str, str] = MappingProxyType({"leader": "leader", "follower": "follower"})

    def __init__(self, plan: Plan, bug: Bug | None) -> None:
        self.service = Service(plan.nodes, plan.rng("sim"), bug)
        self.restarted = False

    @classmethod
    def known_versions(cls) -> Mapping[str, str]:
        return {"sim 1": ""}

    def shares(self) -> Sequence[Share]:
        return ()

    def fits(self, nodes: Sequence[str]) -> None:
        """Any do."""

    def attach(self, cluster: Any) -> None:
        self.cluster = cluster
        self._servers = {node.name: SimServer(node, self) for node in cluster.nodes}

    def start_all(self, timeout_s: float = 0) -> None:
        if self.restarted:
            self.service.restart()

    def await_serving(self, timeout_s: float) -> None:
        """It serves."""

    def servers(self, node: Any) -> Sequence[Server]:
        return [self._servers[node.name]]

    def record(self) -> DeploymentRecord:
        nodes = self.service.nodes
        return DeploymentRecord(
            topology=self.name,
            nodes=dict.fromkeys(nodes, "198.18.0.1"),
            servers=[ServerRecord(node, "server", "198.18.0.1", {"server": 1}, "sim", "1") for node in nodes],
            groups={"sim": nodes},
            quorums={"server": nodes},
        )

    def permits_after(self) -> Mapping[str, Mapping[str, str]]:
        return {}

    def permits(self) -> Mapping[str, str]:
        return {}

    async def observe(self, node: Any, timeout_s: float, *, thorough: bool = False) -> Status:
        service = self.service
        if node.name in service.down:
            return Status("silent")
        role = "leader" if node.name == service.leader else "follower"
        return Status(role, term=service.term, leader=service.leader, begin=0, end=1, committed=1, applied=1)

    def collect(self, node: Any, into: Path) -> list[Path]:
        into.mkdir(parents=True, exist_ok=True)
        (into / "server.log").write_text("2026-01-01 00:00:00.000 INFO all is well\n")
        return [into / "server.log"]

    def versions(self) -> Mapping[str, str]:
        return {"sim": "1"}


class SimClient:
    """Half of the clients follow the leader, the others are pinned, as in the real workload."""

    def __init__(self, service: Service, node: str | None) -> None:
        self.service, self.node = service, node

    async def open(self) -> None:
        """Nothing to open."""

    async def invoke(self, op: Op) -> Completion:
        return await self.service.serve(op, self.node)

    async def close(self) -> None:
        """Nothing to close."""


class SimRegister(RegisterWorkload):
    """The register workload with its own generator, final phase and checkers, on the simulated service."""

    topologies: ClassVar[Sequence[str]] = ("sim",)

    def client(self, context: RunContext, thread: int) -> Client:
        service: Service = context.deployment.topology.service  # type: ignore[attr-defined]
        nodes = service.nodes
        return SimClient(service, None if thread % 2 == 0 else nodes[thread // 2 % len(nodes)])


class SimLease:
    def __init__(self, service: Service) -> None:
        self.service = service

    def heal(self, timeout_s: float = 30) -> None:
        self.service.impair(frozenset(), frozenset())


class SimImpairment(Injection):
    """Some nodes are cut off from the others, or stand still."""

    def __init__(self, group: Sequence[str], others: Sequence[str], cut: bool) -> None:
        self.node, self.group, self.others, self.cut = group[0], list(group), list(others), cut

    @property
    def detail(self) -> Any:
        return self.group

    @property
    def effects(self) -> Sequence[Effect]:
        if self.cut:
            return [Effect("cut-off", node, peers=tuple(self.others)) for node in self.group]
        return [Effect("down", node) for node in self.group]

    def inject(self, deployment: Deployment, ttl_s: float) -> SimLease:
        service: Service = deployment.topology.service  # type: ignore[attr-defined]
        group = frozenset(self.group)
        service.impair(*((group, frozenset()) if self.cut else (frozenset(), group)))
        return SimLease(service)

    def seen(self, deployment: Deployment) -> Evidence:
        return Evidence(True, f"{'cut' if self.cut else 'stop'}: {', '.join(self.group)}")

    def healed(self, deployment: Deployment) -> Evidence:
        service: Service = deployment.topology.service  # type: ignore[attr-defined]
        return Evidence(not service.cut and not service.down, "all together again")


class SimFault(Fault):
    """Cuts off, or stops, a minority that holds the leader when `leader` is hit."""

    cut: ClassVar[bool]

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        others = [node for node in view.nodes if node not in target.nodes]
        return {target.nodes[0]: SimImpairment(target.nodes, others, self.cut)}


class SimPartition(SimFault):
    name = "sim-partition"
    summary = "cuts a minority off"
    cut = True


class SimPause(SimFault):
    name = "sim-pause"
    summary = "stops a minority"
    cut = False


SIM_FAULTS: dict[str, type[Fault]] = {f.name: f for f in (SimPartition, SimPause)}


class SimFaults(FaultSet):
    """The simulated faults, by their names."""

    def of(self, name: str, options: Mapping[str, Any]) -> Fault:
        return SIM_FAULTS[name]()


def prepared(
    plan: Plan, bug: Bug | None = None, workload: Workload | None = None, backend: SimBackend | None = None
) -> Prepared:
    """A run on the simulated service."""
    faults = SimFaults()
    drawn = strikes(plan, [faults.of(nemesis.fault, {}) for nemesis in plan.nemeses])
    parts = Parts(workload or SimRegister(plan), faults, drawn, SimTopology(plan, bug))
    return Prepared(plan, parts, backend or SimBackend())
