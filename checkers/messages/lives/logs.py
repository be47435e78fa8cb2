# SPDX-License-Identifier: Apache-2.0
"""The judges of logs, for each life of a topic."""

from __future__ import annotations

from dataclasses import replace

from checkers.messages.lives.split import split
from checkers.messages.log import LogAnomalies, LogLinearizable, Replicas
from checkers.messages.log.anomalies import Findings
from checkers.messages.ops import of_messages
from results.record import RunRecord
from results.verdict import CheckResult, Excuse


class LogOfLives:
    """`checkers.messages.log.LogAnomalies`, for each life of a topic."""

    name = "log"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """Messages of lives that ended have no final read: those that no reader got are left out (`deleted-topic`)."""
        found, log = split(run.history), LogAnomalies()
        parts = [log.examine(replace(run, history=found.living))]
        ended = log.examine(replace(run, history=found.ended))
        undecided = ended.stats["undecided"]
        rest = [excuse for excuse in ended.excuses if excuse.rule != "undecided"]
        parts.append(Findings(ended.anomalies, {**ended.stats, "undecided": 0}, rest))
        result = log.conclude(run, parts)
        excuses = [
            *result.excuses,
            Excuse("deleted-topic", undecided, "their topic was deleted, and no final read shows them"),
            Excuse("across-deletion", found.crossing, "the deletion of the topic began before the send was answered"),
            Excuse("across-lives", found.left_out, "these reads overlap the end or the beginning of a topic"),
        ]
        return replace(result, excuses=[excuse for excuse in excuses if excuse.used])


class QueuesOfLives:
    """`checkers.messages.log.LogLinearizable`, for the topics that exist at the end: in the queues of others, a send of
    an earlier life without an answer may have taken an offset, and no final read shows that.
    """

    name = "linearizability"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """As that judge."""
        return LogLinearizable().check(replace(run, history=split(run.history).living))


class ReplicasOfLives:
    """`checkers.messages.log.Replicas`, for the topics that exist at the end."""

    name = "replicas"

    def __init__(self, limit_s: float | None = None) -> None:
        self.limit_s = limit_s

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """As that judge."""
        return Replicas(self.limit_s).check(replace(run, history=split(run.history).living))
