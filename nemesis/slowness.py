# SPDX-License-Identifier: Apache-2.0
"""Slowness faults: less processor time, less memory, and pauses. The servers work on, but late.

Processor time and memory are limited with control groups of the node's host
(`infra.machines.primitives.control_groups`), pauses are made with SIGSTOP and SIGCONT on the node. A server that
another fault starts again during such a strike is outside of the strike's control group, and is not paused.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from harness.api import Evidence
from infra.machines.api import InfraError, Lease, NodeHost
from infra.machines.primitives import control_groups, page_cache, process
from infra.machines.primitives.control_groups import Controller, Group
from infra.options import Seconds, Size, option
from infra.systems.api import Deployment
from nemesis.patience import eventually
from nemesis.process import STOPPED, Leases, ProcessFault, ProcessInjection, named
from results.strikes import Effect

_LOOK_S: Final = 1.0
"""The time for which the probe of a quota observes the servers."""
_DRAWN_PAUSES: Final = 32
"""Pauses that are drawn; then they repeat."""
_LONG_PAUSE_S: Final = 5.0
"""A server that is stopped for longer is down."""


@dataclass(frozen=True)
class SlowNodeOptions:
    """The options of `slow-node`."""

    percent: int = option(20, "What the servers of a node get together, in percent of one processor.", low=1, high=1000)


@dataclass(frozen=True)
class SqueezeOptions:
    """The options of `memory-squeeze`."""

    left: Size = option(
        Size(64 << 20),
        "What the servers of a node may take together from then on: pages of files, and new memory of their own.",
        low=4 << 20,
        high=2 << 30,
    )


@dataclass(frozen=True)
class LongPauseOptions:
    """The options of `long-pause`."""

    pause: Seconds = option(
        Seconds(1.0), "Mean length of a pause; each is drawn: half of it to three halves.", low=0.05, high=60
    )
    gap: Seconds = option(Seconds(2.0), "Mean time between two pauses, drawn in the same way.", low=0.05, high=60)


class GroupInjection(ProcessInjection):
    """Some servers of a node are in a control group of the strike."""

    controller: ClassVar[Controller]
    group: Group | None = None

    def __init__(self, node: str, kinds: Sequence[str], others: bool, limit: int) -> None:
        super().__init__(node, kinds, others)
        self.limit = limit

    @property
    def effects(self) -> Sequence[Effect]:
        return [Effect("slow", self.node, tuple(self.kinds))]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        self.struck = {kind: running for kind, (_, running) in self.running(deployment).items()}
        if not self.struck:
            return None
        host = deployment.cluster.host(self.node)
        pids = [running.pid for running in self.struck.values()]
        self.group = control_groups.group_for(host, self.controller, pids, deployment.cluster.run_id)
        return control_groups.hold(host, self.group, self.limit, ttl_s)

    def seen(self, deployment: Deployment) -> Evidence:
        if self.group is None:
            return Evidence(False, "no server was running, so none was slowed down")
        host = deployment.cluster.host(self.node)
        inside = control_groups.counters(host, self.group).processes
        outside = [pid for pid in self.group.returns if pid not in inside]
        if outside:
            return Evidence(
                False, f"{len(outside)} of {len(self.group.returns)} processes are not in the control group"
            )
        return self.look(deployment, host, self.group)

    @abstractmethod
    def look(self, deployment: Deployment, host: NodeHost, group: Group) -> Evidence:
        """Probes if the limit shows. The processes are in the group."""

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if the group is gone: the kernel removes none that has processes, so they are back."""
        if self.group is None:
            return Evidence(True, "no control group was made")
        host, group = deployment.cluster.host(self.node), self.group
        gone = eventually(lambda: not control_groups.exists(host, group), self.patience_s)
        return Evidence(gone, "the control group is gone" if gone else f"the control group {group.path} is still there")

    def names(self) -> str:
        """`broker process 184, namesrv process 97`."""
        return ", ".join(named(kind, struck) for kind, struck in self.struck.items())


class Slowed(GroupInjection):
    """The servers share a quota of processor time."""

    controller: ClassVar[Controller] = "cpu"

    @property
    def effects(self) -> Sequence[Effect]:
        return [Effect("slow", self.node, tuple(self.struck or self.kinds), quota=True)]

    @property
    def detail(self) -> Any:
        return dict.fromkeys(self.kinds, f"{self.limit} % of one processor")

    def look(self, deployment: Deployment, host: NodeHost, group: Group) -> Evidence:
        """Probes if the scheduler has throttled the group. If the servers need too little for that, a process of the
        probe in the group uses all of a processor.
        """
        before = control_groups.counters(host, group)
        time.sleep(_LOOK_S)
        after = control_groups.counters(host, group)
        helped = ""
        if after.throttled == before.throttled:
            control_groups.burn(host, group, _LOOK_S)
            helped = " with a busy process of the probe among them"
        used = 100 * (after.ran_s - before.ran_s) / max(0.01, after.at_s - before.at_s)
        throttled = control_groups.counters(host, group).throttled - before.throttled
        return Evidence(
            throttled > 0,
            f"{self.names()}: {used:.0f} % of a processor used in {after.at_s - before.at_s:.1f} s, quota "
            f"{self.limit} %; throttled in {throttled} periods{helped}",
        )


class Squeezed(GroupInjection):
    """The servers get little memory for the page cache, and the cached pages of their files are dropped."""

    controller: ClassVar[Controller] = "memory"
    cached: int = 0
    """Bytes of the data that were cached before."""

    @property
    def detail(self) -> Any:
        return dict.fromkeys(self.kinds, f"{_mib(self.limit)} of memory from now on")

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        lease = super().inject(deployment, ttl_s)
        if lease is None:
            return None
        try:
            node, dirs = deployment.node(self.node), self._dirs(deployment)
            self.cached = page_cache.cached_bytes(node, dirs)
            page_cache.drop_file_cache(node, dirs)
            if self.group is not None:
                control_groups.drop_cache(deployment.cluster.host(self.node), self.group)
        except BaseException:
            lease.heal()
            raise
        return lease

    def look(self, deployment: Deployment, host: NodeHost, group: Group) -> Evidence:
        """Lets a process in the group read a file of twice the limit, and probes if less than the limit stays cached
        and the kernel counts that the limit was reached.
        """
        cached = page_cache.cached_bytes(deployment.node(self.node), self._dirs(deployment))
        stayed = control_groups.read_through(host, group, 2 * self.limit)
        now = control_groups.counters(host, group)
        squeezed = 0 < stayed <= self.limit and now.refused > 0 and now.memory <= self.limit
        return Evidence(
            squeezed,
            f"{self.names()}: {_mib(self.cached)} of their data were cached, then {_mib(cached)}; "
            f"of {_mib(2 * self.limit)} read {_mib(stayed)} stayed cached; "
            f"{_mib(now.memory)} of {_mib(self.limit)} in use, limit reached {now.refused} times",
        )

    def _dirs(self, deployment: Deployment) -> list[str]:
        dirs = (place for kind in self.struck for place in deployment.server(self.node, kind).data_dirs)
        return list(dict.fromkeys(dirs))


class Paused(ProcessInjection):
    """The servers stop and continue, again and again."""

    def __init__(
        self, node: str, kinds: Sequence[str], others: bool, lengths: Mapping[str, Sequence[tuple[float, float]]]
    ) -> None:
        """lengths: kind -> pauses and the gaps behind them (s)."""
        super().__init__(node, kinds, others)
        self.lengths = lengths
        self._pauses: dict[str, process.Pauses] = {}

    @property
    def longest_s(self) -> float:
        return max(pause for lengths in self.lengths.values() for pause, _ in lengths)

    @property
    def detail(self) -> Any:
        return {
            kind: f"pauses of {min(lengths)[0]:.2f} to {max(lengths)[0]:.2f} s"
            for kind, lengths in self.lengths.items()
        }

    @property
    def effects(self) -> Sequence[Effect]:
        return [Effect("down" if self.longest_s > _LONG_PAUSE_S else "slow", self.node, tuple(self.kinds))]

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        leases = Leases()
        for kind, (_, running) in self.running(deployment).items():
            self.struck[kind] = running
            leases.take(partial(self._pause, deployment, kind, ttl_s))
        return leases if leases else None

    def _pause(self, deployment: Deployment, kind: str, ttl_s: float) -> Lease:
        node = deployment.node(self.node)
        made = process.pause_repeatedly(node, self.struck[kind], self.lengths[kind], ttl_s)
        self._pauses[kind] = made
        return made.lease

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if each process is in state T now, or had a pause in which all of its threads were."""
        if not self.struck:
            return Evidence(False, "no server was running, so none was paused")
        node = deployment.node(self.node)
        missing = dict(self.struck)

        def all_paused() -> bool:
            for kind, struck in list(missing.items()):
                if process.process_state(node, struck) == STOPPED or process.pauses_s(node, self._pauses[kind]):
                    del missing[kind]
            return not missing

        seen = eventually(all_paused, self.patience_s)
        return Evidence(seen, "; ".join(self._line(deployment, kind, kind in missing) for kind in self.struck))

    def _line(self, deployment: Deployment, kind: str, missing: bool) -> str:
        over = process.pauses_s(deployment.node(self.node), self._pauses[kind])
        begun = "was not paused" if missing else "is paused for the first time"
        counted = f"{len(over)} pauses, {sum(over):.2f} s in all, the longest {max(over):.2f} s" if over else begun
        return f"{named(kind, self.struck[kind])}: {counted}"

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if no process is stopped: it runs, or it is gone."""
        node = deployment.node(self.node)
        stopped: list[str] = []

        def all_run() -> bool:
            stopped[:] = [k for k, struck in self.struck.items() if process.process_state(node, struck) == STOPPED]
            return not stopped

        well = eventually(all_run, self.patience_s)
        lines = (
            self._line(deployment, kind, True) + ("; it is still stopped" if kind in stopped else "")
            for kind in self.struck
        )
        return Evidence(well, "; ".join(lines))


class GroupFault(ProcessFault):
    """The base of the faults with control groups."""

    default_target: ClassVar[str] = "one"
    controller: ClassVar[Controller]

    def available(self, deployment: Deployment) -> str | None:
        def ask(name: str) -> str | None:
            try:
                host = deployment.cluster.host(name)
            except InfraError as problem:
                return str(problem)
            return control_groups.unavailable(deployment.node(name), host, self.controller, deployment.cluster.run_id)

        with ThreadPoolExecutor(len(deployment.nodes)) as pool:
            return next(filter(None, pool.map(ask, [node.name for node in deployment.nodes])), None)


class SlowNode(GroupFault):
    """The servers of a node get little processor time, as beside a noisy neighbour, or on a host that is overbooked."""

    name = "slow-node"
    summary = "limits the processor time of servers"
    Options: ClassVar[type] = SlowNodeOptions
    controller: ClassVar[Controller] = "cpu"

    def place(self, node: str, kinds: Sequence[str], others: bool, rng: Random) -> ProcessInjection:
        return Slowed(node, kinds, others, self.options.percent)


class MemorySqueeze(GroupFault):
    """The servers of a node get only little memory: reads come from the disk, and writers wait for it."""

    name = "memory-squeeze"
    summary = "limits the memory of servers, the page cache of their files included"
    Options: ClassVar[type] = SqueezeOptions
    controller: ClassVar[Controller] = "memory"

    def place(self, node: str, kinds: Sequence[str], others: bool, rng: Random) -> ProcessInjection:
        return Squeezed(node, kinds, others, self.options.left)


class LongPause(ProcessFault):
    """The servers pause again and again, as for a garbage collector that stops the world, or a machine that swaps."""

    name = "long-pause"
    summary = "pauses servers (SIGSTOP, SIGCONT) again and again, for drawn lengths"
    Options: ClassVar[type] = LongPauseOptions
    default_target: ClassVar[str] = "one"

    def place(self, node: str, kinds: Sequence[str], others: bool, rng: Random) -> ProcessInjection:
        given: LongPauseOptions = self.options

        def drawn(mean: float) -> float:
            return round(mean * rng.uniform(0.5, 1.5), 3)

        lengths = {kind: [(drawn(given.pause), drawn(given.gap)) for _ in range(_DRAWN_PAUSES)] for kind in kinds}
        return Paused(node, kinds, others, lengths)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
