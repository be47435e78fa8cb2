# SPDX-License-Identifier: Apache-2.0
"""Locks of queues for orderly consumption: taken, renewed and given back by several clients of one group.

Three or more clients compete for each queue. The holder renews its lock every second, consumes from the committed
offset on, commits, and unlocks after some seconds. Half of the clients look up the master again when they are refused.
The others stay with the known master as long as it answers. So a master that is cut off gets requests of some clients,
while its acting master gets those of others. Clients are outside every partition.

The client id belongs to the thread, not to the process: so no lock stays with a client that no longer sends requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

import harness.generator as gen
from harness.api import Client, Completion, RunContext
from harness.generator import PENDING, Generator, Invocation, Pending, Step
from harness.generator.context import Context, members
from harness.plan.plan import Plan
from infra.options import Seconds, option
from infra.systems.outcome import Outcome
from results.deployment import DeploymentRecord
from results.figures import SECOND
from results.op import INVOKE, OK, Op
from workloads.messages import MessageWorkload
from workloads.places import queue_of
from workloads.queue import QueueOps

if TYPE_CHECKING:
    from checkers.base.api import Checker

RIVALS: Final = 3
"""The smallest number of clients that compete for each queue, if so many exist."""

SEND_RATE: Final = 20.0
"""Messages per second, for the consumers."""

STEPS: Final = ("lock", "unlock", "committed", "consume", "commit")
"""The ops of holders."""

RETRY_NS: Final = SECOND // 2
RENEW_NS: Final = SECOND
CONSUME_NS: Final = SECOND // 2

_LEASE: Final = "-Drocketmq.broker.rebalance.lockMaxLiveTime="

_LOOK_AGAIN_S: Final = 1.0
"""The period at which a refused client looks up the master: usually another client has the lock."""


@dataclass(frozen=True)
class OrderLockOptions:
    """The options of the workload."""

    renews_within: Seconds = option(
        Seconds(10), "After a fault, somebody must be granted a queue that is asked for within so long.", low=1
    )


@dataclass(frozen=True, slots=True)
class Hold:
    """The state of one client at one queue. Times in ns.

    due     the time of its next op. until: the time when it unlocks; None: it wants the lock.
    renew   the time of its next renewal. position: the next offset to consume; None: unknown. done: True if it has
            consumed, but not committed.
    turns   the number of times that it had the lock.
    """

    due: int = 0
    until: int | None = None
    renew: int = 0
    position: int | None = None
    done: bool = False
    turns: int = 0

    def at(self, now: int) -> int:
        """The time of its next op."""
        return max(now, self.due) if self.until is None else min(self.until, self.renew, self.due)


@dataclass(frozen=True, slots=True, eq=False)
class Holders(Generator):
    """Clients that lock, renew, consume, commit and unlock; `rivals` of them for each key."""

    group: str
    keys: Sequence[str]
    seed: int
    holds: Mapping[tuple[int, str], Hold] = field(default_factory=dict)

    def op(self, ctx: Context) -> Step:
        if not ctx.free_takers:
            return PENDING, self
        found = [
            (self.holds.get((thread, key), Hold()).at(0), thread, key)
            for thread in members(ctx.free_takers, ctx.turn % ctx.process_map.concurrency)
            for key in self._share(ctx, thread)
        ]
        if not found:
            return PENDING, self
        due, thread, key = min(found, key=lambda item: item[0])
        if due > ctx.time:
            return Pending(due), self
        extra = {"group": self.group, "client": f"client-{thread}"}
        return self._next(ctx, thread, key, extra).by(ctx.process(thread)), self

    def _share(self, ctx: Context, thread: int) -> list[str]:
        """The keys that a thread competes for."""
        takers = list(members(ctx.takers))
        parts = max(1, len(takers) // RIVALS)
        return [key for n, key in enumerate(self.keys) if (takers.index(thread) + n) % parts == 0]

    def _next(self, ctx: Context, thread: int, key: str, extra: dict[str, Any]) -> Invocation:
        hold = self.holds.get((thread, key), Hold())
        if hold.until is None:
            return Invocation("lock", key, None, extra)
        if ctx.time >= hold.until:
            return Invocation("unlock", key, None, extra)
        if ctx.time >= hold.renew:
            return Invocation("lock", key, None, {**extra, "renewal": True})
        if hold.position is None:
            return Invocation("committed", key, None, extra)
        return Invocation("commit" if hold.done else "consume", key, hold.position, extra)

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.type == INVOKE or event.key is None or event.f not in STEPS:
            return self
        place = ctx.process_map.thread_of(event.process), event.key
        before = self.holds.get(place, Hold())
        return replace(self, holds={**self.holds, place: self._after(before, event, place)})

    def _after(self, hold: Hold, event: Op, place: tuple[int, str]) -> Hold:
        now, ok = event.time, event.type == OK
        wait = Hold(due=now + RETRY_NS, turns=hold.turns)
        match event.f:
            case "lock" if ok and hold.until is None:
                dice = Random(f"{self.seed}/{place}/{hold.turns}")
                until = now + int(dice.uniform(3, 9) * SECOND)
                return Hold(now, until, now + RENEW_NS, None, False, hold.turns + 1)
            case "lock" if ok:
                return replace(hold, renew=now + RENEW_NS)
            case "lock":
                # Refused, it has lost the lock. Without an answer it may have it: it tries again in either case.
                return wait
            case "unlock":
                return replace(wait, due=now + int(Random(f"{self.seed}/{place}/{now}").uniform(1, 3) * SECOND))
            case "committed" if ok:
                return replace(hold, position=event.value or 0, due=now)
            case "consume" if ok and event.value:
                return replace(hold, position=event.value[-1][0] + 1, done=True, due=now)
            case "commit" if ok:
                return replace(hold, done=False, due=now + CONSUME_NS)
        return replace(hold, due=now + CONSUME_NS)


class OrderLockWorkload(MessageWorkload):
    """Locks of queues, and the consumption by their holders."""

    name = "order-lock"
    summary = "locks of queues for orderly consumption: one holder at a time, a majority behind it, and no end of it"
    topologies: ClassVar[Sequence[str]] = ("slave-acting-master", "controller", "master-slave")
    Options: ClassVar[type] = OrderLockOptions
    default_rate = 120.0
    prefix = "order-lock"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.group = ""

    async def setup(self, context: RunContext) -> None:
        """Makes the topic and the group on every broker."""
        self.group = f"holders-{context.run}"
        await self.make(context, [self.group])

    def client(self, context: RunContext, thread: int) -> Client:
        return self.connect(OrderLockOps, thread)

    def generator(self, rng: Random, phase: str) -> Generator:
        holders = Holders(self.group, tuple(self.places.keys), rng.getrandbits(32))
        return gen.reserve(1, gen.rate(SEND_RATE, self.sends()), default=holders)

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """Queries of the group's committed offsets. The judge only needs the grants of the load."""
        extra = {"group": self.group}
        return gen.clients([Invocation("committed", queue.key, None, extra) for queue in self.places.queues])

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.locks import Locks

        return [
            Locks(self.options.renews_within, lease_s(self.plan.server.jvm_options)),
        ]

    @property
    def needed(self) -> Sequence[str]:
        return ["send", "lock", "unlock", "consume", "commit"]

    def acknowledges(self, op: Op) -> bool:
        """A message that was acknowledged, or a lock that was granted."""
        return op.f in ("send", "lock") and op.type == OK


def lease_s(jvm_options: Sequence[str]) -> float:
    """The time (s) for which brokers keep a lock without a renewal: 60 s, or the value (ms) of the last JVM option."""
    from checkers.messages.locks import LEASE_S

    told = [option.removeprefix(_LEASE) for option in jvm_options if option.startswith(_LEASE)]
    return int(told[-1]) / 1000 if told and told[-1].isdecimal() else LEASE_S


class OrderLockOps(QueueOps):
    """The workload's client. After a refusal, clients with `sticky_master` stay with a master that answers."""

    async def invoke(self, op: Op) -> Completion:
        if op.f in ("lock", "unlock"):
            return await self._lock(op)
        return await super().invoke(op)

    async def _lock(self, op: Op) -> Completion:
        """One attempt at the node that this client considers the master of the queue's group."""
        queue, client, group = queue_of(op.key), op.extra["client"], op.extra["group"]
        extra: dict[str, Any] = {"group": group, "client": client}
        await self.pause()
        node = await self.master(queue.group)
        if node is None:
            self.learn(queue.group, "", Outcome("fail", ""))
            return Completion("fail", None, f"no-master: {self.masters.silence}; nothing was sent", extra)
        extra["node"] = node
        wanted = {(queue.topic, queue.group, queue.number)}
        if op.f == "unlock":
            answer = await self.at(node).unlock_queues(client, wanted, group=group)
            self.learn(queue.group, node, answer.outcome)
            return Completion(answer.outcome.type, None, answer.outcome.why or None, extra)
        locked = await self.at(node).lock_queues(client, wanted, group=group)
        if locked.outcome.type == "ok" and not wanted <= locked.queues:
            if not self.sticky_master:
                self.look_again(queue.group, _LOOK_AGAIN_S)
            return Completion("fail", None, "refused: the answer does not name the queue", {**extra, "refused": True})
        self.learn(queue.group, node, locked.outcome)
        return Completion(locked.outcome.type, None, locked.outcome.why or None, extra)
