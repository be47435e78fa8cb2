"""A batch on Spark beside a plain pool of processes: the same packed histories, the same checks, the same cores.

    python -m benchmarks.batch                                          # 2,000 histories of 200-1,000 ops, a minute
    python -m benchmarks.batch --histories 10000                        # the goal: at most 1.25 x the pool's time
    python -m benchmarks.batch --histories 1000000 --ops 100 100 --invalid 0.001   # and at most 1.5 x

Both sides begin cold (no process of theirs runs) and end with the verdict table on disk; rounds alternate. A line a
round: seconds of wall and of processor of each side, their ratios, and how much memory the driver needed (Python and
Java). The start of the session, which the pool has no counterpart of, stands apart. Wrong verdicts end it with code 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.batch.generate import generate
from checkers.spark.files import SharedFiles
from checkers.spark.job import Done
from checkers.spark.session import start
from checkers.spark.units import PORTION_S, Unit, portions
from harness.batch_input import checker_version, units_in
from harness.batch_run import BatchPlan, check_on
from harness.batch_work import BatchWork
from harness.examined import Asked
from results.verdict_table import VERDICTS, parquet_bytes, read_verdicts


def work_of(portion: Sequence[Unit]) -> Done:
    work = BatchWork(Asked(), checker_version(), "benchmark", 1)
    return work(tuple(portion), {unit.source: Path(unit.source) for unit in portion})


def by_pool(ops: Path, output: Path, cores: int) -> None:
    """What one would write without Spark."""
    todo = portions(units_in(str(ops), SharedFiles(), None, None, str(output), print, PORTION_S))
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("forkserver")) as pool:
        tables = [done.table for done in pool.map(work_of, todo)]
    SharedFiles().write(str(output / VERDICTS / "all.parquet"), parquet_bytes(pa.concat_tables(tables)))


def wrong(output: Path, invalid: Path) -> int:
    """Verdicts that are not as they must be."""
    table = read_verdicts(output, ["run", "checker", "verdict"])
    checker, verdict = (np.array(table[name].cast(pa.string()).to_pylist()) for name in ("checker", "verdict"))
    number = np.array([int(run[1:]) for run in table["run"].cast(pa.string()).to_pylist()])
    judged = checker == "linearizability"
    expected = np.where(np.load(invalid), "invalid", "valid")
    missing = len(expected) - len(np.unique(number[judged]))
    return missing + int((verdict[judged] != expected[number[judged]]).sum())


def processor_s() -> float:
    """Of this process and all of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


def java_of(pid: int) -> int:
    """The driver's JVM, a child of this process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(c) for c in children if Path(f"/proc/{c}/comm").read_text().strip() == "java")


def by_spark(ops: Path, output: Path, cores: int) -> tuple[float, float, float]:
    """Seconds for the session, and MiB at most of the driver's Python and of its Java. In a process of its own."""
    began = time.perf_counter()
    context = start(f"local[{cores}]", {}, "benchmark")
    took = time.perf_counter() - began
    check_on(context, BatchPlan([str(ops)], str(output)), lambda line: None)
    memory = peak_mb(os.getpid()), peak_mb(java_of(os.getpid()))
    context.stop()
    return took, *memory


def measured_spark(ops: Path, output: Path, cores: int) -> tuple[float, float, float, float, float]:
    """Wall without the session, processor with it, and what `by_spark` tells."""
    began, spent = time.perf_counter(), processor_s()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as driver:
        session, python, java = driver.submit(by_spark, ops, output, cores).result()
    return time.perf_counter() - began - session, processor_s() - spent, session, python, java


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--ops", type=int, nargs=2, default=(200, 1_000), metavar=("FROM", "TO"))
    parser.add_argument("--invalid", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the histories are, or are put (default: a temporary folder)")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="batch-"))
    if not (folder / "invalid.npy").exists():
        total = generate(folder, given.histories, tuple(given.ops), given.invalid, seed=7)
        print(f"{given.histories:,} histories, {total:,} ops")
    ratios = []
    bad = 0
    print("round  pool: wall   cpu   Spark: wall   cpu  session   ratio: wall  cpu   driver MiB: Python  Java   load")
    for number in range(given.rounds):
        began, spent = time.perf_counter(), processor_s()
        by_pool(folder / "ops", folder / "pool", given.cores)
        pool, pool_cpu = time.perf_counter() - began, processor_s() - spent
        spark, spark_cpu, session, python, java = measured_spark(folder / "ops", folder / "spark", given.cores)
        bad += wrong(folder / "pool", folder / "invalid.npy") + wrong(folder / "spark", folder / "invalid.npy")
        ratios.append(spark / pool)
        print(
            f"{number + 1:5} {pool:11.1f} {pool_cpu:5.0f} {spark:13.1f} {spark_cpu:5.0f} {session:8.1f} "
            f"{spark / pool:13.2f} {spark_cpu / pool_cpu:4.2f} {python:20.0f} {java:5.0f} {os.getloadavg()[0]:6.1f}",
            flush=True,
        )
        for side in ("pool", "spark"):
            shutil.rmtree(folder / side)
    print(
        f"ratio of wall times: median {median(ratios):.2f}; {bad} wrong verdicts in {given.rounds} rounds of both sides"
    )
    if given.folder is None:
        shutil.rmtree(folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
