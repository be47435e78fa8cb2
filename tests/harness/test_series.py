# SPDX-License-Identifier: Apache-2.0
"""Series of runs on a kept cluster: which run gets which cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.series.child import ChildRun
from harness.series.shared import SharedCluster
from harness.signals import Stopped
from results.store import RunDir


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SharedCluster:
    monkeypatch.setattr(SharedCluster, "remove", lambda self: setattr(self, "run_id", ""))
    return SharedCluster()


def test_a_run_that_the_kept_cluster_cannot_take_gets_a_new_one(cluster: SharedCluster, tmp_path: Path) -> None:
    """A disk that earlier runs had filled: a row of `harness certify` ended without a run."""
    made = ChildRun(0, RunDir(tmp_path), "second")
    answers = {("--keep",): made, ("--reuse", "first"): ChildRun(69, None, problem="948 MiB are free")}
    asked: list[Sequence[str]] = []

    def start(options: Sequence[str]) -> ChildRun:
        asked.append(tuple(options))
        return answers[tuple(options)]

    cluster.run_id = "first"
    assert cluster.run(start) is made
    assert cluster.run_id == "second"
    assert asked == [("--reuse", "first"), ("--keep",)]


@pytest.mark.parametrize("stopped", [None, Stopped(2)])
def test_a_run_on_a_new_cluster_is_not_tried_twice(cluster: SharedCluster, stopped: Stopped | None) -> None:
    """Nor one that a signal ended, whose cluster is still removed: the series ends before it looks at the run."""
    asked: list[Sequence[str]] = []

    def start(options: Sequence[str]) -> ChildRun:
        asked.append(options)
        return ChildRun(3, None, "made" if stopped is None else "", stopped=stopped)

    cluster.run_id = "" if stopped is None else "first"
    cluster.run(start)
    assert cluster.run_id == ("made" if stopped is None else "first")
    assert len(asked) == 1
