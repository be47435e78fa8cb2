# SPDX-License-Identifier: Apache-2.0
"""The ssh backend: existing machines, named by `--node [user@]host[:port]`.

The machines have owners, so this backend acts only with permission. It installs software only with `--install`.
It permits faults that stop processes or cut networks only with `--disposable`. A machine's host key must already be
known. All files of the harness on a host are in two folders (`ROOTS`), and a marker file in each contains the run's id.
Folders of other owners are rejected. `destroy` removes exactly the marked folders, the servers started from there, and
the packet rules of the harness.

A record of each run (`run_records`) lets `harness clean` find the hosts of a run whose control program was killed. A
fault ends by its lease on the host itself. If the connection was lost silently, the guard may live longer than the run,
up to its time to live. For this reason, a release of a host ends the guards of the run first.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from infra.machines.api import (
    Capability,
    Cluster,
    ClusterSpec,
    CommandFailed,
    InfraError,
    Leftover,
    Node,
    NodeHost,
    SettingsError,
    Share,
)
from infra.machines.backends import ssh_folders
from infra.machines.backends.run_records import RunRecords
from infra.machines.backends.ssh_folders import ROOTS
from infra.machines.claims import Claim
from infra.machines.control_log import ControlLog
from infra.machines.node import RemoteNode
from infra.options import option

if TYPE_CHECKING:
    import paramiko

log = logging.getLogger("infra")

PROGRAMS: Final[Mapping[str, str]] = {
    "bash": "bash",
    "find": "findutils",
    "grep": "grep",
    "awk": "mawk",
    "mountpoint": "util-linux",
    "timeout": "coreutils",
    "setsid": "util-linux",
    "flock": "util-linux",
    "fincore": "util-linux-extra",
    "nft": "nftables",
    "java": "openjdk-17-jre-headless",
}
"""The programs that a host must have: program -> Debian's package (Debian 12)."""

_INSTALL_S: Final = 900
_RECORDS: Final = RunRecords("ssh", "on existing machines", ("hosts", "ssh_key"))
_DEFAULT_KEYS: Final = ("id_ed25519", "id_ecdsa", "id_rsa")
_HOST: Final = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")

_MISSING = 'for name; do command -v "$name" > /dev/null || echo "$name"; done'


@dataclass(frozen=True)
class Host:
    """One `[user@]host[:port]`, with the IPv4 address its name has now."""

    user: str
    host: str
    port: int
    address: str

    @classmethod
    def parse(cls, text: str) -> Host:
        """Raises InfraError if the text names no host, or the name does not resolve."""
        match = _HOST.fullmatch(text)
        port = int(match["port"] or 22) if match else 0
        if match is None or not 0 < port < 65536:
            raise InfraError(f"--node {text!r}: expected [user@]host[:port]")
        try:
            found = socket.getaddrinfo(match["host"], port, socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:
            raise InfraError(f"--node {text}: no IPv4 address of {match['host']!r} is known ({error})") from error
        return cls(match["user"] or "root", match["host"], port, str(found[0][4][0]))

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


class SshCluster:
    """Existing machines, claimed for one run. See `infra.machines.api.Cluster`; `destructive`: `--disposable`."""

    backend = "ssh"

    def __init__(
        self,
        run_id: str,
        nodes: Sequence[RemoteNode],
        facts: Mapping[str, str],
        destructive: bool,
        control_log: ControlLog,
    ) -> None:
        self.run_id, self.facts, self.destructive = run_id, facts, destructive
        self.nodes: Sequence[Node] = nodes
        self.clients: Sequence[Node] = ()
        self._ssh, self._control_log = nodes, control_log
        self._lock = threading.Lock()
        self._gone = False
        self.claim: Claim | None = None
        """The claim on the run's record; released with the hosts."""

    def host(self, name: str) -> NodeHost:
        """The machine itself. Raises InfraError if the harness is not root there."""
        node = next(node for node in self.nodes if node.name == name)
        if node.run(["id", "-u"]).text.strip() != "0":
            raise InfraError(
                f"{name}: file systems and control groups are managed by root: name it with --node root@..."
            )
        return NodeHost(node, None, ssh_folders.IMAGES)

    def copy(self, shares: Sequence[Share]) -> None:
        """Makes the shares' folders on all hosts like their sources; only differences are sent."""
        _on_all(self._ssh, lambda node: ssh_folders.copy(node, shares))

    def keep(self, note: str) -> None:
        """Raises InfraError: foreign machines must be left in their former state."""
        raise InfraError("existing machines cannot be kept: the harness leaves nothing on them")

    def destroy(self) -> None:
        """Heals all held faults, ends the servers, removes the harness' folders and rules. Raises InfraError (first
        failure) after having tried every host; then it can be repeated, and `harness clean` knows the hosts.
        """
        with self._lock:
            if self._gone:
                return
            try:
                _on_all(self._ssh, lambda node: ssh_folders.release(node, self.run_id))
            except InfraError as error:
                raise InfraError(
                    f"{error}; run {self.run_id} has a record: `harness clean` removes its remains as soon as "
                    f"that is possible (if it is gone permanently: remove {_RECORDS.path_of(self.run_id)})"
                ) from error
            finally:
                for node in self.nodes:
                    node.close()
                self._control_log.close()
            if self._control_log.failure is not None:
                log.warning("%s", self._control_log.failure)
            _RECORDS.path_of(self.run_id).unlink(missing_ok=True)
            if self.claim is not None:
                self.claim.release()
            self._gone = True


@dataclass(frozen=True)
class SshOptions:
    """The options of the backend."""

    hosts: tuple[str, ...] = option((), "An existing machine (repeat).", metavar="[USER@]HOST[:PORT]", flag="--node")
    ssh_key: str | None = option(None, "The private key file.  [default: a usual one of ~/.ssh]", metavar="FILE")
    install: bool = option(False, "Allow the harness to install missing software on the machines.", permission=True)
    disposable: bool = option(False, "Allow destructive faults on the machines.", permission=True)


class SshBackend:
    """See the module. `programs`: the required programs of the hosts (program -> Debian package)."""

    name = "ssh"
    Options: ClassVar[type] = SshOptions
    auto_rank: ClassVar[int | None] = None
    keeps: ClassVar[bool] = False
    makes_clients: ClassVar[bool] = False

    def __init__(self, programs: Mapping[str, str] = PROGRAMS) -> None:
        self._programs = programs

    def probe(self) -> Capability:
        """Always possible; the hosts are probed once they are named."""
        return Capability(True, "needs machines that run sshd: name each with --node [user@]host[:port]")

    def nodes_of(self, options: SshOptions) -> int | None:
        return len(options.hosts) or None

    def check(self, options: SshOptions, nodes: int, destructive: bool) -> None:
        if not options.hosts:
            raise SettingsError("--cluster ssh needs machines: name each with --node [user@]host[:port]")
        if destructive and not options.disposable:
            raise SettingsError(
                "faults would stop servers or cut networks of machines that are not marked disposable; "
                "mark them with --disposable, or run with --nemesis none"
            )
        if len(options.hosts) != nodes:
            raise SettingsError(
                f"nodes is {nodes}, but {len(options.hosts)} machines are named; one --node for each is right"
            )

    def reuse(self, spec: ClusterSpec) -> Cluster:
        """Raises InfraError: see `SshCluster.keep`."""
        raise InfraError("existing machines cannot be kept; name them again with --node")

    def provision(self, spec: ClusterSpec) -> Cluster:
        """One node per host, in their order (`spec.nodes` is ignored). Raises InfraError, with unchanged hosts."""
        options: SshOptions = spec.options or SshOptions()
        hosts = [Host.parse(text) for text in options.hosts]
        _check_distinct(hosts)
        for share in spec.shares:
            ssh_folders.check_share(share)
        path, key = _client_key(Path(options.ssh_key) if options.ssh_key else None)
        record = _RECORDS.path_of(spec.run_id)
        if record.exists():
            raise InfraError(f"run {spec.run_id} has hosts already: `harness clean` removes what a dead run left there")
        control_log = ControlLog(spec.control_log)
        nodes = _nodes(hosts, key, control_log, spec.run_id)
        cluster = SshCluster(spec.run_id, nodes, _facts(hosts), options.disposable, control_log)
        try:
            _on_all(nodes, lambda node: self._check_programs(node, options.install))
            cluster.claim = Claim.take(_RECORDS.claim_of(record))
            _RECORDS.write(record, spec.run_id, hosts=[str(host) for host in hosts], ssh_key=str(path))
            _on_all(nodes, lambda node: ssh_folders.claim(node, spec.run_id))
            cluster.copy(spec.shares)
        except BaseException:
            if cluster.claim is not None and record.exists():  # the record belongs to this run
                _quietly(cluster.destroy)
            for node in nodes:
                node.close()
            if cluster.claim is not None:
                cluster.claim.release()
            raise
        return cluster

    def leftovers(self) -> list[Leftover]:
        """Returns leftovers of this machine's runs on hosts, by the records in the cache folder alone."""
        return _RECORDS.leftovers(lambda record: f"folders {' '.join(ROOTS)} on {', '.join(record['hosts'])}")

    def clean(self, run_id: str) -> None:
        """Removes all that a dead run left on its hosts. Raises InfraError while it lives, or if a host is silent."""
        path = _RECORDS.path_of(run_id)
        if not path.exists():
            return
        record = _RECORDS.read(path)
        try:
            claim = Claim.take(_RECORDS.claim_of(path))
        except InfraError as problem:
            raise InfraError(f"run {run_id} is still running on {', '.join(record['hosts'])}: {problem}") from None
        try:
            try:
                hosts = [Host.parse(text) for text in record["hosts"]]
                _, key = _client_key(Path(record["ssh_key"]))
            except InfraError as error:
                raise InfraError(f"{error}; it is named in the record {path}") from error
            nothing = ControlLog(None)
            nodes = _nodes(hosts, key, nothing, run_id)
            SshCluster(run_id, nodes, {}, destructive=False, control_log=nothing).destroy()
        finally:
            claim.release()

    def _check_programs(self, node: RemoteNode, install: bool) -> None:
        """Checks that a host is reachable, as root (or by sudo), with all programs. InfraError names missing ones."""
        uid = node.run(["id", "-u"], check=False)
        if uid.text.strip() != "0":
            output = uid.stderr.decode(errors="replace").strip().splitlines()
            raise InfraError(
                f"{node.name}: {node.remote.where} has no root rights ({output[-1] if output else 'not root'}); "
                "log in as root, or let the user run sudo without a password"
            )
        missing = self._missing(node)
        if not missing:
            return
        packages = sorted({self._programs[name] for name in missing})
        if not install:
            raise InfraError(
                f"{node.name}: {node.remote.where} lacks {', '.join(missing)}; --install would run there: "
                f"apt-get install {' '.join(packages)}"
            )
        apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qy"]
        try:
            node.run([*apt, "update"], timeout_s=_INSTALL_S)
            node.run([*apt, "install", "--no-install-recommends", *packages], timeout_s=_INSTALL_S)
        except CommandFailed as error:
            raise InfraError(f"{node.name}: cannot install {' '.join(packages)}: {error}") from error
        if still := self._missing(node):
            raise InfraError(f"{node.name}: still lacks {', '.join(still)} after installing {' '.join(packages)}")

    def _missing(self, node: RemoteNode) -> list[str]:
        return node.run(["sh", "-c", _MISSING, "missing", *self._programs]).text.split()


def _check_distinct(hosts: Sequence[Host]) -> None:
    if not hosts:
        raise InfraError("--cluster ssh needs machines: name each with --node [user@]host[:port]")
    seen: dict[str, Host] = {}
    for host in hosts:
        if host.address in seen:
            raise InfraError(f"--node {host} and --node {seen[host.address]} are the same machine ({host.address})")
        seen[host.address] = host


def _client_key(path: Path | None) -> tuple[Path, paramiko.PKey]:
    """The user's private key: the named one, else the first usual one that exists. Raises InfraError."""
    import paramiko
    from cryptography.exceptions import UnsupportedAlgorithm

    home = Path("~/.ssh").expanduser()
    usual = [home / name for name in _DEFAULT_KEYS]
    chosen = path or next((p for p in usual if p.exists()), None)
    if chosen is None:
        raise InfraError(f"no SSH key: none of {', '.join(map(str, usual))} exists; name one with --ssh-key")
    chosen = chosen.expanduser().absolute()
    try:
        return chosen, paramiko.PKey.from_path(chosen)
    except OSError as error:
        raise InfraError(f"cannot read the SSH key {chosen}: {error.strerror}") from error
    except (paramiko.PasswordRequiredException, TypeError) as error:
        raise InfraError(f"the SSH key {chosen} has a passphrase; name one without (--ssh-key)") from error
    except (paramiko.SSHException, ValueError, UnsupportedAlgorithm) as error:
        raise InfraError(f"{chosen} is not a readable private SSH key: {error}") from error


def _nodes(hosts: Sequence[Host], key: paramiko.PKey, control_log: ControlLog, run_id: str) -> list[RemoteNode]:
    from infra.machines.remote.ssh import SshRemote
    from infra.machines.remote.ssh_connection import Connection

    def made(name: str, host: Host) -> RemoteNode:
        connection = Connection(name, host.host, host.port, host.user, key, None)
        remote = SshRemote(connection, sudo=host.user != "root")
        return RemoteNode(name, host.address, remote, control_log=control_log, run_id=run_id)

    return [made(f"n{i}", host) for i, host in enumerate(hosts, 1)]


def _facts(hosts: Sequence[Host]) -> dict[str, str]:
    return {"backend": "ssh", "hosts": " ".join(map(str, hosts))}


_T = TypeVar("_T")


def _on_all(nodes: Sequence[RemoteNode], work: Callable[[RemoteNode], _T]) -> list[_T]:
    """Calls `work` on all nodes at once; all have ended when this returns or raises the first failure."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        futures = [pool.submit(work, node) for node in nodes]
    return [future.result() for future in futures]


def _quietly(tear_down: Callable[[], None]) -> None:
    """Tears down after a failure without hiding it. Leftovers stay on record, for `harness clean`."""
    try:
        tear_down()
    except InfraError:
        return
