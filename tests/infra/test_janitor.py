# SPDX-License-Identifier: Apache-2.0
"""The janitor acts on its owner's death, on nothing else, and until all is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.machines.api import InfraError
from infra.machines.janitor import Janitor, await_dismissal, sweep_until_clean
from infra.machines.ownership import Owner, current, slug


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed, and stands for a control program."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def owner_of(process: subprocess.Popen[bytes]) -> Owner:
    owner = Owner.of(process.pid)
    assert owner is not None
    return owner


def test_a_farewell_dismisses() -> None:
    read, write = os.pipe()
    os.write(write, b"bye\n")
    os.close(write)
    assert await_dismissal(current(), read)
    os.close(read)


def test_the_end_of_the_pipe_does_not() -> None:
    read, write = os.pipe()
    os.write(write, b"by")
    os.close(write)
    assert not await_dismissal(current(), read)
    os.close(read)


def test_death_is_seen_although_somebody_else_holds_the_pipe(child: subprocess.Popen[bytes]) -> None:
    read, write = os.pipe()
    owner = owner_of(child)
    child.kill()
    assert not await_dismissal(owner, read)
    os.close(read)
    os.close(write)


def test_a_farewell_counts_after_death_too(child: subprocess.Popen[bytes]) -> None:
    read, write = os.pipe()
    owner = owner_of(child)
    child.kill()
    child.wait()
    os.write(write, b"bye\n")
    assert await_dismissal(owner, read)
    os.close(read)
    os.close(write)


class Finds:
    """A backend whose sweeps find so many things, or fail."""

    def __init__(self, *finds: int | InfraError) -> None:
        self.finds = list(finds)

    def sweep(self, run_id: str) -> int:
        assert run_id == "run"
        found = self.finds.pop(0)
        if isinstance(found, InfraError):
            raise found
        return found


def test_it_looks_again_for_what_came_late() -> None:
    backend = Finds(5, 0, 1, InfraError("busy"), 0, 0, 99)
    assert sweep_until_clean(backend, "run", pause_s=0) == 7
    assert backend.finds == [99]


def test_what_cannot_be_removed_is_told() -> None:
    with pytest.raises(InfraError, match="device busy"):
        sweep_until_clean(Finds(*[InfraError("device busy")] * 3), "run", pause_s=0, rounds=3)


def state_of(run_id: str, cache: Path) -> Path:
    return cache / "local" / slug(run_id)


def test_kill_9_of_the_control_program_is_cleaned_up(tmp_path: Path) -> None:
    """The real process, deaf to polite signals, on a folder as the local backend leaves it."""
    program = """
import json, os, sys
from pathlib import Path
from infra.machines.janitor import Janitor
from infra.machines.ownership import current
state = Path(sys.argv[1])
state.mkdir(parents=True)
(state / "owner.json").write_text(json.dumps({"run_id": "killed", "owner": str(current())}))
janitor = Janitor.start("local", "killed")
print(janitor.pid, flush=True)
input()
"""
    state = state_of("killed", tmp_path)
    env = {**os.environ, "HARNESS_CACHE": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    control = subprocess.Popen(
        [sys.executable, "-c", program, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    assert control.stdout is not None
    janitor = Owner.of(int(control.stdout.readline()))
    assert janitor is not None
    wait_until(lambda: ignored(janitor.pid) >= {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(janitor.pid, sig)
    assert state.exists()
    control.kill()
    control.communicate()
    wait_until(lambda: not state.exists() and Owner.of(janitor.pid) != janitor)
    assert "run killed (local): its control program died; 1 removed" in (tmp_path / "janitor.log").read_text()


def test_a_dismissed_janitor_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    state = state_of("kept", tmp_path)
    state.mkdir(parents=True)
    (state / "owner.json").write_text(json.dumps({"run_id": "kept", "owner": str(current())}))
    janitor = Janitor.start("local", "kept")
    janitor.dismiss()
    janitor.dismiss()
    assert Owner.of(janitor.pid) is None
    assert state.exists()
    assert (tmp_path / "janitor.log").read_text() == ""


def test_an_unknown_backend_has_no_janitor() -> None:
    with pytest.raises(ValueError, match="there is no janitor for 'ssh'"):
        Janitor.start("ssh", "run")


def ignored(pid: int) -> set[int]:
    """The signals a process ignores (proc(5), SigIgn)."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def wait_until(done: Callable[[], bool], timeout_s: float = 60) -> None:
    until = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < until, "it did not come about in a minute"
        time.sleep(0.02)
