# SPDX-License-Identifier: Apache-2.0
"""The two sides of the benchmark. One of them alone: `python -m benchmarks.batch.sides pool OPS OUTPUT CORES`."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from checkers.spark.files import SharedFiles
from checkers.spark.job import Done
from checkers.spark.session import Session
from checkers.spark.units import Unit, portions
from harness.batch.input import checker_version, units_in
from harness.batch.run import BatchPlan, check_on
from harness.batch.work import BatchWork
from harness.check.report import CheckOptions
from results.verdict_table import VERDICTS, parquet_bytes, read_verdicts

if TYPE_CHECKING:
    from pyspark import SparkContext


def work_of(version: str, portion: Sequence[Unit]) -> Done:
    work = BatchWork(CheckOptions(), version, "benchmark", 1)
    return work(tuple(portion), {unit.source: Path(unit.source) for unit in portion})


def by_pool(ops: Path, output: Path, cores: int) -> float:
    """The plain alternative to Spark: a pool of processes. Returns all its processor seconds."""
    todo = portions(units_in(str(ops), SharedFiles(), None, None, str(output), print), cores)
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("forkserver")) as pool:
        tables = [done.table for done in pool.map(partial(work_of, checker_version()), todo)]
        SharedFiles().write(str(output / VERDICTS / "all.parquet"), parquet_bytes(pa.concat_tables(tables)))
        return processor_s()


def wrong(output: Path, invalid: Path) -> int:
    """The number of wrong or missing verdicts."""
    table = read_verdicts(output, ["run", "checker", "verdict"])
    checker, verdict = (np.array(table[name].cast(pa.string()).to_pylist()) for name in ("checker", "verdict"))
    number = np.array([int(run[1:]) for run in table["run"].cast(pa.string()).to_pylist()])
    judged = checker == "linearizability"
    expected = np.where(np.load(invalid), "invalid", "valid")
    missing = len(expected) - len(np.unique(number[judged]))
    return missing + int((verdict[judged] != expected[number[judged]]).sum())


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


def java_of(pid: int) -> int:
    """The driver's JVM, a child of one of this process' threads."""
    children = [
        child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return next(int(c) for c in children if Path(f"/proc/{c}/comm").read_text().strip() == "java")


def processor_s() -> float:
    """Seconds of processor of this process and all of its descendants, with those that ended and were waited for.

    Call it while the workers run: no process waits for Spark's when they end.
    """
    spent: dict[int, float] = {}
    parent: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            facts = (folder / "stat").read_text().rpartition(")")[2].split()
            parent[int(folder.name)] = int(facts[1])
            spent[int(folder.name)] = sum(map(int, facts[11:15])) / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    while more := {pid for pid, of in parent.items() if of in ours} - ours:
        ours |= more
    return sum(spent[pid] for pid in ours)


def by_spark(ops: Path, output: Path, cores: int) -> tuple[float, float, float]:
    """Processor seconds of it all, seconds until the session stood, and MiB at most of the driver's Java."""
    began = time.perf_counter()
    with Session(f"local[{cores}]", {}, "benchmark") as session:
        ready: list[float] = []

        def context() -> SparkContext:
            found = session.context()
            ready.append(time.perf_counter() - began)
            return found

        check_on(context, BatchPlan([str(ops)], str(output)), lambda line: None)
        return processor_s(), ready[0], peak_mb(java_of(os.getpid()))


@dataclass(frozen=True)
class Measured:
    """Of one side. wall, session, cpu: seconds; the start and the end of the session are part of `wall`. python, java:
    MiB at most of the driver's processes.
    """

    wall: float
    cpu: float
    session: float
    python: float
    java: float


def measured(side: str, ops: Path, output: Path, cores: int) -> Measured:
    """One side, in a process of its own."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.batch.sides", side, str(ops), str(output), str(cores)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    wall = time.perf_counter() - began
    cpu, session, python, java = json.loads(done.stdout.splitlines()[-1])
    return Measured(wall, cpu, session, python, java)


def main() -> None:
    side, ops, output, cores = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    spent, session, java = by_spark(ops, output, cores) if side == "spark" else (by_pool(ops, output, cores), 0.0, 0.0)
    print(json.dumps([spent, session, peak_mb(os.getpid()), java]))


if __name__ == "__main__":
    main()
