# SPDX-License-Identifier: Apache-2.0
"""A consumer group of RocketMQ's own clients: every message is delivered, in order where that is promised.

Each member is a process on a node of its own, and its consumer is that of a library (`--library`), as a rule Java's
`DefaultMQPushConsumer`. Our own client
sends. Members crash, leave and join again. At the end they consume until nothing comes any more; then the harness reads
every replica, so that it is known which messages the group should have got.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

import harness.generator as gen
from checkers.messages.consumer_times import ORDERLY_S
from harness.api import Client, RunContext
from harness.generator import Generator, Invocation, Source
from harness.plan.plan import Plan, PlanError
from infra.machines.api import Share
from infra.systems.rocketmq.applications.java import JavaProgram
from infra.systems.rocketmq.applications.native import NativeProgram
from infra.systems.rocketmq.applications.own import OwnProgram
from infra.systems.rocketmq.applications.process import Program
from infra.systems.rocketmq.servers import NAMESRV, PROXY
from infra.systems.rocketmq.topologies.layout import PROXY_REMOTING
from results.deployment import DeploymentRecord
from results.figures import SECOND
from results.op import Op
from workloads.applications.library import ROUTE_MS
from workloads.applications.members import Members
from workloads.brokers import BODY_SIZE
from workloads.consume import member_settings
from workloads.consume.client import NAMED, ConsumeOps
from workloads.consume.crew import Consumers
from workloads.consume.group_changes import (
    AWAY_S,
    COPIED_AWAY_S,
    SETTINGS,
    UPDATE,
    USUAL,
    GroupChanges,
)
from workloads.consume.modes import MODE, start_with
from workloads.consume.options import DIRECT, PROXIED, ConsumeOptions
from workloads.consume.sender import Sender
from workloads.consume.times import INVISIBLE, INVISIBLE_S, POLL_S, POP_INVISIBLE_S, READS_S, REVIVED_S, times_of
from workloads.consume.work import MESSAGE_GROUP, WANTED, Work
from workloads.messages import MessageWorkload
from workloads.places import Queue, queue_of
from workloads.proxy_pops import start_at_zero
from workloads.resets import RESET, Resets

if TYPE_CHECKING:
    from checkers.base.api import Checker

REQUEST_S: Final = 2.0
"""The time between two requests to the master of a broker group for the members of the group."""

_POPPED_AGAIN: Final = 16
"""The further attempts of gRPC consumers: `retryMaxTimes` of the subscription group. A push consumer that pops makes no
dead letters (`ConsumeMessagePopConcurrentlyService`); it gets so many attempts, too.
"""

_TIMEOUT_MIN: Final = 1
"""The `consumeTimeout` of members with stuck messages (15 min by default); the library counts in whole minutes."""

_TRIES: Final = 3

_RESTORE: Final = 40
_RESTORE_S: Final = 0.5
"""A request of the final phase for the group's settings is sent so often, and after so long again."""

_COMMIT_MS: Final = 5000

_SINCE_S: Final = 1800.0
"""`consumeTimestamp` is so long before the run, as the library's is before the start of a consumer."""


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
        resets, changes = bool(self.options.resets), bool(self.options.group_changes_every)
        needed = self.options.members + 2 + (resets or changes)
        if plan.concurrency < needed:
            raise PlanError(
                f"concurrency is {plan.concurrency}; {self.name} needs {needed} clients: "
                f"{self.options.members} members{', an administrator' if resets or changes else ''} and two producers"
            )
        if self.options.backlog >= plan.time_limit_s:
            raise PlanError(
                f"backlog is {self.options.backlog:g} s; less than --time-limit ({plan.time_limit_s:g} s) is right"
            )
        self.group = ""
        self.options.check(self.local_proxies)
        self.member_settings = member_settings.parse(
            self.options.member_settings, polls=self.options.library == "lite-pull", version=plan.server.version
        )
        self.grpc, self.fifo = self.options.grpc, self.options.fifo
        self.pops, self.popping = self.options.pops, self.options.popping
        self.changes = self.options.changes
        self.native = self.options.native
        by_broker = self.grpc or self.popping or self.native
        self.again = again = _POPPED_AGAIN if by_broker else self.options.max_attempts_again
        self.work = Work(
            self.options.failing,
            self.options.fails,
            self.options.slow,
            self.options.renewed,
            self.options.acked_twice,
            self.options.delay_level,
            self.options.requests,
            self.options.matching,
            self.options.nacked,
            self.options.stuck,
        )
        self.wanted = frozenset(WANTED) if self.options.filter != "none" else None
        self.times = times_of(self.options, again, plan.server.settings)
        self.final_limit_s = self.times.drain_s + READS_S
        # A proxy has its members' heartbeats in place of the brokers, and pops need no queues.
        ours = self.options.application is None and not self.popping
        self.direct, self.proxied = ours and self.options.library in DIRECT, ours and self.options.library == PROXIED
        self.lags = self.direct and self.options.listener != "broadcast"
        self._crew: Consumers | None = None
        self._sender: Sender | None = None
        self._proxies: Mapping[str, tuple[str, int]] = {}

    @property
    def owning(self) -> bool:
        """True if the group shares the queues among its members, and they report their queues."""
        return (self.direct or self.proxied) and self.options.commits == "auto"

    @property
    def kinds(self) -> Sequence[str]:
        return [] if self.native or self.options.library in DIRECT else [PROXY]

    def shares(self) -> Sequence[Share]:
        if self.options.application is not None:
            return OwnProgram.shares(Path(self.options.application))
        if self.native:
            return NativeProgram.shares()
        return JavaProgram.shares(self.options.library, self.options.grpc_client)

    @property
    def client_nodes(self) -> int:
        return int(self.options.members) + int(self.options.producer == "java")

    async def setup(self, context: RunContext) -> None:
        """Makes the topic and the group on every broker, and puts the program on the members' nodes."""
        self.group = f"members-{context.run}"
        await self.make(context, [self.group], fifo=[self.group] if self.fifo else [])
        if (self.grpc or self.native) and self.options.begins == "first":
            await start_at_zero(self.places, self.group)
        record = context.deployment.record
        broker = next(server for server in record.servers if server.kind == "broker" and server.version)
        through = PROXY_REMOTING if self.options.library == PROXIED else NAMESRV
        if self.proxied:
            ports = [(server, server.ports.get(PROXY_REMOTING)) for server in record.servers]
            self._proxies = {server.node: (server.host, port) for server, port in ports if port is not None}
        consume: dict[str, Any] = {
            "library": self.options.library,
            "proxies": _addresses(record, PROXY),
            "invisible_ms": self.times.invisible_s * 1000,
            "group": self.group,
            "topics": [self.places.topic],
            "nameservers": _addresses(record, through),
            "orderly": self.options.listener == "orderly",
            "broadcast": self.options.listener == "broadcast",
            "begins": self.options.begins,
            "allocation": self.options.allocation,
            "replies": self.options.requests > 0,
            "set": {
                "pollNameServerInterval": ROUTE_MS,
                "persistConsumerOffsetInterval": _COMMIT_MS,
                "maxReconsumeTimes": self.again,
                "consumeThreadMin": 4,
                "consumeThreadMax": 4,
                "consumeMessageBatchMaxSize": self.options.batch,
                **self.member_settings,
            },
        }
        if self.options.stuck:
            consume["set"] |= {"consumeTimeout": _TIMEOUT_MIN, "consumeThreadMin": 20, "consumeThreadMax": 20}
        if self.options.filter == "tag":
            consume["tags"] = " || ".join(WANTED)
        elif self.options.filter == "sql":
            consume["sql"] = f"TAGS in ({', '.join(repr(tag) for tag in WANTED)})"
        if self.options.begins == "time":
            consume["since_ms"] = int((time.time() - _SINCE_S) * 1000)
        if self.options.commits == "by-hand":
            consume["members"] = self.options.members
            consume["assign"] = [
                {"topic": queue.topic, "broker": queue.group, "queue": queue.number} for queue in self.places.queues
            ]
        if self.popping:
            await start_with(self.places, self.group, "POP")
            consume["set"] |= {"clientRebalance": False, "popInvisibleTime": int(POP_INVISIBLE_S * 1000)}
        nodes = context.deployment.clients[: self.options.members]
        version, own = str(broker.version), self.options.application
        program: Program
        if own is not None:
            program = OwnProgram(Path(own), version)
        elif self.native:
            program = NativeProgram()
        else:
            program = JavaProgram(version, self.options.library, self.options.grpc_client, broker.mends)
        queues = self.places.keys if self.owning else ()
        self._crew = Consumers(nodes, program, consume, self.again, queues, shared=self.options.listener == "broadcast")
        await self._crew.install()
        if self.options.producer == "java":
            produce = {
                "group": f"producers-{context.run}",
                "nameservers": _addresses(record, NAMESRV),
                # A broker can pass a reply on only to a producer that has sent it a heartbeat.
                "set": {"pollNameServerInterval": ROUTE_MS, "heartbeatBrokerInterval": ROUTE_MS},
            }
            self._sender = Sender(
                context.deployment.clients[self.options.members],
                JavaProgram(version, "remoting", mends=broker.mends),
                produce,
                large=self.options.large,
                usual=BODY_SIZE,
                raft_log=self.places.raft_log,
            )
            await self._sender.open()

    def client(self, context: RunContext, thread: int) -> Client:
        assert self._crew is not None, "setup must be called first"
        client = self.connect(ConsumeOps, thread)
        masters_only = self.options.group_changes_at == "masters"
        client.furnish(self._crew, self.wanted, self._sender, self._proxies, masters_only=masters_only)
        return client

    def generator(self, rng: Random, phase: str) -> Generator:
        wait_s = self.options.backlog if phase == "main" else 0  # later, the members are there
        members = Members(self.group, rng.getrandbits(32), self.options.member_goes_every, wait_s=wait_s)
        plain = self.sends()

        def send(n: int) -> Invocation:
            op = plain(n)
            properties = self.work.of(op.value)
            if self.fifo:
                properties = {**properties, **self.work.message_group(queue_of(op.key).number, op.value)}
            if self.native:
                properties = {**properties, **self.work.broker(queue_of(op.key).group)}
            return replace(op, extra={"properties": properties})

        others = gen.any_(self._requests(), send) if self.owning else send
        if self.options.resets:
            admin = Resets(
                self.group,
                self.places.keys,
                [Queue(self.places.topic, group, -1).key for group in self.places.groups],
                int(self.options.resets * SECOND),
                rng.getrandbits(32),
                whole=self.options.reset_by == "members",
            )
            others = gen.any_(admin, gen.reserve(1, None, default=others))
        if self.options.group_changes_every:
            administrator = GroupChanges(
                self.group,
                self.changes,
                self.places.keys,
                (_POPPED_AGAIN, _POPPED_AGAIN) if self.grpc else (0, _POPPED_AGAIN),
                int(self.options.group_changes_every * SECOND),
                rng.getrandbits(32),
                broadcast=self.options.listener == "broadcast",
                away_s=AWAY_S if self.options.group_changes_at == "all" else COPIED_AWAY_S,
            )
            others = gen.any_(self._requests(SETTINGS), others)
            others = gen.any_(administrator, gen.reserve(1, None, default=others))
        if self.options.mode_changes_every:
            changes = gen.rate(1 / self.options.mode_changes_every, self._mode)
            others = gen.any_(changes, others)
        return gen.reserve(self.options.members, members, default=others)

    def _mode(self, n: int) -> Invocation:
        """A change of the mode: the first one to pull."""
        return Invocation(MODE, None, "POP" if n % 2 else "PULL", {"group": self.group})

    def _of_brokers(self, f: str) -> list[Invocation]:
        """An op for each broker group, whose key is the first queue there."""
        return [
            Invocation(f, Queue(self.places.topic, group, 0).key, None, {"group": self.group})
            for group in self.places.groups
        ]

    def _requests(self, f: str = NAMED) -> Generator:
        """Requests to the masters, or to the proxies of the members, for the members that they name, for ever; or
        another op (f) to the masters.
        """
        ops = self._of_brokers(f)
        if f == NAMED and self.proxied:
            ops = [Invocation(f, None, None, {"group": self.group, "proxy": node}) for node in self._proxies]
        return gen.rate(len(ops) / REQUEST_S, lambda n: ops[n % len(ops)])

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """The members continue until nothing comes any more, and leave; then every replica is read through."""
        count = self.options.members
        going = Members(
            self.group,
            0,
            0,
            quiet_s=self.times.quiet_s,
            done_s=self.times.done_s,
            astray_s=self.times.astray_s if self.owning else 0,
        )
        rest = gen.reserve(count, gen.time_limit(self.times.drain_s, going))
        if self.owning:
            rest = gen.shortest_any(rest, gen.reserve(count, None, default=self._requests()))
        leave = Members(self.group, 0, 0, ends=True)
        of_group = {"group": self.group}
        last: list[Source] = [Invocation("committed", key, None, of_group) for key in self.places.keys]
        dead = [Queue(f"%DLQ%{self.group}", group, 0).key for group in self.places.groups]
        last += [Invocation("dead-letters", key, 0, of_group) for key in dead] if self.options.failing else []
        if self.lags:
            last += [gen.concurrency_limit(1, gen.limit(_TRIES, gen.until_ok(gen.repeat(op))))
                     for op in self._of_brokers("consume-stats")]  # fmt: skip
        found = self.final_phases(
            gen.clients(rest),
            gen.clients(gen.reserve(count, leave)),
            gen.clients(gen.any_(*last)),
            self.read_replicas(),
        )
        return gen.phases(*self._restored(), found) if self.options.group_changes_every else found

    def _restored(self) -> Iterator[Generator]:
        """Yields requests for the settings of the group as the masters have them, then for its usual ones. Only then
        the group can get what it lacks.
        """
        usual = Invocation(UPDATE, None, USUAL, {"group": self.group})
        for ops in (self._of_brokers(SETTINGS), [usual]):
            tried = [gen.until_ok(gen.limit(_RESTORE, gen.delay(_RESTORE_S, gen.repeat(op)))) for op in ops]
            yield gen.clients(gen.any_(*(gen.concurrency_limit(1, each) for each in tried)))

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.consuming import (
            Broadcast,
            Delivered,
            Groups,
            GroupSettings,
            Invisible,
            Lag,
            Ordered,
            Progress,
            Prompt,
            Replayed,
            Replies,
            Retried,
            Returned,
            TimedOut,
        )
        from checkers.messages.consuming.retried import LATE_S
        from checkers.messages.log import LogAnomalies, Replicas

        listener = self.options.listener
        wanted = self.wanted
        holds = not (self.grpc or self.popping)
        commits = self.options.application is None and not self.native
        delivered = Delivered(
            wanted,
            holds=holds,
            quiet_s=self.times.still_s,
            hidden_s=self.times.hidden_s,
            in_order=self.pops and self.fifo,
            commits=commits,
        )
        of_group: list[Checker] = [
            Broadcast(wanted, last=self.options.begins == "last") if listener == "broadcast" else delivered
        ]
        if listener == "orderly":
            of_group.append(Ordered(wanted, self.again, within=MESSAGE_GROUP if self.fifo else None, leased=self.pops))
        # librocketmq sends all messages of a pull back if one fails: attempts and their delays are not of one message.
        together = self.native and bool(self.options.failing)
        if self.options.failing and not together:
            of_group.append(
                Retried(
                    self.again,
                    delays=listener == "concurrently" and not self.grpc,
                    holds=holds,
                    late_s=LATE_S if holds else REVIVED_S,
                )
            )
        if self.options.stuck:
            of_group.append(TimedOut(_TIMEOUT_MIN * 60))
        # A message that failed holds the others up; a change of the mode stops a member for up to 20 s; members that
        # commit by hand pause their queues; librocketmq may find a new master after 30 s.
        by_hand = self.options.commits == "by-hand"
        waiting = (self.fifo and self.options.failing) or self.options.mode_changes_every or by_hand or self.native
        if not waiting:
            of_group.append(Prompt(ORDERLY_S if listener == "orderly" and not self.grpc else 0))
        if listener != "broadcast" and not together:
            stalls = max(self.times.still_s, self.times.settled_s)
            of_group.append(Progress(stalls, wanted, holds=holds, in_order=self.fifo))
        every = deployment.traits.offsets_copied_s or 10.0
        within = every + max(5.0, every / 4)
        if self.options.group_changes_every:
            of_group.append(GroupSettings(within, masters_only=self.options.group_changes_at == "masters"))
        if self.options.resets:
            of_group.append(Replayed(wanted, holds=not self.grpc, copied_within_s=within, quiet_s=self.times.still_s))
        if self.owning:
            of_group.append(Groups(shared=listener == "broadcast", within_s=self.times.settled_s))
        if self.lags:
            of_group.append(Lag(wanted))
        if self.pops:
            of_group.append(Invisible(REVIVED_S))
        if self.options.library == "grpc-push" and not self.fifo:
            of_group.append(Returned(self.times.invisible_s + POLL_S + REVIVED_S))
        if self.options.requests:
            of_group.append(Replies())
        return [LogAnomalies(), Replicas(self.plan.recovery_limit_s), *of_group]

    def server_settings(self) -> Mapping[str, str]:
        more = {"broker.enablePropertyFilter": "true"} if self.options.filter == "sql" else {}
        if self.pops and self.fifo:
            more["proxy.minInvisibleTimeMillsForRecv"] = str(self.times.invisible_s * 1000)
        if self.options.library == "grpc-push":
            more[INVISIBLE] = str(INVISIBLE_S["grpc-push"] * 1000)
        if self.options.resets:
            more["broker.useServerSideResetOffset"] = str(self.options.reset_by == "brokers").lower()
        return {**super().server_settings(), **more}

    @property
    def needed(self) -> Sequence[str]:
        changes = [MODE] if self.options.mode_changes_every else []
        changes += [UPDATE, SETTINGS] if self.options.group_changes_every else []
        return ["send", "join", "take", *([RESET] if self.options.resets else []), *changes]

    def acknowledges(self, op: Op) -> bool:
        """A message that was acknowledged."""
        return op.f == "send" and op.type == "ok"


def _addresses(record: DeploymentRecord, kind: str) -> str:
    return ";".join(f"{host}:{port}" for host, port in record.endpoints(kind))
