# SPDX-License-Identifier: Apache-2.0
"""The state of a RocketMQ cluster, and what it lacks, from answers that were recorded on real servers of 5.5.0."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import TimedOut
from infra.systems.rocketmq.protocol.admin import ControllerMetadata
from infra.systems.rocketmq.protocol.client import Sent
from infra.systems.rocketmq.topologies import state as _state
from infra.systems.rocketmq.topologies.layout import NodeRoles
from infra.systems.rocketmq.topologies.state import READY_TOPIC, Addresses, look, missing

NODES = {f"n{i}": f"198.18.0.1{i}" for i in (1, 2, 3)}
WHERE = Addresses(
    raft_log=False,
    nodes=NODES,
    places={node: NodeRoles(("namesrv", "controller", "broker"), "a") for node in NODES},
    nameservers=[(address, 9876) for address in NODES.values()],
    controllers=[(address, 9878) for address in NODES.values()],
)


@dataclass
class Cluster:
    """Three nodes, n2 the master and n1 the leader of the controllers; tests take something away."""

    master: str = "n2"
    in_sync: list[str] = field(default_factory=lambda: ["n2", "n1", "n3"])
    silent: set[str] = field(default_factory=set)
    follows: dict[str, str] = field(default_factory=dict)
    listed: dict[str, dict[int, str]] = field(default_factory=dict)
    leads: str | None = "n1"
    send_codes: list[int] = field(default_factory=lambda: [0])
    topics: list[str] = field(default_factory=list)


class Fake:
    """Answers as the server of a node; constructed as the real clients are."""

    cluster: Cluster

    def __init__(self, host: str, port: int, *, deadline_s: float, raft_log: bool | None = None) -> None:
        self.node = next(name for name, address in NODES.items() if address == host)

    async def __aenter__(self) -> Fake:
        if self.node in self.cluster.silent:
            raise TimedOut(f"{self.node}: no answer")
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def close(self) -> None: ...

    async def runtime_info(self) -> Mapping[str, str]:
        return {"commitLogMinOffset": "0", "commitLogMaxOffset": "412", "dispatchBehindBytes": "12"}

    async def config(self) -> Mapping[str, str]:
        return {}

    async def ha_status(self) -> Mapping[str, Any]:
        if self.node == self.cluster.master:
            slaves = [{"slaveAckOffset": 412, "inSync": True}, {"slaveAckOffset": 206, "inSync": True}]
            away = {"slaveAckOffset": 0, "inSync": False}
            return {"master": True, "masterCommitLogMaxOffset": 412, "haConnectionInfo": [*slaves, away]}
        master = self.cluster.follows.get(self.node, self.cluster.master)
        address = f"{NODES[master]}:10912" if master else None
        return {"master": False, "haClientRuntimeInfo": {"masterAddr": address, "maxOffset": 409}}

    async def epochs(self) -> Mapping[str, Any]:
        return {"brokerId": 0 if self.node == self.cluster.master else 2, "epochList": [{"epoch": 1}, {"epoch": 7}]}

    async def metadata(self) -> ControllerMetadata:
        leader = self.cluster.leads
        return ControllerMetadata("controllers", leader or "", "", leader == self.node, "")

    async def sync_state(self, names: list[str]) -> Mapping[str, Any]:
        replicas = [{"brokerAddress": f"{NODES[node]}:10911", "alive": True} for node in self.cluster.in_sync]
        return {"a": {"inSyncReplicas": replicas, "syncStateSetEpoch": 5}}

    async def member_group(self, cluster: str, group: str) -> Mapping[int, str]:
        whole = {0: self.cluster.master} | {i + 2: node for i, node in enumerate(NODES) if node != self.cluster.master}
        return {i: f"{NODES.get(node)}:10911" for i, node in self.cluster.listed.get(self.node, whole).items()}

    async def create_topic(self, topic: str, queues: int) -> None:
        self.cluster.topics.append(topic)

    async def send(self, topic: str, queue: int, body: bytes) -> Sent:
        codes = self.cluster.send_codes
        code = codes.pop(0) if len(codes) > 1 else codes[0]
        return Sent(Outcome("ok" if code == 0 else "fail", f"code {code}"), code=code)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name in ("BrokerAdmin", "Controller", "NameServer", "Broker"):
        monkeypatch.setattr(_state, name, Fake)
    Fake.cluster = Cluster()
    return Fake.cluster


def test_a_master_says(cluster: Cluster) -> None:
    output = asyncio.run(look(WHERE, "n2", 5, thorough=True))
    assert (output.role, output.leader, output.term) == ("leader", "n2", 7)
    assert (output.begin, output.end, output.applied) == (0, 412, 400)
    assert output.committed == 206, "what the slowest replica in sync has; the one outside does not count"
    assert output.extra["broker_id"] == 0
    assert (output.extra["controller"], output.extra["namesrv"]) == ("follower", True)


def test_a_slave_and_the_leader_of_the_controllers_say(cluster: Cluster) -> None:
    output = asyncio.run(look(WHERE, "n1", 5))
    assert (output.role, output.leader, output.end, output.committed) == ("follower", "n2", 409, None)
    assert (output.begin, output.applied) == (None, None), (
        "only a thorough look asks for the runtime info, which is dear"
    )
    assert (output.extra["controller"], output.extra["in_sync"]) == ("leader", ["n2", "n1", "n3"])
    assert output.extra["in_sync_epoch"] == 5


def test_a_node_without_answers_is_silent(cluster: Cluster) -> None:
    cluster.silent = {"n3"}
    output = asyncio.run(look(WHERE, "n3", 5))
    assert (output.role, output.end) == ("silent", None)
    assert output.extra == {"controller": None, "namesrv": False}


def test_nothing_is_missing_and_the_topic_is_made_once(cluster: Cluster) -> None:
    cluster.send_codes = [17, 0]
    assert asyncio.run(missing(WHERE, 5)) is None
    assert cluster.topics == [READY_TOPIC]
    assert asyncio.run(missing(WHERE, 5)) is None
    assert cluster.topics == [READY_TOPIC]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"leads": None}, "no controller leads"),
        ({"master": ""}, "group a has no master"),
        ({"silent": {"n3"}}, "n3 does not follow n2, the master of group a: it is silent"),
        ({"follows": {"n3": "n1"}}, "n3 does not follow n2, the master of group a: it is follower, of n1"),
        ({"in_sync": ["n2", "n1"]}, "n3 is not in the SyncStateSet of group a (n2, n1)"),
        ({"listed": {"n3": {0: "n2", 3: "n3"}}}, "the name server of n3 does not list n1 in group a"),
        (
            {"listed": {"n1": {0: "n1", 2: "n2", 3: "n3"}}},
            "the name server of n1 lists n1 as the master of group a, not n2",
        ),
        ({"send_codes": [12]}, "n2 does not store a message: code 12"),
    ],
)
def test_what_is_missing_is_said(cluster: Cluster, change: Mapping[str, Any], said: str) -> None:
    for name, value in change.items():
        setattr(cluster, name, value)
    assert asyncio.run(missing(WHERE, 5)) == said
