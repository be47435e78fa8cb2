# SPDX-License-Identifier: Apache-2.0
"""`quorum-ack` against RocketMQ: a slave is stopped, and what it holds is read from its disk; a kept cluster takes
other settings while it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from cluster.real_runs import Run, harness, is_inject, run

pytestmark = pytest.mark.cluster

OURS = {"aborted-read", "never-sent", "malformed-history", "unhealed-fault"}
"""See `test_rocketmq_runs`."""


@pytest.mark.nightly
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


def told(ended: Run) -> Mapping[str, set[str]]:
    """Setting -> the values that brokers reported."""
    found: dict[str, set[str]] = {}
    for op in ended.ops:
        if op.f == "settings" and op.type == "ok":
            for name, value in op.value.items():
                found.setdefault(name, set()).add(value)
    return found


@pytest.mark.nightly
def test_a_kept_cluster_takes_other_settings_while_it_runs(tmp_path: Path) -> None:
    short = ("--workload", "quorum-ack", "--nemesis", "none", "--time-limit", "5")
    first = run(*short, "--nodes", "3", "--version", "5.4.0", "--max-gap", "1MiB", "--keep", store=tmp_path)
    kept = re.search(r"--reuse (\S+)", first.out)
    try:
        assert kept is not None, first.out + first.err
        others = ("--no-auto", "--in-sync-replicas", "2", "--min-in-sync-replicas", "1", "--slave-timeout", "1s")
        second = run(*short, *others, "--reuse", kept[1], store=tmp_path)
        third = run("--workload", "log", *short[2:], "--reuse", kept[1], store=tmp_path)
    finally:
        harness("clean", "--kept")
    assert (first.code, second.code, third.code) == (0, 0, 0), first.err + second.err + third.err
    before, after = told(first), told(second)
    assert (before["inSyncReplicas"], before["haMaxGapNotInSync"]) == ({"3"}, {str(1 << 20)})
    assert after == {
        "inSyncReplicas": {"2"},
        "minInSyncReplicas": {"1"},
        "enableAutoInSyncReplicas": {"false"},
        "allAckInSyncStateSet": {"true"},
        "haMaxGapNotInSync": {str(256 << 20)},
        "slaveTimeout": {"1000"},
    }
