# SPDX-License-Identifier: Apache-2.0
"""The command line: wrong input is one clear line, the right exit code, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.parts.registry import workload_class
from harness.parts.resolve import resolve
from harness.plan.plan import Plan, ServerPlan
from infra.machines import kept
from infra.machines.keys import new_cluster_keys
from infra.systems.rocketmq.topologies.base import RocketmqTopology
from tests.commands import harness


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run", "--nemesis", "partition-halfs"], "no nemesis 'partition-halfs'; did you mean 'partition-halves'?"),
        (["run", "--nemesis", "none,bridge"], "--nemesis none cannot be combined"),
        (["run", "--workload", "registr"], "no workload 'registr'; did you mean 'register'?"),
        (["run", "--cluster", "dokcer"], "no cluster 'dokcer'; did you mean 'docker'?"),
        (["run", "--nodes", "0"], "nodes is 0; 1 to 50"),
        (["run", "--rate", "-1"], "-1.0 is not in the range 0<x<=1000000.0"),
        (["run", "--rate", "many"], "'many' is not a valid float"),
        (["run", "--time-limit", "soon"], "a duration is right"),
        (["run", "--workload", "register", "--read-mode", "quick"], "log or unsafe is right"),
        (
            ["run", "--read-mode", "log"],
            "the workload 'log' has no option --read-mode; it is an option of --workload register",
        ),
        (
            ["run", "--nemesis", "hammer-time pause=2s"],
            "the nemesis 'hammer-time' has no option 'pause'; it is an option",
        ),
        (["run", "--nemesis", "pause-slaves-kill-master pause=1d"], "pause is '1d'; a duration is right"),
        (["run", "--replay", "times"], "--replay is for a plan with strikes written out"),
        (["run", "--target", "n9"], "n9"),
        (["run", "--target", "everybody"], "everybody"),
        (["run", "--interval", "5", "--duration", "5"], "the interval must be longer"),
        (["run", "--topology", "dleger"], "no topology 'dleger'; did you mean 'dledger'?  (harness list topologies)"),
        (["run", "--workload", "register", "--profile", "strict"], "the topology dledger has no profile 'strict'"),
        (["run", "--workload", "register", "--client", "native"], "'register' has its own clients"),
        (["run", "--client", "java"], "no client 'java'; --client remoting or native or grpc"),
        (["run", "--workload", "register", "--ground-truth"], "the workload 'register' has no option --ground-truth"),
        (
            ["run", "--workload", "register", "--keep"],
            "'register' needs a new cluster; leave --keep and --reuse",
        ),
        (["run", "--brokers", "9"], "brokers is 9; 1 to 5"),
        (["run", "--set", "heartbeat"], "KEY=VALUE is right"),
        (["run", "--plan", "missing.toml"], "missing.toml: cannot be read"),
        (["run", "--node", "localhost", "--cluster", "ssh", "--nodes", "3"], "--disposable"),
        (["run", "--no-such"], "No such option"),
        (["walk"], "No such command 'walk'"),
        (["check", "nowhere"], "nowhere: no such file or folder"),
        (["check", "--model", "registr", "pyproject.toml"], "no model 'registr'; did you mean 'register'?"),
        (["serve", "--port", "0"], "0 is not in the range"),
    ],
)
def test_usage_errors(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = harness(capsys, *argv)
    assert code == 64, err
    assert said in err
    assert "Traceback" not in err
    assert err.startswith("harness: ")
    assert len(err.strip().splitlines()) == 1


@pytest.fixture
def no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Server settings are not put to RocketMQ's own code."""
    monkeypatch.setattr(RocketmqTopology, "shares", lambda self: [])


@pytest.mark.usefixtures("no_jars")
def test_options_override_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.toml").write_text('seed = 3\nrate = 7.0\n[server]\nset."broker.a" = "1"\n')
    options = ["--rate", "9", "--nemesis", "bridge,hammer-time", "--target", "leader", "--set", "broker.b=2"]
    code, out, _ = harness(capsys, "run", "--dry-run", "--plan", str(tmp_path / "p.toml"), *options)
    assert code == 0
    (tmp_path / "effective.toml").write_text(out)
    plan = Plan.read(tmp_path / "effective.toml")
    assert (plan.seed, plan.rate) == (3, 9.0)
    assert [(n.fault, n.target) for n in plan.nemeses] == [("bridge", "leader"), ("hammer-time", "leader")]
    assert plan.server.settings == {"broker.a": "1", "broker.b": "2"}


def test_an_alias_is_stored_by_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = harness(capsys, "run", "--dry-run", "--nemesis", "partition-random-halves")
    assert 'fault = "partition-halves"' in out


def test_list_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = harness(capsys, "list", "nemeses")
    assert code == 0
    for name in (
        "partition-random-node",
        "partition-halves",
        "partition-majorities-ring",
        "bridge",
        "kill-random-processes",
        "crash-random-nodes",
        "hammer-time",
        "none",
    ):
        assert f"  {name} " in out


CORRUPT = '{"index": 0, "time": 1, "process": 0, "type": "invoke", "f": "read"}\n{"index": 1, "time"\n{"index": 2}\n'


def test_a_corrupt_history_is_named_by_line_and_the_others_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.jsonl").write_text(CORRUPT)
    good = [
        '{"index": 0, "time": 1, "process": 0, "type": "invoke", "f": "write", "key": "k", "value": 1}',
        '{"index": 1, "time": 2, "process": 0, "type": "ok", "f": "write", "key": "k", "value": 1}',
    ]
    (tmp_path / "good.jsonl").write_text("\n".join(good) + "\n")
    code, out, _ = harness(capsys, "check", str(tmp_path), "--model", "register")
    assert code == 2
    assert "bad.jsonl:2" in out
    assert "good.jsonl   valid" in out


@pytest.mark.usefixtures("no_jars")
def test_a_run_on_a_kept_cluster_is_a_run_on_what_it_was_made_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    code, _, err = harness(capsys, "run", "--workload", "log", "--reuse", "h1")
    assert (code, err) == (64, "harness: no kept cluster 'h1'; there are: none (harness run --keep leaves one)\n")
    server = ServerPlan(version="5.3.3", settings={"broker.a": "1"}, mends=("7,8",))
    made = resolve(Plan(workload="log", server=server))
    kept.save(kept.Kept.of("docker", "h1", {}, new_cluster_keys([]), {}, made.to_toml()))
    code, out, err = harness(capsys, "run", "--workload", "queue", "--dry-run", "--reuse", "h1", "--nemesis", "bridge")
    assert code == 0, err
    (tmp_path / "plan.toml").write_text(out)
    plan = Plan.read(tmp_path / "plan.toml")
    assert plan.server == made.server
    assert (plan.cluster.backend, plan.workload, plan.nemeses[0].fault) == ("docker", "queue", "bridge")
    same = ["--topology", "controller", "--version", "5.3.3", "--set", "broker.a=1", "--mend", "7,8"]
    same += ["--controller-type", "dledger", "--rate", "70"]
    code, out, err = harness(capsys, "run", "--dry-run", "--reuse", "h1", *same)
    assert code == 0, err
    (tmp_path / "plan.toml").write_text(out)
    plan = Plan.read(tmp_path / "plan.toml")
    assert (plan.server, plan.rate) == (made.server, 70)
    others = ["--controller-type", "jraft", "--nodes", "3", "--set", "broker.a=2"]
    code, _, err = harness(capsys, "run", "--dry-run", "--reuse", "h1", "--topology", "controller", *others)
    assert code == 64
    assert "h1: --nodes, --set, --controller-type was set otherwise when that cluster was created" in err


def test_what_a_plan_leaves_open_is_resolve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = harness(capsys, "run", "--dry-run", "--workload", "log", "--seed", "1")
    (tmp_path / "plan.toml").write_text(out)
    plan = Plan.read(tmp_path / "plan.toml")
    assert (plan.server.topology, plan.server.profile, plan.server.version) == ("controller", "strict", "5.5.0")
    assert plan.rate == workload_class("log").default_rate
    assert resolve(plan).to_dict() == plan.to_dict()


def test_list_names_topologies_and_versions(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = harness(capsys, "list", "topologies")
    assert "controller" in out
    assert "profiles: strict, default, given" in out
    _, out, _ = harness(capsys, "list", "versions")
    assert "rocketmq 5.5.0" in out
    assert "5.5.1" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--version", "9.9"], "RocketMQ 9.9 is not pinned here"),
        (["--set", "proxi.a=1"], "settings of this topology are called"),
        (["--nemesis", "bridge", "--target", "n9"], "no target 'n9'"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = harness(capsys, "run", "--dry-run", *options)
    assert code != 0
    assert out == ""
    assert message in err
