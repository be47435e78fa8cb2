"""`quorum-ack` against RocketMQ: a slave is stopped, and what it holds is read from its disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.real_runs import is_inject, run

pytestmark = pytest.mark.cluster

OURS = {"aborted-read", "never-sent", "malformed-history", "unhealed-fault"}
"""See `test_rocketmq_runs`."""


def test_replicas_are_looked_at_while_one_is_stopped(tmp_path: Path) -> None:
    shape = ("--workload", "quorum-ack", "--nodes", "3", "--version", "5.4.0")
    stop = ("--nemesis", "hammer-time", "--target", "n3", "--interval", "20s", "--duration", "7s")
    ended = run(*shape, *stop, "--time-limit", "13", "--seed", "1", store=tmp_path)
    assert ended.code in (0, 1, 2), ended.out + ended.err
    results = ended.results()
    assert {"quorum", "log", "replicas", "faults"} <= results.keys()
    assert not {a["name"] for r in results.values() for a in r["anomalies"]} & OURS, ended.out
    assert any(is_inject(op) and op.value["seen"] for op in ended.ops)
    looks = [op for op in ended.ops if op.f == "held" and op.type == "ok"]
    by_file = [op for op in looks if "n3" in op.extra.get("by_file", ())]
    assert any(set(op.value["held"].values()) == {True} for op in looks), ended.out
    assert any(isinstance(op.value["held"]["n3"], bool) for op in by_file), ended.out
    figures = next(r["stats"] for r in ended.verdict["results"] if r["checker"] == "quorum")
    assert figures["unseen"] < figures["looks"], figures
    assert figures["survives"] in (1, 2), figures
    settings = [op for op in ended.ops if op.f == "settings" and op.type == "ok"]
    assert {op.value["inSyncReplicas"] for op in settings} == {"3"}
