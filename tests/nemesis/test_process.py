# SPDX-License-Identifier: Apache-2.0
"""Process faults on nodes in memory: what counts as seen and as healed, and what happens to a dead target."""

from collections.abc import Sequence
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import DATA, NoTarget, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError, ProcessId
from infra.machines.primitives import page_cache
from infra.machines.primitives import process as primitives
from nemesis.process import ColdKill, HammerTime, Kill, ProcessInjection, Stop
from results.deployment import DeploymentRecord, ServerRecord
from results.strikes import Effect, impairs

ALL: list[type[ProcessInjection]] = [Kill, ColdKill, Stop]
CACHED = 40 << 20


class Box:
    """A node and its servers (`kinds`), with the primitives of `infra.machines.primitives` and the deployment that act
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
        for name in ("stop_process", "process_state", "kill_and_restart"):
            monkeypatch.setattr(primitives, name, getattr(self, name))
        for name in ("drop_file_cache", "cached_bytes"):
            monkeypatch.setattr(page_cache, name, getattr(self, name))
        monkeypatch.setattr(ProcessInjection, "patience_s", 0.0)
        monkeypatch.setattr(Kill, "return_s", 0.0)
        self.deployment: Any = self

    def node(self, name: str) -> Any:
        return SimpleNamespace(name=name, address="198.18.0.11")

    def server(self, node: str, kind: str) -> Any:
        return SimpleNamespace(
            node=self.node(node),
            process=lambda: next((p for p, s in self.states.items() if s and self.kinds[p] == kind), None),
            start_command=lambda: ["start", kind],
            data_dirs=[f"/data/{kind}"],
        )

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


def one(made: type[ProcessInjection]) -> ProcessInjection:
    """On a node with a single server."""
    return made("n1", ["server"])


@pytest.mark.parametrize(
    ("made", "seen", "healed"),
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
def test_struck_and_healed(box: Box, made: type[ProcessInjection], seen: str, healed: str) -> None:
    injection = one(made)
    lease = injection.inject(box.deployment, 60)
    evidence = injection.seen(box.deployment)
    assert (evidence.seen, evidence.what) == (True, seen)
    assert lease is not None
    lease.heal()
    evidence = injection.healed(box.deployment)
    assert (evidence.seen, evidence.what) == (True, healed)


@pytest.mark.parametrize("made", ALL)
def test_what_does_not_come_back_is_not_healed(box: Box, made: type[ProcessInjection]) -> None:
    injection = one(made)
    box.mends = False
    lease = injection.inject(box.deployment, 60)
    assert lease is not None
    lease.heal()
    assert not injection.healed(box.deployment).seen


@pytest.mark.parametrize("made", ALL)
def test_a_dead_target_is_left_alone(box: Box, made: type[ProcessInjection]) -> None:
    for process in box.states:
        box.states[process] = ""
    injection = one(made)
    assert injection.inject(box.deployment, 60) is None
    evidence = injection.seen(box.deployment)
    assert not evidence.seen
    assert "no server was running" in evidence.what
    assert set(box.states.values()) == {""}


def test_a_stopped_process_belongs_to_who_stopped_it(box: Box) -> None:
    first, second = one(Stop), one(Stop)
    lease = first.inject(box.deployment, 60)
    assert second.inject(box.deployment, 60) is None
    assert second.seen(box.deployment).what == "was stopped already"
    assert first.seen(box.deployment).seen
    assert lease is not None
    lease.heal()
    assert first.healed(box.deployment).seen


def test_killed_while_stopped(box: Box) -> None:
    stopped, killed = one(Stop), one(Kill)
    pause = stopped.inject(box.deployment, 60)
    death = killed.inject(box.deployment, 60)
    assert pause is not None
    assert death is not None
    pause.heal()
    assert stopped.healed(box.deployment).what == "process 100 was killed meanwhile"
    death.heal()
    assert killed.healed(box.deployment).what == "process 101 runs"


def test_a_cache_that_stays_warm_is_told(box: Box) -> None:
    injection = one(ColdKill)
    box.kept = CACHED // 2
    injection.inject(box.deployment, 60)
    evidence = injection.seen(box.deployment)
    assert not evidence.seen
    assert evidence.what.endswith("40.0 MiB of its data were cached, now 20.0 MiB")


def test_when_the_cache_cannot_be_dropped_the_server_is_started_again(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(node: Any, dirs: Sequence[str]) -> None:
        raise InfraError("n1: no dd")

    monkeypatch.setattr(page_cache, "drop_file_cache", broken)
    with pytest.raises(InfraError, match="no dd"):
        one(ColdKill).inject(box.deployment, 60)
    assert list(box.states.values()) == ["", "S"]


VIEW = ClusterView(
    ["n1", "n2", "n3"],
    servers={"n1": ("namesrv", "controller", "broker"), "n2": ("namesrv", "broker"), "n3": ()},
    main={"n1": "broker", "n2": "broker"},
    groups={"a": ["n1", "n2"]},
    leaders={"a": "n2"},
    leading={"controller": "n1"},
)


@pytest.mark.parametrize(
    ("hit", "kind", "struck", "down", "described"),
    [
        (["n1", "n3"], None, {"n1": ["namesrv", "controller", "broker"]}, ["n1"], "n1"),
        (["n2"], DATA, {"n2": ["broker"]}, ["n2"], "n2 (master)"),
        (["n1"], DATA, {"n1": ["broker"]}, ["n1"], "n1"),
        (["n1"], "controller", {"n1": ["controller"]}, [], "n1 [controller]"),
        (["n2"], "namesrv", {"n2": ["namesrv"]}, [], "n2 (master) [namesrv]"),
    ],
)
def test_a_role_is_one_server_and_a_node_all_of_them(
    hit: list[str], kind: str | None, struck: dict[str, list[str]], down: list[str], described: str
) -> None:
    fault = HammerTime()
    aimed = fault.aim(VIEW, Target(hit, kind), Random(1))
    assert {node: list(injection.detail) for node, injection in aimed.items()} == struck
    effects = [effect for injection in aimed.values() for effect in injection.effects]
    assert {effect.node: list(effect.servers) for effect in effects} == struck
    assert impairs(effects, ("broker",)) == {node: [node] for node in down}
    assert fault.describe(list(aimed.values()), {"n2": "master"}) == described


def test_a_node_without_servers_is_no_target() -> None:
    with pytest.raises(NoTarget, match="no server runs on n3"):
        HammerTime().aim(VIEW, Target(["n3"]), Random(1))


def test_each_server_of_a_node_is_killed_and_each_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch, ["namesrv", "broker"])
    injection = Kill("n1", ["namesrv", "broker"])
    lease = injection.inject(box.deployment, 60)
    assert injection.seen(box.deployment).what == "namesrv process 100 is gone; broker process 101 is gone"
    assert lease is not None
    lease.heal()
    assert injection.healed(box.deployment).what == "namesrv process 102 runs; broker process 103 runs"


def test_the_server_with_the_role_alone_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch, ["namesrv", "broker"])
    injection = ColdKill("n1", ["broker"])
    injection.inject(box.deployment, 60)
    assert list(box.states.values()) == ["S", ""]
    assert injection.seen(box.deployment).what.startswith("broker process 101 is gone; 40.0 MiB of its data")


def test_when_one_of_two_cannot_be_stopped_the_other_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch, ["namesrv", "broker"])

    def refused(node: Any, process: ProcessId, ttl_s: float) -> Any:
        if box.kinds[process] == "broker":
            raise InfraError("n1: did not stop")
        return box.stop_process(node, process, ttl_s)

    monkeypatch.setattr(primitives, "stop_process", refused)
    with pytest.raises(InfraError, match="did not stop"):
        Stop("n1", ["namesrv", "broker"]).inject(box.deployment, 60)
    assert list(box.states.values()) == ["S", "S"]


def test_controllers_are_what_serves_where_no_broker_runs() -> None:
    killed = [Effect("down", "n1", ("namesrv", "controller"))]
    controllers = [ServerRecord("n1", "namesrv"), ServerRecord("n1", "controller", ports={"controller": 9770})]
    alone = DeploymentRecord("controller", {"n1": ""}, controllers)
    assert impairs(killed, alone.serving) == {"n1": ["n1"]}
    assert impairs([Effect("down", "n1", ("namesrv",))], alone.serving) == {}
    inside = ServerRecord("n1", "namesrv", ports={"namesrv": 9876, "controller": 9770})
    assert DeploymentRecord("controller", {"n1": ""}, [inside]).serving == ["namesrv"]
    with_brokers = DeploymentRecord("controller", {"n1": ""}, [*controllers, ServerRecord("n1", "broker", group="a")])
    assert impairs(killed, with_brokers.serving) == {}
