"""`harness batch --log-sql`: anomalies of message logs found by Spark SQL, for histories that no worker can hold."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkers.legality import permits
from checkers.log.scene import Scene
from checkers.spark.files import Files, join
from checkers.spark.job import Done, Receipt
from checkers.spark.units import Unit
from results.history import History
from results.observations import read_observations
from results.op import Op
from results.record import RunRecord
from results.verdict import Verdict, worst
from results.verdict_table import VerdictRow, to_table

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

LOG_SQL = "log-sql"
"""The checker of these rows, and the part of a history that their units are."""

_CORE = 20


@dataclass(frozen=True)
class Source:
    """A Parquet file with histories of logs. `run`: the history's name, None: an op table, which has them inside."""

    unit: Unit
    path: str
    run: str | None

    def fingerprint(self, question: str) -> str:
        return self.unit.fingerprint(f"{question} {LOG_SQL}")


def log_sources(units: Iterable[Unit]) -> list[Source]:
    """The Parquet files among what is checked, each once."""
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
            told = str(problem).strip().splitlines() or [type(problem).__name__]
            told = [f"{source.path}: Spark SQL failed on it: {told[0][:300]}"]
            rows = [VerdictRow(source.run or source.unit.name, LOG_SQL, Verdict.UNKNOWN, told[0])]
        for row in rows:
            row.source, row.unit, row.checker_version, row.checked = source.unit.source, LOG_SQL, version, checked
            row.wall_ms = (time.perf_counter() - began) * 1e3 / len(rows)
        counts = Counter(str(row.verdict) for row in rows)
        told_rows = [(row.run, str(row.verdict), row.reason) for row in rows if row.verdict != Verdict.VALID]
        receipt = Receipt(
            source.fingerprint(question), source.unit.name, source.unit.source, dict(counts), told_rows, LOG_SQL
        )
        yield Done.of(to_table(rows), [receipt])


def _judged(spark: SparkSession, files: Files, source: Source) -> list[VerdictRow]:
    from pyspark.sql import functions

    from checkers.spark.logs import Candidate, Found, log_cases

    ops = spark.read.parquet(source.path)
    if source.run is None and "run" not in ops.columns:
        return []
    if "run" not in ops.columns:
        ops = ops.withColumn("run", functions.lit(source.run))
    sends = ops.where("f = 'send' AND type = 'invoke'").groupBy("run").count().collect()
    if not sends:
        return []
    scenes = _Scenes(ops, files, source)

    def reigned(found: Candidate) -> bool:
        return scenes.of(found.run).reigned(found.node, found.t0, found.t1)

    by_run: dict[str, list[Found]] = {row["run"]: [] for row in sends}
    for case in log_cases(spark, ops, reigned):
        by_run[case.run].append(case)
    return [_row(run, cases, scenes.record(run)) for run, cases in by_run.items()]


def _row(run: str, cases: list[Any], record: RunRecord) -> VerdictRow:
    legal = permits(record)
    counts = Counter(case.anomaly for case in cases)
    wrong = {name: count for name, count in counts.items() if name not in legal}
    told = ", ".join(f"{count:,} {name}" for name, count in {**wrong, **counts}.items()) or "no case of any anomaly"
    first = next((name for name in (*wrong, *counts)), None)
    core = sorted({case.op for case in cases if case.anomaly == first and case.op is not None})
    return VerdictRow(
        run,
        LOG_SQL,
        worst([Verdict.INVALID if wrong else Verdict.VALID]),
        told,
        anomaly=first,
        core=core[:_CORE],
        anomalies=list(counts),
        figures=json.dumps({"cases": dict(counts)}),
    )


class _Scenes:
    """Who was master, and which faults there were: little, and read when it is asked for."""

    def __init__(self, ops: DataFrame, files: Files, source: Source) -> None:
        self.ops, self.files, self.source = ops, files, source
        self._known: dict[str, tuple[RunRecord, Scene]] = {}

    def of(self, run: str) -> Scene:
        return self._both(run)[1]

    def record(self, run: str) -> RunRecord:
        return self._both(run)[0]

    def _both(self, run: str) -> tuple[RunRecord, Scene]:
        if run not in self._known:
            rows = self.ops.where(self.ops["run"] == run).where("process < 0").orderBy("index").collect()
            nemesis = [
                Op(r["index"], r["time"], -1, r["type"], r["f"], None, json.loads(r["value"] or "null")) for r in rows
            ]
            record = RunRecord(History(nemesis))
            if self.source.unit.kind == "run" and self.files.shared:
                folder = Path(self.source.unit.source)
                environment = folder / "environment.json"
                about = json.loads(environment.read_bytes()) if environment.exists() else {}
                record = RunRecord(
                    record.history, environment=about, observations=read_observations(folder / "observations.jsonl")
                )
            self._known[run] = record, Scene(record)
        return self._known[run]
