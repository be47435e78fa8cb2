# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: sent for a delay level or for a time, some recalled; read from masters and slaves until they come.

Clients send to the master of each queue, as those of `log` do. Half of the messages have a delay level (5 or 10 s), the
others a time 2 s to `longest` ahead (`TIMER_DELIVER_MS`, by the wall clock of the machine that runs the clients). One
in sixteen is recalled at once. Readers poll all queues of all nodes, so that a message is found wherever it was
delivered. With `--client grpc`, RocketMQ's proxy sends and recalls; its protocol has no levels, so all messages have a
time.
At the end the readers continue until the last message is due and its limit is over. Then every replica is read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

import harness.generator as gen
from harness.api import Client, Completion, RunContext, Watch
from harness.generator import PENDING, Generator, Invocation, Step
from harness.generator.context import Context
from infra.options import Seconds, option
from infra.systems.rocketmq.message_body import body_of
from infra.systems.rocketmq.servers import artifacts
from results.deployment import DeploymentRecord
from results.op import OK, Op
from workloads.brokers import BODY_SIZE, BrokerClient, answered, sent_completion
from workloads.messages import HANDING_NOTHING_OVER, MessageWorkload, read_rounds, reader_count
from workloads.places import queue_of
from workloads.reading import Polls

if TYPE_CHECKING:
    from checkers.base.api import Checker

POLL_SHARE: Final = 1 / 2
"""The share of all ops: polls measure lateness, so each queue of each node is polled several times a second."""

LEVELS_S: Final[Mapping[int, int]] = {2: 5, 3: 10}
"""The delay levels in use -> their seconds (`messageDelayLevel`)."""

LONGEST_S: Final = 11
"""The longest delay of a message, if the plan names no other."""

MOST_S: Final = 60
"""The longest delay that a plan may name: the final phase waits until everything is due."""

WRITTEN_S: Final = 10.0
"""The time between two writes of a broker's progress to its disk (`flushDelayOffsetInterval`)."""

RECALLS_SINCE: Final = (5, 3, 2)
"""The first version with recalls."""


@dataclass(frozen=True)
class DelayOptions:
    """The options of the workload."""

    late_after: Seconds = option(
        Seconds(10), "A message must be readable so long after it is due, or after a fault begins or ends.", low=1
    )
    longest: Seconds = option(
        Seconds(LONGEST_S), "The longest delay of a message, in whole seconds.", low=LONGEST_S, high=MOST_S
    )


@dataclass(frozen=True, slots=True)
class Delay:
    """The delay of one message: a level, or None for a time; `wait_s` until it is due; True if it is to be recalled."""

    level: int | None
    wait_s: int
    recalled: bool

    @staticmethod
    def of(turn: int, longest_s: int = LONGEST_S, levels: bool = True) -> Delay:
        """The delay of the messages that are sent in the n-th round of the queues. levels: False if all have a time."""
        kind, round_ = turn % 4, turn // 4
        if kind < 2:
            level = list(LEVELS_S)[kind]
            return Delay(level if levels else None, LEVELS_S[level], False)
        wait = 2 + 7 * round_ % (longest_s - 1)
        return Delay(None, wait, kind == 3 and wait >= 5 and round_ % 2 == 0)


@dataclass(frozen=True, slots=True, eq=False)
class Delayed(Generator):
    """Messages for all queues in turn, with ids from `first` on; recalls as soon as there is a handle.

    recalls  True if messages are recalled at all. longest_s: the longest delay. levels: see `Delay.of`. due: recalls
    to be made.
    """

    keys: Sequence[str]
    first: int
    recalls: bool
    longest_s: int = LONGEST_S
    levels: bool = True
    n: int = 0
    due: tuple[Invocation, ...] = ()

    def op(self, ctx: Context) -> Step:
        if not ctx.free_takers:
            return PENDING, self
        if self.due:
            return self.due[0], replace(self, due=self.due[1:])
        delay = self._delay(self.first + self.n)
        extra = {"by": "time" if delay.level is None else "level", "wait_ms": delay.wait_s * 1000}
        if delay.level is not None:
            extra["level"] = delay.level
        send = Invocation("delay", self.keys[self.n % len(self.keys)], self.first + self.n, extra)
        return send, replace(self, n=self.n + 1)

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f != "delay" or event.type != OK or not self.recalls:
            return self
        handle, identity = event.extra.get("recall"), event.value[1]
        if handle is None or not self._delay(identity).recalled:
            return self
        return replace(self, due=(*self.due, Invocation("recall", event.key, identity, {"handle": handle})))

    def _delay(self, identity: int) -> Delay:
        return Delay.of((identity - self.first) // len(self.keys), self.longest_s, self.levels)


class DelayWorkload(MessageWorkload):
    """Delayed messages and recalls; polls; afterwards every replica is read."""

    name = "delay"
    summary = "messages for a delay level or a time: each appears, not early, not late, once; recalled ones never"
    topologies: ClassVar[Sequence[str]] = ("controller", "slave-acting-master", "master-slave", "dledger-commitlog")
    clients: ClassVar[Sequence[str]] = ("remoting", "grpc")
    fewer_topologies: ClassVar[Mapping[str, Sequence[str]]] = {"grpc": HANDING_NOTHING_OVER}
    message_type: ClassVar[str | None] = "DELAY"
    Options: ClassVar[type] = DelayOptions
    default_rate = 200.0
    reads_files = True
    replicas_follow = True
    prefix = "delay"

    def client(self, context: RunContext, thread: int) -> Client:
        return self.connect(DelayOps, thread)

    def generator(self, rng: Random, phase: str) -> Generator:
        readers = reader_count(self.plan.concurrency)
        rate = self.plan.rate or self.default_rate
        first = self.next_phase()
        return gen.reserve(
            readers,
            gen.rate(rate * POLL_SHARE, self._polls(readers)),
            default=Delayed(
                self.places.keys, first, self.recalls, int(self.options.longest), self.plan.client != "grpc"
            ),
        )

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """Polls until everything is due, then every queue of every replica."""
        wait = self.options.longest + 2 * self.options.late_after
        rate = (self.plan.rate or self.default_rate) * POLL_SHARE
        polls = gen.rate(rate, self._polls(reader_count(self.plan.concurrency)))
        return self.final_phases(gen.clients(gen.time_limit(wait, polls)), self.read_replicas())

    def _polls(self, readers: int) -> Polls:
        return Polls(read_rounds(self.places, readers))

    @property
    def recalls(self) -> bool:
        """True if the servers' version has recalls."""
        version = self.plan.server.version or artifacts.DEFAULT_VERSION
        return tuple(map(int, version.split("."))) >= RECALLS_SINCE

    def server_settings(self) -> Mapping[str, str]:
        recall = {"broker.recallMessageEnable": "true"} if self.recalls else {}
        return {**super().server_settings(), **recall}

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.delays import Delays

        # Another server goes on from its copy; where nobody stands in, the same one from its own disk.
        copied = deployment.traits.offsets_copied_s if deployment.traits.stands_in else None
        every = copied or WRITTEN_S
        return [
            Delays(self.options.late_after, every + max(5.0, every / 4)),
        ]

    def watch(self) -> Watch | None:
        from checkers.messages.watches import DelayWatch

        return DelayWatch()

    @property
    def needed(self) -> Sequence[str]:
        return ["delay", "poll", *(["recall"] if self.recalls else [])]

    def acknowledges(self, op: Op) -> bool:
        """A delayed message that the master acknowledged as durable as configured."""
        return op.f == "delay" and op.type == "ok"


class DelayOps(BrokerClient):
    """The workload's client."""

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "delay":
                return await (self.send(op, properties_of(op)) if self.foreign is None else self._delay(op))
            case "recall":
                return await self._recall(op)
        return await super().invoke(op)

    async def _delay(self, op: Op) -> Completion:
        """Sends one message by the proxy's client."""
        assert self.foreign is not None
        end = asyncio.get_running_loop().time() + self.deadline_s
        await self.pause()
        producer = self.foreign.typed
        proxy, left = producer.proxy, end - asyncio.get_running_loop().time()
        topic, body = queue_of(op.key).topic, body_of(op.value, BODY_SIZE)
        sent = await producer.send(topic, body, kind="DELAY", deliver_ms=_due_ms(op), deadline_s=left)
        self._refused = sent.outcome.type == "fail"
        return sent_completion(sent, op.value, {"proxy": proxy})

    async def _recall(self, op: Op) -> Completion:
        """One attempt at the master of the group that holds the message; or through a proxy."""
        queue = queue_of(op.key)
        await self.pause()
        if self.foreign is not None:
            producer = self.foreign.typed
            proxy = producer.proxy
            answer = await producer.recall(queue.topic, op.extra["handle"], deadline_s=self.deadline_s)
            self._refused = answer.outcome.type == "fail"
            return answered(answer, op.value, {"proxy": proxy})
        node = await self.master(queue.group)
        if node is None:
            return Completion("fail", op.value, f"no-master: {self.masters.silence}; nothing was sent")
        answer = await self.at(node).recall(queue.topic, op.extra["handle"])
        self.learn(queue.group, node, answer.outcome)
        return answered(answer, op.value, {"node": node})


def properties_of(op: Op) -> Mapping[str, str]:
    """The properties by which the broker knows when a message is due."""
    if (level := op.extra.get("level")) is not None:
        return {"DELAY": str(level)}
    return {"TIMER_DELIVER_MS": str(_due_ms(op))}


def _due_ms(op: Op) -> int:
    """When a message is due (ms since 1970), by the wall clock of this machine."""
    return time.time_ns() // 1_000_000 + int(op.extra["wait_ms"])
