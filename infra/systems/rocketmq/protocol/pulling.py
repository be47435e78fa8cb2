# SPDX-License-Identifier: Apache-2.0
"""Requests of consumers that track their own offsets: pull from an offset on, and commit an offset; and the reset of a
group's offsets by an administrator.

Source: `PullMessageProcessor`, `AdminBrokerProcessor` and `ConsumerManageProcessor`, 5.3.3; seen with 5.5.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import Broken, Malformed, RemotingError
from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol import fastjson
from infra.systems.rocketmq.protocol.codes import Request
from infra.systems.rocketmq.protocol.link import Answer, Link, Unreadable
from infra.systems.rocketmq.protocol.messages import Message
from infra.systems.rocketmq.protocol.outcomes import outcome_of_error

_SUSPEND: Final = 2
_SUBSCRIPTION: Final = 4
"""Bits of a pull's sysFlag: hold the answer back; the subscription is in the request, not in a heartbeat."""

_NOT_THERE: Final = "can not find message by the offset"
"""With code 1, of `QueryMessageProcessor.viewMessageById`."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull. `code` gives the reason for no messages: 19 none (yet); 20 none now, go on at `next`; 21
    the offset is outside the queue, `next` is the right one. **Slaves answer 20 where masters answer 21, and leave
    `next` at the offset that was requested**: compare with `min` and `max`.
    """

    outcome: Outcome
    messages: Sequence[Message] = ()
    next: int | None = None
    min: int | None = None
    max: int | None = None
    code: int | None = None
    unreadable: bool = False
    """The answer came, and its bytes are no messages."""


@dataclass(frozen=True, slots=True)
class Viewed:
    """The message at a byte of a commit log. `ok` without a message: none begins there."""

    outcome: Outcome
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class OffsetsReset:
    """The result of a reset. `offsets`: queue -> the group's new offset, if it is `ok`."""

    outcome: Outcome
    offsets: Mapping[int, int] = field(default_factory=dict)
    code: int | None = None


class Pulling(Link):
    """A broker, as a reader sees it."""

    async def pull(
        self,
        topic: str,
        queue: int,
        offset: int,
        *,
        group: str,
        max_messages: int = 32,
        suspend_s: float = 0,
        deadline_s: float | None = None,
    ) -> Pulled:
        """Messages of a queue from an offset on. The group must exist on this replica (26), but need not have sent a
        heartbeat. With `suspend_s` the broker holds its answer back until a message exists; it checks every 5 s.
        """
        ext = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": str(max_messages),
            "sysFlag": str(_SUBSCRIPTION | (_SUSPEND if suspend_s else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(int(suspend_s * 1000)),
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        try:
            frame = await self.ask(Request.PULL_MESSAGE, ext, deadline_s=deadline_s)
            return Pulled(
                self.judge("read", frame),
                self.messages(frame),
                next=self.number(frame, "nextBeginOffset"),
                min=self.number(frame, "minOffset"),
                max=self.number(frame, "maxOffset"),
                code=frame.code,
            )
        except RemotingError as error:
            return Pulled(outcome_of_error("read", error), unreadable=isinstance(error, Unreadable))

    async def message_at(self, topic: str, physical: int, *, deadline_s: float | None = None) -> Viewed:
        """The message at a byte of this replica's commit log, also if its queues and its readers do not know it yet.
        No role is checked.
        """
        try:
            ext = {"topic": topic, "offset": str(physical)}
            frame = await self.ask(Request.VIEW_MESSAGE_BY_ID, ext, deadline_s=deadline_s)
            if _NOT_THERE in (frame.remark or ""):
                return Viewed(Outcome("ok", ""))
            found = self.messages(frame)
            return Viewed(self.judge("read", frame), found[0] if found else None)
        except RemotingError as error:
            return Viewed(outcome_of_error("read", error))

    async def max_offset(self, topic: str, queue: int, *, deadline_s: float | None = None) -> Answer:
        """The offset that the next message gets. **0 for topics and queues that do not exist.** No role is checked."""
        return await self._offset(Request.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)}, deadline_s)

    async def min_offset(self, topic: str, queue: int, *, deadline_s: float | None = None) -> Answer:
        """The oldest message's offset; as `max_offset`."""
        return await self._offset(Request.GET_MIN_OFFSET, {"topic": topic, "queueId": str(queue)}, deadline_s)

    async def offset_at(self, topic: str, queue: int, time_ms: int, *, deadline_s: float | None = None) -> Answer:
        """The offset of the first message that was stored at a time (ms since 1970) or later; without one, the end."""
        ext = {"topic": topic, "queueId": str(queue), "timestamp": str(time_ms)}
        return await self._offset(Request.SEARCH_OFFSET_BY_TIMESTAMP, ext, deadline_s)

    async def committed_offset(self, topic: str, queue: int, group: str, *, deadline_s: float | None = None) -> Answer:
        """The committed offset of the group; None (code 22): none, or the broker has forgotten it."""
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "setZeroIfNotFound": "false"}
        return await self._offset(Request.QUERY_CONSUMER_OFFSET, ext, deadline_s)

    async def commit_offset(
        self, topic: str, queue: int, group: str, offset: int, *, deadline_s: float | None = None
    ) -> Answer:
        """Commits an offset: messages below it are done. Brokers take any number, also a smaller one, also at slaves;
        they keep it in memory and write it to disk every 5 s.
        """
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)}
        return await self.operate("commit", Request.UPDATE_CONSUMER_OFFSET, ext, deadline_s=deadline_s)

    async def reset_offsets(
        self,
        topic: str,
        group: str,
        *,
        queue: int = -1,
        offset: int | None = None,
        time_ms: int = -1,
        deadline_s: float | None = None,
    ) -> OffsetsReset:
        """Resets the group's offsets of a queue, or of all queues of this broker (-1), as `mqadmin resetOffsetByTime`
        does: one queue to an offset; else to the first message of a time (ms since 1970); -1: to the end, which
        `mqadmin skipAccumulatedMessage` requests. The broker keeps the new offset until the next pull or pop. This
        pull is answered with 21 and the offset as `next`; the broker ignores commits before it, and answers them with
        success. Brokers without `useServerSideResetOffset` (the default before 5.2) answer 206.
        """
        ext = {"topic": topic, "group": group, "queueId": str(queue), "timestamp": str(time_ms), "isForce": "true"}
        if offset is not None:
            ext["offset"] = str(offset)
        try:
            frame = await self.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, ext, deadline_s=deadline_s)
            outcome = self.judge("reset", frame)
            return OffsetsReset(outcome, self._reset(frame, topic) if outcome.type == "ok" else {}, frame.code)
        except RemotingError as error:
            return OffsetsReset(outcome_of_error("reset", error))

    def _reset(self, frame: Frame, topic: str) -> Mapping[int, int]:
        try:
            table = fastjson.loads(frame.body)["offsetTable"]
            queues = [(json.loads(key), int(offset)) for key, offset in table.items()]
            # A negative one: it found none, and changed nothing (ConsumerOffsetManager.assignResetOffset).
            return {int(q["queueId"]): offset for q, offset in queues if q["topic"] == topic and offset >= 0}
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise Malformed(f"{self.address}: invalid offsets after a reset: {type(e).__name__}: {e}") from None

    async def _offset(self, code: Request, ext: Mapping[str, str], deadline_s: float | None) -> Answer:
        try:
            frame = await self.ask(code, ext, deadline_s=deadline_s)
            value = self.number(frame, "offset") if frame.code == 0 else None
            if frame.code == 0 and value is None:
                raise Broken(f"{self.address}: an answer without the offset")
            return Answer(self.judge("read", frame), value, frame.code)
        except RemotingError as error:
            return Answer(outcome_of_error("read", error))
