# SPDX-License-Identifier: Apache-2.0
"""`harness batch --logs`: checks message logs queue by queue, for histories that do not fit into one worker."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkers.base.legality import applied
from checkers.messages.log import LogAnomalies
from checkers.spark.files import Files, join
from checkers.spark.job import Done, Receipt
from checkers.spark.units import Unit
from harness.batch.rows import rows_of
from results.history import History
from results.observations import read_observations
from results.record import RunRecord
from results.verdict import Verdict
from results.verdict_table import VerdictRow, to_table

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

BY_QUEUE = "by-queue"
"""The part of a history that the units of these rows are."""


@dataclass(frozen=True)
class Source:
    """A Parquet file with histories of logs. `run`: the history's name, None: an op table, which has them inside."""

    unit: Unit
    path: str
    run: str | None

    def fingerprint(self, question: str) -> str:
        return self.unit.fingerprint(f"{question} {BY_QUEUE}")


def log_sources(units: Iterable[Unit]) -> list[Source]:
    """The Parquet files among the inputs, each once."""
    found: dict[str, Source] = {}
    for unit in units:
        if unit.kind == "run" and "history.parquet" in unit.files:
            path, run = join(unit.source, "history.parquet"), unit.name
        elif unit.kind != "run" and unit.source.endswith(".parquet"):
            path, run = unit.source, unit.name
        else:
            continue
        found.setdefault(path, Source(unit, path, None if unit.kind == "table" else run))
    return list(found.values())


def judge_logs(
    context: SparkContext, files: Files, sources: Iterable[Source], version: str, checked: int, question: str
) -> Iterator[Done]:
    """One source after the other: each spreads over all executors. A source without sends has no rows."""
    from pyspark.sql import SparkSession

    spark = SparkSession(context)
    for source in sources:
        began = time.perf_counter()
        try:
            rows = _judged(spark, files, source)
        except Exception as problem:
            reason = str(problem).strip().splitlines() or [type(problem).__name__]
            reason = [f"{source.path}: Spark failed on it: {reason[0][:300]}"]
            rows = [VerdictRow(source.run or source.unit.name, LogAnomalies.name, Verdict.UNKNOWN, reason[0])]
        for row in rows:
            row.source, row.unit, row.checker_version, row.checked = source.unit.source, BY_QUEUE, version, checked
            row.wall_ms = (time.perf_counter() - began) * 1e3 / len(rows)
        counts = Counter(str(row.verdict) for row in rows)
        examples = [(row.run, str(row.verdict), row.reason) for row in rows if row.verdict != Verdict.VALID]
        receipt = Receipt(
            source.fingerprint(question), source.unit.name, source.unit.source, dict(counts), examples, BY_QUEUE
        )
        yield Done.of(to_table(rows), [receipt])


def _judged(spark: SparkSession, files: Files, source: Source) -> list[VerdictRow]:
    """The rows of the judge, as a batch has them for a run that fits into one worker."""
    from pyspark.sql import functions

    from checkers.spark.logs import judged

    ops = spark.read.parquet(source.path)
    if source.run is None and "run" not in ops.columns:
        return []
    if "run" not in ops.columns:
        ops = ops.withColumn("run", functions.lit(source.run))
    runs = [row["run"] for row in ops.where("f = 'send' AND type = 'invoke'").select("run").distinct().collect()]
    if not runs:
        return []
    about = {run: _about(files, source.unit) for run in runs}
    found = judged(ops.where(ops["run"].isin(runs)), about)
    return [row for run in runs for row in rows_of(run, applied(found[run], about[run]), None)]


def _about(files: Files, unit: Unit) -> RunRecord:
    """Returns a stored run's environment (it has what the configuration permits) and its observations, without ops."""
    if unit.kind != "run":
        return RunRecord(History(()))
    names = unit.files
    environment: Any = {}
    if "environment.json" in names:
        environment = json.loads(files.read(join(unit.source, "environment.json")))
    with tempfile.TemporaryDirectory() as folder:
        observations = Path(folder, "observations.jsonl")
        if observations.name in names:
            observations.write_bytes(files.read(join(unit.source, observations.name)))
        return RunRecord(History(()), environment=environment, observations=read_observations(observations))
