# SPDX-License-Identifier: Apache-2.0
"""A claim is held by one process, seen by all, and given back by its holder's death."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from infra.machines.api import InfraError
from infra.machines.backends.engine_claim import ROLE, TTL_S, _time, is_held, is_kept
from infra.machines.claims import Claim, holder, remove_unheld


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "claims" / "x.owner"
    assert holder(path) is None
    claim = Claim.take(path)
    assert holder(path) == f"process {os.getpid()}"
    with pytest.raises(InfraError, match=f"in use by process {os.getpid()}"):
        Claim.take(path)
    claim.release()
    claim.release()
    assert not path.exists()
    Claim.take(path).release()


def test_death_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / "x.owner"
    program = (
        "import sys, pathlib\nfrom infra.machines.claims import Claim\nclaim = Claim.take(pathlib.Path(sys.argv[1]))\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program + "print('held', flush=True)\ninput()", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    assert holder(path) == f"process {other.pid}"
    with pytest.raises(InfraError, match=f"in use by process {other.pid}"):
        Claim.take(path)
    other.kill()
    other.communicate()
    assert holder(path) is None
    Claim.take(path).release()


def test_a_forked_child_does_not_hold_it(tmp_path: Path) -> None:
    claim = Claim.take(tmp_path / "x.owner")
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(here, b"1")
        os.execvp("sleep", ["sleep", "60"])
    try:
        assert os.read(there, 1) == b"1"
        assert holder(tmp_path / "x.owner") == f"process {os.getpid()}"
        claim._close()
        assert holder(tmp_path / "x.owner") is None
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_it_can_be_left_to_another_process(tmp_path: Path) -> None:
    path = tmp_path / "x.keeper"
    lock = Claim.take(path).leave()
    keeper = subprocess.Popen(["sleep", "60"], pass_fds=(lock,))
    os.close(lock)
    try:
        assert holder(path) is not None
    finally:
        keeper.kill()
        keeper.wait()
    assert holder(path) is None


def test_only_the_file_of_a_claim_that_nobody_has_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.owner"
    remove_unheld(path)
    claim = Claim.take(path)
    remove_unheld(path)
    assert holder(path) is not None
    claim._close()
    remove_unheld(path)
    assert not path.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("data")
    (tmp_path / "x.owner").symlink_to(target)
    with pytest.raises(OSError, match=r"x\.owner"):
        Claim.take(tmp_path / "x.owner")
    assert target.read_text() == "data"


NOW = datetime(2026, 11, 22, 7, 30, tzinfo=UTC)


def container(role: str | None, status: str, age_s: float = 0) -> SimpleNamespace:
    created = (NOW - timedelta(seconds=age_s)).isoformat().replace("+00:00", "Z")
    return SimpleNamespace(labels={ROLE: role} if role else {}, status=status, attrs={"Created": created})


@pytest.mark.parametrize(
    ("containers", "held", "kept"),
    [
        ([], False, False),
        ([container(None, "running")], False, False),
        ([container(None, "running"), container("claim", "running")], True, False),
        ([container("claim", "exited")], False, False),
        ([container("claim", "created", 1)], True, False),
        ([container("claim", "created", TTL_S + 1)], False, False),
        ([container("kept", "created"), container("claim", "exited")], False, True),
        ([container("kept", "created"), container("claim", "running")], True, True),
    ],
)
def test_what_the_engine_tells_of_a_claim(containers: list[SimpleNamespace], held: bool, kept: bool) -> None:
    assert is_held(containers, NOW) is held
    assert is_kept(containers) is kept


@pytest.mark.parametrize(
    "text", ["2026-11-22T07:30:00Z", "2026-11-22T07:30:00.000000000Z", "2026-11-22T08:30:00.0+01:00"]
)
def test_the_engines_times(text: str) -> None:
    assert _time(text) == NOW
