# SPDX-License-Identifier: Apache-2.0
"""Requests of producers: send, alone or in batches, in transactions, and recall timer messages.

Source: `SendMessageRequestHeaderV2`, `EndTransactionRequestHeader`, `CheckTransactionStateRequestHeader`,
`RecallMessageRequestHeader` and their processors, 5.3.3; seen with 5.5.0.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import RemotingError
from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.protocol.codes import Request
from infra.systems.rocketmq.protocol.link import Answer, Link
from infra.systems.rocketmq.protocol.messages import (
    COMMITTED,
    PREPARED,
    ROLLED_BACK,
    Message,
    MessageError,
    decode,
    encode_properties,
    parse_offset_message_id,
)
from infra.systems.rocketmq.protocol.outcomes import outcome_of_error

PRODUCERS: Final = "harness-producer"
"""The producer group of every sender. Brokers need not know it."""

End = Literal["commit", "rollback", "unknown"]
_ENDS: Final[Mapping[End, int]] = {"commit": COMMITTED, "rollback": ROLLED_BACK, "unknown": 0}


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of a send.

    offset      in the queue; also if the broker accepted it less surely than requested (`code` 10, 11, 12:
                `info`). Of a batch: the first's. Of delayed and half messages: in the queue where they wait.
    queue       which one, if the broker chose. message_id: `offsetMsgId`, several with commas for a batch.
    unique_id   the id that the client gave it (`UNIQ_KEY`), for a half message the transaction's id.
    recall      the handle that takes a timer message back, if the broker gives one.
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
class Half:
    """A half message, as the broker that holds it names it: by its place.

    table_offset    its offset in the queue of half messages. physical: in that broker's commit log.
    transaction_id  the client's `UNIQ_KEY`.
    checked         whether this place comes from the broker's query. **The broker rewrites the half message with every
                    query, and takes only the newest place.**
    """

    topic: str
    table_offset: int
    physical: int
    transaction_id: str
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """The broker's query for the state of a transaction (39): the half message, and its present place."""

    half: Half
    message: Message


IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""A half message's property: so long after its birth no broker asks about it."""


class Sending(Link):
    """A broker, as a producer sees it."""

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
        """Appends a message to a queue (-1: the broker picks one). Raises ValueError for properties that cannot be
        sent.

        Properties with a meaning: TAGS, KEYS; DELAY (level 1 to 18); TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS
        (the answer then brings `recall`); WAIT=false (wait for neither disk nor replicas). UNIQ_KEY is added if it is
        missing.
        """
        unique = {"UNIQ_KEY": _unique(), **(properties or {})}
        ext = _fields(group, topic, queue, system_flag, encode_properties(unique))
        return await self._send(Request.SEND_MESSAGE_V2, ext, body, unique["UNIQ_KEY"], deadline_s)

    async def send_half(
        self,
        topic: str,
        queue: int,
        body: bytes,
        *,
        group: str = PRODUCERS,
        immunity_s: int | None = None,
        deadline_s: float | None = None,
    ) -> tuple[Sent, Half | None]:
        """The first half of a transaction: stored, but invisible until `end_transaction` commits it. If the broker
        gave no place, nothing can be ended, but its query may come all the same. immunity_s: the time in which the
        broker must not ask; None: its own `transactionTimeOut`.
        """
        properties = {"TRAN_MSG": "true", "PGROUP": group}
        if immunity_s is not None:
            properties[IMMUNITY] = str(immunity_s)
        sent = await self.send(
            topic, queue, body, group=group, properties=properties, system_flag=PREPARED, deadline_s=deadline_s
        )
        try:
            if sent.offset is None or sent.message_id is None or sent.unique_id is None:
                return sent, None
            _, _, physical = parse_offset_message_id(sent.message_id)
        except MessageError as e:
            return replace(sent, outcome=Outcome("info", f"{self.address}: {e}")), None
        return sent, Half(topic, sent.offset, physical, sent.unique_id)

    async def end_transaction(
        self, half: Half, end: End, *, group: str = PRODUCERS, deadline_s: float | None = None
    ) -> Answer:
        """Commits, rolls back, or reports that it is not known yet. Send it to the broker that holds the half message.

        Java's client sends this one-way and never gets the answer; here it is awaited. `unknown` is never
        answered: one-way, `info`. A second commit of the same half message makes a second message (seen in 5.5.0).
        """
        ext = {
            "topic": half.topic,
            "producerGroup": group,
            "tranStateTableOffset": str(half.table_offset),
            "commitLogOffset": str(half.physical),
            "commitOrRollback": str(_ENDS[end]),
            "fromTransactionCheck": str(half.checked).lower(),
            "msgId": half.transaction_id,
            "transactionId": half.transaction_id,
        }
        if end != "unknown":
            return await self.operate("end", Request.END_TRANSACTION, ext, deadline_s=deadline_s)
        try:
            await self.tell(Request.END_TRANSACTION, ext)
        except RemotingError as error:
            return Answer(outcome_of_error("end", error))
        return Answer(Outcome("info", "sent one-way: brokers do not answer this"))

    async def recall(
        self, topic: str, handle: str, *, group: str = PRODUCERS, deadline_s: float | None = None
    ) -> Answer:
        """Takes a timer message back before its time (from 5.3.2 on, with recallMessageEnable=true, else 16). `ok`: its
        deletion is in the log; it comes too late if the message is about to be delivered.
        """
        ext = {"producerGroup": group, "topic": topic, "recallHandle": handle}
        return await self.operate("recall", Request.RECALL_MESSAGE, ext, deadline_s=deadline_s)

    async def _send(
        self, code: Request, ext: Mapping[str, str], body: bytes, unique: str | None, deadline_s: float | None
    ) -> Sent:
        try:
            frame = await self.ask(code, ext, body, deadline_s=deadline_s)
            outcome, offset = self.judge("send", frame), self.number(frame, "queueOffset")
            if outcome.type == "ok" and offset is None:
                outcome = Outcome("info", f"{self.address}: acknowledged, but without an offset")
            return Sent(
                outcome,
                offset=offset,
                message_id=frame.ext.get("msgId"),
                code=frame.code,
                remark=frame.remark,
                queue=self.number(frame, "queueId"),
                unique_id=frame.ext.get("transactionId") or unique,
                recall=frame.ext.get("recallHandle"),
            )
        except RemotingError as error:
            return Sent(outcome_of_error("send", error), unique_id=unique)


def check_of(frame: Frame) -> Check | None:
    """The query in a request that a broker pushed; None: another request. Raises MessageError for an invalid query."""
    if frame.code != Request.CHECK_TRANSACTION_STATE:
        return None
    message, _ = decode(frame.body)
    try:
        half = Half(
            topic=message.topic,
            table_offset=int(frame.ext["tranStateTableOffset"]),
            physical=int(frame.ext["commitLogOffset"]),
            transaction_id=frame.ext.get("transactionId") or message.properties.get("UNIQ_KEY", ""),
            checked=True,
        )
    except (KeyError, ValueError) as e:
        raise MessageError(f"a question about a transaction without {e}") from None
    return Check(half, message)


_RANDOM: Final = secrets.token_hex(8).upper()
_COUNT: Final = itertools.count(1)


def _unique() -> str:
    """A new `UNIQ_KEY`: 32 hex digits, unlike any other's, also after a fork. Drawing all of them for each message
    would cost as much as encoding it.
    """
    return f"{_RANDOM}{os.getpid() & 0xFFFFFFFF:08X}{next(_COUNT) & 0xFFFFFFFF:08X}"


def _fields(group: str, topic: str, queue: int, system_flag: int, properties: str) -> dict[str, str]:
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
        "m": "false",
    }
