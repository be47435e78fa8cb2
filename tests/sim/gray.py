# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster for the platform of the workload `gray`, in virtual time: right, unless a bug is planted.

One broker group, three name servers with tables of their own, and the real clients of the workload: only what crosses
the network is replaced. Requests and answers take their time; some fail, and some answers are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import harness.generator as gen
from harness.api import Completion
from harness.plan.plan import Plan
from harness.run import virtual_time
from harness.run.interpreter import Interpreter
from infra.systems.outcome import Outcome
from infra.systems.remoting.connection import Refused, TimedOut
from infra.systems.rocketmq.protocol.client import Acked, Answer, Handle, Locked, Message, Popped, Pulled, Sent
from results.deployment import DeploymentRecord
from results.history import History
from results.op import Op
from results.record import RunRecord
from workloads.brokers import Beliefs
from workloads.gray.client import GrayOps, Habits
from workloads.gray.flags import Flags
from workloads.gray.split import Counts, Place
from workloads.gray.workload import GrayWorkload
from workloads.places import Queue, TopicLayout
from workloads.reading import MOVED

NODES = ("n1", "n2", "n3")
OK = Outcome("ok", "")
PHYSICAL = 1_000_000
LEASE_S = 5.0
"""The time for which a lock is kept that no client prolongs."""


@dataclass
class World:
    """All servers. trouble: the share of requests that fail, or whose answers are lost. cut: name servers that are not
    reached now.
    """

    rng: Random
    trouble: float = 0.0
    bug: str | None = None
    queues: int = 6
    logs: dict[int, list[bytes]] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    retries: list[tuple[float, bytes]] = field(default_factory=list)
    locks: dict[int, tuple[str, float]] = field(default_factory=dict)
    popped: dict[int, int] = field(default_factory=dict)
    leases: dict[str, tuple[float, int, bytes]] = field(default_factory=dict)
    expired: list[tuple[int, bytes]] = field(default_factory=list)
    handles: int = 0
    members: dict[str, GrayOps] = field(default_factory=dict)
    tables: dict[str, dict[str, str]] = field(default_factory=lambda: {node: {} for node in NODES})
    cut: set[str] = field(default_factory=set)

    async def travel(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.0005, 0.01))

    async def reach(self) -> str:
        """The fate of a request: `ok` (it gets through), `fail` (nothing was sent), `info` (the answer is lost)."""
        await self.travel()
        luck = self.rng.random()
        return "fail" if luck < self.trouble / 2 else "info" if luck < self.trouble else "ok"

    def delivered(self, topic: str, queue: int) -> list[bytes]:
        """The messages of a queue; what was sent back comes after a second."""
        if not topic.startswith("%RETRY%"):
            return self.logs.setdefault(queue, [])
        now = asyncio.get_running_loop().time()
        return [body for at, body in self.retries if at + 1 <= now]

    def notify(self) -> None:
        """Notifies all members that the membership has changed."""
        for client in self.members.values():
            client._changed = True


class Store:
    """The table of one name server."""

    def __init__(self, world: World, node: str) -> None:
        self.world, self.node = world, node

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        await self._reached()
        self.world.tables[self.node][key] = value

    async def kv_table(self, namespace: str) -> Mapping[str, str]:
        await self._reached()
        return dict(self.world.tables[self.node])

    async def route(self, topic: str) -> dict[str, Any]:
        await self._reached()
        return {"queueDatas": [{"brokerName": "a", "readQueueNums": self.world.queues}]}

    async def close(self) -> None:
        """Nothing to close."""

    async def _reached(self) -> None:
        found = await self.world.reach()
        if self.node in self.world.cut or found == "fail":
            raise Refused(f"{self.node}: no connection")
        if found == "info":
            raise TimedOut(f"{self.node}: no answer")


class Beats:
    """Membership of one client."""

    def __init__(self, world: World, client: str, ops: GrayOps) -> None:
        self.world, self.client_id = world, client
        world.members[client] = ops
        world.notify()

    async def first(self) -> list[str]:
        await self.world.travel()
        return list(NODES)

    async def leave(self, group: str) -> None:
        await self.end()

    async def end(self) -> None:
        if self.world.members.pop(self.client_id, None) is not None:
            self.world.notify()


class SimBroker:
    """The master."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def send(self, topic: str, queue: int, body: bytes, **_: Any) -> Sent:
        found, log = await self.world.reach(), self.world.logs.setdefault(queue, [])
        if found == "fail" or (found == "info" and self.world.rng.random() < 0.5):
            return Sent(Outcome("fail" if found == "fail" else "info", "lost"))
        log.append(body)
        await self.world.travel()
        return Sent(Outcome("info", "lost")) if found == "info" else Sent(OK, len(log) - 1, code=0)

    async def pull(self, topic: str, queue: int, offset: int, **_: Any) -> Pulled:
        if await self.world.reach() != "ok":
            return Pulled(Outcome("fail", "no answer"))
        log = self.world.delivered(topic, queue)
        shown = [_message(topic, queue, n, log[n]) for n in range(offset, len(log))]
        await self.world.travel()
        if shown and self.world.bug == "skip" and self.world.rng.random() < 0.05:
            return Pulled(OK, (), next=offset + len(shown), min=0, max=len(log), code=MOVED)
        return Pulled(OK, shown, next=len(log), min=0, max=len(log), code=0)

    async def committed_offset(self, topic: str, queue: int, group: str, **_: Any) -> Answer:
        if await self.world.reach() != "ok":
            return Answer(Outcome("fail", "no answer"))
        at = self.world.committed.get((topic, queue), self.world.popped.get(queue))
        return Answer(OK, max(0, at - 5) if at is not None and self.world.bug == "forget" else at, 0)

    async def commit_offset(self, topic: str, queue: int, group: str, offset: int, **_: Any) -> Answer:
        found = await self.world.reach()
        if found == "fail" or (found == "info" and self.world.rng.random() < 0.5):
            return Answer(Outcome("fail" if found == "fail" else "info", "lost"))
        self.world.committed[topic, queue] = offset
        await self.world.travel()
        return Answer(OK if found == "ok" else Outcome("info", "lost"), None, 0)

    async def max_offset(self, topic: str, queue: int, **_: Any) -> Answer:
        await self.world.travel()
        return Answer(OK, len(self.world.delivered(topic, queue)), 0)

    async def pop(self, topic: str, queue: int, *, invisible_ms: int, poll_s: float, **_: Any) -> Popped:
        """The next messages of a queue, or of any, and those that their first member did not acknowledge in time."""
        found = await self.world.reach()
        if found == "fail":
            return Popped(Outcome("fail", "no answer"))
        now = asyncio.get_running_loop().time()
        for text, (until, place, body) in list(self.world.leases.items()):
            if until <= now:
                del self.world.leases[text]
                self.world.expired.append((place, body))
        numbers = [queue] if queue >= 0 else sorted(self.world.logs)
        taken = [(f"%RETRY%{topic}", 0, *one) for one in self.world.expired[:4]]
        self.world.expired = self.world.expired[4:]
        for number in numbers:
            log, at = self.world.logs.setdefault(number, []), self.world.popped.get(number, 0)
            taken += [(topic, number, at + n, body) for n, body in enumerate(log[at : at + 8])]
            self.world.popped[number] = min(len(log), at + 8)
        shown = []
        for name, number, at, body in taken:
            self.world.handles += 1
            retry = int(name != topic)
            handle = Handle(at, int(now * 1000), invisible_ms, self.world.handles, retry, "a", number, at)
            self.world.leases[handle.text] = now + invisible_ms / 1000, at, body
            shown.append((_message(name, number, at, body), handle))
        await (self.world.travel() if shown else asyncio.sleep(poll_s))
        return Popped(OK, shown, code=0) if found == "ok" else Popped(Outcome("info", "lost"))

    async def ack(self, topic: str, handle: str, **_: Any) -> Acked:
        found = await self.world.reach()
        if found == "fail" or (found == "info" and self.world.rng.random() < 0.5):
            return Acked(Outcome("fail" if found == "fail" else "info", "lost"))
        self.world.leases.pop(handle, None)
        return Acked(OK if found == "ok" else Outcome("info", "lost"), 0)

    async def send_back(self, topic: str, physical: int, **_: Any) -> Answer:
        found = await self.world.reach()
        if found == "fail" or (found == "info" and self.world.rng.random() < 0.5):
            return Answer(Outcome("fail" if found == "fail" else "info", "lost"))
        if self.world.bug != "swallow":
            queue, offset = divmod(physical, PHYSICAL)
            now = asyncio.get_running_loop().time()
            self.world.retries.append((now, self.world.logs[queue][offset]))
        return Answer(OK if found == "ok" else Outcome("info", "lost"), None, 0)

    async def lock_queues(self, client: str, queues: Sequence[tuple[str, str, int]], **_: Any) -> Locked:
        if await self.world.reach() != "ok":
            return Locked(Outcome("info", "lost"))
        now = asyncio.get_running_loop().time()
        granted = []
        for place in queues:
            holder, until = self.world.locks.get(place[2], (client, 0.0))
            if holder == client or until < now or self.world.bug == "grants":
                self.world.locks[place[2]] = client, now + LEASE_S
                granted.append(place)
        return Locked(OK, frozenset(granted), 0)

    async def unlock_queues(self, client: str, queues: Sequence[tuple[str, str, int]], **_: Any) -> Answer:
        if await self.world.reach() != "ok":
            return Answer(Outcome("info", "lost"))
        for place in queues:
            if self.world.locks.get(place[2], ("", 0))[0] == client:
                del self.world.locks[place[2]]
        return Answer(OK, None, 0)

    async def close(self) -> None:
        """Nothing to close."""


class SimOps(GrayOps):
    """The workload's client, with the simulated servers."""

    world: World

    async def master(self, group: str) -> str | None:
        return NODES[0]

    def at(self, node: str) -> Any:
        return SimBroker(self.world)

    async def _begin(self, client: str) -> None:
        self._heartbeats = Beats(self.world, client, self)  # type: ignore[assignment]
        await self._heartbeats.first()  # type: ignore[union-attr]

    async def _consumers(self) -> list[str]:
        await self.world.travel()
        return sorted(self.world.members)

    async def _expand(self, op: Op) -> Any:
        await self.world.travel()
        self.world.queues += op.value
        return Completion("ok", op.value)


def _message(topic: str, queue: int, offset: int, body: bytes) -> Message:
    return Message(topic, queue, offset, queue * PHYSICAL + offset, body, {}, 0, 0, "", "", 0, 0, 0, 0, True)


def shares_with_a_bug(workload: GrayWorkload, world: World) -> None:
    """Plant what the bug does to the allocation."""
    right = workload.split.share

    def share(client: str, clients: Sequence[str], flags: Mapping[str, bool], counts: Counts) -> list[Place]:
        mine = right(client, clients, flags, counts)
        if world.bug == "mixed" and client.startswith("m2"):
            return [*mine, ("a", 0)]
        if world.bug == "orphan":
            return [place for place in mine if place != ("a", 2)]
        if world.bug in ("both", "grants") and client.startswith("m3"):
            return workload.split.queues(counts, False)
        return mine

    object.__setattr__(workload.split, "share", share)


def play(
    seed: int,
    *,
    scheme: str = "cured",
    bug: str | None = None,
    trouble: float = 0.0,
    tasks: Sequence[str] | None = None,
    cut: tuple[float, float] | None = None,
    crashes_s: float = 8,
    seconds: float = 24,
    **more: Any,
) -> tuple[RunRecord, GrayWorkload]:
    """Load, recovery and the end of a run. `cut`: when the first name server is not reached. more: options."""
    dice = Random(seed)
    due = ("5s off m1", "8s off m0", "13s on m0", "15s on m1", "18s expand") if tasks is None else tuple(tasks)
    options = {"scheme": scheme, "tasks": list(due), "member_crash_every": crashes_s, **more}
    plan = Plan(workload="gray", seed=seed, rate=400, concurrency=dice.randint(7, 9), options=options)
    workload = GrayWorkload(plan)
    endpoints = {node: (f"198.18.0.{i}", 10911) for i, node in enumerate(NODES)}
    queues = [Queue("t", "a", n) for n in range(6)]
    workload._places = TopicLayout(False, "t", "readers", queues, {"a": NODES}, endpoints, [], [])
    workload.group = "members"
    world = World(Random(seed), trouble, bug)
    if bug is not None:
        shares_with_a_bug(workload, world)
    ops: list[Op] = []

    def client(thread: int) -> SimOps:
        found = SimOps(workload.places, None, Beliefs(), 4, False)  # type: ignore[arg-type]
        found.world = world
        habits = Habits(workload.options.consume, workload.options.failing)
        found.furnish(workload.centre, workload.split, "members", scheme, endpoints, "gray", thread, habits)  # type: ignore[arg-type]
        found.name_servers = {node: Store(world, node) for node in NODES}  # type: ignore[misc]
        found.flags = Flags(found.name_servers, "gray", scheme)  # type: ignore[arg-type]
        found.flags.use(thread)
        return found

    async def cutting() -> None:
        if cut is not None:
            await asyncio.sleep(cut[0])
            world.cut.add(NODES[0])
            await asyncio.sleep(cut[1] - cut[0])
            world.cut.clear()

    async def phases() -> None:
        interpreter = Interpreter(concurrency=plan.concurrency, client=client, journal=ops.append, deadline_s=4)
        striking = asyncio.create_task(cutting())
        for phase, length in (("main", seconds), ("recovery", 4.0)):
            rng = plan.rng(phase)
            load = gen.rate(plan.rate or 1, workload.generator(rng, phase), rng=rng)
            await interpreter.run(gen.clients(gen.time_limit(length, load)), phase)
        keys = sorted({op.key for op in ops if op.key is not None})
        world.trouble = 0  # an answer that is lost ends a drain
        await interpreter.run(workload.final(keys, NODES), "final")
        await interpreter.close()
        await striking

    virtual_time.run(phases())
    return RunRecord(History(ops), deployment=DeploymentRecord("toy", groups={"a": NODES})), workload
