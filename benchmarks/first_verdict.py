# SPDX-License-Identifier: Apache-2.0
"""The first verdict of a new process, where nothing is compiled yet: a user's first test (docs/recording.md).

    python -m benchmarks.first_verdict [OPS]

Prints seconds of processor time of a whole process, start and imports included, the fastest of `ROUNDS`, and the ratio
to a process that only imports numpy. Values repeat, so that no special case decides. Each verdict is compared with the
planted one, and no process may load the compiler.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from rocketmq_harness import Recorder, record

ROUNDS: Final = 3
ROOT: Final = Path(__file__).parents[1]

JUDGE: Final = """
import sys
from rocketmq_harness import assert_linearizable
try:
    assert_linearizable(sys.argv[1], sys.argv[2])
    print("valid", "numba" in sys.modules)
except AssertionError:
    print("invalid", "numba" in sys.modules)
"""

Script = Iterator[tuple[str, Any, Any]]
"""Yields (f, argument, result)."""


def register(ops: int) -> Script:
    """Writes of five values, and reads."""
    rng, held = Random(1), 1
    for i in range(ops):
        if i and rng.random() < 0.5:
            yield "read", None, held
        else:
            held = rng.randrange(1, 6)
            yield "write", held, held


def counter(ops: int) -> Script:
    """Additions, and reads."""
    total = 0
    for i in range(ops):
        if i % 3 == 2:
            yield "read", None, total
        else:
            total += 1
            yield "add", 1, 1


def play(recorder: Recorder, script: Script, ops: int, stale: bool) -> None:
    """Records a script with two operations open at a time. A stale one ends with a read that is wrong."""
    for i, (f, argument, result) in enumerate(script):
        with recorder.op(f, value=argument, process=i % 2) as op, recorder.op("read", process="other") as beside:
            op.ok(result)
            beside.info("its result was not recorded")
    if stale:
        with recorder.op("read") as op:
            op.ok(ops + 1)


def seconds(code: str, *argv: str, cache: str) -> tuple[float, str]:
    """The processor time of a new process, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    environment |= {"HARNESS_CACHE": cache, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], env=environment, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main(ops: int) -> None:
    """Judges every history in processes of its own."""
    scripts: dict[str, Callable[[int], Script]] = {"register": register, "counter": counter}
    with tempfile.TemporaryDirectory() as folder:
        base = min(seconds("import numpy", cache=folder)[0] for _ in range(ROUNDS))
        print(f"{'import numpy':<28} {base:5.2f} s of processor time   1.00")
        for model, script in scripts.items():
            for planted in ("valid", "invalid"):
                path = Path(folder) / f"{model}-{planted}.jsonl"
                with record(path) as recorder:
                    play(recorder, script(ops // 2), ops, stale=planted == "invalid")
                found = [seconds(JUDGE, str(path), model, cache=folder) for _ in range(ROUNDS)]
                if {output for _, output in found} != {f"{planted} False\n"}:
                    sys.exit(f"{path.name}: {planted} was planted, and no compiler is needed; not {found[0][1]}")
                fastest = min(time for time, _ in found)
                name = f"{model}, {ops} ops, {planted}"
                print(f"{name:<28} {fastest:5.2f} s of processor time   {fastest / base:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
