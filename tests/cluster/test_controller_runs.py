# SPDX-License-Identifier: Apache-2.0
"""The workload `controller` on real controllers, without brokers: JRaft, snapshots, a leader that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.real_runs import is_inject, run

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_jraft_controllers_keep_what_they_acknowledged(tmp_path: Path) -> None:
    shape = ("--workload", "controller", "--nodes", "3", "--controller-type", "jraft", "--snapshot-every", "2s")
    kill = ("--nemesis", "kill-random-processes", "--target", "controller-leader", "--interval", "20s")
    times = ("--duration", "3s", "--time-limit", "14", "--rounds", "1", "--seed", "1")
    ended = run(*shape, *kill, *times, store=tmp_path)
    assert ended.code in (0, 1), ended.out + ended.err
    (figures,) = [r["stats"] for r in ended.verdict["results"] if r["checker"] == "controllers"]
    assert figures["changes"] > 100, figures
    assert figures["snapshots_saved"] > 2, figures
    assert figures["snapshots_loaded"] > 2, figures
    assert figures["elections"] > 1, figures
    assert figures["led_at_end"], figures
    assert any(is_inject(op) and op.value["seen"] for op in ended.ops)
    found = {a["name"] for result in ended.results().values() for a in result["anomalies"]}
    assert not found & {"malformed-history", "unhealed-fault", "unasked-metadata", "id-given-twice"}, ended.out
