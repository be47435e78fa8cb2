# SPDX-License-Identifier: Apache-2.0
"""The workload `topics` on real servers, with a fault and without. The runs do not judge RocketMQ (docs/topics.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.real_runs import is_inject, run

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

OURS = {"never-sent", "aborted-read", "malformed-history", "unhealed-fault"}
"""No fault of these runs, and no defect on record, makes a server do that: the harness would be wrong."""


@pytest.mark.parametrize("nemesis", ["none", "kill-random-processes"])
def test_topics_come_and_go(tmp_path: Path, nemesis: str) -> None:
    shape = ("--topology", "master-slave", "--nodes", "3", "--version", "5.5.0", "--cluster", "local")
    times = ("--interval", "12s", "--duration", "4s", "--time-limit", "25", "--seed", "1")
    ended = run("--workload", "topics", *shape, "--nemesis", nemesis, *times, store=tmp_path)
    assert ended.code in (0, 1, 2), ended.out + ended.err
    results = ended.results()
    found = {a["name"] for result in results.values() for a in result["anomalies"]}
    assert not found & OURS, ended.out
    stats = ended.stats("lives")
    assert stats["deleted"] > 2, ended.out
    assert stats["made_again"] > 0, ended.out
    assert stats["asked"] >= stats["topics"] // 2, ended.out
    assert any(is_inject(op) for op in ended.ops) == (nemesis != "none")
