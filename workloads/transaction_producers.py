# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own `TransactionMQProducer`: a group of producers, each in a process on a node of its own.

The properties of a message say what becomes of its transaction: `local` is the result of the local transaction, and
`checked` the answer to check-backs, by any producer of the group. So the producers share their knowledge, as those of
an application do through its database.

The kinds of events besides those of all crews (`workloads.applications.crew`):

    ["decided", age, life, id, answer, node, asked, tick]   a producer is about to send the end of a transaction,
                one-way: commit, rollback, or null (it does not know) to the broker of a node. asked: true if a broker
                asked for it; else the local transaction is over. tick: the last tick that the process had read.

Each take sends the process a tick, and its completion has the number. An event may arrive late, but it certainly
happened after the take of its tick began: so the judge knows the earliest time of an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from infra.machines.api import InfraError, Node
from infra.systems.outcome import Outcome
from infra.systems.rocketmq.applications.process import ApplicationError, Program
from infra.systems.rocketmq.message_body import id_of
from infra.systems.rocketmq.protocol.sending import IMMUNITY, Sent
from workloads.applications.crew import Crew, Seat, Shown, show_any
from workloads.applications.library import MARGIN_S, sent_of

HEARTBEAT_MS: Final = 5000
"""The time between two heartbeats of a producer to all brokers (RocketMQ's default: 30 s). A broker asks only producers
of which it has got one."""

ANSWERS: Final[Mapping[str | None, str]] = {
    "commit": "COMMIT_MESSAGE",
    "rollback": "ROLLBACK_MESSAGE",
    None: "UNKNOW",
}
"""An answer -> `LocalTransactionState`."""

_ANSWER_OF: Final = {state: answer for answer, state in ANSWERS.items()}


@dataclass
class ProducerSeat(Seat):
    """One producer. ready: its process can send. ticks: the number of its last tick."""

    ready: bool = False
    ticks: int = 0


@dataclass(frozen=True)
class HalfSent:
    """The result of a half message. queue, node: where the library sent it; None: nowhere, or unknown. transaction: its
    id.
    """

    sent: Sent
    member: str | None = None
    queue: str | None = None
    node: str | None = None
    transaction: str | None = None


class Producers(Crew[ProducerSeat]):
    """The producers of a group.

    produce  the command that starts a producer, without its names. node_at: the address of a broker -> its node.
    raft_log: see `outcome_of`.
    """

    part = "producer"

    def __init__(
        self,
        nodes: Sequence[Node],
        program: Program,
        produce: Mapping[str, Any],
        node_at: Callable[[str], str | None],
        *,
        raft_log: bool,
    ) -> None:
        seats = [ProducerSeat(f"m{i}", node) for i, node in enumerate(nodes)]
        super().__init__(seats, program, {"do": "produce", "transactional": True, **produce})
        self._node_at, self._raft_log = node_at, raft_log

    async def half(
        self,
        topic: str,
        message: int,
        local: str | None,
        checked: str | None,
        deadline_s: float,
        immunity_s: int | None = None,
    ) -> HalfSent:
        """Sends a half message by one of the producers that are there: one attempt. local, checked: the answers after
        the local transaction, and to check-backs. immunity_s: see `Sending.send_half`.
        """
        there = [seat for seat in self.seats.values() if seat.ready and seat.application is not None]
        if not there:
            return HalfSent(Sent(Outcome("fail", "nothing was sent: no producer is there")))
        seat = there[message % len(there)]
        assert seat.application is not None
        command = {
            "do": "send",
            "name": self.part,
            "n": message,
            "topic": topic,
            "body": str(message),
            "size": 0,
            "keys": f"key-{message}",
            "properties": {
                "local": ANSWERS[local],
                "checked": ANSWERS[checked],
                **({} if immunity_s is None else {IMMUNITY: str(immunity_s)}),
            },
        }
        try:
            async with asyncio.timeout(deadline_s):
                event = await seat.application.call(command, "sent", deadline_s)
        except TimeoutError:
            return HalfSent(Sent(Outcome("info", "timed out: the producer did not report a result")), seat.name)
        except ApplicationError as problem:
            return HalfSent(Sent(Outcome("info", str(problem))), seat.name)
        return self._half_of(event.fields, seat.name)

    def _half_of(self, fields: Mapping[str, Any], member: str) -> HalfSent:
        attempts = fields.get("attempts") or [{}]
        node = self._node_at(attempts[-1].get("address") or "")
        sent = half_sent(fields, raft_log=self._raft_log)
        return HalfSent(sent, member, attempts[-1].get("queue"), node, fields.get("transaction"))

    async def take(self, member: str, wait_s: float) -> list[Shown]:
        seat = self.seats[member]
        if seat.ready and seat.application is not None:
            seat.ticks += 1
            with suppress(InfraError):  # it has ended, as the take itself reports
                await seat.application.tell({"do": "tick", "name": self.part, "n": seat.ticks})
        return await super().take(member, wait_s)

    def facts(self, member: str) -> Mapping[str, Any]:
        seat = self.seats[member]
        return {"tick": seat.ticks} if seat.ticks else {}

    def joined(self, seat: ProducerSeat) -> None:
        seat.ready, seat.ticks = False, 0

    def hear(self, seat: ProducerSeat, event: Shown, life: int) -> None:
        if event[0] == "started" and life == seat.joins:
            seat.ready = True

    def show(self, fields: Mapping[str, Any]) -> Shown | None:
        if fields["event"] != "decided":
            return show_any(fields)
        answer, identity = _ANSWER_OF.get(fields["state"]), id_of(str(fields["body"]).encode())
        node = self._node_at(fields.get("address") or "")
        return ["decided", identity, answer, node, fields["asked"], fields["tick"]]


def timeout_ms(deadline_s: float) -> int:
    """The library's own time limit of a send."""
    return max(1, int((deadline_s - MARGIN_S) * 1000))


def half_sent(fields: Mapping[str, Any], *, raft_log: bool) -> Sent:
    """The result of a half message, from the event `sent` or `failed` with all attempts that the library made.

    A send that failed certainly stored nothing if each of its attempts certainly did not; without any, nothing was
    sent. A failure without its attempts is none of the send itself: its outcome is unknown.
    """
    attempts = fields.get("attempts")
    if fields["event"] == "sent":
        return sent_of({**fields, "stored": (attempts or [{}])[-1].get("stored")}, raft_log=raft_log)
    if attempts is None:
        return sent_of({"event": "failed", "error": "unknown", "why": fields.get("why")}, raft_log=raft_log)
    if not attempts:
        return Sent(Outcome("fail", f"nothing was sent: {fields.get('error')}: {fields.get('why')}"))
    results = [sent_of({"event": "failed", **attempt}, raft_log=raft_log) for attempt in attempts]
    return next((sent for sent in results if sent.outcome.type != "fail"), results[-1])
