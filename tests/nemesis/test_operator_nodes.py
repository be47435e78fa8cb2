# SPDX-License-Identifier: Apache-2.0
"""The operator's faults and flipped bits on real nodes: each effect is seen at the server, or at its files."""

from __future__ import annotations

import asyncio
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from toy_deployment import HOME, deployed

from harness.api import Completion, Fault, Injection, Target
from harness.cluster_view import ClusterView
from harness.nemesis.runner import Nemesis
from infra.machines.api import Cluster, ClusterSpec, InfraError, Lease
from infra.machines.backends.local import LocalBackend
from infra.machines.primitives import folders
from infra.machines.primitives.process import stop_process
from infra.options import parse
from infra.systems.api import Deployment, Server
from nemesis.bits import FlipBits
from nemesis.membership import RemoveReplica
from nemesis.operator import ConfigChange, NamesrvLoss, WipeNode
from nemesis.rolling import Rolling, RollingRestart, RollingUpgrade
from results.op import NEMESIS, Op
from results.strikes import Strike

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

STORES = Path(__file__).parent.parent / "data" / "rocketmq" / "stores-5.5.0.zip"
NODES = ["n1", "n2", "n3"]
VIEW = ClusterView(
    NODES,
    servers={"n1": ("namesrv", "broker"), "n2": ("broker",), "n3": ("broker",)},
    main=dict.fromkeys(NODES, "broker"),
    groups={"a": NODES},
    leaders={"a": "n1"},
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = LocalBackend().provision(ClusterSpec(f"operator-{uuid4().hex[:10]}", nodes=3))
    yield made
    made.destroy()


@pytest.fixture
def deployment(cluster: Cluster) -> Iterator[Deployment]:
    found = deployed(cluster)
    until(lambda: all(server.admin.answers(1) for server in found.servers()))
    yield found
    for server in found.servers():
        running = server.process()
        assert running is not None, f"{server.node.name} {server.kind} was left down"
        server.node.run(["kill", "-9", str(running.pid)])
    for node in cluster.nodes:
        node.run(["sh", "-c", f"rm -rf {HOME}/data {HOME}/log {HOME}/*.pid {HOME}/*.lock"])


def until(done: Callable[[], bool], patience_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def only(fault: Fault, target: Target) -> Injection:
    (injection,) = fault.aim(VIEW, target, Random(1)).values()
    return injection


def made(fault: type[Fault], **options: Any) -> Fault:
    return fault(parse(fault.Options, options, "options"))


def struck(injection: Injection, deployment: Deployment) -> Lease:
    lease = injection.inject(deployment, 60)
    assert lease is not None
    return lease


def filled(server: Server) -> None:
    """The server's store is that of a real broker."""
    with zipfile.ZipFile(STORES) as archive:
        for name in archive.namelist():
            if name.startswith("controller/n1/"):
                server.node.write(
                    f"{server.data_dirs[0]}/store/{name.removeprefix('controller/n1/')}", archive.read(name)
                )


def test_a_wiped_node_comes_back_without_its_data(deployment: Deployment) -> None:
    broker = deployment.server("n2", "broker")
    filled(broker)
    injection = only(made(WipeNode), Target(["n2"]))
    before = broker.process()
    lease = struck(injection, deployment)
    evidence = injection.seen(deployment)
    assert evidence.seen, evidence.what
    assert evidence.what.endswith("is gone; its data were 10 files of 0.1 MiB, now 0 files of 0.0 MiB")
    assert broker.process() is None
    assert [effect.kind for effect in injection.effects] == ["down", "data-lost"]
    lease.heal()
    assert injection.healed(deployment).seen
    assert broker.process() not in (None, before)
    assert broker.node.run(["test", "-d", broker.data_dirs[0]], check=False).code == 0, "the folder itself stays"


@pytest.mark.parametrize("refuses", [False, True])
def test_a_member_leaves_and_a_new_one_joins(deployment: Deployment, refuses: bool) -> None:
    broker = deployment.server("n2", "broker")
    filled(broker)
    deployment.topology.refuses = refuses  # type: ignore[attr-defined]
    injection = only(made(RemoveReplica), Target(["n2"]))
    before = broker.process()
    lease = struck(injection, deployment)
    evidence = injection.seen(deployment)
    assert evidence.seen == (not refuses), evidence.what
    said = "n2 lives" if refuses else "the controllers forgot n2"
    assert evidence.what.endswith(f"is gone; {said}; its data are now 0 files of 0.0 MiB")
    assert broker.process() is None
    assert [effect.kind for effect in injection.effects] == ["down"]
    lease.heal()
    back = injection.healed(deployment)
    assert back.seen
    assert back.what.endswith("; its id is 2")
    assert broker.process() not in (None, before)


def test_nothing_to_wipe_is_not_seen(deployment: Deployment) -> None:
    injection = only(made(WipeNode), Target(["n2"]))
    lease = struck(injection, deployment)
    assert not injection.seen(deployment).seen, "no data was there"
    lease.heal()


def test_all_servers_of_a_kind_die_and_return(deployment: Deployment) -> None:
    injection = only(made(NamesrvLoss, wipe=True), Target(NODES))
    names = deployment.server("n1", "namesrv")
    names.node.write(f"{names.data_dirs[0]}/kvConfig.json", b"{}")
    brokers = [server.process() for server in deployment.servers(kind="broker")]
    lease = struck(injection, deployment)
    assert injection.seen(deployment).what.endswith("its data were 1 file of 0.0 MiB, now 0 files of 0.0 MiB")
    assert not names.admin.answers(1)
    lease.heal()
    assert injection.healed(deployment).seen
    assert [server.process() for server in deployment.servers(kind="broker")] == brokers


def test_a_setting_changes_and_changes_back(deployment: Deployment) -> None:
    fault = made(ConfigChange, set="sendThreads=16; slaveReadEnable=false")
    assert fault.available(deployment) is None
    injection = only(fault, Target(["n1"]))
    broker = deployment.server("n1", "broker")
    lease = struck(injection, deployment)
    evidence = injection.seen(deployment)
    assert (evidence.seen, evidence.what) == (True, "sendThreads: 4 -> 16; slaveReadEnable: true -> false")
    assert broker.admin.settings(2) == {"sendThreads": "16", "slaveReadEnable": "false"}
    second = only(made(ConfigChange, set="sendThreads=32"), Target(["n1"]))
    assert second.inject(deployment, 60) is None, "the first strike has this setting until its heal"
    lease.heal()
    assert injection.healed(deployment).what == "sendThreads: 4; slaveReadEnable: true"
    assert broker.admin.settings(2) == {"sendThreads": "4", "slaveReadEnable": "true"}
    again = struck(second, deployment)
    assert broker.admin.settings(2)["sendThreads"] == "32"
    again.heal()


def test_the_node_itself_changes_a_setting_back(deployment: Deployment) -> None:
    """When the way to it is lost; also while the server does not run: then in its file."""
    injection = only(made(ConfigChange, set="sendThreads=16"), Target(["n2"]))
    broker = deployment.server("n2", "broker")
    lease = struck(injection, deployment)
    broker.node.close()
    until(lambda: broker.admin.settings(2)["sendThreads"] == "4")
    lease.heal()
    assert injection.healed(deployment).seen
    lease = struck(injection, deployment)
    running = broker.process()
    assert running is not None
    broker.node.run(["kill", "-9", str(running.pid)])
    until(lambda: broker.process() is None)
    lease.heal()
    assert injection.healed(deployment).what == "the broker does not run; its file has the values from before"
    broker.start()
    until(lambda: broker.admin.answers(1))
    assert broker.admin.settings(2)["sendThreads"] == "4"


def test_a_setting_that_the_server_does_not_have(deployment: Deployment) -> None:
    injection = only(made(ConfigChange, set="sendTreads=16"), Target(["n2"]))
    with pytest.raises(InfraError, match="n2: the broker has no setting sendTreads"):
        injection.inject(deployment, 60)


def rolled(injection: Injection) -> Rolling:
    assert isinstance(injection, Rolling)
    return injection


def test_a_rolling_restart_goes_from_server_to_server(deployment: Deployment) -> None:
    injection = rolled(only(made(RollingRestart, pause="100ms", order="leaders-last"), Target(NODES)))
    before = {(s.node.name, s.kind): s.process() for s in deployment.servers()}
    lease = struck(injection, deployment)
    assert injection.seen(deployment).seen
    assert injection.roll is not None
    until(lambda: len([turn for turn in injection.roll.turns if turn.answered_s is not None]) == 4)  # type: ignore[union-attr]
    lease.heal()
    evidence = injection.healed(deployment)
    assert evidence.seen
    assert evidence.what.startswith("4 of 4 restarted; n1 namesrv ")
    order = [f"{turn.server.node.name} {turn.server.kind}" for turn in injection.roll.turns]
    assert order == ["n1 namesrv", "n2 broker", "n3 broker", "n1 broker"]
    for server in deployment.servers():
        assert server.process() not in (None, before[server.node.name, server.kind])


def test_a_heal_in_the_middle_starts_who_is_down_and_stops_nobody_else(deployment: Deployment) -> None:
    injection = rolled(only(made(RollingRestart, kind="broker", down="5m"), Target(NODES)))
    before = [server.process() for server in deployment.servers(kind="broker")]
    lease = struck(injection, deployment)
    assert injection.seen(deployment).what.startswith("1 of 3: n1 broker ")
    assert deployment.server("n1", "broker").process() is None
    lease.heal()
    assert injection.healed(deployment).what.startswith("1 of 3 restarted; n1 broker ")
    after = [server.process() for server in deployment.servers(kind="broker")]
    assert after[0] not in (None, before[0])
    assert after[1:] == before[1:]


def test_who_is_down_comes_back_when_the_control_program_is_gone(deployment: Deployment) -> None:
    injection = rolled(only(made(RollingRestart, kind="broker", down="5m"), Target(["n2"])))
    lease = struck(injection, deployment)
    broker = deployment.server("n2", "broker")
    assert broker.process() is None
    broker.node.close()  # as the kernel does it for a program that was killed
    until(lambda: broker.process() is not None)
    lease.heal()
    assert injection.healed(deployment).seen


def test_a_server_that_does_not_end_is_killed(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemesis.rolling._GRACE_S", 1)
    broker = deployment.server("n2", "broker")
    running = broker.process()
    assert running is not None
    pause = stop_process(broker.node, running, 60)  # a stopped process takes no SIGTERM
    injection = rolled(only(made(RollingRestart, kind="broker"), Target(["n2"])))
    lease = struck(injection, deployment)
    assert injection.seen(deployment).seen
    assert injection.roll is not None
    assert injection.roll.turns[0].ended_s > 1
    lease.heal()
    pause.heal()
    assert injection.healed(deployment).seen


def test_an_upgrade_changes_the_version_that_servers_tell(deployment: Deployment) -> None:
    fault = made(RollingUpgrade, to="5.2.0,5.1.1", kind="broker", pause="0s", back=True)
    assert list(fault.versions()) == ["5.2.0", "5.1.1"]
    injection = rolled(only(fault, Target(NODES)))
    lease = struck(injection, deployment)
    roll = injection.roll
    assert roll is not None
    until(lambda: len([turn for turn in roll.turns if turn.version]) == 6)
    assert [turn.version for turn in roll.turns] == ["5.2.0"] * 3 + ["5.1.1"] * 3
    brokers = deployment.servers(kind="broker")
    assert [server.admin.version(2) for server in brokers] == ["5.1.1"] * 3
    assert deployment.server("n1", "namesrv").admin.version(2) == "5.5.0"
    other = rolled(only(made(RollingUpgrade, to="5.3.3", kind="broker"), Target(NODES)))
    assert other.inject(deployment, 60) is None, "the first upgrade has these servers until its heal"
    assert "n2 broker belongs to another upgrade" in other.seen(deployment).what
    lease.heal()
    evidence = injection.healed(deployment)
    assert evidence.seen, evidence.what
    assert evidence.what.endswith("n3 broker is back at 5.5.0")
    assert [server.admin.version(2) for server in brokers] == ["5.5.0"] * 3


def test_an_upgrade_that_stays(deployment: Deployment) -> None:
    injection = rolled(only(made(RollingUpgrade, to="5.4.0", kind="broker", back=False), Target(["n2"])))
    lease = struck(injection, deployment)
    roll = injection.roll
    assert roll is not None
    until(lambda: bool(roll.turns[0].version))
    lease.heal()
    assert injection.healed(deployment).seen
    assert deployment.server("n2", "broker").admin.version(2) == "5.4.0"
    assert deployment.server("n3", "broker").admin.version(2) == "5.5.0"


def test_the_runner_carries_it_through(deployment: Deployment) -> None:
    """All of it as in a run: an injection that returns while the roll goes on, and a heal that reports all servers."""
    fault = made(RollingRestart, kind="broker", pause="0s")
    runner = Nemesis(deployment, lambda strike: fault, lambda: VIEW)

    def do(f: str, value: dict[str, Any]) -> Completion:
        return asyncio.run(runner.invoke(Op(0, 0, NEMESIS, "invoke", f, value=value)))

    strike = Strike(1, "rolling-restart", "n1,n2,n3", 30.0)
    began = time.monotonic()
    before = {server: server.process() for server in deployment.servers(kind="broker")}
    injected = do("inject", strike.to_inject())
    assert (injected.error, injected.value["seen"]) == (None, True)
    assert injected.value["impairs"] == {node: [node] for node in NODES}
    until(lambda: all(server.process() not in (None, was) for server, was in before.items()))
    assert runner.explains_death("n3", "broker", began)
    assert not runner.explains_death("n1", "namesrv", began)
    healed = do("heal", strike.to_heal())
    assert healed.error is None
    assert healed.value["evidence"]["n1"].startswith("3 of 3 restarted; n1 broker ")
    spells = healed.value["spells"]
    assert [spell["effect"] for spell in spells] == [
        {"kind": "down", "node": node, "servers": ["broker"]} for node in NODES
    ]
    times = [spell[key] for spell in spells for key in ("began_s", "ended_s")]
    assert times == sorted(times, reverse=True), "one after the other, in seconds before the heal"
    assert asyncio.run(runner.heal_all()) == []


def test_a_bit_of_a_stopped_server_flips_and_stays(deployment: Deployment) -> None:
    fault = made(FlipBits, kind="commitlog", count=2, where="random")
    assert fault.available(deployment) is None
    broker = deployment.server("n3", "broker")
    filled(broker)
    size = folders.content(broker.node, broker.data_dirs)
    injection = only(fault, Target(["n3"]))
    lease = struck(injection, deployment)
    evidence = injection.seen(deployment)
    assert evidence.seen, evidence.what
    assert evidence.what.count(f"{HOME}/data/broker/store/commitlog/") == 2
    assert broker.process() is None
    lease.heal()
    after = injection.healed(deployment)
    assert after.seen
    assert after.what.count("stays: bit ") == 2
    assert folders.content(broker.node, broker.data_dirs) == size


def test_without_a_record_nothing_is_hit_and_the_server_runs(deployment: Deployment) -> None:
    injection = only(made(FlipBits, kind="commitlog"), Target(["n3"]))
    with pytest.raises(InfraError, match="n3: flip of bits failed: no whole record"):
        injection.inject(deployment, 60)
    until(lambda: deployment.server("n3", "broker").process() is not None)
