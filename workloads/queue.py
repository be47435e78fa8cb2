# SPDX-License-Identifier: Apache-2.0
"""Messages of a topic, consumed by a group: commits must stay, and no message may be skipped.

Producers are those of `log`. Consumers pull from the master, commit, crash and rebalance (`consuming`), or they pop and
acknowledge (`popping`). With `--resets`, an administrator resets the group's offsets meanwhile (`resets`). At the end,
the group consumes every queue to its end. The broker's own figures (the committed offset and the end of the queue)
prove this. Then the harness reads every replica completely, by its address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import harness.generator as gen
from harness.api import Client, Completion, RunContext
from harness.generator import Generator
from harness.plan.plan import Plan, PlanError
from infra.options import Seconds, option
from infra.systems.outcome import Outcome
from results.deployment import DeploymentRecord
from results.figures import SECOND
from results.op import UNREADABLE, Op
from workloads.brokers import READ_DEADLINE_S, BrokerClient, outcome_completion, read_completion, shown_id
from workloads.clients import Foreign
from workloads.consuming import Consumers, Drain
from workloads.log import LogOptions, LogWorkload
from workloads.messages import HANDING_NOTHING_OVER, reader_count
from workloads.places import Queue, queue_of
from workloads.popping import INVISIBLE_MS, PopDrain, Poppers
from workloads.proxy_pops import pop_by_proxy, proxy_settings, start_at_zero
from workloads.resets import RESET, Resets, reset

if TYPE_CHECKING:
    from checkers.base.api import Checker

CONSUMER_SHARE: Final = 1 / 11
"""Of all ops: 1,000 sends and 100 of consumers a second."""

POP_SHARE: Final = 0.6
"""A pop brings a few messages, and each takes an acknowledgement of its own."""

POP_BATCH: Final = 8
"""Messages of one pop: few, so that their acknowledgements come well within the time they are invisible."""

_HELPED: Final = 2
"""The number of successive empty pops after which a consumer leaves the rest to the one that proves the end."""

ROUTE_S: Final = 5.0
"""A slave that acted for its master pops and acknowledges also afterwards, and never redirects a client. So a client
that pops reads the routes regularly, as all clients do (RocketMQ's own every 30 s).
"""


@dataclass(frozen=True)
class QueueOptions(LogOptions):
    """The options of the workload."""

    consume: Literal["pull", "pop"] = option("pull", "How the group consumes: pull (and commit) or pop (and ack).")
    invisible: Seconds = option(
        Seconds(INVISIBLE_MS / 1000),
        "With pop: for so long a message that one consumer took is hidden from the others.",
        low=1,
        high=300,
    )
    resets: Seconds = option(
        Seconds(0),
        "How often an administrator resets the group's offsets: of one queue to an offset, or of all to a time or to "
        "the end. 0: never.",
    )


class QueueWorkload(LogWorkload):
    """Sends, and a consumer group that pulls and commits, or pops; afterwards it drains the topic."""

    name = "queue"
    summary = "a consumer group that pulls or pops, with crashes and rebalances: no message or offset may be lost"
    prefix = "queue"
    judged_ops: ClassVar[Set[str]] = LogWorkload.judged_ops | {
        "consume", "commit", "committed", "drain", "join", "leave", "rebalance", "pop", "ack", "extend", RESET
    }  # fmt: skip
    Options: ClassVar[type] = QueueOptions

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.group = ""
        self.pops = self.options.consume == "pop"
        self.invisible_ms = int(self.options.invisible * 1000)
        self.proxied = self.pops and plan.client == "grpc"
        if self.pops and plan.client == "native":
            raise PlanError("client is 'native'; with --consume pop only remoting and grpc are right")
        if self.proxied and plan.server.topology not in (None, *HANDING_NOTHING_OVER):
            raise PlanError(
                f"topology is {plan.server.topology!r}; with --consume pop and --client grpc only "
                f"{', '.join(HANDING_NOTHING_OVER)} are right"
            )
        if self.options.resets and plan.concurrency < 3:
            raise PlanError(
                f"concurrency is {plan.concurrency}; with --resets, {self.name} needs 3 clients: an administrator, a "
                "consumer and a producer"
            )

    async def setup(self, context: RunContext) -> None:
        """Makes the topic and the group on every broker."""
        self.group = f"consumers-{context.run}"
        groups = context.deployment.record.groups if self.pops else {}
        await self.make(context, [self.group, *_escape_readers(groups)])
        if self.proxied:
            await start_at_zero(self.places, self.group)

    def client(self, context: RunContext, thread: int) -> Client:
        return self.connect(QueueOps, thread)

    def generator(self, rng: Random, phase: str) -> Generator:
        seed = rng.getrandbits(32)
        rate = self.plan.rate or self.default_rate
        if self.pops:
            consumers = gen.rate(rate * POP_SHARE, Poppers(self.group, tuple(self._sources()), seed, self.invisible_ms))
        else:
            consumers = gen.rate(rate * CONSUMER_SHARE, Consumers(self.group, self.places.keys, seed))
        count, sends = reader_count(self.plan.concurrency - bool(self.options.resets)), self.sends()
        load = gen.reserve(count, consumers, default=sends)
        if not self.options.resets:
            return load
        every = int(self.options.resets * SECOND)
        admin = Resets(self.group, self.places.keys, tuple(self._sources()), every, rng.getrandbits(32))
        return gen.any_(admin, gen.reserve(1, None, default=load))

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """Every queue consumed to its end, then every queue of every replica read through. One consumer alone pops too
        slowly for the rest of a whole run, so all consumers pop first. Then one per source proves that it is empty.
        """
        if not self.pops:
            drains = [Drain(self.group, queue.key) for queue in self.places.queues]
            return self.final_phases(gen.clients(gen.any_(*drains)), self.read_replicas())
        sources = self._sources()
        each = max(1, self.plan.concurrency // len(sources))
        helpers = [PopDrain(self.group, s, (), self.invisible_ms, enough=_HELPED) for s in sources for _ in range(each)]
        proofs = [PopDrain(self.group, source, tuple(of), self.invisible_ms) for source, of in sources.items()]
        popped = [gen.clients(gen.any_(*helpers)), gen.clients(gen.any_(*proofs))]
        return self.final_phases(*popped, self.read_replicas())

    def _sources(self) -> dict[str, list[str]]:
        """The sources of pops: all queues of a broker group at once -> the keys of these queues."""
        found: dict[str, list[str]] = {}
        for queue in self.places.queues:
            found.setdefault(replace(queue, number=-1).key, []).append(queue.key)
        return found

    def server_settings(self) -> Mapping[str, str]:
        settings = super().server_settings()
        if self.proxied:
            settings = {**settings, **proxy_settings(self.plan.server.version)}
        return {**settings, "broker.useServerSideResetOffset": "true"} if self.options.resets else settings

    @classmethod
    def judges(cls, fs: Set[str], identified: bool) -> Sequence[Checker] | None:
        from checkers.messages.queue import Deliveries, Leases, Offsets, Replays

        chosen = [*(super().judges(fs, identified) or ()), Deliveries()]
        if fs & {"commit", "committed"}:
            chosen.append(Offsets())
        if "pop" in fs:
            chosen.append(Leases())
        if RESET in fs:
            chosen.append(Replays())
        return chosen

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.queue import Deliveries, Leases, Offsets, Replays

        every = deployment.traits.offsets_copied_s or 10.0
        within = every + max(5.0, every / 4)
        group = Leases(copied_within_s=within) if self.pops else Offsets(within)
        replays = [Replays(within)] if self.options.resets else []
        return [*super().judged(deployment), Deliveries(within), group, *replays]

    @property
    def needed(self) -> Sequence[str]:
        needed = ["send", "pop", "ack"] if self.pops else ["send", "consume", "commit"]
        return [*needed, RESET] if self.options.resets else needed


def _escape_readers(groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The groups under which brokers read messages of other broker groups (`EscapeBridge`). A popped message that an
    acting master handed over does not return without them: 26, where groups are not made by themselves.
    """
    if len(groups) < 2:
        return []
    return [f"InnerConsumerGroup_{group}_{number}" for group, nodes in groups.items() for number in range(len(nodes))]


class QueueOps(BrokerClient):
    """The workload's client: sends, and the requests of consumers to the master."""

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "send":
                return await self.send(op)
            case "assign" | "crash":
                return Completion("ok", op.value, extra={"group": op.extra["group"]})
            case "consume" | "commit" | "committed" | "drain" | "pop" | "ack" | "extend" | "reset":
                return await self._at_master(op)
        return await super().invoke(op)

    async def _at_master(self, op: Op) -> Completion:
        """One attempt at the node that this client considers the master of the queue's group."""
        queue, group = queue_of(op.key), op.extra["group"]
        if self.foreign is not None and op.f in ("pop", "ack", "extend"):
            return await self._at_proxy(self.foreign, op)
        extra: dict[str, Any] = {"group": group}
        await self.pause()
        if op.f == "pop" and not self.places.controllers:
            self.look_again(queue.group, ROUTE_S)
        node = await self.master(queue.group)
        if node is None:
            self.learn(queue.group, "", Outcome("fail", ""))
            return Completion("fail", op.value, f"no-master: {self.masters.silence}; nothing was sent", extra)
        extra["node"] = node
        match op.f:
            case "consume":
                pulled = await self.pull(queue, node, op.value, group)
                self.learn(queue.group, node, pulled.outcome)
                return read_completion(pulled, pulled.messages, extra)
            case "pop":
                return await self._pop(op, queue, node, extra)
            case "ack" | "extend":
                return await self._settle(op, queue, node, extra)
            case "drain":
                return await self._drain(op, queue, node, extra)
            case "reset":
                outcome, completion = await reset(
                    self.at(node), op, queue, extra, self.places.topics(queue.group)[queue.topic]
                )
                self.learn(queue.group, node, outcome)
                return completion
        broker, where = self.at(node), (queue.topic, queue.number, group)
        if op.f == "commit":
            answer = await broker.commit_offset(*where, op.value)
        else:
            answer = await broker.committed_offset(*where, deadline_s=min(READ_DEADLINE_S, self.deadline_s))
        self.learn(queue.group, node, answer.outcome)
        value = answer.value if op.f == "committed" else op.value
        return outcome_completion(answer.outcome, op.value, value, answer.code, extra)

    async def _at_proxy(self, foreign: Foreign, op: Op) -> Completion:
        """One attempt of a consumer at a proxy, which finds the master by itself."""
        await self.pause()
        outcome, done = await pop_by_proxy(foreign.popping, self.places, op, POP_BATCH, self.deadline_s)
        self._refused = outcome.type == "fail"
        return done

    async def _drain(self, op: Op, queue: Queue, node: str, extra: dict[str, Any]) -> Completion:
        """Reads the committed offset of the group and the end of the queue from the broker. A client that pops has no
        offset of its own to compare with these: the committed offset takes its place.
        """
        broker, deadline = self.at(node), min(READ_DEADLINE_S, self.deadline_s)
        committed = await broker.committed_offset(queue.topic, queue.number, extra["group"], deadline_s=deadline)
        end = await broker.max_offset(queue.topic, queue.number, deadline_s=deadline)
        for answer in (committed, end):
            if answer.outcome.type != "ok":
                self.learn(queue.group, node, answer.outcome)
                return Completion("fail", op.value, answer.outcome.why, extra)
        reached = committed.value if op.value is None else op.value
        return Completion("ok", {"committed": committed.value, "max": end.value, "consumed_to": reached}, extra=extra)

    async def _pop(self, op: Op, queue: Queue, node: str, extra: dict[str, Any]) -> Completion:
        popped = await self.at(node).pop(
            queue.topic,
            queue.number,
            group=op.extra["group"],
            broker_name=queue.group,
            invisible_ms=op.extra["invisible_ms"],
            max_messages=POP_BATCH,
            poll_s=op.extra["wait_s"],
        )
        self.learn(queue.group, node, popped.outcome)
        if popped.unreadable:
            extra[UNREADABLE] = True
        value = [
            [
                Queue(message.topic, queue.group, message.queue).key,
                message.offset,
                shown_id(message),
                handle.text,
                int(handle.retry != 0),
                handle.popped_ms + handle.invisible_ms,
            ]
            for message, handle in popped.messages
        ]
        return outcome_completion(popped.outcome, op.value, value, popped.code, extra)

    async def _settle(self, op: Op, queue: Queue, node: str, extra: dict[str, Any]) -> Completion:
        """Acknowledge a delivery, or ask for more time for it: the topic is the one popped from, whatever the key."""
        extra |= {name: op.extra[name] for name in ("queue", "offset", "id")}
        broker, topic, group = self.at(node), self.places.topic, op.extra["group"]
        if op.f == "ack":
            acked = await broker.ack(topic, op.value[0], group=group)
            self.learn(queue.group, node, acked.outcome)
            return outcome_completion(acked.outcome, op.value, op.value, acked.code, extra)
        handle, more_ms = op.value
        extended = await broker.change_invisible_time(topic, handle, more_ms, group=group)
        self.learn(queue.group, node, extended.outcome)
        if extended.outcome.type == "ok" and extended.handle is None:
            return Completion("info", op.value, "granted without a new handle", extra)
        value = [extended.handle.text] if extended.handle is not None else op.value
        return outcome_completion(extended.outcome, op.value, value, extended.code, extra)
