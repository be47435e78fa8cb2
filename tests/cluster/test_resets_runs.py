# SPDX-License-Identifier: Apache-2.0
"""Resets of a group's offsets on real servers, with a fault and without. The runs do not judge RocketMQ."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.real_runs import is_inject, run

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

OURS = {"never-sent", "aborted-read", "malformed-history", "unhealed-fault", "poll-skip"}
"""No fault of these runs, and no defect on record, makes a server do that: the harness would be wrong."""


@pytest.mark.parametrize("consume", ["pull", "pop"])
@pytest.mark.parametrize("nemesis", ["none", "kill-random-processes"])
def test_a_group_is_reset(tmp_path: Path, consume: str, nemesis: str) -> None:
    shape = ("--topology", "master-slave", "--nodes", "3", "--version", "5.5.0", "--cluster", "local")
    times = ("--interval", "12s", "--duration", "4s", "--time-limit", "25", "--seed", "1")
    target = () if nemesis == "none" else ("--target", "master")
    how = ("--consume", consume, "--resets", "3s")
    ended = run("--workload", "queue", *how, *shape, "--nemesis", nemesis, *target, *times, store=tmp_path)
    assert ended.code in (0, 1, 2), ended.out + ended.err
    results = ended.results()
    found = {a["name"] for result in results.values() for a in result["anomalies"] if a.get("legal") is None}
    assert not found & OURS, ended.out
    stats = ended.stats("replays")
    assert stats["acknowledged"] > 2, ended.out
    assert stats["back"] > 0, ended.out
    resets = [op for op in ended.ops if op.f == "reset" and op.type == "ok"]
    assert all(op.value for op in resets), "each answer names the new offsets"
    assert any(is_inject(op) for op in ended.ops) == (nemesis != "none")


@pytest.mark.parametrize("library", ["remoting", "lite-pull", "grpc-push", "grpc-simple"])
def test_real_clients_are_reset(tmp_path: Path, library: str) -> None:
    shape = ("--topology", "master-slave", "--nodes", "3", "--version", "5.5.0", "--cluster", "local")
    how = ("--library", library, "--resets", "8s", "--nemesis", "none", "--time-limit", "30", "--seed", "1")
    ended = run("--workload", "consume", *how, *shape, store=tmp_path)
    assert ended.code in (0, 1, 2), ended.out + ended.err
    stats = ended.stats("replayed")
    assert stats["acknowledged"] > 2, ended.out
    assert any("reset" in e["why"] for e in ended.results()["delivered"]["excuses"]), ended.out
