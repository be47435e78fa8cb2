# SPDX-License-Identifier: Apache-2.0
"""The links of a packet fault: their ends, their direction, their ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import NoTarget, Target
from harness.cluster_view import ClusterView
from harness.nemesis.schedule import strikes as drawn
from harness.parts.resolve import check_targets, resolve
from harness.plan.plan import NemesisPlan, Plan, PlanError, ServerPlan
from infra.machines.api import InfraError
from infra.options import OptionError, parse
from infra.systems.api import REPLICATION
from nemesis.links import Link, LinkOptions, SenderLinkOptions, links, ports
from nemesis.packets import Bandwidth, CutClients, OneWayCut, PacketDuplicate

NODES = ["n1", "n2", "n3", "n4", "n5"]
VIEW = ClusterView(
    NODES,
    servers={node: ["broker"] for node in NODES},
    main=dict.fromkeys(NODES, "broker"),
    groups={"a": ["n1", "n2", "n3"], "b": ["n4"]},
    leaders={"a": "n2", "b": "n4"},
    leading={"controller": "n3"},
)


def found(target: Sequence[str], *peers: str, direction: Any = "in", view: ClusterView = VIEW) -> list[str]:
    """`sender>receiver`."""
    options = LinkOptions(peers=peers, direction=direction)
    return [f"{link.sender}>{link.receiver}" for link in links(view, Target(target), options, Random(1))]


def test_the_direction_is_seen_from_the_target() -> None:
    assert found(["n1"], "all") == ["n2>n1", "n3>n1", "n4>n1", "n5>n1"]
    assert found(["n1"], "n3", direction="out") == ["n1>n3"]
    assert found(["n1"], "n3", direction="both") == ["n3>n1", "n1>n3"]


def test_a_link_between_two_targets_is_there_once() -> None:
    assert found(["n1", "n2"], "n1", "n2", direction="both") == ["n2>n1", "n1>n2"]


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        (["own-group"], ["n2", "n3"]),
        (["other-groups"], ["n4"]),
        (["own-group", "clients"], ["n2", "n3", "clients"]),
        (["clients", "n5+n2"], ["n2", "n5", "clients"]),
        (["controller-leader"], ["n3"]),
        (["slaves"], ["n3"]),
        (["n3", "n3+all"], ["n2", "n3", "n4", "n5"]),
    ],
)
def test_who_the_peers_are(peers: list[str], expected: list[str]) -> None:
    assert found(["n1"], *peers) == [f"{peer}>n1" for peer in expected]


def test_one_role_is_one_server_for_all_targets() -> None:
    held = {frozenset(link.split(">")[0] for link in found(["n1", "n3", "n5"], "broker", view=VIEW)) for _ in range(5)}
    assert len(held) == 1
    assert {len(one) for one in held} == {1}


@pytest.mark.parametrize(
    ("peers", "why"),
    [
        (["n9"], "there is no node n9"),
        (["namesrv-leader"], "no namesrv-leader is known"),
        (["n1"], "n1: no other node is among the peers n1"),
    ],
)
def test_nobody_to_act_on(peers: list[str], why: str) -> None:
    with pytest.raises(NoTarget) as problem:
        found(["n1"], *peers)
    assert str(problem.value) == why


@pytest.mark.parametrize(
    ("owner", "given", "said"),
    [
        (LinkOptions, {"peers": ","}, "x: peers is empty; all, clients, a role or nodes are right"),
        (LinkOptions, {"peers": "n1,clients", "direction": "out"}, "with the peers clients, 'in' is right"),
        (LinkOptions, {"peers": "clients", "direction": "both"}, "with the peers clients, 'in' is right"),
        (SenderLinkOptions, {"peers": "clients", "direction": "in"}, "with the peers clients, 'out' is right"),
        (LinkOptions, {"port": "ssh"}, "any, clients, replication or a number up to 65535 is right"),
        (LinkOptions, {"port": "0"}, "port is '0'"),
        (LinkOptions, {"port": "70000"}, "port is '70000'"),
    ],
)
def test_options_that_cannot_be_meant(owner: type, given: Mapping[str, str], said: str) -> None:
    with pytest.raises(OptionError) as problem:
        parse(owner, given, "x")
    assert said in str(problem.value)


def deployment(ports: Mapping[str, Mapping[str, int]]) -> Any:
    return SimpleNamespace(servers=lambda node: [SimpleNamespace(ports=ports[node])] if node in ports else [])


def test_ports_are_those_of_the_servers_on_both_ends() -> None:
    made = deployment({"n1": {"broker": 10911, REPLICATION: 10912}, "n2": {"namesrv": 9876}})
    assert ports(made, "any", NODES) == ()
    assert ports(made, "clients", ["n1", "n2", "clients"]) == (9876, 10911)
    assert ports(made, "replication", ["n1", "n2"]) == (10912,)
    assert ports(made, "8080", ["n1"]) == (8080,)
    with pytest.raises(InfraError, match="no server there has a port for replication"):
        ports(made, "replication", ["n2", "n3"])


def test_where_a_fault_acts() -> None:
    """The fault is on the nodes where packets arrive, or on those that send them."""
    there = OneWayCut(LinkOptions(peers=("n2", "n3"), direction="out")).aim(VIEW, Target(["n1"]), Random(1))
    assert {place: one.detail["from"] for place, one in there.items()} == {"n2": ["n1"], "n3": ["n1"]}
    effects = [(e.kind, e.node, e.peers) for one in there.values() for e in one.effects]
    assert effects == [("cut-off", "n2", ("n1",)), ("cut-off", "n3", ("n1",))]
    here = PacketDuplicate().aim(VIEW, Target(["n1"]), Random(1))
    assert {place: one.detail["to"] for place, one in here.items()} == {"n1": ["n2", "n3", "n4", "n5"]}
    assert [(e.kind, e.node, e.peers) for one in here.values() for e in one.effects] == [("slow", "n1", ())]
    assert Bandwidth().describe(list(here.values()), {"n1": "master"}) == "n1 (master) > n2 n3 n4 n5"
    cut = CutClients().aim(VIEW, Target(["n1", "n2"]), Random(1))
    assert [(e.kind, e.node, e.peers) for one in cut.values() for e in one.effects] == [
        ("cut-off", "n1", ("clients",)),
        ("cut-off", "n2", ("clients",)),
    ]


def plan(fault: str, target: str, **options: Any) -> Plan:
    return Plan(server=ServerPlan(topology="controller"), nemeses=(NemesisPlan(fault, target=target, options=options),))


def checked(made: Plan) -> int:
    """The number of strikes that are drawn."""
    resolved = resolve(made)
    faults = [fault.make() for fault in resolved.chosen.faults]
    found = drawn(resolved, faults)
    check_targets(resolved, faults)
    return len(found)


@pytest.mark.parametrize("peers", ["master", "controller-leader", "other-groups", "n2+slaves", "clients"])
def test_peers_that_only_the_strike_knows_are_planned(peers: str) -> None:
    assert checked(plan("packet-delay", "slaves", peers=[peers], by="20ms")) == 3


def test_peers_that_cannot_be_are_told_before_the_run() -> None:
    with pytest.raises(PlanError, match="peers of packet-loss: no role 'mastr'; did you mean 'master'"):
        checked(plan("packet-loss", "n1", peers=["mastr"]))
    with pytest.raises(PlanError, match=r"packet-loss cannot act on 5 nodes.*\(there is no node n9\)"):
        checked(plan("packet-loss", "n1", peers=["n9"]))


def test_a_link_is_a_value() -> None:
    assert len({Link("n1", "n2"), Link("n2", "n1"), Link("n1", "n2")}) == 2
