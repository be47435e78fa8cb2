# SPDX-License-Identifier: Apache-2.0
"""Nodes on another way than SSH: commands, files, daemons and leases on processes of this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.machines.api import CommandFailed, InfraError, NodeUnreachable
from infra.machines.lease import GuardedLease
from infra.machines.node import RemoteNode
from infra.machines.remote.process import ProcessRemote

ROOT = Path(__file__).parents[2]


@pytest.fixture
def node() -> RemoteNode:
    return RemoteNode("n1", "127.0.0.1", ProcessRemote("n1"))


def test_words_pass_unchanged(node: RemoteNode) -> None:
    words = ["a b", "$HOME", "'", '"', "é", "\n", ""]
    assert node.run(["printf", "%s\\0", *words]).stdout.decode().split("\0")[:-1] == words


def test_codes_streams_and_stdin(node: RemoteNode) -> None:
    done = node.run(["sh", "-c", "cat; echo wrong >&2; exit 3"], stdin=b"x" * 300_000, check=False)
    assert (done.code, len(done.stdout), done.stderr) == (3, 300_000, b"wrong\n")
    with pytest.raises(CommandFailed, match="n1: 'false' ended with 1"):
        node.run(["false"])
    assert node.run(["true"], stdin=b"x" * 300_000).code == 0, "a command may leave its stdin unread"
    with pytest.raises(CommandFailed, match="no-such-program"):
        node.run(["no-such-program"])


def test_a_deadline_ends_the_command(node: RemoteNode) -> None:
    with pytest.raises(NodeUnreachable, match=r"did not end within 0\.2 s and was ended"):
        node.run(["sleep", "60"], timeout_s=0.2)


def test_files_and_daemons(node: RemoteNode, tmp_path: Path) -> None:
    node.write(f"{tmp_path}/d/f", b"\0x", mode=0o600)
    assert node.read(f"{tmp_path}/d/f") == b"\0x"
    assert node.fetch(f"{tmp_path}/d", tmp_path / "copy") == [tmp_path / "copy" / "f"]
    started = node.spawn(["sleep", "60"], env={}, log=f"{tmp_path}/log", pidfile=f"{tmp_path}/pid")
    assert node.process(f"{tmp_path}/pid") == started
    node.run(["kill", str(started.pid)])


def test_a_lease_holds_heals_and_expires(node: RemoteNode, tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    lease = node.lease([["touch", str(fault)]], [["rm", "-f", str(fault)]], ttl_s=60)
    assert isinstance(lease, GuardedLease)
    assert fault.exists()
    lease.heal()
    assert (fault.exists(), lease.ended_by) == (False, "healed")
    short = node.lease([["touch", str(fault)]], [["rm", "-f", str(fault)]], ttl_s=0.3)
    _until(lambda: not fault.exists())
    short.heal()
    with pytest.raises(InfraError, match="injecting with 'false' failed"):
        node.lease([["touch", str(fault)], ["false"]], [["rm", "-f", str(fault)]], ttl_s=60)
    assert not fault.exists()


_HOLDER = """
import sys, time
from infra.machines.node import RemoteNode
from infra.machines.remote.process import ProcessRemote
fault = sys.argv[1]
lease = RemoteNode("n1", "127.0.0.1", ProcessRemote("n1")).lease([["touch", fault]], [["rm", "-f", fault]], ttl_s=300)
print("held", flush=True)
time.sleep(300)
"""


def test_a_lease_ends_with_the_control_program(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    control = subprocess.Popen([sys.executable, "-c", _HOLDER, str(fault)], stdout=subprocess.PIPE, cwd=ROOT)
    assert control.stdout is not None
    assert control.stdout.readline() == b"held\n"
    assert fault.exists()
    control.kill()
    control.communicate()
    _until(lambda: not fault.exists())


def _until(true: object) -> None:
    deadline = time.monotonic() + 20
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)
