# SPDX-License-Identifier: Apache-2.0
"""Servers without Java's weight on real nodes: any program, started as the real servers are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from infra.machines.api import ClusterSpec, Node, ProcessId
from infra.machines.backends.local import LocalBackend
from infra.machines.node import spawn_argv
from infra.systems.api import Deployment, Launch
from results.deployment import DeploymentRecord, ServerRecord

HOME = "/var/lib/harness"


@dataclass
class BareServer:
    """`infra.systems.api.Server`: `argv`, behind the wrapper of its launch."""

    node: Node
    kind: str
    argv: Sequence[str]
    launch: Launch = field(default_factory=Launch)
    group: str | None = "a"
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def data_dirs(self) -> Sequence[str]:
        return [f"{HOME}/data/{self.kind}"]

    @property
    def log(self) -> str:
        return f"{HOME}/log/{self.kind}.log"

    @property
    def pidfile(self) -> str:
        return f"{HOME}/{self.kind}.pid"

    def start(self) -> None:
        self.node.run(self.start_command())

    def start_command(self) -> Sequence[str]:
        argv = [*self.launch.wrapper, *self.argv]
        return spawn_argv(argv, env=self.launch.env, log=self.log, pidfile=self.pidfile)

    def process(self) -> ProcessId | None:
        return self.node.process(self.pidfile)

    def stop(self) -> None:
        running = self.process()
        if running is not None:
            self.node.run(["kill", "-s", "KILL", str(running.pid)])


@dataclass
class BareTopology:
    """As much of a topology as faults see."""

    all: Sequence[BareServer]

    def servers(self, node: Node) -> Sequence[BareServer]:
        return [server for server in self.all if server.node is node]

    def record(self) -> DeploymentRecord:
        servers = [ServerRecord(s.node.name, s.kind, s.node.address, {}, s.group, None) for s in self.all]
        return DeploymentRecord("bare", {s.node.name: s.node.address for s in self.all}, servers)


@contextmanager
def deployed(programs: Mapping[str, Sequence[str]], nodes: int = 1, clients: int = 0) -> Iterator[Deployment]:
    """A local cluster with these servers (kind -> argv) on each node, and nodes without any; nothing is started."""
    backend = LocalBackend()
    cluster = backend.provision(ClusterSpec(run_id=f"bare-{uuid4().hex[:10]}", nodes=nodes, clients=clients))
    try:
        servers = [BareServer(node, kind, argv) for node in cluster.nodes for kind, argv in programs.items()]
        topology: Any = BareTopology(servers)
        yield Deployment(cluster, topology)
    finally:
        cluster.destroy()
