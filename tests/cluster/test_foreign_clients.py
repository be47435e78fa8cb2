# SPDX-License-Identifier: Apache-2.0
"""The native client and the proxy's, each with its real packages, against real servers of 5.5.0 on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cluster.loopback_servers import BROKER, DEADLINE_S, HOST, eventually, free_ports, start

from infra.systems.rocketmq.clients.native import NativeProducer, native_library
from infra.systems.rocketmq.clients.packages import native_folder, proxy_folder
from infra.systems.rocketmq.clients.proxy import ProxyProducer
from infra.systems.rocketmq.protocol.admin import BrokerAdmin, NameServer
from infra.systems.rocketmq.protocol.client import Broker, Message
from infra.systems.rocketmq.servers.artifacts import fetch

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class Servers:
    """The servers' ports, and the broker's process."""

    names: int
    broker: int
    proxy: int
    pid: int


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("foreign")
    jars = fetch("5.5.0")
    names, broker, proxy, remoting = (free_ports() for _ in range(4))
    address = f"{HOST}:{names}"
    processes = []
    try:
        processes.append(start("namesrv", folder / "names", jars, {"listenPort": names}))
        settings = {**BROKER, "brokerId": "0", "brokerRole": "ASYNC_MASTER", "namesrvAddr": address}
        processes.append(start("broker", folder / "broker", jars, {**settings, "listenPort": broker}))
        ports = {"grpcServerPort": proxy, "remotingListenPort": remoting}
        known = {"rocketMQClusterName": "harness", "proxyClusterName": "harness", "namesrvAddr": address}
        asyncio.run(_registered(names))
        processes.append(start("proxy", folder / "proxy", jars, {**known, **ports}))
        asyncio.run(_listens(proxy))
        yield Servers(names, broker, proxy, processes[1].pid)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


async def _registered(names: int) -> None:
    async with NameServer(HOST, names, deadline_s=DEADLINE_S) as server:
        await eventually(lambda: server.member_group("harness", "a"))


async def _listens(port: int) -> None:
    async def ask() -> bool:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.close()
            return True
        return False

    await eventually(ask)


def on(servers: Servers, topic: str, test: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    """With a topic of one queue, whose route is known."""

    async def play() -> None:
        broker = Broker(HOST, servers.broker, deadline_s=DEADLINE_S)
        async with (
            BrokerAdmin(HOST, servers.broker, deadline_s=DEADLINE_S) as admin,
            NameServer(HOST, servers.names, deadline_s=DEADLINE_S) as names,
        ):
            await admin.create_topic(topic, 1)
            await admin.create_group("readers")
            await eventually(lambda: names.route(topic))
        await test(broker)
        await broker.close()

    asyncio.run(play())


async def stored(broker: Broker, topic: str) -> list[Message]:
    return list((await broker.pull(topic, 0, 0, group="readers")).messages)


def test_native(servers: Servers) -> None:
    packages = native_folder()

    async def test(broker: Broker) -> None:
        path, missing = await native_library(packages)
        assert path.endswith(".so") or ".so." in path
        assert "SendMessageSync" not in missing
        producer = NativeProducer(packages, [(HOST, servers.names)], deadline_s=DEADLINE_S)
        sent = [await producer.send("native", body) for body in (b"1", b"2")]
        assert [(s.outcome.type, s.offset) for s in sent] == [("ok", 0), ("ok", 1)]
        assert [(m.offset, m.body) for m in await stored(broker, "native")] == [(0, b"1"), (1, b"2")]
        unknown = await producer.send("nobody", b"3")
        assert unknown.outcome.type == "info"
        os.kill(servers.pid, signal.SIGSTOP)
        try:
            frozen = await producer.send("native", b"4", deadline_s=1)
        finally:
            os.kill(servers.pid, signal.SIGCONT)
        assert (frozen.outcome.type, frozen.code) == ("info", None)
        await producer.close()

    on(servers, "native", test)


def test_proxy(servers: Servers) -> None:
    packages = proxy_folder()

    async def test(broker: Broker) -> None:
        producer = ProxyProducer(packages, {"n1": (HOST, servers.proxy)}, deadline_s=DEADLINE_S)

        async def first() -> bool:
            return (await producer.send("grpc", b"1")).outcome.type == "ok"

        await eventually(first)  # the proxy looks for routes by itself
        before = len(await stored(broker, "grpc"))
        sent = await producer.send("grpc", b"2")
        assert (sent.outcome.type, sent.offset, sent.code) == ("ok", before, 0)
        assert [m.body for m in await stored(broker, "grpc")][-1] == b"2"
        refused = await producer.send("no topic", b"3")
        assert refused.outcome.type == "fail"
        assert "40002 ILLEGAL_TOPIC" in refused.outcome.why
        os.kill(servers.pid, signal.SIGSTOP)
        try:
            frozen = await producer.send("grpc", b"4", deadline_s=1)
        finally:
            os.kill(servers.pid, signal.SIGCONT)
        assert frozen.outcome.type == "info"
        await producer.close()

    on(servers, "grpc", test)
