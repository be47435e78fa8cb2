# SPDX-License-Identifier: Apache-2.0
"""A batch on Spark beside a plain pool of processes: the same packed histories, the same checks, the same cores.

    python -m benchmarks.batch                                          # 2,000 histories of 200-1,000 ops, a minute
    python -m benchmarks.batch --histories 10000                        # the goal: at most 1.1 x the pool's time
    python -m benchmarks.batch --histories 1000000 --ops 100 100 --invalid 0.001

Both sides begin cold (without a running process) and end with the verdict table on disk; rounds alternate. A line a
round: seconds of wall and of processor of each side, their ratios, and the driver's memory (Python and Java). The time
of Spark has the start of the session in it, which has no counterpart in the pool; it is also listed by itself. Wrong
verdicts end it with code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.batch.generate import generate
from benchmarks.batch.sides import measured, wrong
from checkers.linearizability.compiled.batch_kernel import BATCH
from checkers.linearizability.compiled.code_cache import ensure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--ops", type=int, nargs=2, default=(200, 1_000), metavar=("FROM", "TO"))
    parser.add_argument("--invalid", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--folder", type=Path, help="folder of the histories, made if missing (default: a temporary folder)"
    )
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="batch-"))
    if not (folder / "invalid.npy").exists():
        total = generate(folder, given.histories, tuple(given.ops), given.invalid, seed=7)
        print(f"{given.histories:,} histories, {total:,} ops")
    ensure(BATCH)  # or the side that comes first would compile for both
    ratios = []
    bad = 0
    print("round  pool: wall   cpu   Spark: wall   cpu  session   ratio: wall  cpu   driver MiB: Python  Java   load")
    for number in range(given.rounds):
        pool, spark = (measured(side, folder / "ops", folder / side, given.cores) for side in ("pool", "spark"))
        bad += sum(wrong(folder / side, folder / "invalid.npy") for side in ("pool", "spark"))
        ratios.append(spark.wall / pool.wall)
        print(
            f"{number + 1:5} {pool.wall:11.1f} {pool.cpu:5.0f} {spark.wall:13.1f} {spark.cpu:5.0f} "
            f"{spark.session:8.1f} {spark.wall / pool.wall:13.2f} {spark.cpu / pool.cpu:4.2f} "
            f"{spark.python:20.0f} {spark.java:5.0f} {os.getloadavg()[0]:6.1f}",
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
