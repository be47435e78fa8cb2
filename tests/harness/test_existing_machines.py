# SPDX-License-Identifier: Apache-2.0
"""Machines that are named: what plan and options make of them, and what is said when they cannot be given back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from sim.rig import SimBackend, SimCluster, prepared

from harness.cli.doctor import clean_up
from harness.cli.run import override, owned_options
from harness.parts import registry
from harness.parts.resolve import resolve
from harness.plan.plan import ClusterPlan, Plan
from harness.run import lifecycle
from harness.run.virtual_time import VirtualTimeLoop
from infra.machines.api import ClusterSpec, InfraError, Leftover
from infra.machines.backends.ssh import PROGRAMS
from infra.machines.backends.ssh_folders import ROOTS
from infra.systems.dledger.topology import PORT
from infra.systems.rocketmq.topologies import layout as _places
from results.store import Store

DOC = (Path(__file__).parents[2] / "docs" / "existing-machines.md").read_text()


def test_as_many_nodes_as_machines() -> None:
    three = {"backend": "ssh", "hosts": ["a", "b", "c"]}
    assert resolve(Plan.from_dict({"cluster": three})).cluster.nodes == 3
    assert resolve(Plan.from_dict({"cluster": {**three, "nodes": 4}})).cluster.nodes == 4
    assert resolve(Plan.from_dict({"cluster": {}})).cluster.nodes == 5


def test_a_plan_of_existing_machines_on_nodes_of_our_own() -> None:
    """`--plan` of a run over SSH, and `--cluster local`: the machines of the plan are not meant any more."""
    stored = Plan(cluster=ClusterPlan("ssh", 3, {"hosts": ["a", "b", "c"], "ssh_key": "key", "disposable": True}))
    again = override(stored, {"cluster": "local"}).cluster
    assert (again.backend, again.nodes, again.options) == ("local", 3, {})
    assert override(stored, {"cluster": "ssh"}).cluster == stored.cluster


def test_machines_on_the_command_line() -> None:
    plan = Plan(cluster=ClusterPlan("ssh"))
    made = override(plan, {"of_hosts": ("a", "b")}, owned_options(plan))
    assert resolve(made).cluster == ClusterPlan("ssh", 2, {"hosts": ["a", "b"], "install": False, "disposable": False})


class Clinging(SimCluster):
    """Machines that cannot be given back."""

    def destroy(self) -> None:
        raise InfraError("n3: no SSH at 198.18.0.13:22")


class ClingingBackend(SimBackend):
    def provision(self, spec: ClusterSpec) -> SimCluster:
        return Clinging(spec.nodes)


def test_a_verdict_is_not_lost_with_the_machines(tmp_path: Path) -> None:
    plan = Plan(seed=1, time_limit_s=10, nemeses=(), cluster=ClusterPlan("sim"))
    requested = prepared(plan, backend=ClingingBackend())
    with pytest.raises(InfraError, match=r"^the run ended valid \(.*report\.html\), but its machines: n3: no SSH at"):
        lifecycle.run(requested, Store(tmp_path), lambda line: None, VirtualTimeLoop)
    assert len(list(tmp_path.rglob("verdict.json"))) == 1


class Left(SimBackend):
    """Three dead runs, the first of them on a machine that is away."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = ["away", "kept", "gone"]

    def leftovers(self) -> list[Leftover]:
        return [Leftover("sim", run, f"things of {run}", alive=False) for run in self.runs]

    def clean(self, run_id: str) -> None:
        if run_id == "away":
            raise InfraError("no SSH at n1")
        if run_id == "gone":
            self.runs.remove(run_id)


def test_clean_goes_on_after_a_machine_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, output = Left(), list[str]()
    monkeypatch.setattr(registry, "backends", lambda: [("sim", backend)])
    assert clean_up(output.append, dry_run=False) is False
    assert output == [
        "sim: away removing: things of away",
        "sim: away could not be removed: no SSH at n1",
        "sim: kept removing: things of kept",
        "sim: kept could not be removed: things of kept",
        "sim: gone removing: things of gone",
    ]


def test_the_document_is_right(tmp_path: Path) -> None:
    """Its plan can be run, and its command; programs, folders and ports are the code's."""
    toml = re.findall(r"^```toml\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)
    (tmp_path / "plan.toml").write_text(toml[0])
    plan = Plan.read(tmp_path / "plan.toml")
    assert lifecycle.prepare(resolve(plan)).backend.name == "ssh"
    command: Mapping[str, str] = dict(re.findall(r"(--[a-z-]+) ([a-z-]+,[a-z-]+)", DOC))
    assert override(None, {"nemesis": command["--nemesis"]}).nemeses
    programs = re.search(r"\*\*Programs:\*\* (.*?) \(17\)", DOC, re.DOTALL)
    assert programs is not None
    assert set(re.split(r", | and |\s", programs[1])) == PROGRAMS.keys()
    assert all(f"`{root}`" in DOC for root in ROOTS)
    text = re.search(r"\*\*Ports \(TCP\)\*\*(.*?)Partitions are seen", DOC, re.DOTALL)
    assert text is not None
    named: set[int] = set()
    for first, last in re.findall(r"(\d{4,5})(?: to (\d{4,5}))?", text[1]):
        named.update(range(int(first), int(last or first) + 1))
    used = {getattr(_places, name) for name in dir(_places) if name.endswith("_PORT")} | {PORT}
    assert used | {_places.BROKER_PORT - 2} <= named, "a broker listens two below its own port as well"
