# SPDX-License-Identifier: Apache-2.0
"""Routes of broker groups while brokers come and go (RIP-32): the answers of name servers, and reads along the routes.

Some clients ask each name server several times a second for the members of each group (901) and for the route of the
topic (105). The others read from the broker that the name servers return for the group, and look it up again if a
read fails. One client sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

import harness.generator as gen
from harness.api import Client, Completion, RunContext
from harness.generator import Generator, Invocation
from harness.plan.plan import Plan, PlanError
from infra.options import Seconds, option
from infra.systems.outcome import Outcome
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.brokers import READ_DEADLINE_S, BrokerClient, read_completion
from workloads.messages import MessageWorkload, reader_count
from workloads.name_servers import NameServerClient, name_servers, questions
from workloads.places import queue_of

if TYPE_CHECKING:
    from checkers.base.api import Checker

SEND_SHARE: Final = 0.1
READ_SHARE: Final = 0.3
"""The share of reads among all ops; those that are neither sends nor reads are questions to the name servers."""

_MESSAGES: Final = 4
"""The messages in one read: only the fact of an answer matters."""


@dataclass(frozen=True)
class RouteOptions:
    """The options of the workload."""

    detected_within: Seconds = option(
        Seconds(5),
        "Name servers notice within so long that a broker is gone; the limits build on it.",
        low=1,
    )
    registers_within: Seconds = option(
        Seconds(10),
        "Name servers list a broker that is back within so long: brokers register every 10 s.",
        low=1,
    )


class RouteWorkload(MessageWorkload):
    """Questions to the name servers, and reads along the routes."""

    name = "route"
    summary = "what each name server says while brokers come and go: one first broker, reads go on, slaves learn of it"
    topologies: ClassVar[Sequence[str]] = ("slave-acting-master", "controller")
    Options: ClassVar[type] = RouteOptions
    default_rate = 100.0
    prefix = "route"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        if plan.concurrency < 3:
            raise PlanError(f"concurrency is {plan.concurrency}; {self.name} needs 3 clients: sends, reads, questions")
        self.servers: Mapping[str, tuple[str, int]] = {}

    async def setup(self, context: RunContext) -> None:
        """Makes the topic on every broker."""
        self.servers = name_servers(context)
        await self.make(context)

    def client(self, context: RunContext, thread: int) -> Client:
        client = self.connect(RouteOps, thread)
        client.name_servers = NameServerClient(self.places, self.servers)
        return client

    def generator(self, rng: Random, phase: str) -> Generator:
        rate = self.plan.rate or self.default_rate
        questions = self._questions()
        return gen.reserve(
            1,
            gen.rate(rate * SEND_SHARE, self.sends()),
            reader_count(self.plan.concurrency),
            gen.rate(rate * READ_SHARE, self._reads()),
            default=lambda n: questions[n % len(questions)],
        )

    def _questions(self) -> list[Invocation]:
        return [q for f in ("members", "route") for q in questions(f, list(self.places.groups), list(self.servers))]

    def _reads(self) -> Callable[[int], Invocation]:
        keys = self.places.keys
        return lambda n: Invocation("routed-read", keys[n * (len(keys) // 2 + 1) % len(keys)], 0)

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """Asks each question once more."""
        return gen.clients(self._questions())

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.routes import Routes

        return [
            Routes(self.options.detected_within, self.options.registers_within),
        ]

    @property
    def needed(self) -> Sequence[str]:
        return ["send", "members", "route", "routed-read"]


class RouteOps(BrokerClient):
    """The workload's client."""

    name_servers: NameServerClient

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "send":
                return await self.send(op)
            case "members" | "route":
                return await self.name_servers.ask(op)
            case "routed-read":
                return await self._read(op)
        raise ValueError(f"the route workload does not know {op.f!r}")

    async def close(self) -> None:
        await self.name_servers.close()
        await super().close()

    async def _read(self, op: Op) -> Completion:
        """A few messages of a queue, from the broker that the name servers return; looked up again after a failure."""
        queue = queue_of(op.key)
        await self.pause()
        node = await self.master(queue.group)
        if node is None:
            self.learn(queue.group, "", Outcome("fail", ""))
            return Completion("fail", None, f"no-master: {self.masters.silence}; nothing was sent")
        pulled = await self.at(node).pull(
            queue.topic,
            queue.number,
            op.value,
            group=self.places.readers,
            max_messages=_MESSAGES,
            deadline_s=min(READ_DEADLINE_S, self.deadline_s),
        )
        self.learn(queue.group, node, pulled.outcome)
        extra: dict[str, Any] = {"node": node}
        return read_completion(pulled, pulled.messages, extra)
