# SPDX-License-Identifier: Apache-2.0
"""Faults of applications: who is chosen, and what happens to programs that are stopped already, or go meanwhile."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import NoTarget, Target
from harness.cluster_view import ClusterView
from harness.parts.resolve import resolve
from harness.plan.plan import NemesisPlan, Plan, PlanError
from harness.run.lifecycle import check
from infra.machines.api import InfraError, ProcessId
from infra.machines.primitives import process as primitives
from nemesis import applications
from nemesis.applications import ApplicationOptions, CutApplications, Pause, PauseApplications
from results.strikes import Effect

VIEW = ClusterView(["n1", "n2"], clients=["c1", "c2", "c3"])
DEPLOYMENT: Any = SimpleNamespace(node=lambda name: SimpleNamespace(name=name))


@pytest.mark.parametrize(("count", "struck"), [(1, 1), (2, 2), (9, 3)])
def test_it_strikes_so_many_nodes_of_applications_and_no_other(count: int, struck: int) -> None:
    for seed in range(9):
        fault = PauseApplications(ApplicationOptions(count=count))
        aimed = fault.aim(VIEW, Target(["n1", "n2"]), Random(seed))
        assert len(aimed) == struck
        assert set(aimed) <= {"c1", "c2", "c3"}
        assert [each.effects for each in aimed.values()] == [[Effect("down", node, ("application",))] for node in aimed]


def test_a_cut_is_both_ways_and_its_effect_is_that_of_the_application() -> None:
    """Judges of servers must see no server that lacks a peer: all servers hear each other."""
    fault = CutApplications(ApplicationOptions(count=2))
    aimed = fault.aim(VIEW, Target(["n1"]), Random(1))
    assert len(aimed) == 2
    for node, cut in aimed.items():
        assert (node[0], cut.detail) == ("c", ["n1", "n2"])
        assert cut.effects == [Effect("cut-off", node, peers=("n1", "n2"))]


def test_without_applications_nothing_can_be_struck() -> None:
    with pytest.raises(NoTarget, match="no node has programs of applications"):
        PauseApplications().aim(ClusterView(["n1"]), Target(["n1"]), Random(1))


@pytest.mark.parametrize("fault", ["pause-applications", "cut-applications"])
def test_a_workload_without_applications_rejects_it(fault: str) -> None:
    plan = Plan(workload="log", nemeses=[NemesisPlan(fault)])
    with pytest.raises(PlanError, match=f"{fault} strikes programs of applications; the workload 'log' has none"):
        check(resolve(plan))


def paused(monkeypatch: pytest.MonkeyPatch, states: dict[int, str], *, going: bool = False) -> tuple[Pause, Any]:
    """A pause of the programs with these numbers and states. going: they are killed before the signal comes."""
    running = [ProcessId(pid, 1) for pid in states]

    def stop(node: Any, process: ProcessId, ttl_s: float) -> Any:
        if going:
            states[process.pid] = ""
            raise InfraError("process is gone")
        states[process.pid] = "T"
        return SimpleNamespace(heal=lambda timeout_s=30: states.update({process.pid: states[process.pid] and "S"}))

    monkeypatch.setattr(applications, "programs", lambda node: running)
    monkeypatch.setattr(primitives, "process_state", lambda node, process: states[process.pid])
    monkeypatch.setattr(primitives, "stop_process", stop)
    pause = Pause("c1", patience_s=0)
    return pause, pause.inject(DEPLOYMENT, 60)


def test_programs_are_stopped_and_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {7: "S", 8: "S"}
    pause, lease = paused(monkeypatch, states)
    assert states == {7: "T", 8: "T"}
    assert pause.seen(DEPLOYMENT).what == "process 7 is stopped; process 8 is stopped"
    assert not pause.healed(DEPLOYMENT).seen
    lease.heal()
    found = pause.healed(DEPLOYMENT)
    assert (found.seen, found.what) == (True, "process 7 goes on; process 8 goes on")


def test_a_member_that_crashes_meanwhile_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {7: "S"}
    pause, lease = paused(monkeypatch, states)
    states[7] = ""
    assert not pause.seen(DEPLOYMENT).seen, "nobody stands still"
    lease.heal()
    found = pause.healed(DEPLOYMENT)
    assert (found.seen, found.what) == (True, "process 7 is gone")


@pytest.mark.parametrize(("states", "going"), [({}, False), ({7: "S"}, True), ({7: "T"}, False)])
def test_what_is_not_there_or_stopped_already_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, states: dict[int, str], going: bool
) -> None:
    pause, lease = paused(monkeypatch, states, going=going)
    assert lease is None
    found = pause.seen(DEPLOYMENT)
    assert (found.seen, found.what) == (False, "no program was running, so none was stopped")
