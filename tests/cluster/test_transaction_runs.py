# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own producers of transactions on real servers: what they report is judged, and a planted loss is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cluster.real_runs import run

from checkers.messages.reports import reports

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

JAVA = ("--workload", "transaction", "--producer", "java", "--nodes", "3", "--seed", "1")


def test_producers_that_crash_through_kills_of_the_master(tmp_path: Path) -> None:
    """The whole way: half messages, decisions, and questions that reach another producer than the one that is gone."""
    kills = ("--nemesis", "kill-random-processes", "--target", "master", "--interval", "12", "--duration", "4")
    how = ("--topology", "controller", "--producer-goes-every", "10", "--time-limit", "25")
    ended = run(*JAVA, *kills, *how, store=tmp_path)
    assert ended.results()["transactions"]["verdict"] == "valid", ended.out
    stats = next(r["stats"] for r in ended.verdict["results"] if r["checker"] == "transactions")
    assert stats["one_way"] > 200, ended.out
    assert stats["asked_of_others"], ended.out
    assert stats["delivered"] > 100, ended.out
    told = reports(ended.dir.load().history)
    assert len({report.life for report in told.all}) > 3, "no producer came back after a crash"
    answers = Counter((report.rest[3], report.rest[1]) for report in told.all if report.kind == "decided")
    for asked in (False, True):
        for answer in ("commit", "rollback", None):
            assert answers[asked, answer], (asked, answer)


def test_a_commit_that_a_broker_drops_is_found(tmp_path: Path) -> None:
    """No answer shows that a broker took a one-way commit: a defect that drops one in 20 must be found anyway."""
    quiet = ("--topology", "controller", "--nemesis", "none", "--time-limit", "10")
    # Without mend 9, a thread of the broker spins, and the time in which nobody asks may be a shortage.
    plant = ("--mend", "9,examples/mutants/1042-committed-transaction-dropped.toml")
    ended = run(*JAVA, *quiet, *plant, store=tmp_path)
    names = {anomaly["name"] for anomaly in ended.results()["transactions"]["anomalies"]}
    assert names == {"commit-forgotten"}, ended.out
