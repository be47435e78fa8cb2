# SPDX-License-Identifier: Apache-2.0
"""The senders of `log`, `queue`, `delay` and `transaction`: our own client, and foreign producers (`--client native`,
`--client grpc`).

Sends, recalls and ends of transactions use a foreign producer, and so do the pops of `queue --consume pop`. Our own
client does all other reads, so the verdict does not depend on the foreign client. A foreign producer chooses the queue
itself, so each queue is a separate topic (`topic_layout(..., apart=True)`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Literal, Protocol, runtime_checkable

from harness.api import ClientProtocol, RunContext
from infra.machines.api import InfraError
from infra.systems.rocketmq.clients.native import NativeProducer, native_library
from infra.systems.rocketmq.clients.packages import native_folder, proxy_folder
from infra.systems.rocketmq.clients.proxy import MessageType, ProxyHalf, ProxyListener
from infra.systems.rocketmq.clients.proxy_popping import Prolonged, ProxyPopper, Received, Subscription
from infra.systems.rocketmq.protocol.link import Answer
from infra.systems.rocketmq.protocol.sending import Sent
from infra.systems.rocketmq.servers import artifacts

PROXY_ROUTE_S: Final = 5.0
"""The time between two looks of a proxy at a route (RocketMQ's default: 20 s)."""

_ROUTES_REFRESHED_SINCE: Final = "5.2.0"
"""Older proxies have another name for that time (`topicRouteServiceCacheExpiredInSeconds`)."""


class Producer(Protocol):
    async def open(self) -> None: ...

    async def send(self, topic: str, body: bytes, *, deadline_s: float | None = None) -> Sent: ...

    async def close(self) -> None: ...


@runtime_checkable
class TypedProducer(Producer, Protocol):
    """A producer that sends delayed messages and transactions as well (`ProxyProducer`)."""

    @property
    def proxy(self) -> str: ...

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        kind: MessageType = "NORMAL",
        deliver_ms: int | None = None,
        deadline_s: float | None = None,
    ) -> Sent: ...

    async def send_half(
        self, topic: str, body: bytes, *, deadline_s: float | None = None
    ) -> tuple[Sent, ProxyHalf | None]: ...

    async def end_transaction(
        self, half: ProxyHalf, end: Literal["commit", "rollback"], *, deadline_s: float | None = None
    ) -> Answer: ...

    async def recall(self, topic: str, handle: str, *, deadline_s: float | None = None) -> Answer: ...


@runtime_checkable
class PoppingProducer(Producer, Protocol):
    """A producer that is a simple consumer as well (`ProxyPopper`)."""

    @property
    def proxy(self) -> str: ...

    async def receive(
        self,
        topic: str,
        subscription: Subscription,
        *,
        invisible_ms: int,
        most: int,
        wait_s: float = 0,
        deadline_s: float | None = None,
    ) -> Received: ...

    async def ack(
        self, topic: str, handle: str, subscription: Subscription, *, deadline_s: float | None = None
    ) -> Answer: ...

    async def change_invisible_time(
        self,
        topic: str,
        handle: str,
        invisible_ms: int,
        subscription: Subscription,
        *,
        deadline_s: float | None = None,
    ) -> Prolonged: ...


class Producers:
    """The producers of a run, one for each client.

    Their processes take a while to start. So they outlive the logical process that uses them, and end with the last
    user.
    """

    def __init__(self, make: Callable[[int], Producer]) -> None:
        self._make = make
        self._producers: dict[int, Producer] = {}
        self._users = 0

    async def start(self, threads: int) -> None:
        """Starts those of the first clients before the first send: a busy machine needs seconds for each."""
        for thread in range(threads):
            await self._at(thread).open()

    def join(self, thread: int) -> Producer:
        """The producer of a client. Each client that joined must leave."""
        self._users += 1
        return self._at(thread)

    def _at(self, thread: int) -> Producer:
        if thread not in self._producers:
            self._producers[thread] = self._make(thread)
        return self._producers[thread]

    async def leave(self) -> None:
        """Ends all processes with the last client that leaves."""
        self._users -= 1
        if self._users == 0:
            await asyncio.gather(*(producer.close() for producer in self._producers.values()))


class Foreign:
    """One logical process's access to its producer."""

    def __init__(self, producers: Producers, thread: int) -> None:
        self._producers, self._thread = producers, thread
        self._producer: Producer | None = None

    async def send(self, topic: str, body: bytes, deadline_s: float) -> Sent:
        """A send by the producer of this thread."""
        return await self._join().send(topic, body, deadline_s=deadline_s)

    @property
    def typed(self) -> TypedProducer:
        """The producer of this thread. Raises TypeError for one that sends only plain messages."""
        producer = self._join()
        if not isinstance(producer, TypedProducer):
            raise TypeError(f"{type(producer).__name__} sends neither delayed messages nor transactions")
        return producer

    @property
    def popping(self) -> PoppingProducer:
        """The producer of this thread. Raises TypeError for one that does not pop."""
        producer = self._join()
        if not isinstance(producer, PoppingProducer):
            raise TypeError(f"{type(producer).__name__} does not pop")
        return producer

    def _join(self) -> Producer:
        if self._producer is None:
            self._producer = self._producers.join(self._thread)
        return self._producer

    async def close(self) -> None:
        if self._producer is not None:
            self._producer = None
            await self._producers.leave()


class MessageClient(ClientProtocol):
    """A client of the workloads that send messages."""

    async def producers(self, context: RunContext, deadline_s: float) -> Producers | None:
        """The producers of a run; None: our own client sends. Raises InfraError if they are not available."""
        return None


class Remoting(MessageClient):
    """Our own client of the remoting protocol: exact deadlines, one attempt."""

    name = "remoting"
    summary = "the harness's client of the remoting protocol: one attempt, an exact deadline, the raw answer"


class Native(MessageClient):
    """librocketmq, the C++ client."""

    name = "native"
    summary = "librocketmq, the C++ client, through rocketmq-client-python; up to three attempts per send"
    permits: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("duplicated", "nonlinearizable"),
        "the native client makes up to three attempts per send, without reporting it",
    )

    async def producers(self, context: RunContext, deadline_s: float) -> Producers | None:
        packages = await asyncio.to_thread(native_folder)
        await native_library(packages)
        nameservers = context.deployment.record.endpoints("namesrv")
        return Producers(lambda thread: NativeProducer(packages, nameservers, deadline_s=deadline_s))


class Grpc(MessageClient):
    """gRPC, through RocketMQ's proxy."""

    name = "grpc"
    summary = "RocketMQ's gRPC protocol, through its proxy"
    kinds: ClassVar[Sequence[str]] = ("proxy",)

    async def producers(self, context: RunContext, deadline_s: float) -> Producers | None:
        packages, proxies = await _proxies(context)
        raft_log = context.deployment.record.traits.raft_log
        return Producers(
            lambda thread: ProxyPopper(packages, proxies, deadline_s=deadline_s, raft_log=raft_log, first=thread)
        )


def proxy_routes(version: str | None) -> Mapping[str, str]:
    """The setting with which a proxy of a version (None: the default one) looks up routes every PROXY_ROUTE_S."""
    old = artifacts.before(version or artifacts.DEFAULT_VERSION, _ROUTES_REFRESHED_SINCE)
    name = "ExpiredIn" if old else "Refresh"
    return {f"proxy.topicRouteServiceCache{name}Seconds": str(int(PROXY_ROUTE_S))}


async def proxy_listeners(context: RunContext, topics: Sequence[str]) -> list[ProxyListener]:
    """A producer of the topics at each proxy, which gets brokers' questions. Raises InfraError as `producers` does."""
    packages, proxies = await _proxies(context)
    listeners = [ProxyListener(packages, name, address, topics) for name, address in proxies.items()]
    await asyncio.gather(*(listener.open() for listener in listeners))
    return listeners


async def _proxies(context: RunContext) -> tuple[Path, dict[str, tuple[str, int]]]:
    """The packages of the gRPC client, and node -> host and port of its proxy. Raises InfraError without them."""
    packages = await asyncio.to_thread(proxy_folder)
    record = context.deployment.record
    proxies = {server.node: (server.host, server.ports["proxy"]) for server in record.having("proxy")}
    if not proxies:
        raise InfraError(f"no proxy runs in this cluster, and --client grpc needs one (topology {record.topology})")
    return packages, proxies
