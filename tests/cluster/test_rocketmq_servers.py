# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's topologies for real, each as small as it can be: up, a message stored, seen, down."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.machines.api import ClusterSpec, InfraError, Node
from infra.machines.backends.docker import DockerBackend
from infra.systems.api import Launch, Server, ServerSettings, Status
from infra.systems.rocketmq.topologies.acting_master import ActingMasterTopology
from infra.systems.rocketmq.topologies.base import RocketmqTopology
from infra.systems.rocketmq.topologies.controller import ControllerOptions, ControllerTopology
from infra.systems.rocketmq.topologies.dledger_commitlog import DledgerCommitlogTopology
from infra.systems.rocketmq.topologies.master_slave import MasterSlaveTopology

pytestmark = pytest.mark.cluster

PATIENCE_S = 500
"""Until a start is given up: far more than it takes, also on a machine with much else to do."""


@contextlib.contextmanager
def nodes_for(topology: RocketmqTopology, count: int) -> Iterator[list[Node]]:
    """Docker nodes with the topology's configuration on them; nothing is started."""
    spec = ClusterSpec(run_id=f"servers-{time.time_ns():x}", nodes=count, shares=topology.shares())
    cluster = DockerBackend().provision(spec)
    try:
        topology.attach(cluster)
        yield list(cluster.nodes)
    finally:
        cluster.destroy()


def servers(topology: RocketmqTopology, node: Node) -> dict[str, Server]:
    return {server.kind: server for server in topology.servers(node)}


def looked(topology: RocketmqTopology, nodes: list[Node]) -> list[Status]:
    """The status of every node, with a long time-out."""

    async def all_of_them() -> list[Status]:
        return await asyncio.gather(*(topology.observe(node, 20) for node in nodes))

    return asyncio.run(all_of_them())


def test_controller(tmp_path: Path) -> None:
    """Strict, with a setting of the user's; one broker goes in an orderly way and returns."""
    topology = ControllerTopology(ServerSettings(settings={"broker.syncFlushTimeout": "7000"}))
    with nodes_for(topology, 3) as nodes:
        topology.start_all(PATIENCE_S)
        output = looked(topology, nodes)
        assert sorted(status.role for status in output) == ["follower", "follower", "leader"]
        assert [status.extra["namesrv"] for status in output] == [True] * 3
        (in_sync,) = [status.extra["in_sync"] for status in output if status.extra["controller"] == "leader"]
        assert sorted(in_sync) == ["n1", "n2", "n3"]
        ends = {status.end for status in output}
        assert len(ends) == 1, "the message of the readiness test is on every replica before it is acknowledged"
        assert ends.pop() not in (0, None)

        first, last = servers(topology, nodes[0]), servers(topology, nodes[2])
        last["broker"].stop()
        assert last["broker"].process() is None
        assert last["namesrv"].process() is not None
        before = first["broker"].process()
        topology.start_all(PATIENCE_S)
        assert first["broker"].process() == before, "what runs is left alone"

        topology.collect(nodes[0], tmp_path)
    effective = (tmp_path / "effective-broker.properties").read_text()
    assert "syncFlushTimeout=7000" in effective
    assert "allAckInSyncStateSet=true" in effective
    assert {"namesrv.log", "controller.log", "broker.log", "gc-broker.log"} <= {p.name for p in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("topology", "count", "roles"),
    [
        pytest.param(
            ControllerTopology(ServerSettings(kinds=["proxy"]), ControllerOptions("jraft-embedded", brokers=2)),
            3,
            (1, 2),
            marks=pytest.mark.nightly,
        ),
        (DledgerCommitlogTopology(ServerSettings()), 3, (1, 2)),
        pytest.param(MasterSlaveTopology(ServerSettings()), 3, (2, 1), marks=pytest.mark.nightly),
        (ActingMasterTopology(ServerSettings()), 4, (2, 2)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_others(topology: RocketmqTopology, count: int, roles: tuple[int, int]) -> None:
    """Ready means: every group has a master, its members follow, name servers list them, and a message was stored."""
    with nodes_for(topology, count) as nodes:
        topology.start_all(PATIENCE_S)
        output = [status.role for status in looked(topology, nodes)]
        assert (output.count("leader"), output.count("follower")) == roles
        assert all(server.process() for node in nodes for server in topology.servers(node))


def test_a_broker_that_dies_at_its_start_is_told_in_its_own_words() -> None:
    """With 64 MB of direct memory the timer wheel does not fit."""
    topology = MasterSlaveTopology(ServerSettings(launch=Launch(jvm_options=["-XX:MaxDirectMemorySize=64m"])))
    with (
        nodes_for(topology, 1),
        pytest.raises(InfraError, match=r"n1: the broker has ended; its log: .*direct") as error,
    ):
        topology.start_all(PATIENCE_S)
    assert "\n" not in str(error.value)
