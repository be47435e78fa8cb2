"""The interfaces of plug-ins: clients, workloads, faults. Nothing here knows a concrete plug-in.

The entry point group `harness.workloads` contains the workloads, `harness.nemeses` the faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, Protocol

from checkers.api import Checker
from harness.cluster_view import ClusterView
from harness.generator import Generator
from harness.plan.plan import Plan
from infra.machines.api import Lease, Node
from infra.options import NoOptions, dump
from infra.systems.api import Deployment
from results.deployment import DeploymentRecord
from results.op import Op, OpType
from results.strikes import Effect, EffectKind


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
class RunContext:
    """What a workload's clients may know: the running cluster with its servers.

    run  a word of lower-case letters and digits that no other run has: names of topics and groups hold it, so that
         runs that share a cluster (`--reuse`) never share those.
    """

    deployment: Deployment
    run: str = "run"


class Phase(Protocol):
    """A part of a run (`harness.run.phases`). name: as it is in the history."""

    @property
    def name(self) -> str: ...

    async def run(self, session: Any) -> None:
        """Do it, with a `harness.run.session.Session`. It ends early where somebody stops the run."""


class ClientProtocol:
    """How clients talk to the servers, where a workload leaves the choice (`--client`). What a workload asks of it
    beyond this is between the two.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    kinds: ClassVar[Sequence[str]] = ()
    """Kinds of servers that it needs besides those that every topology has: `proxy`."""
    permits: ClassVar[Mapping[str, str]] = {}
    """Anomaly -> why this client, rather than the servers, may cause it: shown with its count, not failed."""

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options


class Workload(ABC):
    """Clients + generator + final phase + checkers. Constructed from the plan alone, so that a stored run can be judged
    again without a cluster.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for `harness list`."""
    topologies: ClassVar[Sequence[str]]
    """Names of the topologies it works on (entry points `harness.topologies`); the first is the default."""
    clients: ClassVar[Sequence[str]] = ()
    """What `--client` may be, the default first; empty: it has clients of its own, and no choice."""
    judged_ops: ClassVar[Set[str]] = frozenset()
    """Kinds of ops that the checkers of a foreign history read (`judges`); empty: all kinds of messages."""
    Options: ClassVar[type] = NoOptions
    """Its options: see `infra.options`."""
    model: ClassVar[str | None] = None
    """The model of `checkers.linearizability` that judges histories of its ops that anybody wrote, if one does."""
    default_rate: ClassVar[float] = 100.0
    """Ops per second over all clients, where the plan says nothing."""
    topology_options: ClassVar[Mapping[str, Any]] = {}
    """Options of a topology, where it has them, whose defaults are others for this workload; TOML's values."""
    without: ClassVar[Sequence[str]] = ()
    """Kinds of servers of its topologies that it does not start, and so no replica groups."""
    restart_before_final: ClassVar[bool] = True
    """Whether every server is restarted before the final phase, so that it shows what outlives a restart. If not, it
    begins when all replicas have caught up, or have not within the recovery limit.
    """
    reads_files: ClassVar[bool] = False
    """Whether `after_stop` reads the servers' files: that is done after faults at disks (`results.strikes.AT_DISKS`)
    although nobody asked for it.
    """
    brings_faults: ClassVar[bool] = False
    """Whether its own ops are the faults: then a command that names no nemesis has none."""
    reusable: ClassVar[bool] = False
    """Whether it may run on a cluster on which another run has been: all it writes lies under names with the run's own
    word (`Context.run`) in them.
    """

    def __init__(self, plan: Plan) -> None:
        """Raises PlanError where the plan's options cannot be meant."""
        self.plan = plan
        self.options: Any = plan.options_of(self.Options, f"the workload {plan.workload!r}")

    async def setup(self, context: RunContext) -> None:  # noqa: B027  (most have nothing to set up)
        """Before the first op, once the servers are up: make topics and groups, say. An InfraError ends the run. It is
        not asked when a stored run is judged again.
        """

    @abstractmethod
    def client(self, context: RunContext, thread: int) -> Client:
        """A fresh client for a process that runs on `thread` (0 .. concurrency-1)."""

    @abstractmethod
    def generator(self, rng: Random, phase: str) -> Generator:
        """The clients' ops of a phase; rate and time limit are put around it by the lifecycle.

        `phase` is `main`, then `recovery` and `recovery-2`: the load that continues after the last heal. Different
        phases must use different keys, so that values stay unique per key.
        """

    @abstractmethod
    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """After everything was healed and restarted: the quiescent reads that show what is really there."""

    @abstractmethod
    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        """Judges, in the order in which they are shown. The well-formedness check is put first by the lifecycle."""

    @abstractmethod
    def acknowledges(self, op: Op) -> bool:
        """Whether this completion proves that the service serves (an acknowledged write, a quorum read, ...)."""

    @classmethod
    def judges(cls, fs: Set[str], identified: bool) -> Sequence[Checker] | None:
        """Who judges a history of messages that anybody wrote (`harness check --workload NAME`), by its ops alone: no
        nodes, roles or faults are known. None: such histories cannot be judged.

        fs          its kinds of ops.
        identified  acknowledgements carry message ids.
        """
        return None

    def server_settings(self) -> Mapping[str, str]:
        """Settings the workload's options imply (e.g. snapshot mode); `--set` has the last word."""
        return {}

    def permits(self) -> Mapping[str, str]:
        """Anomaly -> why its clients, rather than the servers, may cause it: shown with its count, not failed."""
        return {}

    def after_stop(self, context: RunContext, folder: Path) -> None:  # noqa: B027  (most have nothing to read)
        """With `stops_servers`, and with `reads_files` after faults at disks: asked after the final phase, once all
        servers were stopped in an orderly way. Reads their files and leaves what they hold below `folder`/nodes/NODE.
        May block. Raises InfraError for what cannot be read, or is more than it should read unasked.
        """

    def phases(self, usual: Sequence[Phase]) -> Sequence[Phase]:
        """What the run does, one after the other; `usual`: what runs do where nobody says anything else."""
        return usual

    @property
    def stops_servers(self) -> bool:
        """Whether all servers are stopped at the end, for `after_stop`: then the cluster cannot be kept."""
        return False


@dataclass(frozen=True)
class Evidence:
    """What a probe saw: whether the effect is there, and the figures that show it (JSON values)."""

    seen: bool
    what: str


class NoTarget(Exception):
    """A fault finds nobody to strike as things stand. The text says why, in one line."""


DATA: Final = "data"
"""In place of a kind of server: the one that holds its node's data, whatever its kind."""


@dataclass(frozen=True)
class Target:
    """Whom a strike is meant to hit: nodes, or who has a role now.

    kind  only the servers of this kind are meant, on these nodes; `DATA`: those that hold data; None: all of them.
    """

    nodes: Sequence[str]
    kind: str | None = None


class Injection(ABC):
    """One thing that a strike does at one place. Made by `Fault.aim`; what it learns while it is active, it keeps.

    node  where it is done, and where its lease is held.
    """

    node: str

    @property
    @abstractmethod
    def detail(self) -> Any:
        """What is done, as JSON values, for the journal."""

    @property
    @abstractmethod
    def effects(self) -> Sequence[Effect]:
        """What it impairs while it lasts."""

    @abstractmethod
    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        """Do it, and hold it under a lease that ends by itself after `ttl_s`. Runs in a thread; may block.

        None: there was nothing to do (its target was dead already, say). Then the strike continues without this place;
        `seen` tells why, and `healed` is not asked.
        """

    @abstractmethod
    def seen(self, deployment: Deployment) -> Evidence:
        """Probe: is the effect there? Asked after every injection of the strike is done."""

    @abstractmethod
    def healed(self, deployment: Deployment) -> Evidence:
        """Probe after the lease's heal: is everything as it was?"""

    def describe(self, labels: Mapping[str, str]) -> str:
        """In a few words, for the live line. `labels`: node -> its role when it was struck, for those that led."""
        return labelled(self.node, labels)


class Fault(ABC):
    """Something that goes wrong. Schedule, targets, the bookkeeping of leases, the journal, the final heal and the
    intervals in the plots come from `harness.nemesis`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    """Its options: see `infra.options`. A plan may have several of one kind, each with its own."""
    default_target: ClassVar[str] = "minority"
    """What `target` is when it is not given; faults that aim by themselves ignore it."""
    destructive: ClassVar[bool] = True
    """Whether it is rejected on machines that are not marked disposable."""

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    def roles(self) -> Sequence[str]:
        """Roles that its options name, besides the target: nobody knows before a strike who has them."""
        return ()

    def kinds_needed(self) -> Sequence[str]:
        """Kinds of servers without which it has nothing to do: a topology that has none of a kind is refused."""
        return ()

    @property
    def aims_late(self) -> bool:
        """Whether only a strike can tell if it has anybody to act on: it depends on roles, or on replica groups."""
        return bool(self.roles())

    def versions(self) -> Sequence[str]:
        """Versions of the servers that must be on every node, besides the plan's."""
        return ()

    def available(self, deployment: Deployment) -> str | None:
        """Why it is not available on these machines, and the remedy; None: it is. Called before the servers start."""
        return None

    def prepare(self, deployment: Deployment) -> None:  # noqa: B027  (most need nothing)
        """Before the servers start: mount file systems, put proxies between servers. It ends with the cluster.

        Idempotent. Raises InfraError, and ServersRun for servers of a kept cluster that run without it: then all are
        stopped, and it is called again.
        """

    @abstractmethod
    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        """Place -> what to do there; a place is a node's name, or begins with it (`n1 disk`). Pure: nothing is done
        yet.

        Raises NoTarget where there is nobody to strike.
        """

    def describe(self, injections: Sequence[Injection], labels: Mapping[str, str]) -> str:
        """The whole strike in a few words, e.g. `n1 n4 (leader)`."""
        return " ".join(injection.describe(labels) for injection in injections)


class NodeFault(Fault):
    """The same on each node that is hit: a fault in one class. One that must remember something between its injection
    and its heal, or does different things at different places, is a `Fault` with an `Injection` of its own.
    """

    impairs: ClassVar[EffectKind | None] = "down"
    """What it does to the node while it lasts; None: nothing that a judge must know."""

    @abstractmethod
    def inject(self, node: Node, ttl_s: float) -> Lease | None:
        """As `Injection.inject`, on one node."""

    @abstractmethod
    def seen(self, node: Node) -> Evidence:
        """As `Injection.seen`, on one node."""

    @abstractmethod
    def healed(self, node: Node) -> Evidence:
        """As `Injection.healed`, on one node."""

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        return {node: _OnNode(self, node) for node in target.nodes}


class _OnNode(Injection):
    def __init__(self, fault: NodeFault, node: str) -> None:
        self._fault, self.node = fault, node

    @property
    def detail(self) -> Any:
        return dump(self._fault.options)

    @property
    def effects(self) -> Sequence[Effect]:
        return [] if self._fault.impairs is None else [Effect(self._fault.impairs, self.node)]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        return self._fault.inject(deployment.node(self.node), ttl_s)

    def seen(self, deployment: Deployment) -> Evidence:
        return self._fault.seen(deployment.node(self.node))

    def healed(self, deployment: Deployment) -> Evidence:
        return self._fault.healed(deployment.node(self.node))


def labelled(node: str, labels: Mapping[str, str]) -> str:
    """`n4 (master)`, or just `n5`."""
    return f"{node} ({labels[node]})" if node in labels else node
