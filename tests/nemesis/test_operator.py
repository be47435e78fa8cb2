# SPDX-License-Identifier: Apache-2.0
"""The operator's faults and flipped bits without nodes: their targets, their refusals, the facts for a judge."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from noting_nodes import NotingCluster, noting_nodes

from harness.api import DATA, Fault, NoTarget, Target
from harness.cluster_view import ClusterView
from harness.nemesis.schedule import strikes
from harness.parts import registry
from harness.plan.plan import NemesisPlan, Plan
from infra.machines.api import Completed, InfraError
from infra.machines.primitives import addresses
from infra.options import OptionError, parse
from infra.systems.api import Deployment, ServerSettings
from infra.systems.rocketmq.topologies.controller import ControllerOptions, ControllerTopology
from infra.systems.rocketmq.topologies.dledger_commitlog import DledgerCommitlogTopology
from infra.systems.rocketmq.topologies.master_slave import MasterSlaveTopology
from nemesis.bits import FlipBits
from nemesis.meant import Claims, kinds_meant, servers_of
from nemesis.operator import ConfigChange, ControllerLoss, NamesrvLoss, WipeNode
from nemesis.replace import ReplaceNode
from nemesis.rolling import Roll, RollingRestart, RollingUpgrade, RollOptions
from results.strikes import impairs

NODES = ["n1", "n2", "n3", "n4", "n5"]
VIEW = ClusterView(
    NODES,
    servers={n: ("namesrv", "controller", "broker") if n in NODES[:3] else ("broker",) for n in NODES},
    main=dict.fromkeys(NODES, "broker"),
    groups={"a": NODES},
    leaders={"a": "n2"},
    leading={"controller": "n1"},
)
OPTIONS: Mapping[str, Mapping[str, str]] = {"rolling-upgrade": {"to": "5.1.1"}, "config-change": {"set": "a=1"}}
OURS = [
    "rolling-restart",
    "rolling-upgrade",
    "config-change",
    "wipe-node",
    "remove-replica",
    "replace-node",
    "namesrv-loss",
    "controller-loss",
    "flip-bits",
]


def made(fault: type[Fault], **options: Any) -> Fault:
    return fault(parse(fault.Options, options, "options"))


def embedded() -> Deployment:
    """Controllers inside the name servers of n1, n2 and n3."""
    topology = ControllerTopology(ServerSettings(), ControllerOptions("dledger-embedded"))
    cluster: Any = NotingCluster(noting_nodes(5))
    topology.attach(cluster)
    return Deployment(cluster, topology)


def apart(topology: type[Any] = ControllerTopology) -> Deployment:
    found = topology(ServerSettings())
    cluster: Any = NotingCluster(noting_nodes(5))
    found.attach(cluster)
    return Deployment(cluster, found)


@pytest.mark.parametrize("name", OURS)
def test_each_can_be_planned(name: str) -> None:
    """Before there is a cluster, a plan with it is accepted, with any of its targets."""
    fault = registry.fault(name, OPTIONS.get(name, {}))
    for target in (None, "one", "leader", "controller-leader", "n1,n3"):
        plan = Plan(workload="log", nemeses=(NemesisPlan(name, target=target),), time_limit_s=60)
        assert strikes(plan, [fault])


def test_a_kind_is_looked_for_on_the_nodes_that_have_it() -> None:
    everywhere = Target(NODES)
    assert kinds_meant(VIEW, everywhere, ["controller"]) == {key: ["controller"] for key in NODES[:3]}
    assert kinds_meant(VIEW, Target(["n1"]), []) == {"n1": ["namesrv", "controller", "broker"]}
    assert kinds_meant(VIEW, Target(["n1"], DATA), []) == {"n1": ["broker"]}
    assert kinds_meant(VIEW, Target(["n4"], DATA), ["broker"]) == {"n4": ["broker"]}
    with pytest.raises(NoTarget, match="no controller runs on n4, n5"):
        kinds_meant(VIEW, Target(["n4", "n5"]), ["controller"])
    inside = ClusterView(NODES, dict.fromkeys(NODES, ("namesrv", "broker")))
    assert kinds_meant(inside, everywhere, ["controller"]) == {key: ["controller"] for key in NODES}


def test_a_controller_inside_a_name_server_is_that_server_once() -> None:
    deployment = embedded()
    (server,) = servers_of(deployment, "n1", ["namesrv", "controller"])
    assert server.kind == "namesrv"
    assert server.data_dirs == ["/var/lib/harness/data/namesrv", "/var/lib/harness/data/controller"]
    assert servers_of(deployment, "n5", ["controller"]) == []
    assert ControllerLoss().available(deployment) is None


def test_what_a_topology_does_not_have() -> None:
    pairs = apart(MasterSlaveTopology)
    assert ControllerLoss().available(pairs) == "the topology master-slave has no controller; it has namesrv, broker"
    assert NamesrvLoss().available(pairs) is None
    assert made(WipeNode, kind="proxy").available(pairs) == (
        "the topology master-slave has no proxy; it has namesrv, broker"
    )
    assert made(RollingRestart, kind="controller").available(pairs) is not None
    assert made(RollingUpgrade, to="5.1.1", kind="broker").available(pairs) is None
    assert made(ConfigChange, set="a=1", kind="broker").available(pairs) is None
    assert made(FlipBits, kind="dledger-data").available(pairs) == (
        "no server of the topology master-slave has dledger-data files with a part body; "
        "there are checkpoint, commitlog, consumequeue, epoch, index"
    )
    assert made(FlipBits, kind="checkpoint").available(pairs) is not None, "it has no records"
    assert made(FlipBits, kind="checkpoint", part="any").available(pairs) is None
    assert made(FlipBits, kind="dledger-data").available(apart()) is None, "the controllers have them"


def test_one_node_is_replaced_and_none_that_others_know_by_its_address() -> None:
    drawn = {node for seed in range(20) for node in ReplaceNode().aim(VIEW, Target(NODES), Random(seed))}
    assert drawn == {"n4", "n5"}
    for target in (Target(["n2"], DATA), Target(["n1", "n3"])):
        with pytest.raises(NoTarget, match="other servers run there, which keep their addresses"):
            ReplaceNode().aim(VIEW, target, Random(1))


def test_machines_that_cannot_be_replaced_say_why() -> None:
    deployment = apart()
    cluster: Any = deployment.cluster
    cluster.facts, cluster.backend = {}, "ssh"
    assert ReplaceNode().available(deployment) == (
        "machines of the backend ssh keep their addresses; --cluster docker or local has its own network"
    )
    cluster.facts = {"network": "198.18.0.0/24"}
    assert ReplaceNode().available(deployment) is None
    raft: Any = apart(DledgerCommitlogTopology)
    raft.cluster.facts = cluster.facts
    assert "members of the Raft log have one another's addresses" in (ReplaceNode().available(raft) or "")


@pytest.mark.parametrize("keep_data", [False, True])
def test_what_a_replacement_loses(keep_data: bool) -> None:
    (injection,) = made(ReplaceNode, keep_data=keep_data).aim(VIEW, Target(["n4"]), Random(1)).values()
    kinds = [(effect.kind, effect.node, effect.servers) for effect in injection.effects]
    assert kinds == [("down", "n4", ("broker",))] + [("data-lost", "n4", ("broker",))] * (not keep_data)


def test_each_new_address_is_above_all_others() -> None:
    cluster: Any = NotingCluster(noting_nodes(3))
    cluster.facts = {"network": "198.18.0.0/24"}
    for node in cluster.nodes:
        said = Completed(["printenv"], 0, b"198.18.0.1 40000 198.18.0.9 22", b"", 0.0)
        node.run = lambda *given, said=said, **more: said
    first, second, _ = cluster.nodes
    taken = [addresses.take(cluster, node).new for node in (first, second, first)]
    assert taken == ["198.18.0.211", "198.18.0.212", "198.18.0.213"]
    assert (first.address, second.address) == ("198.18.0.213", "198.18.0.212")
    second.address = "198.18.0.254"
    with pytest.raises(InfraError, match=r"no address is left in 198\.18\.0\.0/24 for n1"):
        addresses.take(cluster, first)


def test_a_node_without_python_is_named() -> None:
    deployment = apart()
    node: Any = deployment.node("n3")
    node.run = lambda argv, **_: Completed(argv, 127, b"", b"", 0.0)
    assert made(FlipBits, kind="commitlog").available(deployment) == (
        "n3 has no working python3: install it there (Debian: python3-minimal)"
    )


def test_a_server_that_takes_no_changes_is_named() -> None:
    topology = ControllerTopology(ServerSettings(kinds=["proxy"]))
    cluster: Any = NotingCluster(noting_nodes(5))
    topology.attach(cluster)
    assert made(ConfigChange, set="a=1", kind="proxy").available(Deployment(cluster, topology)) == (
        "n4: the proxy takes no changes while it runs"
    )


@pytest.mark.parametrize(
    ("fault", "options", "said"),
    [
        (ConfigChange, {}, "needs the option set"),
        (ConfigChange, {"set": ";"}, "set is empty; NAME=VALUE is right"),
        (ConfigChange, {"set": "sendThreads"}, "'sendThreads' is not NAME=VALUE"),
        (RollingUpgrade, {}, "needs the option to"),
        (RollingUpgrade, {"to": ""}, "to is empty; a version is right, such as 5.1.1"),
        (RollingRestart, {"order": "sideways"}, "order is 'sideways'; nodes or reverse or random or leaders-last"),
        (FlipBits, {"count": "0"}, "count is '0'; 1 to 1000 is right"),
        (FlipBits, {"kind": "disk"}, "kind is 'disk'; commitlog or"),
    ],
)
def test_options_that_cannot_be(fault: type[Fault], options: Mapping[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        made(fault, **options)


def test_settings_may_hold_equals_signs() -> None:
    fault = made(ConfigChange, set="a-b=1; c=x=y")
    assert fault.options.settings == {"a-b": "1", "c": "x=y"}


@pytest.mark.parametrize(
    ("order", "nodes"),
    [("nodes", NODES), ("reverse", NODES[::-1]), ("leaders-last", ["n3", "n4", "n5", "n1", "n2"])],
)
def test_the_order_of_a_roll(order: str, nodes: list[str]) -> None:
    """Kind after kind, in the order of their start; of each kind node after node."""
    aimed = made(RollingRestart, order=order).aim(VIEW, Target(NODES), Random(1))
    ((place, injection),) = aimed.items()
    first = [node for node in nodes if node in NODES[:3]]
    assert injection.detail == {"namesrv": first, "controller": first, "broker": nodes}
    assert place == first[0]
    assert injection.describe({"n2": "master"}).endswith("[namesrv controller broker]")
    assert impairs(injection.effects, ["broker"]) == {node: [node] for node in NODES}


def test_a_random_order_comes_from_the_seed() -> None:
    fault = made(RollingRestart, order="random", kind="broker")
    orders = [next(iter(fault.aim(VIEW, Target(NODES), Random(n)).values())).detail["broker"] for n in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == NODES


def test_a_role_alone_rolls() -> None:
    (injection,) = made(RollingUpgrade, to="5.1.1").aim(VIEW, Target(["n3", "n4"], DATA), Random(1)).values()
    assert injection.detail == {"broker": ["n3", "n4"], "to": ["5.1.1"]}


def test_what_judges_are_told() -> None:
    def kinds(fault: Fault) -> list[tuple[str, str]]:
        aimed = fault.aim(VIEW, Target(["n1"]), Random(1))
        return [(e.kind, " ".join(e.servers)) for injection in aimed.values() for e in injection.effects]

    all_of_it = "namesrv controller broker"
    assert kinds(WipeNode()) == [("down", all_of_it), ("data-lost", all_of_it)]
    assert kinds(NamesrvLoss()) == [("down", "namesrv")]
    assert kinds(made(NamesrvLoss, wipe=True)) == [("down", "namesrv"), ("data-lost", "namesrv")]
    assert kinds(FlipBits()) == [("down", "broker"), ("data-damaged", "broker")]
    assert kinds(made(ConfigChange, set="a=1")) == []


def test_bits_flip_in_the_data_unless_a_role_says_otherwise() -> None:
    fault = FlipBits()
    aimed = fault.aim(VIEW, Target(["n1", "n4"]), Random(1))
    assert {node: next(iter(injection.detail)) for node, injection in aimed.items()} == dict.fromkeys(
        ["n1", "n4"], "broker"
    )
    (injection,) = fault.aim(VIEW, Target(["n1"], "controller"), Random(1)).values()
    assert injection.detail == {
        "controller": "SIGKILL, bits flipped, restart",
        "kind": "any",
        "part": "body",
        "where": "last",
        "count": 1,
    }
    with pytest.raises(NoTarget, match="no server on n1 holds data"):
        fault.aim(ClusterView(["n1"], {"n1": ("namesrv",)}), Target(["n1"]), Random(1))


def test_a_claim_is_held_until_it_is_released() -> None:
    claims = Claims()
    assert claims.take(["a", "b"]) == {"a", "b"}
    assert claims.take(["b", "c"]) == {"c"}
    claims.release(["a", "b", "never taken"])
    assert claims.take(["a", "b", "c"]) == {"a", "b"}


def server(name: str, process: object) -> Any:
    return SimpleNamespace(kind="broker", node=SimpleNamespace(name=name), process=process, admin=None)


def test_a_roll_without_a_server_that_runs() -> None:
    roll = Roll([(server("n1", lambda: None), None)], RollOptions(pause=0.0), 60)
    assert not roll.start(5)
    roll.heal()
    assert (roll.turns, roll.skipped) == ([], ["n1 broker was not running"])


def test_a_node_that_does_not_answer_keeps_the_others_from_nothing() -> None:
    def fails() -> None:
        raise InfraError("n1: no answer")

    roll = Roll([(server("n1", fails), None), (server("n2", lambda: None), None)], RollOptions(pause=0.0), 60)
    assert not roll.start(5)
    assert roll.skipped == ["n1 broker: n1: no answer", "n2 broker was not running"]


def test_a_roll_ends_with_its_lease() -> None:
    roll = Roll([(server("n1", lambda: None), None)], RollOptions(), -1)
    assert not roll.start(5)
    assert roll.skipped == []
