# SPDX-License-Identifier: Apache-2.0
"""The value of an acknowledgement: the number of replicas that hold the message at that moment (quorum write and
downgrade).

Most clients send. One takes the newest acknowledgement, again and again, and looks for the message in the commit logs
of all replicas at once: it queries each broker. If a broker does not answer (stopped, killed, or cut off), it may still
have the message, so the client reads the file on its node. The others query the name servers for the live members of
the group (901), and each broker for its replicas in sync (907) and its settings (26).

The judge uses the settings that the brokers report: a `config-change` counts from the first report with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import harness.generator as gen
from harness.api import Client, Completion, RunContext
from harness.generator import Generator, Invocation
from harness.plan.plan import Plan, PlanError
from infra.machines.api import InfraError
from infra.options import Seconds, Size, option
from infra.systems.api import Server
from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError, BrokerAdmin
from infra.systems.rocketmq.protocol.messages import Message, MessageError, parse_offset_message_id
from infra.systems.rocketmq.store.remote import record_at
from results.deployment import DeploymentRecord
from results.op import OK, Op
from workloads.brokers import BrokerClient, shown_id
from workloads.log import LogOptions, LogWorkload
from workloads.name_servers import NameServerClient, name_servers, questions
from workloads.places import queue_of

if TYPE_CHECKING:
    from checkers.base.api import Checker

PROBE_SHARE: Final = 0.06
QUESTION_SHARE: Final = 0.24
"""Shares of all ops; the rest are sends."""

ASKERS: Final = 3
"""The number of clients with queries: a query to a stopped broker waits for its deadline."""

ASK_S: Final = 0.5
"""The longest time for a broker's answer to a query, or for a message, before its file is read."""


@dataclass(frozen=True)
class QuorumAckOptions(LogOptions):
    """The options of the workload."""

    in_sync_replicas: int = option(3, "inSyncReplicas: replicas that must have a message, the master included.", low=1)
    min_in_sync_replicas: int = option(2, "minInSyncReplicas: so many at least, however few are left.", low=1)
    auto: bool = option(True, "enableAutoInSyncReplicas: with fewer replicas in sync, fewer are waited for.")
    all_ack: bool = option(True, "allAckInSyncStateSet, with controllers: all replicas in sync are waited for.")
    max_gap: Size = option(Size(256 << 20), "haMaxGapNotInSync: a slave that is behind by so much is not in sync.")
    slave_timeout: Seconds = option(Seconds(2), "slaveTimeout: how long a send waits for replicas.", low=0.1)
    detected_within: Seconds = option(Seconds(6), "Brokers must notice within so long that a replica is gone.", low=1)
    returns_within: Seconds = option(
        Seconds(15), "A replica that answers again must be counted again within so long.", low=1
    )


class QuorumAckWorkload(LogWorkload):
    """Sends, and a look at every replica after acknowledgements while the faults last."""

    name = "quorum-ack"
    summary = "what an acknowledgement is worth: how many replicas hold the message at that moment, whatever fails"
    topologies: ClassVar[Sequence[str]] = ("slave-acting-master", "controller", "master-slave", "dledger-commitlog")
    clients: ClassVar[Sequence[str]] = ("remoting",)
    Options: ClassVar[type] = QuorumAckOptions
    topology_options: ClassVar[Mapping[str, Any]] = {"replicas": 3, "brokers": 3}
    default_rate = 120.0
    prefix = "quorum"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        options = self.options
        if plan.concurrency < ASKERS + 2:
            raise PlanError(f"concurrency is {plan.concurrency}; {self.name} needs {ASKERS + 2} clients at least")
        if options.min_in_sync_replicas > options.in_sync_replicas:
            raise PlanError(
                f"min_in_sync_replicas is {options.min_in_sync_replicas}; "
                f"1 to {options.in_sync_replicas} (in_sync_replicas) is right"
            )
        replicas = plan.server.options.get("replicas") or plan.server.options.get("brokers") or len(plan.nodes)
        if options.in_sync_replicas > replicas:
            raise PlanError(f"in_sync_replicas is {options.in_sync_replicas}, and the group has {replicas} replicas")
        if options.slave_timeout >= plan.op_deadline_s:
            raise PlanError(
                f"slave_timeout is {options.slave_timeout:g} s; less than the deadline of an operation "
                f"({plan.op_deadline_s:g} s) is right: else no client sees what comes of it"
            )
        self.servers: Mapping[str, tuple[str, int]] = {}
        self._acked: deque[_Acked] = deque(maxlen=1)
        self._brokers: Mapping[str, Server] = {}

    async def setup(self, context: RunContext) -> None:
        """Makes the topic. Raises InfraError for a group that is too small, as in a kept cluster with other options."""
        self.servers = name_servers(context)
        self._brokers = {s.node.name: s for s in context.deployment.servers() if s.group is not None}
        await self.make(context)
        for group, nodes in self.places.groups.items():
            if len(nodes) < self.options.in_sync_replicas:
                wanted = self.options.in_sync_replicas
                raise InfraError(f"in_sync_replicas is {wanted}, and the group {group} has {len(nodes)} replicas")

    def client(self, context: RunContext, thread: int) -> Client:
        client = self.connect(QuorumAckOps, thread)
        client.name_servers = NameServerClient(self.places, self.servers)
        client.acked, client.brokers = self._acked, self._brokers
        return client

    def generator(self, rng: Random, phase: str) -> Generator:
        rate, asked = self.plan.rate or self.default_rate, self._questions()
        return gen.reserve(
            1,
            gen.rate(rate * PROBE_SHARE, lambda n: Invocation("held", None, None)),
            ASKERS,
            gen.rate(rate * QUESTION_SHARE, lambda n: asked[n % len(asked)]),
            default=self.sends(),
        )

    def _questions(self) -> list[Invocation]:
        """One round of queries: the members and the replicas in sync twice, the settings once."""
        nodes = list(self._brokers)
        members = questions("members", list(self.places.groups), list(self.servers))
        in_sync = [Invocation("in-sync", None, None, {"node": node}) for node in nodes]
        return [*members, *in_sync, *members, *in_sync, *_settings(nodes)]

    def server_settings(self) -> Mapping[str, str]:
        options = self.options
        return {
            **super().server_settings(),
            "broker.inSyncReplicas": str(options.in_sync_replicas),
            "broker.minInSyncReplicas": str(options.min_in_sync_replicas),
            "broker.enableAutoInSyncReplicas": str(options.auto).lower(),
            "broker.allAckInSyncStateSet": str(options.all_ack).lower(),
            "broker.haMaxGapNotInSync": str(options.max_gap),
            "broker.slaveTimeout": str(int(options.slave_timeout * 1000)),
        }

    @classmethod
    def judges(cls, fs: Set[str], identified: bool) -> Sequence[Checker] | None:
        return None

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.quorum import QuorumAck

        options = self.options
        judge = QuorumAck(options.detected_within, options.returns_within)
        return [judge, *super().judged(deployment)]

    @property
    def needed(self) -> Sequence[str]:
        return ["send", "held", "settings", "replica-read"]


class _Acked(NamedTuple):
    """An acknowledged message, and its place in the commit log of the master."""

    topic: str
    message: int
    physical: int


class QuorumAckOps(BrokerClient):
    """The workload's client."""

    name_servers: NameServerClient
    acked: deque[_Acked]
    """The newest acknowledgement without a look; it belongs to the run."""
    brokers: Mapping[str, Server]

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "send":
                done = await self.send(op)
                self._note(op, done)
                return done
            case "held":
                return await self._held()
            case "members":
                return await self.name_servers.ask(op)
            case "in-sync":
                return await self._in_sync(str(op.extra["node"]))
            case "settings":
                return await self._settings(str(op.extra["node"]))
        return await super().invoke(op)

    async def close(self) -> None:
        await self.name_servers.close()
        await super().close()

    def _note(self, op: Op, done: Completion) -> None:
        if done.type != OK or "message_id" not in done.extra:
            return
        try:
            _, _, physical = parse_offset_message_id(str(done.extra["message_id"]))
        except MessageError:
            return
        self.acked.append(_Acked(queue_of(op.key).topic, int(op.value), physical))

    async def _held(self) -> Completion:
        """Looks for the newest acknowledged message in the replicas' logs: node -> true, false, or null (unknown).
        `by_file`: the nodes whose file was read.
        """
        if not self.acked:
            return Completion("fail", None, "nothing was acknowledged since the last look")
        acked = self.acked.pop()
        nodes = list(self.brokers)
        looks = await asyncio.gather(*(self._look(node, acked) for node in nodes))
        by_file = [node for node, (_, by) in zip(nodes, looks, strict=True) if by]
        value = {"id": acked.message, "held": {n: held for n, (held, _) in zip(nodes, looks, strict=True)}}
        return Completion("ok", value, extra={"by_file": by_file} if by_file else {})

    async def _look(self, node: str, acked: _Acked) -> tuple[bool | None, bool]:
        """(True if a replica has the message, None: unknown; True if its file was read)."""
        viewed = await self.at(node).message_at(acked.topic, acked.physical, deadline_s=ASK_S)
        if viewed.outcome.type == OK:
            return _is(acked, viewed.message), False
        try:
            return _is(acked, await asyncio.to_thread(record_at, self.brokers[node], acked.physical)), True
        except InfraError:
            return None, True

    async def _in_sync(self, node: str) -> Completion:
        """A broker's report of its replicas: `master`: true if it is one; `in_sync`: the number that it counts, itself
        included; `behind`: node -> bytes, as far as it knows.
        """
        try:
            async with BrokerAdmin(*self.places.endpoints[node], deadline_s=ASK_S) as broker:
                status = await broker.ha_status()
        except (RemotingError, AdminError) as problem:
            return Completion("fail", None, str(problem), {"node": node})
        hosts = {host: name for name, (host, _) in self.places.endpoints.items()}
        slaves = status.get("haConnectionInfo") or []
        behind = {hosts.get(str(s.get("addr", "")).rpartition(":")[0], "?"): s.get("diff") for s in slaves}
        value: dict[str, Any] = {
            "master": bool(status.get("master")),
            "in_sync": 1 + int(status.get("inSyncSlaveNums", 0)),
        }
        return Completion("ok", value | {"behind": behind}, extra={"node": node})

    async def _settings(self, node: str) -> Completion:
        from checkers.messages.quorum.rules import SETTINGS

        try:
            async with BrokerAdmin(*self.places.endpoints[node], deadline_s=ASK_S) as broker:
                found = await broker.config()
        except (RemotingError, AdminError) as problem:
            return Completion("fail", None, str(problem), {"node": node})
        return Completion("ok", {name: found[name] for name in SETTINGS if name in found}, extra={"node": node})


def _settings(nodes: Sequence[str]) -> list[Invocation]:
    return [Invocation("settings", None, None, {"node": node}) for node in nodes]


def _is(acked: _Acked, found: Message | None) -> bool:
    return found is not None and shown_id(found) == acked.message
