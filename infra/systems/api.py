# SPDX-License-Identifier: Apache-2.0
"""The contracts of systems under test: servers, topologies, and deployments.

A topology defines the servers of each node, and their configuration. Each server is a separate handle: code that
starts, stops or observes one uses the handle, and knows no topology. Judges read the `DeploymentRecord`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from infra.machines.api import Cluster, InfraError, Node, ProcessId, Share
from infra.machines.primitives.bits import FileKind
from results.deployment import DeploymentRecord
from results.permission import Permissions
from results.strikes import EffectKind


class ServersRun(InfraError):
    """A preparation takes effect at the start of servers, but some run already."""


@dataclass(frozen=True)
class Launch:
    """The parts that start a server, beside its configuration.

    version      of the published artifacts; None: the topology's own.
    jars         a user's own build, in front of the class path.
    env          environment variables. wrapper: a command in front of the server's own, which ends in running its
                 arguments (libfaketime's, say).
    jvm_options  behind the harness' own.
    mends        ids of known defects to correct (`infra.systems.mends`), if the version has them.
    """

    version: str | None = None
    jars: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    wrapper: Sequence[str] = ()
    jvm_options: Sequence[str] = ()
    mends: Sequence[int] = ()


def nearest(version: str, known: Sequence[str]) -> str:
    """The version itself if it is known; else the newest known one that is not newer, or the oldest.

    >>> nearest("5.6.0-SNAPSHOT", ["5.4.0", "5.5.0"]), nearest("5.4.9", ["5.4.0", "5.5.0"]), nearest("4.9", ["5.4.0"])
    ('5.5.0', '5.4.0', '5.4.0')
    """
    if version in known:
        return version
    ordered = sorted(known, key=_numbers)
    wanted = _numbers(version)
    # A name without a number, such as `develop`, is a build of the newest source.
    return next((one for one in reversed(ordered) if not wanted or _numbers(one) <= wanted), ordered[0])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"[0-9]{1,9}", version.partition("-")[0]))


@dataclass(frozen=True)
class LaunchRule:
    """A different launch for some servers: those on `nodes`, of these `kinds`; an empty list means all of them."""

    launch: Launch
    nodes: Sequence[str] = ()
    kinds: Sequence[str] = ()

    def holds_for(self, node: str, kind: str) -> bool:
        """True if it applies to a server."""
        return (not self.nodes or node in self.nodes) and (not self.kinds or kind in self.kinds)


@dataclass(frozen=True)
class ServerSettings:
    """The settings with which the servers of a topology start.

    settings  server settings by their own names, as text (`--set dledger.heartBeatTimeIntervalMs=500`).
    profile   one of the topology's `profiles`; None: its first.
    launch    for all servers. rules: for some of them; later ones override earlier ones.
    versions  others that must be on the nodes as well: faults may change to them during the run.
    kinds     of servers that clients need, beside those that every topology has: `proxy`.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    launch: Launch = field(default_factory=Launch)
    rules: Sequence[LaunchRule] = ()
    versions: Sequence[str] = ()
    kinds: Collection[str] = ()


@dataclass(frozen=True)
class Status:
    """The report of one node at one moment (the run stamps it and keeps it as `results.record.Observation`).

    role    `leader`, `follower`, `candidate`, `starting`, or `silent` (did not answer in time). A broker's master is
            its group's leader here, its slaves are followers.
    term    Raft term, or the master's epoch, or None. leader: name of the node it considers the leader, or None.
    begin, end, committed, applied: log indices, or None if not reported; -1 means "none yet". Brokers count bytes of
            the CommitLog: its smallest and largest offset, the confirm offset, and what is dispatched to the queues.
    extra   further facts of a server, where known: `broker_id`, `broker_name`, `master` (node name), `epoch`,
            `controller` (`leader`, `follower`), `in_sync` (node names), `in_sync_epoch` and `master_epoch` (all three
            reported by the leader of the controllers alone), `namesrv` (whether it answers).
    """

    role: str
    term: int | None = None
    leader: str | None = None
    begin: int | None = None
    end: int | None = None
    committed: int | None = None
    applied: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


REPLICATION: Final = "replication"
"""The kind of the port for copies between servers of one kind. A port that also serves clients has both names."""

APPLICATION_PIDS: Final = "/var/lib/harness/applications"
"""The folder with the pid files of programs of applications, on nodes without servers."""

NOT_AVAILABLE: Final = "not available"
"""The beginning of the text of `Topology.known_versions` for a version that was not published whole."""

TOPOLOGIES: Final = "harness.topologies"
"""The entry points through which topologies are found."""


class Admin(Protocol):
    """The administrator's view of a running server: its facts, and the changes that it accepts. All methods may block.

    For a server without such an interface, or without an answer in time, they raise InfraError with its name and
    reason.
    """

    def answers(self, timeout_s: float) -> bool:
        """True if it answers at all: the first sign of life, which does not mean that it serves. Never raises."""

    def version(self, timeout_s: float) -> str:
        """The version that runs: as the server reports it, or else as its process was started."""

    def settings(self, timeout_s: float) -> Mapping[str, str]:
        """Its effective configuration."""

    def change_command(self, settings: Mapping[str, str]) -> Sequence[str]:
        """An argv that changes its configuration *on the node itself*, without the control program (for leases). A
        running server changes at once, a stopped one at its next start. Idempotent.
        """


STARTED_AGAIN: Final = frozenset({"proxy"})
"""Kinds of servers that end at their start if no broker is there (`AbstractSystemMessageSyncer.createSysTopic`).
Operators have an init system that starts them again, so a fault that also ended the brokers does that.
"""


class Server(Protocol):
    """One server process of a topology on one node. All methods may block.

    kind       `namesrv`, `controller`, `broker`, `proxy`; or `server`, the only one of a DLedger node.
    ports      kind -> port, for itself and for servers that run inside it (a controller inside a name server); and
               `REPLICATION`.
    group      the replica group whose data it holds; None: it holds none, and its node serves without it.
    data_dirs  where it keeps its data on the node. log: the file of its log there.
    files      kind of file -> its paths below `data_dirs`, and its layout; empty: unknown.
    launch     the parts that start it. A change (a rolling upgrade) shows at its next start.
    pidfile    on the node: its process id, and when that started.
    """

    kind: str
    node: Node
    ports: Mapping[str, int]
    group: str | None
    data_dirs: Sequence[str]
    files: Mapping[str, FileKind]
    launch: Launch
    admin: Admin

    @property
    def pidfile(self) -> str:
        """See above."""

    @property
    def log(self) -> str:
        """Each line of it begins with a time in UTC, `yyyy-mm-dd HH:MM:SS.mmm`."""

    @property
    def endpoint(self) -> tuple[str, int]:
        """The address and port for clients."""

    def start(self) -> None:
        """Starts it (asynchronous: readiness is probed). Does nothing if it runs."""

    def start_command(self) -> Sequence[str]:
        """An argv that starts it *on the node itself*, without the control program (for leases)."""

    def stop(self, timeout_s: float = 20) -> None:
        """Ends it in an orderly way: SIGTERM, then SIGKILL. Raises InfraError for a process that outlives both."""

    def process(self) -> ProcessId | None:
        """Its process, or None if it does not run."""

    def last_words(self) -> str:
        """The end of its log, in one line. Never raises."""


class Topology(Protocol):
    """A choice of servers for each node. Found through the entry points `harness.topologies`; constructed as
    `T(settings: ServerSettings, options: T.Options)`. `shares` is called before the cluster is provisioned, then
    `attach` with the cluster, then `start_all`.
    """

    name: str
    summary: ClassVar[str]
    """One line for `harness list`."""
    Options: ClassVar[type]
    """See `infra.options`."""
    default_version: ClassVar[str]
    """The default version of the published artifacts."""
    kinds: ClassVar[Sequence[str]]
    """The kinds of servers that it may have, in the order of their start."""
    profiles: ClassVar[Sequence[str]]
    """Sets of settings with different promises; the first is the default. Empty: only one set exists."""
    roles: Mapping[str, str]
    """Words for people in place of `leader` and `follower`, say `master` and `slave`."""

    @classmethod
    def known_versions(cls) -> Mapping[str, str]:
        """`PRODUCT VERSION` -> its description, for `harness list versions`; the default first. Empty: the servers are
        the user's own.
        """

    def shares(self) -> Sequence[Share]:
        """Fetches and builds all needed files (cached), and returns the shares that every node must have."""

    def fits(self, nodes: Sequence[str]) -> None:
        """Raises SettingsError if the topology does not fit nodes of these names: too few, say."""

    def attach(self, cluster: Cluster) -> None:
        """Writes every server's configuration; starts nothing."""

    def servers(self, node: Node) -> Sequence[Server]:
        """The servers of a node, in the order of their start."""

    def further(self, node: Node, name: str, group: str, slot: int) -> Server:
        """One more server that holds data, the only one of its replica group unless there are others with this group.

        Its configuration is written, and it is not started. It is in no record, nor in `servers`: the caller must hold
        it (`infra.systems.guests`). name: of its files on the node. slot: it has the ports of this number; no two that
        run on a node may have the same. The same name with another slot is the same server at another address. Raises
        InfraError if the topology has no such servers.
        """

    def record(self) -> DeploymentRecord:
        """The present servers and nodes, for the run's folder."""

    def forget(self, node: Node, timeout_s: float) -> str:
        """Makes the keepers of a group's list of members forget the stopped server of this node. Returns in words what
        they forgot. Raises InfraError if no server keeps a list, or if it is refused until the time is over.
        """

    def keeps_address(self, node: str) -> str | None:
        """The reason why a node cannot return with another address: others know it by this one; None: it can."""

    def readdress(self, node: Node) -> None:
        """Writes the configuration of a node's servers, whose address has changed. Running servers do not see it."""

    def permits(self) -> Permissions:
        """The anomalies that this topology, with this profile and these settings, permits."""

    def permits_after(self) -> Mapping[EffectKind, Permissions]:
        """Kind of effect (`results.strikes.Effect`) -> the anomalies that are permitted after such a fault."""

    def start_all(self, timeout_s: float = 120) -> None:
        """Starts every server, a few at a time, and waits until the group serves. InfraError has the last log lines."""

    def await_serving(self, timeout_s: float) -> None:
        """Waits until the group serves writes, by probes and without fixed sleeps."""

    async def observe(self, node: Node, timeout_s: float, *, thorough: bool = False) -> Status:
        """The present report of the node. Never raises: role `silent` instead.

        `thorough` also makes queries that are expensive for a server; without it all offsets may be None.
        """

    def collect(self, node: Node, into: Path) -> list[Path]:
        """Copies logs, GC log, hs_err, effective settings from the node."""

    def versions(self) -> Mapping[str, str]:
        """Versions, checksums and JVM flags, for the run's environment."""


@dataclass(frozen=True)
class Deployment:
    """A cluster with its servers, for faults and workloads."""

    cluster: Cluster
    topology: Topology

    @property
    def nodes(self) -> Sequence[Node]:
        return self.cluster.nodes

    @property
    def clients(self) -> Sequence[Node]:
        """The nodes without servers, where programs of applications run."""
        return self.cluster.clients

    @property
    def record(self) -> DeploymentRecord:
        return self.topology.record()

    def node(self, name: str) -> Node:
        """A node by name, of servers or of applications."""
        return next(node for node in (*self.cluster.nodes, *self.cluster.clients) if node.name == name)

    def servers(self, node: str | None = None, kind: str | None = None) -> list[Server]:
        """Servers, in the order of the nodes and of their start: of a node, of a kind (or with one inside), of both."""
        return [
            server
            for machine in self.cluster.nodes
            if node is None or machine.name == node
            for server in self.topology.servers(machine)
            if kind is None or kind == server.kind or kind in server.ports
        ]

    def server(self, node: str, kind: str) -> Server:
        """The server of a kind on a node. Raises InfraError if the node has none."""
        found = self.servers(node, kind)
        if not found:
            raise InfraError(f"{node}: the topology {self.topology.name} has no {kind} there")
        return found[0]

    def main(self, node: str) -> Server | None:
        """The server of a node that holds data, or None."""
        return next((server for server in self.servers(node) if server.group is not None), None)
