# SPDX-License-Identifier: Apache-2.0
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

    kind     its kind: `broker`, `namesrv`, `controller`, `proxy`, `server`.
    ports    kind -> port, for itself and for servers that run inside it (a controller inside a name server).
    group    the replica group whose data it holds; None: it holds no group's data.
    version  that of its artifacts, if known.
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
        """True if it is a server of this kind, or has one inside."""
        return kind == self.kind or kind in self.ports


@dataclass(frozen=True)
class Traits:
    """The properties of a cluster that judges need.

    offsets_copied_s  the longest time until slaves have the committed offsets of their master; None: slaves copy no
                      offsets.
    in_sync           a server reports the replicas in sync (`Observation.extra["in_sync"]`).
    elects_in_sync    only a replica that is in sync by these reports may become master.
    raft_log          the message log is a Raft log: it acknowledges, and refuses, by other rules than a copied one.
    stands_in         while a broker group has no master, another server does the brokers' own work for its messages: a
                      new master, or RIP-32's acting master.
    acting_master     without a master, name servers list the slave with the smallest id in its place, for reads only.
    durable           names of small files with a server's identity and promises (term, vote, epochs): a failure of
                      power must not remove them.
    copies_last_file  a slave with an empty disk copies from the last file of its master's CommitLog on, not from the
                      beginning (`DefaultHAConnection`).
    expires_after_s   the age at which brokers delete messages; None: not stored with the run.
    offsets_written_s  the time between two writes of a broker's committed offsets to its disk.
    """

    offsets_copied_s: float | None = None
    in_sync: bool = False
    elects_in_sync: bool = False
    raft_log: bool = False
    stands_in: bool = True
    acting_master: bool = False
    durable: tuple[str, ...] = ()
    copies_last_file: bool = False
    expires_after_s: float | None = None
    offsets_written_s: float = 5.0


@dataclass(frozen=True)
class DeploymentRecord:
    """The servers and their nodes.

    nodes    name -> address.
    groups   replica group -> its nodes.
    quorums  kind of servers -> their nodes: service is owed while a majority of each kind is up, and the nodes of these
             all hear one another.
    """

    topology: str
    nodes: Mapping[str, str] = field(default_factory=dict)
    servers: Sequence[ServerRecord] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    quorums: Mapping[str, Sequence[str]] = field(default_factory=dict)
    traits: Traits = field(default_factory=Traits)

    @property
    def serving(self) -> list[str]:
        """The kinds of servers that a node needs to serve clients: those with a group's data; controllers if no group
        exists.
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
        """The record in its stored form."""
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
        """The record of `to_json`. Raises ValueError, TypeError or KeyError for anything else."""
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
        if not isinstance(quorums, Mapping):  # the run was stored before quorums had names
            quorums = _named(quorums, found)
        return replace(found, quorums={str(kind): [str(n) for n in nodes] for kind, nodes in quorums.items()})


def _named(quorums: Sequence[Sequence[str]], record: DeploymentRecord) -> dict[str, Sequence[str]]:
    """Quorums without names, by kind: the last is that of the servers that serve clients; before it, that of the
    controllers.
    """
    first = next((server.kind for server in record.having("controller")), "controller")
    kinds = [first, *record.serving] if len(quorums) > 1 else (record.serving or [first])
    return dict(zip(kinds, quorums, strict=False))


def _server(reported: Mapping[str, Any]) -> ServerRecord:
    return ServerRecord(**{**reported, "mends": tuple(int(number) for number in reported.get("mends", ()))})


def read_deployment(path: Path) -> DeploymentRecord:
    """The record in a file. Raises HistoryError for any other file."""
    try:
        return DeploymentRecord.from_json(read_json(path))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise HistoryError(path, None, f"no deployment record: {problem}") from None


def to_text(record: DeploymentRecord) -> str:
    """The file's content."""
    return json.dumps(record.to_json(), indent=2)


def of_old_run(plan: Mapping[str, Any]) -> DeploymentRecord:
    """The record of a run that was stored before such records existed, from its plan alone.

    Only this function distinguishes topologies by their names, and it will never know a new one.
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
