"""One broker, as producers and consumers see it: one attempt, an exact deadline, and what the answer says.

>>> broker = Broker("198.18.20.11", 10911, deadline_s=5, topology="controller")
>>> sent = await broker.send("log-1", 0, b"17")  # doctest: +SKIP
>>> sent.outcome.type, sent.offset               # doctest: +SKIP
('ok', 4)

Nothing here is tried twice. A connection that is refused is a certain `fail`; one that breaks after a byte may have
left is `info`, except for reads.

Source: processors of rocketmq-broker 5.3.3 by the names of their requests (`codes.Request`); seen with 5.5.0.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.remoting.connection import Broken, Connection, RemotingError, connect
from infra.remoting.frame import Frame
from infra.remoting.outcomes import Outcome
from infra.remoting.rocketmq.codes import VERSION, Request
from infra.remoting.rocketmq.messages import (
    Message,
    MessageError,
    decode_all,
    encode_batch,
    encode_properties,
)
from infra.remoting.rocketmq.outcomes import Operation, outcome_of, outcome_of_error

PRODUCERS: Final = "harness-producer"
"""The producer group of every sender. Brokers make producer groups up as they come."""

_SUBSCRIBE: Final = 4
_SUSPEND: Final = 2
_INVALID_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of a send.

    offset      in the queue; also where the broker accepted it less surely than asked (`code` 10, 11, 12: `info`). Of a
                batch: the first's, the others follow.
    queue       which one, if the broker chose. message_id: `offsetMsgId`, several with commas for a batch.
    unique_id   the id that the client gave it (`UNIQ_KEY`), the transaction's id for a half message.
    recall      the handle that takes a timer message back, where the broker gives one.
    code        of the answer, None without one. remark: the broker's words.
    """

    outcome: Outcome
    offset: int | None = None
    message_id: str | None = None
    code: int | None = None
    remark: str | None = None
    queue: int | None = None
    unique_id: str | None = None
    recall: str | None = None


@dataclass(frozen=True, slots=True)
class Pulled:
    """What came of a pull. `code` tells why there are no messages: 19 none (yet); 20 none now, go on at `next`; 21 the
    offset is outside the queue, `next` is the right one. **Slaves answer 20 where masters answer 21, and leave `next`
    at the offset that was asked for**: compare with `min` and `max`.
    """

    outcome: Outcome
    messages: Sequence[Message] = ()
    next: int | None = None
    min: int | None = None
    max: int | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an operation whose result is at most a number: an offset, or None where there is none."""

    outcome: Outcome
    value: int | None = None
    code: int | None = None


class Link:
    """One connection to one server, made when it is needed and made again after it ended.

    `topology` names the kind of cluster, for answers that mean different things in different kinds.
    `on_request` gets what the server asks of the client (39, 40, ...), on the event loop; it must not block.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        deadline_s: float,
        topology: str | None = None,
        on_request: Callable[[Frame], None] | None = None,
    ) -> None:
        self.host, self.port = host, port
        self.deadline_s = deadline_s
        self.topology = topology
        self.on_request = on_request
        self._connection: Connection | None = None

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    async def ask(
        self, code: int, ext: Mapping[str, str], body: bytes = b"", *, deadline_s: float | None = None
    ) -> Frame:
        """One request and its answer, whatever its code, all within the deadline. Raises RemotingError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.deadline_s if deadline_s is None else deadline_s)
        connection = await self._connected(deadline - loop.time())
        return await connection.call(code, body, deadline - loop.time(), ext=ext)

    async def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """A request without an answer. Raises Refused where nothing was sent."""
        (await self._connected(self.deadline_s)).post(code, body, ext=ext)

    async def close(self) -> None:
        """Drop the connection. The link may be used again and then makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connected(self, timeout_s: float) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self.host, self.port, timeout_s, self._asked, VERSION)
        return self._connection

    def _asked(self, frame: Frame) -> None:
        if self.on_request is not None:
            self.on_request(frame)


class Broker(Link):
    """One broker, for one logical process: one operation at a time."""

    async def send(
        self,
        topic: str,
        queue: int,
        body: bytes,
        *,
        group: str = PRODUCERS,
        properties: Mapping[str, str] | None = None,
        system_flag: int = 0,
        deadline_s: float | None = None,
    ) -> Sent:
        """Append a message to a queue (-1: the broker picks one). Raises ValueError for properties that cannot travel.

        Properties with a meaning: TAGS, KEYS; DELAY (level 1 to 18), TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS;
        WAIT=false (wait for neither disk nor replicas). UNIQ_KEY is added where it is missing.
        """
        unique = {"UNIQ_KEY": uuid.uuid4().hex.upper(), **(properties or {})}
        ext = _send_fields(group, topic, queue, system_flag, encode_properties(unique), batch=False)
        return await self._send(Request.SEND_MESSAGE_V2, ext, body, unique["UNIQ_KEY"], deadline_s)

    async def send_batch(
        self,
        topic: str,
        queue: int,
        bodies: Sequence[bytes],
        *,
        group: str = PRODUCERS,
        deadline_s: float | None = None,
    ) -> Sent:
        """Append several messages as one: all or none, one after the other."""
        if not bodies:
            raise ValueError("a batch needs a message")
        body = encode_batch([(b, {"UNIQ_KEY": uuid.uuid4().hex.upper(), "WAIT": "true"}) for b in bodies])
        ext = _send_fields(group, topic, queue, 0, "", batch=True)
        return await self._send(Request.SEND_BATCH_MESSAGE, ext, body, None, deadline_s)

    async def _send(
        self, code: Request, ext: Mapping[str, str], body: bytes, unique: str | None, deadline_s: float | None
    ) -> Sent:
        try:
            frame = await self.ask(code, ext, body, deadline_s=deadline_s)
            said = frame.ext
            return Sent(
                outcome_of("send", frame.code, frame.remark, self.topology),
                offset=self.number(frame, "queueOffset"),
                message_id=said.get("msgId"),
                code=frame.code,
                remark=frame.remark,
                queue=self.number(frame, "queueId"),
                unique_id=said.get("transactionId") or unique,
                recall=said.get("recallHandle"),
            )
        except RemotingError as error:
            return Sent(outcome_of_error("send", error), unique_id=unique)

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
        """Messages of a queue from an offset on. The group must exist on this replica (26), but need not have
        heartbeats. With `suspend_s` the broker holds its answer back until there is a message; it looks every 5 s.
        """
        ext = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": str(max_messages),
            "sysFlag": str(_SUBSCRIBE | (_SUSPEND if suspend_s else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(int(suspend_s * 1000)),
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        try:
            frame = await self.ask(Request.PULL_MESSAGE, ext, deadline_s=deadline_s)
            return Pulled(
                outcome_of("read", frame.code, frame.remark, self.topology),
                self.messages(frame),
                next=self.number(frame, "nextBeginOffset"),
                min=self.number(frame, "minOffset"),
                max=self.number(frame, "maxOffset"),
                code=frame.code,
            )
        except RemotingError as error:
            return Pulled(outcome_of_error("read", error))

    async def max_offset(self, topic: str, queue: int, *, deadline_s: float | None = None) -> Answer:
        """The offset that the next message gets. **0 for topics and queues that do not exist.** No role is checked."""
        return await self._read(Request.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)}, deadline_s)

    async def min_offset(self, topic: str, queue: int, *, deadline_s: float | None = None) -> Answer:
        """The oldest message's offset; as `max_offset`."""
        return await self._read(Request.GET_MIN_OFFSET, {"topic": topic, "queueId": str(queue)}, deadline_s)

    async def committed_offset(self, topic: str, queue: int, group: str, *, deadline_s: float | None = None) -> Answer:
        """What the group has committed; None (code 22): nothing, or the broker has forgotten."""
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "setZeroIfNotFound": "false"}
        return await self._read(Request.QUERY_CONSUMER_OFFSET, ext, deadline_s)

    async def commit_offset(
        self, topic: str, queue: int, group: str, offset: int, *, deadline_s: float | None = None
    ) -> Answer:
        """Commit: messages below `offset` are done with. Brokers take any number, also a smaller one, also at slaves;
        they keep it in memory and write it to disk every 5 s.
        """
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)}
        return await self.operate("commit", Request.UPDATE_CONSUMER_OFFSET, ext, deadline_s=deadline_s)

    async def operate(
        self,
        operation: Operation,
        code: Request,
        ext: Mapping[str, str],
        body: bytes = b"",
        *,
        deadline_s: float | None = None,
    ) -> Answer:
        """A request whose answer's code is all there is to know."""
        try:
            frame = await self.ask(code, ext, body, deadline_s=deadline_s)
        except RemotingError as error:
            return Answer(outcome_of_error(operation, error))
        return Answer(outcome_of(operation, frame.code, frame.remark, self.topology), None, frame.code)

    async def _read(self, code: Request, ext: Mapping[str, str], deadline_s: float | None) -> Answer:
        """A request for an offset."""
        try:
            frame = await self.ask(code, ext, deadline_s=deadline_s)
            outcome = outcome_of("read", frame.code, frame.remark, self.topology)
            value = self.number(frame, "offset") if frame.code == 0 else None
            if frame.code == 0 and value is None:
                raise Broken(f"{self.host}:{self.port}: an offset without a number")
            return Answer(outcome, value, frame.code)
        except RemotingError as error:
            return Answer(outcome_of_error("read", error))

    def number(self, frame: Frame, name: str) -> int | None:
        """A field of the answer. Raises Broken where it is no number: an answer without sense says nothing."""
        text = frame.ext.get(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise Broken(f"{self.host}:{self.port}: {name} is {text[:40]!r}, not a whole number") from None

    def messages(self, frame: Frame) -> list[Message]:
        """The messages in an answer. Raises Broken."""
        try:
            return decode_all(frame.body) if frame.code == 0 else []
        except MessageError as e:
            raise Broken(f"{self.host}:{self.port}: {e}") from None


def _send_fields(
    group: str, topic: str, queue: int, system_flag: int, properties: str, *, batch: bool
) -> dict[str, str]:
    """The header of `SendMessageRequestHeaderV2`: one letter a field, to save bytes."""
    return {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": str(system_flag),
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "true" if batch else "false",
    }
