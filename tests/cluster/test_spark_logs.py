# SPDX-License-Identifier: Apache-2.0
"""The judge of message logs divided by Spark is that of one machine, on simulated runs with every planted bug."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from sim.rocketmq import Bug, simulate

from checkers.base.api import judge
from checkers.messages.log import LogAnomalies
from checkers.spark.files import SharedFiles
from checkers.spark.logs import judged
from checkers.spark.session import end, start
from checkers.spark.units import Unit
from harness.batch.logs import Source, judge_logs
from results.history import History
from results.op_table import write_op_table
from results.record import RunRecord
from results.verdict import Verdict

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs() -> dict[str, RunRecord]:
    return {bug.name if bug else "good": simulate(0, bug)[0] for bug in (None, *Bug)}


def test_a_verdict_does_not_depend_on_where_it_is_computed(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    ops = {name: list(run.history) for name, run in runs.items()}
    good = ops["good"]
    answer = next(op.index for op in good if op.type == "ok" and op.process >= 0)
    begun = max(op.index for op in good[:answer] if op.process == good[answer].process)
    pairs = itertools.pairwise(good)
    turned = next(a.index for a, b in pairs if a.process != b.process and a.time < b.time)
    times = {turned: good[turned + 1].time, turned + 1: good[turned].time}
    broken = {
        "stray": [replace(op, index=i) for i, op in enumerate(op for op in good if op.index != begun)],
        "sparse": [*good[:-1], replace(good[-1], index=10**9)],
        "backwards": [replace(op, time=times.get(op.index, op.time)) for op in good],
    }
    write_op_table((ops | broken).items(), path)
    about = {name: replace(run, history=History(())) for name, run in runs.items()}
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false", "spark.driver.memory": "1g"}
    context = start("local[2]", conf, "logs")
    try:
        from pyspark.sql import SparkSession

        found = judged(SparkSession(context).read.parquet(str(path)), about)
        source = Source(Unit("table", str(path), path.name, "now"), str(path), None)
        (done,) = judge_logs(context, SharedFiles(), [source], "1", 1, "?")
    finally:
        end(context)
    assert found.keys() == ops.keys() | broken.keys()
    seen = set()
    for name, run in runs.items():
        whole = judge(run, [LogAnomalies()]).results[0]
        assert (found[name].verdict, found[name].reason) == (whole.verdict, whole.reason), name
        seen.add(whole.verdict)
    assert {Verdict.VALID, Verdict.INVALID} <= seen
    assert {name: found[name].verdict for name in broken} == dict.fromkeys(broken, Verdict.UNKNOWN)
    rows = {row["run"]: row for row in done.table.to_pylist()}
    assert {(row["checker"], row["unit"]) for row in rows.values()} == {("log", "by-queue")}
    for name, run in runs.items():
        alone = LogAnomalies().check(RunRecord(run.history))  # (An op table has nothing but the ops.)
        assert (rows[name]["verdict"], rows[name]["reason"]) == (alone.verdict, alone.reason), name
    assert "does not match the previous op" in found["stray"].reason
    assert "indices" in found["sparse"].reason
    assert "times decrease" in found["backwards"].reason
