# SPDX-License-Identifier: Apache-2.0
"""The interfaces of plug-ins: clients, workloads, faults. Nothing here knows a concrete plug-in.

The entry point group `harness.workloads` contains the workloads, `harness.nemeses` the faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from infra.machines.api import Share
from infra.options import NoOptions, dump
from results.strikes import Effect, EffectKind

if TYPE_CHECKING:
    from checkers.base.api import Checker
    from harness.cluster_view import ClusterView
    from harness.generator import Generator
    from harness.plan.plan import Plan
    from infra.machines.api import Lease, Node
    from infra.systems.api import Deployment
    from results.alarm import Alarm
    from results.deployment import DeploymentRecord
    from results.op import Op, OpType


@dataclass(frozen=True, slots=True)
class Completion:
    """The result of an invocation, as a client reports it. `results.op.Op` defines what each type promises."""

    type: OpType
    value: Any = None
    error: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Client(Protocol):
    """The connection of one logical process to the servers. Asynchronous; it must never block the event loop
    (`harness.run.clients.Blocking` wraps one that does).

    `invoke` makes exactly one attempt. An exception it raises becomes `info`; so does a deadline that passes.
    After an `info` the client is closed and a fresh one made for the next process of that thread.
    """

    async def open(self) -> None:
        """Prepares the client. After an exception the process's ops `fail` with `no-client: ...` (nothing was sent)."""

    async def invoke(self, op: Op) -> Completion: ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class RunContext:
    """The information that a workload's clients get: the running cluster with its servers.

    run  a word of lower-case letters and digits that no other run has: names of topics and groups hold it, so that
         runs that share a cluster (`--reuse`) never share those.
    """

    deployment: Deployment
    run: str = "run"


class PhaseSession(Protocol):
    """The part of a run that its phases use (`harness.run.session.Session`).

    keys        the keys of all operations so far, in order of their first one.
    stopping    True if the run is to end.
    leaderless  kinds of servers without a known leader when the leading one was to be restarted.
    """

    plan: Plan
    workload: Workload
    keys: dict[str, None]
    stopping: bool
    leaderless: set[str]

    async def execute(self, ops: Generator, phase: str) -> None:
        """Runs the ops of a phase to their end, or until the run is stopped."""

    def strikes(self) -> Generator:
        """The nemesis' ops of the plan."""

    def until_alarm(self, ops: Generator) -> Generator:
        """`ops`, which have no more once an alarm ends the load early (`Workload.watch`)."""

    async def heal(self) -> None:
        """Ends every active fault."""

    def recovered(self, op: Op) -> bool:
        """True if this completion shows that every group serves again, and all nodes have caught up."""

    async def caught_up(self, limit_s: float) -> bool:
        """Waits until every replica holds all that its leader does. False if the limit comes first."""

    def announce(self, line: str) -> None:
        """Prints a line in place of the live one."""


class Phase(Protocol):
    """A part of a run (`harness.run.phases`). name: as it is in the history."""

    @property
    def name(self) -> str: ...

    async def run(self, session: PhaseSession) -> None:
        """Executes the phase. It ends early if the run is stopped."""


class Watch(Protocol):
    """A cheap judge that sees the events of clients one by one, as they are journaled (`Workload.watch`)."""

    def see(self, op: Op) -> Alarm | None:
        """Takes one event, an invocation or a completion. Returns an alarm that it proves. Called in the event loop:
        microseconds are right.
        """


class ClientProtocol:
    """A protocol between clients and servers, for workloads that leave the choice (`--client`). A workload and its
    clients may agree on more methods than these.
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
    """Allowed values of `--client`, the default first; empty: the workload has its own clients, and no choice."""
    fewer_topologies: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Client -> its topologies, where a client does not work on all of them; the first is the default."""
    judged_ops: ClassVar[Set[str]] = frozenset()
    """Kinds of ops that the checkers of a foreign history read (`judges`); empty: all kinds of messages."""
    Options: ClassVar[type] = NoOptions
    """Its options: see `infra.options`."""
    model: ClassVar[str | None] = None
    """The model of `checkers.linearizability` that judges foreign histories of its ops; None: no model does."""
    default_rate: ClassVar[float] = 100.0
    """Ops per second over all clients, if the plan sets no rate."""
    topology_options: ClassVar[Mapping[str, Any]] = {}
    """Option of a topology -> its default for this workload (a TOML value); ignored by topologies without this option.
    """
    without: ClassVar[Sequence[str]] = ()
    """Kinds of servers of its topologies that it does not start, and so no replica groups."""
    restart_before_final: ClassVar[bool] = True
    """True if every server is restarted before the final phase, which then shows what outlives a restart. If False, the
    final phase begins when all replicas have caught up, or at the recovery limit.
    """
    final_limit_s: float = 120.0
    """The longest time of the final phase's ops. An instance may set its own."""
    reads_files: ClassVar[bool] = False
    """True if `after_stop` can read the servers' files. After faults at disks (`results.strikes.AT_DISKS`) it is called
    even if `stops_servers` is False.
    """
    brings_faults: ClassVar[bool] = False
    """True if its own ops are the faults: then a command that names no nemesis has none."""
    reusable: ClassVar[bool] = False
    """True if it may run on a cluster that another run has used: the names of all it writes contain the run's own word
    (`RunContext.run`).
    """

    @classmethod
    def topologies_with(cls, client: str | None) -> Sequence[str]:
        """The topologies that it works on with a client; None: with the default one."""
        return cls.fewer_topologies.get(client or "", cls.topologies)

    def __init__(self, plan: Plan) -> None:
        """Raises PlanError if the plan's options of this workload are invalid."""
        self.plan = plan
        self.options: Any = plan.options_of(self.Options, f"the workload {plan.workload!r}")

    async def setup(self, context: RunContext) -> None:  # noqa: B027  (most have nothing to set up)
        """Prepares the servers (topics and groups, say), once they are up and before the first op. An InfraError ends
        the run. It is not called when a stored run is judged again.
        """

    @abstractmethod
    def client(self, context: RunContext, thread: int) -> Client:
        """A fresh client for a process that runs on `thread` (0 .. concurrency-1)."""

    @abstractmethod
    def generator(self, rng: Random, phase: str) -> Generator:
        """The clients' ops of a phase; the lifecycle adds rate and time limit.

        `phase` is `main`, then `recovery` and `recovery-2`: the load that continues after the last heal. Different
        phases must use different keys, so that values stay unique per key.
        """

    @abstractmethod
    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """The quiescent reads after everything was healed and restarted: they show the real content."""

    @abstractmethod
    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        """The checkers, in the order of the report. The lifecycle puts the well-formedness check first."""

    @abstractmethod
    def acknowledges(self, op: Op) -> bool:
        """True if this completion proves that the service serves (an acknowledged write, a quorum read, ...)."""

    def group_of(self, op: Op) -> str | None:
        """The replica group that an op needs; None: no group in particular."""
        return None

    @property
    def groups(self) -> Collection[str]:
        """The replica groups of which each owes its own service; known after `setup`."""
        return ()

    @classmethod
    def judges(cls, fs: Set[str], identified: bool) -> Sequence[Checker] | None:
        """Returns the checkers of a foreign history of messages (`harness check --workload NAME`), which see its ops
        alone: no nodes, roles or faults are known. None: the workload cannot judge such histories.

        fs          its kinds of ops.
        identified  acknowledgements carry message ids.
        """
        return None

    @property
    def client_nodes(self) -> int:
        """The number of nodes that it needs for programs of applications, besides those of the servers."""
        return 0

    @property
    def kinds(self) -> Sequence[str]:
        """Kinds of servers that it needs besides those that every topology has: `proxy`."""
        return ()

    def shares(self) -> Sequence[Share]:
        """Folders that every node must have, besides the servers' own. Raises InfraError."""
        return ()

    def server_settings(self) -> Mapping[str, str]:
        """Settings the workload's options imply (e.g. snapshot mode); `--set` has the last word."""
        return {}

    def permits(self) -> Mapping[str, str]:
        """Anomaly -> why its clients, rather than the servers, may cause it: shown with its count, not failed."""
        return {}

    def watch(self) -> Watch | None:
        """Returns a new watch of the load under faults, for runs that an anomaly may end early (`--end-early`). Its
        alarms must follow from the events so far, whatever comes later: the full judgement must report each of them.
        None: the load always runs to its end.
        """
        return None

    def after_stop(self, context: RunContext, folder: Path) -> None:  # noqa: B027  (most have nothing to read)
        """Reads the servers' files and stores their content below `folder`/nodes/NODE. Called with `stops_servers`, and
        with `reads_files` after faults at disks: after the final phase, once all servers were stopped in an orderly
        way. May block. Raises InfraError for files that are unreadable, or too large to read without a request.
        """

    def phases(self, usual: Sequence[Phase]) -> Sequence[Phase]:
        """Returns the phases of the run, in order; `usual`: the phases of a workload that does not override this."""
        return usual

    @property
    def stops_servers(self) -> bool:
        """True if all servers are stopped at the end, for `after_stop`: then the cluster cannot be kept."""
        return False


@dataclass(frozen=True)
class Evidence:
    """The result of a probe: whether the effect is there, and a text with the figures that show it."""

    seen: bool
    what: str


@dataclass(frozen=True)
class Spell:
    """A time in which one effect of a fault lasted: begin and end on `time.monotonic()`; end None: to the heal."""

    effect: Effect
    begin_s: float
    end_s: float | None


class NoTarget(Exception):
    """A fault has no target in the current state of the cluster. The text gives the reason, in one line."""


DATA: Final = "data"
"""In place of a kind of server: the one that holds its node's data, whatever its kind."""


@dataclass(frozen=True)
class Target:
    """The target of a strike: nodes, or the servers that have a role now.

    kind  only the servers of this kind are meant, on these nodes; `DATA`: those that hold data; None: all of them.
    """

    nodes: Sequence[str]
    kind: str | None = None


class Injection(ABC):
    """One action of a strike at one place. Made by `Fault.aim`; it keeps the state that it needs until the heal.

    node  where it is done, and where its lease is held.
    """

    node: str

    @property
    @abstractmethod
    def detail(self) -> Any:
        """The action, as JSON values, for the journal."""

    @property
    @abstractmethod
    def effects(self) -> Sequence[Effect]:
        """The parts of the cluster that it impairs while it lasts."""

    @property
    def spells(self) -> Sequence[Spell] | None:
        """The times of its effects, after the heal; None: they lasted from the injection to the heal."""
        return None

    @abstractmethod
    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        """Injects the effect, and holds it under a lease that ends by itself after `ttl_s`. Runs in a thread; may
        block.

        None: there was nothing to do (its target was dead already, say). Then the strike continues without this place;
        `seen` gives the reason, and `healed` is not called.
        """

    @abstractmethod
    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the effect is there. Called after every injection of the strike is done."""

    @abstractmethod
    def healed(self, deployment: Deployment) -> Evidence:
        """Probes after the lease's heal if everything is back in its former state."""

    def describe(self, labels: Mapping[str, str]) -> str:
        """Describes it in a few words, for the live line. `labels`: node that led -> its role at the strike."""
        return labelled(self.node, labels)


class Fault(ABC):
    """A kind of failure. Schedule, targets, the bookkeeping of leases, the journal, the final heal and the
    intervals in the plots come from `harness.nemesis`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    """Its options: see `infra.options`. A plan may have several of one kind, each with its own."""
    default_target: ClassVar[str] = "minority"
    """The default of `target`; faults that aim by themselves ignore it."""
    destructive: ClassVar[bool] = True
    """True if it is rejected on machines that are not marked disposable."""
    at_applications: ClassVar[bool] = False
    """True if it strikes programs of applications: workloads without nodes for them (`client_nodes`) reject it."""

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    def roles(self) -> Sequence[str]:
        """Roles that its options name, besides the target. Their nodes are not known before a strike."""
        return ()

    def kinds_needed(self) -> Sequence[str]:
        """Kinds of servers without which it has nothing to do: a topology that lacks one of them is rejected."""
        return ()

    @property
    def aims_late(self) -> bool:
        """True if its target is not known before a strike: it depends on roles, or on replica groups."""
        return bool(self.roles())

    def versions(self) -> Sequence[str]:
        """Versions of the servers that must be on every node, besides the plan's."""
        return ()

    def available(self, deployment: Deployment) -> str | None:
        """Returns why these machines do not support it, and the remedy; None: they do. Called before servers start."""
        return None

    def prepare(self, deployment: Deployment) -> None:  # noqa: B027  (most need nothing)
        """Prepares the machines before the servers start: mounts file systems, puts proxies between servers. All of it
        ends with the cluster.

        Idempotent. Raises InfraError, and ServersRun for servers of a kept cluster that run without it: then all are
        stopped, and it is called again.
        """

    @abstractmethod
    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        """Returns place -> injection; a place is a node's name, or begins with it (`n1 disk`). Pure: nothing is done
        yet.

        Raises NoTarget if nothing in the cluster can be struck.
        """

    def describe(self, injections: Sequence[Injection], labels: Mapping[str, str]) -> str:
        """The whole strike in a few words, e.g. `n1 n4 (leader)`."""
        return " ".join(injection.describe(labels) for injection in injections)


class NodeFault(Fault):
    """A fault in one class, which does the same on each node that it hits. A fault that must remember something between
    injection and heal, or differs from place to place, is a `Fault` with its own `Injection`.
    """

    impairs: ClassVar[EffectKind | None] = "down"
    """Its effect on the node while it lasts; None: nothing that a judge must know."""

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
