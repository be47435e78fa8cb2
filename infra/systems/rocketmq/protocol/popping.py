# SPDX-License-Identifier: Apache-2.0
"""Requests of consumers that leave the bookkeeping to the broker: pop, acknowledge, or request more time.

A popped message is invisible for a while; unless it is acknowledged it comes back, as a new message of the group's
retry topic. A *handle* names one delivery: eight words, most of them given with the messages, put together by the
client.

Source: `PopMessageProcessor`, `AckMessageProcessor`, `ChangeInvisibleTimeProcessor`, `ExtraInfoUtil` and
`MQClientAPIImpl.processPopResponse`, 5.3.3; seen with 5.5.0.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import Broken, RemotingError
from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol.codes import Request
from infra.systems.rocketmq.protocol.link import Link, Unreadable
from infra.systems.rocketmq.protocol.messages import Message
from infra.systems.rocketmq.protocol.outcomes import outcome_of_error

MAX_POP: Final = 32
"""Messages of one pop; the broker rejects more (29)."""

_RETRY_SEPARATORS: Final = {1: "_", 2: "+"}
"""Retry topics of version 1 and 2: `%RETRY%GROUP_TOPIC`, `%RETRY%GROUP+TOPIC` (`KeyBuilder`)."""


@dataclass(frozen=True, slots=True)
class Handle:
    """One delivery of one message: ckStartOffset popTime invisibleTime reviveQueue retry brokerName queue offset.

    start          offset of the first message of the same pop. popped_ms: by the broker's clock. revive_queue: 999 for
                   orderly pops.
    retry          0: the topic itself; 1 and 2: the group's retry topic, by its two ways of naming it. queue and offset
                   are the retry topic's then.
    """

    start: int
    popped_ms: int
    invisible_ms: int
    revive_queue: int
    retry: int
    broker_name: str
    queue: int
    offset: int

    @property
    def text(self) -> str:
        """The handle as text, as it is sent and stored in histories."""
        numbers = self.start, self.popped_ms, self.invisible_ms, self.revive_queue, self.retry
        return " ".join([*map(str, numbers), self.broker_name, str(self.queue), str(self.offset)])

    @classmethod
    def parse(cls, text: str) -> Self:
        """The handle of a text. Raises ValueError."""
        words = text.split(" ")
        if len(words) != 8:
            raise ValueError(f"{text[:120]!r} is not a handle: {len(words)} words, not 8")
        start, popped, invisible, revive, retry = map(int, words[:5])
        if retry not in (0, *_RETRY_SEPARATORS):
            raise ValueError(f"{text[:120]!r} is not a handle: the retry mark is {retry}")
        return cls(start, popped, invisible, revive, retry, words[5], int(words[6]), int(words[7]))

    def topic(self, topic: str, group: str) -> str:
        """The topic that holds this delivery: the one that was popped from, or the group's retry topic."""
        return topic if self.retry == 0 else retry_topic(topic, group, self.retry)


def retry_topic(topic: str, group: str, version: int = 1) -> str:
    """The topic in which a group's unacknowledged messages of a topic come back."""
    return f"%RETRY%{group}{_RETRY_SEPARATORS[version]}{topic}"


@dataclass(frozen=True, slots=True)
class Popped:
    """The result of a pop: each message with the handle of this delivery. `rest`: the number of further messages.
    `unreadable`: the answer came, and its bytes are no messages.
    """

    outcome: Outcome
    messages: Sequence[tuple[Message, Handle]] = ()
    rest: int | None = None
    code: int | None = None
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Extended:
    """The result of a changed invisible time: from now on `handle` names the delivery, the old one is spent."""

    outcome: Outcome
    handle: Handle | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Acked:
    """The result of an acknowledgement. `ok` even if the broker could not store it (`AckMessageProcessor` only logs
    that): the message may come back.
    """

    outcome: Outcome
    code: int | None = None


class Popping(Link):
    """A broker, as a popping consumer sees it."""

    async def pop(
        self,
        topic: str,
        queue: int,
        *,
        group: str,
        broker_name: str,
        invisible_ms: int,
        max_messages: int = MAX_POP,
        poll_s: float = 0,
        from_start: bool = True,
        orderly: bool = False,
        deadline_s: float | None = None,
    ) -> Popped:
        """Takes messages of a queue (-1: any). The group must exist; it needs no heartbeat. With `poll_s` the broker
        waits that long for one. An orderly pop gives a queue's next messages only after those before are acknowledged.

        A pop whose answer is lost may have made messages invisible: `info`.
        """
        ext = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue),
            "maxMsgNums": str(max_messages),
            "invisibleTime": str(invisible_ms),
            "pollTime": str(int(poll_s * 1000)),
            "bornTime": str(time.time_ns() // 1_000_000),
            "initMode": "0" if from_start else "1",
            "expType": "TAG",
            "exp": "*",
            "order": str(orderly).lower(),
        }
        try:
            frame = await self.ask(Request.POP_MESSAGE, ext, deadline_s=deadline_s)
            return Popped(
                self.judge("pop", frame),
                self._with_handles(frame, broker_name),
                rest=self.number(frame, "restNum"),
                code=frame.code,
            )
        except RemotingError as error:
            return Popped(outcome_of_error("pop", error), unreadable=isinstance(error, Unreadable))

    async def ack(self, topic: str, handle: Handle | str, *, group: str, deadline_s: float | None = None) -> Acked:
        """Acknowledges a delivery; `topic` is the one that was popped from. Raises ValueError for an invalid handle."""
        handle = _handle(handle)
        ext = self._delivery(topic, group, handle)
        answer = await self.operate("ack", Request.ACK_MESSAGE, ext, deadline_s=deadline_s)
        return Acked(answer.outcome, answer.code)

    async def change_invisible_time(
        self,
        topic: str,
        handle: Handle | str,
        invisible_ms: int,
        *,
        group: str,
        deadline_s: float | None = None,
    ) -> Extended:
        """Makes a delivery stay invisible for so long from now on. Raises ValueError for an invalid handle."""
        handle = _handle(handle)
        ext = {**self._delivery(topic, group, handle), "invisibleTime": str(invisible_ms)}
        try:
            frame = await self.ask(Request.CHANGE_MESSAGE_INVISIBLETIME, ext, deadline_s=deadline_s)
            outcome = self.judge("extend", frame)
            if outcome.type != "ok":
                return Extended(outcome, code=frame.code)
            return Extended(outcome, self._renewed(frame, handle), frame.code)
        except RemotingError as error:
            return Extended(outcome_of_error("extend", error))

    @staticmethod
    def _delivery(topic: str, group: str, handle: Handle) -> dict[str, str]:
        return {
            "consumerGroup": group,
            "topic": handle.topic(topic, group),
            "queueId": str(handle.queue),
            "extraInfo": handle.text,
            "offset": str(handle.offset),
        }

    def _renewed(self, frame: Frame, handle: Handle) -> Handle:
        """The handle after a change: it starts a check point of its own (`ExtraInfoUtil`, as the Java client does)."""
        return replace(
            handle,
            start=handle.offset,
            popped_ms=self._required(frame, "popTime"),
            invisible_ms=self._required(frame, "invisibleTime"),
            revive_queue=self._required(frame, "reviveQid"),
        )

    def _with_handles(self, frame: Frame, broker_name: str) -> list[tuple[Message, Handle]]:
        """The messages, each with its handle: its own if it has one (retry topics), else a composed one."""
        messages = self.messages(frame)
        if not messages:
            return []
        starts = self._starts(frame)
        popped, invisible, revive = (self._required(frame, name) for name in ("popTime", "invisibleTime", "reviveQid"))
        found = []
        for message in messages:
            try:
                if "POP_CK" in message.properties:
                    handle = Handle.parse(message.properties["POP_CK"])
                else:
                    retry = 0 if not message.topic.startswith("%RETRY%") else 2 if "+" in message.topic else 1
                    start = starts.get((retry, message.queue), message.offset)
                    handle = Handle(start, popped, invisible, revive, retry, broker_name, message.queue, message.offset)
            except ValueError as e:
                raise Broken(f"{self.address}: {e}") from None
            found.append((message, handle))
        return found

    def _starts(self, frame: Frame) -> dict[tuple[int, int], int]:
        """startOffsetInfo, `retry queue offset;...`: the first offset of this pop in each queue."""
        text = frame.ext.get("startOffsetInfo", "")
        try:
            words = [list(map(int, part.split(" "))) for part in text.split(";") if part]
            return {(retry, queue): start for retry, queue, start in words}
        except ValueError:
            raise Broken(f"{self.address}: startOffsetInfo is {text[:80]!r}") from None

    def _required(self, frame: Frame, name: str) -> int:
        value = self.number(frame, name)
        if value is None:
            raise Broken(f"{self.address}: an answer without {name}")
        return value


def _handle(handle: Handle | str) -> Handle:
    return Handle.parse(handle) if isinstance(handle, str) else handle
