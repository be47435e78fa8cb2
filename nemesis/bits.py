# SPDX-License-Identifier: Apache-2.0
"""Damaged files: a disk, its controller or memory silently changed them, and the server finds them at its next start.

The server is killed, bits of its files are flipped, or a file loses its end or is removed, and the server is started
again at the heal. The files stay as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Final, Literal

from harness.api import DATA, Evidence, Fault, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from harness.nemesis.targets import target_kinds
from infra.machines.api import Lease
from infra.machines.primitives import bits
from infra.machines.primitives.bits import FileKind
from infra.options import dump, option
from infra.systems.api import Deployment, Server
from nemesis.process import Kill
from results.strikes import Effect

Kind = Literal[
    "commitlog",
    "consumequeue",
    "index",
    "checkpoint",
    "epoch",
    "dledger-data",
    "dledger-index",
    "snapshot",
    "snapshot-meta",
    "any",
]

CONTROLLER: Final = "controller"


@dataclass(frozen=True)
class FlipOptions:
    """The options of the fault."""

    kind: Kind = option("any", "The files.  (any: one of the kinds that the server has)")
    part: bits.Part = option("body", "The part of the record; files without records have any alone.")
    where: bits.Where = option("last", "The newest record of a log, or random ones, for each bit another.")
    count: int = option(1, "Bits to flip on each node.", low=1, high=1000)

    def files(self, server: Server) -> Mapping[str, FileKind]:
        """Kind of file -> the files of a server that have such a part."""
        return {
            kind: found
            for kind, found in server.files.items()
            if self.kind in ("any", kind)
            and (self.part == "any" if found.layout is None else found.layout.has(self.part))
        }


class Damage(Kill):
    """SIGKILL, then changes files of the server while it is down; it starts again at the end, the files stay so."""

    def __init__(self, node: str, kind: str, others: bool, options: Any) -> None:
        """`kind`: of the server."""
        super().__init__(node, [kind], others)
        self.options = options

    @property
    def detail(self) -> Any:
        return {**super().detail, **dump(self.options)}

    @property
    def effects(self) -> Sequence[Effect]:
        return [*super().effects, Effect("data-damaged", self.node, tuple(self.kinds))]

    @abstractmethod
    def damage(self, server: Server) -> None:
        """Changes its files. Raises InfraError if it has nothing to change."""

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        lease = super().inject(deployment, ttl_s)
        if lease is None:
            return None
        try:
            self.damage(deployment.server(self.node, self.kinds[0]))
        except BaseException:
            lease.heal()
            raise
        return lease


class Flipped(Damage):
    """Flips bits."""

    action: ClassVar[str] = "SIGKILL, bits flipped, restart"

    def __init__(self, node: str, kind: str, others: bool, options: FlipOptions, seed: int) -> None:
        super().__init__(node, kind, others, options)
        self._seed = seed
        self.flips: list[bits.Flip] = []

    def damage(self, server: Server) -> None:
        options = self.options
        choice = bits.Choice(options.count, options.part, options.where, self._seed, options.files(server))
        self.flips = bits.flip_bits(server.node, server.data_dirs, choice)

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the process is gone, and if each byte reads back with its bit flipped."""
        killed = super().seen(deployment)
        if not self.struck:
            return killed
        now = bits.bytes_at(deployment.node(self.node), self.flips)
        flipped = bool(self.flips) and now == [flip.after for flip in self.flips]
        return Evidence(killed.seen and flipped, "; ".join([killed.what, *map(str, self.flips)]))

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if the server's process is back. Its reaction to the bits is not judged here."""
        back = super().healed(deployment)
        return replace(back, what="; ".join([back.what, *(f"stays: {flip}" for flip in self.flips)]))


class FlipBits(Fault):
    """Bits of files flip while the server that holds a node's data (or has the role) does not run."""

    name = "flip-bits"
    summary = "kills servers, flips bits in a chosen part of their files, and starts them again"
    Options: ClassVar[type] = FlipOptions
    default_target: ClassVar[str] = "one"

    def available(self, deployment: Deployment) -> str | None:
        """Tries the script, and checks if any server has such files."""
        servers = [server for server in deployment.servers() if server.files]
        if not any(self.options.files(server) for server in servers):
            there = sorted({kind for server in servers for kind in server.files})
            files = f"{self.options.kind} files with a part {self.options.part}"
            return f"no server of the topology {deployment.topology.name} has {files}; there are {', '.join(there)}"
        return next((why for node in deployment.nodes if (why := bits.why_not(node)) is not None), None)

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        """The server with the node's data, unless the target means another one."""
        one = target if target.kind is not None else Target(target.nodes, DATA)
        hit = {node: kinds[0] for node in target.nodes if (kinds := target_kinds(view, node, one))}
        if not hit:
            raise NoTarget(f"no server on {', '.join(target.nodes)} holds data")
        return {
            node: Flipped(node, kind, view.main.get(node) != kind, self.options, rng.getrandbits(32))
            for node, kind in hit.items()
        }


@dataclass(frozen=True)
class CutOptions:
    """The options of the fault."""

    kind: Kind = option("snapshot", "The files: of these, the one that was changed last.")
    loss: bits.Loss = option("torn", "torn: its second half is gone; empty: all its bytes; missing: the file itself.")


class Cut(Damage):
    """Cuts a file off, or removes it."""

    action: ClassVar[str] = "SIGKILL, a file cut off, restart"
    cut: bits.Cut | None = None

    def damage(self, server: Server) -> None:
        kind: str = self.options.kind
        self.cut = bits.cut_file(server.node, server.data_dirs, {kind: server.files[kind]}, self.options.loss)

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if the process is gone, and if the file still has its shortened length."""
        killed = super().seen(deployment)
        if not self.struck or self.cut is None:
            return killed
        now = bits.size_of(deployment.node(self.node), self.cut.file)
        return Evidence(killed.seen and now == self.cut.after, f"{killed.what}; {self.cut}")


class CutFile(Fault):
    """A file loses its end, or is removed, while the server with the role, or with such files, does not run."""

    name = "cut-file"
    summary = "kills servers, cuts off or removes the newest of their files of a kind, and starts them again"
    Options: ClassVar[type] = CutOptions
    default_target: ClassVar[str] = "one"

    def available(self, deployment: Deployment) -> str | None:
        if not any(self.options.kind in server.files for server in deployment.servers()):
            return f"no server of the topology {deployment.topology.name} has {self.options.kind} files"
        return next((why for node in deployment.nodes if (why := bits.why_not(node)) is not None), None)

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        """The servers that the target means; if it means nodes, those with the data, or the controllers there."""
        hit = {}
        for node in target.nodes:
            kinds = target_kinds(view, node, target if target.kind is not None else Target(target.nodes, DATA))
            there = kinds or [kind for kind in view.servers.get(node, ()) if kind == CONTROLLER]
            if there:
                hit[node] = there[0]
        if not hit:
            raise NoTarget(f"no server on {', '.join(target.nodes)} holds data")
        return {node: Cut(node, kind, view.main.get(node) != kind, self.options) for node, kind in hit.items()}
