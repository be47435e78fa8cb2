# SPDX-License-Identifier: Apache-2.0
"""The identity of brokers under controllers: the ids that brokers get, and the state after a crash at each step of the
registration.

One client goes through the crash table (`crash_table`): for each row a new broker name, whose brokers are added to the
cluster for it (`members`). They die or lose a frame at a step of their registration, by a proxy on their node; they
lose files, are cloned, wiped, started at another address, or removed by an operator. Every controller is queried for
its state. The other clients send messages to the brokers that are always there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

import harness.generator as gen
from harness.api import Client, Completion, Phase, RunContext
from harness.generator import Generator, Invocation
from harness.plan.plan import Plan, PlanError
from harness.run.phases import Load
from infra.machines.api import InfraError
from infra.options import Seconds, option
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, Controller
from infra.systems.rocketmq.servers import artifacts
from infra.systems.rocketmq.topologies.layout import CLUSTER
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.brokers import BrokerClient
from workloads.crash_table import Step, rows
from workloads.members import CONTROLLER, Members
from workloads.messages import MessageWorkload
from workloads.trials import ASKS, Trial, Trials

if TYPE_CHECKING:
    from checkers.base.api import Checker

HEARTBEAT_MS: Final = 12000
"""A registered broker without a master sends heartbeats only together with its request to become one, every 5 s. If the
controllers give it up before that, the result of its restart is random.
"""

SINCE: Final = "5.1.1"

SEND_RATE: Final = 15.0
"""Messages per second."""

MOST_S: Final = 480.0
"""A limit that no trial reaches, together with a second one in its place."""

_ASK_S: Final = 2.0


@dataclass(frozen=True)
class IdentityOptions:
    """The options of the workload."""

    rows: tuple[str, ...] = option(
        (), "A row of the crash table (docs/broker-identity.md); none named: all of them.", flag="--row"
    )
    repeat: int = option(1, "How often each row is tried.", low=1, high=1000)
    lanes: int = option(
        2, "How many trials go on at one time, each on a node of its own, if there are two nodes more.", low=1, high=20
    )
    runs_within: Seconds = option(
        Seconds(30), "A broker must run within so long after it was started, or after the last fault.", low=5
    )


class BrokerIdentityWorkload(MessageWorkload):
    """The crash table, and sends."""

    name = "broker-identity"
    summary = "brokers that register, and die, lose frames or files at each step: one id each, for ever"
    topologies: ClassVar[Sequence[str]] = ("controller",)
    Options: ClassVar[type] = IdentityOptions
    default_rate = 2 * SEND_RATE
    restart_before_final = True
    brings_faults = True
    kills = ("arm",)
    prefix = "identity"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        version = plan.server.version
        if version is not None and artifacts.before(version, SINCE):
            raise PlanError(f"version is {version}; brokers have an id that lasts since {SINCE}")
        if plan.concurrency <= self.options.lanes:
            raise PlanError(
                f"concurrency is {plan.concurrency}; {self.name} needs {self.options.lanes + 1} clients: one for each "
                "lane, and one that sends"
            )
        if plan.faulty:
            raise PlanError(f"the rows of the crash table are the faults of {self.name}; --nemesis none is right")
        table = rows(self.options.runs_within)
        unknown = [name for name in self.options.rows if name not in table]
        if unknown:
            raise PlanError(f"rows: {unknown[0]!r} is no row of the crash table; {', '.join(table)} are")
        self.rows = [table[name] for name in self.options.rows or table]
        self.run = ""
        self.members: Members | None = None
        self.controllers: Mapping[str, tuple[str, int]] = {}

    async def setup(self, context: RunContext) -> None:
        """Makes the topic; starts the proxies."""
        await self.make(context)
        self.run = context.run
        found = context.deployment.record.having(CONTROLLER)
        self.controllers = {s.node: (s.host, s.ports[CONTROLLER]) for s in found}
        self.members = Members(context.deployment)
        await asyncio.to_thread(self.members.prepare)

    def client(self, context: RunContext, thread: int) -> Client:
        client = self.connect(IdentityOps, thread)
        assert self.members is not None
        client.members = self.members
        client.controllers = self.controllers
        return client

    def phases(self, usual: Sequence[Phase]) -> Sequence[Phase]:
        """The phases. The main phase takes as long as the trials, regardless of the time limit."""
        most = self.options.repeat * len(self.rows) * MOST_S
        return [replace(p, seconds=most) if isinstance(p, Load) and p.strikes else p for p in usual]

    def lanes(self) -> tuple[list[list[Trial]], list[Trial]]:
        """Trials that go on side by side, lane by lane, and those behind them, each alone. A lane has its own node;
        only the first has trials with several brokers, which are on the nodes that no lane has.
        """
        several = self.options.lanes if self.options.lanes + 2 <= len(self.plan.nodes) else 1
        lanes: list[list[Trial]] = [[] for _ in range(several)]
        alone: list[Trial] = []
        for turn in range(self.options.repeat):
            for row in self.rows:
                shortest = 0 if row.members > 1 else min(range(several), key=lambda n: len(lanes[n]))
                found = alone if row.alone else lanes[shortest]
                steps = [step for one in row.steps for step in self._placed(one, shortest, several)]
                found.append(Trial(f"t{self.run}-{turn}-{row.name}", row.name, steps))
        return [lane for lane in lanes if lane], alone

    def _placed(self, step: Step, lane: int, lanes: int) -> list[Step]:
        """The step with the place where its member enters; a query to the controllers becomes one to each of them."""
        if step.f == "enter" and not step.on:
            return [replace(step, value=lane if step.member == 0 else lanes + step.member - 1)]
        asked = step.f in ASKS and step.on == "controllers"
        return [replace(step, on=node) for node in self.controllers] if asked else [step]

    def generator(self, rng: Random, phase: str) -> Generator:
        """Each trial once; the phase ends with the last one."""
        if phase != "main":
            return gen.as_generator(self.sends())
        lanes, alone = self.lanes()
        first = max(1, len(lanes))
        side_by_side = [one for lane in lanes for one in (1, Trials(tuple(lane)))]
        trials = gen.phases(gen.reserve(*side_by_side) if lanes else None, Trials(tuple(alone)))
        return gen.shortest_any(
            gen.on_threads(lambda thread: 0 <= thread < first, trials),
            gen.on_threads(lambda thread: thread >= first, gen.rate(SEND_RATE, self.sends())),
        )

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """The remaining members leave. Then each controller is queried about each name."""
        present = self.members.present if self.members is not None else []
        leave = [Invocation("leave", group, None, {"member": member}) for group, member in present]
        asks = [
            Invocation(f, group, None, {"controller": node})
            for group in keys
            if group.startswith(f"t{self.run}-")
            for f in ASKS
            for node in self.controllers
        ]
        return gen.phases(gen.clients(leave), gen.clients(asks))

    def server_settings(self) -> Mapping[str, str]:
        return {**super().server_settings(), "broker.controllerHeartBeatTimeoutMills": str(HEARTBEAT_MS)}

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.controllers.identity import BrokerIdentity

        wanted = [row.name for row in self.rows for _ in range(self.options.repeat)]
        return [
            BrokerIdentity(wanted, self.options.runs_within),
        ]

    @property
    def needed(self) -> Sequence[str]:
        return ["send", "enter", "start", "look", "next", "view"]


class IdentityOps(BrokerClient):
    """The workload's client."""

    members: Members
    controllers: Mapping[str, tuple[str, int]]

    async def invoke(self, op: Op) -> Completion:
        if op.f == "send":
            return await self.send(op)
        if op.f in (*ASKS, "clean"):
            return await self._ask(op)
        extra = {name: op.extra[name] for name in ("row", "member") if name in op.extra}
        value = op.value
        try:
            if op.f == "enter" and op.extra.get("on") == "leader":
                value = await self._leader()
            found = await asyncio.to_thread(self.members.do, op.f, str(op.key), op.extra["member"], value)
        except InfraError as problem:
            return Completion("info", op.value, str(problem), extra)
        if op.f == "arm" and value.get("victim") == CONTROLLER:
            extra["ends"] = found.pop("ends")
        return Completion("ok", found if found is not None else op.value, extra=extra)

    async def _leader(self) -> str:
        """The node of the controller that leads. Raises InfraError if none does."""
        for node, at in self.controllers.items():
            async with Controller(*at, deadline_s=_ASK_S) as controller:
                try:
                    if (await controller.metadata()).is_leader:
                        return node
                except (RemotingError, AdminError):
                    continue
        raise InfraError("no controller leads")

    async def _ask(self, op: Op) -> Completion:
        """`next`: the id. `view`: `replicas` (id -> address), `in_sync` (ids), `master` (id) and `alive` (ids); None if
        the controller does not know the name. `clean`: at the controller that leads.
        """
        extra = {name: op.extra[name] for name in ("row", "member", "controller") if name in op.extra}
        group = str(op.key)
        if op.f == "clean":
            return await self._clean(op, group, extra)
        async with Controller(*self.controllers[op.extra["controller"]], deadline_s=_ASK_S) as controller:
            try:
                if op.f == "next":
                    return Completion("ok", await controller.next_broker_id(CLUSTER, group), extra=extra)
                return Completion("ok", _view((await controller.sync_state([group])).get(group)), extra=extra)
            except (RemotingError, AdminError) as problem:
                return Completion("fail", None, str(problem), extra)

    async def _clean(self, op: Op, group: str, extra: dict[str, Any]) -> Completion:
        """One attempt at the controller that leads."""
        try:
            node = await self._leader()
        except InfraError as problem:
            return Completion("fail", op.value, str(problem), extra)
        extra["controller"] = node
        async with Controller(*self.controllers[node], deadline_s=_ASK_S) as controller:
            try:
                await controller.clean_broker_data(CLUSTER, group, [op.value])
            except AdminError as problem:
                return Completion("fail", op.value, str(problem), extra)
            except RemotingError as problem:
                return Completion("info", op.value, str(problem), extra)
        return Completion("ok", op.value, extra=extra)


def _view(told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if told is None:
        return None
    in_sync, others = told.get("inSyncReplicas") or [], told.get("notInSyncReplicas") or []
    return {
        "replicas": {str(r["brokerId"]): r["brokerAddress"] for r in (*in_sync, *others)},
        "in_sync": sorted(r["brokerId"] for r in in_sync),
        "alive": sorted(r["brokerId"] for r in (*in_sync, *others) if r.get("alive")),
        "master": told.get("masterBrokerId"),
    }
