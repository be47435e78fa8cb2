# SPDX-License-Identifier: Apache-2.0
"""Roles, followers, and nodes that have caught up: from the nodes' own answers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from harness.observe.observer import ANSWER_S, FOLLOW_S, THOROUGH_S, Observer
from harness.run import virtual_time
from infra.machines.api import Node
from infra.systems.api import Status
from results.deployment import DeploymentRecord, ServerRecord, Traits
from results.record import Observation

NODES = ["n1", "n2", "n3", "n4"]


class Cluster:
    """Two groups of brokers, and a controller on n4. `said` is the answer of each node; None: it is silent."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.dear: set[str] = set()
        """Nodes that report offsets only to thorough requests. `asked`: the number of these for each node."""
        self.asked = dict.fromkeys(NODES, 0)
        self.said: dict[str, Status | None] = {
            "n1": Status("leader", term=3, end=100, committed=90, applied=100),
            "n2": Status("follower", term=3, end=100, applied=100),
            "n3": Status("leader", term=7, end=50, applied=50),
            "n4": Status("follower", extra={"controller": "leader", "in_sync": ["n1", "n2", "n3"]}),
        }

    def record(self) -> DeploymentRecord:
        brokers = [ServerRecord(node, "broker", group="b" if node == "n3" else "a") for node in NODES[:3]]
        servers = [*brokers, ServerRecord("n4", "controller")]
        groups = {"a": ["n1", "n2"], "b": ["n3"]}
        return DeploymentRecord("toy", dict.fromkeys(NODES, ""), servers, groups, traits=Traits(in_sync=True))

    async def observe(self, node: Node, timeout_s: float, *, thorough: bool = False) -> Status:
        output = self.said[node.name]
        if output is None:
            await asyncio.sleep(timeout_s)
            return Status("silent")
        self.asked[node.name] += thorough
        return (
            replace(output, end=None, committed=None, applied=None)
            if node.name in self.dear and not thorough
            else output
        )

    def says(self, node: str, **changes: Any) -> None:
        output = self.said[node]
        assert output is not None
        self.said[node] = replace(output, **changes)


def play(story: Callable[[Cluster, Observer, list[Observation]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        kept: list[Observation] = []
        topology: Any = Cluster()
        nodes = [SimpleNamespace(name=name) for name in NODES]
        deployment: Any = SimpleNamespace(topology=topology, nodes=nodes, clients=[], record=topology.record())
        now = asyncio.get_running_loop().time
        events = topology.events
        observer = Observer(
            deployment, lambda: round(now() * 1e9), kept.append, lambda f, value: events.append((f, value))
        )
        watching = asyncio.create_task(observer.watch())
        await asyncio.sleep(0.5)
        await story(topology, observer, kept)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    virtual_time.run(main())


def test_who_is_who() -> None:
    async def story(cluster: Cluster, observer: Observer, kept: list[Observation]) -> None:
        assert observer.leaders == ["n1", "n3"]
        assert observer.term == 3
        assert observer.view.leading.get("controller") == "n4"
        assert observer.view.in_sync == ["n1", "n2", "n3"]
        assert observer.view.having("controller") == ["n4"]
        cluster.says("n2", role="leader", term=4)
        await asyncio.sleep(1.1)
        assert observer.leaders == ["n2", "n3"]
        assert {o.node for o in kept} == set(NODES)

    play(story)


def test_a_silent_node_delays_no_other() -> None:
    async def story(cluster: Cluster, observer: Observer, kept: list[Observation]) -> None:
        cluster.said["n1"] = None
        await asyncio.sleep(ANSWER_S + 1.1)
        assert observer.view.leaders == {"b": "n3"}
        begun = len([o for o in kept if o.node == "n2"])
        await asyncio.sleep(5)
        assert len([o for o in kept if o.node == "n2"]) >= begun + 4

    play(story)


def test_offsets_that_cost_a_server_much_are_asked_for_now_and_then() -> None:
    async def story(cluster: Cluster, observer: Observer, kept: list[Observation]) -> None:
        cluster.dear = {"n1", "n2"}
        await asyncio.sleep(20)
        assert 3 <= cluster.asked["n1"] <= 5
        assert cluster.asked["n3"] == 0, "it reports them anyway"
        assert observer.all_follow
        cluster.says("n1", end=200, committed=200)
        await asyncio.sleep(THOROUGH_S + FOLLOW_S + 1.1)
        assert not observer.all_follow
        cluster.says("n2", end=200)
        await asyncio.sleep(THOROUGH_S + 1.1)
        assert observer.all_follow
        assert any(o.end is None for o in kept if o.node == "n1"), "the record is the node's own answer"

    play(story)


def test_all_follow_when_all_hold_what_was_committed_and_are_in_sync() -> None:
    async def story(cluster: Cluster, observer: Observer, kept: list[Observation]) -> None:
        assert not observer.all_follow, "nothing is known of the last seconds yet"
        await asyncio.sleep(FOLLOW_S + 1.1)
        assert observer.all_follow
        cluster.says("n2", end=89)
        await asyncio.sleep(1.1)
        assert not observer.all_follow
        cluster.says("n2", end=90)
        await asyncio.sleep(1.1)
        assert observer.all_follow
        cluster.says("n4", extra={"controller": "leader", "in_sync": ["n1", "n3"]})
        await asyncio.sleep(1.1)
        assert not observer.all_follow
        cluster.says("n4", extra={})
        await asyncio.sleep(1.1)
        assert observer.all_follow, "nobody says who is in sync: the offsets decide"

    play(story)


def test_caught_up_is_applied_everywhere() -> None:
    async def story(cluster: Cluster, observer: Observer, kept: list[Observation]) -> None:
        assert await observer.caught_up(5)
        cluster.says("n2", applied=80)
        assert not await observer.caught_up(5)
        asyncio.get_running_loop().call_later(2, lambda: cluster.says("n2", applied=90))
        assert await observer.caught_up(5)
        cluster.says("n3", role="follower")
        assert not await observer.caught_up(5), "a group without a leader has nobody to catch up with"
        loop = asyncio.get_running_loop()
        before, over = loop.time(), asyncio.Event()
        loop.call_later(2, over.set)
        assert not await observer.caught_up(1000, over.is_set)
        assert loop.time() - before < 3, "the time of the loop, which is virtual here"

    play(story)


def test_another_leader_is_an_event_and_the_first_one_is_none() -> None:
    async def story(cluster: Cluster, observer: Observer, kept: list[Observation]) -> None:
        assert [event for event in cluster.events if event[0] == "role-changed"] == []
        cluster.says("n1", role="follower", term=4)
        await asyncio.sleep(3)
        assert [event for event in cluster.events if event[0] == "role-changed"] == []
        cluster.says("n2", role="leader", term=4, committed=100)
        await asyncio.sleep(3)
        changed = [event for event in cluster.events if event[0] == "role-changed"]
        assert changed == [("role-changed", {"of": "a", "node": "n2"})]

    play(story)
