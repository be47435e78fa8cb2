# SPDX-License-Identifier: Apache-2.0
"""Servers of a few lines on real nodes: they are started, stopped, asked and changed as RocketMQ's, without Java."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.machines.api import Cluster, InfraError, Node, ProcessId
from infra.machines.node import spawn_argv
from infra.machines.primitives.bits import FileKind
from infra.systems.api import Deployment, Launch, Status
from infra.systems.rocketmq.protocol.codes import RELEASES
from infra.systems.rocketmq.store.layouts import BROKER_FILES
from infra.systems.rocketmq.topologies.administration import RocketmqAdmin
from results.deployment import DeploymentRecord, ServerRecord

HOME = "/var/lib/harness"
NUMBERS = {release: number for number, release in RELEASES.items()}

_SERVER = r"""
import re, socket, sys, threading
port, version, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with open(file) as lines:
    settings = dict(line.strip().split("=", 1) for line in lines)

def talk(connection):
    with connection, connection.makefile("rb") as asked:
        while len(length := asked.read(4)) == 4:
            frame = asked.read(int.from_bytes(length, "big"))
            head = int.from_bytes(frame[1:4], "big")
            code, opaque = (re.search(rb'"%s":(\d+)' % name, frame)[1].decode() for name in (b"code", b"opaque"))
            if code == "25":    # UPDATE_BROKER_CONFIG: what is unknown is ignored in silence
                given = dict(line.split("=", 1) for line in frame[4 + head:].decode().splitlines())
                settings.update({name: value for name, value in given.items() if name in settings})
                with open(file, "w") as lines:
                    lines.write("".join(f"{name}={value}\n" for name, value in settings.items()))
            body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
            header = ('{"code":0,"flag":1,"opaque":%s,"version":%d}' % (opaque, version)).encode()
            sizes = (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big")
            connection.sendall(sizes + header + body)

listener = socket.create_server(("0.0.0.0", port))
while True:
    threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()
"""


@dataclass(eq=False)
class ToyServer:
    """Implements `infra.systems.api.Server`: it speaks RocketMQ's protocol, and keeps its settings in a file."""

    node: Node
    kind: str
    port: int
    group: str | None = None
    files: Mapping[str, FileKind] = field(default_factory=lambda: BROKER_FILES)

    def __post_init__(self) -> None:
        self.launch = Launch(version="5.5.0")
        self.ports = {self.kind: self.port}
        self.data_dirs = [f"{HOME}/data/{self.kind}"]
        self.settings_file = f"{HOME}/log/{self.kind}.properties"
        # All of them are asked as brokers are.
        self.admin = RocketmqAdmin(self.node, "broker", self.port, self.settings_file)

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.node.address, self.port

    def furnish(self) -> None:
        self.node.run(["mkdir", "-p", *self.data_dirs, f"{HOME}/log"])
        self.node.write(self.settings_file, b"sendThreads=4\nslaveReadEnable=true\n")

    def start(self) -> None:
        self.node.run(self.start_command())

    def start_command(self) -> Sequence[str]:
        argv = ["python3", "-c", _SERVER, str(self.port), str(NUMBERS[self.launch.version or ""]), self.settings_file]
        log, pidfile = f"{HOME}/log/{self.kind}.log", f"{HOME}/{self.kind}.pid"
        return ["flock", "-o", f"{HOME}/{self.kind}.lock", *spawn_argv(argv, env={}, log=log, pidfile=pidfile)]

    def stop(self, timeout_s: float = 20) -> None:
        running = self.process()
        if running is not None:
            self.node.run(["kill", "-s", "KILL", str(running.pid)])

    def process(self) -> ProcessId | None:
        return self.node.process(f"{HOME}/{self.kind}.pid")

    def last_words(self) -> str:
        return self.node.run(["cat", f"{HOME}/log/{self.kind}.log"]).text


class ToyTopology:
    """A name server on the first node, and a broker on each."""

    name = "toy"
    refuses = False
    """True if the controllers refuse to forget a member."""

    def __init__(self, cluster: Cluster) -> None:
        self._servers = {
            node.name: [
                *([ToyServer(node, "namesrv", 9876, files={})] if node is cluster.nodes[0] else []),
                ToyServer(node, "broker", 10911, group="a"),
            ]
            for node in cluster.nodes
        }

    def servers(self, node: Node) -> Sequence[Any]:
        return self._servers[node.name]

    def forget(self, node: Node, timeout_s: float) -> str:
        if self.refuses:
            raise InfraError(f"{node.name} lives")
        return f"the controllers forgot {node.name}"

    async def observe(self, node: Node, timeout_s: float) -> Status:
        running = any(server.group and server.process() for server in self._servers[node.name])
        return Status("follower" if running else "silent", extra={"broker_id": 2} if running else {})

    def keeps_address(self, node: str) -> str | None:
        return "its namesrv is known by it" if len(self._servers[node]) > 1 else None

    def readdress(self, node: Node) -> None:
        for server in self._servers[node.name]:
            server.furnish()

    def record(self) -> DeploymentRecord:
        servers = [ServerRecord(node, s.kind, group=s.group) for node, some in self._servers.items() for s in some]
        return DeploymentRecord(self.name, dict.fromkeys(self._servers, ""), servers, {"a": list(self._servers)})


def deployed(cluster: Cluster) -> Deployment:
    """All servers furnished and started; they answer a moment later."""
    deployment = Deployment(cluster, ToyTopology(cluster))  # type: ignore[arg-type]
    for server in deployment.servers():
        server.furnish()  # type: ignore[attr-defined]
        server.start()
    return deployment
