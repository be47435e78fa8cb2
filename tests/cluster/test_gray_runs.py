# SPDX-License-Identifier: Apache-2.0
"""A gray release on real servers: the cured scheme keeps its promises, and the published one strands messages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cluster.real_runs import run

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

SMALL = ("--workload", "gray", "--topology", "master-slave", "--nodes", "3", "--nemesis", "none", "--seed", "1")
LEAVES = ("--tasks", "2s off m1", "--tasks", "3s off m0", "--member-crash-every", "0", "--time-limit", "12")


def test_the_published_scheme_strands_messages(tmp_path: Path) -> None:
    ended = run(*SMALL, *LEAVES, "--scheme", "document", store=tmp_path)
    assert ended.code == 1, ended.out + ended.err
    found = {a["name"] for a in ended.results()["gray"]["anomalies"]}
    assert found == {"stranded"}, ended.out
    others = {name: result["verdict"] for name, result in ended.results().items() if name != "gray"}
    assert set(others.values()) == {"valid"}, ended.out
    done = Counter(op.f for op in ended.ops if op.type == "ok")
    for f in ("join", "rebalance", "assign", "consume", "commit", "lag", "flag", "sending", "drain"):
        assert done[f], f


@pytest.mark.nightly
def test_the_cured_scheme_does_not(tmp_path: Path) -> None:
    ended = run(*SMALL, *LEAVES, "--scheme", "cured", store=tmp_path)
    assert ended.code == 0, ended.out + ended.err
