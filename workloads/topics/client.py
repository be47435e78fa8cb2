# SPDX-License-Identifier: Apache-2.0
"""The workload's client: sends and reads as in `log`, and the requests of an administrator, as `mqadmin` sends them.

`mqadmin updateTopic -c` sends UPDATE_AND_CREATE_TOPIC to each master that a name server lists, in turn, and ends with
the first error. `mqadmin deleteTopic` sends DELETE_TOPIC_IN_BROKER to these masters, then DELETE_TOPIC_IN_NAMESRV to
each name server (`UpdateTopicSubCommand`, `DeleteTopicSubCommand`, 5.3.3). Slaves keep the queues of the topic then, so
by default this administrator sends the deletion to the slaves, too (`--delete-at`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from harness.api import Completion
from infra.systems.remoting.connection import Refused, RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin, NameServer
from infra.systems.rocketmq.topologies.layout import CLUSTER
from results.op import INFO, Op
from workloads.brokers import READ_DEADLINE_S, BrokerClient
from workloads.consume.crew import Consumers
from workloads.places import queue_of
from workloads.topics.lives import DELETE, UPDATE, Lives, after
from workloads.topics.load import LIFE

DeleteAt = Literal["all", "masters"]

_ASK_S: Final = 2.0
"""The longest time for one request of the administrator."""


class Known:
    """The lives as the run's administrator knows them: what one phase leaves to the next. One event loop."""

    def __init__(self) -> None:
        self.lives: Lives = {}

    def note(self, op: Op, completion: Completion | None = None) -> None:
        """Records an op that begins, or its completion."""
        if completion is None:
            self.lives = after(self.lives, op)
        else:
            value = completion.value
            self.lives = after(self.lives, Op(op.index, op.time, op.process, completion.type, op.f, op.key, value))


class Subscribers:
    """The members of the group that subscribes to the topics, and what they are owed. One event loop.

    topics  those that they subscribe to.
    """

    def __init__(self, crew: Consumers, topics: Sequence[str]) -> None:
        self.crew, self.topics = crew, topics
        self._owed: dict[str, list[Any]] = {}

    async def invoke(self, op: Op) -> Completion:
        """Executes an op of a member. A `join` reports the topics."""
        done = await self.crew.invoke(op)
        return done if op.f != "join" else replace(done, extra={**(done.extra or {}), "topics": list(self.topics)})

    def owe(self, op: Op) -> None:
        """Notes an acknowledged send."""
        topic = queue_of(op.key).topic
        if topic in self.topics:
            self._owed.setdefault(topic, []).append(op.value)
            self.crew.owe(op.value)

    def forget(self, topic: str) -> None:
        """Notes that a topic is deleted: nobody gets its messages now."""
        self.crew.release(self._owed.pop(topic, ()))


class TopicOps(BrokerClient):
    """The client. `known` and `delete_at` are set by the workload; `members` too, if it has some (`join_in`)."""

    known: Known
    delete_at: DeleteAt
    members: Subscribers | None = None

    def join_in(self, members: Subscribers) -> None:
        """Sets the members."""
        self.members = members
        members.crew.use()

    async def close(self) -> None:
        if self.members is not None:
            await self.members.crew.leave()
        await super().close()

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "send":
                sent = await self.send(op)
                if self.members is not None and sent.type == "ok" and not op.extra.get("probe"):
                    self.members.owe(op)
                return sent
            case "join" | "take" | "crash" | "leave" if self.members is not None:
                return await self.members.invoke(op)
            case "poll":
                polled = await self.poll(op)
                life = {} if LIFE not in op.extra else {LIFE: op.extra[LIFE]}
                return Completion(polled.type, polled.value, polled.error, {**(polled.extra or {}), **life})
            case "update-topic" | "delete-topic":
                return await self._administrate(op)
            case "topic":
                return await self._describe(op)
            case "commit" | "committed":
                return await self._offset(op)
        return await super().invoke(op)

    async def _offset(self, op: Op) -> Completion:
        """Commits an offset at the node that this client considers the master, or asks it for the committed one."""
        queue, group = queue_of(op.key), str(op.extra["group"])
        extra = {"group": group}
        await self.pause()
        node = await self.master(queue.group)
        if node is None:
            return Completion("fail", op.value, f"no-master: {self.masters.silence}; nothing was sent", extra)
        broker, where = self.at(node), (queue.topic, queue.number, group)
        if op.f == "commit":
            answer = await broker.commit_offset(*where, op.value, deadline_s=self.deadline_s)
        else:
            answer = await broker.committed_offset(*where, deadline_s=min(READ_DEADLINE_S, self.deadline_s))
        self.learn(queue.group, node, answer.outcome)
        value = op.value if op.f == "commit" else answer.value
        return Completion(answer.outcome.type, value, answer.outcome.why or None, {**extra, "node": node})

    async def _administrate(self, op: Op) -> Completion:
        """An op that changes a topic. One that is cancelled stays unanswered."""
        self.known.note(op)
        if op.f == DELETE and self.members is not None:
            self.members.forget(str(op.key))
        done = Completion(INFO, op.value)
        try:
            done = await (self._update(op) if op.f == UPDATE else self._delete(op))
        finally:
            self.known.note(op, done)
        return done

    async def _update(self, op: Op) -> Completion:
        """Makes the topic, or changes the number of its queues, at the master of each broker group."""
        steps = await self._at_brokers(True, lambda broker: broker.create_topic(str(op.key), op.value))
        return steps.completion(op)

    async def _delete(self, op: Op) -> Completion:
        """Deletes the topic at the brokers, then at all name servers."""
        masters = self.delete_at == "masters"
        steps = await self._at_brokers(masters, lambda broker: broker.delete_topic(str(op.key)))
        for place in self.places.nameservers:
            if not steps.ended:
                async with NameServer(*place, deadline_s=steps.left_s) as server:
                    await steps.take(None, server.delete_topic(str(op.key), CLUSTER))
        return steps.completion(op)

    async def _at_brokers(self, masters: bool, request: Callable[[BrokerAdmin], Coroutine[Any, Any, None]]) -> _Steps:
        """Sends a request to the brokers that a name server lists (or the masters among them), one after the other. A
        slave that acts as the master is not listed as one.
        """
        steps = _Steps(self.deadline_s)
        listed = await self._listed()
        for group in self.places.groups:
            chosen = [at for number, at in listed.get(group, {}).items() if number == 0 or not masters]
            if not chosen:
                steps.refused(f"no name server lists {'a master' if masters else 'a broker'} of {group}")
            for address in chosen:
                if steps.ended:
                    break
                host, _, port = address.rpartition(":")
                async with BrokerAdmin(host, int(port), deadline_s=steps.left_s) as broker:
                    await steps.take(self.places.node_at(address) or address, request(broker))
        return steps

    async def _listed(self) -> dict[str, dict[int, str]]:
        """Broker group -> broker id -> address, as the first name server that answers lists them."""
        for place in self.places.nameservers:
            try:
                async with NameServer(*place, deadline_s=_ASK_S) as server:
                    table: dict[str, Any] = (await server.cluster()).get("brokerAddrTable") or {}
            except (RemotingError, AdminError):
                continue
            return {
                group: {int(number): str(at) for number, at in (about.get("brokerAddrs") or {}).items()}
                for group, about in table.items()
            }
        return {}

    async def _describe(self, op: Op) -> Completion:
        """The number of queues of a topic at the master of a broker group; None: it does not know the topic. If the
        group should have more (`queues`), they are made again, so that the messages can be read.
        """
        group = str(op.extra["group"])
        extra: dict[str, Any] = {"group": group}
        self.look_again(group, 0)
        node = await self.master(group)
        if node is None:
            return Completion("fail", None, f"no-master: {self.masters.silence}; nothing was asked", extra)
        extra["node"] = node
        try:
            async with BrokerAdmin(*self.places.endpoints[node], deadline_s=_ASK_S) as broker:
                found = await broker.topic_queues(str(op.key))
                self.look_again(group, 0)
                if await self.master(group) != node:
                    return Completion("fail", None, f"{node} did not stay the master", extra)
                if (found or 0) < op.extra["queues"]:
                    await broker.create_topic(str(op.key), op.extra["queues"])
        except (RemotingError, AdminError) as problem:
            return Completion("fail", None, str(problem), extra)
        return Completion("ok", found, extra=extra)


class _Steps:
    """The requests of one op, one after the other; the first one that is not acknowledged ends it."""

    def __init__(self, deadline_s: float) -> None:
        self._end = asyncio.get_running_loop().time() + deadline_s
        self.nodes: list[str] = []
        """The brokers that acknowledged."""
        self.why: str | None = None
        self._sent = False
        """True if a server may have executed something."""

    @property
    def ended(self) -> bool:
        return self.why is not None

    @property
    def left_s(self) -> float:
        """The time for the next request."""
        return min(_ASK_S, max(0.0, self._end - asyncio.get_running_loop().time()))

    def refused(self, why: str) -> None:
        """Ends the op before a request."""
        self.why = self.why or why

    async def take(self, node: str | None, request: Coroutine[Any, Any, None]) -> None:
        """Awaits one request."""
        try:
            await request
        except Refused as problem:
            self.refused(str(problem))
        except (RemotingError, AdminError) as problem:
            self._sent = True
            self.refused(str(problem))
        else:
            self._sent = True
            if node is not None:
                self.nodes.append(node)

    def completion(self, op: Op) -> Completion:
        """`ok` if all acknowledged, `fail` if no server got a request."""
        extra = {"nodes": self.nodes}
        if self.why is None:
            return Completion("ok", op.value, extra=extra)
        return Completion("info" if self._sent else "fail", op.value, self.why, extra)
