# SPDX-License-Identifier: Apache-2.0
"""The engine: one clear line where none answers, and only our own is ever stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from infra.machines import engine
from infra.machines.api import InfraError
from infra.machines.engine import engine_answers, running_engine, start_engine, stop_engine
from infra.machines.ownership import Owner, current


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and an engine that is not there."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")


def note(owner: Owner) -> None:
    engine._state().write_text(json.dumps({"engine": str(owner)}))


def test_no_engine_is_told_with_a_way_out(tmp_path: Path) -> None:
    answer = engine_answers()
    assert not answer.ok
    assert answer.reason == f"no Docker engine answers at unix://{tmp_path}/docker.sock: there is no such socket"
    assert answer.remedy


def test_a_socket_nobody_listens_on(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "docker.sock"))
    assert engine_answers().reason.endswith("connection refused")


@pytest.mark.parametrize("host", ["ssh://x@127.0.0.1:1", "nonsense", "tcp://", "tcp://127.0.0.1:1", "npipe://x"])
def test_an_address_that_is_none(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    answer = engine_answers()
    assert not answer.ok
    assert answer.reason.startswith(f"no Docker engine answers at {host}: ")
    assert "\n" not in answer.reason


class SlowEngine(BaseHTTPRequestHandler):
    """An engine that is there and, when it is asked for its version again, too busy to answer."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if "/version" in self.path and len(self.asked) > 2:
            time.sleep(1)
            return
        body = b"OK" if self.path.endswith("/_ping") else json.dumps({"Version": "1", "ApiVersion": "1.41"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """In silence."""


def test_an_engine_that_is_too_busy_is_told_and_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.2)
    with HTTPServer(("127.0.0.1", 0), SlowEngine) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        answer = engine_answers()
        server.shutdown()
    assert not answer.ok
    assert answer.reason.endswith("does not report its version: no answer in time")


def test_somebody_elses_engine_is_not_replaced() -> None:
    with pytest.raises(InfraError, match="DOCKER_HOST names that engine, so none is started here"):
        start_engine(lambda _: None)


def test_without_dockerd_or_root_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SOCKET", os.environ["DOCKER_HOST"])
    monkeypatch.setattr("infra.machines.engine.os.geteuid", lambda: 1000)
    with pytest.raises(InfraError, match="needs root"):
        start_engine(lambda _: None)
    monkeypatch.setattr("infra.machines.engine.os.geteuid", lambda: 0)
    monkeypatch.setattr("infra.machines.engine.shutil.which", lambda *_, **__: None)
    with pytest.raises(InfraError, match=r"apt-get install docker\.io"):
        start_engine(lambda _: None)


def test_an_engine_that_ends_at_once_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dockerd = tmp_path / "dockerd"
    dockerd.write_text("#!/bin/sh\necho starting\necho 'failed to start daemon: no space' >&2\nexit 1\n")
    dockerd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(engine, "_SOCKET", os.environ["DOCKER_HOST"])
    monkeypatch.setattr("infra.machines.engine.os.geteuid", lambda: 0)
    with pytest.raises(InfraError, match="dockerd ended with 1: failed to start daemon: no space"):
        start_engine(lambda _: None)
    assert running_engine() is None


def test_stop_ends_ours() -> None:
    ours = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner.of(ours.pid)
    assert owner is not None
    note(owner)
    assert running_engine() == owner
    assert stop_engine()
    ours.communicate()
    assert ours.returncode == -15
    assert not stop_engine()


def test_stop_spares_a_process_that_only_has_its_number() -> None:
    note(replace(current(), started=1))
    assert not stop_engine()
    assert running_engine() is None


def test_the_command_says_that_none_answers() -> None:
    done = CliRunner().invoke(engine.main, ["status"])
    assert done.exit_code == 1
    assert "no Docker engine answers" in done.output


class UnixServer(HTTPServer):
    """A server at a Unix socket."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)


class QuietEngine(SlowEngine):
    """An engine at a socket, which answers the one who is not known by an address."""

    def do_GET(self) -> None:
        body = b"OK" if self.path.endswith("/_ping") else json.dumps({"Version": "27.1"}).encode()
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + body)


def test_an_engine_at_a_socket_answers_without_the_sdk(tmp_path: Path) -> None:
    """`harness list` must not load Docker's SDK to say that an engine is there."""
    with UnixServer(str(tmp_path / "docker.sock"), QuietEngine) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        program = "import sys, infra.machines.engine as e; print(e.engine_answers().reason, 'docker' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        server.shutdown()
    assert done.stdout == f"Docker engine 27.1 answers at unix://{tmp_path}/docker.sock False\n"
