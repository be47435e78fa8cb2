# SPDX-License-Identifier: Apache-2.0
"""Transactional messages: half messages that are committed, rolled back, or left for the broker to ask about.

Clients send half messages to the master of each queue. Most are ended at once; the others are left undecided. One
producer has a connection to every broker, sends it heartbeats, and takes the brokers' questions (check-backs). The
outcome of a message depends on its id alone, so all brokers get the same answer; one in 32 messages is never decided.
Readers poll all queues of all nodes, so that a message is found wherever it was delivered. At the end, questions are
answered until the last one must have come. Then every replica is read.

With `--client grpc`, RocketMQ's proxies send the half messages and their ends, and pass the brokers' questions on. They
send ends one-way, so the outcome of each is unknown.

With `--producer java`, RocketMQ's own producers do all that but the reads (`workloads.transaction_producers`). They
crash, leave and come back, and a broker must ask those that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

import harness.generator as gen
from harness.api import Client, RunContext, Watch
from harness.generator import PENDING, Generator, Invocation, Pending, Source, Step
from harness.generator.context import Context
from harness.plan.plan import Plan, PlanError
from infra.options import Seconds, option
from infra.systems.rocketmq.applications.java import JavaProgram
from infra.systems.rocketmq.servers import NAMESRV
from results.deployment import DeploymentRecord
from results.figures import SECOND
from results.op import INVOKE, OK, Op
from workloads.applications.library import ROUTE_MS
from workloads.applications.members import Members
from workloads.asked import AskedProducer, ProxyAsked
from workloads.clients import PROXY_ROUTE_S, proxy_listeners, proxy_routes
from workloads.messages import HANDING_NOTHING_OVER, PHASE, MessageWorkload, read_rounds, reader_count
from workloads.places import Queue
from workloads.reading import Polls, ReadToEnd
from workloads.transaction_clients import GIVEN_UP, ProxyTransactionOps, TransactionOps
from workloads.transaction_producers import HEARTBEAT_MS, Producers, timeout_ms

if TYPE_CHECKING:
    from checkers.base.api import Checker

POLL_SHARE: Final = 1 / 3
"""The share of all ops."""

HALF_SHARE: Final = 1 / 6
"""The share of all ops. Each needs an end, and clients must be free for the questions that come all at once after a
change of master: after a late answer, a broker asks again.
"""

TIMEOUT_S: Final = 3.0
INTERVAL_S: Final = 5.0
CHECK_MAX: Final = 15
BATCH_S: Final = 0.5
"""Settings of the brokers: they ask after the timeout, search for open transactions once in an interval, give a half
message up after so many questions (RocketMQ's default), and store their decisions in batches.
"""

PROXY_HEARTBEAT_S: Final = 5.0
"""The time between two heartbeats of a proxy that name its producers to the brokers (RocketMQ's default: 20 s)."""

Answer = Literal["commit", "rollback"]


@dataclass(frozen=True)
class TransactionOptions:
    """The options of the workload."""

    late_after: Seconds = option(
        Seconds(10),
        "A broker must ask so long after its timeout and two intervals, or after a fault begins or ends.",
        low=1,
    )
    check_max: int = option(
        CHECK_MAX,
        "The brokers' transactionCheckMax: the questions without an answer after which a half message is given up.",
        low=1,
        high=100,
    )
    check_interval: Seconds = option(
        Seconds(INTERVAL_S), "The brokers' transactionCheckInterval: the time between two questions.", low=1, high=60
    )
    immune: int = option(
        0, "So many percent of the half messages carry an immunity time, in which no broker may ask.", low=0, high=100
    )
    immunity: int = option(
        30, "With --immune: the immunity time in seconds (CHECK_IMMUNITY_TIME_IN_SECONDS).", low=1, high=600
    )
    producer: Literal["harness", "java"] = option(
        "harness",
        "The client of the transactions: our own, or a group of RocketMQ's Java producers, each in a process on a node "
        "of its own.",
    )
    producers: int = option(2, "With --producer java: the producers of the group.", low=1, high=4)
    producer_goes_every: Seconds = option(
        Seconds(20),
        "With --producer java: how often each producer crashes or leaves, on average; it is back after 2 s. 0: never.",
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one message: committed, rolled back, or never decided (None); `at_once`, or only when asked."""

    answer: Answer | None
    at_once: bool

    @staticmethod
    def of(identity: int, queues: int) -> Decision:
        """The decision of a message, in any phase of the run."""
        turn = (identity - 1) % PHASE // queues
        if turn % 32 == 31:
            return Decision(None, False)
        kind = turn % 8
        return Decision("rollback" if kind in (1, 5) else "commit", kind not in (3, 5))


class Immune(NamedTuple):
    """So many percent of the half messages have an immunity time of so many seconds."""

    percent: int
    seconds: int


def immunity_of(identity: int, queues: int, immune: Immune | None) -> dict[str, Any]:
    """The immunity time of a half message, as its invocation has it; it does not depend on the decision."""
    turn = (identity - 1) % PHASE // queues
    return {"immunity_s": immune.seconds} if immune is not None and turn * 37 % 100 < immune.percent else {}


@dataclass(frozen=True, slots=True, eq=False)
class Transacting(Generator):
    """Half messages for all queues in turn, with ids from `first` on; their ends; and one client that waits for
    questions.

    gap      ns from one half message to the next; None: no half messages.
    immune   the half messages with an immunity time; None: none has.
    after    the time (ns) when the next one is due.
    due      ends to be made.
    one_way  True if no broker answers an end.
    asking   True if a client waits for a question.
    """

    keys: Sequence[str]
    first: int
    gap: int | None
    one_way: bool = False
    immune: Immune | None = None
    after: int = 0
    n: int = 0
    due: tuple[Invocation, ...] = ()
    asking: bool = False

    def op(self, ctx: Context) -> Step:
        if not ctx.free_takers:
            return PENDING, self
        if self.due:
            return self.due[0], replace(self, due=self.due[1:])
        if not self.asking:
            return Invocation("check"), replace(self, asking=True)
        if self.gap is None:
            return PENDING, self
        if ctx.time < self.after:
            return Pending(self.after), self
        identity, queues = self.first + self.n, len(self.keys)
        half = Invocation("half", self.keys[self.n % queues], identity, immunity_of(identity, queues, self.immune))
        return half, replace(self, n=self.n + 1, after=ctx.time + self.gap)

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.type == INVOKE:
            return self
        if event.f == "half" and event.type == OK and "half" in event.extra:
            identity = event.value[1]
            return self._with(identity, event.extra) if self._decided(identity).at_once else self
        if event.f == "check":
            after = replace(self, asking=False)
            if event.type != OK or type(event.value) is not int:
                return after
            by = event.extra["node" if "node" in event.extra else "proxy"]
            return after._with(event.value, {**event.extra, "asked_by": by})
        return self

    def _decided(self, identity: int) -> Decision:
        return Decision.of(identity, len(self.keys))

    def _with(self, identity: int, of: Mapping[str, Any]) -> Transacting:
        """The same, with the message's end, if it has one. `of`: the place of its half message, and the asking node, or
        that of the proxy that passed the question on.
        """
        answer = self._decided(identity).answer
        if answer is None:
            return self
        extra = {"as": answer, **{name: of[name] for name in ("half", "asked_by") if name in of}}
        if self.one_way:
            extra["one_way"] = True
        end = Invocation("end", self.keys[(identity - 1) % PHASE % len(self.keys)], identity, extra)
        return replace(self, due=(*self.due, end))


def half_of(topic: str, message: int, queues: int, immune: Immune | None = None) -> Invocation:
    """A half message by a Java producer, whose library chooses the queue: `local` and `checked` are the answers of its
    listener. A decision that is not made at once leaves the transaction open until the broker asks.
    """
    decision = Decision.of(message, queues)
    plan = {"local": decision.answer if decision.at_once else None, "checked": decision.answer}
    return Invocation("half", topic, message, {**plan, **immunity_of(message, queues, immune)})


class TransactionWorkload(MessageWorkload):
    """Half messages, their ends, and the brokers' questions; polls; afterwards every replica is read."""

    name = "transaction"
    summary = "half messages, ended or asked about: committed ones appear, once; all others never"
    topologies: ClassVar[Sequence[str]] = ("slave-acting-master", "controller", "master-slave", "dledger-commitlog")
    clients: ClassVar[Sequence[str]] = ("remoting", "grpc")
    fewer_topologies: ClassVar[Mapping[str, Sequence[str]]] = {"grpc": HANDING_NOTHING_OVER}
    message_type: ClassVar[str | None] = "TRANSACTION"
    Options: ClassVar[type] = TransactionOptions
    default_rate = 200.0
    reads_files = True
    replicas_follow = True
    prefix = "transaction"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.java = self.options.producer == "java"
        self.proxied = plan.client == "grpc"
        if self.java and self.proxied:
            raise PlanError("client is 'grpc'; with --producer java only remoting is right")
        for name in ("producers", "producer_goes_every") if not self.java else ():
            if (given := getattr(self.options, name)) != getattr(TransactionOptions(), name):
                raise PlanError(f"{name} is {given}; it needs --producer java")
        if self.options.immune and self.proxied:
            raise PlanError("client is 'grpc'; with --immune only remoting is right")
        if not self.options.immune and self.options.immunity != TransactionOptions().immunity:
            raise PlanError(f"immunity is {self.options.immunity}; it needs --immune")
        if plan.concurrency < 3:
            raise PlanError(f"concurrency is {plan.concurrency}; {self.name} needs 3 clients: one reads, one is asked")
        if self.java and plan.concurrency < self.options.producers + 2:
            raise PlanError(
                f"concurrency is {plan.concurrency}; {self.name} needs {self.options.producers + 2} clients: "
                f"{self.options.producers} producers, one that sends, and one that reads"
            )
        self._asked: AskedProducer | ProxyAsked | None = None
        self._producers_group = ""
        self._java_producers: Producers | None = None

    @property
    def client_nodes(self) -> int:
        return int(self.options.producers) if self.java else 0

    async def setup(self, context: RunContext) -> None:
        """Makes the topic on every broker, and the producer that brokers ask. With Java producers it belongs to another
        group, and no broker may ask it.
        """
        await self.make(context)
        self._producers_group = f"producers-{context.run}"
        if self.proxied:
            topics = [queue.topic for queue in self.places.queues]
            self._asked = ProxyAsked(await proxy_listeners(context, topics))
            return
        if not self.java:
            self._asked = AskedProducer(self.places.endpoints, self._producers_group)
            return
        self._asked = AskedProducer(self.places.endpoints, f"strangers-{context.run}")
        record = context.deployment.record
        broker = next(server for server in record.servers if server.kind == "broker" and server.version)
        produce = {
            "group": self._producers_group,
            "nameservers": ";".join(f"{host}:{port}" for host, port in record.endpoints(NAMESRV)),
            "set": {
                "pollNameServerInterval": ROUTE_MS,
                "heartbeatBrokerInterval": HEARTBEAT_MS,
                "sendMsgTimeout": timeout_ms(self.plan.op_deadline_s),
            },
        }
        program = JavaProgram(str(broker.version), "remoting", mends=broker.mends)
        self._java_producers = Producers(
            context.deployment.clients, program, produce, self.places.node_at, raft_log=self.places.raft_log
        )
        await self._java_producers.install()

    def client(self, context: RunContext, thread: int) -> Client:
        assert self._asked is not None, "setup must be called first"
        if isinstance(self._asked, ProxyAsked):
            proxied = self.connect(ProxyTransactionOps, thread)
            proxied.furnish_proxied(self._asked)
            return proxied
        client = self.connect(TransactionOps, thread)
        client.furnish(self._asked, self._java_producers)
        return client

    def generator(self, rng: Random, phase: str) -> Generator:
        rate = self.plan.rate or self.default_rate
        first = self.next_phase()
        if not self.java:
            gap = int(SECOND / (rate * HALF_SHARE))
            return self._with_polls(rate, Transacting(self.places.keys, first, gap, self.proxied, self.immune))
        topic, queues = self.places.topic, len(self.places.keys)
        immune = self.immune
        halves = gen.rate(rate * HALF_SHARE, lambda n: half_of(topic, first + n, queues, immune))
        members = Members(self._producers_group, rng.getrandbits(32), self.options.producer_goes_every)
        return gen.reserve(self.options.producers, members, default=self._with_polls(rate, halves))

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """Answers until the last question must have come, then every queue of every replica. With limits of questions
        it answers until each undecided half message must have been given up, and reads those that were.
        """
        interval = self.options.check_interval
        wait = TIMEOUT_S + 2 * interval + self.late_s + self.options.late_after
        reads = [self.read_replicas()]
        if self.limited:
            wait += self.options.check_max * interval + (self.options.immunity if self.immune else 0)
            given_up = (ReadToEnd(Queue(GIVEN_UP, group, 0).key, None, f="given-up") for group in self.places.groups)
            reads.insert(0, gen.clients(gen.any_(*given_up)))
        rate = self.plan.rate or self.default_rate
        if not self.java:
            answers = gen.rate(rate, Transacting(self.places.keys, 0, None, self.proxied))
            rounds = gen.clients(gen.time_limit(wait, self._with_polls(rate, answers)))
            return self.final_phases(rounds, *reads)
        count, group = self.options.producers, self._producers_group
        stay = gen.reserve(count, Members(group, 0, 0), default=self._with_polls(rate, None))
        leave = gen.reserve(count, Members(group, 0, 0, ends=True))
        strangers = gen.clients(Invocation("check"))
        return self.final_phases(gen.clients(gen.time_limit(wait, stay)), gen.clients(leave), strangers, *reads)

    @property
    def immune(self) -> Immune | None:
        """The half messages with an immunity time."""
        return Immune(self.options.immune, self.options.immunity) if self.options.immune else None

    @property
    def limited(self) -> bool:
        """True if the run judges the half messages that brokers give up."""
        return self.options.check_max != CHECK_MAX or self.immune is not None

    @property
    def late_s(self) -> float:
        """The further delay that is allowed for a question. A Java producer, or a proxy, must find a new master before
        it can be asked: the route, then a heartbeat.
        """
        late: float = self.options.late_after
        if self.java:
            return late + (ROUTE_MS + HEARTBEAT_MS) / 1000
        return late + PROXY_ROUTE_S + PROXY_HEARTBEAT_S if self.proxied else late

    def _with_polls(self, rate: float, others: Source) -> Generator:
        readers = reader_count(self.plan.concurrency - self.client_nodes)
        polls = gen.rate(rate * POLL_SHARE, Polls(read_rounds(self.places, readers)))
        return gen.reserve(readers, polls, default=others)

    def server_settings(self) -> Mapping[str, str]:
        return {
            **super().server_settings(),
            "broker.transactionTimeOut": str(int(TIMEOUT_S * 1000)),
            "broker.transactionCheckInterval": str(int(self.options.check_interval * 1000)),
            **({"broker.transactionCheckMax": str(self.options.check_max)} if self.limited else {}),
            "broker.transactionOpBatchInterval": str(int(BATCH_S * 1000)),
            **(self._proxy_settings() if self.proxied else {}),
        }

    def _proxy_settings(self) -> Mapping[str, str]:
        return {
            **proxy_routes(self.plan.server.version),
            "proxy.transactionHeartbeatPeriodSecond": str(int(PROXY_HEARTBEAT_S)),
        }

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.transactions import Transactions

        interval, check_max = self.options.check_interval, self.options.check_max
        return [Transactions(TIMEOUT_S, interval, BATCH_S, self.late_s, check_max, limited=self.limited)]

    def watch(self) -> Watch | None:
        from checkers.messages.watches import TransactionWatch

        return TransactionWatch(ends=not self.java)

    @property
    def needed(self) -> Sequence[str]:
        if self.java:
            return ["half", "join", "take", "poll"]
        return ["half", "check", "poll"] if self.proxied else ["half", "end", "check", "poll"]

    def acknowledges(self, op: Op) -> bool:
        """A half message that the master acknowledged as durable as configured."""
        return op.f == "half" and op.type == OK
