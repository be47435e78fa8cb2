# SPDX-License-Identifier: Apache-2.0
"""Runs that are ended from outside, by each signal in each phase: bounded, healed, judged where there is something to
judge, and nothing is left on the machine.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cluster.real_runs import Going, going, harness, left_of, nodes_of, until

from infra.machines.ownership import Owner
from results.verdict import Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]
nightly = pytest.mark.nightly

GONE_S = 20.0
"""After a signal, and whatever the run still does with it, nothing may be left for longer."""

ONE_FAULT = ("--nodes", "3", "--time-limit", "8", "--interval", "100", "--duration", "3", "--seed", "5")


def provisioning(run: Going) -> None:
    assert run.folder.path.exists()


def starting(run: Going) -> None:
    run.environment()


def in_main(run: Going) -> None:
    until(lambda: any(op.is_client and op.type == "ok" for op in run.ops()), "clients are served")


def in_fault(run: Going) -> None:
    run.strike(1)


def restarting(run: Going) -> None:
    until(lambda: "restarting all servers" in run.out, "the final phase")


def collecting(run: Going) -> None:
    until(lambda: any(run.folder.nodes.glob("*/*.log")), "logs are fetched")


def judging(run: Going) -> None:
    until(run.folder.history.exists, "the history is sealed")


PHASES: Mapping[str, Callable[[Going], None]] = {
    "provision": provisioning,
    "start": starting,
    "main": in_main,
    "fault": in_fault,
    "restart": restarting,
    "collect": collecting,
    "judge": judging,
}
EARLY = ("provision", "start")
"""There is nothing to judge yet."""

IN_CI = {("SIGTERM", "fault", "docker"), ("SIGHUP", "start", "local")}
CASES = [
    pytest.param(name, phase, cluster, marks=() if (name, phase, cluster) in IN_CI else nightly)
    for name in ("SIGTERM", "SIGHUP", "SIGKILL")
    for phase in PHASES
    for cluster in ("docker", "local")
]


@pytest.mark.parametrize(("name", "phase", "cluster"), CASES)
def test_a_run_is_ended(name: str, phase: str, cluster: str, tmp_path: Path) -> None:
    facts: dict[str, str] = {}
    processes: list[Owner] = []
    options = ("--cluster", cluster, "--nemesis", "hammer-time", *ONE_FAULT)
    with going(*options, store=tmp_path / "store") as started:
        PHASES[phase](started)
        if phase != "provision":
            facts = started.environment()
            if not started.ended and phase not in ("collect", "judge"):
                processes = nodes_of(facts)
        os.kill(started.process.pid, signal.Signals[name])
        ended = started.wait()

    number = signal.Signals[name]
    if name == "SIGKILL":
        assert ended.code == -9
    elif phase in EARLY:
        assert ended.code == 128 + number, ended.err
        assert ended.err.splitlines()[-1] == f"harness: ended by {name}"
    else:
        assert ended.code == Verdict(ended.verdict["verdict"]).exit_code, ended.err
        assert len(list(ended.dir.nodes.glob("*/server.log"))) == 3
    assert "Traceback" not in ended.out + ended.err

    if facts:
        until(lambda: left_of(facts, processes) == [], f"nothing is left: {left_of(facts, processes)}", GONE_S)
    else:
        until(lambda: " would remove" not in harness("clean", "--dry-run").stdout, "nothing is left", GONE_S)
    if phase not in EARLY:
        checked = harness("check", ended.dir.path)
        assert checked.returncode in (0, 1, 2), checked.stderr
        assert ended.results()["well-formed"]["verdict"] == "valid"


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=nightly)])
def test_ctrl_c_while_a_server_never_answers(times: int, tmp_path: Path) -> None:
    """A JVM that waits for a debugger is there, and says nothing: a start that would go on for minutes."""
    waits = "--jvm-option=-agentlib:jdwp=transport=dt_socket,server=y,suspend=y,address=127.0.0.1:0"
    options = ("--workload", "log", "--topology", "master-slave", "--cluster", "local", "--nodes", "3", waits)
    with going(*options, store=tmp_path / "store") as started:
        facts = started.environment()
        until(lambda: any(b"jdwp" in line for line in command_lines(facts)), "a JVM waits")
        processes = nodes_of(facts)
        began = time.monotonic()
        for _ in range(times):
            started.ctrl_c()
            time.sleep(1)
        ended = started.wait()
    assert time.monotonic() - began < 30, "a promise of the command: gone within 30 s"
    assert ended.code == 130
    assert ended.err.splitlines()[-1] == "harness: interrupted"
    assert processes
    assert left_of(facts, processes) == []


def command_lines(facts: Mapping[str, str]) -> list[bytes]:
    found = []
    for owner in nodes_of(facts):
        try:
            found.append(Path(f"/proc/{owner.pid}/cmdline").read_bytes())
        except OSError:
            continue
    return found
