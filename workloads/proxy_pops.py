# SPDX-License-Identifier: Apache-2.0
"""Pops of the workload `queue` through RocketMQ's proxy (`--client grpc`): receive, acknowledge, request more time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from harness.api import Completion
from infra.machines.api import InfraError
from infra.systems.outcome import Outcome
from infra.systems.rocketmq.clients.proxy_popping import Subscription
from infra.systems.rocketmq.message_body import id_of
from infra.systems.rocketmq.protocol.client import Broker
from results.op import Op
from workloads.brokers import outcome_completion
from workloads.clients import PoppingProducer, proxy_routes
from workloads.places import SETUP_LIMIT_S, Queue, TopicLayout, queue_of

LEAST_INVISIBLE_MS: Final = 1000
"""The shortest invisible duration that proxies take in a run (RocketMQ's default: 10 s)."""

_ASK_S: Final = 5.0
_PAUSE_S: Final = 0.2


def proxy_settings(version: str | None) -> Mapping[str, str]:
    """The settings of proxies of a version (None: the default one): a receive need not wait for a message (5 s by
    default), and may hide it for a short time.
    """
    return {
        **proxy_routes(version),
        "proxy.grpcClientConsumerMinLongPollingTimeoutMillis": "0",
        "proxy.minInvisibleTimeMillsForRecv": str(LEAST_INVISIBLE_MS),
    }


async def start_at_zero(places: TopicLayout, group: str) -> None:
    """Commits the offset 0 of every queue at every replica, before the first send. A proxy lets a group without an
    offset begin at the end of a queue (`ConsumeInitMode.MAX`), so what was sent before its first pop would be skipped
    rightly. Raises InfraError if it takes too long.
    """
    nodes = [(queue, node) for queue in places.queues for node in places.groups[queue.group]]
    try:
        async with asyncio.timeout(SETUP_LIMIT_S):
            await asyncio.gather(*(_commit_zero(places, queue, node, group) for queue, node in nodes))
    except TimeoutError:
        raise InfraError(f"the brokers did not take the first offset of {group} within {SETUP_LIMIT_S:g} s") from None


async def _commit_zero(places: TopicLayout, queue: Queue, node: str, group: str) -> None:
    while True:
        broker = Broker(*places.endpoints[node], deadline_s=_ASK_S, raft_log=places.raft_log)
        try:
            done = await broker.commit_offset(queue.topic, queue.number, group, 0)
        finally:
            await broker.close()
        if done.outcome.type == "ok":
            return
        await asyncio.sleep(_PAUSE_S)


async def pop_by_proxy(
    popper: PoppingProducer, places: TopicLayout, op: Op, most: int, deadline_s: float
) -> tuple[Outcome, Completion]:
    """One attempt of a `pop`, an `ack` or an `extend`. A pop takes up to `most` messages."""
    queue, group = queue_of(op.key), op.extra["group"]
    subscription = Subscription(group, sorted({one.topic for one in places.queues}))
    extra: dict[str, Any] = {"group": group, "proxy": popper.proxy}
    if op.f == "pop":
        received = await popper.receive(
            queue.topic,
            subscription,
            invisible_ms=op.extra["invisible_ms"],
            most=most,
            wait_s=op.extra["wait_s"],
            deadline_s=deadline_s,
        )
        value = [
            [
                Queue(queue.topic, queue.group, one.handle.queue).key,
                one.handle.offset,
                id_of(one.body),
                one.text,
                int(one.handle.retry != 0),
                one.handle.popped_ms + one.handle.invisible_ms,
            ]
            for one in received.messages
        ]
        return received.outcome, outcome_completion(received.outcome, op.value, value, received.code, extra)
    extra |= {name: op.extra[name] for name in ("queue", "offset", "id")}
    if op.f == "ack":
        acked = await popper.ack(queue.topic, op.value[0], subscription, deadline_s=deadline_s)
        return acked.outcome, outcome_completion(acked.outcome, op.value, op.value, acked.code, extra)
    handle, more_ms = op.value
    longer = await popper.change_invisible_time(queue.topic, handle, more_ms, subscription, deadline_s=deadline_s)
    if longer.outcome.type == "ok" and longer.text is None:
        return longer.outcome, Completion("info", op.value, "granted without a new handle", extra)
    return longer.outcome, outcome_completion(longer.outcome, op.value, [longer.text], longer.code, extra)
