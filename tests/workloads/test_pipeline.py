# SPDX-License-Identifier: Apache-2.0
"""The whole pipeline - generator, interpreter, faults, journal, sealed history, checkers, report - on a simulated
service in virtual time: every planted bug is caught, and good runs are left in peace.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sim.rig import SimBackend, SimCluster, SimFaults, SimNode, SimPause, SimRegister, prepared
from sim.service import Bug

from harness.api import RunContext
from harness.check.judging import judge_stored, with_evidence
from harness.check.summary import Outcome
from harness.cli.main import cli, guarded
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan
from harness.run import lifecycle, session
from harness.run.virtual_time import VirtualTimeLoop
from harness.signals import Stopped
from infra.machines.api import ClusterSpec, Completed, NodeUnreachable
from infra.systems.api import Deployment, ServersRun
from results.evidence import digests
from results.store import Store
from results.verdict import Verdict

BOTH = (NemesisPlan("sim-partition", 20, 10, "minority"), NemesisPlan("sim-pause", 30, 12, "leader"))


def simulate(folder: Path, plan: Plan, bug: Bug | None) -> Outcome:
    return lifecycle.run(prepared(plan, bug), Store(folder), lambda line: None, VirtualTimeLoop)


def plan(seed: int, **changes: object) -> Plan:
    base: dict[str, object] = {
        "workload": "register",
        "seed": seed,
        "time_limit_s": 30.0,
        "rate": 60.0,
        "options": {"ops_per_key": 100},
        "cluster": ClusterPlan(backend="sim"),
        "nemeses": BOTH[:1],
        "op_deadline_s": 4.0,
    }
    return Plan(**{**base, **changes})  # type: ignore[arg-type]


CAUGHT_BY = {
    Bug.STALE_READ: "linearizability",
    Bug.LOST_WRITE: "linearizability",
    Bug.DOUBLE_APPLY: "linearizability",
    Bug.SPLIT_BRAIN: "linearizability",
    Bug.LOST_AFTER_RESTART: "linearizability",
    Bug.DIVERGENT_REPLICA: "convergence",
    Bug.NEVER_RECOVERS: "availability",
}


@pytest.mark.parametrize("bug", list(Bug), ids=lambda bug: bug.name.lower())
@pytest.mark.slow
def test_every_planted_bug_is_caught(bug: Bug, tmp_path: Path) -> None:
    outcome = simulate(tmp_path, plan(3), bug)
    assert outcome.judgement.verdict == Verdict.INVALID
    guilty = [r.checker for r in outcome.judgement.results if r.verdict == Verdict.INVALID]
    assert CAUGHT_BY[bug] in guilty
    assert outcome.folder.report.stat().st_size > 10_000
    # Offline, from what lies on disk, the verdict is the same.
    _, again = judge_stored_sim(outcome)
    assert [(r.checker, r.verdict) for r in again.results] == [
        (r.checker, r.verdict) for r in outcome.judgement.results
    ]


def judge_stored_sim(outcome: Outcome):  # type: ignore[no-untyped-def]
    return judge_stored(outcome.folder)


@pytest.mark.slow
def test_a_good_service_under_faults_is_valid(tmp_path: Path) -> None:
    outcome = simulate(tmp_path, plan(5, nemeses=BOTH), None)
    assert outcome.judgement.verdict == Verdict.VALID, outcome.judgement.reason
    history = outcome.folder.load().history
    assert {op.extra.get("phase", "main") for op in history if op.type == "invoke"} == {"main", "recovery", "final"}
    assert sum(call.outcome == "info" for call in history.clients.calls) > 0


def test_a_stop_signal_while_the_servers_files_are_read_does_not_cost_the_verdict(tmp_path: Path) -> None:
    class Interrupted(SimRegister):
        stops_servers = True

        def after_stop(self, context: RunContext, folder: Path) -> None:
            signal.raise_signal(signal.SIGTERM)
            (folder / "read").touch()

    quiet = plan(5, nemeses=())
    heard: list[str] = []
    requested = prepared(quiet, workload=Interrupted(quiet))
    outcome = lifecycle.run(requested, Store(tmp_path), heard.append, VirtualTimeLoop)
    assert outcome.judgement.verdict == Verdict.VALID, outcome.judgement.reason
    assert (outcome.folder.path / "read").exists()
    assert sum(line.startswith("interrupted: ") for line in heard) == 1


@pytest.mark.parametrize(
    ("at_disks", "keep", "read"), [("down", False, True), ("down", True, True), ("unsynced-lost", False, False)]
)
@pytest.mark.slow
def test_files_are_read_unasked_after_faults_at_disks(
    at_disks: str, keep: bool, read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated pause has the effect `down`, which counts here in place of one at a disk."""
    monkeypatch.setattr(session, "AT_DISKS", (at_disks,))
    monkeypatch.setattr(SimCluster, "keep", lambda self, note: None)

    class Reading(SimRegister):
        def after_stop(self, context: RunContext, folder: Path) -> None:
            (folder / "read").touch()

    paused = plan(5, nemeses=(NemesisPlan("sim-pause", 30, 12, "leader"),))
    requested = replace(prepared(paused, workload=Reading(paused)), keep=keep)
    outcome = lifecycle.run(requested, Store(tmp_path), lambda line: None, VirtualTimeLoop)
    assert (outcome.folder.path / "read").exists() == read


@pytest.mark.parametrize("ready", [True, False], ids=["prepared before", "servers run"])
def test_the_servers_of_a_kept_cluster_are_stopped_where_a_fault_must_prepare_them(
    ready: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(self: SimPause, deployment: Deployment) -> None:
        if not (ready or deployment.topology.restarted):  # type: ignore[attr-defined]
            raise ServersRun("n1: its server runs without a clock")

    monkeypatch.setattr(SimPause, "prepare", prepare)
    monkeypatch.setattr(SimFaults, "__iter__", lambda self: iter([SimPause()]))
    paused = plan(5, nemeses=BOTH)
    heard: list[str] = []
    outcome = lifecycle.run(prepared(paused), Store(tmp_path), heard.append, VirtualTimeLoop)
    assert outcome.judgement.verdict == Verdict.VALID, outcome.judgement.reason
    assert sum("stopping all servers" in line and "without a clock" in line for line in heard) == (not ready)


def test_a_stop_signal_while_the_loop_is_closed_does_not_cost_the_verdict(tmp_path: Path) -> None:
    class Interrupted(VirtualTimeLoop):
        def close(self) -> None:
            was_open = not self.is_closed()
            super().close()
            if was_open:
                raise Stopped(signal.SIGTERM)

    quiet = plan(5, nemeses=())
    heard: list[str] = []
    outcome = lifecycle.run(prepared(quiet), Store(tmp_path), heard.append, Interrupted)
    assert outcome.judgement.verdict == Verdict.VALID, outcome.judgement.reason
    assert sum(line.startswith("interrupted: ") for line in heard) == 1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    def asked(seed: int, folder: str) -> list[tuple[str, str | None, str]]:
        history = simulate(tmp_path / folder, plan(seed), None).folder.load().history
        return [(op.f, op.key, repr(op.value)) for op in history.clients if op.type == "invoke"]

    assert asked(11, "a") == asked(11, "b")
    assert asked(11, "a") != asked(12, "c")


def test_the_journal_of_a_complete_run_goes_and_its_history_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `keep_journal` it stays, and the command that prints a history prints the same lines."""
    quiet = plan(3, time_limit_s=4.0, nemeses=())
    kept = replace(prepared(quiet), keep_journal=True)
    outcome = lifecycle.run(kept, Store(tmp_path), lambda line: None, VirtualTimeLoop)
    journal = outcome.folder.journal.read_text()
    for folder in (outcome.folder, simulate(tmp_path, quiet, None).folder):
        capsys.readouterr()
        assert guarded(lambda at=folder.path: cli.main(["store", "journal", str(at)], standalone_mode=False)) == 0  # type: ignore[misc]
        assert capsys.readouterr().out == journal
        assert judge_stored(folder)[1].verdict == outcome.judgement.verdict
        assert with_evidence(folder, judge_stored(folder)[1]).verdict == outcome.judgement.verdict
    assert not folder.journal.exists()
    assert "journal.jsonl" not in digests(folder.path)


def test_a_run_whose_nodes_are_gone_ends_at_once(tmp_path: Path) -> None:
    """The engine was stopped under load, and the run had no end: it waited for machines that were not there. No fault
    keeps the control program from its nodes, so half a minute without any answer is enough.
    """
    there: dict[str, bool] = {}

    class Vanishing(SimNode):
        def run(self, argv: Sequence[str], **how: object) -> Completed:
            there.setdefault(self.name, True)
            now = asyncio.get_running_loop().time()
            if now > 20 and (self.name != "n1" or now > 40):
                raise NodeUnreachable(f"{self.name}: connection refused")
            return Completed(tuple(argv), 0, b"", b"", 1.0)

    class Engine(SimBackend):
        def provision(self, spec: ClusterSpec) -> SimCluster:
            cluster = super().provision(spec)
            cluster.nodes = [Vanishing(node.name) for node in cluster.nodes]
            return cluster

    said: list[str] = []
    long = plan(5, time_limit_s=600.0, nemeses=())
    outcome = lifecycle.run(prepared(long, backend=Engine()), Store(tmp_path), said.append, VirtualTimeLoop)
    assert outcome.judgement.verdict == Verdict.HARNESS_FAILURE, outcome.judgement.reason
    assert "no node has answered for 25 s: n1: connection refused" in outcome.judgement.reason
    assert any(line.startswith("the nodes are gone: ") for line in said)
    assert len(there) == 5
    ended = outcome.folder.load().history[-1].time / 1e9
    assert 40 < ended < 80
    assert not any(op.f == "heal" for op in outcome.folder.load().history)


def test_nodes_that_never_answered_are_not_gone(tmp_path: Path) -> None:
    """A backend whose nodes take no commands (as here) is not taken for one whose nodes went away."""
    assert simulate(tmp_path, plan(5, nemeses=()), None).judgement.verdict == Verdict.VALID


def test_a_run_speaks_before_it_waits(tmp_path: Path) -> None:
    """The first line comes before any machine, and each long step has one with the time so far."""
    heard: list[str] = []

    class Slow(SimBackend):
        def provision(self, spec: ClusterSpec) -> SimCluster:
            heard.append("(machines)")
            return super().provision(spec)

    quiet = plan(5, nemeses=())
    lifecycle.run(prepared(quiet, backend=Slow()), Store(tmp_path), heard.append, VirtualTimeLoop)
    steps = [line.strip().split(" ")[0] for line in heard]
    assert steps[:4] == ["starting", "(machines)", "starting", "cluster"]
    assert steps[-2:] == ["fetching", "checking"]
    assert all("s after the command" in line for line in (*heard[2:4], *heard[-2:]))
