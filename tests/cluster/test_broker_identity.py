# SPDX-License-Identifier: Apache-2.0
"""The workload `broker-identity` on real servers: brokers come and go beside a cluster, struck at single frames."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.real_runs import Run, run

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ROWS = ("kill-at-answer-1013", "lost-answer-1013")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four nodes are two lanes; one broker that is always there is the least."""
    small = ("--nodes", "4", "--brokers", "1", "--profile", "default", "--seed", "1")
    store = tmp_path_factory.mktemp("store")
    return run("--workload", "broker-identity", *(word for row in ROWS for word in ("--row", row)), *small, store=store)


def test_each_row_was_tried_and_has_its_verdict(ended: Run) -> None:
    assert ended.code in (0, 1), ended.out + ended.err
    (told,) = [r["stats"]["rows"] for r in ended.verdict["results"] if r["checker"] == "broker-identity"]
    assert set(told) == set(ROWS)
    # What was applied for is in the file that the restart reads: so it goes on with the same id.
    assert told["kill-at-answer-1013"].startswith("held in 1 of 1; files then: temp 1; member 0: identity 1, RUNNING")
    found = {a["name"] for result in ended.results().values() for a in result["anomalies"]}
    assert found <= {"burnt-id", "ghost-replica"}, ended.out


def test_what_was_struck_came_to_pass(ended: Run) -> None:
    done = [op for op in ended.ops if op.type == "ok" and op.extra.get("row") == "kill-at-answer-1013"]
    assert any(op.f == "fired" and op.value == 1 for op in done)
    assert [op.value["temp"] for op in done if op.f == "look" and not op.value["up"]] == [1]
    assert sum(op.f == "send" and op.type == "ok" for op in ended.ops) > 50


def test_the_brokers_left_their_logs_and_nothing_else(ended: Run) -> None:
    logs = [path.name for path in ended.dir.nodes.glob("*/guest-*.log")]
    assert len(logs) == len(ROWS)
    assert all(op.type == "ok" for op in ended.ops if op.f == "leave" and op.type != "invoke")
    assert {op.key for op in ended.ops if op.f == "leave"} == {op.key for op in ended.ops if op.f == "enter"}


def test_nobody_else_was_taken_for_dead(ended: Run) -> None:
    assert ended.results()["servers"]["verdict"] == "valid"
    assert Path(ended.dir.path / "deployment.json").read_text().count("guest") == 0
