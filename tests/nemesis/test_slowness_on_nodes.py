# SPDX-License-Identifier: Apache-2.0
"""Slowness on real nodes: the scheduler's, the memory's and the process' own counters show it, and its end."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bare_servers import deployed

from harness.api import Completion, Fault, Injection, Target
from harness.cluster_view import ClusterView
from harness.nemesis.runner import Nemesis
from infra.machines.api import Lease, NodeHost
from infra.machines.backends.local import LocalBackend
from infra.machines.node import RemoteNode
from infra.machines.ownership import digest
from infra.machines.primitives import control_groups, process
from infra.machines.primitives.control_groups import Group
from infra.machines.remote.process import ProcessRemote
from infra.systems.api import Deployment
from nemesis.clock import ClockDrift, ClockStep, ClockStrobe, StepOptions
from nemesis.patience import eventually
from nemesis.process import HammerTime, Kill
from nemesis.slowness import (
    GroupInjection,
    LongPause,
    LongPauseOptions,
    MemorySqueeze,
    SlowNode,
    SlowNodeOptions,
    SqueezeOptions,
)
from results.op import INVOKE, NEMESIS, Op
from results.strikes import Strike

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

ROOT = Path(__file__).parents[2]

BUSY = "while :; do :; done"
WRITER = """
import os, select
os.makedirs("/var/lib/harness/data/broker", exist_ok=True)
with open("/var/lib/harness/data/broker/log", "wb") as file:
    while True:
        if file.tell() < 48 << 20:  # plain_english: a method of Python's files
            file.write(bytes(1 << 20))
        select.select([], [], [], 0.01)
"""
HOG = """
import os, select
select.select([], [], [], 1)
taken = bytearray(os.urandom(1 << 20) * 64)
open("/root/done", "w")
select.select([], [], [], 500)
"""
VIEW = ClusterView(["n1"], {"n1": ("namesrv", "broker")}, {"n1": "broker"}, {"a": ["n1"]})


@pytest.fixture
def busy() -> Iterator[Deployment]:
    """`broker` asks for all of a processor, `namesrv` for nothing."""
    with deployed({"namesrv": ["sleep", "1000"], "broker": ["sh", "-c", BUSY]}) as deployment:
        for server in deployment.servers():
            server.start()
        yield deployment


def struck(fault: Fault, deployment: Deployment, kind: str | None = None) -> tuple[Any, Lease]:
    (injection,) = fault.aim(VIEW, Target(["n1"], kind), Random(3)).values()
    lease = injection.inject(deployment, 60)
    assert lease is not None
    return injection, lease


def group_of(injection: Injection) -> Group:
    assert isinstance(injection, GroupInjection)
    assert injection.group is not None
    return injection.group


def groups_of(deployment: Deployment, controller: str = "cpu") -> dict[str, str]:
    """Kind -> the control group of its process now."""
    host = deployment.cluster.host("n1")
    found = {}
    for server in deployment.servers():
        running = server.process()
        assert running is not None
        group = control_groups.group_for(host, controller, [running.pid], "other")
        found[server.kind] = next(iter(group.returns.values()))
    return found


def used(deployment: Deployment, over_s: float = 1.5) -> float:
    """Processors that the broker uses, by the kernel's count of its ticks."""
    running = deployment.server("n1", "broker").process()
    assert running is not None
    node = deployment.node("n1")

    def ticks() -> tuple[float, float]:
        stat, up = node.run(["cat", f"/proc/{running.pid}/stat", "/proc/uptime"]).text.splitlines()
        fields = stat.rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100, float(up.split()[0])

    ran, at = ticks()
    time.sleep(over_s)
    ran_then, at_then = ticks()
    return (ran_then - ran) / (at_then - at)


def test_a_quota_throttles_and_goes(busy: Deployment) -> None:
    fault = SlowNode(SlowNodeOptions(percent=10))
    assert fault.available(busy) is None
    before = groups_of(busy)
    injection, lease = struck(fault, busy)
    evidence = injection.seen(busy)
    assert evidence.seen, evidence.what
    share, quota, periods = map(int, re.findall(r"(\d+) %.*quota (\d+) %; throttled in (\d+)", evidence.what)[0])
    assert quota == 10
    assert share <= 15
    assert periods >= 3
    assert used(busy) <= 0.15
    assert len(set(groups_of(busy).values())) == 1
    group = group_of(injection)
    lease.heal()
    assert injection.healed(busy).seen
    assert not Path(group.folder).exists()
    assert groups_of(busy) == before


def test_a_role_is_its_server_alone(busy: Deployment) -> None:
    before = groups_of(busy)
    injection, lease = struck(SlowNode(), busy, "broker")
    now = groups_of(busy)
    assert now["namesrv"] == before["namesrv"]
    assert now["broker"] == group_of(injection).path
    lease.heal()
    assert groups_of(busy) == before


def test_an_idle_server_is_shown_with_a_busy_process_of_ours(busy: Deployment) -> None:
    injection, lease = struck(SlowNode(), busy, "namesrv")
    evidence = injection.seen(busy)
    assert evidence.seen, evidence.what
    assert evidence.what.endswith("with a busy process of the probe among them")
    lease.heal()
    assert injection.healed(busy).seen


def test_a_machine_that_is_a_node_of_its_own(tmp_path: Path) -> None:
    """As an ssh host: its processes are found by their own numbers."""
    here = RemoteNode("n1", "127.0.0.1", ProcessRemote("n1"))
    working = subprocess.Popen(["sh", "-c", BUSY])
    try:
        host = NodeHost(here, None, str(tmp_path))
        group = control_groups.group_for(host, "cpu", [working.pid], f"test-{working.pid}")
        lease = control_groups.hold(host, group, 10, 60)
        before = control_groups.counters(host, group)
        assert before.processes == [working.pid]
        assert eventually(lambda: control_groups.counters(host, group).throttled > before.throttled + 2, 20)
        lease.heal()
        assert not Path(group.folder).exists()
        again = control_groups.group_for(host, "cpu", [working.pid], "test")
        assert again.returns == group.returns
    finally:
        working.kill()
        working.wait()
        here.close()


def test_children_that_are_born_meanwhile_come_back_too(busy: Deployment) -> None:
    node = busy.node("n1")
    parent = node.spawn(
        ["sh", "-c", "while [ ! -e /root/go ]; do sleep 0.05; done; sleep 500 & wait"],
        env={},
        log="/root/log",
        pidfile="/var/lib/harness/broker.pid",
    )
    injection, lease = struck(SlowNode(), busy, "broker")
    node.run(["touch", "/root/go"])
    host = busy.cluster.host("n1")
    # A child of the shell may be one that has not become `sleep 500` yet.
    born = ["pgrep", "-x", "-f", "sleep 500"]
    assert eventually(lambda: node.run(born, check=False).code == 0, 10)
    child = int(node.run(born).text)
    assert len(control_groups.counters(host, group_of(injection)).processes) > 1
    lease.heal()
    back = control_groups.group_for(host, "cpu", [parent.pid, child], "other")
    assert set(back.returns.values()) == {group_of(injection).origin}


def test_strikes_overlap_and_heal_alone(busy: Deployment) -> None:
    before = groups_of(busy)
    first, first_lease = struck(SlowNode(SlowNodeOptions(percent=10)), busy)
    second, second_lease = struck(SlowNode(SlowNodeOptions(percent=50)), busy, "broker")
    assert groups_of(busy) == {"namesrv": group_of(first).path, "broker": group_of(second).path}
    second_lease.heal()
    assert set(groups_of(busy).values()) == {group_of(first).path}, "back in the group of the strike that still is"
    third, third_lease = struck(SlowNode(SlowNodeOptions(percent=50)), busy, "broker")
    first_lease.heal()
    assert first.healed(busy).seen
    assert third.seen(busy).seen
    third_lease.heal()
    assert groups_of(busy) == before


def test_the_end_of_a_server_does_no_harm(busy: Deployment) -> None:
    injection, lease = struck(SlowNode(), busy)
    Kill("n1", ["broker", "namesrv"]).inject(busy, 60)
    lease.heal()
    assert injection.healed(busy).seen
    assert not Path(group_of(injection).folder).exists()


def test_a_group_that_nobody_ended_goes_with_the_cluster(busy: Deployment) -> None:
    """As after a kill -9 of the control program and of the guard."""
    injection, _ = struck(SlowNode(), busy)
    folder = Path(group_of(injection).folder)
    pattern = f"lease:{busy.cluster.run_id}"
    guards = [p for p in Path("/proc").glob("[0-9]*/cmdline") if pattern.encode() in p.read_bytes()]
    assert guards
    for guard in guards:
        subprocess.run(["kill", "-s", "KILL", guard.parent.name], check=False)
    time.sleep(0.2)
    assert folder.exists()
    busy.cluster.destroy()
    assert not folder.exists()


@pytest.fixture
def writing() -> Iterator[Deployment]:
    """`broker` has written 48 MiB, which are cached."""
    with deployed({"broker": ["python3", "-c", WRITER]}) as deployment:
        (server,) = deployment.servers()
        server.start()
        file = f"{server.data_dirs[0]}/log"
        size = ["stat", "-c", "%s", file]
        assert eventually(lambda: server.node.run(size, check=False).text.strip() == str(48 << 20), 30)
        yield deployment


def test_memory_is_squeezed_and_given_back(writing: Deployment) -> None:
    fault = MemorySqueeze(SqueezeOptions(left=16 << 20))
    assert fault.available(writing) is None
    injection, lease = struck(fault, writing, "broker")
    evidence = injection.seen(writing)
    assert evidence.seen, evidence.what
    before, after, of, stayed = map(
        float,
        re.findall(r"([\d.]+) MiB of their data.* then ([\d.]+) MiB; of ([\d.]+) MiB read ([\d.]+)", evidence.what)[0],
    )
    assert before > 40
    assert after < 1
    assert of == 32
    assert 1 < stayed <= 16
    refused = int(re.findall(r"limit reached (\d+) times", evidence.what)[0])
    assert refused > 0
    group = group_of(injection)
    host = writing.cluster.host("n1")
    lease.heal()
    assert injection.healed(writing).seen
    assert not Path(group.folder).exists()
    alone = control_groups.group_for(host, "memory", [group_pid(writing)], "other")
    assert set(alone.returns.values()) == {group.origin}


def group_pid(deployment: Deployment) -> int:
    running = deployment.server("n1", "broker").process()
    assert running is not None
    return running.pid


def test_a_server_that_wants_more_waits_and_is_not_killed(writing: Deployment) -> None:
    """It touches 64 MiB of its own with 16 allowed, and goes on when they are allowed again."""
    node = writing.node("n1")
    running = node.spawn(["python3", "-c", HOG], env={}, log="/root/log", pidfile="/var/lib/harness/broker.pid")
    _, lease = struck(MemorySqueeze(SqueezeOptions(left=16 << 20)), writing, "broker")
    time.sleep(2.5)
    assert node.run(["ls", "/root"]).text.split() == ["log"]
    assert node.process("/var/lib/harness/broker.pid") == running
    lease.heal()
    assert eventually(lambda: "done" in node.run(["ls", "/root"]).text, 20)
    assert node.process("/var/lib/harness/broker.pid") == running


def test_what_only_the_node_has_cached_is_dropped(writing: Deployment) -> None:
    """`drop_cache` on a group that has only processes of the node; a group with others (here: the origin) stays."""
    host = writing.cluster.host("n1")
    injection, lease = struck(MemorySqueeze(SqueezeOptions(left=64 << 20)), writing, "broker")
    group = group_of(injection)
    control_groups.read_through(host, group, 1 << 20)
    node = writing.node("n1")
    node.run(["cat", f"{writing.servers()[0].data_dirs[0]}/log"])
    inside = Group("memory", group.version, group.mount, group.path, group.path, group.returns)
    control_groups.drop_cache(host, inside)
    assert control_groups.counters(host, group).memory < 1 << 20
    lease.heal()


def test_pauses_come_again_and_end(busy: Deployment) -> None:
    fault = LongPause(LongPauseOptions(pause=0.3, gap=0.3))
    injection, lease = struck(fault, busy)
    evidence = injection.seen(busy)
    assert evidence.seen, evidence.what
    assert eventually(lambda: len(re.findall(r"[3-9] pauses", injection.seen(busy).what)) == 2, 20)
    share = used(busy, 3.0)
    assert 0.2 < share < 0.8, "it runs about half of the time"
    lease.heal()
    healed = injection.healed(busy)
    assert healed.seen, healed.what
    counts = re.findall(r"(\d+) pauses, ([\d.]+) s in all, the longest ([\d.]+) s", healed.what)
    assert all(0.1 <= float(longest) < 1 for _, _, longest in counts)
    time.sleep(1)
    assert injection.healed(busy).what == healed.what, "no pause comes after the end"
    assert busy.node("n1").run(["pgrep", "-f", "[p]auses loop"], check=False).text == ""


def test_a_pause_that_is_under_way_ends_with_the_lease(busy: Deployment) -> None:
    injection, lease = struck(LongPause(LongPauseOptions(pause=40, gap=1)), busy, "broker")
    assert injection.effects[0].kind == "down"
    evidence = injection.seen(busy)
    assert evidence.seen
    assert evidence.what.endswith("is paused for the first time")
    lease.heal()
    healed = injection.healed(busy)
    assert healed.seen
    assert "1 pauses" in healed.what


def test_a_process_that_others_have_stopped_is_left_alone(busy: Deployment) -> None:
    hammered, hammer_lease = struck(HammerTime(), busy, "broker")
    paused, pause_lease = struck(LongPause(LongPauseOptions(pause=0.1, gap=0.1)), busy, "broker")
    time.sleep(1)
    running = busy.server("n1", "broker").process()
    assert running is not None
    assert process.process_state(busy.node("n1"), running) == "T"
    pause_lease.heal()
    assert process.process_state(busy.node("n1"), running) == "T", "the hammer holds it still"
    hammer_lease.heal()
    assert hammered.healed(busy).seen
    assert paused.healed(busy).seen


def test_a_dead_server_is_no_target(busy: Deployment) -> None:
    stopped: Any = busy.server("n1", "broker")
    stopped.stop()
    assert eventually(lambda: stopped.process() is None, 5)
    for fault in (SlowNode(), MemorySqueeze(), LongPause()):
        (injection,) = fault.aim(VIEW, Target(["n1"], "broker"), Random(1)).values()
        assert injection.inject(busy, 60) is None
        assert "no server was running" in injection.seen(busy).what


def test_all_at_once_by_the_nemesis() -> None:
    """Every fault of both families on one server, two of them twice; healed in another order than injected."""
    faults: list[Fault] = [
        ClockStep(),
        ClockStep(StepOptions(by="forward", offset=5.0)),
        ClockDrift(),
        ClockStrobe(),
        SlowNode(SlowNodeOptions(percent=50)),
        SlowNode(SlowNodeOptions(percent=30)),
        MemorySqueeze(),
        LongPause(LongPauseOptions(pause=0.1, gap=0.4)),
    ]
    view = ClusterView(["n1"], {"n1": ("broker",)}, {"n1": "broker"}, {"a": ["n1"]})
    with deployed({"broker": ["sh", "-c", BUSY]}) as deployment:
        for fault in faults:
            assert fault.available(deployment) is None
            fault.prepare(deployment)
        deployment.servers()[0].start()
        before = groups_of(deployment), groups_of(deployment, "memory")
        nemesis = Nemesis(deployment, lambda strike: faults[strike.id], lambda: view)

        async def said(f: str, number: int) -> Completion:
            strike = Strike(number, faults[number].name, "n1", 10.0)
            value = strike.to_inject() if f == "inject" else strike.to_heal()
            return await nemesis.invoke(Op(0, 0, NEMESIS, INVOKE, f, None, value))

        async def run() -> None:
            for number in range(len(faults)):
                done = await said("inject", number)
                assert (done.error, done.value["seen"]) == (None, True), done.value
            assert len(nemesis.active) == len(faults)
            for number in (4, 1, 7, 0, 3, 6, 2):
                done = await said("heal", number)
                assert done.error is None, done.value
            assert await nemesis.heal_all() == []

        asyncio.run(run())
        assert (groups_of(deployment), groups_of(deployment, "memory")) == before
        assert deployment.nodes[0].run(["pgrep", "-f", "([c]lock|[p]auses) loop"], check=False).text == ""


_CONTROL = """
import sys, time
from random import Random
from bare_servers import deployed
from harness.api import Target
from harness.cluster_view import ClusterView
from nemesis.clock import ClockDrift
from nemesis.slowness import LongPause, MemorySqueeze, SlowNode
view = ClusterView(["n1"], {"n1": ("broker",)}, {"n1": "broker"})
with deployed({"broker": ["python3", "-c", "while True: pass"]}) as deployment:
    faults = [ClockDrift(), SlowNode(), MemorySqueeze(), LongPause()]
    for fault in faults:
        fault.prepare(deployment)
    deployment.servers()[0].start()
    for fault in faults:
        (injection,) = fault.aim(view, Target(["n1"]), Random(1)).values()
        assert injection.inject(deployment, 300)
    print(deployment.cluster.run_id, flush=True)
    time.sleep(300)
"""


def test_kill_9_of_the_control_program_leaves_nothing() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests")))}
    control = subprocess.Popen([sys.executable, "-c", _CONTROL], stdout=subprocess.PIPE, text=True, env=env)
    assert control.stdout is not None
    run_id = control.stdout.readline().strip()
    pattern = f"harness-{digest(run_id)[:8]}-*@*"
    left = [*Path("/sys/fs/cgroup").rglob(pattern)]
    assert len(left) == 2, "processor time and memory"
    control.kill()
    control.wait()
    control.stdout.close()
    assert eventually(lambda: not any(folder.exists() for folder in left), 30)
    backend = LocalBackend()
    assert eventually(lambda: not [found for found in backend.leftovers() if found.run_id == run_id], 30)
