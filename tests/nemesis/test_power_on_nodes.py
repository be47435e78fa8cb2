# SPDX-License-Identifier: Apache-2.0
"""Faults of power and disks on real nodes with servers of a few lines: injected, seen, healed, and struck again."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from toy_deployment import HOME, ToyTopology

from harness.api import Fault, Injection, Target
from harness.cluster_view import ClusterView
from infra.machines.api import Cluster, ClusterSpec
from infra.machines.backends.local import LocalBackend
from infra.options import parse
from infra.systems.api import Deployment, ServersRun
from nemesis.disk import DiskError, DiskFull, DiskReadOnly, DiskStall
from nemesis.patience import eventually
from nemesis.power import PowerCut, PowerFailure
from nemesis.slow_disk import DiskSlow, SlowOptions

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

NODES = ["n1", "n2", "n3"]
VIEW = ClusterView(
    NODES,
    servers={"n1": ("namesrv", "broker"), "n2": ("broker",), "n3": ("broker",)},
    main=dict.fromkeys(NODES, "broker"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = LocalBackend().provision(ClusterSpec(f"power-{uuid4().hex[:10]}", nodes=3))
    yield made
    made.destroy()


@pytest.fixture(scope="module")
def deployment(cluster: Cluster) -> Deployment:
    """Servers on volumes, as runs have them: the volumes are there before the servers start."""
    topology: Any = ToyTopology(cluster)
    found = Deployment(cluster, topology)
    fault = power(size=64)
    assert fault.available(found) is None
    for server in found.servers():
        server.furnish()  # type: ignore[attr-defined]
    fault.prepare(found)
    for server in found.servers():
        server.start()
    return found


def power(**options: Any) -> Fault:
    return PowerFailure(parse(PowerFailure.Options, {name: str(value) for name, value in options.items()}, "options"))


def only(fault: Fault, *nodes: str) -> Injection:
    (injection,) = fault.aim(VIEW, Target(nodes), Random(1)).values()
    return injection


def all_run(deployment: Deployment) -> bool:
    return eventually(lambda: all(server.process() is not None for server in deployment.servers()), 10)


@pytest.mark.parametrize("nodes", [["n2"], ["n1", "n3"], NODES])
def test_machines_lose_their_power_and_come_back(deployment: Deployment, nodes: list[str]) -> None:
    """Twice in a row; the servers of other nodes go on."""
    assert all_run(deployment)
    for _ in range(2):
        before = {server: server.process() for server in deployment.servers()}
        cut = only(power(), *nodes)
        lease = cut.inject(deployment, 60)
        assert lease is not None
        try:
            found = cut.seen(deployment)
            assert found.seen, found.what
            assert f"unsynced file gone on {len(nodes)} of {len(nodes)} nodes" in found.what
            for server, process in before.items():
                assert server.process() == (None if server.node.name in nodes else process)
        finally:
            lease.heal()
        assert cut.healed(deployment).seen
        assert all_run(deployment)


def test_the_guards_start_the_servers_where_nobody_heals(deployment: Deployment) -> None:
    cut = only(power(), "n2")
    assert cut.inject(deployment, 0.5) is not None
    assert all_run(deployment)


def test_a_node_whose_servers_are_down_already_is_left_alone(deployment: Deployment) -> None:
    server = deployment.server("n2", "broker")
    running = server.process()
    assert running is not None
    server.node.run(["kill", "-9", str(running.pid)])
    assert eventually(lambda: server.process() is None, 5)
    cut = only(power(), "n2")
    assert cut.inject(deployment, 60) is None
    assert not cut.seen(deployment).seen
    both = only(power(), "n2", "n3")
    assert isinstance(both, PowerCut)
    lease = both.inject(deployment, 60)
    assert lease is not None
    assert list(both.struck) == ["n3"]
    assert {effect.node for effect in both.effects} == {"n3"}
    assert both.seen(deployment).seen
    lease.heal()
    assert both.healed(deployment).seen
    server.start()


@pytest.mark.parametrize(
    ("fault", "options", "evidence"),
    [
        (DiskFull, {"left": "3"}, "3 MiB free"),
        (DiskFull, {"end": "power"}, "a synced write: ENOSPC; 0 MiB free"),
        (DiskStall, {}, "a synced write: frozen"),
        (DiskStall, {"end": "kill"}, "a synced write: frozen"),
        (DiskReadOnly, {}, "a synced write: EROFS"),
        (DiskError, {"end": "power"}, "a synced write: EIO"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_disk_in_trouble_is_seen_and_well_again(
    deployment: Deployment, fault: type[Fault], options: dict[str, str], evidence: str
) -> None:
    assert all_run(deployment)
    trouble = only(fault(parse(fault.Options, options, "options")), "n1")
    lease = trouble.inject(deployment, 60)
    assert lease is not None
    try:
        found = trouble.seen(deployment)
        assert found.seen, found.what
        assert evidence in found.what
        assert not trouble.healed(deployment).seen or options.get("left"), "it is not well yet"
    finally:
        lease.heal()
    found = trouble.healed(deployment)
    assert found.seen, found.what
    assert all_run(deployment)


@pytest.mark.parametrize(
    ("options", "evidence"),
    [
        ({"write_iops": "40"}, "s, limit 40 a second; before in "),
        ({"write_iops": "0", "write_rate": "1MiB", "read_rate": "2MiB"}, "s, limit 2.00 MiB a second; before in "),
        ({"write_iops": "0", "read_iops": "40"}, " reads in "),
    ],
    ids=["writes", "bytes", "reads"],
)
def test_a_disk_is_as_slow_as_it_is_told_to_be(deployment: Deployment, options: dict[str, str], evidence: str) -> None:
    """The servers go on; and a second strike leaves the first one's limits alone."""
    assert all_run(deployment)
    before = {server: server.process() for server in deployment.servers()}
    fault = DiskSlow(parse(SlowOptions, options, "options"))
    assert fault.available(deployment) is None
    slow, again = only(fault, "n1"), only(fault, "n1")
    lease = slow.inject(deployment, 60)
    assert lease is not None
    try:
        found = slow.seen(deployment)
        assert found.seen, found.what
        assert evidence in found.what
        assert again.inject(deployment, 60) is None
        assert not again.seen(deployment).seen
        assert again.healed(deployment).seen
        assert "limits are left" in slow.healed(deployment).what
    finally:
        lease.heal()
    lease.heal()
    found = slow.healed(deployment)
    assert found.seen, found.what
    assert not slow.seen(deployment).seen, "it is as fast as before"
    assert {server: server.process() for server in deployment.servers()} == before


def test_a_slow_disk_stays_slow_when_its_machine_loses_its_power(deployment: Deployment) -> None:
    """The file system is then on another device. The heal finds it."""
    slow, cut = only(DiskSlow(), "n2"), only(power(), "n2")
    lease = slow.inject(deployment, 60)
    assert lease is not None
    try:
        off = cut.inject(deployment, 60)
        assert off is not None
        off.heal()
        assert cut.healed(deployment).seen
        found = slow.seen(deployment)
        assert found.seen, found.what
    finally:
        lease.heal()
    assert slow.healed(deployment).seen
    assert all_run(deployment)


def test_the_journal_gets_the_mode_that_the_plan_asks_for(deployment: Deployment) -> None:
    """Not under servers that run; other faults leave it as it is."""
    fault = power(size=64, data="writeback")
    assert fault.available(deployment) is None
    with pytest.raises(ServersRun, match="its data is on a file system with data=ordered"):
        fault.prepare(deployment)
    for mode in ("writeback", "ordered"):
        for server in deployment.servers():
            server.stop()
        power(size=64, data=mode).prepare(deployment)
        DiskFull(parse(DiskFull.Options, {}, "options")).prepare(deployment)
        for server in deployment.servers():
            server.start()
        for asked in ("writeback", "ordered"):
            cut = only(power(data=asked), "n2")
            lease = cut.inject(deployment, 60)
            assert lease is not None
            found = cut.seen(deployment)
            lease.heal()
            assert found.seen == (asked == mode)
            assert found.what.endswith("data=writeback") == (mode == "writeback")
            assert all_run(deployment)


def test_a_cluster_whose_servers_run_gets_no_volumes_under_them(cluster: Cluster) -> None:
    """A kept cluster of a run without such faults."""
    other = LocalBackend().provision(ClusterSpec(f"power-{uuid4().hex[:10]}", nodes=1))
    try:
        topology: Any = ToyTopology(other)
        found = Deployment(other, topology)
        for server in found.servers():
            server.furnish()  # type: ignore[attr-defined]
            server.start()
        with pytest.raises(ServersRun, match="n1: its namesrv runs"):
            power(size=64).prepare(found)
        assert other.nodes[0].run(["mountpoint", "-q", f"{HOME}/data"], check=False).code != 0
    finally:
        other.destroy()
