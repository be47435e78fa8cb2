# SPDX-License-Identifier: Apache-2.0
"""The time of the judges of logs and groups for a million ops, compared with the time to read them from a Parquet file.

    python -m benchmarks.log_checker [--ops 1000000]

Four queues on three replicas; producers, readers that each see everything once, a consumer group that commits, and
final reads of every replica; one send in a hundred is of unknown outcome. Every judge must find it valid. A line for
each: processor seconds, and the ratio to those of the reading.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from checkers.base.api import Checker
from checkers.messages.log import LogAnomalies, LogLinearizable, Replicas
from checkers.messages.queue import Deliveries, Offsets
from results.bulk import making_many
from results.history import History
from results.op import Op, OpType
from results.record import RunRecord
from results.sealed import read_sealed, seal
from results.verdict import Verdict

QUEUES = 4
REPLICAS = ("n1", "n2", "n3")
READERS = 2
CHUNK = 12
FINAL_CHUNK = 32


class _Writer:
    """Puts calls into a history, a microsecond from event to event."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def put(self, process: int, type_: OpType, f: str, key: str, value: Any, **extra: Any) -> None:
        self.ops.append(Op(len(self.ops), len(self.ops) * 1000, process, type_, f, key, value, None, extra))

    def call(self, process: int, f: str, key: str, asked: Any, got: Any, **extra: Any) -> None:
        self.put(process, "invoke", f, key, asked, **extra)
        self.put(process, "ok", f, key, got, **extra)


def history(count: int) -> list[Op]:
    """About `count` ops."""
    rng, out = Random(7), _Writer()
    logs: dict[str, list[int]] = {f"bench:a:{q}": [] for q in range(QUEUES)}
    positions = [dict.fromkeys(logs, 0) for _ in range(READERS + 1)]
    # Per message: two ops of its send, and its share of the reads and commits.
    per_message = 2 + 2 * (READERS + 2) / CHUNK + 2 * len(REPLICAS) / FINAL_CHUNK
    fresh = 100
    for identity in range(1, int(count / per_message) + 1):
        queue = f"bench:a:{identity % QUEUES}"
        log = logs[queue]
        log.append(identity)
        if rng.random() < 0.01:
            fresh += 1
            out.put(fresh, "invoke", "send", queue, identity)
            out.put(fresh, "info", "send", queue, identity)
        else:
            out.call(identity % 16, "send", queue, identity, [len(log) - 1, identity], node="n1", code=0)
        if len(log) % CHUNK == 0:
            for reader, at in enumerate(positions):
                _read(out, 20 + reader, queue, at, log, consume=reader == READERS)
    for queue, log in logs.items():
        _read(out, 20 + READERS, queue, positions[READERS], log, consume=True)
        said = {"committed": len(log), "max": len(log), "consumed_to": len(log)}
        out.call(30, "drain", queue, None, said, group="g", node="n1")
        for node in REPLICAS:
            _read_through(out, queue, log, node)
    return out.ops


def _read(out: _Writer, process: int, queue: str, at: dict[str, int], log: list[int], consume: bool) -> None:
    begin, end = at[queue], len(log)
    shown = [[offset, log[offset]] for offset in range(begin, end)]
    at[queue] = end
    if consume:
        out.call(process, "consume", queue, begin, shown, group="g", node="n1")
        out.call(process, "commit", queue, end, end, group="g", node="n1")
        if end % (CHUNK * 16) == 0:
            out.call(process, "committed", queue, None, end, group="g", node="n1")
    else:
        said = {"node": REPLICAS[process % 3], "role": "master", "min": 0, "max": end, "next": end}
        out.call(process, "poll", queue, begin, shown, **said)


def _read_through(out: _Writer, queue: str, log: list[int], node: str) -> None:
    for begin in range(0, len(log), FINAL_CHUNK):
        end = min(begin + FINAL_CHUNK, len(log))
        shown = [[offset, log[offset]] for offset in range(begin, end)]
        said = {"node": node, "min": 0, "max": len(log), "next": end, "done": end == len(log), "phase": "final"}
        out.call(31, "replica-read", queue, begin, shown, **said)


def judges() -> Iterator[Checker]:
    yield LogAnomalies()
    yield LogLinearizable()
    yield Replicas()
    yield Offsets()
    yield Deliveries()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ops", type=int, default=1_000_000, help="about how many ops (default 1,000,000)")
    count = parser.parse_args().ops
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.parquet"
        with making_many():
            seal(history(count), path)
        began = time.process_time()
        ops = read_sealed(path)
        reading = time.process_time() - began
    print(f"{'reading':18} {reading:6.2f} s   {len(ops):,} ops")
    record, total, wrong = RunRecord(History(ops)), 0.0, []
    for checker in judges():
        began = time.process_time()
        with making_many():
            result = checker.check(record)
        took = time.process_time() - began
        total += took
        print(f"{checker.name:18} {took:6.2f} s   {took / reading:4.2f}   {result.verdict.value}: {result.reason}")
        if result.verdict != Verdict.VALID:
            wrong.append(checker.name)
    print(f"{'all':18} {total:6.2f} s   {total / reading:4.2f}")
    if wrong:
        sys.exit(f"not valid: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
