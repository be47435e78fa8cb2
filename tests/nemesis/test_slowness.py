# SPDX-License-Identifier: Apache-2.0
"""Slowness without machines: what is drawn, what counts as seen, and control groups of version 2 as plain files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import DATA, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, NodeHost, ProcessId
from infra.machines.node import RemoteNode
from infra.machines.primitives import control_groups
from infra.machines.primitives.control_groups import Counters, Group
from infra.machines.remote.process import ProcessRemote
from nemesis.slowness import LongPause, LongPauseOptions, MemorySqueeze, Paused, Slowed, SlowNode, SlowNodeOptions

VIEW = ClusterView(["n1"], {"n1": ("namesrv", "broker")}, {"n1": "broker"})
GROUP = Group("cpu", 1, "/cg", "/a/harness-x@b", "/a/b", {7: "/a/b"})


@pytest.mark.parametrize(
    ("pause", "kind"),
    [(0.5, "slow"), (3.0, "slow"), (20.0, "down")],
)
def test_a_long_pause_is_an_end_for_a_while(pause: float, kind: str) -> None:
    fault = LongPause(LongPauseOptions(pause=pause, gap=1.0))
    (injection,) = fault.aim(VIEW, Target(["n1"]), Random(1)).values()
    assert [(effect.kind, effect.servers) for effect in injection.effects] == [(kind, ("namesrv", "broker"))]


def test_pauses_are_drawn_for_each_server_from_the_seed() -> None:
    def drawn(seed: int) -> Paused:
        fault = LongPause(LongPauseOptions(pause=2.0, gap=1.0))
        (injection,) = fault.aim(VIEW, Target(["n1"]), Random(seed)).values()
        assert isinstance(injection, Paused)
        return injection

    lengths = drawn(1).lengths
    assert lengths == drawn(1).lengths != drawn(2).lengths
    assert lengths["broker"] != lengths["namesrv"]
    pauses = [pause for of in lengths.values() for pause, _ in of]
    gaps = [gap for of in lengths.values() for _, gap in of]
    assert min(pauses) >= 1.0
    assert max(pauses) <= 3.0
    assert max(pauses) - min(pauses) > 1.0
    assert min(gaps) >= 0.5
    assert max(gaps) <= 1.5


@pytest.mark.parametrize("fault", [SlowNode(), MemorySqueeze()])
def test_a_role_is_one_server_and_slow(fault: Any) -> None:
    (injection,) = fault.aim(VIEW, Target(["n1"], DATA), Random(1)).values()
    assert [(e.kind, e.servers) for e in injection.effects] == [("slow", ("broker",))]
    assert list(injection.detail) == ["broker"]


class Kernel:
    """A group with its counters, in place of the primitives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.throttles_by_itself = self.throttles = True
        self.inside: Sequence[int] = (7,)
        self.at, self.throttled, self.burnt = 0.0, 0, 0
        self.there = True
        monkeypatch.setattr(control_groups, "counters", self.counters)
        monkeypatch.setattr(control_groups, "burn", self.burn)
        monkeypatch.setattr(control_groups, "exists", lambda host, group: self.there)
        monkeypatch.setattr("nemesis.slowness._LOOK_S", 0.0)
        self.deployment: Any = SimpleNamespace(cluster=SimpleNamespace(host=lambda name: None))

    def counters(self, host: Any, group: Group) -> Counters:
        self.at += 1.0
        self.throttled += self.throttles_by_itself and self.throttles
        return Counters(self.at, self.at / 5, self.inside, {"cpu.stat.nr_throttled": self.throttled})

    def burn(self, host: Any, group: Group, for_s: float) -> None:
        self.burnt += 1
        self.throttled += self.throttles


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def slowed() -> Slowed:
    (injection,) = SlowNode(SlowNodeOptions(20)).aim(VIEW, Target(["n1"], DATA), Random(1)).values()
    assert isinstance(injection, Slowed)
    injection.struck, injection.group = {"broker": ProcessId(3, 4)}, GROUP
    return injection


def test_the_scheduler_says_that_it_throttles(kernel: Kernel) -> None:
    evidence = slowed().seen(kernel.deployment)
    assert evidence.seen
    assert evidence.what.startswith("broker process 3: 20 % of a processor used in 1.0 s, quota 20 %; throttled in 2")
    assert kernel.burnt == 0


def test_idle_servers_are_helped(kernel: Kernel) -> None:
    kernel.throttles_by_itself = False
    evidence = slowed().seen(kernel.deployment)
    assert evidence.seen
    assert evidence.what.endswith("throttled in 1 periods with a busy process of the probe among them")


def test_a_quota_that_does_not_throttle_is_not_seen(kernel: Kernel) -> None:
    kernel.throttles = False
    assert not slowed().seen(kernel.deployment).seen


def test_a_process_outside_of_the_group_is_told(kernel: Kernel) -> None:
    kernel.inside = ()
    evidence = slowed().seen(kernel.deployment)
    assert (evidence.seen, evidence.what) == (False, "1 of 1 processes are not in the control group")


def test_a_group_that_stays_is_not_healed(kernel: Kernel) -> None:
    injection = slowed()
    injection.patience_s = 0.0
    assert not injection.healed(kernel.deployment).seen
    kernel.there = False
    assert injection.healed(kernel.deployment).seen


def test_a_machine_without_root_is_refused() -> None:
    def host(name: str) -> NodeHost:
        raise InfraError("run as root")

    node = SimpleNamespace(name="n1")
    deployment: Any = SimpleNamespace(
        nodes=[node], node=lambda name: node, cluster=SimpleNamespace(host=host, run_id="r")
    )
    assert SlowNode().available(deployment) == "run as root"


# Version 2, on plain files: what is read, and what is written where.


@pytest.fixture
def here() -> Iterator[RemoteNode]:
    node = RemoteNode("n1", "127.0.0.1", ProcessRemote("n1"))
    yield node
    node.close()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """`proc` with a node's processes 70 (its 1) and 71 (its 9), and a stranger; `cgroup` with the group of both."""
    for pid, inside, own in ((70, "pid:[1]", 1), (71, "pid:[1]", 9), (72, "pid:[2]", 9)):
        process = tmp_path / "proc" / str(pid)
        (process / "ns").mkdir(parents=True)
        (process / "ns" / "pid").symlink_to(inside)
        (process / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t{own}\nThreads:\t1\n")
        (process / "cgroup").write_text("1:name=systemd:/\n0::/rocketmq-harness/abc\n")
    (tmp_path / "proc" / "self").mkdir()
    cgroup = tmp_path / "cgroup"
    (tmp_path / "proc" / "self" / "mountinfo").write_text(
        f"24 1 0:1 / / rw - ext4 /dev/vda rw\n30 24 0:26 / {cgroup} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
    )
    for folder, passed_on in ((cgroup, "cpu memory"), (cgroup / "rocketmq-harness", "cpu")):
        folder.mkdir()
        (folder / "cgroup.subtree_control").write_text(passed_on + "\n")
    (cgroup / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (cgroup / "rocketmq-harness" / "abc").mkdir()
    return tmp_path


@pytest.fixture
def host(here: RemoteNode, tree: Path, monkeypatch: pytest.MonkeyPatch) -> NodeHost:
    def argv(command: str, *words: str) -> list[str]:
        script = control_groups._SCRIPT
        return ["bash", "--norc", "-c", script, "control-group", command, str(tree / "proc"), *words]

    monkeypatch.setattr(control_groups, "_argv", argv)
    return NodeHost(here, 70, str(tree))


def test_processes_are_found_by_their_number_in_the_node(host: NodeHost, tree: Path) -> None:
    group = control_groups.group_for(host, "cpu", [9, 5], "run")
    assert (group.version, group.mount) == (2, f"{tree}/cgroup")
    assert group.returns == {71: "/rocketmq-harness/abc"}
    assert group.origin == "/rocketmq-harness/abc"
    assert group.path.startswith("/rocketmq-harness/harness-")
    assert group.path.endswith("@abc")
    with pytest.raises(InfraError, match="none of the processes is there"):
        control_groups.group_for(host, "cpu", [5], "run")


def test_the_origin_is_known_from_within_another_strike(host: NodeHost, tree: Path) -> None:
    (tree / "proc" / "71" / "cgroup").write_text("0::/rocketmq-harness/harness-1-cpu-2@abc\n")
    group = control_groups.group_for(host, "cpu", [9], "run")
    assert group.origin == "/rocketmq-harness/abc"
    assert group.returns == {71: "/rocketmq-harness/harness-1-cpu-2@abc"}


def test_a_process_of_the_root_goes_below_it(host: NodeHost, tree: Path) -> None:
    (tree / "proc" / "71" / "cgroup").write_text("0::/\n")
    group = control_groups.group_for(host, "cpu", [9], "run")
    assert group.origin == "/"
    assert group.path.startswith("/harness-")
    assert group.path.endswith("@")


@pytest.mark.parametrize(
    ("controller", "limit", "file", "text"),
    [("cpu", 20, "cpu.max", "20000 100000\n"), ("memory", 64 << 20, "memory.high", "67108864\n")],
)
def test_limits_of_version_2(host: NodeHost, tree: Path, controller: Any, limit: int, file: str, text: str) -> None:
    group = control_groups.group_for(host, controller, [9], "run")
    lease = control_groups.hold(host, group, limit, 60)
    folder = tree / "cgroup" / group.path.lstrip("/")
    assert (folder / file).read_text() == text
    assert (folder / "cgroup.procs").read_text() == "71\n"
    passed_on = (tree / "cgroup" / "rocketmq-harness" / "cgroup.subtree_control").read_text()
    assert passed_on == ("cpu\n" if controller == "cpu" else "+memory\n"), "what was there, or what was asked for"
    # The kernel removes the files with the group, and the processes leave it: on plain files, both are ours to do.
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    lease.heal()


def test_no_controller_is_told(host: NodeHost, tree: Path) -> None:
    (tree / "cgroup" / "cgroup.controllers").write_text("hugetlb\n")
    with pytest.raises(InfraError, match="no control groups have the controller cpu here"):
        control_groups.group_for(host, "cpu", [9], "run")


def test_the_end_of_a_group_that_is_gone(host: NodeHost) -> None:
    words = ["2", "/nowhere", "/group", "/", "cpu.max=max 100000", "--", "71=/a"]
    assert host.node.run(control_groups._argv("end", *words)).code == 0


def test_a_group_that_cannot_be_made_is_told(host: NodeHost, tree: Path) -> None:
    group = control_groups.group_for(host, "cpu", [9], "run")
    (tree / "cgroup" / group.path.lstrip("/")).write_text("in the way")
    with pytest.raises(InfraError, match="cannot make"):
        control_groups.hold(host, group, 20, 60)
