"""The deployment record: the servers of a run with their nodes, and the traits of the topology. Checkers read it.

The topology creates it (`infra.systems.api.Topology.record`), and the run stores it as `deployment.json`. A checker
that needs facts about the cluster reads the record. No checker tests the name of a topology.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from results.errors import HistoryError
from results.reading import read_json

FILE: Final = "deployment.json"


@dataclass(frozen=True)
class ServerRecord:
    """One server process.

    kind     what it is: `broker`, `namesrv`, `controller`, `proxy`, `server`.
    ports    kind -> port, for itself and for whoever runs inside it (a controller inside a name server).
    group    the replica group whose data it holds; None: it holds none.
    version  of its artifacts, where it is known.
    mends    ids of findings whose cause is corrected in it (`--mend`).
    """

    node: str
    kind: str
    host: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    group: str | None = None
    version: str | None = None
    mends: Sequence[int] = ()

    def is_a(self, kind: str) -> bool:
        """Whether it is a server of this kind, or has one inside."""
        return kind == self.kind or kind in self.ports


@dataclass(frozen=True)
class Traits:
    """What judges must know of how a cluster works.

    offsets_copied_s  slaves have the committed offsets of their master at latest after so many seconds; None: nobody
                      copies offsets.
    in_sync           somebody says which replicas are in sync (`Observation.extra["in_sync"]`).
    raft_log          the message log is a Raft log: it acknowledges, and refuses, by other rules than a copied one.
    stands_in         while a broker group has no master, another server does what brokers do by themselves for its
                      messages: a new master, or RIP-32's acting master.
    acting_master     without a master, name servers list the slave with the smallest id in its place, for reads only.
    durable           names of small files without which a server forgets who it is or what it has promised (term,
                      vote, identity, epochs): a failure of power must not take them.
    copies_last_file  a slave with an empty disk copies from the last file of its master's CommitLog on, not from the
                      beginning (`DefaultHAConnection`).
    expires_after_s   the age at which brokers delete messages; None: not stored with the run.
    offsets_written_s  the time between two writes of a broker's committed offsets to its disk.
    """

    offsets_copied_s: float | None = None
    in_sync: bool = False
    raft_log: bool = False
    stands_in: bool = True
    acting_master: bool = False
    durable: tuple[str, ...] = ()
    copies_last_file: bool = False
    expires_after_s: float | None = None
    offsets_written_s: float = 5.0


@dataclass(frozen=True)
class DeploymentRecord:
    """Who is where.

    nodes    name -> address.
    groups   replica group -> its nodes.
    quorums  kind of servers -> their nodes: service is owed while of each kind the servers of a majority are up, and
             the nodes of these all hear one another.
    """

    topology: str
    nodes: Mapping[str, str] = field(default_factory=dict)
    servers: Sequence[ServerRecord] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    quorums: Mapping[str, Sequence[str]] = field(default_factory=dict)
    traits: Traits = field(default_factory=Traits)

    @property
    def serving(self) -> list[str]:
        """The kinds of servers without which a node serves nobody: those with a group's data; controllers where there
        is no group.
        """
        return sorted(
            {s.kind for s in self.servers if s.group is not None} or {s.kind for s in self.having("controller")}
        )

    def having(self, kind: str) -> list[ServerRecord]:
        """The servers of a kind, in the order of the nodes."""
        return [server for server in self.servers if server.is_a(kind)]

    def endpoints(self, kind: str) -> list[tuple[str, int]]:
        """(address, port) of the servers of a kind, in the order of the nodes."""
        return [(server.host, server.ports[kind]) for server in self.servers if kind in server.ports]

    def group_of(self, node: str) -> str | None:
        """The replica group that a node belongs to."""
        return next((group for group, nodes in self.groups.items() if node in nodes), None)

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "topology": self.topology,
            "nodes": dict(self.nodes),
            "servers": [{name: value for name, value in asdict(s).items() if value} for s in self.servers],
            "groups": {group: list(nodes) for group, nodes in self.groups.items()},
            "quorums": {kind: list(nodes) for kind, nodes in self.quorums.items()},
            "traits": asdict(self.traits),
        }

    @staticmethod
    def from_json(reported: Mapping[str, Any]) -> DeploymentRecord:
        """Raises ValueError, TypeError or KeyError for what `to_json` did not write."""
        reported_traits: Mapping[str, Any] = reported.get("traits", {})
        traits: dict[str, Any] = {k: v for k, v in reported_traits.items() if k in Traits.__dataclass_fields__}
        traits["durable"] = tuple(str(name) for name in traits.get("durable", ()))
        found = DeploymentRecord(
            topology=str(reported["topology"]),
            nodes={str(k): str(v) for k, v in reported["nodes"].items()},
            servers=[_server(server) for server in reported["servers"]],
            groups={str(k): [str(n) for n in v] for k, v in reported["groups"].items()},
            traits=Traits(**traits),
        )
        quorums = reported["quorums"]
        if not isinstance(quorums, Mapping):  # of a run that was stored before quorums had names
            quorums = _named(quorums, found)
        return replace(found, quorums={str(kind): [str(n) for n in nodes] for kind, nodes in quorums.items()})


def _named(quorums: Sequence[Sequence[str]], record: DeploymentRecord) -> dict[str, Sequence[str]]:
    """The kinds to which quorums without names belong: the last is that of the servers without which nobody is served;
    before it, that of the controllers.
    """
    first = next((server.kind for server in record.having("controller")), "controller")
    kinds = [first, *record.serving] if len(quorums) > 1 else (record.serving or [first])
    return dict(zip(kinds, quorums, strict=False))


def _server(reported: Mapping[str, Any]) -> ServerRecord:
    return ServerRecord(**{**reported, "mends": tuple(int(number) for number in reported.get("mends", ()))})


def read_deployment(path: Path) -> DeploymentRecord:
    """Raises HistoryError for a file that is none of ours."""
    try:
        return DeploymentRecord.from_json(read_json(path))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise HistoryError(path, None, f"no deployment record: {problem}") from None


def to_text(record: DeploymentRecord) -> str:
    """The file's content."""
    return json.dumps(record.to_json(), indent=2)


def of_old_run(plan: Mapping[str, Any]) -> DeploymentRecord:
    """What is known of a run that was stored before there were such records: from its plan alone.

    This is the only place that tells topologies apart by their names, and it will never know a new one.
    """
    server, cluster = plan.get("server") or {}, plan.get("cluster") or {}
    names = [f"n{i}" for i in range(1, int(cluster.get("nodes", 5)) + 1)]
    topology = str(server.get("topology") or ("dledger" if plan.get("workload") == "register" else "controller"))
    controlled = topology == "controller"
    brokers = names[: int(server.get("brokers") or len(names))]
    slow = topology in ("master-slave", "slave-acting-master")
    return DeploymentRecord(
        topology=topology,
        nodes=dict.fromkeys(names, ""),
        quorums={"controller": names[:3], "broker": brokers} if controlled else {"": names},
        traits=Traits(60.0 if slow else 10.0, in_sync=controlled, raft_log=topology == "dledger-commitlog"),
    )
