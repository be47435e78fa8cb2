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
from infra.systems.api import ServerSettings, Status
from infra.systems.rocketmq.topologies import TOPOLOGIES
from infra.systems.rocketmq.topologies.base import RocketmqTopology

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


def made(name: str, settings: ServerSettings) -> RocketmqTopology:
    topology = TOPOLOGIES[name](settings)
    assert isinstance(topology, RocketmqTopology)
    return topology


def looked(topology: RocketmqTopology, nodes: list[Node]) -> list[Status]:
    """What every node says, asked patiently."""

    async def all_of_them() -> list[Status]:
        return await asyncio.gather(*(topology.observe(node, 20) for node in nodes))

    return asyncio.run(all_of_them())


def test_controller(tmp_path: Path) -> None:
    """Strict, with a setting of the user's; one broker goes in an orderly way and returns."""
    topology = made("controller", ServerSettings(settings={"broker.syncFlushTimeout": "7000"}))
    with nodes_for(topology, 3) as nodes:
        topology.start_all(PATIENCE_S)
        said = looked(topology, nodes)
        assert sorted(status.role for status in said) == ["follower", "follower", "leader"]
        assert [status.extra["namesrv"] for status in said] == [True] * 3
        (in_sync,) = [status.extra["in_sync"] for status in said if status.extra["controller"] == "leader"]
        assert sorted(in_sync) == ["n1", "n2", "n3"]
        ends = {status.end for status in said}
        assert len(ends) == 1, "the message of the readiness test is on every replica before it is acknowledged"
        assert ends.pop() not in (0, None)

        topology.stop(nodes[2], server="broker")
        assert topology.process(nodes[2], "broker") is None
        assert topology.process(nodes[2], "namesrv") is not None
        before = topology.process(nodes[0], "broker")
        topology.start_all(PATIENCE_S)
        assert topology.process(nodes[0], "broker") == before, "what runs is left alone"

        topology.collect(nodes[0], tmp_path)
    effective = (tmp_path / "effective-broker.properties").read_text()
    assert "syncFlushTimeout=7000" in effective
    assert "allAckInSyncStateSet=true" in effective
    assert {"namesrv.log", "controller.log", "broker.log", "gc-broker.log"} <= {p.name for p in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("name", "options", "count", "roles"),
    [
        ("controller", {"controller_type": "jraft-embedded", "brokers": "2", "proxy": "true"}, 3, (1, 2)),
        ("dledger-commitlog", {}, 3, (1, 2)),
        ("master-slave", {}, 3, (2, 1)),
        ("slave-acting-master", {}, 4, (2, 2)),
    ],
)
def test_the_others(name: str, options: dict[str, str], count: int, roles: tuple[int, int]) -> None:
    """Ready means: every group has a master, its members follow, name servers list them, and a message was stored."""
    topology = made(name, ServerSettings(options=options))
    with nodes_for(topology, count) as nodes:
        topology.start_all(PATIENCE_S)
        said = [status.role for status in looked(topology, nodes)]
        assert (said.count("leader"), said.count("follower")) == roles
        running = [
            (node.name, kind) for node in nodes for kind in topology.servers(node) if topology.process(node, kind)
        ]
        assert len(running) == sum(len(topology.servers(node)) for node in nodes)


def test_a_broker_that_dies_at_its_start_is_told_in_its_own_words() -> None:
    """With 64 MB of direct memory the timer wheel does not fit."""
    topology = made("master-slave", ServerSettings(jvm_options=["-XX:MaxDirectMemorySize=64m"]))
    with (
        nodes_for(topology, 1),
        pytest.raises(InfraError, match=r"n1: the broker has ended; its log: .*direct") as error,
    ):
        topology.start_all(PATIENCE_S)
    assert "\n" not in str(error.value)
