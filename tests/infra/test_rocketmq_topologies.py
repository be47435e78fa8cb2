# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's topologies on nodes that only record their commands: places, settings, commands, refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from noting_nodes import NotingCluster, NotingNode, noting_nodes
from toy_servers import LONG, ToyServer, free_port, run, serving

from harness.run.servers import stop_all
from infra.machines.api import InfraError, ProcessId, SettingsError
from infra.options import OptionError, parse
from infra.systems.api import REPLICATION, Launch, LaunchRule, Server, ServerSettings
from infra.systems.java import user_lib
from infra.systems.maven import read_lock
from infra.systems.rocketmq.servers import artifacts
from infra.systems.rocketmq.topologies import base, starting
from infra.systems.rocketmq.topologies.acting_master import ActingMasterTopology
from infra.systems.rocketmq.topologies.base import GIVEN, RocketmqTopology
from infra.systems.rocketmq.topologies.controller import ControllerTopology
from infra.systems.rocketmq.topologies.dledger_commitlog import DledgerCommitlogTopology
from infra.systems.rocketmq.topologies.files import find_mismatch
from infra.systems.rocketmq.topologies.master_slave import MasterSlaveTopology
from results.deployment import DeploymentRecord, to_text

TOPOLOGIES: dict[str, type[RocketmqTopology]] = {
    topology.name: topology
    for topology in (ControllerTopology, DledgerCommitlogTopology, MasterSlaveTopology, ActingMasterTopology)
}
ROCKETMQ = sorted(TOPOLOGIES)
BROKER_FILE = "/var/lib/harness/log/broker.properties"


def made(name: str, options: Mapping[str, object] | None = None, **settings: object) -> RocketmqTopology:
    topology = TOPOLOGIES[name]
    return topology(ServerSettings(**settings), parse(topology.Options, options or {}, "options"))  # type: ignore[arg-type]


def server(topology: RocketmqTopology, node: NotingNode, kind: str = "broker") -> Server:
    return next(s for s in topology.servers(node) if kind in s.ports)  # type: ignore[arg-type]


def attached(topology: RocketmqTopology, count: int = 5) -> list[NotingNode]:
    nodes = noting_nodes(count)
    topology.attach(NotingCluster(nodes))  # type: ignore[arg-type]
    return nodes


def placed(topology: RocketmqTopology, count: int = 5) -> list[str]:
    """The servers of each node, in one word each: `namesrv+broker`."""
    nodes = attached(topology, count)
    return ["+".join(s.kind for s in topology.servers(node)) for node in nodes]  # type: ignore[arg-type]


def class_path(argv: Sequence[str]) -> list[str]:
    return argv[argv.index("-cp") + 1].split(":")


def jars_of(version: str) -> list[str]:
    """All that the lock file names, in an order that no file system decides."""
    locked = read_lock(artifacts.FOLDER / f"jars-{version}.toml")
    return [f"/opt/harness/lib/{version}/{jar}" for jar in sorted(locked)]


def test_what_stands_where() -> None:
    seat = "namesrv+controller+broker"
    assert placed(made("controller")) == [seat, seat, seat, "broker", "broker"]
    assert placed(made("controller", options={"brokers": 1})) == [seat, *["namesrv+controller"] * 2, "", ""]
    embedded = made("controller", options={"controller_type": "jraft-embedded"})
    assert placed(embedded) == ["namesrv+broker"] * 3 + ["broker"] * 2
    assert placed(made("dledger-commitlog", options={"brokers": 3}, kinds=["proxy"])) == [
        *["namesrv+broker"] * 3,
        *["proxy"] * 2,
    ]
    assert placed(made("master-slave"), 2) == ["namesrv+broker"] * 2


def test_a_node_that_runs_a_broker_alone_may_get_another_address() -> None:
    topology = made("controller")
    nodes = attached(topology)
    why = "the configuration of other servers, or of clients, has the address of its namesrv"
    assert [topology.keeps_address(node.name) for node in nodes] == [why] * 3 + [None] * 2
    assert attached(raft := made("dledger-commitlog"))
    assert "Raft log" in (raft.keeps_address("n5") or "")
    before = topology.record()
    nodes[4].address = "198.18.0.211"
    topology.readdress(nodes[4])  # type: ignore[arg-type]
    given = nodes[4].settings(BROKER_FILE)
    assert (given["brokerIP1"], given["brokerIP2"]) == ("198.18.0.211", "198.18.0.211")
    assert topology.record().nodes == {**before.nodes, "n5": "198.18.0.211"}
    assert server(topology, nodes[4]).endpoint == ("198.18.0.211", 10911)


def test_further_brokers_have_their_own_names_ports_and_folders() -> None:
    topology = made("controller", options={"brokers": 2}, settings={"broker.syncFlushTimeout": "7000"})
    nodes = attached(topology)
    record = topology.record()
    one = topology.further(nodes[3], "guest-x", "x", 0)  # type: ignore[arg-type]
    moved = topology.further(nodes[3], "guest-x", "x", 1)  # type: ignore[arg-type]
    assert (one.endpoint, moved.endpoint) == (("198.18.0.4", 12911), ("198.18.0.4", 12921))
    assert one.pidfile == moved.pidfile == "/var/lib/harness/guest-x.pid"
    assert (one.kind, one.group, one.log) == ("broker", "x", "/var/lib/harness/log/guest-x.log")
    assert list(one.data_dirs) == ["/var/lib/harness/data/guest-x"]
    text = nodes[3].settings("/var/lib/harness/log/guest-x.properties")
    assert (text["brokerName"], text["brokerIP1"], text["listenPort"]) == ("x", "198.18.0.4", "12921")
    assert (text["haListenPort"], text["brokerId"], text["syncFlushTimeout"]) == ("12922", "-1", "7000")
    assert text["storePathRootDir"] == "/var/lib/harness/data/guest-x/store"
    assert "-Duser.home=/var/lib/harness/data/guest-x" in one.start_command()
    assert topology.record() == record
    with pytest.raises(InfraError, match="one Raft group of brokers, and no further ones"):
        made("dledger-commitlog").further(nodes[3], "guest-x", "x", 0)  # type: ignore[arg-type]


def test_the_groups() -> None:
    expected = {
        "controller": {"a": ["n1", "n2", "n3", "n4", "n5"]},
        "dledger-commitlog": {"a": ["n1", "n2", "n3", "n4", "n5"]},
        "master-slave": {"a": ["n1", "n2"], "b": ["n3", "n4"], "c": ["n5"]},
        "slave-acting-master": {"a": ["n1", "n2", "n3"], "b": ["n4", "n5"]},
    }
    for name in ROCKETMQ:
        topology = made(name)
        attached(topology)
        record = topology.record()
        assert record.groups == expected[name]
        assert record.endpoints("namesrv") == [(f"198.18.0.{i}", 9876) for i in (1, 2, 3)]
        assert {s.group for s in record.having("broker")} == set(expected[name])
        assert DeploymentRecord.from_json(json.loads(to_text(record))) == record
        electors = {"controller": ["n1", "n2", "n3"]} if name == "controller" else {}
        assert record.quorums == {**electors, "broker": ["n1", "n2", "n3", "n4", "n5"]}
        unnamed = {**record.to_json(), "quorums": list(record.quorums.values())}  # as runs were stored before
        assert DeploymentRecord.from_json(unnamed) == record


@pytest.mark.parametrize(("brokers", "kinds"), [(0, ["namesrv"]), (5, ["namesrv", "broker"])])
def test_embedded_controllers_are_down_with_their_name_server(brokers: int, kinds: list[str]) -> None:
    topology = made("controller", options={"controller_type": "jraft-embedded", "brokers": brokers})
    attached(topology)
    record = topology.record()
    assert list(record.quorums) == kinds
    assert DeploymentRecord.from_json({**record.to_json(), "quorums": list(record.quorums.values())}) == record


def test_settings_in_their_order() -> None:
    """Ours, the mode's, the profile's, the user's, and what is not to be chosen."""
    strict = attached(made("controller", settings={"broker.minInSyncReplicas": "3"}))[1].settings(BROKER_FILE)
    assert strict["slaveReadEnable"] == "true"
    assert strict["enableControllerMode"] == "true"
    assert strict["allAckInSyncStateSet"] == "true"
    assert strict["minInSyncReplicas"] == "3"
    assert strict["controllerAddr"] == "198.18.0.1:9878;198.18.0.2:9878;198.18.0.3:9878"
    assert (strict["brokerName"], strict["brokerIP2"], strict["brokerId"]) == ("a", "198.18.0.2", "-1")
    default = attached(made("controller", profile="default"))[1].settings(BROKER_FILE)
    assert "allAckInSyncStateSet" not in default


@pytest.mark.parametrize("kind", ["controller", "namesrv"])
def test_controllers_stand_alone_or_in_name_servers(kind: str) -> None:
    options = {"controller_type": "dledger" if kind == "controller" else "dledger-embedded"}
    topology = made("controller", options=options, settings={"controller.mappedFileSize": "1048576"})
    node = attached(topology)[1]
    text = node.settings(f"/var/lib/harness/log/{kind}.properties")
    peers = "n1-198.18.0.1:9878;n2-198.18.0.2:9878;n3-198.18.0.3:9878"
    assert (text["controllerDLegerSelfId"], text["controllerDLegerPeers"]) == ("n2", peers)
    assert text["mappedFileSize"] == "1048576"
    assert text.get("enableControllerInNamesrv") == (None if kind == "controller" else "true")
    node.server = ProcessId(7, 99)
    host_server = server(topology, node, "controller")
    assert host_server.kind == kind
    assert host_server.process() == ProcessId(7, 99)
    assert host_server.start_command()[2] == f"/var/lib/harness/{kind}.lock"


def test_jraft_has_requests_on_a_port_of_their_own() -> None:
    topology = made("controller", options={"controller_type": "jraft"})
    node = attached(topology)[0]
    text = node.settings("/var/lib/harness/log/controller.properties")
    assert (text["controllerType"], text["jRaftServerId"]) == ("jRaft", "198.18.0.1:9880")
    assert text["jRaftControllerRPCAddr"] == "198.18.0.1:9770,198.18.0.2:9770,198.18.0.3:9770"
    assert topology.record().endpoints("controller")[0] == ("198.18.0.1", 9770)
    assert node.settings(BROKER_FILE)["controllerAddr"].startswith("198.18.0.1:9770;")


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("controller", {}, {"namesrv": None, "controller": 9878, "broker": 10912}),
        ("controller", {"controller_type": "jraft"}, {"namesrv": None, "controller": 9880, "broker": 10912}),
        ("controller", {"controller_type": "jraft-embedded"}, {"namesrv": 9880, "broker": 10912}),
        ("dledger-commitlog", {}, {"namesrv": None, "broker": 40911}),
        ("master-slave", {}, {"namesrv": None, "broker": 10912}),
    ],
)
def test_the_port_through_which_servers_copy(
    name: str, options: Mapping[str, object], expected: Mapping[str, int | None]
) -> None:
    topology = made(name, options)
    node = attached(topology)[0]
    servers = {s.kind: s.ports for s in topology.servers(node)}  # type: ignore[arg-type]
    assert {kind: ports.get(REPLICATION) for kind, ports in servers.items()} == expected
    assert all(ports[kind] != ports.get(REPLICATION) or kind == "controller" for kind, ports in servers.items())


def test_masters_wait_for_their_slaves_where_they_have_some() -> None:
    nodes = attached(made("master-slave"))
    roles = [(s.get("brokerRole"), s["brokerId"], s.get("inSyncReplicas")) for s in map(_broker, nodes)]
    assert roles == [
        ("SYNC_MASTER", "0", "2"),
        ("SLAVE", "1", "2"),
        ("SYNC_MASTER", "0", "2"),
        ("SLAVE", "1", "2"),
        (None, "0", None),
    ]
    forced = attached(made("master-slave", settings={"broker.brokerRole": "ASYNC_MASTER"}))
    assert [_broker(node)["brokerRole"] for node in forced[:2]] == ["ASYNC_MASTER", "SLAVE"]


def test_groups_whose_slaves_act() -> None:
    nodes = attached(made("slave-acting-master"))
    assert [_broker(node)["totalReplicas"] for node in nodes] == ["3", "3", "3", "2", "2"]
    assert [_broker(node)["brokerRole"] for node in nodes[:2]] == ["SYNC_MASTER", "SLAVE"]
    assert _broker(nodes[0])["enableAutoInSyncReplicas"] == "false"
    assert nodes[0].settings("/var/lib/harness/log/namesrv.properties")["supportActingMaster"] == "true"
    loose = attached(made("slave-acting-master", profile="default"))
    assert _broker(loose[0])["enableAutoInSyncReplicas"] == "true"


def test_members_of_a_dledger_group_know_all_peers() -> None:
    node = attached(made("dledger-commitlog", options={"brokers": 3}))[2]
    assert _broker(node)["dLegerPeers"] == "n1-198.18.0.1:40911;n2-198.18.0.2:40911;n3-198.18.0.3:40911"
    assert (_broker(node)["dLegerSelfId"], _broker(node)["dLegerGroup"]) == ("n3", "a")


def test_a_proxy_is_configured_in_json() -> None:
    topology = made("controller", kinds=["proxy"], settings={"proxy.grpcThreadPoolNums": "3"})
    node = attached(topology)[4]
    text = json.loads(node.written["/var/lib/harness/log/proxy.json"])
    assert (text["rocketMQClusterName"], text["grpcServerPort"], text["grpcThreadPoolNums"]) == ("harness", 8081, 3)
    assert topology.record().endpoints("proxy") == [("198.18.0.4", 8081), ("198.18.0.5", 8081)]
    assert server(topology, node, "proxy").start_command()[-4:] == [
        "-pm",
        "cluster",
        "-pc",
        "/var/lib/harness/log/proxy.json",
    ]


def test_a_broker_may_have_a_proxy_inside() -> None:
    """One process with the main class of a proxy, which starts the broker; a further broker has none."""
    topology = made("controller", kinds=["proxy"], settings={"proxy.proxyMode": "local"})
    nodes = attached(topology)
    assert [[s.kind for s in topology.servers(node)] for node in nodes[3:]] == [["broker"]] * 2  # type: ignore[arg-type]
    node = nodes[4]
    command = server(topology, node).start_command()
    config = ["-pm", "local", "-pc", "/var/lib/harness/log/proxy.json", "-bc", BROKER_FILE]
    assert command[-7:] == ["org.apache.rocketmq.proxy.ProxyStartup", *config]
    text = json.loads(node.written["/var/lib/harness/log/proxy.json"])
    assert (text["proxyMode"], text["grpcServerPort"]) == ("local", 8081)
    assert _broker(node)["listenPort"] == "10911"
    assert topology.record().endpoints("proxy") == [(f"198.18.0.{n}", 8081) for n in range(1, 6)]
    assert [one.kind for one in topology.record().having("proxy")] == ["broker"] * 5
    assert server(topology, node).data_dirs == ["/var/lib/harness/data/broker"]
    assert topology.keeps_address("n5") is not None, "clients have the addresses of the proxies"
    more: Any = topology.further(node, "guest", "b", 1)  # type: ignore[arg-type]
    assert "org.apache.rocketmq.broker.BrokerStartup" in more.start_command()


def test_the_mode_of_proxies_is_checked() -> None:
    with pytest.raises(SettingsError, match=r"'proxy\.proxyMode': cluster and local are right, not 'near'"):
        made("controller", kinds=["proxy"], settings={"proxy.proxyMode": "near"})
    with pytest.raises(SettingsError, match="is local, and no client here uses a proxy"):
        made("controller", settings={"proxy.proxyMode": "local"})


def _broker(node: NotingNode) -> Mapping[str, str]:
    return node.settings(BROKER_FILE)


@pytest.mark.parametrize(
    ("topology", "settings", "said"),
    [
        (
            "controller",
            {"launch": Launch("5.5.1")},
            r"5\.5\.1 is published incomplete: rocketmq-namesrv, .* complete are 5\.1\.0",
        ),
        ("controller", {"launch": Launch("4.9.8")}, r"4\.9\.8 is not pinned here, only 5\.1\.0, .*5\.5\.0"),
        ("controller", {"profile": "lax"}, "--profile lax: the topology controller has strict, default"),
        ("controller", {"options": {"controller_type": "zk"}}, "controller_type is 'zk'; dledger or jraft"),
        ("controller", {"options": {"controller_type": "jraft"}, "launch": Launch("5.1.1")}, "has it since 5.2.0"),
        ("controller", {"options": {"brokers": -1}}, "brokers is -1; at least 0 is right"),
        ("dledger-commitlog", {"options": {"brokers": "x"}}, "brokers is 'x'; a whole number is right"),
        ("master-slave", {"options": {"brokers": 3}}, "this has no option 'brokers'; it has replicas"),
        ("master-slave", {"kinds": ["controller"]}, "the topology master-slave has no controller"),
        ("controller", {"rules": [LaunchRule(Launch("9.9"))]}, "RocketMQ 9.9 is not pinned here"),
        (
            "controller",
            {"settings": {"dledger.x": "1"}},
            "'dledger.x': settings of this topology are called namesrv.NAME",
        ),
        ("controller", {"settings": {"broker.brokerName": "b"}}, "'broker.brokerName' is the harness's own to decide"),
        ("controller", {"settings": {"broker.a": "1\nb=2"}}, "more than one line"),
        (
            "controller",
            {"settings": {"broker.brokerName": "b", "broker.brokerId": "1", "broker.minInSyncReplicas": "2"}},
            "settings 'broker.brokerName', 'broker.brokerId' are the harness's own to decide; leave them out",
        ),
        ("controller", {"launch": Launch(jars=Path("/nowhere"))}, "--server-jars /nowhere: no folder with jars"),
    ],
)
def test_what_cannot_be_meant(topology: str, settings: Mapping[str, object], said: str) -> None:
    with pytest.raises((InfraError, OptionError), match=said) as error:
        made(topology, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_two_groups_take_four_nodes() -> None:
    with pytest.raises(InfraError, match="needs 4 nodes at least"):
        attached(made("slave-acting-master"), 3)


@pytest.mark.parametrize("name", ["master-slave", "slave-acting-master"])
def test_one_group_of_so_many_replicas(name: str) -> None:
    topology = made(name, options={"replicas": 3})
    nodes = attached(topology)
    record = topology.record()
    assert (record.groups, record.quorums) == ({"a": ["n1", "n2", "n3"]}, {"broker": ["n1", "n2", "n3"]})
    given = [node.settings(BROKER_FILE) for node in nodes[:3]]
    assert [(s["brokerId"], s["totalReplicas"], s["inSyncReplicas"]) for s in given] == [
        (str(n), "3", "2") for n in range(3)
    ]
    assert placed(made(name, options={"replicas": 5})) == ["namesrv+broker"] * 3 + ["broker"] * 2
    assert placed(made(name, options={"replicas": 2}), 4) == ["namesrv+broker"] * 2 + ["namesrv", ""]
    with pytest.raises(InfraError, match="replicas is 6; 1 to 5, as many as there are nodes, is right"):
        attached(made(name, options={"replicas": 6}))


def test_a_node_without_a_server_has_the_folder_whose_disk_is_looked_at() -> None:
    """`dledger-commitlog --brokers 3` on five nodes ended with `n4: does not report its memory and disk`."""
    nodes = attached(made("dledger-commitlog", options={"brokers": 3}))
    assert all("/var/lib/harness/data" in argv for node in nodes for argv in node.ran if argv[0] == "mkdir")


def test_every_pinned_version_is_whole() -> None:
    for version in artifacts.VERSIONS:
        lock = read_lock(artifacts.FOLDER / f"jars-{version}.toml")
        for module in ("namesrv", "broker", "controller", "proxy"):
            assert f"rocketmq-{module}-{version}.jar" in lock
        assert any(name.startswith("jraft-core-") for name in lock) == (version >= "5.2.0")
        assert not any("SNAPSHOT" in name for name in lock)
    assert set(artifacts.VERSIONS).isdisjoint(artifacts.INCOMPLETE)
    assert artifacts.known_version(None) in artifacts.VERSIONS


LOCKS = {"locked-by-two", "minority-grant"}
"""The anomalies that are permitted where brokers lock queues alone."""


@pytest.mark.parametrize("name", ROCKETMQ)
def test_each_setting_and_permission_has_a_reason(name: str) -> None:
    for profile in TOPOLOGIES[name](ServerSettings()).profiles:
        topology = made(name, profile=profile)
        attached(topology)
        for kind in ("namesrv", "broker", "controller"):
            for place in topology._places.values():
                for setting, default in topology._mode(kind, place).items():
                    assert default.value, setting
                    assert default.why, setting
        assert all(topology.permits().values())
        permitted = set(topology.permits()) - LOCKS - {"served-unlisted", "never-running"}
        assert (profile != "strict" and name == "controller") == bool(permitted)
        assert ("served-unlisted" in topology.permits()) == (name == "slave-acting-master")
        strict_locks = name == "slave-acting-master" and profile != GIVEN
        assert (set(topology.permits()) >= LOCKS) != strict_locks


def test_two_holders_of_a_queue_are_permitted_without_strict_locks() -> None:
    topology = made("slave-acting-master", settings={"broker.lockInStrictMode": "false"})
    attached(topology)
    locks = {name: why for name, why in topology.permits().items() if name in LOCKS}
    assert locks.keys() == LOCKS
    assert all(why.startswith("lockInStrictMode=false") for why in locks.values())


@pytest.mark.parametrize(
    ("profile", "settings", "permitted"),
    [
        ("strict", {}, set()),
        ("default", {}, {"lost", "dirty-read"}),
        ("default", {"broker.allAckInSyncStateSet": "true"}, set()),
        ("strict", {"broker.allAckInSyncStateSet": "false"}, {"lost", "dirty-read"}),
        ("strict", {"controller.enableElectUncleanMaster": "true"}, {"lost", "dirty-read"}),
    ],
)
def test_settings_decide_what_is_permitted(profile: str, settings: Mapping[str, str], permitted: set[str]) -> None:
    assert made("controller", profile=profile, settings=settings).permits().keys() - LOCKS == permitted | {
        "never-running"
    }


@pytest.mark.parametrize(("limit", "permitted"), [("3000", True), ("5999", True), ("6000", False), ("12000", False)])
def test_a_restart_is_a_lottery_where_heartbeats_are_missed_soon(limit: str, permitted: bool) -> None:
    topology = made("controller", settings={"broker.controllerHeartBeatTimeoutMills": limit})
    assert ("never-running" in topology.permits()) == permitted


def test_the_start_command(tmp_path: Path) -> None:
    """Locked, the user's jars first, the user's options after ours, under the wrapper and its environment."""
    (tmp_path / "mine.jar").touch()
    topology = made(
        "controller",
        launch=Launch(
            jars=tmp_path, jvm_options=["-Xmx300m"], env={"LD_PRELOAD": "/f.so"}, wrapper=["faketime", "+1s"]
        ),
    )
    node = attached(topology, 1)[0]
    argv = list(server(topology, node).start_command())
    assert argv[:3] == ["flock", "-o", "/var/lib/harness/broker.lock"]
    assert "LD_PRELOAD=/f.so" in argv[: argv.index("faketime")]
    java = argv[argv.index("faketime") :]
    assert java[:3] == ["faketime", "+1s", "java"]
    assert class_path(argv)[0] == f"{user_lib(tmp_path)}/*"
    assert class_path(argv)[1:] == jars_of("5.5.0")
    assert java.index("-Xmx192m") < java.index("-Xmx300m") < java.index("-cp")
    assert "-Duser.home=/var/lib/harness/data/broker" in java
    assert java[-3:] == ["org.apache.rocketmq.broker.BrokerStartup", "-c", BROKER_FILE]


def test_a_dledger_broker_has_room_for_the_buffers_of_all_its_threads() -> None:
    """DLedger keeps 4 MiB a thread that appends. With 192 MB a leader died when its 18 threads for retries began."""
    topology = made("dledger-commitlog", kinds=["proxy"])
    nodes = attached(topology)
    argv = list(server(topology, nodes[0]).start_command())
    heap = next(int(word[4:-1]) for word in argv if word.startswith("-Xmx"))
    young, without_buffers, threads = heap / 3, 56, 14 + 18
    assert heap - young > without_buffers + 4 * threads
    assert "-Xmx192m" in server(topology, nodes[-1], "proxy").start_command()


def test_the_group_of_the_proxies_is_there_before_a_proxy_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker ignores the heartbeat of a group that it does not know, and the next one comes 30 s later: so long, in
    a run, no proxy named the clients of the other one, and each queue had two owners.
    """
    did: list[object] = []

    async def made_group(brokers: Sequence[tuple[str, int]], timeout_s: float) -> None:
        did.append(("group", [host for host, _ in brokers]))

    topology = made("controller", options={"brokers": 2}, kinds=["proxy"])
    monkeypatch.setattr(
        base,
        "start_in_stages",
        lambda stages, *_: did.append([each.kind for stage in stages for each in stage.servers]),
    )
    monkeypatch.setattr(base, "make_group_of_proxies", made_group)
    monkeypatch.setattr(base, "read_back", lambda *_: None)
    monkeypatch.setattr(base, "Looks", lambda servers, deadline: did.append({s.kind for s in servers}))

    async def serving(*_: object) -> None:
        return None

    monkeypatch.setattr(base, "missing", serving)
    nodes = attached(topology)
    topology.start_all()
    servers, running, group, proxies = did
    assert servers == ["namesrv"] * 3 + ["controller"] * 3 + ["broker"] * 2
    assert running == {"namesrv", "controller", "broker"}, "no proxy runs while the brokers are awaited"
    assert proxies == ["proxy"] * 2
    assert group == ("group", [node.address for node in nodes[:2]])


def test_every_broker_gets_the_group_of_the_proxies() -> None:
    async def test() -> None:
        brokers, old_slave = [ToyServer(), ToyServer()], ToyServer(1, "Can't be created on a slave")
        async with serving(brokers[0]) as one, serving(brokers[1]) as two, serving(old_slave) as three:
            await starting.make_group_of_proxies([one, two, three], LONG)
            assert [json.loads(b.last.body)["groupName"] for b in brokers] == ["CID_DefaultHeartBeatSyncerTopic"] * 2
            assert len(old_slave.requests) == 1
        with pytest.raises(InfraError, match="the group of the proxies was not made within"):
            await starting.make_group_of_proxies([("127.0.0.1", await free_port())], LONG)

    run(test)


def test_servers_of_several_versions() -> None:
    """A rule lies over what holds for all; every version is shared with the nodes; a change shows at the next start."""
    topology = made(
        "controller",
        launch=Launch("5.5.0", jvm_options=["-ea"]),
        rules=[
            LaunchRule(Launch("5.4.0", env={"A": "1"}), nodes=["n2"], kinds=["broker"]),
            LaunchRule(Launch(jvm_options=["-da"]), kinds=["broker"]),
        ],
        versions=["5.3.3"],
    )
    nodes = attached(topology)
    old, new = server(topology, nodes[1]), server(topology, nodes[0])
    assert class_path(old.start_command()) == jars_of("5.4.0")
    assert {"A=1", "-ea", "-da"} <= set(old.start_command())
    assert class_path(new.start_command()) == jars_of("5.5.0")
    assert class_path(server(topology, nodes[1], "namesrv").start_command()) == jars_of("5.5.0")
    assert [s.version for s in topology.record().having("broker")] == ["5.5.0", "5.4.0", "5.5.0", "5.5.0", "5.5.0"]
    assert topology._all_versions() == ["5.5.0", "5.4.0", "5.3.3"]
    old.launch = replace(old.launch, version="5.3.3")
    assert class_path(old.start_command()) == jars_of("5.3.3")


def test_a_node_is_stopped_from_the_outside_in() -> None:
    topology = made("controller")
    node = attached(topology)[0]
    requested: list[str] = []
    node.process = requested.append  # type: ignore[assignment, method-assign]
    deployment: Any = SimpleNamespace(nodes=[node], servers=lambda name: list(topology.servers(node)))  # type: ignore[arg-type]
    stop_all(deployment)
    text = list(dict.fromkeys(Path(pidfile).stem for pidfile in requested))
    assert text == ["broker", "controller", "namesrv"]


def test_a_server_that_dies_at_its_start_is_told_with_its_words() -> None:
    topology = made("controller")
    attached(topology, 1)[0].address = "127.0.0.1"
    with pytest.raises(InfraError, match=r"n1: the (namesrv|controller) has ended; its log: first \| .*port taken"):
        topology.start_all(timeout_s=5)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("b\n900000\n16777216 12%\n", r"n1\.\.n5 \(one machine\): 878 MiB of memory are free, and its 11 servers take"),
        ("b\n8388608\n102400 12%\n", r"100 MiB are free under /var/lib/harness/data, and its servers write about"),
        ("b\n8388608\n16777216 91%\n", r"n1: the disk under .* is 91 % full; from 85 % on brokers delete messages"),
        ("sh: 1: no awk", "n1: does not report its memory and disk"),
    ],
)
def test_machines_that_are_too_small(space: str, said: str) -> None:
    nodes = noting_nodes(5)
    for node in nodes:
        node.space = space
    with pytest.raises(InfraError, match=said):
        made("controller").attach(NotingCluster(nodes))  # type: ignore[arg-type]


def test_nodes_on_machines_of_their_own_are_looked_at_one_by_one() -> None:
    nodes = noting_nodes(5)
    for i, node in enumerate(nodes):
        node.space = f"boot-{i}\n900000\n2097152 12%\n"
    made("controller").attach(NotingCluster(nodes))  # type: ignore[arg-type]


def test_settings_that_did_not_take() -> None:
    requested = {"a": "1", "b": "true", "c": "x", "later": "1"}
    good = {"a": "1.0", "b": "TRUE", "c": "x"}
    assert find_mismatch(requested, good, (), ()) is None
    assert find_mismatch(requested, good, ("later",), ()) == "later=1 did not take effect: the value is None"
    assert find_mismatch(requested, {**good, "c": "y"}, (), ()) == "c=x did not take effect: the value is y"
    assert find_mismatch(requested, {**good, "c": "y"}, (), ("c",)) is None


class Running:
    """A server that runs with settings of its own, and takes all changes."""

    def __init__(self, **now: str) -> None:
        self.now = now

    def settings(self, timeout_s: float) -> Mapping[str, str]:
        return dict(self.now)

    def change_command(self, settings: Mapping[str, str]) -> list[str]:
        self.now |= settings
        return ["changed", *sorted(settings)]


OWN = {"inSyncReplicas": "1", "minInSyncReplicas": "1", "slaveTimeout": "3000", "slaveReadEnable": "true"}


def on_running(monkeypatch: pytest.MonkeyPatch, now: Mapping[str, str], **wanted: str) -> tuple[Running, list[Any]]:
    """One broker and a name server run already, with these settings."""
    topology = made("master-slave", profile="default", settings={f"broker.{name}": v for name, v in wanted.items()})
    node = attached(topology, 1)[0]
    given = topology.settings_of("broker", node) | dict(now)  # type: ignore[arg-type]
    admins = {"broker": Running(**given), "namesrv": Running()}
    for one in topology.servers(node):  # type: ignore[arg-type]
        one.admin = admins[one.kind]  # type: ignore[assignment]
    monkeypatch.setattr(starting, "require_applied", lambda server: None)
    starting.read_back(topology._all(), topology.settings_of, topology._chosen, topology.changing)
    return admins["broker"], [argv for argv in node.ran if argv[0] == "changed"]


def test_a_running_broker_takes_what_it_takes_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting of the run before that no option requests any more returns to the server's own value."""
    broker, changes = on_running(monkeypatch, {**OWN, "minInSyncReplicas": "4"}, inSyncReplicas="3")
    assert changes == [["changed", "inSyncReplicas", "minInSyncReplicas"]]
    assert (broker.now["inSyncReplicas"], broker.now["minInSyncReplicas"]) == ("3", "1")
    assert on_running(monkeypatch, {**OWN, "inSyncReplicas": "3"}, inSyncReplicas="3")[1] == []
    assert on_running(monkeypatch, {}, inSyncReplicas="3")[1] == [], "it does not know the others"


def test_what_a_running_broker_does_not_take_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InfraError, match=r"n1: broker\.slaveReadEnable=true did not take effect: the value is false"):
        on_running(monkeypatch, {**OWN, "slaveReadEnable": "false"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("broker.minInSyncReplicas", "2", None),
        ("broker.flushDiskType", "SYNC_FLUSH", None),
        ("controller.jRaftSnapshotIntervalSecs", "30", None),
        ("proxy.grpcThreadPoolNums", "4", None),
        (
            "broker.minInSyncReplica",
            "2",
            "broker.minInSyncReplica: this version has no such setting; did you mean 'minInSync",
        ),
        ("broker.flushDisktype", "SYNC_FLUSH", "no such setting; did you mean 'flushDiskType'"),
        ("broker.nothingLikeIt", "1", "no such setting$"),
        ("broker.minInSyncReplicas", "2x", "broker.minInSyncReplicas=2x is not taken: it stays 1"),
        ("broker.slaveReadEnable", "yes", "broker.slaveReadEnable=yes is not taken: it stays false"),
        ("namesrv.brokerName", "x", "namesrv.brokerName: this version has no such setting"),
    ],
)
def test_rocketmq_itself_is_asked_about_settings(setting: str, value: str, said: str | None) -> None:
    """Needs the jars of the default version, which the set-up fetches."""
    topology = made("controller", settings={setting: value})
    if said is None:
        topology.shares()
    else:
        with pytest.raises(InfraError, match=said):
            topology.shares()
