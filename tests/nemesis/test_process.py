"""Process faults on nodes in memory: what counts as seen and as healed, and what happens to a dead target."""

from collections.abc import Sequence
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import Nothing, Site
from infra import faults as primitives
from infra.api import InfraError, ProcessId
from nemesis.process import CrashRandomNodes, HammerTime, KillRandomProcesses, ProcessFault

ALL = [KillRandomProcesses(), CrashRandomNodes(), HammerTime()]
CACHED = 40 << 20


class Box:
    """One node and its server, with the primitives of `infra.faults` and the topology that act on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pids = count(100)
        self.states: dict[ProcessId, str] = {}
        self.cached, self.kept = CACHED, 0
        self.mends = True
        self.start()
        for name in ("stop_process", "process_state", "kill_and_restart", "drop_file_cache", "cached_bytes"):
            monkeypatch.setattr(primitives, name, getattr(self, name))
        for wait in ("patience_s", "return_s"):
            monkeypatch.setattr(ProcessFault, wait, 0.0)

    def site(self) -> Site:
        topology: Any = SimpleNamespace(
            process=lambda node: next((p for p, state in self.states.items() if state), None),
            start_command=lambda node: ["start"],
            data_dirs=lambda node: ["/data"],
        )
        node: Any = SimpleNamespace(name="n1", address="198.18.0.11")
        return Site(node, topology, SimpleNamespace(nodes=[node]))

    def start(self) -> None:
        self.states[ProcessId(next(self.pids), 1)] = "S"

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
        assert list(argv) == ["start"]
        self.states[process] = ""
        return self._lease(self.start)

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
    lease = fault.inject(site, fault.action, 60)
    evidence = fault.seen(site, fault.action)
    assert (evidence.seen, evidence.what) == (True, seen)
    lease.heal()
    evidence = fault.healed(site, fault.action)
    assert (evidence.seen, evidence.what) == (True, healed)


@pytest.mark.parametrize("fault", ALL)
def test_what_does_not_come_back_is_not_healed(box: Box, fault: ProcessFault) -> None:
    site = box.site()
    box.mends = False
    fault.inject(site, fault.action, 60).heal()
    assert not fault.healed(site, fault.action).seen


@pytest.mark.parametrize("fault", ALL)
def test_a_dead_target_is_left_alone(box: Box, fault: ProcessFault) -> None:
    for process in box.states:
        box.states[process] = ""
    site = box.site()
    lease = fault.inject(site, fault.action, 60)
    assert isinstance(lease, Nothing)
    evidence = fault.seen(site, fault.action)
    assert not evidence.seen
    assert "no server was running" in evidence.what
    lease.heal()
    assert set(box.states.values()) == {""}


def test_a_stopped_process_belongs_to_who_stopped_it(box: Box) -> None:
    fault, first, second = HammerTime(), box.site(), box.site()
    lease = fault.inject(first, "", 60)
    assert isinstance(fault.inject(second, "", 60), Nothing)
    assert fault.seen(second, "").what == "was stopped already"
    assert fault.seen(first, "").seen
    lease.heal()
    assert fault.healed(first, "").seen


def test_killed_while_stopped(box: Box) -> None:
    hammer, kill, stopped, killed = HammerTime(), KillRandomProcesses(), box.site(), box.site()
    pause = hammer.inject(stopped, "", 60)
    death = kill.inject(killed, "", 60)
    pause.heal()
    assert hammer.healed(stopped, "").what == "process 100 was killed meanwhile"
    death.heal()
    assert kill.healed(killed, "").what == "process 101 runs"


def test_a_cache_that_stays_warm_is_told(box: Box) -> None:
    site, fault = box.site(), CrashRandomNodes()
    box.kept = CACHED // 2
    fault.inject(site, "", 60)
    evidence = fault.seen(site, "")
    assert not evidence.seen
    assert evidence.what.endswith("40.0 MiB of its data were cached, now 20.0 MiB")


def test_when_the_cache_cannot_be_dropped_the_server_is_started_again(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(node: Any, dirs: Sequence[str]) -> None:
        raise InfraError("n1: no dd")

    monkeypatch.setattr(primitives, "drop_file_cache", broken)
    with pytest.raises(InfraError, match="no dd"):
        CrashRandomNodes().inject(box.site(), "", 60)
    assert list(box.states.values()) == ["", "S"]


def test_it_impairs_the_nodes_it_hits() -> None:
    fault = HammerTime()
    aim = fault.aim(["n1", "n2", "n3"], ["n1", "n3"], Random(1))
    assert fault.impairs(["n1", "n2", "n3"], aim) == {"n1": ["n1"], "n3": ["n3"]}
    assert fault.told(aim, "n3") == "n1 n3 (leader)"
