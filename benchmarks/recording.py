# SPDX-License-Identifier: Apache-2.0
"""The cost of a recorded event (docs/recording.md), beside the plainest recorder in the same run.

    python -m benchmarks.recording [OPS]

Prints microseconds of processor time per event, the fastest of `ROUNDS` rounds, and the ratio to the plainest recorder:
`json.dumps` and a buffered `write`, without a lock, which loses its buffer when the process is killed. Every history is
read back.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from results.formats import read_history
from rocketmq_harness import Recorder, record

ROUNDS: Final = 5


def plainest(path: Path, ops: int) -> None:
    """The baseline: an object and a line for each event."""
    with path.open("w") as file:
        for i in range(ops):
            for type_ in ("invoke", "ok"):
                event = {"process": 0, "type": type_, "f": "write", "key": "x", "value": i, "time": time.monotonic_ns()}
                file.write(json.dumps(event) + "\n")


def write(recorder: Recorder, first: int, ops: int) -> None:
    """Records acknowledged writes of unique values."""
    for i in range(first, first + ops):
        with recorder.op("write", key="x", value=i) as op:
            op.ok()


def in_one_thread(path: Path, ops: int) -> None:
    """The usual test: one client."""
    with record(path) as recorder:
        write(recorder, 0, ops)


def in_four_threads(path: Path, ops: int) -> None:
    """Four clients at a time."""
    with record(path) as recorder:
        each = ops // 4
        threads = [threading.Thread(target=write, args=(recorder, i * each, each)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def in_tasks(path: Path, ops: int) -> None:
    """Four tasks of asyncio; each yields once in each operation."""

    async def client(recorder: Recorder, first: int) -> None:
        for i in range(first, first + ops // 4):
            with recorder.op("write", key="x", value=i) as op:
                await asyncio.sleep(0)
                op.ok()

    async def main() -> None:
        with record(path) as recorder:
            await asyncio.gather(*(client(recorder, i * (ops // 4)) for i in range(4)))

    asyncio.run(main())


def read_back(path: Path, ops: int) -> None:
    """Ends the benchmark if not every operation is in the file."""
    calls = read_history(path).history.calls
    if sorted(call.invoke.value for call in calls) != list(range(ops)) or any(call.outcome != "ok" for call in calls):
        sys.exit(f"{len(calls)} operations came back, or others than the {ops} that were recorded")


def main(ops: int) -> None:
    """Runs every way of recording, in a folder that is removed afterwards. ops: a multiple of 4."""
    ways: dict[str, Callable[[Path, int], None]] = {
        "plainest recorder": plainest,
        "one thread": in_one_thread,
        "four threads": in_four_threads,
        "four asyncio tasks": in_tasks,
    }
    fastest = dict.fromkeys(ways, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "h.jsonl"
        for _ in range(ROUNDS):
            for name, way in ways.items():
                began = time.process_time()
                way(path, ops)
                fastest[name] = min(fastest[name], time.process_time() - began)
                read_back(path, ops)
    for name, seconds in fastest.items():
        each = seconds / (2 * ops) * 1e6
        print(f"{name:<20} {each:6.2f} us of processor time an event   {seconds / fastest['plainest recorder']:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) // 4 * 4 if len(sys.argv) > 1 else 100_000)
