# SPDX-License-Identifier: Apache-2.0
"""One long history of many keys: `harness batch` on Spark beside `harness check` in one process, on the same file.

    python -m benchmarks.batch.long --keys 5000                     # 5 million ops, both sides
    python -m benchmarks.batch.long --keys 100000 --only spark      # 100 million; no process can hold it

Prints seconds of wall and of processor, the memory of all processes of a side at its peak, and the ratio. The history
is valid but for `--invalid` keys, and wrong verdicts end it with code 1.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.batch.generate import Lot, as_batch, events
from results.sealed import FORMAT, ROW_GROUP, SCHEMA
from results.verdict_table import read_verdicts

AT_ONCE: Final = 256
"""Keys whose ops are interleaved, as `jepsen.independent` does it; then the next ones follow."""

_PROCESSES: Final = 10_000_000


def generate_one(path: Path, keys: int, ops: int, invalid: float, seed: int) -> npt.NDArray[np.bool_]:
    """Writes one sealed history. Returns which of its keys (`k0`, `k1`, ...) are invalid."""
    rng = np.random.default_rng(seed)
    schema = SCHEMA.with_metadata({b"harness.format": FORMAT.encode()})
    truth: list[npt.NDArray[np.bool_]] = []
    rows = time_ = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, keys, AT_ONCE):
            lot = Lot(min(AT_ONCE, keys - first), ops, 0.005, invalid)
            columns, bad = events(lot, rng)
            columns["process"] = columns["process"] % _PROCESSES + _PROCESSES * (first + columns["run"])
            order = np.argsort(columns["time"], kind="stable")
            columns = {name: column[order] for name, column in columns.items()}
            columns["time"] += time_
            columns["index"] = rows + np.arange(len(order))
            rows, time_ = rows + len(order), int(columns["time"][-1])
            names = [f"k{first + number}" for number in range(lot.histories)]
            writer.write_batch(_keyed(columns, names, schema), row_group_size=ROW_GROUP)
            truth.append(bad)
    return np.concatenate(truth)


def _keyed(columns: dict[str, npt.NDArray[Any]], names: list[str], schema: pa.Schema) -> pa.RecordBatch:
    batch = as_batch(columns, names, schema)
    codes = pa.array(columns["run"].astype(np.int32))
    keys = pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string()))
    return batch.set_column(schema.get_field_index("key"), schema.field("key"), keys)


@dataclass
class Side:
    """wall, cpu: seconds. peak_mb: of all its processes together, seen twice a second. code: its exit code."""

    wall: float
    cpu: float
    peak_mb: float
    code: int
    output: str


def run(argv: list[str]) -> Side:
    """Runs a command to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    peak = [0.0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            peak[0] = max(peak[0], _memory_mb(child.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = child.communicate()
    over.set()
    watcher.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Side(time.perf_counter() - began, cpu, peak[0], child.returncode, output)


def _memory_mb(session: int) -> float:
    """The memory of all processes of a session, shared pages counted once (proc(5): smaps_rollup, Pss)."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=5_000)
    parser.add_argument("--ops", type=int, default=1_000, help="calls on each key")
    parser.add_argument("--invalid", type=float, default=0.001, help="share of the keys")
    parser.add_argument("--only", choices=("spark", "one"), help="only this side")
    parser.add_argument("--folder", type=Path, help="folder of the file, which is made if it is missing")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="long-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{given.keys}-{given.ops}.parquet"
    if not path.exists():
        began = time.perf_counter()
        bad = generate_one(path, given.keys, given.ops, given.invalid, seed=7)
        np.save(folder / f"{path.stem}.npy", bad)
        print(
            f"made {given.keys * given.ops:,} ops, {path.stat().st_size >> 20} MiB, {time.perf_counter() - began:.0f} s"
        )
    bad = np.load(folder / f"{path.stem}.npy")
    harness = [sys.executable, "-m", "harness.cli"]
    output = folder / "verdicts"
    shutil.rmtree(output, ignore_errors=True)
    sides = {
        "one": [*harness, "check", str(path), "--model", "cas-register", "--memory-mb", "1000000"],
        "spark": [*harness, "batch", "--input", str(path), "--output", str(output), "--model", "cas-register"],
    }
    found: dict[str, Side] = {}
    wrong = 0
    for name, argv in sides.items():
        if given.only in (None, name):
            found[name] = side = run(argv)
            print(
                f"{name:<6} {side.wall:8.1f} s wall {side.cpu:8.1f} s cpu {side.peak_mb:8.0f} MiB  "
                f"exit code {side.code}  load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
            if side.code != (1 if bad.any() else 0):
                print(side.output)
                wrong += 1
    if "spark" in found and not wrong:
        table = read_verdicts(output, ["key", "checker", "verdict"])
        keys = table["key"].cast(pa.string()).to_pylist()
        words = table["verdict"].cast(pa.string()).to_pylist()
        judged = {key: word for key, word in zip(keys, words, strict=True) if key is not None}
        expected = {f"k{number}": "invalid" if one else "valid" for number, one in enumerate(bad.tolist())}
        wrong = sum(judged.get(key) != word for key, word in expected.items())
        print(f"{len(judged):,} keys judged, {wrong} wrong or missing")
    if len(found) == 2:
        print(f"ratio of wall times, Spark to one process: {found['spark'].wall / found['one'].wall:.2f}")
    if given.folder is None:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
