# SPDX-License-Identifier: Apache-2.0
"""Topics that are made, changed, deleted and made again during the load and the faults.

An administrator makes topics at the masters, gives them more queues, deletes them, and makes some of them again with
the same name. Producers send to the topics that exist, and readers poll masters and slaves. One topic exists all the
time. At the end, the harness asks each master for every topic, sends to each queue, and reads every replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

import harness.generator as gen
from harness.api import Client, RunContext
from harness.generator import Generator, Invocation
from harness.generator.dice import split
from harness.plan.plan import Plan, PlanError
from infra.options import Seconds, option
from results.deployment import DeploymentRecord
from results.figures import SECOND
from workloads.messages import MessageWorkload, reader_count
from workloads.reading import ReadToEnd
from workloads.topics.client import DeleteAt, Known, TopicOps
from workloads.topics.lives import DELETE, DESCRIBE, UPDATE
from workloads.topics.load import Frame, TopicLoad, open_queues

if TYPE_CHECKING:
    from checkers.base.api import Checker

_POLLS: Final = 0.2
"""The share of polls among all ops."""

_OFFSETS: Final = 0.04
"""The share of ops with committed offsets."""

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
        if plan.concurrency < 3:
            raise PlanError(
                f"concurrency is {plan.concurrency}; {self.name} needs 3 clients: "
                "an administrator, a producer and a reader"
            )
        self._known = Known()

    def client(self, context: RunContext, thread: int) -> Client:
        client = self.connect(TopicOps, thread)
        client.known, client.delete_at = self._known, self.options.delete_at
        return client

    def generator(self, rng: Random, phase: str) -> Generator:
        rate = self.plan.rate or self.default_rate
        frame = Frame(
            prefix=self.places.topic,
            steady=self.places.keys,
            groups=self.places.groups,
            readers=reader_count(self.plan.concurrency - 1),
            at_once=self.options.topics,
            change_ns=int(self.options.change_every * SECOND),
            poll_ns=int(SECOND / (rate * _POLLS)),
            offset_ns=int(SECOND / (rate * _OFFSETS)),
            quiet_ns=int(self.options.quiet * SECOND),
            consumers=self.places.readers,
            first=self.next_phase(),
            seed=split(rng),
        )
        return TopicLoad.begin(frame, self._known.lives)

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
        return self.final_phases(*parts)

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.lives import LogOfLives, QueuesOfLives, ReplicasOfLives, TopicLives
        from checkers.messages.log import MessageIds

        return [
            TopicLives(),
            LogOfLives(),
            QueuesOfLives(),
            ReplicasOfLives(self.plan.recovery_limit_s),
            MessageIds(),
        ]

    @property
    def needed(self) -> Sequence[str]:
        return ["send", "poll", UPDATE, DELETE]


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
