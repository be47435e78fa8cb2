"""Process faults on nodes in memory: what counts as seen and as healed, and what happens to a dead target."""

from collections.abc import Sequence
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import NoTarget, Nothing, Site
from harness.nemesis.view import Scene
from infra.machines import primitives
from infra.machines.api import InfraError, ProcessId
from nemesis.process import CrashRandomNodes, HammerTime, KillRandomProcesses, ProcessFault

ALL = [KillRandomProcesses(), CrashRandomNodes(), HammerTime()]
CACHED = 40 << 20
ONE = {"server": "what is done to it"}
"""The detail of a node with a single server."""


class Box:
    """One node and its servers (`kinds`), with the primitives of `infra.machines.primitives` and the topology that act
    on them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kinds: Sequence[str] = ("server",)) -> None:
        self.pids = count(100)
        self.states: dict[ProcessId, str] = {}
        self.kinds: dict[ProcessId, str] = {}
        self.cached, self.kept = CACHED, 0
        self.mends = True
        for kind in kinds:
            self.start(kind)
        for name in ("stop_process", "process_state", "kill_and_restart", "drop_file_cache", "cached_bytes"):
            monkeypatch.setattr(primitives, name, getattr(self, name))
        for wait in ("patience_s", "return_s"):
            monkeypatch.setattr(ProcessFault, wait, 0.0)

    def site(self) -> Site:
        topology: Any = SimpleNamespace(
            process=lambda node, kind: next((p for p, s in self.states.items() if s and self.kinds[p] == kind), None),
            start_command=lambda node, kind: ["start", kind],
            data_dirs=lambda node, kind: [f"/data/{kind}"],
        )
        node: Any = SimpleNamespace(name="n1", address="198.18.0.11")
        return Site(node, topology, SimpleNamespace(nodes=[node]))

    def start(self, kind: str = "server") -> None:
        process = ProcessId(next(self.pids), 1)
        self.states[process], self.kinds[process] = "S", kind

    def _lease(self, undo: Any) -> Any:
        return SimpleNamespace(heal=lambda timeout_s=30: undo() if self.mends else None)

    def stop_process(self, node: Any, process: ProcessId, ttl_s: float) -> Any:
        self.states[process] = "T"

        def go_on() -> None:
            if self.states[process] == "T":
                self.states[process] = "S"

        return self._lease(go_on)

    def process_state(self, node: Any, process: ProcessId) -> str:
        return self.states[process]

    def kill_and_restart(self, node: Any, process: ProcessId, argv: Sequence[str], ttl_s: float) -> Any:
        assert list(argv) == ["start", self.kinds[process]]
        self.states[process] = ""
        return self._lease(lambda: self.start(self.kinds[process]))

    def drop_file_cache(self, node: Any, dirs: Sequence[str]) -> None:
        self.cached = self.kept

    def cached_bytes(self, node: Any, dirs: Sequence[str]) -> int:
        return self.cached


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(monkeypatch)


@pytest.mark.parametrize(
    ("fault", "seen", "healed"),
    [
        (ALL[0], "process 100 is gone", "process 101 runs"),
        (
            ALL[1],
            "process 100 is gone; 40.0 MiB of its data were cached, now 0.0 MiB",
            "process 101 runs",
        ),
        (ALL[2], "process 100 is stopped", "process 100 goes on"),
    ],
)
def test_struck_and_healed(box: Box, fault: ProcessFault, seen: str, healed: str) -> None:
    site = box.site()
    lease = fault.inject(site, ONE, 60)
    evidence = fault.seen(site, ONE)
    assert (evidence.seen, evidence.what) == (True, seen)
    lease.heal()
    evidence = fault.healed(site, ONE)
    assert (evidence.seen, evidence.what) == (True, healed)


@pytest.mark.parametrize("fault", ALL)
def test_what_does_not_come_back_is_not_healed(box: Box, fault: ProcessFault) -> None:
    site = box.site()
    box.mends = False
    fault.inject(site, ONE, 60).heal()
    assert not fault.healed(site, ONE).seen


@pytest.mark.parametrize("fault", ALL)
def test_a_dead_target_is_left_alone(box: Box, fault: ProcessFault) -> None:
    for process in box.states:
        box.states[process] = ""
    site = box.site()
    lease = fault.inject(site, ONE, 60)
    assert isinstance(lease, Nothing)
    evidence = fault.seen(site, ONE)
    assert not evidence.seen
    assert "no server was running" in evidence.what
    lease.heal()
    assert set(box.states.values()) == {""}


def test_a_stopped_process_belongs_to_who_stopped_it(box: Box) -> None:
    fault, first, second = HammerTime(), box.site(), box.site()
    lease = fault.inject(first, ONE, 60)
    assert isinstance(fault.inject(second, ONE, 60), Nothing)
    assert fault.seen(second, ONE).what == "was stopped already"
    assert fault.seen(first, ONE).seen
    lease.heal()
    assert fault.healed(first, ONE).seen


def test_killed_while_stopped(box: Box) -> None:
    hammer, kill, stopped, killed = HammerTime(), KillRandomProcesses(), box.site(), box.site()
    pause = hammer.inject(stopped, ONE, 60)
    death = kill.inject(killed, ONE, 60)
    pause.heal()
    assert hammer.healed(stopped, ONE).what == "process 100 was killed meanwhile"
    death.heal()
    assert kill.healed(killed, ONE).what == "process 101 runs"


def test_a_cache_that_stays_warm_is_told(box: Box) -> None:
    site, fault = box.site(), CrashRandomNodes()
    box.kept = CACHED // 2
    fault.inject(site, ONE, 60)
    evidence = fault.seen(site, ONE)
    assert not evidence.seen
    assert evidence.what.endswith("40.0 MiB of its data were cached, now 20.0 MiB")


def test_when_the_cache_cannot_be_dropped_the_server_is_started_again(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(node: Any, dirs: Sequence[str]) -> None:
        raise InfraError("n1: no dd")

    monkeypatch.setattr(primitives, "drop_file_cache", broken)
    with pytest.raises(InfraError, match="no dd"):
        CrashRandomNodes().inject(box.site(), ONE, 60)
    assert list(box.states.values()) == ["", "S"]


def test_it_impairs_the_nodes_it_hits() -> None:
    fault = HammerTime()
    aim = fault.aim(["n1", "n2", "n3"], ["n1", "n3"], Random(1))
    assert fault.impairs(["n1", "n2", "n3"], aim) == {"n1": ["n1"], "n3": ["n3"]}
    assert fault.told(aim, {"n3": "leader"}) == "n1 n3 (leader)"


SCENE = Scene(
    ["n1", "n2", "n3"],
    servers={"n1": ("namesrv", "controller", "broker"), "n2": ("namesrv", "broker"), "n3": ()},
    main={"n1": "broker", "n2": "broker"},
    groups={"a": ["n1", "n2"]},
    leaders={"a": "n2"},
    controller_leader="n1",
)


@pytest.mark.parametrize(
    ("hit", "role", "struck", "down", "told"),
    [
        (["n1", "n3"], None, {"n1": ["namesrv", "controller", "broker"]}, ["n1"], "n1"),
        (["n2"], "master", {"n2": ["broker"]}, ["n2"], "n2 (master)"),
        (["n1"], "slaves", {"n1": ["broker"]}, ["n1"], "n1"),
        (["n1"], "controller-leader", {"n1": ["controller"]}, [], "n1 [controller]"),
        (["n2"], "namesrv", {"n2": ["namesrv"]}, [], "n2 (master) [namesrv]"),
    ],
)
def test_a_role_is_one_server_and_a_node_all_of_them(
    hit: list[str], role: str | None, struck: dict[str, list[str]], down: list[str], told: str
) -> None:
    fault = HammerTime()
    aimed = fault.aim_at(SCENE, hit, role, Random(1))
    assert {node: list(servers) for node, servers in aimed.items()} == struck
    assert fault.impairs(SCENE.nodes, aimed) == {node: [node] for node in down}
    assert {node: list(kinds) for node, kinds in fault.downs(SCENE.nodes, aimed).items()} == struck
    assert fault.told(aimed, {"n2": "master"}) == told


def test_a_node_without_servers_is_no_target() -> None:
    with pytest.raises(NoTarget, match="no server runs on n3"):
        HammerTime().aim_at(SCENE, ["n3"], None, Random(1))


def test_each_server_of_a_node_is_killed_and_each_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch, ["namesrv", "broker"])
    site, fault, detail = box.site(), KillRandomProcesses(), {"namesrv": "", "broker": ""}
    lease = fault.inject(site, detail, 60)
    assert fault.seen(site, detail).what == "namesrv process 100 is gone; broker process 101 is gone"
    lease.heal()
    assert fault.healed(site, detail).what == "namesrv process 102 runs; broker process 103 runs"


def test_the_server_with_the_role_alone_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch, ["namesrv", "broker"])
    site, fault, detail = box.site(), CrashRandomNodes(), {"broker": ""}
    fault.inject(site, detail, 60)
    assert list(box.states.values()) == ["S", ""]
    assert fault.seen(site, detail).what.startswith("broker process 101 is gone; 40.0 MiB of its data")


def test_when_one_of_two_cannot_be_stopped_the_other_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch, ["namesrv", "broker"])

    def refused(node: Any, process: ProcessId, ttl_s: float) -> Any:
        if box.kinds[process] == "broker":
            raise InfraError("n1: did not stop")
        return box.stop_process(node, process, ttl_s)

    monkeypatch.setattr(primitives, "stop_process", refused)
    with pytest.raises(InfraError, match="did not stop"):
        HammerTime().inject(box.site(), {"namesrv": "", "broker": ""}, 60)
    assert list(box.states.values()) == ["S", "S"]
