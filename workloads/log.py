"""Messages of a topic, read back by offset from every replica: RocketMQ as a replicated log.

Producers send to the master. Half of them look up the master (at the controllers, or at the name servers) after every
answer that is not an acknowledgement. The other half stay with the known master until it reports that it is not the
master. They therefore receive the acknowledgements of a master that is cut off. Clients are outside every partition.

With `--client native` or `grpc`, foreign producers send instead (`clients`).

Readers poll by offset from masters and slaves; each reader has its share of the nodes. At the end, the harness reads
every replica completely, by its address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import ClassVar, Final, TypeVar

import harness.generator as gen
from checkers.api import Checker
from checkers.availability import Availability
from checkers.faults import Faults
from checkers.log import LogAnomalies, LogLinearizable, MessageIds, Replicas
from checkers.log.storage import GroundTruth
from checkers.server_deaths import ServersDied
from checkers.stats import Stats
from checkers.sync_state import SyncState
from harness.api import Client, Completion, RunContext, Workload
from harness.generator import Generator, Invocation
from harness.parts.resolve import make_client
from harness.plan.plan import Plan, PlanError
from infra.options import option
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.brokers import PULL_LIMIT, BrokerClient
from workloads.clients import Foreign, MessageClient, Producers
from workloads.ground_truth import UNASKED, read_all, summarizer
from workloads.masters import Masters
from workloads.places import TopicLayout, make, topic_layout
from workloads.reading import Polls, ReadToEnd

C = TypeVar("C", bound=BrokerClient)

QUEUES: Final = 4
"""Queues of the topic on each broker group."""

POLL_SHARE: Final = 1 / 11
"""Of all ops: 1,000 sends and 100 polls a second."""

READERS: Final = 3
"""Clients that read, at most; never more than a third of all."""

PHASE: Final = 1_000_000_000
"""Ids of a phase begin at a multiple of this, so that no two messages of a run have the same."""


@dataclass(frozen=True)
class LogOptions:
    """The options of the workload."""

    ground_truth: bool = option(False, "After the run, compare the stopped servers' files with the history.")


class LogWorkload(Workload):
    """Sends and polls; afterwards every replica is read through."""

    name = "log"
    summary = "messages of a topic, read by offset from masters and slaves: no acknowledged message may be lost"
    topologies: ClassVar[Sequence[str]] = ("controller", "dledger-commitlog", "master-slave", "slave-acting-master")
    clients: ClassVar[Sequence[str]] = ("remoting", "native", "grpc")
    Options: ClassVar[type] = LogOptions
    default_rate = 1100.0
    restart_before_final = False
    reads_files = True
    reusable = True
    prefix = "log"
    """Of the topic's name."""
    queues_per_group = QUEUES

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        if plan.concurrency < 2:
            raise PlanError(f"concurrency is {plan.concurrency}; {self.name} needs 2 clients: one sends, one reads")
        if plan.server.options.get("brokers") == 0:
            raise PlanError(f"brokers is 0; {self.name} sends messages, and needs 1 at least")
        self._phases = count()
        self._beliefs: dict[int, dict[str, str]] = {}
        self._places: TopicLayout | None = None
        self._masters: Masters | None = None
        self._producers: Producers | None = None

    @property
    def places(self) -> TopicLayout:
        """Known once `setup` was called."""
        assert self._places is not None, "setup must be called first"
        return self._places

    async def setup(self, context: RunContext) -> None:
        """Make the topic on every broker."""
        await self.make(context)

    async def make(self, context: RunContext, consumer_groups: Sequence[str] = ()) -> None:
        """Make the topic and the groups; know where everything is."""
        client = make_client(self.plan)
        assert isinstance(client, MessageClient)
        self._producers = await client.producers(context, self.plan.op_deadline_s)
        topic, apart = f"{self.prefix}-{context.run}", self._producers is not None
        self._places = topic_layout(context, topic, self.queues_per_group, apart=apart)
        await make(self._places, consumer_groups)
        self._masters = Masters(self._places)
        if self._producers is not None:
            await self._producers.start(self.plan.concurrency)

    def client(self, context: RunContext, thread: int) -> Client:
        return self.connect(LogOps, thread)

    def connect(self, kind: type[C], thread: int) -> C:
        """A client of that kind for a thread; every second is steadfast."""
        assert self._masters is not None, "setup must be called first"
        beliefs = self._beliefs.setdefault(thread, {})
        foreign = None if self._producers is None else Foreign(self._producers, thread)
        return kind(self.places, self._masters, beliefs, self.plan.op_deadline_s, thread % 2 == 1, foreign)

    def sends(self) -> Callable[[int], Invocation]:
        """The sends of a phase, to all queues in turn, with ids that no other phase has."""
        first = next(self._phases) * PHASE + 1
        keys = self.places.keys
        return lambda n: Invocation("send", keys[n % len(keys)], first + n)

    def generator(self, rng: Random, phase: str) -> Generator:
        readers = reader_count(self.plan.concurrency)
        rate = self.plan.rate or self.default_rate
        polls = gen.rate(rate * POLL_SHARE, Polls(read_rounds(self.places, readers)))
        return gen.reserve(readers, polls, default=self.sends())

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """Every queue of every replica, from its start to its end."""
        return gen.clients(
            gen.any_(*(ReadToEnd(q.key, n) for q in self.places.queues for n in self.places.groups[q.group]))
        )

    @classmethod
    def judges(cls, fs: Set[str], identified: bool) -> Sequence[Checker] | None:
        chosen: list[Checker] = [LogAnomalies(), LogLinearizable()]
        if identified:
            chosen.append(MessageIds())
        if "replica-read" in fs:
            chosen.append(Replicas())
        return chosen

    def server_settings(self) -> Mapping[str, str]:
        return {"broker.maxTransferCountOnMessageInMemory": str(PULL_LIMIT)}

    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        limit = self.plan.recovery_limit_s
        return [
            LogAnomalies(),
            LogLinearizable(),
            Replicas(),
            MessageIds(),
            *self.group_checkers(deployment),
            *([GroundTruth()] if self.options.ground_truth else []),
            Availability(list(deployment.nodes), limit, self.acknowledges, deployment.quorums),
            *([SyncState(limit)] if deployment.traits.in_sync else []),
            ServersDied(),
            Faults(planned=self.plan.faulty),
            Stats(self.needed),
        ]

    def group_checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        """What is to be said of consumer groups."""
        return []

    @property
    def needed(self) -> Sequence[str]:
        """Kinds of ops without one of which that succeeds a run says nothing."""
        return ["send", "poll"]

    @property
    def stops_servers(self) -> bool:
        """Their files are read at the end."""
        return bool(self.options.ground_truth)

    def after_stop(self, context: RunContext, folder: Path) -> None:
        """The files of every broker."""
        most = None if self.options.ground_truth else UNASKED
        read_all(context, summarizer({queue.topic for queue in self.places.queues}), folder, most)

    def acknowledges(self, op: Op) -> bool:
        """A send that the master acknowledged as durable as configured."""
        return op.f == "send" and op.type == "ok"


def reader_count(concurrency: int) -> int:
    """How many of the clients read; the others send."""
    return min(READERS, max(1, concurrency // 3))


def read_rounds(places: TopicLayout, readers: int) -> list[list[tuple[str, str]]]:
    """What each reader polls: its share of the nodes, each node's queues one after the other."""
    stops = [
        (queue.key, node)
        for group, nodes in places.groups.items()
        for node in nodes
        for queue in places.queues
        if queue.group == group
    ]
    nodes = list(dict.fromkeys(node for _, node in stops))
    return [[stop for stop in stops if nodes.index(stop[1]) % readers == r] or stops for r in range(readers)]


class LogOps(BrokerClient):
    """The workload's client."""

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "send":
                return await self.send(op)
            case "poll":
                return await self.poll(op)
            case "replica-read":
                return await self.replica_read(op)
            case "max-offset" | "min-offset":
                return await self.edge(op)
        raise ValueError(f"the log workload does not know {op.f!r}")
