# SPDX-License-Identifier: Apache-2.0
"""A slave that acts as master, on real servers: locks while the master is stopped, and routes on the same cluster
while it is killed. The runs do not judge RocketMQ (docs/rip-32.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster.real_runs import Run, harness, is_inject, run

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

OURS = {"minority-grant", "locked-twice", "consumed-out-of-order", "never-sent", "malformed-history", "unhealed-fault"}
"""No fault of these runs, and no defect on record, makes a server do that: the harness would be wrong."""

TIMES = ("--target", "n1", "--interval", "20s", "--duration", "7s", "--time-limit", "16", "--seed", "1")


def stats(ended: Run, checker: str) -> dict[str, Any]:
    (found,) = [r["stats"] for r in ended.verdict["results"] if r["checker"] == checker]
    return dict(found)


@dataclass(frozen=True)
class Pair:
    """Two runs on one cluster."""

    locks: Run
    routes: Run


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    store: Path = tmp_path_factory.mktemp("store")
    shape = ("--topology", "slave-acting-master", "--version", "5.4.0", "--cluster", "local", "--keep")
    first = run("--workload", "order-lock", *shape, "--nemesis", "hammer-time", *TIMES, store=store)
    kept = re.search(r"--reuse (\S+)", first.out)
    try:
        assert kept is not None, first.out + first.err
        kill = ("--nemesis", "kill-random-processes", "--reuse", kept[1])
        second = run("--workload", "route", *kill, *TIMES, store=store)
    finally:
        harness("clean", "--kept")
    return Pair(first, second)


def test_the_faults_took_effect_and_only_servers_are_accused(pair: Pair) -> None:
    for ended in (pair.locks, pair.routes):
        assert ended.code in (0, 1, 2), ended.out + ended.err
        assert any(is_inject(op) and op.value["seen"] for op in ended.ops), ended.out
        found = {a["name"] for result in ended.results().values() for a in result["anomalies"]}
        assert not found & OURS, ended.out


def test_locks_went_from_hand_to_hand(pair: Pair) -> None:
    figures = stats(pair.locks, "locks")
    assert figures["granted"] > 30, figures
    assert figures["holders"] > 5, figures


def test_name_servers_told_who_acted_as_master(pair: Pair) -> None:
    figures = stats(pair.routes, "routes")
    assert figures["answers"] > 50, figures
    assert figures["reads"] > 50, figures
    assert figures["acting"] > 0, figures
    assert pair.routes.environment["run_id"] == pair.locks.environment["run_id"]
