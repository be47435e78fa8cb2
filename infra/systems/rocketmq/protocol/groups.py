# SPDX-License-Identifier: Apache-2.0
"""Requests of members of a group: send heartbeats, leave, lock queues, send messages back.

Source: `HeartbeatData`, `ClientManageProcessor`, `LockBatchRequestBody`, `RebalanceLockManager` and
`AbstractSendMessageProcessor.consumerSendMsgBack`, 5.3.3; seen with 5.5.0.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import Malformed, RemotingError
from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol import fastjson
from infra.systems.rocketmq.protocol.codes import Request
from infra.systems.rocketmq.protocol.link import Answer, Link
from infra.systems.rocketmq.protocol.outcomes import outcome_of_error

Consuming = Literal["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"]
"""`ConsumeType`: pull, push, pop."""

Queue = tuple[str, str, int]
"""Topic, broker name, queue."""


def retry_topic(group: str) -> str:
    """The topic of messages that members of a group send back: one queue on each broker."""
    return f"%RETRY%{group}"


@dataclass(frozen=True, slots=True)
class Locked:
    """The result of a lock: the queues that this client holds now. They are freed 60 s after the last lock."""

    outcome: Outcome
    queues: frozenset[Queue] = frozenset()
    code: int | None = None


class Membership(Link):
    """A broker, as a member of a group sees it. Its pushes (39, 40) come over the connection that sent the
    heartbeat: give a member that waits in calls a second object for this.
    """

    async def heartbeat(
        self,
        client_id: str,
        *,
        producers: Iterable[str] = (),
        consumers: Iterable[str] = (),
        topics: Iterable[str] = (),
        consuming: Consuming = "CONSUME_PASSIVELY",
        deadline_s: float | None = None,
    ) -> Answer:
        """Sends a heartbeat of this client, as a member of these groups; consumers subscribe to all of these topics.

        A broker forgets a member after 120 s, or when its connection closes. Brokers check
        transactions only with a producer that sent a heartbeat.
        """
        now = time.time_ns() // 1_000_000
        subscriptions = [
            {"topic": t, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": now, "expressionType": "TAG"}
            for t in topics
        ]
        body: dict[str, Any] = {
            "clientID": client_id,
            "heartbeatFingerprint": 0,
            "withoutSub": False,
            "producerDataSet": [{"groupName": group} for group in producers],
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": consuming,
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "unitMode": False,
                    "subscriptionDataSet": subscriptions,
                }
                for group in consumers
            ],
        }
        return await self.operate("group", Request.HEART_BEAT, {}, json.dumps(body).encode(), deadline_s=deadline_s)

    async def leave(
        self,
        client_id: str,
        *,
        producer: str | None = None,
        consumer: str | None = None,
        deadline_s: float | None = None,
    ) -> Answer:
        """Leaves a group; the broker notifies the others (40)."""
        ext = {"clientID": client_id}
        if producer is not None:
            ext["producerGroup"] = producer
        if consumer is not None:
            ext["consumerGroup"] = consumer
        return await self.operate("group", Request.UNREGISTER_CLIENT, ext, deadline_s=deadline_s)

    async def send_back(
        self, topic: str, physical: int, *, group: str, delay_level: int = 1, deadline_s: float | None = None
    ) -> Answer:
        """Requests another delivery of a message to the group, by its place in the commit log, after a delay (level 1:
        a second): as a new message of `retry_topic(group)`.
        """
        ext = {
            "offset": str(physical),
            "group": group,
            "delayLevel": str(delay_level),
            "originTopic": topic,
            "unitMode": "false",
            "maxReconsumeTimes": "16",
        }
        return await self.operate("group", Request.CONSUMER_SEND_MSG_BACK, ext, deadline_s=deadline_s)

    async def lock_queues(
        self, client_id: str, queues: Collection[Queue], *, group: str, deadline_s: float | None = None
    ) -> Locked:
        """Locks queues for this client of a group, or prolongs its locks. Slaves grant them, too. With lockInStrictMode
        a majority of the replicas must agree; if it does not, the ones that did hold the lock until it expires.
        """
        try:
            frame = await self.ask(
                Request.LOCK_BATCH_MQ, {}, _lock_body(client_id, queues, group), deadline_s=deadline_s
            )
            outcome = self.judge("lock", frame)
            granted = self._granted(frame) if outcome.type == "ok" else frozenset()
            return Locked(outcome, granted, frame.code)
        except RemotingError as error:
            return Locked(outcome_of_error("lock", error))

    async def unlock_queues(
        self, client_id: str, queues: Collection[Queue], *, group: str, deadline_s: float | None = None
    ) -> Answer:
        """Releases locks."""
        body = _lock_body(client_id, queues, group)
        return await self.operate("lock", Request.UNLOCK_BATCH_MQ, {}, body, deadline_s=deadline_s)

    def _granted(self, frame: Frame) -> frozenset[Queue]:
        try:
            reply = fastjson.loads(frame.body)["lockOKMQSet"] or []
            return frozenset((q["topic"], q["brokerName"], int(q["queueId"])) for q in reply)
        except (ValueError, KeyError, TypeError) as e:
            raise Malformed(f"{self.address}: an invalid answer about locks: {e}") from None


def _lock_body(client_id: str, queues: Collection[Queue], group: str) -> bytes:
    wanted = [{"topic": topic, "brokerName": name, "queueId": queue} for topic, name, queue in queues]
    body = {"consumerGroup": group, "clientId": client_id, "onlyThisBroker": False, "mqSet": wanted}
    return json.dumps(body).encode()
