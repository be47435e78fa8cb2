# SPDX-License-Identifier: Apache-2.0
"""The client of the workloads that send messages: single attempts at brokers, and their answers as completions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.api import Completion
from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.message_body import body_of, id_of
from infra.systems.rocketmq.protocol.admin import AdminError
from infra.systems.rocketmq.protocol.client import Broker, Pulled, Sent
from infra.systems.rocketmq.protocol.link import Answer
from infra.systems.rocketmq.protocol.messages import Message
from infra.systems.rocketmq.protocol.outcomes import STATUSES
from results.op import UNREADABLE, Op
from workloads.clients import Foreign
from workloads.masters import Masters
from workloads.places import Queue, TopicLayout, queue_of, remake

BODY_SIZE: Final = 100
"""Bytes of a message's body."""

READ_DEADLINE_S: Final = 1.0
"""A read has no effect, so nothing is lost with one that is given up early, and readers continue to the next node."""

_REFUSED_PAUSE_S: Final = 0.05
"""The pause of a client after a refusal, before its next send: without a master, a thousand refusals a second show
nothing more than a hundred."""

PULL_LIMIT: Final = 256
"""Messages in an answer. The broker's own limit of 32 would let readers fall behind while some nodes do not answer."""

_CHUNK: Final = 2048
"""The largest number of messages of a final read, which also ends after half of its time."""


Show = Callable[[Sequence[Message], dict[str, Any]], Completion]


@dataclass
class Beliefs:
    """The node that a logical process considers the master of each group.

    Clients of the process share it one after another: an op that ends as `info` ends its client as well.
    """

    masters: dict[str, str] = field(default_factory=dict)
    doubted: dict[str, str] = field(default_factory=dict)
    """The node that did not act as the master: the next look does not accept it from the other clients' cache."""

    def believe(self, group: str, node: str) -> None:
        self.masters[group] = node
        self.doubted.pop(group, None)

    def doubt(self, group: str, node: str) -> None:
        self.masters.pop(group, None)
        self.doubted[group] = node


class BrokerClient:
    """The connections of one logical process to the brokers.

    Clients with `sticky_master` stay with the master they found until it reports itself that it is none: no time-out,
    no uncertain answer, and no answer of controllers or name servers changes that. So they receive all acknowledgements
    of a master that was cut off. The others look it up again after everything that is not `ok`.
    """

    def __init__(
        self,
        places: TopicLayout,
        masters: Masters,
        beliefs: Beliefs,
        deadline_s: float,
        sticky_master: bool,
        foreign: Foreign | None = None,
    ) -> None:
        self.places, self.masters, self.deadline_s = places, masters, deadline_s
        self.sticky_master = sticky_master
        self.foreign = foreign
        """The other program's producer that sends, or None: this client sends itself."""
        self._beliefs = beliefs
        """Group -> node. It belongs to the thread, so that a process that ends leaves it to the next one."""
        self._looked: dict[str, float] = {}
        self._refused = False
        self._links: dict[str, Broker] = {}
        self._former: list[Broker] = []
        """Links to addresses that nodes no longer have."""

    async def open(self) -> None:
        """Does nothing: the first op that needs a connection makes it."""

    async def close(self) -> None:
        for link in (*self._links.values(), *self._former):
            await link.close()
        if self.foreign is not None:
            await self.foreign.close()

    async def invoke(self, op: Op) -> Completion:
        """The ops that all workloads with messages have. Raises ValueError for another one."""
        match op.f:
            case "poll":
                return await self.poll(op)
            case "replica-read":
                return await self.replica_read(op)
            case "remake":
                return await self.remake(op)
        raise ValueError(f"a client of brokers does not know {op.f!r}")

    def at(self, node: str) -> Broker:
        """The link to a node's broker, at the node's current address."""
        now = self.places.endpoints[node]
        if node in self._links and (self._links[node].host, self._links[node].port) != now:
            self._former.append(self._links.pop(node))
        if node not in self._links:
            self._links[node] = Broker(*now, deadline_s=self.deadline_s, raft_log=self.places.raft_log)
        return self._links[node]

    async def send(self, op: Op, properties: Mapping[str, str] | None = None) -> Completion:
        """Sends one message to a queue, at the node that this client considers the master: at most one attempt.
        `properties`: the message's, if the harness' own client sends it.
        """
        queue = queue_of(op.key)
        end = asyncio.get_running_loop().time() + self.deadline_s
        await self.pause()
        if self.foreign is not None:
            return await self._send_by(self.foreign, op, end)
        node = await self.master(queue.group)
        left = end - asyncio.get_running_loop().time()
        if node is None or left <= 0:
            return self.refused(op)
        body = body_of(op.value, BODY_SIZE)
        sent = await self.at(node).send(queue.topic, queue.number, body, properties=properties, deadline_s=left)
        self.learn(queue.group, node, sent.outcome)
        return sent_completion(sent, op.value, {"node": node})

    def refused(self, op: Op) -> Completion:
        """The completion of a send without a known master."""
        self._refused = True
        return Completion("fail", op.value, f"no-master: {self.masters.silence}; nothing was sent")

    async def _send_by(self, foreign: Foreign, op: Op, end: float) -> Completion:
        """Sends one message by another program's producer, which finds the master by itself."""
        left = end - asyncio.get_running_loop().time()
        sent = await foreign.send(queue_of(op.key).topic, body_of(op.value, BODY_SIZE), left)
        self._refused = sent.outcome.type != "ok"
        return sent_completion(sent, op.value, {})

    async def master(self, group: str) -> str | None:
        """The node that this client considers the master of a group."""
        believed, refused_by = self._beliefs.masters.get(group), self._beliefs.doubted.get(group)
        if believed is None or refused_by is not None:
            believed = await self.masters.find(group, refused_by=refused_by)
            if believed is not None:
                self._beliefs.believe(group, believed)
        return believed

    def look_again(self, group: str, every_s: float) -> None:
        """Makes the next `master` look it up again, at most once in `every_s` seconds."""
        now = asyncio.get_running_loop().time()
        if now - self._looked.get(group, float("-inf")) < every_s:
            return
        self._looked[group] = now
        believed = self._beliefs.masters.get(group)
        if believed is not None:
            self._beliefs.doubt(group, believed)

    async def pause(self) -> None:
        """Waits for a moment if the last answer was a refusal."""
        if self._refused:
            await asyncio.sleep(_REFUSED_PAUSE_S)

    def learn(self, group: str, node: str, outcome: Outcome) -> None:
        """Records the outcome of a request to a node as the master."""
        self._refused = outcome.type == "fail"
        if self._refused or (outcome.type == "info" and not self.sticky_master):
            self._beliefs.doubt(group, node)

    async def poll(self, op: Op) -> Completion:
        """One pull from a node, in any role."""
        queue, node = queue_of(op.key), op.extra["node"]
        pulled = await self.pull(queue, node, op.value)
        extra = {"node": node, "role": "master" if self.masters.known(queue.group) == node else "slave"}
        return read_completion(pulled, pulled.messages, extra)

    async def pull(
        self, queue: Queue, node: str, offset: int, group: str | None = None, deadline_s: float = READ_DEADLINE_S
    ) -> Pulled:
        return await self.at(node).pull(
            queue.topic,
            queue.number,
            offset,
            group=group or self.places.readers,
            max_messages=PULL_LIMIT,
            deadline_s=min(deadline_s, self.deadline_s),
        )

    async def replica_read(self, op: Op, show: Show | None = None) -> Completion:
        """A stretch of a queue from one node, in as many pulls as it takes; `done` when its end was reached. `show`
        makes the completion from the messages and the other fields; None: each message is [offset, id].
        """
        queue, node, at = queue_of(op.key), op.extra["node"], op.value
        loop = asyncio.get_running_loop()
        end = loop.time() + self.deadline_s
        found: list[Message] = []
        while True:
            pulled = await self.pull(queue, node, at, deadline_s=end - loop.time())
            if pulled.outcome.type != "ok" and not found:
                return read_completion(pulled, (), {"node": node})
            found += pulled.messages
            if pulled.messages:
                # If entries of a queue are missing, a message is in front of its own offset: `next` is right there.
                behind = pulled.messages[-1].offset + 1
                at = max(at + 1, behind if pulled.next is None else min(behind, pulled.next))
            done = pulled.max is not None and at >= pulled.max
            if not pulled.messages and not done and pulled.min is not None and at < pulled.min:
                at = pulled.min  # older messages were deleted
            elif done or not pulled.messages or len(found) >= _CHUNK or loop.time() > end - self.deadline_s / 2:
                reported = {name: n for name, n in (("min", pulled.min), ("max", pulled.max)) if n is not None}
                if found:
                    reported["next"] = at
                return (show or _shown)(found, {"node": node, "done": done, **reported})

    async def remake(self, op: Op) -> Completion:
        """Makes the run's topics and consumer groups that the master of a broker group (`op.value`) has forgotten
        again. The completion has their names.
        """
        extra = {"group": op.value}
        node = await self.master(op.value)
        if node is None:
            return Completion("fail", op.value, f"no-master: {self.masters.silence}; nothing was asked", extra)
        extra["node"] = node
        try:
            return Completion("ok", await remake(self.places, op.value, node), extra=extra)
        except (RemotingError, AdminError) as problem:
            self.learn(op.value, node, Outcome("fail", ""))
            return Completion("fail", op.value, str(problem), extra)

    async def edge(self, op: Op) -> Completion:
        """`max-offset` or `min-offset` of a queue at a node."""
        queue, node = queue_of(op.key), op.extra["node"]
        broker = self.at(node)
        ask = broker.max_offset if op.f == "max-offset" else broker.min_offset
        answer = await ask(queue.topic, queue.number, deadline_s=min(READ_DEADLINE_S, self.deadline_s))
        return Completion(answer.outcome.type, answer.value, answer.outcome.why or None, {"node": node})


def sent_completion(sent: Sent, message: int, extra: dict[str, Any]) -> Completion:
    """A send's completion, with the other fields of the broker's answer in `extra`."""
    if sent.code is not None:
        extra["code"] = sent.code
    if sent.message_id is not None:
        extra["message_id"] = sent.message_id
    if sent.recall is not None:
        extra["recall"] = sent.recall
    if sent.outcome.type == "ok":
        return Completion("ok", [sent.offset, message], extra=extra)
    if sent.outcome.type == "info" and (status := STATUSES.get(sent.code or 0)) is not None:
        extra["status"] = status
        if sent.offset is not None:
            extra["offset"] = sent.offset
    return Completion(sent.outcome.type, message, sent.outcome.why, extra)


def answered(answer: Answer, message: int, extra: dict[str, Any]) -> Completion:
    """The completion of a recall or of the end of a transaction, with the code of the answer in `extra`."""
    if answer.code is not None:
        extra["code"] = answer.code
    return Completion(answer.outcome.type, message, answer.outcome.why or None, extra)


def outcome_completion(
    outcome: Outcome, requested: Any, value: Any, code: int | None, extra: dict[str, Any]
) -> Completion:
    """With `value` if it is ok, else with `requested` and the reason."""
    if code is not None:
        extra["code"] = code
    if outcome.type == "ok":
        return Completion("ok", value, extra=extra)
    return Completion(outcome.type, requested, outcome.why, extra)


def read_completion(pulled: Pulled, messages: Sequence[Message], extra: dict[str, Any]) -> Completion:
    """A read's completion: the messages as [offset, id], and the other fields of the broker's answer in `extra`."""
    reported = {"min": pulled.min, "max": pulled.max, "next": pulled.next, "code": pulled.code}
    extra |= {name: value for name, value in reported.items() if value is not None}
    if pulled.unreadable:
        extra[UNREADABLE] = True
    if pulled.outcome.type != "ok":
        return Completion("fail", None, pulled.outcome.why, extra)
    return _shown(messages, extra)


def _shown(messages: Sequence[Message], extra: dict[str, Any]) -> Completion:
    return Completion("ok", [[message.offset, shown_id(message)] for message in messages], extra=extra)


def shown_id(message: Message) -> int | str:
    """The message's id; for a body that does not match its checksum, `?` and its bytes: no client sent it."""
    return id_of(message.body) if message.intact else f"?{message.body[:16].hex()}"
