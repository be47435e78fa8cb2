# SPDX-License-Identifier: Apache-2.0
"""The common part of the backends that create their own machines (docker, local)."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Final

from infra.machines.api import ClusterSpec, InfraError, Node, NodeHost, NodeUnreachable
from infra.machines.control_log import ControlLog
from infra.machines.keys import ClusterKeys
from infra.machines.network import MAX_NODES
from infra.machines.node import RemoteNode
from infra.machines.ownership import slug
from infra.machines.primitives import control_groups
from infra.machines.remote.process import ProcessRemote
from results.cache import cache_dir

log = logging.getLogger("infra")
"""The log of steps that take long for a user (INFO)."""

SERVER: Final = "n"
CLIENT: Final = "c"
"""The first letter of the names of nodes with servers, and of nodes with clients."""

REACH_TIMEOUT_S: Final = 30.0
HOST_KEY: Final = "/etc/ssh/ssh_host_ed25519_key"


class OwnedCluster:
    """`infra.machines.api.Cluster` of nodes that the harness made: everything is permitted, `destroy` removes all."""

    destructive = True

    def __init__(
        self,
        backend: str,
        run_id: str,
        nodes: Sequence[Node],
        facts: Mapping[str, str],
        control_log: ControlLog,
        tear_down: Callable[[], None],
        pid_of: Callable[[str], int],
        detach: Callable[[str], None] | None = None,
    ) -> None:
        """`pid_of`: a process in a node's namespaces, by this machine's count, or InfraError. `detach`: makes the
        cluster outlive this process, with a note; None: it does already.
        """
        self._detach, self._pid_of = detach, pid_of
        self.backend, self.run_id, self.facts = backend, run_id, facts
        self.nodes: Sequence[Node] = [node for node in nodes if node.name.startswith(SERVER)]
        self.clients: Sequence[Node] = [node for node in nodes if node.name.startswith(CLIENT)]
        self._control_log, self._tear_down = control_log, tear_down
        self._lock = threading.Lock()
        self._gone = False

    def host(self, name: str) -> NodeHost:
        """This machine. Raises InfraError if the harness is not root, or the node is not on it."""
        if os.geteuid() != 0:
            raise InfraError(
                "file systems and control groups of nodes are managed by root of this machine: run as root"
            )
        pid = self._pid_of(name)
        folder = images_folder(self.backend, self.run_id) / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        here = RemoteNode(f"host of {name}", "", ProcessRemote(name), control_log=self._control_log, run_id=self.run_id)
        return NodeHost(here, pid, str(folder))

    def destroy(self) -> None:
        """Closes the nodes' connections, then removes them and their network. A failed attempt can be repeated."""
        self._end(self._tear_down)

    def keep(self, note: str) -> None:
        """Closes the nodes' connections, and lets the nodes live on."""
        self._end(lambda: self._detach(note) if self._detach is not None else None)

    def _end(self, how: Callable[[], None]) -> None:
        with self._lock:
            if self._gone:
                return
            for node in (*self.nodes, *self.clients):
                node.close()
            how()
            self._control_log.close()
            if self._control_log.failure is not None:
                log.warning("%s", self._control_log.failure)
            self._gone = True


def images_folder(backend: str, run_id: str) -> Path:
    """The folder of the images of a cluster's file systems on this machine."""
    return cache_dir() / "images" / f"{backend}-{slug(run_id)}"


def remove_images(backend: str, run_id: str) -> int:
    """Removes a cluster's images, and returns 1, or 0 if it has none. A mounted image lasts until its node ends, so the
    images go first: after an interrupted removal, the rest of the cluster is found, and no image is left here.
    """
    folder = images_folder(backend, run_id)
    if not folder.exists():
        return 0
    shutil.rmtree(folder)
    return 1


def remove_groups(run_id: str) -> None:
    """Removes the control groups of a cluster's strikes, once its nodes have ended."""
    done = subprocess.run(control_groups.clean_argv(run_id), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        log.warning("%s", done.stdout.strip())


def give_up(tear_down: Callable[[], None]) -> None:
    """Tears down after a failure without hiding it: further errors are only noted, and the janitor tries again."""
    try:
        tear_down()
    except InfraError as e:
        log.warning("clean-up after a failed start: %s", e)


def node_names(spec: ClusterSpec) -> list[str]:
    """`n1`, `n2`, ..., then `c1`, `c2`, ... Raises InfraError for an impossible number, or an invalid share."""
    if not 1 <= spec.nodes + spec.clients <= MAX_NODES:
        raise InfraError(f"{spec.nodes + spec.clients} nodes: a cluster has 1 to {MAX_NODES}")
    for share in spec.shares:
        if not share.source.is_dir():
            raise InfraError(f"the folder {share.source}, to be shared with the nodes, does not exist")
        if not PurePosixPath(share.path).is_absolute() or ".." in PurePosixPath(share.path).parts:
            raise InfraError(f"{share.path!r}: a share needs an absolute path on the nodes")
    return [f"{SERVER}{i + 1}" for i in range(spec.nodes)] + [f"{CLIENT}{i + 1}" for i in range(spec.clients)]


def hosts_file(addresses: Mapping[str, str]) -> bytes:
    """`/etc/hosts` with all nodes: names are known without any DNS."""
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
    return ("\n".join(lines) + "\n").encode()


RESOLV_CONF: Final = b"nameserver 127.0.0.1\n"
"""Names a missing name server: unknown names fail at once, instead of after 10 to 20 s."""


def make_nodes(addresses: Mapping[str, str], keys: ClusterKeys, control_log: ControlLog) -> list[RemoteNode]:
    """The nodes, reachable over SSH; none is connected yet."""
    from infra.machines.remote.ssh import SshRemote
    from infra.machines.remote.ssh_connection import Connection

    client = keys.client.pkey

    def made(name: str, address: str) -> RemoteNode:
        remote = SshRemote(Connection(name, address, 22, "root", client, keys.hosts[name].pkey))
        return RemoteNode(name, address, remote, control_log=control_log)

    return [made(name, address) for name, address in addresses.items()]


def reach(nodes: Sequence[Node], why_not: Callable[[str], str | None], timeout_s: float = REACH_TIMEOUT_S) -> None:
    """Waits until every node takes commands over SSH.

    `why_not(name)` returns one line why a node never will (it died, and said so), or None while it still may.
    Raises InfraError at the first node that will not, or at the deadline.
    """
    until = time.monotonic() + timeout_s

    def one(node: Node) -> None:
        while True:
            try:
                node.run(["true"], timeout_s=5)
                return
            except NodeUnreachable as e:
                reason = why_not(node.name)
                if reason is not None:
                    raise InfraError(f"{node.name} did not come up: {reason}") from e
                if time.monotonic() > until:
                    raise InfraError(f"{node.name} did not answer within {timeout_s:.0f} s: {e}") from e
            time.sleep(0.02)

    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(one, nodes))
