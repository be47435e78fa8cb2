# SPDX-License-Identifier: Apache-2.0
"""The boundary of a command: its errors, its output, and what plans and options must not do."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from harness import terminal
from harness.boundary import end, guarded
from harness.check.summary import _permissions
from harness.cli.main import cli
from harness.cli.run import override, owned_options
from harness.parts import registry
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan, PlanError
from harness.progress import Progress
from harness.run import environment
from infra.machines.api import Capability, SettingsError
from infra.options import NotAvailable
from infra.systems.rocketmq.servers import artifacts
from infra.systems.rocketmq.topologies import base as _rocketmq
from results.formats import write_jsonl
from results.op import Op
from results.store import Store

GOOD = [Op(0, 1, 0, "invoke", "write", "k", 1), Op(1, 2, 0, "ok", "write", "k", 1)]


def harness(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = guarded(lambda: cli.main(list(argv), prog_name="harness", standalone_mode=False))
    output = capsys.readouterr()
    return code, output.out, output.err


def in_shell(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`harness` is the command line of this tree."""
    root = Path(__file__).parents[2]
    head = f'set -o pipefail; harness() {{ {sys.executable} -c "from harness.cli.main import main; main()" "$@"; }}; '
    around = {**os.environ, "PYTHONPATH": str(root), **env}
    return subprocess.run(
        ["bash", "-c", head + script], cwd=folder, env=around, capture_output=True, text=True, timeout=60, check=False
    )


def raising(problem: BaseException) -> int:
    def command() -> None:
        raise problem

    return guarded(command)


# Errors


def test_why_a_program_left_is_a_failure_and_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Only a command of the harness decides an exit code: 0 is `valid`, and nobody else may say so."""
    assert raising(SystemExit("why")) == 3
    assert re.fullmatch(
        r"harness: \S+test_boundary.py:\d+ ended the process \(sys.exit\): why; the command came to no verdict\n",
        capsys.readouterr().err,
    )
    assert raising(SystemExit(None)) == 3
    assert raising(SystemExit(0)) == 3
    assert raising(SystemExit(2)) == 3
    assert guarded(lambda: end(0)) == 0
    assert guarded(lambda: end(2)) == 2


def test_a_task_that_was_cancelled_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(asyncio.CancelledError()) == 3
    assert "CancelledError" in capsys.readouterr().err


def test_an_error_nobody_foresaw_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(ZeroDivisionError("by\nzero \x1b[31m")) == 3
    err = capsys.readouterr().err
    assert err.startswith(
        r"harness: unexpected error, please report it: ZeroDivisionError: by zero \x1b[31m  (traceback: "
    )
    assert err.count("\n") == 1
    path = Path(err.rpartition("traceback: ")[2].rstrip(")\n"))
    assert "ZeroDivisionError" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    path.unlink()


def test_a_traceback_that_cannot_be_kept_is_said_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.mkstemp", lambda **names: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert raising(RecursionError()) == 3
    assert "(its traceback could not be written: No space left)" in capsys.readouterr().err


def test_a_logged_traceback_goes_into_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("no")
    except ValueError as problem:
        Progress().emit(
            logging.makeLogRecord({"msg": "%s: failed", "args": ("a\x1b",), "exc_info": (ValueError, problem, None)})
        )
    err = capsys.readouterr().err
    assert err.startswith(r"a\x1b: failed  (traceback: ")
    Path(err.rpartition("traceback: ")[2].rstrip(")\n")).unlink()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("harness list workloads | true", 0),
        ("harness check good.jsonl --model register | true", 0),
        ("harness --help | true", 0),
        ("harness list > /dev/full", 3),
        ("harness --help > /dev/full", 3),
        ("harness check good.jsonl --model register --json /dev/full", 3),
        ("harness list >&-", 0),
    ],
)
@pytest.mark.slow
def test_output_that_goes_nowhere(script: str, code: int, tmp_path: Path) -> None:
    write_jsonl(GOOD, tmp_path / "good.jsonl")
    done = in_shell(script, tmp_path)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == (code != 0)
    assert all(line.startswith("harness: ") for line in done.stderr.splitlines())
    assert "unexpected" not in done.stderr


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["check", "good.jsonl", "--budget-s", "nan"], "'nan' is not in the range 0<x<="),
        (["check", "good.jsonl", "--budget-s", "inf"], "is not in the range"),
        (["batch", "--input", "x", "--portion-s", "nan"], "'nan' is not in the range 0<x<="),
        (["check", "good.jsonl", "--memory-mb", "9" * 30], "is not in the range"),
        (["check", "p" * 5000], "no such file or folder"),
        (["check", "good.jsonl", "--models", "nul.csv"], "no file can be called"),
        (["check", "good.jsonl", "--models", "pipe"], "pipe: cannot be read: a pipe, not a regular file"),
        (["run", "--plan", "pipe"], "pipe: cannot be read: a pipe, not a regular file"),
        (["run", "--dry-run", "--time-limit", "9" * 300], "a time from 0 to 30 days is right"),
        (["run", "--dry-run", "--seed", "9" * 30], "a whole number of at most 63 bits"),
        (["run", "--dry-run", "--server-jars", "j" * 5000], "no folder with jars in it"),
        (["run", "--dry-run", "--version", "5.1.2"], "published incomplete"),
        (["run", "--dry-run", "--version", "1.0"], "not pinned here"),
        (["run", "--dry-run", "--server-jars", "."], "no folder with jars in it"),
        (["run", "--dry-run", "--cluster", "k8s"], "no cluster 'k8s'"),
        (["run", "--dry-run", "--cluster", "ssh", "--nemesis", "none"], "--cluster ssh needs machines"),
        (["run", "--dry-run", "--keep", "--ground-truth"], "leave --keep and --reuse out"),
        (["run", "--dry-run", "--target", ""], "--target is empty; leave it out"),
        (["run", "--dry-run", "--nemesis", ""], "--nemesis is empty"),
        (["run", "--dry-run", "--set", "no.such=1"], "settings of this topology are called"),
        (["run", "--dry-run", "--topology", "slave-acting-master", "--nodes", "3"], "needs 4 nodes at least"),
    ],
)
def test_bad_input_is_usage(
    argv: Sequence[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(GOOD, tmp_path / "good.jsonl")
    (tmp_path / "nul.csv").write_text("file,model\nx\x00y,register\n")
    os.mkfifo(tmp_path / "pipe")
    code, out, err = harness(capsys, *argv)
    assert (code, out) == (64, ""), err
    assert said in err
    assert err.startswith("harness: ")
    assert err.count("\n") == 1


PLANS = {
    "rate of 400 digits": "rate = " + "9" * 400,
    "time of 400 digits": "time_limit = " + "9" * 400,
    "seed of 5,000 digits": "seed = " + "9" * 5000,
    "900 brackets": "workload = " + "[" * 900,
    "900 tables": "[server]\nset." + "a." * 900 + "b = 1",
    "long path": "[server]\njars = '" + "j" * 5000 + "'",
    "NUL in a JVM option": '[server]\njvm_options = ["-Da=\\u0000"]',
    "empty target": "[[nemesis]]\nfault = 'bridge'\ntarget = ' '",
    "a strike every 2 ms": "time_limit = 1e6\n[[nemesis]]\nfault = 'bridge'\nevery = '0.002s'\nfor = '0.001s'",
    "a thousand years": "time_limit = 1e15",
}


@pytest.mark.parametrize("name", PLANS)
def test_a_bad_plan_is_usage(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.toml").write_text(PLANS[name])
    code, out, err = harness(capsys, "run", "--dry-run", "--plan", str(tmp_path / "plan.toml"))
    assert (code, out) == (64, ""), err
    assert err.count("\n") == 1
    assert len(err) < 600 + len(str(tmp_path)) + 5000 * (name == "long path")


def test_strikes_are_bounded_over_all_nemeses() -> None:
    many = tuple(NemesisPlan("bridge", every_s=2, for_s=1) for _ in range(60))
    Plan(time_limit_s=3000, nemeses=many)
    with pytest.raises(PlanError, match="would strike 120,000 times in 4000 s"):
        Plan(time_limit_s=4000, nemeses=many)


def test_every_combination_of_nemeses_names_a_folder(tmp_path: Path) -> None:
    faults = registry.names(registry.NEMESES)
    whole = Plan(nemeses=tuple(NemesisPlan(fault) for fault in faults))
    fewer = Plan(nemeses=whole.nemeses[:-1])
    assert whole.label != fewer.label
    for plan in (whole, fewer):
        Store(tmp_path).create(plan.label, "", datetime(2026, 11, 21))


def test_a_dry_run_puts_settings_to_the_servers_own_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run does before it makes a cluster; a setting that no server has is the user's mistake."""
    monkeypatch.setattr(artifacts, "fetch", lambda version: Path("/jars"))

    def refuses(settings: object, class_path: object) -> None:
        raise SettingsError("server settings: broker.heartbet: this version has no such setting")

    monkeypatch.setattr(_rocketmq.artifacts, "check_settings", refuses)
    code, out, err = harness(capsys, "run", "--dry-run", "--set", "broker.heartbet=5")
    assert (code, out) == (64, "")
    assert err == "harness: server settings: broker.heartbet: this version has no such setting\n"


def test_a_backend_that_raises_can_do_nothing_and_the_others_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "broken"

        def probe(self) -> Capability:
            raise RuntimeError("no\nsuch address")

    can = registry.probe(Broken())  # type: ignore[arg-type]
    assert (can.ok, can.reason) == (False, "its check failed: RuntimeError: no such address")


# Output


def test_a_line_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say("a\nharness: forged\r\x1b[2K\x9b\u202e\udcff ü\t")
    assert capsys.readouterr().out == r"a\nharness: forged\r\x1b[2K\x9b\u202e\udcff ü\t" + "\n"


def test_escapes_of_data_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "k\x1b[2J\nharness: all is well"
    ops = [Op(0, 1, 0, "invoke", "read", key), Op(1, 2, 0, "ok", "read", key, 7)]
    path = tmp_path / "h\x1b]0;owned\x07.jsonl"
    write_jsonl(ops, path)
    for argv in (["check", str(path), "--model", "register"], ["check", str(path), "--model", "x\x1b"], ["x\x1b[31m"]):
        _, out, err = harness(capsys, *argv)
        text = out + err
        assert text
        assert all(c.isprintable() or c == "\n" for c in text)
        assert not [line for line in out.splitlines() if line.startswith("harness:")]
    plan = tmp_path / "plan.toml"
    plan.write_text('[server]\nset."broker.x" = "\\u001b[31m\\u0085\\u202e"\n')
    assert (
        Plan.from_dict({"server": {"set": {"a": "\x1b\x85\u202e\U000e0001"}}}).to_toml().replace("\n", "").isprintable()
    )


def test_a_plan_with_escapes_is_the_same_when_read_again(tmp_path: Path) -> None:
    plan = Plan.from_dict({"server": {"set": {"a": "\x1b\x85\u202e\U000e0001 ü"}}})
    (tmp_path / "p.toml").write_text(plan.to_toml())
    assert Plan.read(tmp_path / "p.toml") == plan


def test_what_is_not_available_is_no_wrong_command(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise NotAvailable("the nemesis 'disk-slow' is not available here: no device mapper")

    assert guarded(command) == 69
    assert "no device mapper" in capsys.readouterr().err


# Permissions and secrets


@pytest.mark.parametrize("word", ["disposable", "install"])
def test_a_plan_gives_no_permission(word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = Plan(nemeses=(), cluster=ClusterPlan("ssh", 1, {"hosts": ["h1"], word: True}))
    plan = tmp_path / "plan.toml"
    plan.write_text(stored.to_toml())
    code, _, err = harness(capsys, "run", "--dry-run", "--plan", str(plan))
    assert code == 64
    assert (
        err == f"harness: {plan}: {word} = true is a permission; a plan cannot give it, "
        f"--{word} on the command line can\n"
    )
    code, out, _ = harness(capsys, "run", "--dry-run", "--plan", str(plan), f"--{word}")
    assert code == 0
    assert f"{word} = true" in out
    assert _permissions(stored) == f" --{word}"
    plan_of = Plan(cluster=ClusterPlan("ssh"))
    assert override(plan_of, {f"of_{word}": True}, owned_options(plan_of)).cluster.options[word]


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("broker.secretKey=s3cr3t", "broker.secretKey=***"),
        ("--set=acl.accessKey=s3cr3t", "--set=acl.accessKey=***"),
        ("-Djavax.net.ssl.keyStorePassword=s3cr3t", "-Djavax.net.ssl.keyStorePassword=***"),
        ("https://user:s3cr3t@host/x", "https://user:***@host/x"),
        ("broker.minInSyncReplicas=2", "broker.minInSyncReplicas=2"),
    ],
)
def test_secrets_stay_out_of_the_environment(word: str, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["harness", "run", "--set", word])
    assert shlex.split(environment.describe()["command"]) == ["harness", "run", "--set", kept]


def test_the_environment_as_written_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["harness", "run", "--set", "broker.token=s3cr3t"])
    assert "s3cr3t" not in json.dumps(environment.describe())
