# SPDX-License-Identifier: Apache-2.0
"""The clients of the workload `transaction`: our own one, with the reads of all of them, and the proxies' one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from harness.api import Completion
from infra.systems.rocketmq.clients.proxy import ProxyHalf
from infra.systems.rocketmq.message_body import body_of
from infra.systems.rocketmq.protocol.client import Half
from infra.systems.rocketmq.protocol.messages import Message
from results.op import Op
from workloads.asked import AskedProducer, ProxyAsked
from workloads.brokers import BODY_SIZE, BrokerClient, answered, sent_completion, shown_id
from workloads.places import queue_of
from workloads.questions import Question
from workloads.transaction_producers import Producers

_WAIT_S: Final = 1.0
"""The time for which a client waits for a question."""


GIVEN_UP: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""The topic, one on each broker group, to which a broker moves a half message that it gives up: after
`transactionCheckMax` questions without an answer.
"""

_NO_TOPIC: Final = 17
"""The code of an answer: TOPIC_NOT_EXIST."""


class _GivenUp(BrokerClient):
    """The final read of the half messages that were given up."""

    async def given_up(self, op: Op) -> Completion:
        """A stretch of `GIVEN_UP` from the present master of a broker group: of each half message of this run its
        offset, its id, the time since it was stored there (ms), and the number of questions that the broker counted.
        A broker has no such topic until it gives up the first one: then the result is empty (`no_topic`).
        """
        group = queue_of(op.key).group
        node = await self.masters.find(group, refused_by=self.masters.known(group))
        if node is None:
            return Completion("fail", op.value, f"no-master: {self.masters.silence}; nothing was sent")
        read = await self.replica_read(replace(op, extra={**op.extra, "node": node}), self._show_given_up)
        if read.type == "fail" and read.extra.get("code") == _NO_TOPIC:
            return Completion("ok", [], extra={"node": node, "done": True, "no_topic": True})
        return read

    def _show_given_up(self, messages: Sequence[Message], extra: dict[str, Any]) -> Completion:
        """Other runs on this cluster have half messages in the topic, too, with the same ids."""
        now, mine = time.time() * 1000, {queue.topic for queue in self.places.queues}
        shown = [
            [m.offset, shown_id(m), int(now - m.stored), int(m.properties.get("TRANSACTION_CHECK_TIMES", 0))]
            for m in messages
            if m.properties.get("REAL_TOPIC") in mine
        ]
        return Completion("ok", shown, extra=extra)


class TransactionOps(_GivenUp):
    """The workload's client."""

    asked: AskedProducer
    producers: Producers | None

    def furnish(self, asked: AskedProducer, producers: Producers | None) -> None:
        """Sets the producer that brokers ask, and the Java producers: with them, no broker may ask the former."""
        self.asked, self.producers = asked, producers
        if producers is not None:
            producers.use()

    async def open(self) -> None:
        self.asked.join()

    async def close(self) -> None:
        await super().close()
        await self.asked.leave()
        if self.producers is not None:
            await self.producers.leave()

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "half":
                return await (self._half(op) if self.producers is None else self._java_half(op, self.producers))
            case "end":
                return await self._end(op)
            case "check":
                return await self._check(op)
            case "given-up":
                return await self.given_up(op)
            case "join" | "take" | "crash" | "leave" if self.producers is not None:
                return await self.producers.invoke(op)
        return await super().invoke(op)

    async def _java_half(self, op: Op, producers: Producers) -> Completion:
        """One transaction by a Java producer, up to its local decision."""
        await self.pause()
        plan = op.extra
        half = await producers.half(
            self.places.topic, op.value, plan["local"], plan["checked"], self.deadline_s, plan.get("immunity_s")
        )
        self._refused = half.sent.outcome.type == "fail"
        found = {"member": half.member, "queue": half.queue, "node": half.node, "transaction": half.transaction}
        return sent_completion(half.sent, op.value, {name: value for name, value in found.items() if value is not None})

    async def _half(self, op: Op) -> Completion:
        """One half message to a queue, at the node that this client considers the master."""
        queue = queue_of(op.key)
        end = asyncio.get_running_loop().time() + self.deadline_s
        await self.pause()
        node = await self.master(queue.group)
        left = end - asyncio.get_running_loop().time()
        if node is None or left <= 0:
            return self.refused(op)
        body = body_of(op.value, BODY_SIZE)
        sent, half = await self.at(node).send_half(
            queue.topic,
            queue.number,
            body,
            group=self.asked.group,
            immunity_s=op.extra.get("immunity_s"),
            deadline_s=left,
        )
        self.learn(queue.group, node, sent.outcome)
        done = sent_completion(sent, op.value, {"node": node})
        return done if half is None else replace(done, extra={**done.extra, "half": _named(half)})

    async def _end(self, op: Op) -> Completion:
        """A commit or rollback, to the broker that asked, else to the master of the queue's group."""
        queue = queue_of(op.key)
        node, asked = op.extra.get("asked_by"), "asked_by" in op.extra
        if not asked:
            await self.pause()
            node = await self.master(queue.group)
        if node is None:
            return self.refused(op)
        table, physical, transaction = op.extra["half"]
        half = Half(queue.topic, table, physical, transaction, checked=asked)
        answer = await self.at(node).end_transaction(half, op.extra["as"], group=self.asked.group)
        if not asked:
            self.learn(queue.group, node, answer.outcome)
        return answered(answer, op.value, {"node": node, "as": op.extra["as"]})

    async def _check(self, op: Op) -> Completion:
        """The next question of a broker; `value` null: no question came within a second."""
        question = await self.asked.take(min(_WAIT_S, self.deadline_s / 2))
        if question is None:
            return Completion("ok", None)
        node = question.source
        group = next((g for g, nodes in self.places.groups.items() if node in nodes), None)
        extra = {"node": node, "group": group, "half": _named(question.half)}
        if self.producers is not None:
            extra["stranger"] = self.asked.group
        return _asked(question, extra)


class ProxyTransactionOps(_GivenUp):
    """The same through proxies, by their client: each queue is a topic, so the topic of a question names its group."""

    asked: ProxyAsked

    def furnish_proxied(self, asked: ProxyAsked) -> None:
        """Sets the producer to which proxies pass questions on."""
        self.asked = asked

    async def open(self) -> None:
        self.asked.join()

    async def close(self) -> None:
        await super().close()
        await self.asked.leave()

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "half":
                return await self._half(op)
            case "end":
                return await self._end(op)
            case "check":
                return await self._check()
            case "given-up":
                return await self.given_up(op)
        return await super().invoke(op)

    async def _half(self, op: Op) -> Completion:
        """One half message to the topic of a queue."""
        assert self.foreign is not None
        end = asyncio.get_running_loop().time() + self.deadline_s
        await self.pause()
        producer = self.foreign.typed
        proxy, left = producer.proxy, end - asyncio.get_running_loop().time()
        body = body_of(op.value, BODY_SIZE)
        sent, half = await producer.send_half(queue_of(op.key).topic, body, deadline_s=left)
        self._refused = sent.outcome.type == "fail"
        done = sent_completion(sent, op.value, {"proxy": proxy})
        return done if half is None else replace(done, extra={**done.extra, "half": _named_at_proxy(half)})

    async def _end(self, op: Op) -> Completion:
        """A commit or rollback, through the proxy that knows the half message."""
        assert self.foreign is not None
        proxy, message_id, transaction_id = op.extra["half"]
        asked = "asked_by" in op.extra
        half = ProxyHalf(proxy, queue_of(op.key).topic, message_id, transaction_id, checked=asked)
        answer = await self.foreign.typed.end_transaction(half, op.extra["as"], deadline_s=self.deadline_s)
        return answered(answer, op.value, {"proxy": proxy, "as": op.extra["as"]})

    async def _check(self) -> Completion:
        """The next question that a proxy passed on; `value` null: no question came within a second. `deaf`: none could
        come.
        """
        question = await self.asked.take(min(_WAIT_S, self.deadline_s / 2))
        if question is None:
            deaf = self.asked.deaf
            return Completion("ok", None, extra={} if deaf is None else {"deaf": True, "why": deaf})
        half = question.half
        group = next((queue.group for queue in self.places.queues if queue.topic == half.topic), None)
        return _asked(question, {"proxy": half.proxy, "group": group, "half": _named_at_proxy(half)})


def _asked(question: Question[Any], extra: dict[str, Any]) -> Completion:
    """The completion of a check with a question."""
    waited = asyncio.get_running_loop().time() - question.at
    extra["waited_ms"] = int(waited * 1000)
    if question.replaces:
        extra["replaces"] = question.replaces
    return Completion("ok", question.message, extra=extra)


def _named_at_proxy(half: ProxyHalf) -> list[str]:
    """The names of a half message, as they are in histories: the node of the proxy that knows its place, the message's
    id, and the transaction's.
    """
    return [half.proxy, half.message_id, half.transaction_id]


def _named(half: Half) -> list[Any]:
    """The place of a half message, as it is in histories: offset in the queue of half messages, offset in the commit
    log, id of the transaction.
    """
    return [half.table_offset, half.physical, half.transaction_id]
