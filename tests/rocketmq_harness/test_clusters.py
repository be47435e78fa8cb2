# SPDX-License-Identifier: Apache-2.0
"""A cluster for clients of a user, on the simulated service: faults begin, have an effect, end, and are recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sim import rig
from sim.rig import SimBackend, SimImpairment, SimPartition, prepared

from harness.api import Evidence
from harness.nemesis.runner import Limits
from harness.plan.plan import ClusterPlan, Plan, PlanError
from harness.run import lifecycle
from infra.machines.api import InfraError
from infra.options import NotAvailable
from infra.systems.api import Deployment, ServersRun
from results.formats import read_history
from rocketmq_harness import RunningCluster, clusters, record
from rocketmq_harness.clusters import on_machines

PLAN = Plan(workload="register", seed=7, cluster=ClusterPlan("sim", 5), nemeses=())


@contextmanager
def running(backend: SimBackend | None = None) -> Iterator[RunningCluster]:
    with on_machines(prepared(PLAN, backend=backend)) as cluster:
        yield cluster


def refused(kind: type[Exception], text: str, block: AbstractContextManager[Any]) -> None:
    with pytest.raises(kind, match=text), block:
        pytest.fail("the block began")


def down(cluster: RunningCluster) -> frozenset[str]:
    return frozenset(cluster.deployment.topology.service.down)  # type: ignore[attr-defined]


def test_a_fault_lasts_as_long_as_its_block(tmp_path: Path) -> None:
    """Protects: the effect is there in the block and over behind it, also if the block fails; the history shows it."""
    with running() as cluster, record(tmp_path / "h.jsonl") as recorder:
        with cluster.fault("sim-pause", target="n1,n2", recorder=recorder) as struck:
            assert down(cluster) == {"n1", "n2"}
            assert struck["seen"] is True
            assert struck["evidence"] == {"n1": "stop: n1, n2"}
        assert not down(cluster)
        with suppress(ZeroDivisionError), cluster.fault("sim-pause", target="minority"):
            assert len(down(cluster)) == 2
            raise ZeroDivisionError
        assert not down(cluster)
        with cluster.fault("sim-pause", target="leader"):
            assert len(down(cluster)) == 1, "the role is known from the servers' own reports"
    events = read_history(tmp_path / "h.jsonl").history.nemesis.calls
    assert [(call.invoke.f, call.invoke.value) for call in events] == [
        ("start-sim-pause", "n1,n2"),
        ("stop-sim-pause", "n1,n2"),
    ]


def test_the_cluster_goes_with_its_block() -> None:
    """Protects the machine from what a failing test leaves: faults end, and the nodes are removed."""
    backend = SimBackend()
    with pytest.raises(ZeroDivisionError), running(backend):
        raise ZeroDivisionError
    assert backend.cluster is not None
    assert backend.cluster.destroyed


class Nothing(SimImpairment):
    def seen(self, deployment: Deployment) -> Evidence:
        return Evidence(False, "all nodes answer")


class Lasts(SimImpairment):
    def healed(self, deployment: Deployment) -> Evidence:
        return Evidence(False, "n1 is still down")


class Unprepared(SimPartition):
    name = "unprepared"

    def prepare(self, deployment: Deployment) -> None:
        raise ServersRun("proxies stand between servers")


class NotHere(SimPartition):
    name = "not-here"

    def available(self, deployment: Deployment) -> str:
        return "no root"


def faulty(injection: type[SimImpairment]) -> type[SimPartition]:
    class Faulty(SimPartition):
        name = "faulty"

        def aim(self, view: Any, target: Any, rng: Any) -> Mapping[str, Any]:
            return {target.nodes[0]: injection(target.nodes, ["n5"], cut=False)}

    return Faulty


@pytest.fixture(autouse=True)
def _faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rig.SIM_FAULTS, "unprepared", Unprepared)
    monkeypatch.setitem(rig.SIM_FAULTS, "not-here", NotHere)


def test_a_fault_without_an_effect_is_no_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects a test that would pass because nothing happened. What was injected is undone."""
    monkeypatch.setitem(rig.SIM_FAULTS, "faulty", faulty(Nothing))
    with running() as cluster:
        refused(InfraError, "faulty: no effect was seen: .*all nodes answer", cluster.fault("faulty", target="n1"))
        assert not down(cluster)
        often = cluster.repeated("faulty", target="n1", first_s=0.0, every_s=0.2, for_s=0.1)
        with pytest.raises(InfraError, match="faulty: no effect was seen"), often:
            time.sleep(0.1)


def test_a_fault_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the tests behind it: they would run on a cluster that is still impaired."""
    monkeypatch.setitem(rig.SIM_FAULTS, "faulty", faulty(Lasts))
    monkeypatch.setattr(clusters, "LIMITS", Limits(heal_s=0.1, pause_s=0.01))

    def strike(cluster: RunningCluster) -> None:
        with cluster.fault("faulty", target="n1"):
            assert down(cluster) == {"n1"}

    def whole_session() -> None:
        with running() as cluster, pytest.raises(InfraError, match=r"faulty did not end: .*n1 is still down"):
            strike(cluster)

    with pytest.raises(InfraError, match=r"could not heal: .*n1 is still down"):
        whole_session()


def test_what_cannot_strike_says_so() -> None:
    """Protects the texts for a fault that needs preparation, one that the machine lacks, and a wrong target."""
    with running() as cluster:
        text = "unprepared must be prepared before the servers start: name it in `faults`"
        refused(InfraError, text, cluster.fault("unprepared"))
        refused(NotAvailable, "'not-here' is not available here: no root", cluster.fault("not-here"))
        refused(PlanError, "target of sim-pause", cluster.fault("sim-pause", target="n9"))


def test_the_servers_are_those_of_a_run() -> None:
    """Protects the arguments of `start_cluster`: a plan that `harness run` accepts, with the faults prepared."""
    plan = clusters.planned("local", 3, "controller", "5.3.3", {}, ["kill-random-processes", "packet-delay"])
    parts = lifecycle.check(plan)
    assert [fault.name for fault in parts.faults] == ["kill-random-processes", "packet-delay"]
    assert (parts.topology.name, plan.server.version, plan.nodes) == ("controller", "5.3.3", ["n1", "n2", "n3"])
    assert not list(lifecycle.check(clusters.planned("auto", 5, None, None, {}, [])).faults)
    with pytest.raises(PlanError, match="kill-randm"):
        clusters.planned("local", 3, None, None, {}, ["kill-randm-processes"])


def test_a_repeated_fault_strikes_again_and_ends() -> None:
    """Protects the mark `nemesis`: several strikes during a test, none after it, and none at all is an error."""
    with running() as cluster:
        seen, until = [False], time.monotonic() + 20
        with cluster.repeated("sim-pause", target="one", first_s=0.0, every_s=0.1, for_s=0.05):
            while seen.count(True) < 3 and time.monotonic() < until:
                if bool(down(cluster)) != seen[-1]:
                    seen.append(not seen[-1])
                time.sleep(0.005)
        assert seen.count(True) >= 3
        assert not down(cluster)
        late = cluster.repeated("sim-pause", first_s=30.0)
        with pytest.raises(InfraError, match=r"ended before the first strike \(30 s\)"), late:
            pass


def test_the_addresses_are_those_of_the_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the address that a user's client gets."""
    with running() as cluster:
        assert cluster.name_servers == ""
        for server in cluster.deployment.servers():
            monkeypatch.setattr(server, "ports", {"namesrv": 9876}, raising=False)
        assert cluster.name_servers == ";".join(["198.18.0.1:9876"] * 5)
        assert cluster.proxies == ""
