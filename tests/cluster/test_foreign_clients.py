# SPDX-License-Identifier: Apache-2.0
"""The native client and the proxy's, each with its real packages, against real servers of 5.5.0 on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cluster.loopback_servers import BROKER, DEADLINE_S, HOST, eventually, free_ports, start

from infra.systems.rocketmq.clients.native import NativeProducer, native_library
from infra.systems.rocketmq.clients.packages import native_folder, proxy_folder
from infra.systems.rocketmq.clients.proxy import ProxyError, ProxyListener, ProxyProducer, ProxyQuestion
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
        ports = {"grpcServerPort": proxy, "remotingListenPort": remoting, "transactionHeartbeatPeriodSecond": 1}
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


def on(
    servers: Servers, topic: str, test: Callable[[Broker], Coroutine[Any, Any, None]], message_type: str | None = None
) -> None:
    """With a topic of one queue, whose route is known."""

    async def play() -> None:
        broker = Broker(HOST, servers.broker, deadline_s=DEADLINE_S)
        async with (
            BrokerAdmin(HOST, servers.broker, deadline_s=DEADLINE_S) as admin,
            NameServer(HOST, servers.names, deadline_s=DEADLINE_S) as names,
        ):
            await admin.create_topic(topic, 1, message_type=message_type)
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


def test_proxy_delays(servers: Servers) -> None:
    packages = proxy_folder()

    async def test(broker: Broker) -> None:
        producer = ProxyProducer(packages, {"n1": (HOST, servers.proxy)}, deadline_s=DEADLINE_S)
        now = time.time_ns() // 1_000_000

        async def first() -> bool:
            sent = await producer.send("grpc-delay", b"1", kind="DELAY", deliver_ms=now + 2_000)
            return sent.outcome.type == "ok" and sent.recall is not None

        await eventually(first)  # the proxy looks for routes by itself
        late = await producer.send("grpc-delay", b"2", kind="DELAY", deliver_ms=now + 3_600_000)
        recalled = await producer.recall("grpc-delay", late.recall or "")
        assert (recalled.outcome.type, recalled.code) == ("ok", 20000)
        broken = await producer.recall("grpc-delay", "no handle")
        assert broken.outcome.type == "info"
        plain = await producer.send("grpc-delay", b"3")
        assert plain.outcome.type == "fail"
        assert "40014" in plain.outcome.why
        await eventually(lambda: stored(broker, "grpc-delay"))
        assert {m.body for m in await stored(broker, "grpc-delay")} == {b"1"}
        await producer.close()

    on(servers, "grpc-delay", test, "DELAY")


def test_proxy_transactions(servers: Servers) -> None:
    packages, topic = proxy_folder(), "grpc-transaction"

    async def test(broker: Broker) -> None:
        producer = ProxyProducer(packages, {"n1": (HOST, servers.proxy)}, deadline_s=DEADLINE_S)
        listener = ProxyListener(packages, "n1", (HOST, servers.proxy), [topic])
        await listener.open()
        questions: list[ProxyQuestion] = []

        async def listening() -> None:
            while True:
                with contextlib.suppress(ProxyError):
                    questions.extend(await listener.listen(0.2))

        task = asyncio.create_task(listening())

        async def half(body: bytes) -> Any:
            sent, found = await producer.send_half(topic, body)
            assert sent.outcome.type in ("ok", "fail")
            return found

        committed = await eventually(lambda: half(b"1"))  # the proxy looks for routes by itself
        assert (await producer.end_transaction(committed, "commit")).code == 20000
        again = await producer.end_transaction(committed, "commit")
        assert (again.outcome.type, again.code) == ("fail", 50001)
        assert (await producer.end_transaction(await half(b"2"), "rollback")).outcome.type == "info"
        left = await half(b"3")

        async def asked() -> ProxyQuestion | None:
            return next((q for q in questions if q.half.transaction_id == left.transaction_id), None)

        question = await eventually(asked)
        assert (question.body, question.half.topic, question.half.message_id) == (b"3", topic, left.message_id)
        assert (await producer.end_transaction(question.half, "commit")).outcome.type == "info"

        async def both() -> bool:
            return len(await stored(broker, topic)) >= 2

        await eventually(both)
        assert [m.body for m in await stored(broker, topic)] == [b"1", b"3"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await listener.close()
        await producer.close()

    on(servers, topic, test, "TRANSACTION")
