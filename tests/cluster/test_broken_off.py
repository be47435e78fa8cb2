# SPDX-License-Identifier: Apache-2.0
"""Runs that do not reach their end: Ctrl-C, `kill -9`, and a disk that fills up."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.real_runs import Run, going, harness, is_inject, left_of, nodes_of, until

from harness.run.lifecycle import _log_into
from results.op import Op
from results.sealed import read_sealed
from results.verdict import Verdict

pytestmark = pytest.mark.cluster

UNKNOWN, FAILURE = Verdict.UNKNOWN.exit_code, Verdict.HARNESS_FAILURE.exit_code
LONG = ("--time-limit", "120", "--interval", "110", "--duration", "100", "--seed", "13")
"""One fault, which nobody but the harness's own machinery ends in time."""


def asked(ops: list[Op]) -> list[tuple[str, str | None, object]]:
    """The requests of the clients in the main phase, in order."""
    invoked = (op for op in ops if op.type == "invoke" and op.is_client and "phase" not in op.extra)
    return [(op.f, op.key, op.value) for op in invoked]


def schedule(ops: list[Op]) -> list[object]:
    """The strikes that the nemesis received."""
    return [(op.f, op.value) for op in ops if op.type == "invoke" and not op.is_client and op.f != "restart-all"]


def assert_never_valid(run: Run) -> None:
    """`unknown`; or `invalid`, when the ops before the end prove that DLedger broke a promise."""
    found = {name: result["verdict"] for name, result in run.results().items()}
    assert found["well-formed"] == "valid"
    assert found["complete"] == "unknown"
    assert run.verdict["verdict"] == ("invalid" if "invalid" in found.values() else "unknown"), found


@pytest.mark.nightly
def test_ctrl_c_in_a_run_that_is_repeated(docker_run: Run, tmp_path: Path) -> None:
    """The plan of an earlier run again: the same operations, the same faults. It is broken off during the last."""
    with going("--plan", docker_run.dir.plan, store=tmp_path / "store") as started:
        started.strike(1)
        processes = nodes_of(started.environment())  # here: the second strike lasts for two seconds only
        started.strike(2)
        started.ctrl_c()
        ended = started.wait()

    first, second = asked(docker_run.ops), asked(ended.ops)
    # How many operations fit into a run hangs on how fast the servers answered in it: either run may have got further.
    common = min(len(first), len(second))
    assert common > 100
    assert second[:common] == first[:common]
    assert schedule(ended.ops) == schedule(docker_run.ops)[: len(schedule(ended.ops))]
    assert sum(is_inject(op) for op in ended.ops) == 2

    assert_never_valid(ended)
    assert ended.code == Verdict(ended.verdict["verdict"]).exit_code, ended.err
    assert "was interrupted before its end" in ended.results()["complete"]["reason"]
    assert "the history ends during hammer-time 2" in ended.results()["faults"]["reason"]
    assert "interrupted" in ended.out
    assert "Traceback" not in ended.err
    assert ended.dir.report.stat().st_size > 10_000
    assert read_sealed(ended.dir.history) == ended.ops
    assert sorted(path.name for path in ended.dir.nodes.glob("*/server.log")) == ["server.log"] * 5
    assert processes
    assert left_of(ended.environment, processes) == []


def test_ctrl_c_before_there_is_anything_to_judge(tmp_path: Path) -> None:
    with going("--cluster", "local", *LONG, store=tmp_path / "store") as started:
        facts = started.environment()
        processes = nodes_of(facts)
        started.ctrl_c()
        ended = started.wait()
    assert ended.code == 130
    assert ended.err.strip() == "harness: interrupted"
    assert processes
    assert left_of(facts, processes) == []


@pytest.mark.parametrize(
    ("cluster", "fault"),
    [("docker", "hammer-time"), pytest.param("local", "partition-halves", marks=pytest.mark.nightly)],
)
def test_kill_9_in_mid_fault_leaves_nothing_but_a_history(cluster: str, fault: str, tmp_path: Path) -> None:
    with going("--cluster", cluster, "--nemesis", fault, *LONG, store=tmp_path / "store") as started:
        started.strike(1)
        facts = started.environment()
        processes = nodes_of(facts)
        assert len(processes) > 5
        assert left_of(facts, processes) != []
        killed = started.kill()
    until(lambda: left_of(facts, processes) == [], "its nodes go")

    output = harness("clean", "--dry-run")
    assert output.returncode == 0
    assert facts["run_id"] not in output.stdout

    checked = harness("check", killed.dir.path)
    assert_never_valid(killed)
    assert checked.returncode == Verdict(killed.verdict["verdict"]).exit_code
    assert "ended early" in checked.stdout
    assert "Traceback" not in checked.stdout + checked.stderr
    assert killed.results()["well-formed"]["verdict"] == "valid"
    assert any(is_inject(op) for op in killed.ops)
    assert killed.dir.report.exists()


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[tuple[list[str], Path]]:
    """A file system of its own at `place`, in a mount namespace of its own, so that it goes however the test ends.

    Gives the wrapper of a command that shall see it, and the path by which this process reaches it.
    """
    place.mkdir()
    script = 'mount -t tmpfs -o size="$1"m none "$2" && echo mounted && exec sleep 600'
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(megabytes), str(place)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "mounted\n"
        yield ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--"], Path(f"/proc/{holder.pid}/root{place}")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def fill(disk: Path) -> Path:
    """Leave no byte free."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


def test_a_store_without_room_is_told_before_anything_starts(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 20) as (wrapper, _):
        output = harness("run", "--cluster", "local", "--store", tmp_path / "disk" / "store", wrapper=wrapper)
    assert output.returncode == FAILURE
    assert output.stdout == ""
    assert len(output.stderr.splitlines()) == 1
    assert "20.0 MiB free" in output.stderr
    assert "--store" in output.stderr


def test_the_log_of_a_run_is_quiet_about_a_full_disk(capfd: pytest.CaptureFixture[str]) -> None:
    with _log_into(Path("/dev/full")):
        logging.getLogger("harness").error("this finds no room")
    assert capfd.readouterr() == ("", "")


def test_a_disk_that_fills_up_during_the_run(tmp_path: Path) -> None:
    """One line, no cluster left, and what was journalled before can still be judged."""
    store = tmp_path / "disk" / "store"
    with small_disk(tmp_path / "disk", 130) as (wrapper, disk):
        options = ("--cluster", "docker", "--nemesis", "hammer-time", *LONG)
        with going(*options, store=store, seen=disk / "store", wrapper=wrapper) as started:
            started.strike(1)
            facts = started.environment()
            processes = nodes_of(facts)
            filler = fill(disk)
            ended = started.wait()
        assert ended.code == FAILURE
        *before, last = ended.err.splitlines()
        assert "journal.jsonl: the journal cannot be written: No space left on device (0 bytes free)" in last
        assert all("control.jsonl: No space left on device" in line for line in before), (
            "another file, reported as well"
        )
        assert left_of(facts, processes) == []

        folder = store / ended.dir.path.relative_to(disk / "store")
        # The verdict stands; that it could not be stored is said beside it.
        still_full = harness("check", folder, wrapper=wrapper)
        assert still_full.returncode == UNKNOWN, still_full.stdout + still_full.stderr
        assert "the verdict cannot be written: No space left on device" in still_full.stdout
        assert still_full.stderr == ""
        filler.unlink()
        checked = harness("check", folder, wrapper=wrapper)
        assert checked.returncode == UNKNOWN, checked.stdout + checked.stderr
        assert_never_valid(ended)
        assert ended.results()["well-formed"]["verdict"] == "valid"
