# SPDX-License-Identifier: Apache-2.0
"""Messages of a topic, read back by offset from every replica: RocketMQ as a replicated log.

How producers find the master: `workloads.messages`. With `--client native` or `grpc`, foreign producers send instead
(`clients`).

Readers poll by offset from masters and slaves; each reader has its share of the nodes. At the end, the harness reads
every replica completely, by its address.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

import harness.generator as gen
from harness.api import Client, Completion, RunContext, Watch
from harness.generator import Generator
from infra.options import option
from results.deployment import DeploymentRecord
from results.op import Op
from workloads.brokers import BrokerClient
from workloads.messages import POLL_SHARE, MessageWorkload, read_rounds, reader_count
from workloads.reading import Polls

if TYPE_CHECKING:
    from checkers.base.api import Checker


@dataclass(frozen=True)
class LogOptions:
    """The options of the workload."""

    ground_truth: bool = option(False, "After the run, compare the stopped servers' files with the history.")


class LogWorkload(MessageWorkload):
    """Sends and polls; afterwards every replica is read through."""

    name = "log"
    summary = "messages of a topic, read by offset from masters and slaves: no acknowledged message may be lost"
    topologies: ClassVar[Sequence[str]] = ("controller", "dledger-commitlog", "master-slave", "slave-acting-master")
    clients: ClassVar[Sequence[str]] = ("remoting", "native", "grpc")
    judged_ops: ClassVar[Set[str]] = frozenset(
        {"send", "poll", "seek", "assign", "crash", "replica-read", "max-offset", "min-offset"}
    )
    Options: ClassVar[type] = LogOptions
    default_rate = 1100.0
    reads_files = True
    replicas_follow = True
    prefix = "log"

    def client(self, context: RunContext, thread: int) -> Client:
        return self.connect(LogOps, thread)

    def generator(self, rng: Random, phase: str) -> Generator:
        readers = reader_count(self.plan.concurrency)
        rate = self.plan.rate or self.default_rate
        polls = gen.rate(rate * POLL_SHARE, Polls(read_rounds(self.places, readers)))
        return gen.reserve(readers, polls, default=self.sends())

    def final(self, keys: Sequence[str], nodes: Sequence[str]) -> Generator:
        """Reads every replica."""
        return self.final_phases(self.read_replicas())

    @classmethod
    def judges(cls, fs: Set[str], identified: bool) -> Sequence[Checker] | None:
        from checkers.messages.log import LogAnomalies, LogLinearizable, MessageIds, Replicas

        chosen: list[Checker] = [LogAnomalies(), LogLinearizable()]
        if identified:
            chosen.append(MessageIds())
        if "replica-read" in fs:
            chosen.append(Replicas())
        return chosen

    def judged(self, deployment: DeploymentRecord) -> Sequence[Checker]:
        from checkers.messages.log import LogAnomalies, LogLinearizable, MessageIds, Replicas
        from checkers.messages.log.storage import GroundTruth

        return [
            LogAnomalies(),
            LogLinearizable(),
            Replicas(self.plan.recovery_limit_s),
            MessageIds(),
            *([GroundTruth()] if self.options.ground_truth else []),
        ]

    def watch(self) -> Watch | None:
        from checkers.messages.watches import LogWatch

        return LogWatch()

    @property
    def needed(self) -> Sequence[str]:
        return ["send", "poll"]

    @property
    def stops_servers(self) -> bool:
        """Their files are read at the end."""
        return bool(self.options.ground_truth)

    @property
    def most_read(self) -> int | None:
        return None if self.options.ground_truth else super().most_read


class LogOps(BrokerClient):
    """The workload's client."""

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "send":
                return await self.send(op)
            case "max-offset" | "min-offset":
                return await self.edge(op)
        return await super().invoke(op)
