# SPDX-License-Identifier: Apache-2.0
"""The common part of workloads with a topic: the topic, their clients, sends, reads, and judges.

Producers send to the master. Half of them look up the master (at the controllers, or at the name servers) after every
answer that is not an acknowledgement. The other half stay with the known master until it reports that it is not the
master. They therefore receive the acknowledgements of a master that is cut off. Clients are outside every partition.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import harness.generator as gen
from harness.api import RunContext, Workload
from harness.generator import Generator, Invocation
from harness.parts.resolve import make_client
from harness.plan.plan import Plan, PlanError
from results.deployment import DeploymentRecord
from results.op import OK, Op
from workloads.brokers import PULL_LIMIT, Beliefs, BrokerClient
from workloads.clients import Foreign, MessageClient, Producers
from workloads.ground_truth import UNASKED, read_all, summarizer
from workloads.masters import Masters
from workloads.places import TopicLayout, group_of, make, topic_layout
from workloads.reading import ReadToEnd, Remake

if TYPE_CHECKING:
    from checkers.base.api import Checker

C = TypeVar("C", bound=BrokerClient)

QUEUES: Final = 4
"""Queues of the topic on each broker group."""

READERS: Final = 3
"""The largest number of clients that read; never more than a third of all."""

POLL_SHARE: Final = 1 / 11
"""The share of all ops: 1,000 sends and 100 polls a second."""

PHASE: Final = 1_000_000_000
"""Ids of a phase begin at a multiple of this, so that no two messages of a run have the same id."""


HANDING_NOTHING_OVER: Final = ("controller", "master-slave", "dledger-commitlog")
"""Topologies on which no broker group gets messages of another one. RIP-32's acting master hands its delayed messages
and half messages over; if each queue is a topic, the other group does not have their topic, and nobody reads them
there.
"""


class MessageWorkload(Workload):
    """A topic on every broker, and clients that send to it. A workload adds its ops and its judges (`judged`)."""

    clients: ClassVar[Sequence[str]] = ("remoting",)
    restart_before_final = False
    reusable = True
    prefix: ClassVar[str]
    """The prefix of the topic's name."""
    queues_per_group: ClassVar[int] = QUEUES
    replicas_follow: ClassVar[bool] = False
    """True if `SyncState` judges that replicas return to the SyncStateSet."""
    message_type: ClassVar[str | None] = None
    """The type of the topic's messages, if proxies must know it."""
    kills: ClassVar[Sequence[str]] = ()
    """The workload's own ops after which a server may end."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        if plan.concurrency < 2:
            raise PlanError(f"concurrency is {plan.concurrency}; {self.name} needs 2 clients: one sends, one reads")
        if plan.server.options.get("brokers") == 0:
            raise PlanError(f"brokers is 0; {self.name} sends messages, and needs 1 at least")
        self.local_proxies = plan.server.settings.get("proxy.proxyMode", "").lower() == "local"
        if self.local_proxies and plan.client == "grpc":
            raise PlanError(
                "proxy.proxyMode is local; with --client grpc cluster is right: that client does not follow the masters"
            )
        self._phases = count()
        self._beliefs: dict[int, Beliefs] = {}
        self._places: TopicLayout | None = None
        self._masters: Masters | None = None
        self._producers: Producers | None = None

    @abstractmethod
    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        """The workload's own judges."""

    @property
    @abstractmethod
    def needed(self) -> Sequence[str]:
        """Kinds of ops. A run proves nothing unless at least one op of each kind succeeds."""

    def checkers(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.controllers.sync_state import SyncState
        from checkers.messages.answers import Answers
        from checkers.messages.topics import KnownTopics
        from checkers.run.availability import Availability
        from checkers.run.faults import Faults
        from checkers.run.stats import Stats
        from checkers.servers.deaths import ServersDied

        limit = self.plan.recovery_limit_s
        return [
            *self.judged(deployment),
            Availability(list(deployment.nodes), limit, self.acknowledges, deployment.quorums, group_of),
            *([SyncState(limit)] if self.replicas_follow and deployment.traits.in_sync else []),
            KnownTopics(),
            Answers(),
            ServersDied(on_purpose=self.kills),
            Faults(planned=self.plan.faulty),
            Stats(self.needed),
        ]

    @property
    def places(self) -> TopicLayout:
        """The places of the topic; known after `setup`."""
        assert self._places is not None, "setup must be called first"
        return self._places

    async def setup(self, context: RunContext) -> None:
        """Makes the topic on every broker."""
        await self.make(context)

    async def make(self, context: RunContext, consumer_groups: Sequence[str] = (), *, fifo: Sequence[str] = ()) -> None:
        """Makes the topic and the groups, and stores their places. fifo: the groups that get messages in order, through
        a proxy; then the topic has the type FIFO.
        """
        client = make_client(self.plan)
        assert isinstance(client, MessageClient)
        self._producers = await client.producers(context, self.plan.op_deadline_s)
        topic, apart = f"{self.prefix}-{context.run}", self._producers is not None
        self._places = topic_layout(
            context,
            topic,
            self.queues_per_group,
            consumer_groups,
            apart=apart,
            message_type="FIFO" if fifo else self.message_type if apart else None,
            orderly=fifo,
        )
        await make(self._places)
        self._masters = Masters(self._places)
        if self._producers is not None:
            await self._producers.start(self.plan.concurrency)

    def connect(self, kind: type[C], thread: int) -> C:
        """A client of that kind for a thread; every second one has `sticky_master`."""
        assert self._masters is not None, "setup must be called first"
        beliefs = self._beliefs.setdefault(thread, Beliefs())
        foreign = None if self._producers is None else Foreign(self._producers, thread)
        return kind(self.places, self._masters, beliefs, self.plan.op_deadline_s, thread % 2 == 1, foreign)

    def next_phase(self) -> int:
        """The first id of a phase that has not begun yet."""
        return next(self._phases) * PHASE + 1

    def sends(self) -> Callable[[int], Invocation]:
        """The sends of a phase, to all queues in turn, with ids that no other phase has."""
        first, keys = self.next_phase(), self.places.keys
        return lambda n: Invocation("send", keys[n % len(keys)], first + n)

    def final_phases(self, *parts: Generator) -> Generator:
        """The parts of a final phase, one after the other. First the master of each broker group gets back the topics
        and consumer groups that it has forgotten: without them it refuses every read, and the messages would stay
        unknown. The history records the forgotten ones.
        """
        return gen.phases(gen.clients(gen.any_(*(Remake(group) for group in self.places.groups))), *parts)

    def read_replicas(self) -> Generator:
        """Every queue of every replica, from its start to its end."""
        return gen.clients(
            gen.any_(*(ReadToEnd(q.key, n) for q in self.places.queues for n in self.places.groups[q.group]))
        )

    def after_stop(self, context: RunContext, folder: Path) -> None:
        """Reads the files of every broker, with `reads_files`."""
        summary = summarizer({queue.topic for queue in self.places.queues}, context.deployment.record)
        read_all(context, summary, folder, self.most_read)

    @property
    def most_read(self) -> int | None:
        """The limit of a broker's files (MiB on the disk) that are read; None: no limit."""
        return UNASKED

    def server_settings(self) -> Mapping[str, str]:
        return {"broker.maxTransferCountOnMessageInMemory": str(PULL_LIMIT)}

    def group_of(self, op: Op) -> str | None:
        return group_of(op)

    @property
    def groups(self) -> Collection[str]:
        return self.places.groups.keys()

    def acknowledges(self, op: Op) -> bool:
        """A send that the master acknowledged as durable as configured."""
        return op.f == "send" and op.type == OK


def reader_count(concurrency: int) -> int:
    """The number of clients that read; the others send."""
    return min(READERS, max(1, concurrency // 3))


def read_rounds(places: TopicLayout, readers: int) -> list[list[tuple[str, str]]]:
    """The polls of each reader: its share of the nodes, each node's queues one after the other."""
    stops = [
        (queue.key, node)
        for group, nodes in places.groups.items()
        for node in nodes
        for queue in places.queues
        if queue.group == group
    ]
    nodes = list(dict.fromkeys(node for _, node in stops))
    return [[stop for stop in stops if nodes.index(stop[1]) % readers == r] or stops for r in range(readers)]
