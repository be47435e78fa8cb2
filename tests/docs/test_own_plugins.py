# SPDX-License-Identifier: Apache-2.0
"""The nemesis and the workload of examples/own_plugins: they do what they say, and the judges still see bugs."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from sim.rig import SimClient, prepared
from sim.service import Bug

from harness.api import Client, Injection, RunContext, Target
from harness.check.summary import Outcome
from harness.cluster_view import ClusterView
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan
from harness.run import lifecycle
from harness.run.virtual_time import VirtualTimeLoop
from infra.machines.api import ProcessId
from results.store import Store
from results.strikes import impairs
from results.verdict import Verdict

FOLDER = Path(__file__).parents[2] / "examples" / "own_plugins"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"own_plugins_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Machine:
    """A node of one server. Its guard keeps `undo` for the heal."""

    def __init__(self) -> None:
        self.running: ProcessId | None = ProcessId(7, 1)
        self.undo: Sequence[Sequence[str]] = ()

    def run(self, argv: Sequence[str], **how: Any) -> Any:
        """The only command is the one that prints the state of process 7."""
        assert argv[-2:] == ["7", "1"]
        return SimpleNamespace(text="S" if self.running == ProcessId(7, 1) else "")

    def lease(self, inject: Sequence[Sequence[str]], undo: Sequence[Sequence[str]], *, ttl_s: float) -> Machine:
        assert not inject
        self.undo = undo
        return self

    def heal(self, timeout_s: float = 30) -> None:
        assert self.undo == [["start", "n1"]]
        self.running = ProcessId(8, 2)


class Server:
    """The server of that node; a stubborn one survives SIGTERM."""

    def __init__(self, node: Machine) -> None:
        self.node = node
        self.stubborn = False

    def process(self) -> ProcessId | None:
        return self.node.running

    def start_command(self) -> Sequence[str]:
        return ["start", "n1"]

    def stop(self) -> None:
        assert self.node.undo, "the guard must hold the start before the server is stopped"
        if not self.stubborn:
            self.node.running = None


class OneServer:
    """A deployment of that server alone."""

    def __init__(self) -> None:
        self.the_server = Server(Machine())

    def node(self, name: str) -> Any:
        return self.the_server.node

    def server(self, node: str, kind: str) -> Any:
        assert (node, kind) == ("n1", "server")
        return self.the_server


@pytest.fixture
def deployment() -> Any:
    return OneServer()


@pytest.fixture
def restart() -> Injection:
    fault = load("restart_one").RestartOne()
    found: Any = fault.aim(ClusterView.assumed(["n1", "n2"], "n1"), Target(["n1"]), Random(1))["n1"]
    found.patience_s = 0.01
    injection: Injection = found
    return injection


def test_a_server_is_stopped_and_started_again(restart: Injection, deployment: Any) -> None:
    assert restart.detail == {"server": "SIGTERM, start"}
    assert not restart.seen(deployment).seen
    lease = restart.inject(deployment, 60)
    assert restart.seen(deployment).seen
    assert impairs(restart.effects, ("server",)) == {"n1": ["n1"]}
    assert lease is not None
    lease.heal()
    assert restart.healed(deployment).seen


def test_a_server_that_does_not_end_is_no_strike(restart: Injection, deployment: Any) -> None:
    deployment.the_server.stubborn = True
    restart.inject(deployment, 60)
    evidence = restart.seen(deployment)
    assert (evidence.seen, evidence.what) == (False, "process 7 outlived SIGTERM")


def plan(**changes: Any) -> Plan:
    given: Mapping[str, Any] = {
        "seed": 5,
        "workload": "write-heavy",
        "time_limit_s": 30.0,
        "cluster": ClusterPlan(backend="sim"),
        "nemeses": (NemesisPlan("sim-partition", 12, 6, "minority"),),
    }
    return Plan(**{**given, **changes})


def run(folder: Path, bug: Bug | None) -> Outcome:
    """The workload as it is, on the simulated service."""

    class Simulated(load("write_heavy").WriteHeavy):  # type: ignore[misc]
        topologies = ("sim",)

        def client(self, context: RunContext, thread: int) -> Client:
            service = context.deployment.topology.service  # type: ignore[attr-defined]
            return SimClient(service, None if thread % 2 == 0 else service.nodes[thread // 2 % len(service.nodes)])

    requested = plan()
    return lifecycle.run(
        prepared(requested, bug, Simulated(requested)), Store(folder), lambda line: None, VirtualTimeLoop
    )


def test_nine_writes_to_one_read_and_no_value_twice() -> None:
    nth = load("write_heavy").nth
    ops = [nth("k", n) for n in range(100)]
    assert Counter(op.f for op in ops) == {"write": 90, "read": 10}
    written = [op.value for op in ops if op.f == "write"]
    assert len(set(written)) == len(written)


def test_a_good_service_is_valid_and_a_bad_one_is_not(tmp_path: Path) -> None:
    good = run(tmp_path / "good", None)
    assert good.judgement.verdict == Verdict.VALID, good.judgement.reason
    requested = Counter(call.invoke.f for call in good.folder.load().history.clients.calls)
    assert requested["write"] > 5 * requested["read"] > 0
    assert run(tmp_path / "bad", Bug.LOST_WRITE).judgement.verdict == Verdict.INVALID


def test_the_package_names_what_is_there() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == ["rocketmq-harness"]
    found = {name: where for group in project["project"]["entry-points"].values() for name, where in group.items()}
    for name, where in found.items():
        module, _, attribute = where.partition(":")
        assert module in project["tool"]["setuptools"]["py-modules"]
        assert getattr(load(module), attribute).name == name
