# SPDX-License-Identifier: Apache-2.0
"""Faults that aim by roles: who is cut off with the master, and what happens in which order."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import DATA, Injection, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, ProcessId
from infra.machines.primitives import process as primitives
from nemesis.partition import Partition, PartitionLeader, PartitionLeaderMinority
from nemesis.process import ProcessInjection
from nemesis.sequence import PauseOptions, PauseSlavesKillMaster
from results.strikes import Effect, impairs

NODES = ["n1", "n2", "n3", "n4", "n5"]
QUORUM_SIZE = ("namesrv", "controller", "broker")


def scene(master: str, brokers: int = 5, in_sync: list[str] | None = None, controller: str = "n1") -> ClusterView:
    """Five nodes in controller mode: name servers and controllers on the first three."""
    servers = {n: tuple(k for k in QUORUM_SIZE if k == "broker" or i < 3) for i, n in enumerate(NODES)}
    data = NODES[:brokers]
    for node in NODES[brokers:]:
        servers[node] = tuple(k for k in servers[node] if k != "broker")
    main, led = dict.fromkeys(data, "broker"), {"controller": controller}
    return ClusterView(NODES, servers, main, {"a": data}, {"a": master}, in_sync, led)


def side(aimed: Mapping[str, Injection], node: str) -> set[str]:
    return set(NODES) - set(aimed[node].detail)


def aim(fault: Partition, view: ClusterView, node: str, seed: int = 1) -> Mapping[str, Injection]:
    return fault.aim(view, Target([node], DATA), Random(seed))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("master", NODES)
def test_the_masters_side_has_no_majority_of_anything(master: str, seed: int) -> None:
    aimed = aim(PartitionLeaderMinority(), scene(master), master, seed)
    mates = side(aimed, master)
    assert master in mates
    assert len(mates) == 2
    assert len(mates & {"n1", "n2", "n3"}) < 2
    assert "n1" not in mates - {master}, "the leader of the controllers belongs to the other side where it can"
    assert set(aimed) == set(NODES)


def test_who_is_in_sync_comes_first() -> None:
    for seed in range(20):
        aimed = aim(PartitionLeaderMinority(), scene("n2", in_sync=["n2", "n5"]), "n2", seed)
        assert side(aimed, "n2") == {"n2", "n5"}


def test_where_every_choice_keeps_the_controllers_there_is_no_target() -> None:
    with pytest.raises(NoTarget, match="no follower of n1 leaves the other side"):
        aim(PartitionLeaderMinority(), scene("n1", brokers=3), "n1")


def test_the_leader_alone() -> None:
    aimed = aim(PartitionLeader(), scene("n4"), "n4")
    assert side(aimed, "n4") == {"n4"}
    assert aimed["n1"].detail == ["n4"]


class Group:
    """A master and two slaves; what is done to them, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.stopped: set[int] = set()
        self.dead: set[int] = set()
        self.kill_fails = False
        self.nodes: list[Any] = [SimpleNamespace(name=f"n{i}") for i in (1, 2, 3)]
        for name in ("stop_process", "process_state", "kill_and_restart"):
            monkeypatch.setattr(primitives, name, getattr(self, name))
        monkeypatch.setattr(ProcessInjection, "patience_s", 0.0)
        self.deployment: Any = self

    def node(self, name: str) -> Any:
        return self.nodes[int(name[1]) - 1]

    def server(self, node: str, kind: str) -> Any:
        return SimpleNamespace(
            node=self.node(node), process=lambda: ProcessId(int(node[1]), 1), start_command=lambda: ["start"]
        )

    def stop_process(self, node: Any, process: ProcessId, ttl_s: float) -> Any:
        self.done.append("stop")
        self.stopped.add(process.pid)

        def go_on(timeout_s: float = 30) -> None:
            self.done.append("go on")
            self.stopped.discard(process.pid)

        return SimpleNamespace(heal=go_on)

    def process_state(self, node: Any, process: ProcessId) -> str:
        return "" if process.pid in self.dead else "T" if process.pid in self.stopped else "S"

    def kill_and_restart(self, node: Any, process: ProcessId, argv: Any, ttl_s: float) -> Any:
        if self.kill_fails:
            raise InfraError("n1: no kill")
        self.done.append(f"kill {process.pid}")
        self.dead.add(process.pid)
        return SimpleNamespace(heal=lambda timeout_s=30: None)


def aimed_at_n1() -> Injection:
    """Three nodes, n1 leads; its slaves stand still for no time worth waiting for."""
    fault = PauseSlavesKillMaster(PauseOptions(pause=0.0))  # type: ignore[arg-type]
    found = fault.aim(ClusterView.assumed(["n1", "n2", "n3"], "n1"), Target(["n1"], DATA), Random(1))
    assert list(found) == ["n1"]
    assert fault.describe(list(found.values()), {"n1": "master"}) == "n1 (master)"
    return found["n1"]


def test_the_slaves_stop_before_the_master_is_killed_and_go_on_after(monkeypatch: pytest.MonkeyPatch) -> None:
    group, injection = Group(monkeypatch), aimed_at_n1()
    assert set(injection.detail["pause"]) == {"n2", "n3"}
    assert impairs(injection.effects, ("server",)) == {"n1": ["n1"]}
    assert Effect("down", "n1", ("server",)) in injection.effects
    injection.inject(group.deployment, 60)
    assert group.done == ["stop", "stop", "kill 1", "go on", "go on"]
    evidence = injection.seen(group.deployment)
    assert evidence.seen
    assert evidence.what.startswith("n2, n3 stopped for 0.")
    assert evidence.what.endswith("process 1 is gone")


def test_when_the_master_cannot_be_killed_the_slaves_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(monkeypatch)
    group.kill_fails = True
    with pytest.raises(InfraError, match="no kill"):
        aimed_at_n1().inject(group.deployment, 60)
    assert group.stopped == set()


def test_a_slave_that_was_not_seen_to_stop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    group, injection = Group(monkeypatch), aimed_at_n1()
    monkeypatch.setattr(primitives, "process_state", lambda node, process: "" if process.pid in group.dead else "S")
    injection.inject(group.deployment, 60)
    evidence = injection.seen(group.deployment)
    assert not evidence.seen
    assert "no slave stopped" in evidence.what
