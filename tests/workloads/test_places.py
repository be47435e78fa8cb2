# SPDX-License-Identifier: Apache-2.0
"""Topics and groups are made on every broker, however its version takes to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Self

import pytest

from infra.machines.api import InfraError
from infra.systems.rocketmq.protocol.admin import AdminError
from infra.systems.rocketmq.protocol.codes import Request
from workloads import places
from workloads.places import Queue, TopicLayout, make, remake

NODES = {"n1": ("198.18.0.1", 10911), "n2": ("198.18.0.2", 10911)}


class Cluster:
    """Two brokers; what each knows. `after`: questions about a topic until a slave has copied it."""

    def __init__(self, *, takes: Callable[[str], bool] = lambda _: True, after: int = 0) -> None:
        self.takes, self.after = takes, after
        self.topics: dict[str, set[str]] = {host: set() for host, _ in NODES.values()}
        self.groups: dict[str, set[str]] = {host: set() for host, _ in NODES.values()}
        self.types: list[str | None] = []
        self.orderly: set[str] = set()

    def copy(self, slave: str) -> None:
        master = NODES["n1"][0]
        self.topics[slave] |= self.topics[master]
        self.groups[slave] |= self.groups[master]


class Broker:
    cluster: Cluster

    def __init__(self, host: str, _port: int, *, deadline_s: float) -> None:
        self.host = host

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def create_topic(self, topic: str, _queues: int, *, message_type: str | None) -> None:
        self._take(Request.UPDATE_AND_CREATE_TOPIC)
        self.cluster.types.append(message_type)
        self.cluster.topics[self.host].add(topic)

    async def create_group(self, group: str, *, orderly: bool = False) -> None:
        self._take(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        self.cluster.groups[self.host].add(group)
        if orderly:
            self.cluster.orderly.add(group)

    async def topic_exists(self, topic: str) -> bool:
        self.cluster.after -= 1
        if self.cluster.after == 0:
            self.cluster.copy(self.host)
        return topic in self.cluster.topics[self.host]

    async def group_exists(self, group: str) -> bool:
        return group in self.cluster.groups[self.host]

    async def route(self, topic: str) -> dict[str, Any]:
        return {"brokerDatas": [{"brokerName": "a"}]}

    def _take(self, request: Request) -> None:
        if not self.cluster.takes(self.host):
            raise AdminError(self.host, request, 1, "Can't modify topic or subscription group from slave broker")


def layout(message_type: str | None = None) -> TopicLayout:
    queues, names = [Queue("t", "a", 0)], [("names", 1)]
    return TopicLayout(False, "t", "readers", queues, {"a": [*NODES]}, NODES, names, [], ["consumers"], message_type)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[Cluster], Cluster]:
    def run(cluster: Cluster) -> Cluster:
        Broker.cluster = cluster
        asyncio.run(make(layout()))
        return cluster

    monkeypatch.setattr(places, "BrokerAdmin", Broker)
    monkeypatch.setattr(places, "NameServer", Broker)
    monkeypatch.setattr(places, "_PAUSE_S", 0.001)
    monkeypatch.setattr(places, "SETUP_LIMIT_S", 5.0)
    return run


def test_an_endpoint_is_where_the_broker_is_now() -> None:
    broker: Any = SimpleNamespace(endpoint=("198.18.0.1", 10911))
    endpoints = places.Endpoints({"n1": broker})
    where = TopicLayout("controller", "t", "readers", [], {"a": ["n1"]}, endpoints, [], [])
    assert where.node_at("198.18.0.1:10911") == "n1"
    broker.endpoint = ("198.18.0.211", 10911)
    assert where.node_at("198.18.0.1:10911") is None
    assert where.node_at("198.18.0.211:10911") == "n1"
    assert dict(endpoints) == {"n1": ("198.18.0.211", 10911)}


def test_every_broker_is_told(made: Callable[[Cluster], Cluster]) -> None:
    cluster = made(Cluster())
    assert list(cluster.topics.values()) == [{"t"}, {"t"}]
    assert list(cluster.groups.values()) == [{"readers", "consumers"}] * 2
    assert cluster.types == [None, None]


def test_a_topic_that_is_made_again_has_its_type_again(made: Callable[[Cluster], Cluster]) -> None:
    """Proxies refuse messages of another type than the topic's."""
    cluster = made(Cluster())
    cluster.types.clear()
    asyncio.run(make(layout("DELAY")))
    cluster.topics[NODES["n1"][0]].clear()
    assert asyncio.run(remake(layout("DELAY"), "a", "n1"))["topics"] == ["t"]
    assert cluster.types == ["DELAY"] * 3


def test_only_an_orderly_group_is_made_orderly(made: Callable[[Cluster], Cluster]) -> None:
    """A proxy pops in order for such a group alone, also after a master has got it back."""
    cluster = made(Cluster())
    assert cluster.orderly == set()
    asyncio.run(make(replace(layout("FIFO"), orderly=["consumers"])))
    assert cluster.orderly == {"consumers"}
    cluster.orderly.clear()
    for host in cluster.groups:
        cluster.groups[host].clear()
    asyncio.run(remake(replace(layout("FIFO"), orderly=["consumers"]), "a", "n1"))
    assert cluster.orderly == {"consumers"}


def test_a_master_gets_back_what_it_has_forgotten_and_that_is_told(made: Callable[[Cluster], Cluster]) -> None:
    """After a failure of power it may know neither the topic nor the readers, and refuses all reads (17, 26)."""
    cluster = made(Cluster())
    assert asyncio.run(remake(layout(), "a", "n1")) == {"topics": [], "groups": []}
    cluster.topics[NODES["n1"][0]].clear()
    cluster.groups[NODES["n1"][0]].remove("readers")
    assert asyncio.run(remake(layout(), "a", "n1")) == {"topics": ["t"], "groups": ["readers"]}
    assert asyncio.run(remake(layout(), "a", "n1")) == {"topics": [], "groups": []}
    assert list(cluster.groups.values()) == [{"readers", "consumers"}] * 2


def test_a_slave_that_refuses_is_waited_for(made: Callable[[Cluster], Cluster]) -> None:
    """As those of 5.1.0 and 5.1.1 do."""
    cluster = made(Cluster(takes=lambda host: host == NODES["n1"][0], after=7))
    assert cluster.after <= 0
    assert list(cluster.topics.values()) == [{"t"}, {"t"}]


def test_a_broker_that_never_knows_the_topic_is_one_line(
    made: Callable[[Cluster], Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "SETUP_LIMIT_S", 0.05)
    with pytest.raises(InfraError, match="the topic t was not known to every broker"):
        made(Cluster(takes=lambda host: host == NODES["n1"][0]))
