# SPDX-License-Identifier: Apache-2.0
"""A real sshd on loopback, as a test's node. Needs the program sshd and nothing else; no root for most of it."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import paramiko

from infra.machines.control_log import ControlLog
from infra.machines.keys import KeyPair, new_key_pair
from infra.machines.node import RemoteNode
from infra.machines.remote.ssh import SshRemote
from infra.machines.remote.ssh_connection import Connection

_MOUNT = """
n=$1
shift
while [ "$n" -gt 0 ]; do
    mount -t tmpfs none "$1" || exit 1
    shift
    n=$((n - 1))
done
exec "$@"
"""


class Sshd:
    """One sshd with its own host key, port and authorized key. A context manager; `node()` gives a node for it.

    `private_folders`: folders that are empty file systems of their own for this sshd (needs root): several sshd
    then behave like several machines where files are concerned.
    """

    def __init__(
        self,
        folder: Path,
        *,
        address: str = "127.0.0.1",
        private_folders: tuple[str, ...] = (),
        client: KeyPair | None = None,
    ) -> None:
        self.folder, self.address = folder, address
        self.client: KeyPair = client or new_key_pair()
        self.host: KeyPair = new_key_pair()
        self.user = getpass.getuser()
        self.port = 0
        self._private = private_folders
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sshd:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, pair in (("client", self.client), ("host", self.host)):
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_bytes(pair.private)
        (self.folder / "authorized_keys").write_text(self.client.public + "\n")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it (again), on the port it had before if it had one."""
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own empty folder for privilege separation
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((self.address, self.port))
            self.port = probe.getsockname()[1]
        options = {
            "ListenAddress": self.address,
            "AuthorizedKeysFile": str(self.folder / "authorized_keys"),
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
            "MaxStartups": "100",
            "SetEnv": f"HOME={self.folder}",  # whatever the user's ~/.bashrc does, it is no part of the test
        }
        argv = [program, "-D", "-e", "-f", "/dev/null", "-h", str(self.folder / "host"), "-p", str(self.port)]
        for name, value in options.items():
            argv += ["-o", f"{name}={value}"]
        if self._private:
            argv = ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", str(len(self._private)), *self._private, *argv]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection((self.address, self.port), timeout=1).close()
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    output = (self.folder / "log").read_text(errors="replace")
                    self.stop()
                    raise RuntimeError(f"sshd does not start: {error}; {output}") from error
                time.sleep(0.02)

    def stop(self) -> None:
        """End the listening sshd and the sessions it has forked (its children)."""
        process, self._process = self._process, None
        if process is None:
            return
        for child in _children(process.pid):
            _kill(child)
        process.kill()
        process.wait()

    @property
    def spec(self) -> str:
        """As `ClusterSpec.hosts` wants it."""
        return f"{self.user}@{self.address}:{self.port}"

    @property
    def known_hosts_line(self) -> str:
        return f"[{self.address}]:{self.port} {self.host.public}\n"

    def node(self, name: str = "n1", control_log: ControlLog | None = None) -> RemoteNode:
        """A node that logs in here with the right keys."""
        return ssh_node(
            name,
            self.address,
            port=self.port,
            user=self.user,
            client_key=self.client.pkey,
            host_key=self.host.pkey,
            control_log=control_log,
        )


def ssh_node(
    name: str,
    address: str,
    *,
    client_key: paramiko.PKey,
    host_key: paramiko.PKey | None,
    host: str | None = None,
    port: int = 22,
    user: str = "root",
    control_log: ControlLog | None = None,
    sudo: bool = False,
    run_id: str = "",
) -> RemoteNode:
    """A node reached over SSH."""
    connection = Connection(name, host or address, port, user, client_key, host_key)
    return RemoteNode(name, address, SshRemote(connection, sudo=sudo), control_log=control_log, run_id=run_id)


def connection_of(node: RemoteNode) -> Connection:
    """The SSH connection of a node."""
    assert isinstance(node.remote, SshRemote)
    return node.remote.connection


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 9)
