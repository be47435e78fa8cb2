"""The simulated service as a backend, a topology and faults: `harness.run.lifecycle` runs it unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar

from harness.api import Client, Completion, Context, Evidence, Fault, Site
from harness.plan.plan import Plan
from infra.machines.api import Capability, ClusterSpec, InfraError, Leftover, Share
from infra.systems.api import Status
from results.op import Op
from sim.service import Bug, Service
from workloads.register import RegisterWorkload


class SimNode:
    """A node that has only a name."""

    def __init__(self, name: str) -> None:
        self.name, self.address = name, "198.18.0.1"

    def process(self, pidfile: str) -> None:
        raise InfraError(f"{self.name} has only a name, and runs nothing")

    def close(self) -> None:
        """Nothing is open."""


class SimCluster:
    backend = "sim"
    run_id = "sim"
    destructive = True

    def __init__(self, count: int) -> None:
        self.nodes = [SimNode(f"n{i + 1}") for i in range(count)]
        self.facts: Mapping[str, str] = {"backend": "sim"}
        self.destroyed = False

    def destroy(self) -> None:
        self.destroyed = True


class SimBackend:
    name = "sim"

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


class SimTopology:
    name = "sim"
    summary: ClassVar[str] = "simulated"
    profiles: ClassVar[Sequence[str]] = ()
    roles: Mapping[str, str] = MappingProxyType({"leader": "leader", "follower": "follower"})

    def __init__(self, plan: Plan, bug: Bug | None) -> None:
        names = [f"n{i + 1}" for i in range(plan.cluster.nodes)]
        self.service = Service(names, plan.rng("sim"), bug)
        self.restarted = False

    def shares(self) -> Sequence[Share]:
        return ()

    def attach(self, cluster: Any) -> None:
        self.cluster = cluster

    def start_all(self, timeout_s: float = 0) -> None:
        if self.restarted:
            self.service.restart()

    def stop(self, node: Any, timeout_s: float = 0) -> None:
        self.restarted = True

    def servers(self, node: Any) -> Sequence[str]:
        return ["server"]

    def main(self, node: Any) -> str:
        return "server"

    def groups(self) -> Mapping[str, Sequence[str]]:
        return {"sim": self.service.nodes}

    def permits(self) -> Mapping[str, str]:
        return {}

    def process(self, node: Any, server: str | None = None) -> None:
        """There is none to watch."""

    def endpoint(self, node: Any) -> tuple[str, int]:
        return node.address, 1

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

    def client(self, context: Context, thread: int) -> Client:
        service: Service = context.topology.service  # type: ignore[attr-defined]
        nodes = service.nodes
        return SimClient(service, None if thread % 2 == 0 else nodes[thread // 2 % len(nodes)])


class SimLease:
    def __init__(self, service: Service) -> None:
        self.service = service

    def heal(self, timeout_s: float = 30) -> None:
        self.service.impair(frozenset(), frozenset())


class SimFault(Fault):
    """Cuts off, or stops, a minority that holds the leader when `leader` is hit."""

    kind: ClassVar[str]

    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        return {hit[0]: list(hit)}

    def inject(self, site: Site, detail: Any, ttl_s: float) -> SimLease:
        service: Service = site.topology.service  # type: ignore[attr-defined]
        group = frozenset(detail)
        service.impair(*((group, frozenset()) if self.kind == "cut" else (frozenset(), group)))
        return SimLease(service)

    def seen(self, site: Site, detail: Any) -> Evidence:
        return Evidence(True, f"{self.kind}: {', '.join(detail)}")

    def healed(self, site: Site, detail: Any) -> Evidence:
        service: Service = site.topology.service  # type: ignore[attr-defined]
        return Evidence(not service.cut and not service.down, "all together again")

    def impairs(self, nodes: Sequence[str], details: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
        group = next(iter(details.values()))
        others = [n for n in nodes if n not in group]
        return {n: [n] if self.kind == "stop" else others for n in group}


class SimPartition(SimFault):
    name = "sim-partition"
    summary = "cuts a minority off"
    kind = "cut"


class SimPause(SimFault):
    name = "sim-pause"
    summary = "stops a minority"
    kind = "stop"


SIM_FAULTS: dict[str, Fault] = {f.name: f for f in (SimPartition(), SimPause())}
