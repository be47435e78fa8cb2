# SPDX-License-Identifier: Apache-2.0
"""Topics that are made, changed, deleted and made again during the load and the faults.

An administrator makes topics at the masters, gives them more queues, deletes them, and makes some of them again with
the same name. Producers send to the topics that exist, and readers poll masters and slaves. One topic exists all the
time. At the end, the harness asks each master for every topic, sends to each queue, and reads every replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import harness.generator as gen
from checkers.messages.consumer_times import QUIET_S
from harness.api import Client, RunContext
from harness.generator import Generator, Invocation
from harness.generator.dice import split
from harness.plan.plan import Plan, PlanError
from infra.machines.api import Share
from infra.options import Seconds, option
from infra.systems.rocketmq.applications.java import JavaProgram
from infra.systems.rocketmq.servers import NAMESRV
from results.deployment import DeploymentRecord
from results.figures import SECOND
from workloads.applications.library import ROUTE_MS
from workloads.applications.members import Members
from workloads.consume.crew import Consumers
from workloads.messages import MessageWorkload, reader_count
from workloads.reading import ReadToEnd
from workloads.topics.client import DeleteAt, Known, Subscribers, TopicOps
from workloads.topics.lives import DELETE, DESCRIBE, UPDATE
from workloads.topics.load import AGAIN, Frame, TopicLoad, open_queues

if TYPE_CHECKING:
    from checkers.base.api import Checker

_POLLS: Final = 0.2
"""The share of polls among all ops."""

_OFFSETS: Final = 0.04
"""The share of ops with committed offsets."""

_SPARE: Final = 20
"""The members subscribe to so many names more than exist at a time: a topic that cannot be used again is replaced."""

_DONE_S: Final = 5.0
"""The time without a delivery after which a group is done that lacks no acknowledged message."""

_DRAIN_S: Final = 120.0
"""The longest time in which the group gets the rest."""

_COMMIT_MS: Final = 5000

_TRIES: Final = 20
_AGAIN_S: Final = 0.5
"""A request of the final phase is tried so often, and after so long again."""


@dataclass(frozen=True)
class TopicsOptions:
    """The options of the workload."""

    topics: int = option(6, "The number of topics that exist at the same time.", low=1, high=50)
    change_every: Seconds = option(Seconds(1), "The time between two changes of topics.", low=0.05)
    quiet: Seconds = option(
        Seconds(1), "Nothing is sent to a topic for so long before its deletion, as by a careful operator."
    )
    delete_at: DeleteAt = option(
        "all", "The brokers that get a deletion: all that name servers list, or the masters only, as with mqadmin."
    )
    members: int = option(
        0, "Members of a consumer group that subscribes to the topics, each with RocketMQ's Java client.", low=0, high=4
    )
    library: Literal["remoting", "lite-pull"] = option(
        "remoting", "With --members: a push consumer, or one that polls (lite-pull)."
    )
    member_goes_every: Seconds = option(
        Seconds(0), "With --members: how often each one crashes or leaves, on average; it is back after 2 s. 0: never."
    )


class TopicsWorkload(MessageWorkload):
    """An administrator, producers and readers; afterwards every replica is read through."""

    name = "topics"
    summary = "topics made, given queues, deleted and made again during the faults: none is forgotten or comes back"
    topologies: ClassVar[Sequence[str]] = ("controller", "dledger-commitlog", "master-slave", "slave-acting-master")
    Options: ClassVar[type] = TopicsOptions
    default_rate = 300.0
    replicas_follow = True
    queues_per_group = 1
    prefix = "topics"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        members = self.options.members
        if plan.concurrency < 3 + members:
            raise PlanError(
                f"concurrency is {plan.concurrency}; {self.name} needs {3 + members} clients: "
                f"{f'{members} members, ' if members else ''}an administrator, a producer and a reader"
            )
        if not self.options.members and (self.options.library != "remoting" or self.options.member_goes_every):
            raise PlanError("members is 0; library and member_goes_every need --members")
        if self.options.members:
            self.final_limit_s += _DRAIN_S
        self._known = Known()
        self.group = ""
        self._members: Subscribers | None = None

    @property
    def client_nodes(self) -> int:
        return int(self.options.members)

    def shares(self) -> Sequence[Share]:
        return JavaProgram.shares(self.options.library) if self.options.members else ()

    async def setup(self, context: RunContext) -> None:
        """Makes the topic that exists all the time, and the members' group, on every broker."""
        if not self.options.members:
            await self.make(context)
            return
        self.group = f"members-{context.run}"
        await self.make(context, [self.group])
        record = context.deployment.record
        topics = [self.places.topic, *(f"{self.places.topic}-{n + 1}" for n in range(self.options.topics + _SPARE))]
        consume = {
            "library": self.options.library,
            "group": self.group,
            "topics": topics,
            "nameservers": ";".join(f"{host}:{port}" for host, port in record.endpoints(NAMESRV)),
            "set": {
                "pollNameServerInterval": ROUTE_MS,
                "persistConsumerOffsetInterval": _COMMIT_MS,
                "consumeThreadMin": 4,
                "consumeThreadMax": 4,
            },
        }
        broker = next(server for server in record.servers if server.kind == "broker" and server.version)
        program = JavaProgram(str(broker.version), self.options.library, mends=broker.mends)
        crew = Consumers(context.deployment.clients, program, consume, 0)
        await crew.install()
        self._members = Subscribers(crew, topics)

    def client(self, context: RunContext, thread: int) -> Client:
        client = self.connect(TopicOps, thread)
        client.known, client.delete_at = self._known, self.options.delete_at
        if self._members is not None:
            client.join_in(self._members)
        return client

    def generator(self, rng: Random, phase: str) -> Generator:
        rate = self.plan.rate or self.default_rate
        frame = Frame(
            prefix=self.places.topic,
            steady=self.places.keys,
            groups=self.places.groups,
            readers=reader_count(self.plan.concurrency - 1 - self.options.members),
            at_once=self.options.topics,
            change_ns=int(self.options.change_every * SECOND),
            poll_ns=int(SECOND / (rate * _POLLS)),
            offset_ns=int(SECOND / (rate * _OFFSETS)),
            quiet_ns=int(self.options.quiet * SECOND),
            consumers=self.places.readers,
            first=self.next_phase(),
            seed=split(rng),
            again=1 if self.options.members else AGAIN,
        )
        load = TopicLoad.begin(frame, self._known.lives)
        if not self.options.members:
            return load
        members = Members(self.group, rng.getrandbits(32), self.options.member_goes_every)
        return gen.reserve(self.options.members, members, default=load)

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """Asks for each topic and each committed offset, sends to each queue, and reads every replica."""
        places, lives = self.places, self._known.lives
        descriptions = [
            _tried(_Describe(name, group, life.queues))
            for name, life in lives.items()
            if life.state in ("open", "gone")
            for group in places.groups
        ]
        queues = [*places.queues, *open_queues(lives, list(places.groups))]
        first = self.next_phase()
        probes = [_tried(_Probe(queue.key, first + at * _TRIES)) for at, queue in enumerate(queues)]
        offsets = [_tried(_Committed(queue.key, places.readers)) for queue in queues]
        reads = [ReadToEnd(queue.key, node) for queue in queues for node in places.groups[queue.group]]
        parts = [gen.clients(gen.any_(*some)) for some in (descriptions, offsets, probes, reads) if some]
        return self.final_phases(*self._drained(), *parts)

    def _drained(self) -> Iterator[Generator]:
        """Yields what the members do before the other requests: they continue until nothing comes, and leave."""
        count = self.options.members
        if count:
            going = Members(self.group, 0, 0, quiet_s=QUIET_S + 2, done_s=_DONE_S)
            yield gen.clients(gen.reserve(count, gen.time_limit(_DRAIN_S, going)))
            yield gen.clients(gen.reserve(count, Members(self.group, 0, 0, ends=True)))

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.lives import LogOfLives, MembersOfLives, QueuesOfLives, ReplicasOfLives, TopicLives
        from checkers.messages.log import MessageIds

        return [
            TopicLives(),
            LogOfLives(),
            QueuesOfLives(),
            ReplicasOfLives(self.plan.recovery_limit_s),
            MessageIds(),
            *([MembersOfLives()] if self.options.members else []),
        ]

    @property
    def needed(self) -> Sequence[str]:
        return ["send", "poll", UPDATE, DELETE, *(["join", "take"] if self.options.members else [])]


@dataclass(frozen=True)
class _Describe:
    """Asks the master of a broker group for a topic that should have so many queues there (0: none)."""

    name: str
    group: str
    queues: int

    def __call__(self, n: int) -> Invocation:
        return Invocation(DESCRIBE, self.name, None, {"group": self.group, "queues": self.queues})


@dataclass(frozen=True)
class _Committed:
    """Asks the master for the committed offset of a queue."""

    key: str
    group: str

    def __call__(self, n: int) -> Invocation:
        return Invocation("committed", self.key, None, {"group": self.group})


@dataclass(frozen=True)
class _Probe:
    """Sends to a queue. first: the id of the first message."""

    key: str
    first: int

    def __call__(self, n: int) -> Invocation:
        return Invocation("send", self.key, self.first + n, {"probe": True})


def _tried(request: Callable[[int], Invocation]) -> Generator:
    """The request until it is acknowledged, at most `_TRIES` times."""
    return gen.until_ok(gen.limit(_TRIES, gen.delay(_AGAIN_S, request)))
