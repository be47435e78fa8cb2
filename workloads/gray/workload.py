# SPDX-License-Identifier: Apache-2.0
"""Gray release by queue isolation: members of one group, gray and base, producers of both colours, and an operator.

Four members read the topic's queues, at first two of them gray. An operator switches members off and on, expands the
topic, and restarts members, at the times given by `--tasks`. With `--scheme document` everything works as published;
with `cured`, the faults of the scheme are corrected. In the last ten seconds no client sends, so that everything must
have been received; then every queue is drained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

import harness.generator as gen
from harness.api import Client, RunContext
from harness.generator import Generator
from harness.plan.plan import Plan, PlanError
from infra.options import Seconds, option
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.consuming import Drain
from workloads.gray.centre import Centre
from workloads.gray.client import GrayOps, Habits
from workloads.gray.members import Consuming, Members
from workloads.gray.operator import Operator, tasks
from workloads.gray.producers import Producers
from workloads.gray.split import Scheme, Split
from workloads.messages import MessageWorkload
from workloads.name_servers import name_servers
from workloads.order_lock import lease_s
from workloads.places import Queue, queue_of
from workloads.popping import PopDrain

if TYPE_CHECKING:
    from checkers.base.api import Checker

MEMBERS: Final = 4
GRAYS: Final = 2
"""The number of members, and of those that are gray at first."""

QUEUES: Final = 6
"""Queues of the topic on each broker group, as in the published scheme's example: 0 and 5 are gray."""

QUIET_S: Final = 10.0
"""The time for which the members continue after the last send."""

TASKS: Final = ("10s off m1", "16s off m0", "26s on m0", "30s on m1", "38s expand")


@dataclass(frozen=True)
class GrayOptions:
    """The options of the workload."""

    scheme: Scheme = option("cured", "How the platform works: as the published scheme says, or with its faults cured.")
    tasks: tuple[str, ...] = option(
        TASKS,
        "What the operator does, and when: 'TIME on|off|restart MEMBER' (m0 to m3) or 'TIME expand'; one or several.",
        metavar="TASK",
    )
    member_crash_every: Seconds = option(
        Seconds(20), "How often each member crashes, on average; it is back after a second. 0: never."
    )
    consume: Consuming = option(
        "concurrently", "How members consume: by pulls, without locks of queues or with them; or by pops."
    )
    failing: float = option(
        0.0,
        "Of so many messages (%) a member fails to process one, once: it sends it back, or lets its pop expire.",
        low=0,
        high=50,
    )

    def __post_init__(self) -> None:
        """Raises ValueError."""
        known = Centre.of(MEMBERS, GRAYS).colours
        for task in tasks(self.tasks):
            if task.member and task.member not in known:
                raise ValueError(f"tasks names {task.member!r}; there are {', '.join(known)}")
        if self.failing and self.consume == "orderly":
            raise ValueError("failing needs another consume than orderly: an orderly consumer tries again by itself")


class GrayWorkload(MessageWorkload):
    """The platform, its clients, and its operator."""

    name = "gray"
    summary = "gray release by queue isolation: colours stay apart, nothing is stranded by a switch or an expansion"
    topologies: ClassVar[Sequence[str]] = ("controller", "master-slave")
    Options: ClassVar[type] = GrayOptions
    default_rate = 400.0
    prefix = "gray"
    queues_per_group = QUEUES

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        if plan.concurrency < MEMBERS + 3:
            raise PlanError(
                f"concurrency is {plan.concurrency}; {self.name} needs {MEMBERS + 3} clients: {MEMBERS} members, an "
                "operator, two producers"
            )
        self.group = ""
        self.split = Split(QUEUES if self.options.scheme == "cured" else None)
        self.centre = Centre.of(MEMBERS, GRAYS)
        self.pops = self.options.consume == "pop"

    async def setup(self, context: RunContext) -> None:
        """Makes the topic and the group on every broker."""
        self.group = f"members-{context.run}"
        await self.make(context, [self.group])

    def client(self, context: RunContext, thread: int) -> Client:
        client = self.connect(GrayOps, thread)
        client.sticky_master = False  # members and producers look at the routes again and again
        namespace = f"gray-{context.run}"
        scheme: Scheme = self.options.scheme
        habits = Habits(self.options.consume, self.options.failing)
        client.furnish(self.centre, self.split, self.group, scheme, name_servers(context), namespace, thread, habits)
        return client

    def generator(self, rng: Random, phase: str) -> Generator:
        due = tuple(tasks(self.options.tasks)) if phase == "main" else ()
        operator = Operator(self.options.scheme, self.centre.grays, due)
        producers = Producers(self.places.topic, self.split, self.next_phase())
        return gen.reserve(MEMBERS, self._members(rng), 1, operator, default=producers)

    def _members(self, rng: Random) -> Members:
        return self._of_group(rng.getrandbits(32), self.options.member_crash_every)

    def _of_group(self, seed: int, crash_every_s: float) -> Members:
        return Members(self.group, seed, crash_every_s, self.options.consume)

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """The members continue for a while; then every queue is consumed to its end."""
        members = gen.reserve(MEMBERS, self._of_group(0, 0))
        drains: list[Generator] = [Drain(self.group, key) for key in sorted({*keys, *self.places.keys})]
        if self.pops:
            mine = sorted({key for key in keys if queue_of(key).topic == self.places.topic} | {*self.places.keys})
            of = {group: [key for key in mine if queue_of(key).group == group] for group in self.places.groups}
            drains = [PopDrain(self.group, Queue(self.places.topic, g, -1).key, tuple(of[g])) for g in of]
        return gen.phases(gen.clients(gen.time_limit(QUIET_S, members)), gen.clients(gen.any_(*drains)))

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.gray import Gray
        from checkers.messages.queue import Deliveries, Leases, Offsets

        every = deployment.traits.offsets_copied_s or 10.0
        within = every + max(5.0, every / 4)
        return [
            Gray(within, lease_s(self.plan.server.jvm_options) if self.options.consume == "orderly" else 0),
            Deliveries(within),
            Leases(copied_within_s=within) if self.pops else Offsets(within),
        ]

    @property
    def needed(self) -> Sequence[str]:
        ops = {"on": "flag", "off": "flag", "expand": "expand", "restart": "leave"}
        done = {ops[task.verb]: None for task in tasks(self.options.tasks)}
        back = ["send-back"] if self.options.failing and not self.pops else []
        reads = ["pop", "ack"] if self.pops else ["consume", "commit"]
        return ["send", *reads, "rebalance", *back, *done]

    def acknowledges(self, op: Op) -> bool:
        """A message that was acknowledged."""
        return op.f == "send" and op.type == "ok"
