# SPDX-License-Identifier: Apache-2.0
"""The time of the linearizability checker.

    python -m benchmarks.linearizability [--keys 500] [--longest 100000]

Histories are simulated: a real register, each op taking effect at one moment within its call, unknown ops taking effect
half of the time. `stale`: a few reads are answered from the past. One line each: verdict, processor seconds, steps,
algorithm. The last lines are a whole run of the register workload's shape. A history without stale reads that is not
valid ends it with code 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from checkers.linearizability import CasRegister, Linearizable, check
from results.history import History
from results.op import Op, OpType
from results.record import RunRecord
from results.verdict import Verdict


@dataclass(frozen=True)
class Shape:
    """clients: calls open at a time. values: the number of different ones (None: each written once)."""

    ops: int
    clients: int
    values: int | None = None
    crash: float = 0.0
    stale: float = 0.0


def simulate(rng: Random, shape: Shape, key: str, first_process: int = 0) -> list[tuple[float, Op]]:
    """(time, event) of one key, each op a process of its own; indices are given when all keys are merged."""
    free = [0.0] * shape.clients
    calls: list[tuple[float, float, float, int]] = []
    for op in range(shape.ops):
        client = min(range(shape.clients), key=free.__getitem__)
        start, length = free[client] + rng.random() * 0.2, rng.expovariate(1)
        free[client] = start + length
        calls.append((start + length * rng.random(), start, start + length, first_process + op))
    fresh = count(1)
    state: Any = None
    past: list[Any] = [None]
    events: list[tuple[float, Op]] = []
    for _, start, end, process in sorted(calls):
        f = rng.choice(("read", "read", "write", "write", "cas"))
        unknown = rng.random() < shape.crash
        new = next(fresh) if shape.values is None else rng.randrange(shape.values)
        argument: Any = {"read": None, "write": new, "cas": [rng.choice(past[-4:]), new]}[f]
        outcome: OpType = "fail" if f == "cas" and argument[0] != state else "ok"
        seen = rng.choice(past[-8:]) if rng.random() < shape.stale else state
        if f != "read" and outcome == "ok" and (not unknown or rng.random() < 0.5):
            state = new
        past.append(state)
        type_ = "info" if unknown else outcome
        result = None if unknown else seen if f == "read" else argument
        events.append((start, Op(0, int(start * 1e9), process, "invoke", f, key, argument)))
        events.append((end, Op(0, int(end * 1e9), process, type_, f, key, result)))
    return events


def merged(events: list[tuple[float, Op]]) -> History:
    ordered = (op for _, op in sorted(events, key=lambda event: event[0]))
    return History(
        Op(i, op.time, op.process, op.type, op.f, op.key, op.value, op.error, op.extra) for i, op in enumerate(ordered)
    )


def shapes() -> Iterator[tuple[str, Shape]]:
    for clients in (5, 10, 20, 30):
        yield f"unique values, 200 ops, {clients} clients", Shape(200, clients, crash=0.1)
        yield f"5 values, 200 ops, {clients} clients", Shape(200, clients, values=5)
        yield f"5 values, 200 ops, {clients} clients, 10 % unknown", Shape(200, clients, values=5, crash=0.1)
        yield f"5 values, 200 ops, {clients} clients, stale", Shape(200, clients, values=5, stale=0.2)
    yield "unique values, 100,000 ops", Shape(100_000, 10, crash=0.01)
    yield "unique values, 100,000 ops, stale", Shape(100_000, 10, crash=0.01, stale=0.01)
    yield "5 values, 10,000 ops, 5 clients", Shape(10_000, 5, values=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=500, help="keys of the simulated run (default 500)")
    parser.add_argument("--longest", type=int, default=100_000, help="leave out longer histories (default 100,000 ops)")
    given = parser.parse_args()
    keys, wrong = given.keys, []
    for name, shape in shapes():
        if shape.ops > given.longest:
            continue
        history = merged(simulate(Random(name), shape, "k"))
        started = time.process_time()
        result = check(history, CasRegister())
        took = time.process_time() - started
        if result.verdict != Verdict.VALID and not shape.stale:
            wrong.append(name)
        core = f"core {len(result.core)}" if result.core else ""
        print(f"{name:50} {result.verdict.value:8} {took:7.3f} s {result.work:>10,} steps  {result.algorithm} {core}")
    for stale in (0.0, 0.02):
        rng = Random(7)
        events: list[tuple[float, Op]] = []
        for key in range(keys):
            events += simulate(rng, Shape(200, 6, crash=0.1, stale=stale), f"k{key}", key * 1_000)
        record = RunRecord(merged(events))
        started = time.process_time()
        judged = Linearizable(CasRegister()).check(record)
        took = time.process_time() - started
        bad = judged.stats["invalid_keys"]
        print(f"a run of {keys} keys, stale reads {stale:.0%}: {judged.verdict.value}, {bad} bad keys, {took:.2f} s")
        if (judged.verdict == Verdict.VALID) != (not stale):
            wrong.append(f"a run, stale reads {stale:.0%}")
    if wrong:
        sys.exit(f"wrong verdicts: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
