# SPDX-License-Identifier: Apache-2.0
"""A server that ends at its start is started again until it listens, on the node and without the control program."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.machines.primitives.process import until_it_listens

_SERVER = """
import os, socket, subprocess, sys
starts, needed, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(starts, "a") as file:
    file.write("x")
if os.path.getsize(starts) >= needed and not os.path.exists(starts + ".up"):
    open(starts + ".up", "w").close()
    wait = "import socket, time; s = socket.create_server(('127.0.0.1', int(__import__('sys').argv[1]))); time.sleep(8)"
    subprocess.Popen([sys.executable, "-c", wait, str(port)], stdout=subprocess.DEVNULL)
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _eventually(true: object, within_s: float = 60) -> bool:
    assert callable(true)
    end = time.monotonic() + within_s
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(found)


@pytest.mark.parametrize("needed", [1, 3])
def test_it_is_started_until_it_listens_and_no_longer(tmp_path: Path, needed: int) -> None:
    starts, port = tmp_path / "starts", _free_port()
    argv = [sys.executable, "-c", _SERVER, str(starts), str(needed), str(port)]
    # The output has an end although the server may not run yet: a lease reads all of it.
    subprocess.run(until_it_listens(("127.0.0.1", port), argv, 0.5), check=True, capture_output=True, timeout=60)
    assert starts.read_text() == "x", "the first start comes at once"
    assert _eventually((tmp_path / "starts.up").exists)
    before = len(starts.read_text())
    assert before >= needed
    time.sleep(2)
    assert len(starts.read_text()) <= before + 1, "one that listens is left alone"


def test_it_gives_up(tmp_path: Path) -> None:
    """A proxy that can never start is reported as dead."""
    starts = tmp_path / "starts"
    argv = [sys.executable, "-c", _SERVER, str(starts), "99", "1"]
    subprocess.run(until_it_listens(("127.0.0.1", _free_port()), argv, 0.01), check=True, timeout=60)
    assert _eventually(lambda: len(starts.read_text()) == 16)
    time.sleep(0.5)
    assert len(starts.read_text()) == 16
