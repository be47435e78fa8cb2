# SPDX-License-Identifier: Apache-2.0
"""The destinations of a run's messages: its topic and reader group, created on every broker, and the queues as keys.

A key is `topic:broker group:queue`, such as `log-3f2a:a:0`. A topic of several broker groups has queues in each group.
For clients that choose the queue themselves, each queue is a separate topic: `log-3f2a-a1:a:0`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from harness.api import RunContext
from infra.machines.api import InfraError
from infra.systems.api import Server
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin, NameServer
from infra.systems.rocketmq.topologies.layout import GROUP_OF_PROXIES
from results.op import Op

SETUP_LIMIT_S: Final = 60.0
"""The longest time until brokers and name servers know a new topic: they serve already, so this is generous."""

_ASK_S: Final = 5.0
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of one broker group."""

    topic: str
    group: str
    number: int

    @property
    def key(self) -> str:
        return f"{self.topic}:{self.group}:{self.number}"


def queue_of(key: str | None) -> Queue:
    """The reverse of `Queue.key`."""
    topic, group, number = (key or "").rsplit(":", 2)
    return Queue(topic, group, int(number))


def group_of(op: Op) -> str | None:
    """The broker group of an op on a queue; None for other ops."""
    parts = (op.key or "").rsplit(":", 2)
    return parts[1] if len(parts) == 3 else None


class Endpoints(Mapping[str, tuple[str, int]]):
    """Node -> current host and port of its broker: a node that was replaced has another address."""

    def __init__(self, brokers: Mapping[str, Server]) -> None:
        self._brokers = brokers

    def __getitem__(self, node: str) -> tuple[str, int]:
        return self._brokers[node].endpoint

    def __iter__(self) -> Iterator[str]:
        return iter(self._brokers)

    def __len__(self) -> int:
        return len(self._brokers)


@dataclass(frozen=True)
class TopicLayout:
    """The facts about the cluster that a run's clients need.

    raft_log     True if the CommitLog is a Raft log (outcomes differ).
    groups       broker group -> names of its nodes.
    endpoints    node -> host and port of its broker (`Endpoints` in a run: they may change).
    nameservers, controllers   host and port of each.
    readers      the consumer group of all reads that move no committed offset.
    consumers    further consumer groups of the workload.
    message_type the type of the topics' messages, for proxies, which refuse others; None: not named.
    orderly      the consumer groups that get messages in order (`consumeMessageOrderly`).
    """

    raft_log: bool
    topic: str
    readers: str
    queues: Sequence[Queue]
    groups: Mapping[str, Sequence[str]]
    endpoints: Mapping[str, tuple[str, int]]
    nameservers: Sequence[tuple[str, int]]
    controllers: Sequence[tuple[str, int]]
    consumers: Sequence[str] = ()
    message_type: str | None = None
    orderly: Sequence[str] = ()

    @property
    def consumer_groups(self) -> Sequence[str]:
        """All consumer groups, each of which every broker has."""
        return (self.readers, *self.consumers)

    def topics(self, group: str) -> Mapping[str, int]:
        """The topics of a broker group, each with the number of its queues there."""
        return Counter(queue.topic for queue in self.queues if queue.group == group)

    @property
    def keys(self) -> list[str]:
        return [queue.key for queue in self.queues]

    def node_at(self, address: str) -> str | None:
        """The node whose broker registered itself as `host:port`."""
        host, _, port = address.rpartition(":")
        return next((node for node, at in self.endpoints.items() if at == (host, int(port or 0))), None)


def topic_layout(
    context: RunContext,
    topic: str,
    queues_per_group: int,
    consumers: Sequence[str] = (),
    *,
    apart: bool = False,
    message_type: str | None = None,
    orderly: Sequence[str] = (),
) -> TopicLayout:
    """The places of a run; nothing is made yet. `apart`: each queue is a separate topic, on one broker group."""
    record = context.deployment.record
    groups = record.groups
    return TopicLayout(
        raft_log=record.traits.raft_log,
        topic=topic,
        readers=f"readers-{context.run}",
        queues=[
            Queue(f"{topic}-{group}{n}", group, 0) if apart else Queue(topic, group, n)
            for group in groups
            for n in range(queues_per_group)
        ],
        groups=groups,
        endpoints=Endpoints({s.node.name: s for s in context.deployment.servers() if s.group is not None}),
        nameservers=record.endpoints("namesrv"),
        controllers=record.endpoints("controller"),
        consumers=(*consumers, *([GROUP_OF_PROXIES] if record.endpoints("proxy") else [])),
        message_type=message_type,
        orderly=tuple(orderly),
    )


async def make(places: TopicLayout) -> None:
    """Makes the topics and the groups on every broker, slaves as well, and waits until each name server has the routes.

    A slave would copy them by itself, but only every 10 to 60 s, and until then it rejects readers, which looks like
    loss. (Slaves of 5.1.0 and 5.1.1 only get them this way: for those it waits.) Raises InfraError if it takes too
    long.
    """
    groups = {name: name in places.orderly for name in places.consumer_groups}
    try:
        async with asyncio.timeout(SETUP_LIMIT_S):
            await asyncio.gather(
                *(
                    _on_broker(places.endpoints[node], places.topics(group), groups, places.message_type)
                    for group, nodes in places.groups.items()
                    for node in nodes
                )
            )
            await asyncio.gather(*(_on_name_server(places, *server) for server in places.nameservers))
    except TimeoutError:
        raise InfraError(
            f"the topic {places.topic} was not known to every broker and name server within {SETUP_LIMIT_S:g} s"
        ) from None


async def remake(places: TopicLayout, group: str, node: str) -> Mapping[str, list[str]]:
    """Makes the topics and consumer groups of a broker group that its broker does not know. Returns `topics` and
    `groups`: the names of those that it did not know. Raises RemotingError and AdminError.
    """
    topics = places.topics(group)
    async with BrokerAdmin(*places.endpoints[node], deadline_s=_ASK_S) as broker:
        lost_topics = [topic for topic in topics if not await broker.topic_exists(topic)]
        lost_groups = [name for name in places.consumer_groups if not await broker.group_exists(name)]
        for topic in lost_topics:
            await broker.create_topic(topic, topics[topic], message_type=places.message_type)
        for name in lost_groups:
            await broker.create_group(name, orderly=name in places.orderly)
    return {"topics": lost_topics, "groups": lost_groups}


async def _on_broker(
    endpoint: tuple[str, int], topics: Mapping[str, int], groups: Mapping[str, bool], message_type: str | None
) -> None:
    """groups: each with True if it gets messages in order."""
    async with BrokerAdmin(*endpoint, deadline_s=_ASK_S) as broker:
        while True:
            try:
                # A slave of before 5.2.0 refuses them: the check below only requires that it has them.
                with suppress(AdminError):
                    for topic, queues in topics.items():
                        await broker.create_topic(topic, queues, message_type=message_type)
                    for group, orderly in groups.items():
                        await broker.create_group(group, orderly=orderly)
                known = [await broker.topic_exists(topic) for topic in topics]
                if all(known + [await broker.group_exists(group) for group in groups]):
                    return
            except (RemotingError, AdminError):
                pass  # it may be about to change its role; the time limit of `make` has the last word
            await asyncio.sleep(_PAUSE_S)


async def _on_name_server(places: TopicLayout, host: str, port: int) -> None:
    async with NameServer(host, port, deadline_s=_ASK_S) as server:
        while True:
            try:
                if all(
                    [await _routed(server, topic, group) for group in places.groups for topic in places.topics(group)]
                ):
                    return
            except (RemotingError, AdminError):
                pass
            await asyncio.sleep(_PAUSE_S)


async def _routed(server: NameServer, topic: str, group: str) -> bool:
    route = await server.route(topic)
    return group in {broker.get("brokerName") for broker in (route or {}).get("brokerDatas", [])}
