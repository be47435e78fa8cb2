# SPDX-License-Identifier: Apache-2.0
"""The simple consumer of RocketMQ's gRPC protocol, in the process of `proxy.ProxyProducer`: receive, acknowledge, or
request more time. A proxy translates these to pops at the broker.

A receive without an answer may have made messages invisible: `info`. So is an answer that is not complete.

Source: `ReceiveMessageActivity`, `AckMessageActivity`, `ChangeInvisibleDurationActivity`, `ReceiptHandle`, 5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.systems.outcome import Outcome
from infra.systems.rocketmq.clients.proxy import ProxyProducer, answer_of
from infra.systems.rocketmq.protocol.link import Answer
from infra.systems.rocketmq.protocol.outcomes import Operation
from infra.systems.rocketmq.protocol.popping import Handle

_WORDS = 8
"""The words of a broker's handle; a proxy adds the place in the commit log."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of one message. text: the proxy's handle, which acknowledges it. handle: its meaning."""

    body: bytes
    text: str
    handle: Handle


@dataclass(frozen=True, slots=True)
class Received:
    """The result of a receive. code: the proxy's."""

    outcome: Outcome
    messages: Sequence[Delivery] = ()
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Prolonged:
    """The result of a changed invisible duration: from now on `text` is the handle of the delivery."""

    outcome: Outcome
    text: str | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """A consumer group, and the topics whose messages it gets, all of them."""

    group: str
    topics: Sequence[str]


class ProxyPopper(ProxyProducer):
    """A producer that is a simple consumer as well."""

    async def receive(
        self,
        topic: str,
        subscription: Subscription,
        *,
        invisible_ms: int,
        most: int,
        wait_s: float = 0,
        deadline_s: float | None = None,
    ) -> Received:
        """Takes up to `most` messages of a topic. With `wait_s` the broker waits that long for one."""
        request = {"do": "receive", "invisible_ms": invisible_ms, "most": most, "wait_s": wait_s}
        answer, reply = await self._consume("pop", request, topic, subscription, deadline_s)
        if answer.outcome.type != "ok":
            return Received(answer.outcome, code=answer.code)
        try:
            found = [_delivery(one) for one in reply["messages"]]
        except ValueError as e:
            return Received(Outcome("info", f"the answer is invalid: {e}"), code=answer.code)
        return Received(answer.outcome, found, answer.code)

    async def ack(
        self, topic: str, handle: str, subscription: Subscription, *, deadline_s: float | None = None
    ) -> Answer:
        """Acknowledges the delivery that a handle names."""
        answer, _ = await self._consume("ack", {"do": "ack", "handle": handle}, topic, subscription, deadline_s)
        return answer

    async def change_invisible_time(
        self,
        topic: str,
        handle: str,
        invisible_ms: int,
        subscription: Subscription,
        *,
        deadline_s: float | None = None,
    ) -> Prolonged:
        """Makes a delivery stay invisible for so long from now on."""
        request = {"do": "extend", "handle": handle, "invisible_ms": invisible_ms}
        answer, reply = await self._consume("extend", request, topic, subscription, deadline_s)
        return Prolonged(answer.outcome, reply.get("handle") or None, answer.code)

    async def _consume(
        self,
        operation: Operation,
        request: Mapping[str, Any],
        topic: str,
        subscription: Subscription,
        deadline_s: float | None,
    ) -> tuple[Answer, Mapping[str, Any]]:
        about = {"topic": topic, "group": subscription.group, "topics": list(subscription.topics)}
        reply = await self.ask(self.proxy, {**request, **about}, deadline_s)
        answer = answer_of(operation, reply, self.raft_log)
        self.learn(answer.outcome)
        return answer, reply


def _delivery(fields: Mapping[str, str]) -> Delivery:
    """Raises ValueError for a handle that is none."""
    text = fields["handle"]
    return Delivery(fields["body"].encode("latin-1"), text, Handle.parse(" ".join(text.split(" ")[:_WORDS])))
