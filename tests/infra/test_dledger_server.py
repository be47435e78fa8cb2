# SPDX-License-Identifier: Apache-2.0
"""The register server for real: three JVMs on loopback, asked over the wire."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from infra.systems.dledger import server as dledger
from infra.systems.dledger.client import Answer, NodeStatus, RegisterClient, ask_status
from infra.systems.dledger.topology import DEFAULTS
from infra.systems.maven import compile_jar, fetch_jars
from infra.systems.remoting.connection import RemotingError, connect

T = TypeVar("T")

pytestmark = pytest.mark.cluster

DEADLINE = 8.0
PATIENCE = 60.0
"""Seconds until something that must come is given up: far more than it takes."""

ADD_OPENS = ("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED")


class Group:
    """Three register servers of one Raft group on loopback."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.endpoints = {f"n{i}": ("127.0.0.1", port) for i, port in enumerate(free_ports(3), 1)}
        self.settings = {name: default.value for name, default in DEFAULTS.items()} | settings
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        jars = fetch_jars(dledger.POM, dledger.LOCK)
        self.class_path = f"{compile_jar(dledger.SOURCES, jars, 'register-server')}/*:{jars}/*"

    def start(self, node: str) -> None:
        home = self.folder / node
        home.mkdir(exist_ok=True)
        own = {
            "group": "harness",
            "selfId": node,
            "peers": ";".join(f"{n}-{host}:{port}" for n, (host, port) in self.endpoints.items()),
            "storeBaseDir": str(home / "data"),
        }
        settings = home / "server.properties"
        settings.write_text("".join(f"{k}={v}\n" for k, v in (self.settings | own).items()))
        with (home / "server.log").open("ab") as log:
            self.running[node] = subprocess.Popen(
                [*self.java(), str(settings), str(home / "effective.properties")], stdout=log, stderr=log
            )

    def java(self) -> list[str]:
        flags = ["-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *ADD_OPENS]
        return ["java", *flags, "-cp", self.class_path, dledger.MAIN_CLASS]

    def kill(self, node: str) -> None:
        process = self.running.pop(node)
        process.kill()
        process.wait()

    async def freeze(self, nodes: Iterable[str]) -> None:
        """SIGSTOP, until every thread is seen stopped: the signal is not in effect yet when `kill` returns, and a
        follower's other threads may acknowledge an entry meanwhile.
        """
        for node in nodes:
            os.kill(self.running[node].pid, signal.SIGSTOP)

        async def stopped() -> bool | None:
            return {state for node in nodes for state in self.thread_states(node)} == {"T"} or None

        await self.eventually(stopped)

    def thaw(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            os.kill(self.running[node].pid, signal.SIGCONT)

    def thread_states(self, node: str) -> list[str]:
        """The states of a server's threads (proc(5), field 3 of `stat`)."""
        stats = Path(f"/proc/{self.running[node].pid}/task").glob("*/stat")
        return [stat.read_text().rsplit(") ", 1)[1][0] for stat in stats]

    def log(self, node: str) -> str:
        return (self.folder / node / "server.log").read_text(errors="replace")

    def client(self, pinned: str | None = None) -> RegisterClient:
        return RegisterClient(self.endpoints, pinned=pinned, deadline_s=DEADLINE)

    async def status(self, node: str) -> NodeStatus:
        return await ask_status(node, self.endpoints[node], DEADLINE)

    async def leader(self) -> str:
        """The node that leads and serves: it has just answered a read through the log."""

        async def read() -> Answer | None:
            client = self.client()
            try:
                answer = await client.read("__ready__")
            finally:
                await client.close()
            return answer if answer.outcome.type == "ok" else None

        node = (await self.eventually(read)).node
        assert node is not None
        return node

    async def together(self) -> str:
        """The leader, once all nodes are up and take it for theirs."""
        leader = await self.leader()

        async def agreed() -> bool | None:
            return {(await self.status(node)).leader for node in self.endpoints} == {leader} or None

        await self.eventually(agreed)
        return leader

    async def eventually(self, look: Callable[[], Coroutine[Any, Any, T | None]]) -> T:
        """The first result that is not None."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if (found := await look()) is not None:
                    return found
            except (RemotingError, OSError):
                pass
            await asyncio.sleep(0.2)
        logs = "\n".join(f"{n}: {self.log(n)[-2000:]}" for n in self.endpoints)
        raise AssertionError(f"it never came; the logs end:\n{logs}")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(**settings: str) -> Group:
        group = Group(tmp_path, **settings)
        made.append(group)
        for node in group.endpoints:
            group.start(node)
        return group

    yield make
    for group in made:
        for node in list(group.running):
            group.kill(node)


async def check_operations(group: Group) -> None:
    leader = await group.together()
    client = group.client()
    assert (await client.read("k")).value is None
    write = await client.write("k", -(1 << 63))
    assert (write.outcome.type, write.applied, write.node, write.code) == ("ok", True, leader, 200)
    read = await client.read("k")
    assert (read.value, read.index, read.term) == (-(1 << 63), write.index, write.term)
    refused = await client.cas("k", 1, 2)
    assert (refused.outcome.type, refused.applied, refused.value) == ("ok", False, -(1 << 63))
    assert (await client.cas("k", None, 2)).applied is False
    assert (await client.cas("k", -(1 << 63), (1 << 63) - 1)).applied is True
    assert (await client.cas("ключ \n", None, 0)).applied is True
    assert (await client.cas("ключ \n", None, 1)).applied is False
    assert (await client.read("ключ \n")).value == 0
    assert (await client.read("k")).value == (1 << 63) - 1
    await client.close()
    for node in group.endpoints.keys() - {leader}:
        follower = group.client(pinned=node)
        for answer in (await follower.write("k", 3), await follower.cas("k", 1, 3), await follower.read("k")):
            assert (answer.outcome.type, answer.code) == ("fail", 404)
        await follower.close()
    for node in group.endpoints:
        replica = group.client(pinned=node)

        async def caught_up(replica: RegisterClient = replica) -> bool | None:
            return (await replica.read("k", mode="unsafe")).value == (1 << 63) - 1 or None

        assert await group.eventually(caught_up)
        await replica.close()
        output = await group.status(node)
        assert (output.role == "leader", output.leader, output.before_begin, output.snapshots) == (
            node == leader,
            leader,
            -1,
            None,
        )
        assert output.applied <= output.committed <= output.end


async def check_wire(group: Group) -> None:
    """Requests as RIP-59's own client makes them (int keys, no read mode), and such that make no sense."""
    leader = await group.leader()
    connection = await connect(*group.endpoints[leader], DEADLINE)

    async def ask(type_code: str, body: bytes) -> bytes:
        frame = await connection.call(59999, body, DEADLINE, ext={"requestTypeCode": type_code})
        assert frame.code == 200, frame
        return frame.body

    to = b'"group":"harness","remoteId":"%s"' % leader.encode()
    assert b'"code":200' in await ask("0", b'{%s,"key":7,"value":1}' % to)
    assert b'"value":1' in await ask("1", b'{%s,"key":7}' % to)
    assert b'"value":1' in await ask("1", b'{%s,"key":"7"}' % to)
    assert b'"code":400' in await ask("0", b'{"group":"other","remoteId":"%s","key":7,"value":1}' % leader.encode())
    assert b'"code":401' in await ask("0", b'{"group":"harness","remoteId":"n9","key":7,"value":1}')
    assert b'"code":411' in await ask("0", b'{%s,"key":7}' % to)
    assert b'"code":411' in await ask("2", b'{%s,"value":7}' % to)
    assert b'"code":-1' in await ask("1", b'{%s,"key":7,"readMode":"LEASE_READ"}' % to)
    connection.close()


async def check_lost_quorum(group: Group) -> None:
    """502 means appended: whether the write takes effect is open, and what was acknowledged before it stays."""
    leader = await group.together()
    followers = group.endpoints.keys() - {leader}
    client = group.client(pinned=leader)
    assert (await client.write("q", 1)).outcome.type == "ok"
    await group.freeze(followers)
    try:
        unknown = await client.write("q", 2)
    finally:
        group.thaw(followers)
    await client.close()
    assert (unknown.outcome.type, unknown.code) == ("info", 502)
    await group.leader()
    reader = group.client()
    assert (await reader.read("q")).value in (1, 2)
    await reader.close()


async def check_leader_lost(group: Group) -> None:
    """A killed leader is replaced, nothing acknowledged is gone, and it comes back as a follower that catches up."""
    old = await group.leader()
    client = group.client()
    for i in range(50):
        assert (await client.write(f"l{i}", i)).outcome.type == "ok"
    await client.close()
    group.kill(old)
    new = await group.leader()
    assert new != old
    client = group.client()
    for i in range(50):
        assert (await client.read(f"l{i}")).value == i
    await client.close()
    group.start(old)
    goal = (await group.status(new)).committed

    async def caught_up() -> NodeStatus | None:
        output = await group.status(old)
        return output if output.applied >= goal else None

    assert (await group.eventually(caught_up)).role == "follower"
    replica = group.client(pinned=old)
    assert (await replica.read("l49", mode="unsafe")).value == 49
    await replica.close()


def test_registers(make: Callable[..., Group]) -> None:
    """One start of the group for all of these: starting is what takes the time."""
    group = make()

    async def test() -> None:
        await check_operations(group)
        await check_wire(group)
        await check_lost_quorum(group)
        await check_leader_lost(group)

    asyncio.run(test())
    assert "heartBeatTimeIntervalMs=500" in (group.folder / "n1" / "effective.properties").read_text()
    assert "maxHeartBeatLeak=3" in (group.folder / "n1" / "effective.properties").read_text()


def test_snapshots_are_taken_and_loaded_again(make: Callable[..., Group]) -> None:
    group = make(enableSnapshot="true", snapshotThreshold="50")

    async def test() -> None:
        await group.together()
        client = group.client()
        for i in range(120):
            assert (await client.write(f"s{i % 60}", i)).outcome.type == "ok"
        await client.close()

        async def cut() -> NodeStatus | None:
            output = await group.status("n1")
            return output if output.snapshots and output.before_begin >= 49 else None

        assert (await group.eventually(cut)).snapshot_index is not None
        group.kill("n1")
        group.start("n1")

        async def loaded() -> NodeStatus | None:
            output = await group.status("n1")
            return output if output.registers >= 50 else None

        await group.eventually(loaded)
        replica = group.client(pinned="n1")
        assert (await replica.read("s0", mode="unsafe")).value in (0, 60)
        await replica.close()

    asyncio.run(test())
    assert "[SNAPSHOT] loaded 60 registers up to index" in group.log("n1")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("heartbeatIntervalMs=1", "DLedger has no setting 'heartbeatIntervalMs'; near it: heartBeatTimeIntervalMs"),
        ("snapshotThreshold=many", "setting 'snapshotThreshold' is 'many', not a value of type int"),
        ("enableSnapshot=yes", "setting 'enableSnapshot' is 'yes', not true or false"),
        ("snapshotEntryResetStrategy=NOW", "is 'NOW', not one of RESET_ALL_SYNC"),
    ],
)
def test_a_wrong_setting_ends_in_one_clear_line(tmp_path: Path, line: str, said: str) -> None:
    group = Group(tmp_path)
    settings = tmp_path / "server.properties"
    settings.write_text(line + "\n")
    done = subprocess.run([*group.java(), "--check", str(settings)], capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
