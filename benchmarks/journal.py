# SPDX-License-Identifier: Apache-2.0
"""The speed of a history to disk and back: journal, sealed history, EDN.

    python -m benchmarks.journal [OPS]

Prints one line a step: operations per second, per second of processor time (the figure that a busy machine does not
spoil), bytes per operation, and the peak memory of the process so far.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from results.formats import ReadOptions, read_history, write_edn
from results.journal import Journal, read_journal
from results.op import Op, OpType
from results.sealed import iterate_sealed, read_sealed, seal


def ops(count: int) -> Iterator[Op]:
    """Yields the ops of a register run: keys, unique values, and the extras of every op."""
    for i in range(count):
        extra = {"node": f"n{i % 5 + 1}", "scheduled": i * 1000, "phase": "main"}
        kind: OpType = "ok" if i // 10 % 2 else "invoke"
        yield Op(i, i * 1000, i % 10, kind, "write", f"r{i % 10}", i % 10 + i // 20 * 10, None, extra)


def main(count: int) -> None:
    """Runs every step on `count` ops, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = min(count, 200_000)
        _step("journal: append", few, partial(_append, folder / "some.jsonl", list(ops(few))), folder / "some.jsonl")
        _step("journal: make and append", count, lambda: _append(folder / "j.jsonl", ops(count)), folder / "j.jsonl")
        _step("journal: read", count, lambda: _same(read_journal(folder / "j.jsonl")[0], count))
        _step("sealed: make and write", count, lambda: seal(ops(count), folder / "h.parquet"), folder / "h.parquet")
        _step("sealed: iterate", count, lambda: sum(1 for _ in iterate_sealed(folder / "h.parquet")))
        _step("sealed: read", count, lambda: _same(read_sealed(folder / "h.parquet"), count))
        _step("edn: make and write", few, lambda: write_edn(ops(few), folder / "h.edn"), folder / "h.edn")
        unset = ReadOptions(nil_reads="unset")
        _step("edn: read", few, lambda: read_history(folder / "h.edn", options=unset))


def _same(found: Sequence[Op], count: int) -> None:
    """Ends the benchmark where not every op came back as it was written (the first and the last are compared whole)."""
    wanted = [op for op in ops(count) if op.index in (0, count - 1)]
    if len(found) != count or [found[0], found[-1]] != wanted:
        sys.exit(f"{len(found)} of {count} ops came back, or others than those that were written")


def _append(path: Path, found: list[Op] | Iterator[Op]) -> None:
    with Journal(path) as journal:
        for op in found:
            journal.append(op)


def _step(name: str, count: int, work: Callable[[], object], file: Path | None = None) -> None:
    began, busy = time.perf_counter(), time.process_time()
    work()
    took, busy = time.perf_counter() - began, time.process_time() - busy
    size = f"{file.stat().st_size / count:6.1f} bytes/op" if file else " " * 15
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:<26} {count / took:>10,.0f} ops/s  {count / busy:>10,.0f} ops/cpu-s  {size}  peak {peak:,.0f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
