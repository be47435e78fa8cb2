# SPDX-License-Identifier: Apache-2.0
"""Slow disks: the device under a node's data takes few accesses, or few bytes, a second. The servers work on, late.

The limits are those of the block-IO controller of the node's host (`infra/machines/scripts/throttle.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final

from harness.api import Evidence, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease
from infra.machines.primitives import volume
from infra.machines.primitives.volume import Speed
from infra.options import Size, option
from infra.systems.api import Deployment
from nemesis.patience import eventually
from nemesis.volumes import VolumeFault, VolumeOptions, volume_of
from results.strikes import Effect

_SHARE: Final = 0.7
"""The share of the time that a limit implies. The kernel counts in slices of some 100 ms, and the first one is free."""
_SLOWER: Final = 1.2
"""The factor by which everything must take longer than before: a limit that the disk never reaches has no effect."""
_TRIES: Final = 3
"""Measurements of the speed before, if the first one is not well above the limits."""
_LOW_RATE, _HIGH_RATE = 16 << 10, 64 << 20


@dataclass(frozen=True)
class SlowOptions(VolumeOptions):
    """The options of the fault. 0: no limit."""

    write_iops: int = option(50, "Writes a second; 0: no limit.", low=0, high=5000)
    write_rate: Size = option(Size(0), "Bytes written a second (1MiB); 0: no limit.", low=0, high=_HIGH_RATE)
    read_iops: int = option(0, "Reads a second; 0: no limit.", low=0, high=5000)
    read_rate: Size = option(Size(0), "Bytes read a second; 0: no limit.", low=0, high=_HIGH_RATE)

    def __post_init__(self) -> None:
        if not self.limits:
            raise ValueError("write_iops, write_rate, read_iops and read_rate are 0; one of them must limit something")
        for name in ("write_rate", "read_rate"):
            if 0 < getattr(self, name) < _LOW_RATE:
                raise ValueError(f"{name} is {getattr(self, name)}; 0 or at least 16KiB is right")

    @property
    def limits(self) -> Mapping[str, int]:
        """Name -> limit (a second), of the given ones."""
        found = {name: getattr(self, name) for name in ("write_iops", "write_rate", "read_iops", "read_rate")}
        return {name: limit for name, limit in found.items() if limit}


class SlowDisk(Injection):
    """One node's disk.

    before  its former speed. already: whether another strike had made it slow.
    """

    patience_s: float = 5.0

    def __init__(self, node: str, limits: Mapping[str, int]) -> None:
        self.node, self.limits = node, limits
        self.before: Mapping[str, Speed] = {}
        self.already = False

    @property
    def detail(self) -> Any:
        return {name: _amount(name, limit) for name, limit in self.limits.items()}

    @property
    def effects(self) -> Sequence[Effect]:
        return [Effect("slow", self.node)]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        hit = volume_of(deployment, self.node)
        found = volume.speeds(hit, self.limits)
        if found.limited:
            # The first heal would end both strikes: the one that came first keeps the disk.
            self.already = True
            return None
        self.before = found.measured
        for _ in range(_TRIES - 1):
            # What a busy machine made late at first is not the disk's own speed.
            if all(_rate(one) >= 2 * self.limits[name] for name, one in self.before.items()):
                break
            again = volume.speeds(hit, self.limits).measured
            self.before = {**again, **{n: one for n, one in self.before.items() if _rate(one) > _rate(again.get(n))}}
        return volume.slow_down(hit, found.device, self.limits, ttl_s)

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if a process among the servers gets no more than the limits, and less than before."""
        if self.already:
            return Evidence(False, "the disk was slow already")
        found = volume.speeds(volume_of(deployment, self.node), self.limits)
        both = {name: now for name, now in found.measured.items() if name in self.before}
        late = [self._late(name, now) for name, now in both.items()]
        lines = (self._line(name, now) for name, now in both.items())
        return Evidence(bool(late) and all(late), f"{found.device}: {'; '.join(lines)}")

    def _late(self, name: str, now: Speed) -> bool:
        held = now.seconds >= _SHARE * now.done / self.limits[name]
        return held and _rate(self.before[name]) > _SLOWER * _rate(now)

    def _line(self, name: str, now: Speed) -> str:
        before = self.before[name]
        word = name.partition("_")[0]
        what = f"{now.done:.0f} {word}s" if name.endswith("iops") else f"{word} {_mib(now.done)}"
        was = f"{now.done / _rate(before):.3f} s" if before.done else "no time that could be measured"
        return f"{what} in {now.seconds:.2f} s, limit {_amount(name, self.limits[name])}; before in {was}"

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if no limit is left, and if a synced write ends."""
        if self.already:
            return Evidence(True, "it belongs to another strike")
        hit = volume_of(deployment, self.node)
        left = volume.speeds(hit, {}).limited
        if left:
            return Evidence(False, f"limits are left: {', '.join(f'{name} {limit}' for name, limit in left.items())}")
        well = eventually(lambda: volume.state(hit)["write"] == "ok", self.patience_s)
        return Evidence(well, f"no limit; a synced write {'ends' if well else 'fails'}")


class DiskSlow(VolumeFault):
    """The disk of a node's data is slow, like an old, worn, or shared one. A role means its node."""

    name = "disk-slow"
    summary = "limits the accesses and the bytes that the disk of a node's data takes a second"
    Options: ClassVar[type] = SlowOptions
    default_target: ClassVar[str] = "leader"

    def available(self, deployment: Deployment) -> str | None:
        if why := super().available(deployment):
            return why

        def ask(name: str) -> str | None:
            try:
                return volume.why_not_slow(volume_of(deployment, name))
            except InfraError as problem:
                return str(problem)

        with ThreadPoolExecutor(len(deployment.nodes)) as pool:
            return next(filter(None, pool.map(ask, [node.name for node in deployment.nodes])), None)

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        hit = [node for node in target.nodes if view.servers.get(node)]
        if not hit:
            raise NoTarget(f"no server runs on {', '.join(target.nodes)}")
        return {node: SlowDisk(node, self.options.limits) for node in hit}


def _rate(speed: Speed | None) -> float:
    """Accesses or bytes a second; 0 if not measured."""
    return 0.0 if speed is None else speed.done / max(speed.seconds, 1e-6)


def _amount(name: str, limit: int) -> str:
    return f"{limit} a second" if name.endswith("iops") else f"{_mib(limit)} a second"


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.2f} MiB"
