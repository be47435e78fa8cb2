# SPDX-License-Identifier: Apache-2.0
"""The data that a returning master takes over from its acting master (RIP-32, pre-online): offsets, progress, routes.

One client commits ever larger offsets. For half of the queues it commits to the broker that the name servers name for
the group, the master or a slave that acts for it; for the others only to the master. After a change it waits some
seconds, so that the other clients see the offsets of the new one before the next commit hides them. One client sends
delayed messages, so that their progress moves. The others send requests several times a second: to each broker for the
committed offsets, the progress of delayed messages and timers, and some messages, and to each name server for the
members of each group. They also commit to the masters directly, under another group, listed or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

import harness.generator as gen
from harness.api import Client, Completion, RunContext
from harness.generator import Generator, Invocation
from harness.plan.plan import Plan, PlanError
from infra.options import Seconds, option
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin
from results.deployment import DeploymentRecord
from results.op import OK, Op
from workloads.brokers import READ_DEADLINE_S
from workloads.delay import Delay, properties_of
from workloads.messages import MessageWorkload
from workloads.name_servers import NameServerClient, name_servers, questions
from workloads.places import Queue, queue_of
from workloads.queue import QueueOps

if TYPE_CHECKING:
    from checkers.base.api import Checker

COMMIT_SHARE: Final = 0.1
SEND_SHARE: Final = 0.05
"""Shares of all ops; the rest are queries."""

QUEUES: Final = 2
"""The number of queues of each group with committed offsets."""

LOOK_AGAIN_S: Final = 0.5
"""The period at which the committer looks up its broker: a slave that no longer acts would still accept a commit."""

SETTLE_S: Final = 4.0
"""The committer's wait after a change of the broker."""


@dataclass(frozen=True)
class PreonlineOptions:
    """The options of the workload."""

    online_within: Seconds = option(
        Seconds(15), "A master that runs again must be listed by the name servers within so long.", low=1
    )


class PreonlineWorkload(MessageWorkload):
    """Commits and delayed messages while masters come and go; queries to all brokers and name servers."""

    name = "preonline"
    summary = "what a returning master takes over from its acting master: offsets, progress, its place in the routes"
    topologies: ClassVar[Sequence[str]] = ("slave-acting-master",)
    Options: ClassVar[type] = PreonlineOptions
    default_rate = 80.0
    prefix = "preonline"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        if plan.concurrency < 3:
            raise PlanError(
                f"concurrency is {plan.concurrency}; {self.name} needs 3 clients: commits, sends, questions"
            )
        self.group = ""
        self.servers: Mapping[str, tuple[str, int]] = {}
        self._named: dict[str, _Named] = {}

    async def setup(self, context: RunContext) -> None:
        """Makes the topic and the groups on every broker."""
        self.group = f"committers-{context.run}"
        self.servers = name_servers(context)
        await self.make(context, [self.group, f"{self.group}-direct"])

    def client(self, context: RunContext, thread: int) -> Client:
        client = self.connect(PreonlineOps, thread)
        client.name_servers = NameServerClient(self.places, self.servers)
        client.named = self._named
        return client

    def generator(self, rng: Random, phase: str) -> Generator:
        rate = self.plan.rate or self.default_rate
        first, questions = self.next_phase(), self._questions()
        return gen.reserve(
            1,
            gen.rate(rate * COMMIT_SHARE, self._commits(first)),
            1,
            gen.rate(rate * SEND_SHARE, self._delayed(first)),
            default=lambda n: questions[n % len(questions)],
        )

    @property
    def _queues(self) -> list[Queue]:
        return [queue for queue in self.places.queues if queue.number < QUEUES]

    def _commits(self, first: int) -> Callable[[int], Invocation]:
        """The commits: for the first queue of each group only at the master, for the others at the named broker."""
        queues = self._queues

        def commit(n: int) -> Invocation:
            queue = queues[n % len(queues)]
            only = {"only": self.places.groups[queue.group][0]} if queue.number == 0 else {}
            return Invocation("commit", queue.key, first + n // len(queues), {"group": self.group, **only})

        return commit

    def _delayed(self, first: int) -> Callable[[int], Invocation]:
        def send(n: int) -> Invocation:
            delay = Delay.of(n)
            extra = {"wait_ms": delay.wait_s * 1000} | ({} if delay.level is None else {"level": delay.level})
            return Invocation("delay", self.places.keys[n % len(self.places.keys)], first + n, extra)

        return send

    def _questions(self) -> list[Invocation]:
        """One round of queries: the progress of each broker and a pull there once, the others twice. (Brokers store the
        progress of pulls in the table of the offsets, so it belongs to the data that is handed over.)
        """
        groups = self.places.groups
        offsets = [
            Invocation("committed", queue.key, None, {"group": self.group, "node": node})
            for queue in self._queues
            for node in groups[queue.group]
        ]
        members = questions("members", list(groups), list(self.servers))
        progress = [Invocation("progress", None, None, {"node": node}) for nodes in groups.values() for node in nodes]
        first = [queue for queue in self._queues if queue.number == 0]
        direct = [
            Invocation("direct", queue.key, 1, {"group": f"{self.group}-direct", "node": groups[queue.group][0]})
            for queue in first
        ]
        polls = [Invocation("poll", queue.key, 0, {"node": n}) for queue in first for n in groups[queue.group]]
        return [*offsets, *members, *progress, *direct, *offsets, *members, *polls, *direct]

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """Each query once more."""
        return gen.clients(self._questions())

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.preonline import Preonline

        every = deployment.traits.offsets_copied_s or 60.0
        return [
            Preonline(self.options.online_within, every + max(5.0, every / 4)),
        ]

    @property
    def needed(self) -> Sequence[str]:
        return ["commit", "committed", "progress", "members", "direct", "delay"]

    def acknowledges(self, op: Op) -> bool:
        """A delayed message that the master acknowledged: slaves accept commits, too."""
        return op.f == "delay" and op.type == OK


@dataclass
class _Named:
    """The broker that the routes name for a group, the time since which they do, and that of the last lookup (s)."""

    node: str | None = None
    since: float = float("-inf")
    looked: float = float("-inf")


class PreonlineOps(QueueOps):
    """The workload's client."""

    name_servers: NameServerClient
    named: dict[str, _Named]
    """Group -> the named broker. It belongs to the run, so that a process that ends leaves it to the next."""

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "delay":
                return await self.send(op, properties_of(op))
            case "poll":
                return await self.poll(op)
            case "members":
                return await self.name_servers.ask(op)
            case "progress":
                return await self._progress(op)
            case "committed":
                return await self._committed(op)
            case "direct":
                return await self._direct(op)
            case "commit":
                return await self._commit(op)
        return await super().invoke(op)

    async def close(self) -> None:
        await self.name_servers.close()
        await super().close()

    async def _commit(self, op: Op) -> Completion:
        """One commit to the broker that the routes name, unless that has just changed, or is not the requested one."""
        group = queue_of(op.key).group
        named, only = await self._look(group), op.extra.get("only")
        now = asyncio.get_running_loop().time()
        if named.node is None or now < named.since + SETTLE_S or only not in (None, named.node):
            extra = {"group": op.extra["group"]}
            return Completion("fail", op.value, f"waits, for {named.node} is named; nothing was sent", extra)
        self._beliefs.believe(group, named.node)
        return await super().invoke(op)

    async def _look(self, group: str) -> _Named:
        """Follows the routes, like clients of RocketMQ that poll them."""
        named = self.named.setdefault(group, _Named())
        now = asyncio.get_running_loop().time()
        if now >= named.looked + LOOK_AGAIN_S:
            found = await self.masters.find(group, refused_by=self.masters.known(group))
            named.looked = asyncio.get_running_loop().time()
            if found != named.node:
                if named.node is not None:
                    named.since = named.looked
                named.node = found or named.node
        return named

    async def _committed(self, op: Op) -> Completion:
        queue, node = queue_of(op.key), str(op.extra["node"])
        deadline = min(READ_DEADLINE_S, self.deadline_s)
        broker = self.at(node)
        answer = await broker.committed_offset(queue.topic, queue.number, op.extra["group"], deadline_s=deadline)
        value = answer.value if answer.outcome.type == OK else None
        return Completion(answer.outcome.type, value, answer.outcome.why or None, {"node": node})

    async def _direct(self, op: Op) -> Completion:
        """A commit at a node's address, regardless of the routes."""
        queue, node = queue_of(op.key), str(op.extra["node"])
        answer = await self.at(node).commit_offset(queue.topic, queue.number, op.extra["group"], op.value)
        return Completion(answer.outcome.type, op.value, answer.outcome.why or None, {"node": node})

    async def _progress(self, op: Op) -> Completion:
        """`counter` of the table of committed offsets, `delay` (level -> offset), `timer` (ms); None: not returned."""
        node = str(op.extra["node"])
        told: dict[str, Any] = {}
        async with BrokerAdmin(*self.places.endpoints[node], deadline_s=READ_DEADLINE_S) as broker:
            asks = {
                "counter": broker.consumer_offset_counter,
                "delay": broker.delay_offsets,
                "timer": broker.timer_read_ms,
            }
            try:
                for name, ask in asks.items():
                    try:
                        told[name] = await ask()
                    except AdminError:
                        told[name] = None
            except RemotingError as problem:
                return Completion("fail", None, str(problem), {"node": node})
        if told["delay"] is not None:
            told["delay"] = {str(level): offset for level, offset in told["delay"].items()}
        return Completion("ok", told, extra={"node": node})
