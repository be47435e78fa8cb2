"""Faults that aim by roles: who is cut off with the master, and what happens in which order."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import NoTarget, Site
from harness.nemesis.view import Scene
from infra.machines import primitives
from infra.machines.api import InfraError, ProcessId
from nemesis import sequence
from nemesis.partition import PartitionLeader, PartitionLeaderMinority
from nemesis.process import ProcessFault
from nemesis.sequence import PauseSlavesKillMaster

NODES = ["n1", "n2", "n3", "n4", "n5"]
SEATS = ("namesrv", "controller", "broker")


def scene(master: str, brokers: int = 5, in_sync: list[str] | None = None, controller: str = "n1") -> Scene:
    """Five nodes in controller mode: name servers and controllers on the first three."""
    servers = {n: tuple(k for k in SEATS if k == "broker" or i < 3) for i, n in enumerate(NODES)}
    data = NODES[:brokers]
    for node in NODES[brokers:]:
        servers[node] = tuple(k for k in servers[node] if k != "broker")
    return Scene(NODES, servers, dict.fromkeys(data, "broker"), {"a": data}, {"a": master}, in_sync, controller)


def side(aimed: Mapping[str, list[str]], node: str) -> set[str]:
    return set(NODES) - set(aimed[node])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("master", NODES)
def test_the_masters_side_has_no_majority_of_anything(master: str, seed: int) -> None:
    aimed = PartitionLeaderMinority().aim_at(scene(master), [master], "leader", Random(seed))
    mates = side(aimed, master)
    assert master in mates
    assert len(mates) == 2
    assert len(mates & {"n1", "n2", "n3"}) < 2
    assert "n1" not in mates - {master}, "the leader of the controllers belongs to the other side where it can"
    assert set(aimed) == set(NODES)


def test_who_is_in_sync_comes_first() -> None:
    for seed in range(20):
        aimed = PartitionLeaderMinority().aim_at(scene("n2", in_sync=["n2", "n5"]), ["n2"], "leader", Random(seed))
        assert side(aimed, "n2") == {"n2", "n5"}


def test_where_every_choice_keeps_the_controllers_there_is_no_target() -> None:
    with pytest.raises(NoTarget, match="no follower of n1 leaves the other side"):
        PartitionLeaderMinority().aim_at(scene("n1", brokers=3), ["n1"], "leader", Random(1))


def test_the_leader_alone() -> None:
    aimed = PartitionLeader().aim_at(scene("n4"), ["n4"], "leader", Random(1))
    assert side(aimed, "n4") == {"n4"}
    assert aimed["n1"] == ["n4"]


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
        monkeypatch.setattr(sequence, "PAUSE_S", 0.0)
        monkeypatch.setattr(ProcessFault, "patience_s", 0.0)

    def site(self) -> Site:
        topology: Any = SimpleNamespace(
            process=lambda node, kind: ProcessId(int(node.name[1]), 1),
            start_command=lambda node, kind: ["start"],
        )
        cluster: Any = SimpleNamespace(nodes=self.nodes)
        return Site(self.nodes[0], topology, cluster)

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


def test_the_slaves_stop_before_the_master_is_killed_and_go_on_after(monkeypatch: pytest.MonkeyPatch) -> None:
    group, fault = Group(monkeypatch), PauseSlavesKillMaster()
    aimed = fault.aim(["n1", "n2", "n3"], ["n1"], Random(1))
    assert list(aimed) == ["n1"]
    assert set(aimed["n1"]["pause"]) == {"n2", "n3"}
    assert fault.impairs(["n1", "n2", "n3"], aimed) == {"n1": ["n1"]}
    assert fault.downs(["n1"], aimed) == {"n1": ("server",)}
    assert fault.told(aimed, {"n1": "master"}) == "n1 (master)"
    site = group.site()
    fault.inject(site, aimed["n1"], 60)
    assert group.done == ["stop", "stop", "kill 1", "go on", "go on"]
    evidence = fault.seen(site, aimed["n1"])
    assert evidence.seen
    assert evidence.what.startswith("n2, n3 stood still for 0.")
    assert evidence.what.endswith("process 1 is gone")


def test_when_the_master_cannot_be_killed_the_slaves_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    group, fault = Group(monkeypatch), PauseSlavesKillMaster()
    group.kill_fails = True
    with pytest.raises(InfraError, match="no kill"):
        fault.inject(group.site(), fault.aim(["n1", "n2", "n3"], ["n1"], Random(1))["n1"], 60)
    assert group.stopped == set()


def test_a_slave_that_was_not_seen_to_stop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    group, fault = Group(monkeypatch), PauseSlavesKillMaster()
    monkeypatch.setattr(primitives, "process_state", lambda node, process: "" if process.pid in group.dead else "S")
    site = group.site()
    detail = fault.aim(["n1", "n2", "n3"], ["n1"], Random(1))["n1"]
    fault.inject(site, detail, 60)
    assert not fault.seen(site, detail).seen
    assert "nobody stood still" in fault.seen(site, detail).what
