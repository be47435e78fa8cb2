# SPDX-License-Identifier: Apache-2.0
"""The client of the workload `gray`: the ops of members, producers and the operator, each one attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from harness.api import Completion
from infra.systems.remoting.connection import RemotingError
from infra.systems.remoting.frame import Frame
from infra.systems.rocketmq.message_body import body_of
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin, NameServer
from infra.systems.rocketmq.protocol.client import Pulled
from infra.systems.rocketmq.protocol.codes import Request
from infra.systems.rocketmq.protocol.groups import retry_topic
from results.op import OK, Op
from workloads.brokers import BODY_SIZE, READ_DEADLINE_S
from workloads.gray.centre import Centre
from workloads.gray.flags import Flags, NoFlags
from workloads.gray.members import Consuming
from workloads.gray.split import Counts, Scheme, Split
from workloads.heartbeats import Heartbeats
from workloads.places import Queue, queue_of
from workloads.queue import QueueOps


@dataclass(frozen=True)
class Habits:
    """The members' way to consume. failing: the share of messages (%) that they fail to process; they send these back,
    or, with pop, do not acknowledge them.
    """

    consume: Consuming = "concurrently"
    failing: float = 0.0


DEFAULT: Final = Habits()

ASK_S: Final = 0.5
"""The longest time for an answer of a name server: a rebalance must not wait for one that is cut off."""


class GrayOps(QueueOps):
    """One process: a member, a producer, or the operator. Their common state is in `centre`."""

    centre: Centre
    split: Split
    group: str
    flags: Flags
    name_servers: Mapping[str, NameServer]

    def furnish(
        self,
        centre: Centre,
        split: Split,
        group: str,
        scheme: Scheme,
        servers: Mapping[str, tuple[str, int]],
        namespace: str,
        first: int,
        habits: Habits = DEFAULT,
    ) -> None:
        """Sets the state that other clients do not have. `servers`: node -> host and port of its name server; `first`:
        the place of the one that it uses first.
        """
        self.scheme, self.habits = scheme, habits
        self._locked: set[Queue] = set()
        self._to_unlock: set[Queue] = set()
        self._popped: dict[tuple[str, int], list[Any]] = {}
        self._physical: dict[tuple[str, int], int] = {}
        self.centre, self.split, self.group = centre, split, group
        self.name_servers = {node: NameServer(*at, deadline_s=ASK_S) for node, at in servers.items()}
        self.flags, self._first = Flags(self.name_servers, namespace, scheme), first
        self.flags.use(first)
        self._heartbeats: Heartbeats | None = None
        self._member = ""
        self._changed = False

    async def close(self) -> None:
        await self._end()
        for server in self.name_servers.values():
            await server.close()
        await super().close()

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "send":
                return await self._send_coloured(op)
            case "look":
                return await self._look()
            case "join":
                return await self._join(op)
            case "leave" | "crash":
                return await self._away(op)
            case "assign" if self.habits.consume == "orderly" and "member" in op.extra:
                return await self._assign(op)
            case "send-back":
                return await self._send_back(op)
            case "ack":
                self._popped.pop((op.extra["queue"], op.extra["offset"]), None)
            case "rebalance":
                return self._noticed(op, await self._rebalance(op))
            case "flag":
                return await self._flag(op)
            case "sending":
                return await self._sending(op)
            case "lag":
                return await self._lag()
            case "expand":
                return await self._expand(op)
            case "restart":
                self.centre.restarts.add(op.value)
                return Completion("ok", op.value)
        return self._noticed(op, await super().invoke(op))

    async def pull(
        self, queue: Queue, node: str, offset: int, group: str | None = None, deadline_s: float = READ_DEADLINE_S
    ) -> Pulled:
        pulled = await super().pull(queue, node, offset, group, deadline_s)
        if self.habits.failing:
            self._physical = {(queue.key, message.offset): message.physical for message in pulled.messages}
        return pulled

    # Members.

    async def _join(self, op: Op) -> Completion:
        """Starts heartbeats to all brokers, under a new client id, and writes its flag to the name servers. A member
        that is in the group already (a new phase began) stays unchanged.
        """
        member = self._member = op.extra["member"]
        extra = self._who(op)
        if self._heartbeats is not None:
            extra |= {"gray": self.centre.colours[member], "popped": list(self._popped.values())}
            return Completion("ok", self.centre.clients[member], extra=extra)
        # A member that joins again begins with another name server, as if it had drawn one.
        self.flags.use(self._first + self.centre.joins[member])
        client = self.centre.clients[member] = self.centre.client_id(member)
        await self._begin(client)
        gray = self.centre.colours[member]
        written = await self.flags.write(client, gray, self.centre.version())
        if not self.flags.holds(written):
            await self._end()
            return Completion("fail", None, "not enough name servers took its flag; it left again", extra)
        return Completion("ok", client, extra={**extra, "gray": gray, "taken": list(written.taken)})

    async def _begin(self, client: str) -> None:
        topics = [*dict.fromkeys(queue.topic for queue in self.places.queues), retry_topic(self.group)]
        self._heartbeats = Heartbeats(self.places.endpoints, client, self._hear, consumers=[self.group], topics=topics)
        await self._heartbeats.first()

    def _hear(self, node: str, frame: Frame) -> None:
        """Takes a broker's pushed frame: the members have changed (40); it ignores all others."""
        self._changed |= frame.code == Request.NOTIFY_CONSUMER_IDS_CHANGED

    async def _away(self, op: Op) -> Completion:
        """Leaves in an orderly way, or crashes: brokers notice that the connections are closed."""
        if op.f == "leave" and self._heartbeats is not None:
            await self._unlock(set())
            heartbeats, self._heartbeats = self._heartbeats, None
            await heartbeats.leave(self.group)
        await self._end()
        return Completion("ok", None, extra=self._who(op))

    async def _end(self) -> None:
        """Removes it from the group."""
        heartbeats, self._heartbeats = self._heartbeats, None
        self._locked.clear()
        self._to_unlock.clear()
        self._popped.clear()
        if heartbeats is not None:
            if self.centre.clients.get(self._member) == heartbeats.client_id:
                del self.centre.clients[self._member]
            await heartbeats.end()

    async def _rebalance(self, op: Op) -> Completion:
        """Computes this member's queues from the broker's list of clients, the routes, and the flags."""
        self._changed = False
        extra = {**self._who(op), "name_server": self.flags.chosen}
        client = self.centre.clients[op.extra["member"]]
        try:
            flags = await self.flags.read()
            extra["name_server"] = self.flags.chosen
            counts = await self._counts()
            clients = await self._consumers()
        except (NoFlags, RemotingError, AdminError) as problem:
            return Completion("fail", None, str(problem), extra)
        topics = {self.places.topic: (self.split, counts), **self._retries()}
        value = {
            "queues": [
                Queue(topic, *place).key
                for topic, (split, of) in topics.items()
                for place in split.share(client, clients, flags, of)
            ],
            **{
                name: [
                    Queue(topic, *place).key
                    for topic, (split, of) in topics.items()
                    for place in split.queues(of, gray)
                ]
                for name, gray in (("gray", True), ("base", False))
            },
            "clients": {other: flags.get(other, False) for other in sorted(clients)},
            "of": counts,
        }
        return Completion("ok", value, extra=extra)

    def _retries(self) -> dict[str, tuple[Split, Counts]]:
        """The queues with messages that members sent back, as in the published scheme: each topic's first queue is
        gray, and this topic has only one on a broker.
        """
        if not self.habits.failing or self.scheme == "cured" or self.habits.consume == "pop":
            return {}
        return {retry_topic(self.group): (Split(), dict.fromkeys(self.places.groups, 1))}

    async def _assign(self, op: Op) -> Completion:
        """Locks these queues, or prolongs the locks, and unlocks others; it then has those that were granted."""
        wanted = {queue_of(key) for key in op.value}
        await self._unlock(wanted)
        client = self.centre.clients[op.extra["member"]]
        for group in {queue.group for queue in wanted}:
            node = await self.master(group)
            if node is None:
                self._locked -= {queue for queue in self._locked if queue.group == group}
                continue
            mine = {queue for queue in wanted if queue.group == group}
            places = [(queue.topic, queue.group, queue.number) for queue in mine]
            found = await self.at(node).lock_queues(client, places, group=self.group, deadline_s=ASK_S)
            self.learn(group, node, found.outcome)
            granted = {queue for queue in mine if (queue.topic, queue.group, queue.number) in found.queues}
            self._locked = {queue for queue in self._locked if queue.group != group} | granted
            if found.outcome.type == "info":
                self._to_unlock |= mine
        held = [key for key in op.value if queue_of(key) in self._locked]
        return Completion("ok", held, extra={**self._who(op), "wanted": op.value})

    async def _unlock(self, wanted: Set[Queue]) -> None:
        """Unlocks all other queues, also those for which the grant is uncertain."""
        self._to_unlock = (self._to_unlock | self._locked) - wanted
        self._locked &= wanted
        for queue in sorted(self._to_unlock, key=lambda queue: queue.key):
            node, heartbeats = await self.master(queue.group), self._heartbeats
            if node is None or heartbeats is None:
                continue
            place = (queue.topic, queue.group, queue.number)
            done = await self.at(node).unlock_queues(heartbeats.client_id, [place], group=self.group, deadline_s=ASK_S)
            self.learn(queue.group, node, done.outcome)
            if done.outcome.type == OK:
                self._to_unlock.discard(queue)

    def _failed(self, op: Op, done: Completion) -> list[list[int]]:
        """[offset, id] of the messages of an answer that this member fails to process, each once in a run."""
        if not self.habits.failing or done.type != OK or not done.value:
            return []
        received = done.value if op.f == "consume" else [[offset, message] for _, offset, message, *_ in done.value]
        found = [
            [offset, message]
            for offset, message in received
            if isinstance(message, int)
            and message not in self.centre.returned
            and Random(message).random() * 100 < self.habits.failing
        ]
        self.centre.returned |= {message for _, message in found}
        return found

    async def _send_back(self, op: Op) -> Completion:
        """Sends a message back. document: the broker delivers it once more, from the group's one retry queue. cured: it
        is sent once more to its original queue, which has its colour.
        """
        queue, (offset, message) = queue_of(op.key), op.value
        extra = self._who(op)
        node = await self.master(queue.group)
        if node is None:
            return Completion("fail", op.value, f"no-master: {self.masters.silence}; nothing was sent", extra)
        if self.scheme == "cured":
            body = body_of(message, BODY_SIZE)
            outcome = (await self.at(node).send(queue.topic, queue.number, body)).outcome
        else:
            physical = self._physical[queue.key, offset]
            outcome = (await self.at(node).send_back(queue.topic, physical, group=self.group)).outcome
        self.learn(queue.group, node, outcome)
        return Completion(outcome.type, op.value, outcome.why or None, {**extra, "node": node})

    async def _consumers(self) -> list[str]:
        """The group's client ids, from one of the brokers, as clients request them."""
        for group in self.places.groups:
            node = await self.master(group)
            if node is None:
                continue
            async with BrokerAdmin(*self.places.endpoints[node], deadline_s=ASK_S) as broker:
                try:
                    return await broker.consumers(self.group)
                except AdminError:
                    return []
                except RemotingError:
                    self.look_again(group, ASK_S)
        raise NoFlags("no broker returned the members of the group")

    def _noticed(self, op: Op, done: Completion) -> Completion:
        """The completion with the notifications that the member has received meanwhile."""
        member = op.extra.get("member")
        heard: dict[str, Any] = {} if member is None else {"member": member}
        if member is not None and op.f in ("consume", "pop") and (self._changed or member in self.centre.turned):
            self.centre.turned.discard(member)
            heard["changed"] = True
        if member is not None and op.f in ("consume", "pop") and (failed := self._failed(op, done)):
            heard["failed"] = failed
        if member is not None and op.f == "pop" and done.type == OK:
            left = [message for _, message in heard.get("failed", ())]
            self._popped |= {(row[0], row[1]): row for row in done.value if row[2] not in left}
        if member in self.centre.restarts:
            self.centre.restarts.discard(member)
            heard["restart"] = True
        return Completion(done.type, done.value, done.error, {**done.extra, **heard}) if heard else done

    def _who(self, op: Op) -> dict[str, Any]:
        return {"group": self.group, "member": op.extra["member"]}

    # Producers.

    async def _send_coloured(self, op: Op) -> Completion:
        """Sends one message to the queue that the producer chose; gray ones only while that is allowed."""
        gray = op.extra["colour"] == "gray"
        if gray and not self.centre.sending:
            return Completion("fail", op.value, "gray producers do not send now; nothing was sent")
        self.centre.open += gray
        try:
            return await self.send(op)
        finally:
            self.centre.open -= gray

    async def _look(self) -> Completion:
        """The queues of the topic, by the name server of this client."""
        try:
            counts = await self._counts()
        except (RemotingError, AdminError) as problem:
            return Completion("fail", None, str(problem), {"name_server": self.flags.chosen})
        return Completion("ok", counts, extra={"name_server": self.flags.chosen})

    async def _counts(self) -> Counts:
        """Broker group -> number of queues. If the name server does not answer, the client uses the next one."""
        try:
            route = await self.name_servers[self.flags.chosen].route(self.places.topic) or {}
        except RemotingError:
            self.flags.next()
            raise
        return {
            queues["brokerName"]: int(queues["readQueueNums"])
            for queues in route.get("queueDatas") or []
            if queues["brokerName"] in self.places.groups
        }

    # The operator.

    async def _flag(self, op: Op) -> Completion:
        """Sets a member's colour: for its later clients, and in the flag of its current one."""
        member, gray = op.value["member"], op.value["gray"]
        before, self.centre.colours[member] = self.centre.colours[member], gray
        client = self.centre.clients.get(member)
        if client is None:
            return Completion("ok", op.value)
        written = await self.flags.write(client, gray, self.centre.version())
        extra = {"client": client, "taken": list(written.taken), "missed": [*written.refused, *written.unsure]}
        if self.flags.holds(written):
            self.centre.turned.add(member)
            return Completion("ok", op.value, extra=extra)
        self.centre.colours[member] = before
        certain = not written.taken and not written.unsure
        return Completion("fail" if certain else "info", op.value, "not enough name servers took the flag", extra)

    async def _sending(self, op: Op) -> Completion:
        """Lets gray producers send, or stops them, and waits until no gray send is under way."""
        self.centre.sending = op.value
        if op.value or await self.centre.quiet(self.deadline_s / 2):
            return Completion("ok", op.value)
        return Completion("fail", op.value, "a gray send is still under way")

    async def _lag(self) -> Completion:
        """Messages of each gray queue above the committed offset."""
        found: dict[str, int] = {}
        deadline = min(READ_DEADLINE_S, self.deadline_s)
        try:
            counts = await self._counts()
        except (RemotingError, AdminError) as problem:
            return Completion("fail", None, str(problem))
        topic = self.places.topic
        for group, number in self.split.queues(counts, True):
            node = await self.master(group)
            if node is None:
                return Completion("fail", None, f"no-master: {self.masters.silence}; nothing was sent")
            broker = self.at(node)
            end = await broker.max_offset(topic, number, deadline_s=deadline)
            committed = await broker.committed_offset(topic, number, self.group, deadline_s=deadline)
            for answer in (end, committed):
                self.learn(group, node, answer.outcome)
                if answer.outcome.type != "ok":
                    return Completion("fail", None, answer.outcome.why, {"node": node})
            found[Queue(topic, group, number).key] = (end.value or 0) - (committed.value or 0)
        return Completion("ok", found) if found else Completion("fail", None, "the routes name no queue")

    async def _expand(self, op: Op) -> Completion:
        """Adds queues to the topic's original number, on every broker, slaves included."""
        queues = len({queue.number for queue in self.places.queues}) + op.value

        async def one(node: str) -> None:
            async with BrokerAdmin(*self.places.endpoints[node], deadline_s=self.deadline_s / 2) as broker:
                await broker.create_topic(self.places.topic, queues)

        found = await asyncio.gather(*map(one, self.places.endpoints), return_exceptions=True)
        wrong = next((f for f in found if isinstance(f, RemotingError | AdminError)), None)
        if wrong is not None:
            return Completion("info", op.value, str(wrong))
        return Completion("ok", op.value, extra={"queues": queues})
