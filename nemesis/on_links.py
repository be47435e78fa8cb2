# SPDX-License-Identifier: Apache-2.0
"""The base of all packet faults: their places, the measurements on each link, and the trial of the mechanism.

The faults themselves are in `nemesis.packets`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.api import Evidence, Fault, Injection, Target, labelled
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease, Node
from infra.machines.primitives.datagrams import End, control_program, round_trip_ms
from infra.machines.primitives.network import PROBE_PORT, control_address
from infra.machines.primitives.packets import PacketFault, Selection
from infra.machines.primitives.shaping import Occupied
from infra.options import dump
from infra.systems.api import Deployment
from nemesis.links import OTHER_GROUPS, LinkOptions, links, ports
from nemesis.patience import eventually
from results.strikes import CLIENTS, Effect, EffectKind

_TRIAL_S = 30
"""Time to live of a mechanism that is only tried."""


@dataclass(frozen=True)
class Way:
    """A link to measure. port: the source port of the packets, 0: any."""

    source: End
    target: End
    port: int = 0


Measure = Callable[[Way], Any]


class OnLinks(Injection):
    """A packet fault on one node: on packets from, or to, `others` (nodes, or `CLIENTS`)."""

    patience_s: float = 5.0
    """The time that a healed fault may take to disappear."""

    def __init__(self, fault: PacketNemesis, node: str, others: Sequence[str]) -> None:
        self.fault, self.node, self.others = fault, node, others
        self.held: PacketFault | None = None
        self.ways: Mapping[str, Way] = {}
        self.before: Mapping[str, Any] = {}
        """Other end -> the baseline of its link."""
        self._refused = "nothing was injected"

    @property
    def detail(self) -> Any:
        return {"from" if self.fault.on_arrival else "to": list(self.others), **dump(self.fault.options)}

    @property
    def effects(self) -> Sequence[Effect]:
        kind = self.fault.impairs
        return [Effect(kind, self.node, peers=tuple(self.others) if kind == "cut-off" else ())]

    def describe(self, labels: Mapping[str, str]) -> str:
        here, others = labelled(self.node, labels), " ".join(labelled(other, labels) for other in self.others)
        return f"{others} > {here}" if self.fault.on_arrival else f"{here} > {others}"

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        numbers = ports(deployment, self.fault.options.port, [self.node, *self.others])
        here = End(deployment.node(self.node))
        ends = {other: _end(deployment, other, here.node) for other in self.others}
        port = numbers[0] if numbers else 0
        self.ways = {
            other: Way(end, here, port) if self.fault.on_arrival else Way(here, end, port)
            for other, end in ends.items()
        }
        held = self.fault.made(Selection([end.address for end in ends.values()], numbers))
        self.before = self._everywhere(self.fault.baseline)
        # Another strike may have cut some: on these nothing can be seen of this one.
        self.ways = {other: way for other, way in self.ways.items() if self.fault.usable(self.before.get(other))}
        try:
            lease = held.hold(here.node, ttl_s)
        except Occupied as why:
            self._refused = f"{why}, so nothing was injected"
            return None
        self.held = held
        return lease

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes each link for the effect, and checks that packets were counted meanwhile."""
        if self.held is None:
            return Evidence(False, self._refused)
        node = deployment.node(self.node)
        before = self.held.counted(node)
        told = self._judged()
        counted = self.held.counted(node) - before
        told += self.fault.also(deployment, self.node)
        what = "; ".join([*(one.what for one in told), f"{counted} packets counted"])
        return Evidence(counted > 0 and all(one.seen for one in told), what)

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if its rules on the node are gone, and measures the links again, on which other strikes may act."""
        node, held = deployment.node(self.node), self.held
        assert held is not None
        if not eventually(lambda: not held.left(node), self.patience_s):
            return Evidence(False, f"still there: {', '.join(held.left(node))}")
        return Evidence(True, "; ".join([f"{held.name} is gone", *(one.what for one in self._judged())]))

    def _judged(self) -> list[Evidence]:
        """The evidence of the links that were not cut before."""
        if not self.ways:
            return [Evidence(False, "all its links were cut before")]
        found = self._everywhere(self.fault.probe)
        judged = {other: self.fault.judge(self.before.get(other), what) for other, what in found.items()}
        return [Evidence(one.seen, f"{other}: {one.what}") for other, one in judged.items()]

    def _everywhere(self, measure: Measure) -> dict[str, Any]:
        """Other end -> the measurement of its link, on all links at a time."""
        ways = dict(list(self.ways.items())[: 1 if self.fault.shared else None])
        with ThreadPoolExecutor(len(ways)) as pool:
            return dict(zip(ways, pool.map(measure, ways.values()), strict=True))


def _end(deployment: Deployment, other: str, node: Node) -> End:
    """The other end of a node's link. Raises InfraError if it is the control program, at an unknown address."""
    if other != CLIENTS:
        return End(deployment.node(other))
    address = control_address(node)
    if not address:
        raise InfraError(f"{node.name}: the node does not report the address of the control program")
    return control_program(address)


class PacketNemesis(Fault):
    """The base of all packet faults.

    on_arrival  whether it acts on the node where the packets arrive, not on the one that sends them.
    shared      all links of a node share the resource that the fault limits: one link is measured, not all at a time.
    """

    Options: ClassVar[type] = LinkOptions
    default_target: ClassVar[str] = "one"
    on_arrival: ClassVar[bool] = True
    shared: ClassVar[bool] = False
    impairs: ClassVar[EffectKind] = "slow"

    @abstractmethod
    def made(self, selection: Selection) -> PacketFault:
        """Returns the fault to hold on a node, for these packets."""

    def baseline(self, way: Way) -> Any:
        """Measures a link before the injection; None: nothing to measure."""
        return None

    def usable(self, before: Any) -> bool:
        """True if a link with this baseline can show the effect."""
        return True

    @abstractmethod
    def probe(self, way: Way) -> Any:
        """Measures a link, while it is impaired and after the heal."""

    @abstractmethod
    def judge(self, before: Any, now: Any) -> Evidence:
        """Judges if the figures show the effect."""

    def also(self, deployment: Deployment, node: str) -> list[Evidence]:
        """Returns further evidence that is needed while the fault is held on the node."""
        return []

    def roles(self) -> Sequence[str]:
        return list(self.options.roles)

    @property
    def aims_late(self) -> bool:
        return bool(self.roles()) or OTHER_GROUPS in self.options.words

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        """Returns a place for each node that gets rules."""
        places: dict[str, list[str]] = {}
        for link in links(view, target, self.options, rng):
            here, there = (link.receiver, link.sender) if self.on_arrival else (link.sender, link.receiver)
            places.setdefault(here, []).append(there)
        return {node: OnLinks(self, node, places[node]) for node in view.nodes if node in places}

    def available(self, deployment: Deployment) -> str | None:
        """Holds the mechanism for a moment on every node, for a port that no server uses."""
        with ThreadPoolExecutor(len(deployment.nodes)) as pool:
            found = list(pool.map(lambda node: self._lacking(node, deployment), deployment.nodes))
        return next((why for why in found if why), None)

    def _lacking(self, node: Node, deployment: Deployment) -> str | None:
        others = [one.address for one in deployment.nodes if one is not node] or [control_address(node)]
        trial = self.made(Selection(others[:1], [PROBE_PORT]))
        try:
            trial.hold(node, _TRIAL_S).heal()
            left = trial.left(node)
            round_trip_ms(End(node), End(node), 1)
        except InfraError as problem:
            return f"{problem}; it needs {trial.needs}"
        return f"{node.name}: a trial left {', '.join(left)} behind" if left else None
