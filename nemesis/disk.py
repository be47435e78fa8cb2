# SPDX-License-Identifier: Apache-2.0
"""Faults of disks: full, stalled, read-only, dead. Each acts on the file system of a node's data (`nemesis.volumes`).

The option `end` decides the end of a strike: the disk works again and the servers never stopped (`free`); or the
servers are killed, the file system is checked and mounted again, and they start (`kill`); or the node loses its power,
with all that was not synced (`power`). A disk that is read-only or dead cannot recover under its servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Literal

from harness.api import Evidence, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import Lease, ProcessId
from infra.machines.primitives import volume
from infra.options import dump, option
from infra.systems.api import Deployment
from nemesis.patience import eventually
from nemesis.process import Leases
from nemesis.volumes import VolumeFault, VolumeOptions, missing, restart, running, volume_of
from results.strikes import Effect, EffectKind

End = Literal["free", "kill", "power"]


class DiskTrouble(Injection):
    """One node's disk. inject, undo: commands of `infra/machines/scripts/volume.py`."""

    patience_s: float = 5.0

    def __init__(self, fault: DiskFault, node: str) -> None:
        self.fault, self.node = fault, node
        self.end: End = fault.options.end
        self.struck: dict[str, ProcessId] = {}

    @property
    def detail(self) -> Any:
        return dump(self.fault.options)

    @property
    def effects(self) -> Sequence[Effect]:
        more: list[EffectKind] = []
        if self.end == "power" or self.fault.dead:
            # A disk that cannot be repaired under the servers does not keep their present writes.
            more = ["unsynced-lost"]
        elif self.end == "kill":
            more = ["down"]  # at the end: without it, their end would be a finding
        first = Effect(self.fault.impairs, self.node, halted=self.fault.halts)
        return [first, *(Effect(kind, self.node) for kind in more)]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        """Takes the disk's lease first, so that it ends first: then the node's lease starts killed servers."""
        self.struck = running(deployment, self.node)
        hit, leases = volume_of(deployment, self.node), Leases()
        undo = self.fault.undo if self.end == "free" else "restore"
        leases.take(
            lambda: volume.hold(
                hit, self.fault.inject, undo, ttl_s, power=self.end == "power", left_mib=self.fault.left_mib
            )
        )
        if self.end != "free":
            leases.take(lambda: restart(deployment, self.node, ttl_s))
        return leases

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if a synced write of the probe has an expected result, and if the room left is as expected."""
        found = volume.state(volume_of(deployment, self.node))
        right = found["write"] in self.fault.writes and (
            self.fault.left_mib is None or found["free"] <= (self.fault.left_mib + 1) << 20
        )
        return Evidence(right, _describe(found))

    def healed(self, deployment: Deployment) -> Evidence:
        hit = volume_of(deployment, self.node)
        if not eventually(lambda: volume.state(hit)["write"] == "ok", self.patience_s):
            return Evidence(False, _describe(volume.state(hit)))
        # A server without an open file there was not killed: a name server, say.
        left = "" if self.end == "free" else missing(deployment, {self.node: dict.fromkeys(self.struck)})
        volume.mark([hit])
        return Evidence(not left, "; ".join(filter(None, [_describe(volume.state(hit)), left])))


class DiskFault(VolumeFault):
    """The base of all faults of disks. A role means its node."""

    inject: ClassVar[str]
    undo: ClassVar[str] = ""
    """Commands of the volume's script. undo: if the strike ends with the servers running."""
    writes: ClassVar[Sequence[str]]
    """The expected results of a synced write while the strike lasts."""
    impairs: ClassVar[EffectKind] = "slow"
    dead: ClassVar[bool] = False
    """True if data that the servers write meanwhile is gone afterwards."""
    halts: ClassVar[bool] = False
    """True if no write ends before the strike does."""
    default_target: ClassVar[str] = "leader"

    @property
    def left_mib(self) -> int | None:
        """The room that is left, in MiB, if the fault takes room."""
        return None

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        hit = [node for node in target.nodes if view.servers.get(node)]
        if not hit:
            raise NoTarget(f"no server runs on {', '.join(target.nodes)}")
        return {node: DiskTrouble(self, node) for node in hit}


@dataclass(frozen=True)
class FullOptions(VolumeOptions):
    """The options of the fault."""

    left: int = option(0, "MiB that are left.", low=0)
    end: End = option("free", "How it ends: space is freed; servers killed, disk checked; or a power failure.")


class DiskFull(DiskFault):
    """All but `left` MiB of the disk is taken."""

    name = "disk-full"
    summary = "fills the disk of a node's data"
    Options: ClassVar[type] = FullOptions
    inject: ClassVar[str] = "fill"
    undo: ClassVar[str] = "free"
    writes: ClassVar[Sequence[str]] = ("ENOSPC", "ok")
    impairs: ClassVar[EffectKind] = "disk-full"

    @property
    def left_mib(self) -> int | None:
        left: int = self.options.left
        return left


@dataclass(frozen=True)
class StallOptions(VolumeOptions):
    """The options of the fault."""

    end: End = option("free", "How it ends: the disk goes on; servers killed, disk checked; or a power failure.")


class DiskStall(DiskFault):
    """No write to the disk ends (fsfreeze); reads of uncached data may wait as well."""

    name = "disk-stall"
    summary = "stalls the disk of a node's data: no write ends"
    Options: ClassVar[type] = StallOptions
    inject: ClassVar[str] = "freeze"
    undo: ClassVar[str] = "thaw"
    writes: ClassVar[Sequence[str]] = ("frozen",)
    halts: ClassVar[bool] = True


@dataclass(frozen=True)
class DeadOptions(VolumeOptions):
    """The options of the fault."""

    end: Literal["kill", "power"] = option("kill", "How it ends: servers killed, disk checked; or a power failure.")


class DiskReadOnly(DiskFault):
    """The kernel finds an error in the file system and makes it read-only (`errors=remount-ro`)."""

    name = "disk-read-only"
    summary = "makes the file system of a node's data read-only, as after an error of the disk"
    Options: ClassVar[type] = DeadOptions
    inject: ClassVar[str] = "fail"
    writes: ClassVar[Sequence[str]] = ("EROFS",)
    impairs: ClassVar[EffectKind] = "disk-dead"
    dead: ClassVar[bool] = True


class DiskError(DiskFault):
    """Every access to the disk fails (EIO)."""

    name = "disk-error"
    summary = "lets the disk of a node's data fail: every access is an error (EIO)"
    Options: ClassVar[type] = DeadOptions
    inject: ClassVar[str] = "cut"
    writes: ClassVar[Sequence[str]] = ("EIO",)
    impairs: ClassVar[EffectKind] = "disk-dead"
    dead: ClassVar[bool] = True


def _describe(found: Mapping[str, Any]) -> str:
    return f"{found['device']}: a synced write: {found['write']}; {found['free'] / (1 << 20):.0f} MiB free"
