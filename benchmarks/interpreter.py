# SPDX-License-Identifier: Apache-2.0
"""The number of operations a second that the interpreter issues and journals when the client does nothing.

    python benchmarks/interpreter.py [--ops 150000] [--concurrency 1000] [--profile]

One op is an invocation and a completion. The baseline, measured in the same run on the same machine, is the limit of
asyncio and the journal: as many tasks, each of which writes the same two lines for each op and then lets the others
run; no generator, no scheduler, no deadlines. The ratio of the two is more useful than either figure, since it hardly
depends on the machine. `nothing` is the plainest generator, `register` a real workload's: 20 keys, a weighted mix,
drawn from a seed, at most 200 ops a key, a rate (too high to hold) and a limit of time around it.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeAlias

import harness.generator as gen
from harness.api import Completion
from harness.generator import Generator, Invocation
from harness.run.interpreter import Interpreter
from results.journal import Journal
from results.op import Op

GOAL = 30_000
"""ops/s at 1,000 processes"""

DONE = Completion("ok", 0)

Note: TypeAlias = Callable[[Op], None]


class Idle:
    """A client that does nothing."""

    async def open(self) -> None:
        return

    async def invoke(self, op: Op) -> Completion:
        return DONE

    async def close(self) -> None:
        return


def nothing(ops: int) -> Generator:
    return gen.clients(gen.limit(ops, gen.repeat(Invocation("read", "k0"))))


def register(ops: int) -> Generator:
    rng = Random(7)

    def read(n: int) -> Invocation:
        return Invocation("read")

    def write(n: int) -> Invocation:
        return Invocation("write", value=2 * n)

    def cas(n: int) -> Invocation:
        return Invocation("cas", value=[2 * n, 2 * n + 1])

    keys = gen.key_window(rng, 20, 200, lambda key: gen.mix(rng, {read: 2, write: 2, cas: 1}))
    return gen.limit(ops, gen.time_limit(3600, gen.clients(gen.rate(1e6, keys))))


async def interpreted(source: Generator, concurrency: int, journal: Note) -> None:
    interpreter = Interpreter(concurrency=concurrency, client=lambda _: Idle(), journal=journal, deadline_s=4.0)
    await interpreter.run(source)
    await interpreter.close()


async def bare(ops: int, concurrency: int, journal: Note) -> None:
    """The baseline."""
    loop = asyncio.get_running_loop()
    start, index = loop.time(), 0

    def note(process: int, kind: str) -> None:
        nonlocal index
        now = round((loop.time() - start) * 1e9)
        journal(Op(index, now, process, kind, "read", "k0", None))  # type: ignore[arg-type]
        index += 1

    async def process(number: int, share: int) -> None:
        for _ in range(share):
            note(number, "invoke")
            await asyncio.sleep(0)
            note(number, "ok")

    await asyncio.gather(*(process(p, ops // concurrency) for p in range(concurrency)))


def measured(name: str, ops: int, work: Callable[[Note], Coroutine[None, None, None]], profile: bool) -> float:
    """ops/s of one run, its journal closed (and so on the disk) within the time."""
    with tempfile.TemporaryDirectory() as folder:
        profiler = cProfile.Profile()
        path = Path(folder) / "journal.jsonl"
        start = time.perf_counter()
        with Journal(path) as journal:
            if profile:
                profiler.runcall(asyncio.run, work(journal.append))
            else:
                asyncio.run(work(journal.append))
        speed = ops / (time.perf_counter() - start)
        with path.open("rb") as lines:
            assert sum(1 for _ in lines) == 2 * ops, "lines are missing"
    print(f"{name:10} {speed:9,.0f} ops/s", flush=True)
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return speed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ops", type=int, default=150_000)
    parser.add_argument("--concurrency", type=int, default=1000)
    parser.add_argument("--profile", action="store_true", help="show where the time goes (and takes longer)")
    options = parser.parse_args()
    n = options.concurrency
    ops = options.ops // n * n
    base = measured("bare", ops, partial(bare, ops, n), False)
    for source in (nothing, register):
        speed = measured(source.__name__, ops, partial(interpreted, source(ops), n), options.profile)
        if not options.profile:
            goal = "met" if speed >= GOAL else "missed"
            print(f"{'':10} {speed / base:9.2f} of bare; goal {GOAL:,} ops/s: {goal}")


if __name__ == "__main__":
    main()
