# SPDX-License-Identifier: Apache-2.0
"""A run's whole life on real servers, through the installed command; and every fault, seen at work."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cluster.conftest import MARK
from cluster.real_runs import Run, harness, is_inject, left_of, run

from harness.plan.plan import Plan
from results.journal import read_journal
from results.sealed import read_sealed
from results.verdict import Verdict

pytestmark = pytest.mark.cluster

NODES = ["n1", "n2", "n3", "n4", "n5"]
STRIKES = [
    pytest.param("docker_run", "partition-halves"),
    pytest.param("docker_run", "hammer-time"),
    pytest.param("local_run", "kill-random-processes", marks=pytest.mark.nightly),
    pytest.param("local_run", "crash-random-nodes", marks=pytest.mark.nightly),
    pytest.param("local_run", "bridge", marks=pytest.mark.nightly),
    pytest.param("planted_run", "partition-random-node"),
    pytest.param("planted_run", "partition-majorities-ring"),
]
EVIDENCE = {"hammer-time": "is stopped", "kill-random-processes": "is gone", "crash-random-nodes": "is gone"}
"""The words of the probe's evidence; partitions count dropped packets."""


@pytest.fixture(params=["docker_run", pytest.param("local_run", marks=pytest.mark.nightly)])
def lived(request: pytest.FixtureRequest) -> Run:
    ended: Run = request.getfixturevalue(request.param)
    return ended


def test_the_exit_code_is_the_verdict(lived: Run) -> None:
    verdict = Verdict(lived.verdict["verdict"])
    assert lived.code == verdict.exit_code, lived.err
    # What DLedger does is its own affair; but the harness has done its part, and enough of it.
    assert verdict in (Verdict.VALID, Verdict.INVALID), lived.verdict
    assert verdict.value.upper() in lived.out
    assert "Traceback" not in lived.err


def test_the_sealed_history_is_the_journal(docker_run: Run) -> None:
    assert read_sealed(docker_run.dir.history) == read_journal(docker_run.dir.journal)[0]


@pytest.mark.nightly
def test_the_journal_goes_when_the_history_is_sealed(local_run: Run) -> None:
    assert not local_run.dir.journal.exists()
    assert "journal.jsonl" not in local_run.verdict["evidence"]


def test_the_history_has_all_phases(lived: Run) -> None:
    phases = {op.extra.get("phase", "main") for op in lived.ops if op.type == "invoke"}
    assert phases == {"main", "recovery", "final"}
    assert {(op.f, op.type) for op in lived.ops} >= {(f, "ok") for f in ("read", "write", "cas", "replica-read")}
    assert {op.extra["node"] for op in lived.ops if op.f == "replica-read"} == set(NODES)


def test_checked_again_offline_every_checker_says_the_same(lived: Run) -> None:
    before = lived.results()
    done = harness("check", lived.dir.path)
    assert done.returncode == lived.code, done.stdout + done.stderr
    assert lived.results() == before
    assert done.stdout.split()[1] == lived.verdict["verdict"]


class Page(HTMLParser):
    """The files that an HTML page loads, and the targets of its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster") or (name == "href" and tag == "link"):
                self.loads.append(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")


def test_the_report_opens_from_disk(lived: Run) -> None:
    text = lived.dir.report.read_text()
    page = Page(text)
    assert [what for what in page.loads if not what.startswith("data:")] == []
    assert "@import" not in text
    assert "url(http" not in text
    assert {"svg", "style", "h1"} <= page.tags
    files = [link.partition("#")[0] for link in page.links if not link.startswith(("#", "http", "data:"))]
    assert files
    for file in files:
        assert (lived.dir.path / file).exists(), f"the report links {file}"


def test_what_else_a_run_leaves(lived: Run) -> None:
    for node in NODES:
        files = {path.name: path for path in (lived.dir.nodes / node).iterdir()}
        assert {"server.log", "gc.log", "server.properties", "effective.properties"} <= files.keys()
        assert f"node {node} of" in files["server.log"].read_text()
    commands = [json.loads(line) for line in lived.dir.control.read_text().splitlines()]
    assert {entry["node"] for entry in commands} == set(NODES)
    assert all(isinstance(entry["argv"], list) and entry["ms"] >= 0 for entry in commands)
    assert lived.environment["dledger"] == "0.4.0"
    text = lived.dir.plan.read_text()
    assert Plan.read(lived.dir.plan).to_toml() == text
    assert harness("run", "--plan", lived.dir.plan, "--dry-run").stdout == text


def test_nothing_is_left_on_the_machine(lived: Run) -> None:
    assert left_of(lived.environment) == []


@pytest.mark.parametrize(("fixture", "fault"), STRIKES)
def test_every_fault_strikes_and_is_seen(fixture: str, fault: str, request: pytest.FixtureRequest) -> None:
    struck: Run = request.getfixturevalue(fixture)
    injected = [op for op in struck.ops if is_inject(op) and op.value["fault"] == fault]
    assert injected, struck.out + struck.err
    for op in injected:
        assert op.value["seen"], op
        assert op.error is None
        for node in op.value["nodes"]:
            text = op.value["evidence"][node]
            assert EVIDENCE.get(fault, "packets dropped since the probes") in text
            assert "none" not in text
    ended = {op.value["id"]: op for op in struck.ops if op.f == "heal" and op.type == "info"}
    assert {op.value["id"] for op in injected} <= ended.keys()
    assert all(ended[op.value["id"]].error is None for op in injected)


@pytest.mark.parametrize(("fixture", "fault"), [strike for strike in STRIKES if set(EVIDENCE) & {*strike.values}])
def test_a_server_that_is_down_answers_nobody(fixture: str, fault: str, request: pytest.FixtureRequest) -> None:
    """The same from another side: the nodes' answers to the observer while the strike was in force."""
    struck: Run = request.getfixturevalue(fixture)
    seen = [json.loads(line) for line in struck.dir.observations.read_text().splitlines()]
    for op in (op for op in struck.ops if is_inject(op) and op.value["fault"] == fault):
        begun = op.time
        heal = next(o for o in struck.ops if o.f == "heal" and o.type == "invoke" and o.value["id"] == op.value["id"])
        for node in op.value["nodes"]:
            # An answer that was on its way when the fault struck may still arrive just after.
            roles = [o["role"] for o in seen if o["node"] == node and begun + 1e9 < o["time"] < heal.time]
            assert set(roles) <= {"silent"}


def test_a_committers_own_build_runs_and_its_bug_is_found(planted_run: Run) -> None:
    assert planted_run.code == Verdict.INVALID.exit_code, planted_run.out + planted_run.err
    result = planted_run.results()["linearizability"]
    assert result["verdict"] == "invalid"
    assert result["anomalies"]
    assert all(anomaly["ops"] for anomaly in result["anomalies"])
    for node in NODES:
        assert MARK in (planted_run.dir.nodes / node / "server.log").read_text()
    assert "planted.jar:" in planted_run.environment["user_jars"]


def test_options_reach_every_server(planted_run: Run) -> None:
    for node in NODES:
        folder = planted_run.dir.nodes / node
        log = (folder / "server.log").read_text()
        assert "-XX:+PrintCommandLineFlags" in log
        assert f"-XX:MaxHeapSize={170 << 20}" in log
        effective = (folder / "effective.properties").read_text().splitlines()
        assert "heartBeatTimeIntervalMs=600" in effective
        assert len(effective) > 20, "all settings in force are noted, not only ours"
    assert "-Xmx170m" in planted_run.environment["jvm_options"]
    assert "heartBeatTimeIntervalMs=600" in planted_run.environment["server_settings"]
    assert Plan.read(planted_run.dir.plan).server.jvm_options == ("-Xmx170m", "-XX:+PrintCommandLineFlags")


@pytest.mark.nightly
def test_reads_that_are_stale_by_design_are_found(tmp_path: Path) -> None:
    """The leader sits in the minority half: until it gives up, and after, its clients read what is past."""
    times = ("--time-limit", "12", "--interval", "20", "--duration", "6", "--target", "leader", "--seed", "5")
    ended = run("--cluster", "docker", "--read-mode", "unsafe", *times, store=tmp_path / "store")
    assert ended.code == Verdict.INVALID.exit_code, ended.out + ended.err
    assert ended.results()["linearizability"]["verdict"] == "invalid"
    assert ended.results()["well-formed"]["verdict"] == "valid"
