# SPDX-License-Identifier: Apache-2.0
"""Replaced machines on real nodes: who reaches which address, and that everything else goes on at the new one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from toy_deployment import deployed

from harness.api import Injection, Target
from harness.cluster_view import ClusterView
from infra.machines.api import Cluster, ClusterSpec, InfraError
from infra.machines.backends.docker import DockerBackend
from infra.machines.backends.local import LocalBackend
from infra.machines.primitives import addresses, network
from infra.systems.api import Deployment
from nemesis.patience import eventually
from nemesis.replace import ReplaceNode, ReplaceOptions

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

NODES = ["n1", "n2", "n3"]
VIEW = ClusterView(
    NODES,
    servers={"n1": ("namesrv", "broker"), "n2": ("broker",), "n3": ("broker",)},
    main=dict.fromkeys(NODES, "broker"),
)


BACKENDS = (
    pytest.param(DockerBackend(), id="docker"),
    pytest.param(LocalBackend(), id="local", marks=pytest.mark.nightly),
)
"""`make test` has the other one for the faults of disks."""


@pytest.fixture(scope="module", params=BACKENDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = request.param.provision(ClusterSpec(f"replace-{uuid4().hex[:10]}", nodes=3))
    try:
        yield made
    finally:
        made.destroy()


@pytest.fixture(scope="module")
def deployment(cluster: Cluster) -> Deployment:
    return deployed(cluster)


@pytest.fixture(autouse=True)
def data(deployment: Deployment) -> None:
    for server in deployment.servers():
        assert eventually(lambda server=server: server.admin.answers(1), 20)  # type: ignore[misc]
    for server in deployment.servers(kind="broker"):
        server.node.write(f"{server.data_dirs[0]}/store", b"data")


def replacement(node: str, **options: Any) -> Injection:
    (injection,) = ReplaceNode(ReplaceOptions(**options)).aim(VIEW, Target([node]), Random(1)).values()
    return injection


def source(node: Any, target: Any) -> str:
    """The address from which a node's connections come."""
    return str(node.run(["ip", "-4", "-o", "route", "get", target.address]).text.split(" src ")[1].split()[0])


@pytest.mark.parametrize("keep_data", [False, True], ids=["empty", "kept"])
def test_a_machine_fails_and_another_takes_its_place(deployment: Deployment, keep_data: bool) -> None:
    """Again and again, each time with another address."""
    node, peer, broker = deployment.node("n2"), deployment.node("n3"), deployment.server("n2", "broker")
    old, before = node.address, broker.process()
    with socket.create_connection((old, 10911), timeout=5) as client:
        injection = replacement("n2", keep_data=keep_data)
        lease = injection.inject(deployment, 60)
        assert lease is not None
        try:
            found = injection.seen(deployment)
            assert found.seen, found.what
            assert f"n1 reaches {node.address} and does not reach {old}" in found.what
            assert injection.detail["address"] == f"{old} -> {node.address}"
            client.settimeout(0.3)
            with pytest.raises(TimeoutError):  # the process is dead, and no packet reports it
                client.recv(1)
        finally:
            lease.heal()
    found = injection.healed(deployment)
    assert found.seen, found.what
    assert IPv4Address(node.address) > IPv4Address(old)
    assert broker.process() not in (None, before)
    assert eventually(lambda: broker.admin.answers(1), 20)
    store = node.run(["cat", f"{broker.data_dirs[0]}/store"], check=False)
    assert store.text == ("data" if keep_data else "")
    assert source(node, peer) == node.address
    with pytest.raises(TimeoutError):
        socket.create_connection((old, 10911), timeout=0.5)


def test_a_partition_cuts_the_new_machine_off(deployment: Deployment) -> None:
    node, peer = deployment.node("n2"), deployment.node("n3")
    lease = replacement("n2").inject(deployment, 60)
    assert lease is not None
    lease.heal()
    for deaf, heard in ((peer, node), (node, peer)):
        cut = network.drop_packets(deaf, [heard.address], 60)
        network.send_probe(heard, deaf.address)
        assert eventually(lambda deaf=deaf, heard=heard: network.dropped(deaf)[heard.address] > 0, 5)  # type: ignore[misc]
        cut.heal()


def test_a_node_that_is_cut_off_is_not_replaced(deployment: Deployment) -> None:
    """The rules name the address of before."""
    node, injection = deployment.node("n2"), replacement("n2")
    before = node.address
    cut = network.drop_packets(deployment.node("n1"), [before], 60)
    try:
        assert injection.inject(deployment, 60) is None
        found = injection.seen(deployment)
        assert not found.seen
        assert found.what == "another fault holds packet rules on n1, which mean the address of today"
    finally:
        cut.heal()
    assert node.address == before
    assert not any(addresses.has_rules(each) for each in deployment.nodes)


def test_the_guard_starts_the_new_machine_where_nobody_heals(deployment: Deployment) -> None:
    before = deployment.server("n3", "broker").process()
    assert replacement("n3").inject(deployment, 0.5) is not None
    assert eventually(lambda: deployment.server("n3", "broker").process() not in (None, before), 20)


def test_a_replacement_that_fails_leaves_the_machine(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    node, broker = deployment.node("n3"), deployment.server("n3", "broker")
    before, running = node.address, broker.process()
    monkeypatch.setattr(
        addresses.Move, "argv", lambda move: ["sh", "-c", f"ip address add {move.new}/24 dev eth0; false"]
    )
    injection = replacement("n3")
    with pytest.raises(InfraError):
        injection.inject(deployment, 60)
    assert node.address == before
    assert eventually(lambda: broker.process() is not None, 10)
    assert source(node, deployment.node("n1")) == before
    assert running is not None
    assert len(node.run(["sh", "-c", "ip -o -4 address show dev eth0"]).text.splitlines()) <= 2
    monkeypatch.undo()
    lease = replacement("n3").inject(deployment, 60)
    assert lease is not None
    lease.heal()


def test_a_server_that_is_down_already_fails_with_nothing(deployment: Deployment) -> None:
    node, broker = deployment.node("n2"), deployment.server("n2", "broker")
    running, before = broker.process(), node.address
    assert running is not None
    node.run(["kill", "-9", str(running.pid)])
    assert eventually(lambda: broker.process() is None, 5)
    injection = replacement("n2")
    assert injection.inject(deployment, 60) is None
    assert not injection.seen(deployment).seen
    assert node.address == before
    broker.start()


def test_a_cluster_tells_what_keeps_its_addresses(deployment: Deployment) -> None:
    assert ReplaceNode().available(deployment) is None
    alone = ClusterView(NODES, {"n1": ("broker",)}, {"n1": "broker"})
    (injection,) = ReplaceNode().aim(alone, Target(["n1"]), Random(1)).values()
    with pytest.raises(InfraError, match="n1: its namesrv is known by it"):
        injection.inject(deployment, 60)


def test_a_kept_cluster_keeps_its_addresses() -> None:
    backend = LocalBackend()
    spec = ClusterSpec(f"replace-{uuid4().hex[:10]}", nodes=2)
    try:
        made = backend.provision(spec)
        deployment = deployed(made)
        alone = ClusterView(["n2"], {"n2": ("broker",)}, {"n2": "broker"})
        (injection,) = ReplaceNode(ReplaceOptions(keep_data=True)).aim(alone, Target(["n2"]), Random(1)).values()
        lease = injection.inject(deployment, 60)
        assert lease is not None
        lease.heal()
        assert injection.healed(deployment).seen
        address = made.nodes[1].address
        made.keep("for this test")
        again = backend.reuse(spec)
        assert again.nodes[1].address == address
        assert again.nodes[1].run(["hostname"]).text.strip() == "n2"
        taken = addresses.take(again, again.nodes[1])
        assert taken.old == address
        assert IPv4Address(taken.new) == IPv4Address(address) + 1
        again.destroy()
    finally:
        backend.clean(spec.run_id)
