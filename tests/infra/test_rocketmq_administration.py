# SPDX-License-Identifier: Apache-2.0
"""Answers of servers of each kind to administrators, and the change that runs on the node."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_servers import ToyServer, free_port, hang_up, run, serving

from infra.machines.api import Completed, InfraError, ProcessId, SettingsError
from infra.systems.api import ServerSettings
from infra.systems.dledger.topology import DledgerTopology
from infra.systems.remoting.frame import Frame, encode
from infra.systems.rocketmq.protocol.codes import RELEASES
from infra.systems.rocketmq.servers.artifacts import VERSIONS
from infra.systems.rocketmq.topologies.administration import RocketmqAdmin
from infra.systems.rocketmq.topologies.controller import ControllerTopology


class Versioned(ToyServer):
    """It says a version in the header of its answers."""

    version = 0

    async def __call__(self, frame: Frame, writer: asyncio.StreamWriter) -> None:
        self.requests.append(frame)
        writer.write(encode(Frame(self.code, frame.opaque, 1, self.remark, {}, self.body, self.version)))


def admin(kind: str, port: int, file: str = "", cmdline: str = "") -> RocketmqAdmin:
    def output(argv: list[str], **_: Any) -> Completed:
        assert argv == ["cat", "/proc/7/cmdline"]
        return Completed(argv, 0, cmdline.replace(" ", "\0").encode(), b"", 0.0)

    node: Any = SimpleNamespace(
        name="n1", address="127.0.0.1", run=output, process=lambda pidfile: ProcessId(7, 1) if cmdline else None
    )
    return RocketmqAdmin(node, kind, port, file)


def test_every_version_has_its_number() -> None:
    assert sorted(RELEASES.values()) == sorted(VERSIONS)


@pytest.mark.parametrize("kind", ["namesrv", "broker"])
def test_the_version_is_in_every_answer(kind: str) -> None:
    async def test() -> None:
        server = Versioned(body=b"a=1\n")
        async with serving(server) as (_, port):
            for number, release in ((435, "5.1.1"), (513, "5.5.0"), (999, "number 999")):
                server.version = number
                assert await asyncio.to_thread(admin(kind, port).version, 5) == release
            assert await asyncio.to_thread(admin(kind, port).settings, 5) == {"a": "1"}
            assert await asyncio.to_thread(admin(kind, port).answers, 5)

    run(test)


@pytest.mark.parametrize("kind", ["controller", "proxy"])
def test_the_kernel_tells_what_others_were_started_with(kind: str) -> None:
    started = "java -Xmx1g -cp /opt/harness/user-lib/0a/*:/opt/harness/lib/5.1.1/* main"
    assert admin(kind, 1, cmdline=started).version(1) == "5.1.1"
    with pytest.raises(InfraError, match=f"n1: the {kind} does not run"):
        admin(kind, 1).version(1)
    with pytest.raises(InfraError, match=f"n1: the {kind} runs none of the published versions"):
        admin(kind, 1, cmdline="java -cp /opt/mine/* main").version(1)


def test_no_answer() -> None:
    async def test() -> None:
        _, port = await free_port()
        broker = admin("broker", port)
        assert not await asyncio.to_thread(broker.answers, 1)
        for ask, said in ((broker.version, "its version"), (broker.settings, "its settings")):
            with pytest.raises(InfraError, match=f"n1: the broker does not report {said}: .*refused"):
                await asyncio.to_thread(ask, 1)
        with pytest.raises(InfraError, match="n1: the proxy does not report its settings to anyone"):
            await asyncio.to_thread(admin("proxy", port).settings, 1)

    run(test)


def changed(argv: Any) -> subprocess.CompletedProcess[str]:
    """The command of a change, run as a node runs it."""
    assert argv[0] == "python3"
    return subprocess.run([sys.executable, *argv[1:]], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(("kind", "code"), [("namesrv", 318), ("broker", 25), ("controller", 1009)])
def test_a_change_is_asked_of_the_server(kind: str, code: int, tmp_path: Path) -> None:
    async def test() -> None:
        server = Versioned()
        async with serving(server) as (_, port):
            argv = admin(kind, port, str(tmp_path / "none")).change_command({"b": "x=y", "a": "1"})
            done = await asyncio.to_thread(changed, argv)
            assert (done.returncode, done.stderr) == (0, "")
            assert (server.last.code, server.last.body) == (code, b"a=1\nb=x\\u003dy\n")
            server.code, server.remark = 16, 'no "code":0 for you'
            done = await asyncio.to_thread(changed, argv)
            assert done.returncode == 1
            assert '"code":16' in done.stderr

    run(test)


def test_a_server_that_does_not_run_finds_the_change_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("a=1\nab=2\nc=3\n")

    async def test() -> None:
        _, port = await free_port()
        argv = admin("broker", port, str(file)).change_command({"a": "7", "new": "8"})
        for _ in range(2):
            assert (await asyncio.to_thread(changed, argv)).returncode == 0
            assert file.read_text() == "ab=2\nc=3\na=7\nnew=8\n"

    run(test)


def test_a_server_that_hangs_up_has_not_taken_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(hang_up) as (_, port):
            done = await asyncio.to_thread(changed, admin("broker", port, str(tmp_path)).change_command({"a": "7"}))
            assert done.returncode == 1
            assert f"127.0.0.1:{port} " in done.stderr

    run(test)


def test_versions_of_faults_are_checked_like_the_run_s_own() -> None:
    with pytest.raises(SettingsError, match=r"RocketMQ 5\.9\.9 is not pinned here"):
        ControllerTopology(ServerSettings(versions=["5.9.9"]))
    with pytest.raises(SettingsError, match=r"DLedger 5\.1\.1 is not pinned here"):
        DledgerTopology(ServerSettings(versions=["5.1.1"]))
