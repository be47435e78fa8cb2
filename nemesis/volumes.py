# SPDX-License-Identifier: Apache-2.0
"""Volumes for faults of power and of disks: each node's data has its own file system, made before servers start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.api import Fault
from infra.machines.api import InfraError, Lease, ProcessId
from infra.machines.primitives import volume
from infra.machines.primitives.process import until_it_listens
from infra.machines.primitives.volume import Data, Volume
from infra.options import option
from infra.systems.api import STARTED_AGAIN, Deployment, Server, ServersRun
from infra.systems.java import DATA
from nemesis.patience import eventually


@dataclass(frozen=True)
class VolumeOptions:
    """The options of all faults that need volumes."""

    size: int = option(1024, "MiB of the file system that holds a node's data (sparse).", low=64, high=1 << 20)


def volume_of(deployment: Deployment, node: str) -> Volume:
    """The volume of a node's data. Raises InfraError if the node's host is not available."""
    return Volume(node, deployment.cluster.host(node), DATA)


class VolumeFault(Fault):
    """A fault that needs volumes: it makes them before servers start, and is not available on hosts without them."""

    @property
    def data(self) -> Data | None:
        """The mode of the journal that it needs; None: any."""
        return None

    def available(self, deployment: Deployment) -> str | None:
        try:
            hosts = {
                host.node.name if host.pid is None else "": host
                for host in (deployment.cluster.host(node.name) for node in deployment.nodes)
            }
        except InfraError as problem:
            return str(problem)
        found = (volume.why_not(host, self.data) for host in hosts.values())
        return next((why for why in found if why is not None), None)

    def prepare(self, deployment: Deployment) -> None:
        """Makes the volumes. Idempotent: several faults of a plan share them; the first one's size counts, and the last
        mode of the journal that one of them needs. Raises InfraError, and ServersRun if servers run on other volumes.
        """

        def one(name: str) -> None:
            running = [server.kind for server in deployment.servers(name) if server.process() is not None]
            mine = volume_of(deployment, name)
            mode = volume.data_mode(mine)
            if running and mode is None:
                raise ServersRun(f"{name}: its {running[0]} runs, and its data is not on a file system of its own")
            if running and self.data not in (None, mode):
                raise ServersRun(f"{name}: its {running[0]} runs, and its data is on a file system with data={mode}")
            volume.attach(mine, self.options.size, self.data)

        with ThreadPoolExecutor(len(deployment.nodes)) as pool:
            list(pool.map(one, [node.name for node in deployment.nodes]))


def running(deployment: Deployment, node: str) -> dict[str, ProcessId]:
    """Kind of server -> its process, of the servers that run on a node."""
    found = ((server.kind, server.process()) for server in deployment.servers(node))
    return {kind: process for kind, process in found if process is not None}


def restart(deployment: Deployment, node: str, ttl_s: float) -> Lease:
    """Starts the servers of a node when the lease ends, on the node itself, once its data can be written. Those that
    may end because the brokers are not there yet are started again (`STARTED_AGAIN`).
    """
    starts = [_start(server) for server in deployment.servers(node)]
    return deployment.node(node).lease([], starts, ttl_s=ttl_s)


def _start(server: Server) -> Sequence[str]:
    command = volume.when_usable(DATA, server.start_command())
    return until_it_listens(server.endpoint, command) if server.kind in STARTED_AGAIN else command


def missing(
    deployment: Deployment, before: Mapping[str, Mapping[str, ProcessId | None]], return_s: float = 10.0
) -> str:
    """Names the servers without a new process `return_s` after their restart; empty if all have one. before: node ->
    kind -> the process that ended, or None where it may have gone on.
    """
    left = {(name, kind): process for name, found in before.items() for kind, process in found.items()}

    def all_back() -> bool:
        for name, kind in list(left):
            now = deployment.server(name, kind).process()
            if now is not None and now != left[name, kind]:
                del left[name, kind]
        return not left

    if eventually(all_back, return_s):
        return ""
    return f"no process {return_s:g} s after the restart: {', '.join(f'{n} {k}' for n, k in left)}; see its log"
