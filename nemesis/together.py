# SPDX-License-Identifier: Apache-2.0
"""A whole group is down at once and comes back one server after another, in a given order.

The first server to return alone decides the state of a group of replicas. Its choice is a matter of luck, or of the
order in which an operator starts the machines after a power cut.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.api import Evidence, Fault, Injection, NoTarget, Target, labelled
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, Lease
from infra.options import Seconds, option
from infra.systems.api import Deployment
from nemesis.meant import kinds_meant, missing_kind
from nemesis.process import Kill
from results.strikes import Effect

_WORDS = ("nodes", "reverse", "random", "leaders-first", "leaders-last")


@dataclass(frozen=True)
class GroupOptions:
    """The options of the fault."""

    order: str = option(
        "random",
        f"In which order they return: {', '.join(_WORDS)}, or nodes by name, as n3;n1 (those not named come last).",
    )
    # A heal has 50 s, and a lease ends by itself 60 s after its time (harness/nemesis/runner.py): five nodes fit.
    pause: Seconds = option(Seconds(3.0), "Between the start of one node's servers and the next one's.", high=10)
    kind: tuple[str, ...] = option((), "Kinds of servers, such as broker or controller; none named: all of the nodes.")

    def __post_init__(self) -> None:
        words = self.words
        if not all(words):
            raise ValueError(f"order is {self.order!r}; {', '.join(_WORDS)}, or names of nodes as in n3;n1, are right")
        if len(words) > 1 and set(words) & set(_WORDS):
            raise ValueError(f"order is {self.order!r}; one word, or names of nodes, is right")
        if len(set(words)) < len(words):
            raise ValueError(f"order is {self.order!r}, which names a node twice")

    @property
    def words(self) -> list[str]:
        """The words of `order`."""
        return [word.strip() for word in self.order.split(";")]


class InTurn(Lease):
    """Leases that are healed one after another. Each of them ends by itself too, without any order."""

    def __init__(self, held: Sequence[Lease], pause_s: float) -> None:
        self._held, self._pause_s = list(held), pause_s
        self.started: list[float] = []
        """The times at which they were healed (s, monotonic)."""

    def heal(self, timeout_s: float = 30) -> None:
        """Heals one after another, all even if one fails; `timeout_s` is for each. Raises InfraError for the first."""
        problems: list[InfraError] = []
        left: list[Lease] = []
        for place, lease in enumerate(self._held):
            if place:
                time.sleep(self._pause_s)
            try:
                lease.heal(timeout_s)
                self.started.append(time.monotonic())
            except InfraError as problem:
                problems.append(problem)
                left.append(lease)
        self._held = left
        if problems:
            raise problems[0]


class Together(Injection):
    """The servers of several nodes are killed at once. Its place is the node that returns first."""

    def __init__(self, kills: Sequence[Kill], pause_s: float) -> None:
        """`kills`: of each node, in the order of their return."""
        self.node, self.kills, self.pause_s = kills[0].node, kills, pause_s
        self.struck: list[Kill] = []
        self.lease: InTurn | None = None

    @property
    def detail(self) -> Any:
        return {"order": [kill.node for kill in self.kills], "pause_s": self.pause_s, **self.kills[0].detail}

    @property
    def effects(self) -> Sequence[Effect]:
        return [effect for kill in self.kills for effect in kill.effects]

    def describe(self, labels: Mapping[str, str]) -> str:
        return f"{' '.join(labelled(kill.node, labels) for kill in self.kills)}, back in this order"

    def inject(self, deployment: Deployment, ttl_s: float) -> Lease | None:
        """Kills all servers. If this program ends, the nodes start them again, but only after all were killed."""
        held: list[Lease] = []
        try:
            for kill in self.kills:
                lease = kill.inject(deployment, ttl_s)
                if lease is not None:
                    held.append(lease)
                    self.struck.append(kill)
        except BaseException:
            for lease in held:
                lease.heal()
            raise
        self.lease = InTurn(held, self.pause_s) if held else None
        return self.lease

    def seen(self, deployment: Deployment) -> Evidence:
        """Probes if all of them are down at one time."""
        if not self.struck:
            return Evidence(False, "no server was running, so none was killed")
        found = [kill.seen(deployment) for kill in self.struck]
        return self._of_all(found)

    def healed(self, deployment: Deployment) -> Evidence:
        """Probes if each has a new process, and reports the times of their starts."""
        found = [kill.healed(deployment) for kill in self.struck]
        times = self.lease.started if self.lease is not None else []
        after = [f"{later - times[0]:.1f} s" for later in times]
        return self._of_all(found, f"started after {', '.join(after)}; ")

    def _of_all(self, found: Sequence[Evidence], before: str = "") -> Evidence:
        """Joins the evidence of all kills that were executed."""
        lines = [f"{kill.node}: {each.what}" for kill, each in zip(self.struck, found, strict=True)]
        return Evidence(all(each.seen for each in found), before + "; ".join(lines))


class RestartGroup(Fault):
    """Kills all servers of the target at once; each has a lease on its own node."""

    name = "restart-group"
    summary = "kills servers of several nodes at once (SIGKILL) and starts them again one after another"
    Options: ClassVar[type] = GroupOptions
    default_target: ClassVar[str] = "all"

    def kinds_needed(self) -> Sequence[str]:
        kinds: Sequence[str] = self.options.kind
        return kinds

    def available(self, deployment: Deployment) -> str | None:
        names = [node.name for node in deployment.nodes]
        wrong = [word for word in self.options.words if word not in (*_WORDS, *names)]
        if wrong:
            return f"order names {wrong[0]}; {', '.join(_WORDS)}, or nodes of {', '.join(names)}, are right"
        return missing_kind(deployment, self.options.kind)

    def aim(self, view: ClusterView, target: Target, rng: Random) -> Mapping[str, Injection]:
        meant = kinds_meant(view, target, self.options.kind)
        if len(meant) < 2:
            raise NoTarget(f"only {', '.join(meant)} is meant, which makes no order")
        kills = [
            Kill(node, meant[node], view.main.get(node) not in meant[node])
            for node in self._ordered(view, list(meant), rng)
        ]
        return {kills[0].node: Together(kills, self.options.pause)}

    def _ordered(self, view: ClusterView, nodes: list[str], rng: Random) -> list[str]:
        leading = {*view.leaders.values(), *view.leading.values()}
        match self.options.words:
            case ["nodes"]:
                return nodes
            case ["reverse"]:
                return nodes[::-1]
            case ["random"]:
                return rng.sample(nodes, len(nodes))
            case ["leaders-first"]:
                return sorted(nodes, key=lambda node: node not in leading)
            case ["leaders-last"]:
                return sorted(nodes, key=lambda node: node in leading)
        places = {node: place for place, node in enumerate(self.options.words)}
        return sorted(nodes, key=lambda node: places.get(node, len(places)))
