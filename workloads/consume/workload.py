# SPDX-License-Identifier: Apache-2.0
"""A consumer group of RocketMQ's own Java clients: every message is delivered, in order where that is promised.

Each member is a process on a node of its own, and its consumer is the library's `DefaultMQPushConsumer`. Our own client
sends. Members crash, leave and join again. At the end they consume until nothing comes any more; then the harness reads
every replica, so that it is known which messages the group should have got.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import harness.generator as gen
from harness.api import Client, RunContext
from harness.generator import Generator, Invocation
from harness.plan.plan import Plan, PlanError
from infra.options import Seconds, option
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.consume.client import ConsumeOps
from workloads.consume.crew import Crew
from workloads.consume.members import Members
from workloads.consume.work import WANTED, Work
from workloads.messages import MessageWorkload

if TYPE_CHECKING:
    from checkers.base.api import Checker

QUIET_S: Final = 12.0
"""The time without a delivery after which the group counts as done. A client learns of a new route within `_ROUTE_MS`,
and of a new member at once; a message that failed comes back after 10 s (delay level 3)."""

DRAIN_S: Final = 90.0
"""The longest time for that."""

_ROUTE_MS: Final = 5000
_COMMIT_MS: Final = 5000


@dataclass(frozen=True)
class ConsumeOptions:
    """The options of the workload."""

    members: int = option(3, "Members of the group, each in a process of its own.", low=1, high=4)
    listener: Literal["concurrently", "orderly"] = option("concurrently", "How members consume.")
    filter: Literal["none", "tag", "sql"] = option(
        "none",
        "What the group subscribes to: everything, or messages with the tags a and b, named as tags or by SQL92.",
    )
    failing: float = option(0.0, "Of so many messages (%) the first attempts fail.", low=0, high=50)
    fails: int = option(1, "The number of attempts that fail.", low=1, high=16)
    slow: float = option(0.0, "Of so many messages (%) each attempt takes 0.3 s.", low=0, high=50)
    member_goes_every: Seconds = option(
        Seconds(20), "How often each member crashes or leaves, on average; it is back after 2 s. 0: never."
    )


class ConsumeWorkload(MessageWorkload):
    """The group, its producers, and the final reads."""

    name = "consume"
    summary = "a consumer group of RocketMQ's Java clients: every message is delivered, and in order where promised"
    topologies: ClassVar[Sequence[str]] = ("controller", "dledger-commitlog", "master-slave", "slave-acting-master")
    Options: ClassVar[type] = ConsumeOptions
    default_rate = 300.0
    prefix = "consume"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        needed = self.options.members + 2
        if plan.concurrency < needed:
            raise PlanError(
                f"concurrency is {plan.concurrency}; {self.name} needs {needed} clients: "
                f"{self.options.members} members and two producers"
            )
        self.group = ""
        self.work = Work(self.options.failing, self.options.fails, self.options.slow)
        self._crew: Crew | None = None

    @property
    def client_nodes(self) -> int:
        return int(self.options.members)

    async def setup(self, context: RunContext) -> None:
        """Makes the topic and the group on every broker, and puts the program on the members' nodes."""
        self.group = f"members-{context.run}"
        await self.make(context, [self.group])
        record = context.deployment.record
        versions = [server.version for server in record.servers if server.kind == "broker" and server.version]
        nameservers = ";".join(f"{host}:{port}" for host, port in record.endpoints("namesrv"))
        consume = {
            "group": self.group,
            "topics": [self.places.topic],
            "nameservers": nameservers,
            "orderly": self.options.listener == "orderly",
            "set": {
                "pollNameServerInterval": _ROUTE_MS,
                "persistConsumerOffsetInterval": _COMMIT_MS,
                "consumeThreadMin": 4,
                "consumeThreadMax": 4,
            },
        }
        if self.options.filter == "tag":
            consume["tags"] = " || ".join(WANTED)
        elif self.options.filter == "sql":
            consume["sql"] = f"TAGS in ({', '.join(repr(tag) for tag in WANTED)})"
        nodes = context.deployment.clients[: self.options.members]
        self._crew = Crew(nodes, str(versions[0]), consume)
        await self._crew.install()

    def client(self, context: RunContext, thread: int) -> Client:
        assert self._crew is not None, "setup must be called first"
        client = self.connect(ConsumeOps, thread)
        client.furnish(self._crew)
        return client

    def generator(self, rng: Random, phase: str) -> Generator:
        members = Members(self.group, rng.getrandbits(32), self.options.member_goes_every)
        plain = self.sends()

        def send(n: int) -> Invocation:
            op = plain(n)
            return replace(op, extra={"properties": self.work.of(op.value)})

        return gen.reserve(self.options.members, members, default=send)

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """The members continue until nothing comes any more, and leave; then every replica is read through."""
        count = self.options.members
        rest = gen.time_limit(DRAIN_S, Members(self.group, 0, 0, quiet_s=QUIET_S))
        leave = Members(self.group, 0, 0, ends=True)
        committed = [Invocation("committed", key, None, {"group": self.group}) for key in self.places.keys]
        return self.final_phases(
            gen.clients(gen.reserve(count, rest)),
            gen.clients(gen.reserve(count, leave)),
            gen.clients(gen.any_(*committed)),
            self.read_replicas(),
        )

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.consuming import Delivered, Ordered
        from checkers.messages.log import LogAnomalies

        orderly = self.options.listener == "orderly"
        wanted = frozenset(WANTED) if self.options.filter != "none" else None
        return [LogAnomalies(), Delivered(wanted), *([Ordered(wanted)] if orderly else [])]

    @property
    def needed(self) -> Sequence[str]:
        return ["send", "join", "take"]

    def acknowledges(self, op: Op) -> bool:
        """A message that was acknowledged."""
        return op.f == "send" and op.type == "ok"
