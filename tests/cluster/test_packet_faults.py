# SPDX-License-Identifier: Apache-2.0
"""Packet faults on real nodes without servers: each is seen at the sockets, heals alone, and leaves nothing behind."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from harness.api import Injection, Target
from harness.cluster_view import ClusterView
from infra.machines.api import ClusterSpec, Lease, Node
from infra.machines.backends.local import LocalBackend
from infra.machines.primitives.datagrams import Burst, End, burst, control_program, round_trip_ms
from infra.machines.primitives.network import TABLE_PREFIX, control_address
from infra.machines.primitives.packets import SWEEP, Delay, Drop, Duplicate, PacketFault, Selection
from infra.machines.primitives.shaping import Shape
from infra.systems.api import REPLICATION, Deployment
from nemesis.links import ClientOptions, LinkOptions
from nemesis.on_links import OnLinks, PacketNemesis, Way
from nemesis.packets import (
    Bandwidth,
    BandwidthOptions,
    CutClients,
    DelayOptions,
    DuplicateOptions,
    LossOptions,
    OneWayCut,
    PacketDelay,
    PacketDuplicate,
    PacketLoss,
    PacketReorder,
    ReorderOptions,
)
from nemesis.partition import Cut

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

NODES = ["n1", "n2", "n3"]
VIEW = ClusterView.assumed(NODES, "n1")
SERVICE, COPY = 7777, 7778

_SERVER = """
import socket
server = socket.create_server(("", 7777))
while True:
    server.accept()[0].close()
"""


def spec() -> ClusterSpec:
    return ClusterSpec(f"packets-{uuid4().hex[:8]}", nodes=len(NODES))


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    """Three nodes, each with a server that takes connections on one port, and is said to copy through another."""
    cluster = LocalBackend().provision(spec())
    ports = {"server": SERVICE, REPLICATION: COPY}
    topology: Any = SimpleNamespace(servers=lambda node: [SimpleNamespace(node=node, kind="server", ports=ports)])
    try:
        for node in cluster.nodes:
            node.spawn(["python3", "-c", _SERVER], env={}, log="/root/server.log", pidfile="/root/server.pid")
        yield Deployment(cluster, topology)
    finally:
        cluster.destroy()


@pytest.fixture
def untouched(deployment: Deployment) -> Iterator[None]:
    """Fails if the nodes' packet filters and queues are not the same at the end of a test as before it."""
    before = [traces(node) for node in deployment.nodes]
    yield
    assert [traces(node) for node in deployment.nodes] == before


def traces(node: Node) -> Mapping[str, str]:
    """All that a packet fault may put on a node, by where it is seen."""
    seen = {
        "rules": ["nft", "list", "ruleset"],
        "queueing disciplines": ["tc", "qdisc", "show"],
        "queues": ["sh", "-c", "cat /proc/net/netfilter/nfnetlink_queue"],
        "processes": ["sh", "-c", "ps -e -o comm= | grep -c python || true"],
    }
    return {name: node.run(argv).text for name, argv in seen.items()}


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def struck(fault: PacketNemesis, target: str = "n1") -> dict[str, Injection]:
    return dict(fault.aim(VIEW, Target([target]), Random(1)))


def injected(deployment: Deployment, places: Mapping[str, Injection]) -> list[Lease]:
    leases = [injection.inject(deployment, 60) for injection in places.values()]
    assert None not in leases
    return [lease for lease in leases if lease is not None]


ALL: list[tuple[PacketNemesis, str]] = [
    (OneWayCut(), r"n2: 0 of 5 datagrams arrived, the other way 5 of 5; n3: 0 of 5 .*; 10 packets counted"),
    (OneWayCut(LinkOptions(direction="out", peers=("n3",))), r"n1: 0 of 5 .* 5 of 5; 5 packets counted"),
    (OneWayCut(LinkOptions(peers=("clients",))), r"clients: 0 of 5 datagrams arrived, the other way 5 of 5"),
    (CutClients(), r"clients: 0 of 5 datagrams .* no answer from port 7777 within 1 s, while SSH works"),
    (CutClients(ClientOptions("replication")), r"clients: 0 of 5 .* no answer from port 7778 within 1 s"),
    (PacketDelay(DelayOptions(by=0.08)), r"n2: round trip \d+\.\d+ ms, \d+\.\d+ ms before; n3: round trip"),
    (PacketDelay(DelayOptions(by=0.06, jitter=0.02, peers=("clients",))), r"clients: round trip \d+\.\d+ ms"),
    (PacketDelay(DelayOptions(by=0.05, port="replication", direction="both", peers=("n2",))), r"round trip"),
    (PacketLoss(LossOptions(percent=20)), r"n2: 1\d\d of 200 datagrams arrived; n3: 1\d\d of 200"),
    (PacketDuplicate(DuplicateOptions(percent=30)), r"n2: \d\d copies of 200 datagrams arrived; n3: \d\d copies"),
    (PacketDuplicate(DuplicateOptions(peers=("clients",), port="clients")), r"clients: \d+ copies of 200"),
    (PacketReorder(ReorderOptions(percent=20)), r"n2: \d+ of 200 datagrams arrived behind a later one; n3: \d+ of"),
    (Bandwidth(), r"n2: [01]\.\d\d Mbit/s, \d+ Mbit/s before"),
    (Bandwidth(BandwidthOptions(rate="4mbit", peers=("all", "clients"), port="clients")), r"n2: [1-5]\.\d\d Mbit/s"),
]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("fault", "what"), ALL, ids=lambda one: getattr(one, "name", None))
def test_it_is_available_seen_and_healed(deployment: Deployment, fault: PacketNemesis, what: str) -> None:
    assert fault.available(deployment) is None
    places = struck(fault)
    leases = injected(deployment, places)
    try:
        for injection in places.values():
            evidence = injection.seen(deployment)
            assert evidence.seen, evidence.what
            assert re.search(what, evidence.what) or len(places) > 1, evidence.what
            kept = [one for one in places.values() if isinstance(one, OnLinks)]
            assert all(one.held is not None and one.held.left(deployment.node(one.node)) for one in kept)
    finally:
        for lease in leases:
            lease.heal()
    for injection in places.values():
        assert isinstance(injection, OnLinks)
        assert injection.healed(deployment).seen
        way = next(iter(injection.ways.values()))
        healthy = fault.judge(fault.baseline(way), fault.probe(way))
        assert not healthy.seen, f"the probe sees an effect on a healthy link: {healthy.what}"


@pytest.mark.nightly
@pytest.mark.usefixtures("untouched")
def test_delays_add_up_and_heal_alone(deployment: Deployment) -> None:
    """Two delays of one link beside losses and a partition: each is seen, and each ends when it is healed."""
    n1, n2 = deployment.node("n1"), deployment.node("n2")
    way = End(n2), End(n1)
    faults = [PacketDelay(DelayOptions(by=0.2)), PacketDelay(DelayOptions(by=0.1, peers=("n2",))), PacketLoss()]
    places = [struck(fault)["n1"] for fault in faults]
    leases = []
    for injection in places:
        leases += injected(deployment, {"n1": injection})
        assert injection.seen(deployment).seen, injection.seen(deployment).what
    partition = Cut("n1", ["n3"])
    apart = partition.inject(deployment, 60)
    assert partition.seen(deployment).seen
    assert (round_trip_ms(*way, 15) or 0) >= 300
    leases[2].heal()
    assert places[2].healed(deployment).seen
    assert burst(*way, 300, settle_s=0.8).lost == 0
    leases[0].heal()
    assert places[0].healed(deployment).seen
    assert places[1].seen(deployment).seen is False, "its baseline had the other delay in it"
    assert (round_trip_ms(*way) or 0) >= 100
    assert not partition.healed(deployment).seen
    apart.heal()
    assert partition.healed(deployment).seen
    leases[1].heal()
    assert places[1].healed(deployment).seen


@pytest.mark.usefixtures("untouched")
def test_a_second_limit_of_a_node_is_refused(deployment: Deployment) -> None:
    first, second = struck(Bandwidth())["n1"], struck(Bandwidth(BandwidthOptions(rate="2mbit")))["n1"]
    (lease,) = injected(deployment, {"n1": first})
    try:
        assert second.inject(deployment, 60) is None
        evidence = second.seen(deployment)
        assert not evidence.seen
        assert evidence.what == "n1: eth0 has the queueing discipline htb already, so nothing was injected"
        assert first.seen(deployment).seen
    finally:
        lease.heal()
    assert first.healed(deployment).seen


@pytest.mark.usefixtures("untouched")
def test_other_ports_and_other_nodes_are_not_hit(deployment: Deployment) -> None:
    """A cut of one port: what comes from it or goes to it, from this node alone, TCP and UDP alike."""
    n1, n2, n3 = (End(node) for node in deployment.nodes)
    lease = Drop(Selection([n2.address], [SERVICE])).hold(n1.node, 60)
    try:
        assert burst(n2, n1, 5, gap_s=0.01, port=SERVICE).arrived == 0
        assert burst(n2, n1, 5, gap_s=0.01, port=COPY).arrived == 5
        assert burst(n3, n1, 5, gap_s=0.01, port=SERVICE).arrived == 5
        assert not connects(n2.node, n1.address, SERVICE)
        assert connects(n3.node, n1.address, SERVICE)
        assert connects(n1.node, n3.address, SERVICE)
        assert not connects(n1.node, n2.address, SERVICE), "its answer comes from that port"
    finally:
        lease.heal()
    assert connects(n2.node, n1.address, SERVICE)


def connects(source: Node, address: str, port: int) -> bool:
    script = 'exec 3<>"/dev/tcp/$1/$2"'
    return source.run(["timeout", "1", "bash", "-c", script, "connect", address, str(port)], check=False).code == 0


@pytest.mark.usefixtures("untouched")
def test_clients_are_cut_off_and_nodes_are_not(deployment: Deployment) -> None:
    n1, n2 = deployment.node("n1"), deployment.node("n2")
    injection = struck(CutClients())["n1"]
    (lease,) = injected(deployment, {"n1": injection})
    try:
        assert connects(n2, n1.address, SERVICE)
        assert connects(n1, n2.address, SERVICE)
    finally:
        lease.heal()
    control = control_program(control_address(n1))
    assert burst(control, End(n1), 5, gap_s=0.01).arrived == 5


def kinds(node: Node, other: str) -> list[PacketFault]:
    selection = Selection([other, control_address(node)])
    return [
        Drop(selection, share=100),
        Duplicate(selection, share=100),
        Delay(selection, delay_s=0.01),
        Shape(selection),
    ]


@pytest.mark.usefixtures("untouched")
def test_a_delayer_that_is_killed_lets_packets_pass(deployment: Deployment) -> None:
    n1, n2 = deployment.node("n1"), deployment.node("n2")
    fault = Delay(Selection([n2.address]), delay_s=3)
    lease = fault.hold(n1, 60)
    (delayer,) = [one for one in fault.left(n1) if one.startswith("the delayer")]
    n1.run(["kill", "-9", delayer.split()[-1]])
    until(lambda: len(fault.left(n1)) == 2)
    assert round_trip_ms(End(n2), End(n1), 1, timeout_s=2) is not None
    lease.heal()
    assert fault.left(n1) == []


@pytest.mark.usefixtures("untouched")
def test_a_delayer_whose_guard_is_killed_ends_by_itself(deployment: Deployment) -> None:
    """Nobody undoes anything then, until a heal does; packets pass when the time to live is over."""
    n1, n2 = deployment.node("n1"), deployment.node("n2")
    fault = Delay(Selection([n2.address]), delay_s=3)
    lease = fault.hold(n1, 1)
    kill_guards(n1)
    assert len(fault.left(n1)) == 3
    until(lambda: len(fault.left(n1)) == 2)
    assert round_trip_ms(End(n2), End(n1), 1, timeout_s=2) is not None
    lease.heal()
    assert fault.left(n1) == []


def kill_guards(node: Node) -> None:
    """With SIGKILL, so that none of them undoes anything."""
    script = """for p in /proc/[0-9]*; do grep -zqs '^lease:' "$p/cmdline" && kill -9 "${p#/proc/}"; done; true"""
    node.run(["sh", "-c", script])


@pytest.mark.usefixtures("untouched")
def test_a_machine_is_swept(deployment: Deployment) -> None:
    """As by `harness clean` on machines that outlive a run: the guards are killed, and what they held goes."""
    node = deployment.node("n1")
    faults = kinds(node, deployment.node("n2").address)
    leases = [fault.hold(node, 60) for fault in faults]
    node.run(["nft", "add", "table", "inet", "somebody_elses"])
    kill_guards(node)
    assert all(fault.left(node) for fault in faults)
    node.run(["sh", "-c", f'{SWEEP}\nsweep_packets "$1"', "sweep", TABLE_PREFIX])
    until(lambda: [left for fault in faults for left in fault.left(node)] == [])
    assert "somebody_elses" in node.run(["nft", "list", "tables"]).text
    node.run(["nft", "delete", "table", "inet", "somebody_elses"])
    for lease in leases:
        lease.heal()


_CONTROL = """
import sys, time
from infra.machines.api import ClusterSpec
from infra.machines.backends.local import LocalBackend
from tests.cluster import test_packet_faults
cluster = LocalBackend().reuse(ClusterSpec(sys.argv[1]))
node, other, *_ = cluster.nodes
held = [(fault, fault.hold(node, 300)) for fault in test_packet_faults.kinds(node, other.address)]
print(*(len(fault.left(node)) for fault, _ in held), flush=True)
time.sleep(600)
"""


def test_kill_9_of_the_control_program_leaves_nothing() -> None:
    """On nodes that outlive it."""
    backend, wanted = LocalBackend(), spec()
    made = backend.provision(wanted)
    before = [traces(node) for node in made.nodes]
    made.keep("for this test")
    try:
        root = Path(__file__).parents[2]
        control = subprocess.Popen([sys.executable, "-c", _CONTROL, wanted.run_id], stdout=subprocess.PIPE, cwd=root)
        assert control.stdout is not None
        held = control.stdout.readline()
        control.kill()
        control.communicate()
        assert held == b"1 1 3 2\n"
        used = backend.reuse(wanted)
        until(lambda: [traces(node) for node in used.nodes] == before)
        used.destroy()
    finally:
        backend.clean(wanted.run_id)


def test_a_probe_counts_what_is_there(deployment: Deployment) -> None:
    """Without any fault: all arrive, once, in order; and a way that nobody delays has round trips."""
    n1, n2 = End(deployment.node("n1")), End(deployment.node("n2"))
    found = burst(n1, n2, 100)
    assert found == Burst(100, 100, 100, 0, 3200, found.seconds)
    assert Way(n1, n2).port == 0
    assert round_trip_ms(n1, n2) is not None
