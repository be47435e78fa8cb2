# SPDX-License-Identifier: Apache-2.0
"""Figures of the machines: lines of the probes become samples, whatever is torn or missing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.observe.own_machine import watch_own_machine
from infra.machines import pressure
from results.machine import CONTROL, BusyThread, MachineSample, read_machine

START = datetime(2026, 11, 22, 7, 0, tzinfo=UTC)
ABOUT = {"started_at": START.isoformat()}
S = 1_000_000_000


def at(seconds: float) -> int:
    return int((START.timestamp() + seconds) * 1e6)


def read(tmp_path: Path, lines: str, **logs: str) -> list[MachineSample]:
    (tmp_path / "machine.log").write_text(lines)
    files = {}
    for name, text in logs.items():
        path = tmp_path / "n1" / name.replace("_", "-").replace("-log", ".log")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        files.setdefault("n1", []).append(path)
    return read_machine(tmp_path / "machine.log", files, ABOUT)


def test_two_lines_make_a_sample(tmp_path: Path) -> None:
    node = (
        f"{at(0)} 900 1000000 0 - 10 1000 7:1000000000:500000000:100 8:0:0:0\n"
        f"{at(2)} 3500 2000000 0 - 40 1400 7:2000000000:1500000000:200 8:1000000000:0:100\n"
    )
    (sample,) = read(tmp_path, "", machine_log=node)
    assert sample == MachineSample(
        "n1", 0, 2 * S, late_ms=3.5, wait_ms=5.0, ran=1.0, cpu=0.5, memory=0.0, io=None, steal=30 / 400
    )


def test_what_each_kind_of_server_waited(tmp_path: Path) -> None:
    node = f"{at(0)} 0 - - - 0 1 broker=7:0:0:0 namesrv=8:0:0:0\n"
    node += f"{at(2)} 0 - - - 0 1 broker=7:1000:9000000:3 namesrv=8:1000:1000000:1\n"
    (sample,) = read(tmp_path, "", machine_log=node)
    assert (sample.wait_ms, sample.waits) == (2.5, {"broker": 3.0, "namesrv": 1.0})


def test_a_server_that_was_started_or_has_ended(tmp_path: Path) -> None:
    """A new one counts from nothing; one whose threads have ended (its sums fall) is left out; one that is gone too."""
    node = f"{at(0)} 0 - - - 0 1 7:5000:5000:5 9:1:1:1\n{at(2)} 0 - - - 0 1 7:4000:9000:9 8:1000:3000000:3\n"
    (sample,) = read(tmp_path, "", machine_log=node)
    assert sample.wait_ms == 1.0


def test_what_was_before_the_run_or_is_torn_is_left_out(tmp_path: Path) -> None:
    lines = (
        f"{at(-4)} 0 - - - 0 1\n{at(-2)} 0 - - - 0 2\n{at(1)} 0 - - - 0 3\nbash: line 7: torn\n{at(3)} 0 - - - 0 4\n"
    )
    (sample,) = read(tmp_path, lines + f"{at(5)} 0 - - - 0")
    assert (sample.node, sample.start, sample.end, sample.wait_ms) == (CONTROL, S, 3 * S, None)


def test_pauses_of_the_collector(tmp_path: Path) -> None:
    gc = (
        "[2026-11-22T07:00:01.500+0000][1.5s] GC(0) Pause Young (Allocation Failure)\n"
        "[2026-11-22T07:00:01.500+0000][1.5s] GC(0) Pause Young (Allocation Failure) 8M->4M(30M) 4.911ms\n"
        "[2026-11-22T08:00:01.900+0100][1.9s] GC(1) Pause Full (System.gc()) 8M->4M(30M) 1204.5ms\n"
        "[2026-11-22T07:00:09.000+0000][9s] GC(2) Pause Young (Allocation Failure) 8M->4M(30M) 3ms\n"
    )
    node = f"{at(0)} 0 - - - 0 1\n{at(2)} 0 - - - 0 2\n{at(4)} 0 - - - 0 3\n"
    found = read(tmp_path, "", machine_log=node, gc_broker_log=gc)
    assert [sample.pause_ms for sample in found] == [1204.5, 0.0]


def test_nothing_was_measured(tmp_path: Path) -> None:
    assert read_machine(tmp_path / "none", {}, ABOUT) == []
    assert read_machine(tmp_path / "none", {}, {}) == []


def test_a_pipe_is_no_measurement(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "machine.log")
    assert read_machine(tmp_path / "machine.log", {"n1": [tmp_path / "machine.log"]}, ABOUT) == []


def test_a_start_without_a_zone_is_in_utc(tmp_path: Path) -> None:
    log, gc = tmp_path / "machine.log", tmp_path / "gc-broker.log"
    log.write_text(f"{at(1)} 0 - - - 0 1\n{at(3)} 0 - - - 0 2\n")
    gc.write_text("[2026-11-22T07:00:02.000+0000][2s] GC(0) Pause Young (Allocation Failure) 8M->4M(30M) 3ms\n")
    (sample,) = read_machine(tmp_path / "none", {"n1": [log, gc]}, {"started_at": "2026-11-22T07:00:00"})
    assert (sample.start, sample.pause_ms) == (S, 3.0)


@pytest.mark.slow
def test_the_probe_itself(tmp_path: Path) -> None:
    """The script as it runs on a node, on this machine: one server that is always busy."""
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        (tmp_path / "aserver.pid").write_text(f"{busy.pid} 1\n")
        (tmp_path / "machine.pid").write_text("1 1\n")
        (tmp_path / "gone.pid").write_text("")
        argv = ["bash", "--norc", "-c", pressure._PROBE, "machine", str(tmp_path)]
        with (tmp_path / "out").open("wb") as out, subprocess.Popen(argv, stdout=out, stderr=out) as probe:
            try:
                began = time.time()
                while (tmp_path / "out").read_text().count("\n") < 3:
                    assert time.time() - began < 60, (tmp_path / "out").read_text()
                    time.sleep(0.1)
            finally:
                probe.kill()
    finally:
        busy.kill()
        busy.wait()
    lines = (tmp_path / "out").read_text()
    assert f" aserver={busy.pid}:" in lines
    logs = {"n1": [tmp_path / "machine.log"]}
    (tmp_path / "machine.log").write_text(lines)
    found = read_machine(tmp_path / "none", logs, {"started_at": datetime.fromtimestamp(began, UTC).isoformat()})
    assert len(found) >= 1
    assert all(sample.ran is not None and 0 < sample.ran <= 1.1 for sample in found)
    assert all(sample.steal is not None and 0 <= sample.steal <= 1 for sample in found)


def test_the_own_machine(tmp_path: Path) -> None:
    async def some_lines() -> None:
        task = asyncio.create_task(watch_own_machine(tmp_path / "machine.log"))
        while not (tmp_path / "machine.log").exists() or (tmp_path / "machine.log").read_text().count("\n") < 2:
            await asyncio.sleep(0.05)
        task.cancel()

    began = datetime.now(UTC)
    asyncio.run(some_lines())
    found = read_machine(tmp_path / "machine.log", {}, {"started_at": began.isoformat()})
    assert [sample.node for sample in found] == [CONTROL] * len(found)
    assert found


def test_the_own_machine_is_late_at_the_end(tmp_path: Path) -> None:
    """A loop that stood still until the run ended."""

    async def stands_still() -> None:
        task = asyncio.create_task(watch_own_machine(tmp_path / "machine.log"))
        await asyncio.sleep(0.05)
        time.sleep(0.7)
        task.cancel()

    asyncio.run(stands_still())
    (line,) = (tmp_path / "machine.log").read_text().splitlines()
    assert int(line.split()[1]) > 300_000


@pytest.mark.parametrize("line", ["", "x", "1 2 3", "1 2 3 4 5 6 x", f"{at(2)} 0 - {'9' * 400} - 0 3"])
def test_lines_that_are_none(tmp_path: Path, line: str) -> None:
    good = f"{at(1)} 0 - - - 0 3\n"
    assert len(read(tmp_path, f"{good}{line}\n{at(3)} 0 - - - 0 4\n")) == 1


def test_busy_threads(tmp_path: Path) -> None:
    """Two lines give the shares of a thread that is in both; a thread with another id is another one."""
    node = (
        f"{at(0)} 0 - - - 0 1 7:1:1:1 broker/9=Reput:1000000000:0 broker/8=old:5:5\n"
        f"{at(2)} 0 - - - 0 2 7:2:2:2 broker/9=Reput:2000000000:900000000 broker/10=old:6:6\n"
    )
    (sample,) = read(tmp_path, "", machine_log=node)
    assert sample.threads == (BusyThread("broker", 9, "Reput", ran=0.5, runnable=0.95),)


def test_the_probe_names_a_thread_that_spins(tmp_path: Path) -> None:
    """The script itself, beside a process that never waits."""
    spinning = subprocess.Popen(["bash", "-c", "while :; do :; done"])
    (tmp_path / "broker.pid").write_text(f"{spinning.pid}\n")
    probe = subprocess.Popen(
        ["bash", "--norc", "-c", pressure._PROBE, "machine", str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert probe.stdout is not None
        words = [probe.stdout.readline().split() for _ in range(2)][-1]
    finally:
        probe.kill()
        spinning.kill()
        probe.wait()
        spinning.wait()
    assert any(word.startswith(f"broker/{spinning.pid}=bash:") for word in words)
