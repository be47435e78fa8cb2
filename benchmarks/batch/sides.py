"""The two sides of the benchmark. In a module of their own: what other processes do must be importable there."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

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
