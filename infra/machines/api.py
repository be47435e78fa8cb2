# SPDX-License-Identifier: Apache-2.0
"""The interfaces of machines: nodes, leases, clusters, backends.

`infra/` does not know why a server is stopped. Higher layers do not know the way of a command to a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from results.errors import ExpectedError, UsageError

BACKENDS: Final = "harness.clusters"
"""The entry points through which backends are found."""


class InfraError(ExpectedError):
    """A failure of machines or servers. The text is one line: the failure, its place, and the remedy."""


class SettingsError(InfraError, UsageError):
    """A version, a setting or a number of nodes is not possible for these servers, on any machine."""


class NodeUnreachable(InfraError):
    """A node did not take or finish a command in time: it may or may not have run."""


class CommandFailed(InfraError):
    """A command ended with another exit code than 0."""

    def __init__(self, node: str, result: Completed) -> None:
        self.node, self.result = node, result
        output = (result.stderr or result.stdout).decode(errors="replace").strip().splitlines()
        super().__init__(
            f"{node}: {shown(result.argv)} ended with {result.code}: {output[-1] if output else 'no output'}"
        )


def shown(argv: Sequence[str]) -> str:
    """A command in a message: quoted, in one line, at most 120 characters. A shell script is shown as `$0`."""
    words = argv[3:] if list(argv[1:2]) == ["-c"] and len(argv) > 3 else argv
    line = " ".join(" ".join(words).split())
    return repr(line if len(line) <= 120 else line[:117] + "...")


@dataclass(frozen=True)
class Completed:
    """A finished command. `stdout` and `stderr` are cut at 16 MiB each (then `truncated` is true)."""

    argv: Sequence[str]
    code: int
    stdout: bytes
    stderr: bytes
    ms: float
    truncated: bool = False

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")


@dataclass(frozen=True)
class ProcessId:
    """A process on a node, distinct from a later one with its number: pid, and start time (ticks since boot)."""

    pid: int
    started: int


class Lease(Protocol):
    """A fault held on a node. It ends - the undo runs *on the node* - at `heal`, at the end of its time to live, or
    as soon as the control program is gone (its SSH connection closes), whichever comes first.
    """

    def heal(self, timeout_s: float = 30) -> None:
        """Runs the undo now and waits for its success. Idempotent. Raises InfraError if the undo failed."""


class Node(Protocol):
    """One machine: `n1`, `n2`, ... All commands are argv lists; no shell ever sees a value."""

    name: str
    address: str
    """The address for the other nodes and the control node (IPv4). It may change during a run
    (`infra.machines.primitives.addresses`): read it again each time.
    """

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30, check: bool = True) -> Completed:
        """Runs a command to its end, stdout and stderr drained together. Raises CommandFailed (check) or
        NodeUnreachable.

        The command is also ended on the node at the deadline (`timeout -k`).
        """

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Writes a whole file (temporary name, rename), and makes its folder if missing."""

    def read(self, path: str, limit: int = 64 << 20) -> bytes: ...

    def fetch(self, remote_dir: str, local_dir: Path, limit: int = 256 << 20) -> list[Path]:
        """Copies a folder of plain files here (for logs), sub-folders too; of a file with more than `limit` bytes its
        beginning and its end, with a line between that gives the number of missing bytes.
        """

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: str, pidfile: str) -> ProcessId:
        """Starts a daemon in its own session, stdout+stderr appended to `log`; it survives this connection."""

    def process(self, pidfile: str) -> ProcessId | None:
        """The running process that `spawn` noted in `pidfile`, or None if it is gone."""

    def lease(self, inject: Sequence[Sequence[str]], undo: Sequence[Sequence[str]], *, ttl_s: float) -> Lease:
        """Runs the `inject` commands on the node and holds them; see `Lease`. All of `undo` run even if one fails.

        Raises InfraError if an inject command failed (then the undo has run).
        """

    def close(self) -> None: ...


@dataclass(frozen=True)
class NodeHost:
    """The machine whose kernel a node runs on: there file systems are mounted and cut off, and control groups set.

    node    for commands and leases on it, as root; if the node is a machine, the node itself.
    pid     of a process in the node's namespaces, by the host's count; None: the node is the whole machine.
    folder  on it, for the node's images; the cluster's end removes it.
    """

    node: Node
    pid: int | None
    folder: str


@dataclass(frozen=True)
class Share:
    """A folder of the control node that every node has read-only at `path` (bind mount, or copied by SFTP)."""

    source: Path
    path: str


@dataclass(frozen=True)
class ClusterSpec:
    """The cluster to provision. `control_log`: the file every command is noted in (`control.jsonl`: node, argv, code,
    ms).

    clients  further nodes, without servers: programs of applications run there.
    options  the backend's own (`Backend.Options`); None: their defaults.
    """

    run_id: str
    nodes: int = 5
    shares: Sequence[Share] = ()
    control_log: Path | None = None
    clients: int = 0
    options: Any = None


@dataclass(frozen=True)
class Capability:
    """A capability of this machine: whether it exists, the reason if not, and the remedy."""

    ok: bool
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Leftover:
    """Things that an earlier run left on this machine.

    alive   a process owns it or uses it now, so it must stay.
    kept    it is meant to outlive the run that made it (`Cluster.keep`).
    broken  why it cannot be identified or removed; empty if it can.
    """

    backend: str
    run_id: str
    what: str
    alive: bool
    kept: bool = False
    broken: str = ""


class Cluster(Protocol):
    """Provisioned nodes. `facts` goes to the run's environment (backend, image hash, engine version, ...).

    nodes    those of the servers: `n1`, `n2`, ... clients: those of applications: `c1`, `c2`, ...
    """

    backend: str
    run_id: str
    nodes: Sequence[Node]
    clients: Sequence[Node]
    facts: Mapping[str, str]
    destructive: bool
    """True if faults that stop processes or cut networks are permitted here."""

    def host(self, name: str) -> NodeHost:
        """The host of a node. Raises InfraError if the harness is not root there: the reason, and the remedy."""

    def destroy(self) -> None:
        """Removes everything of this cluster (releases one that is reused). Idempotent; safe when half provisioned."""

    def keep(self, note: str) -> None:
        """Used in place of `destroy`: lets it live on without this process, for `Backend.reuse`. `note` is the
        caller's. Raises InfraError if the backend does not support it.
        """


class Backend(Protocol):
    """A way to get machines. Found through the entry points `harness.clusters`; constructed without arguments."""

    name: str
    Options: ClassVar[type]
    """See `infra.options`."""
    auto_rank: ClassVar[int | None]
    """Its place among the backends that `--cluster auto` tries; None: it is never tried."""
    keeps: ClassVar[bool]
    """True if its clusters can outlive a run (`Cluster.keep`)."""
    makes_clients: ClassVar[bool]
    """True if it can make nodes for clients (`ClusterSpec.clients`)."""

    def nodes_of(self, options: Any) -> int | None:
        """The number of machines that its options name, or None."""

    def check(self, options: Any, nodes: int, destructive: bool) -> None:
        """Raises SettingsError for a request that no machine can fulfil: options that do not fit one another, or faults
        that stop servers and cut networks (`destructive`) on machines that are not released for them.
        """

    def probe(self) -> Capability: ...

    def provision(self, spec: ClusterSpec) -> Cluster:
        """Returns nodes that run and are reachable over SSH, or raises InfraError with everything cleaned up."""

    def reuse(self, spec: ClusterSpec) -> Cluster:
        """The kept cluster `spec.run_id`; only `control_log` counts besides. Raises InfraError if gone or in use."""

    def leftovers(self) -> list[Leftover]:
        """The leftovers of all runs, living ones included. Raises InfraError if they cannot be listed."""

    def clean(self, run_id: str) -> None:
        """Removes all that the run left, a kept cluster too. Idempotent. Raises InfraError while a process uses it."""


@runtime_checkable
class Imaged(Protocol):
    """A backend that makes its nodes from the harness' image: their programs are known before they exist."""

    def image(self, options: Any) -> str | None:
        """The id of the image: it differs if the nodes' programs may. None: another image, or not made yet."""
