"""The contracts of plug-ins: clients, workloads, faults. Nothing here knows a concrete one.

A workload is found through the entry point group `harness.workloads`, a fault through `harness.nemeses`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol

from checkers.api import Checker
from harness.generator import Generator
from harness.nemesis.view import Scene
from harness.plan.plan import Plan, PlanError
from infra.machines.api import Cluster, Lease, Node
from infra.systems.api import Topology
from results.op import Op, OpType


@dataclass(frozen=True, slots=True)
class Completion:
    """What a client made of an invocation. See `results.op.Op` for what each type promises."""

    type: OpType
    value: Any = None
    error: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Client(Protocol):
    """One logical process's way to the servers. Asynchronous; it must never block the event loop
    (`harness.run.clients.Blocking` wraps one that does).

    `invoke` makes exactly one attempt. An exception it raises becomes `info`; so does a deadline that passes.
    After an `info` the client is closed and a fresh one made for the next process of that thread.
    """

    async def open(self) -> None:
        """Prepare. An exception here makes the process's ops `fail` with error `no-client: ...` (nothing was sent)."""

    async def invoke(self, op: Op) -> Completion: ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Context:
    """What a workload's clients may know: the running cluster and its topology.

    run  a word of lower-case letters and digits that no other run has: names of topics and groups hold it, so that
         runs that share a cluster (`--reuse`) never share those.
    """

    cluster: Cluster
    topology: Topology
    run: str = "run"


class Workload(ABC):
    """Topology + clients + generator + final phase + checkers. Constructed from the plan alone, so that a stored
    run can be judged again without a cluster.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for `harness list`."""
    topologies: ClassVar[Sequence[str]]
    """Names of the topologies (`infra.systems.rocketmq.topologies`) it works on; the first is the default."""
    clients: ClassVar[Sequence[str]] = ("remoting",)
    """What `--client` may be."""
    heeds: ClassVar[Collection[str]] = ()
    """Which of the options for single workloads it takes: `read_mode`, `snapshot`, `consume`. Others are refused."""
    default_rate: ClassVar[float] = 100.0
    """Ops per second over all clients, where the plan says nothing."""
    restart_before_final: ClassVar[bool] = True
    """Whether every server is restarted before the final phase, so that it shows what outlives a restart. If not, it
    begins when all replicas have caught up, or have not within the recovery limit.
    """
    reusable: ClassVar[bool] = False
    """Whether it may run on a cluster on which another run has been: all it writes lies under names with the run's own
    word (`Context.run`) in them.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    async def setup(self, context: Context) -> None:  # noqa: B027  (most have nothing to set up)
        """Before the first op, once the servers are up: make topics and groups, say. An InfraError ends the run. It is
        not asked when a stored run is judged again.
        """

    @abstractmethod
    def client(self, context: Context, thread: int) -> Client:
        """A fresh client for a process that runs on `thread` (0 .. concurrency-1)."""

    @abstractmethod
    def generator(self, rng: Random, phase: str) -> Generator:
        """The clients' ops of a phase; rate and time limit are put around it by the lifecycle.

        `phase` is `main`, then `recovery` and `recovery-2`: the load that goes on after the last heal. Different
        phases must use different keys, so that values stay unique per key.
        """

    @abstractmethod
    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """After everything was healed and restarted: the quiescent reads that show what is really there."""

    @abstractmethod
    def checkers(self) -> Sequence[Checker]:
        """Judges, in the order in which they are shown. The well-formedness check is put first by the lifecycle."""

    @abstractmethod
    def acknowledges(self, op: Op) -> bool:
        """Whether this completion proves that the service serves (an acknowledged write, a quorum read, ...)."""

    def server_settings(self) -> Mapping[str, str]:
        """Settings the workload's options imply (e.g. snapshot mode); `--set` has the last word."""
        return {}

    def permits(self) -> Mapping[str, str]:
        """Anomaly -> why its clients, rather than the servers, may cause it: shown with its count, not failed."""
        return {}

    def ground_truth(self, context: Context, folder: Path) -> None:
        """With `--ground-truth`: asked after the final phase, once all servers were stopped in an orderly way. Reads
        their files and leaves what they hold below `folder`/nodes/NODE. May block. Workloads without it refuse the
        option.
        """
        raise PlanError(f"workload {self.name!r} reads no ground truth; leave --ground-truth out")


@dataclass(frozen=True)
class Evidence:
    """What a probe saw: whether the effect is there, and the figures that show it (JSON values)."""

    seen: bool
    what: str


@dataclass(frozen=True)
class Site:
    """The place a fault acts on: one node of a running topology."""

    node: Node
    topology: Topology
    cluster: Cluster
    notes: dict[str, Any] = field(default_factory=dict)
    """What `inject` learned and `seen` and `healed` need (say, the process it killed): empty at first, and this
    strike's and this node's own, so that two strikes that overlap never mix theirs."""

    def peer(self, name: str) -> Node:
        """Another node of the cluster by name."""
        return next(n for n in self.cluster.nodes if n.name == name)


class Nothing:
    """The lease of an `inject` that found nothing to do (its target was dead already, say). The strike goes on
    without this node; `seen` tells why, `healed` is not asked.
    """

    def heal(self, timeout_s: float = 30) -> None:
        """Nothing was done, so nothing is undone."""


class NoTarget(Exception):
    """A fault finds nobody to strike as things stand. The text says why, in one line."""


class Fault(ABC):
    """Something that goes wrong on nodes. Scheduling, targeting, leases' bookkeeping, journalling, the final heal
    and the bands in the plots come from `harness.nemesis.runner`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    default_target: ClassVar[str] = "minority"
    """What `--target` is when not given (see `NemesisPlan`); faults that aim themselves ignore it."""
    destructive: ClassVar[bool] = True

    @abstractmethod
    def aim(self, nodes: Sequence[str], hit: Sequence[str], rng: Random) -> Mapping[str, Any]:
        """Pure: node -> what to do there (JSON values), e.g. `{"n1": ["n2", "n3"], ...}` for a grudge.

        `nodes` are all nodes, `hit` the nodes the target expression chose.
        """

    def aim_at(self, scene: Scene, hit: Sequence[str], role: str | None, rng: Random) -> Mapping[str, Any]:
        """As `aim`, and called in its place: for faults that must know who is who. Pure.

        `role`: the role that the target expression named (`harness.nemesis.targets.ROLES`), None for nodes. Raises
        NoTarget where there is nobody to strike.
        """
        return self.aim(scene.nodes, hit, rng)

    @abstractmethod
    def inject(self, site: Site, detail: Any, ttl_s: float) -> Lease:
        """Do it on one node and hold it under a lease. Runs in a thread; may block."""

    @abstractmethod
    def seen(self, site: Site, detail: Any) -> Evidence:
        """Probe: is the effect there? Asked after every `inject` of the strike is done."""

    @abstractmethod
    def healed(self, site: Site, detail: Any) -> Evidence:
        """Probe after the lease's heal: is everything as it was?"""

    def impairs(self, nodes: Sequence[str], details: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
        """For the availability check: node -> peers it cannot hear while this strike lasts; a node that maps to
        itself is down or stopped. Default: every hit node is down.
        """
        return {node: [node] for node in details}

    def downs(self, nodes: Sequence[str], details: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        """Node -> the kinds of servers that end or stand still there while this strike lasts; `*` is all of them. A
        server that ends otherwise died by itself. Default: all servers of the nodes that are down (`impairs`).
        """
        return {node: "*" for node, peers in self.impairs(nodes, details).items() if node in peers}

    def told(self, details: Mapping[str, Any], labels: Mapping[str, str]) -> str:
        """The strike in a few words for the live line, e.g. `n1 n4 (leader)`.

        `labels`: node -> its role when it struck, for those that led.
        """
        return " ".join(labelled(node, labels) for node in details)


def labelled(node: str, labels: Mapping[str, str]) -> str:
    """`n4 (master)`, or just `n5`."""
    return f"{node} ({labels[node]})" if node in labels else node
