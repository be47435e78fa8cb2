# SPDX-License-Identifier: Apache-2.0
"""Measurements without a counterpart in Porcupine: a million ops, thousands of histories in a call, the command from
its start.

Each line has a limit instead of a rival: the seconds that it may take. The time is that of the processor, in this
process or in that of the command.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

import numpy as np
import numpy.typing as npt

from benchmarks.checker.families import Shape, packed, register
from benchmarks.checker.memory import forget_peak, peak_mib
from benchmarks.checker.sealed import Flags, Longs, Times, sealed_register
from checkers.linearizability import CasRegister, Linearizable, Log, check
from checkers.linearizability.batch import check_batch
from checkers.linearizability.history.arrow import objects
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.monitors import queues
from checkers.linearizability.monitors.queues import QueueOps, check_queue
from checkers.linearizability.monitors.registers import check_register, register_columns
from results.bulk import making_many
from results.formats import read_history, write_jsonl
from results.history import Call, History
from results.op import NO_EXTRA, Op, OpType, make_op
from results.sealed import read_columns
from results.verdict import Verdict

MILLION = 1_000_000
ROUNDS = 5


Run = Callable[[], float | None]
Maker = Callable[[Path], Run]


@dataclass(frozen=True)
class Line:
    """run: the measured call; it returns the seconds if it measures itself. bar_s: the permitted seconds."""

    name: str
    bar_s: float
    run: Run


def describe(line: Line) -> str:
    """name, fastest ms, bar ms, ratios to the bar (minimum, median, maximum), MiB at most resident in this process, and
    the fastest ms by the clock on the wall, which depends on all other work of the machine.
    """
    line.run()
    forget_peak()
    rounds = [_seconds(line.run) for _ in range(ROUNDS)]
    seconds = sorted(taken for taken, _ in rounds)
    wall = min(passed for _, passed in rounds)
    ratios = [one / line.bar_s for one in (seconds[0], median(seconds), seconds[-1])]
    numbers = " ".join(f"{ratio:8.4f}" for ratio in ratios)
    return f"{line.name:62} {seconds[0] * 1e3:9.2f} {line.bar_s * 1e3:10.2f} {numbers} {peak_mib():6} {wall * 1e3:9.2f}"


def _seconds(run: Run) -> tuple[float, float]:
    """The seconds of the processor (returned by `run`, or measured here), and by the clock."""
    began, at = time.process_time(), time.perf_counter()
    measured = run()
    passed = time.perf_counter() - at
    return time.process_time() - began if measured is None else measured, passed


def lines(whole: bool, folder: Path, logs: Sequence[Path], only: str = "") -> Iterator[Line]:
    """Those with `only` in their name. `folder`: for files that are made on the way. `logs`: Porcupine's of etcd."""
    makers: list[tuple[str, float, Maker]] = [
        ("batch: 10,000 histories of 100 ops, 5 clients, columns", 0.2, _batch),
        ("harness check, one small history, compiled code cached", 1.5, _command()),
        ("harness check --no-jit, one small history", 0.5, _command("--no-jit")),
    ]
    if logs:
        makers.append(("the slowest core of all invalid etcd logs, with the whole check", 0.05, _cores(logs)))
    if whole:
        name = "1,000,000 ops of a register, unique values, 1 % unknown"
        makers += [
            (f"{name}, columns", 0.1, _register_columns),
            (f"{name}, Parquet", 2.0, _register_file),
            ("1,000,000 ops of a FIFO, unknown enqueues, columns", 0.15, _fifo_columns),
            ("1,000,000 ops of a log, calls in memory", 10.0, _log_calls),
        ]
    for name, bar_s, made in makers:
        if only in name:
            yield Line(name, bar_s, made(folder))


def _batch(folder: Path) -> Run:
    many = packed(CasRegister(), [register(Random(f"batch/{i}"), Shape(100, 5)) for i in range(10_000)])
    return lambda: _ignored(check_batch(many))


def _command(*options: str) -> Maker:
    def made(folder: Path) -> Run:
        small = folder / "small.jsonl"
        write_jsonl(_small(), small)
        return lambda: command("check", *options, str(small), bytecode=folder / "bytecode")

    return made


def _cores(logs: Sequence[Path]) -> Maker:
    """Seconds that `check`, which finds the core, takes for that invalid log which takes longest."""

    def seconds(history: History) -> float:
        began = time.process_time()
        check(history, CasRegister())
        return time.process_time() - began

    def made(folder: Path) -> Run:
        histories = [read_history(path).history for path in logs]
        invalid = [history for history in histories if check(history, CasRegister()).verdict == Verdict.INVALID]
        return lambda: max(map(seconds, invalid))

    return made


def _register_columns(folder: Path) -> Run:
    path = folder / "register.parquet"
    sealed_register(path, MILLION, unknown=MILLION // 100)
    found = objects(read_columns(path), CasRegister.fs)
    assert found is not None
    ops = register_columns(found[0][1], CasRegister())
    assert ops is not None
    return lambda: _ignored(check_register(ops))


def _register_file(folder: Path) -> Run:
    path = folder / "register.parquet"
    sealed_register(path, MILLION, unknown=MILLION // 100)
    return lambda: _valid(path)


def _fifo_columns(folder: Path) -> Run:
    queue = fifo(MILLION)
    return lambda: _ignored(check_queue(queue))


def _log_calls(folder: Path) -> Run:
    with making_many():
        calls = log(MILLION)
    return lambda: _ignored(check(calls, Log()))


def _ignored(_: object) -> None:
    return None


def _valid(path: Path) -> None:
    if Linearizable(CasRegister()).examine_columns(read_columns(path)) is None:
        raise AssertionError("this history is valid, and plain")


def command(*words: str, bytecode: Path) -> float:
    """Seconds of the processor that the command takes, its start included. `bytecode`: the folder of compiled files,
    which exist from the second call on, as in an installation.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = "import sys; from harness.cli.main import main; sys.exit(main())"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(bytecode)
    subprocess.run([sys.executable, "-c", program, *words], check=True, stdout=subprocess.DEVNULL, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _small() -> History:
    ops: list[Op] = []
    for i in range(50):
        for f, value in (("write", i % 5), ("read", i % 5)):
            ops.append(Op(len(ops), len(ops), i % 5, "invoke", f, "k", value if f == "write" else None))
            ops.append(Op(len(ops), len(ops), i % 5, "ok", f, "k", value))
    return History(ops)


def fifo(ops: int) -> QueueOps:
    """Each element is enqueued, and dequeued a little later; about ten calls are open at a time. One enqueue in a
    hundred is of unknown outcome: half of these never happened.
    """
    rng = np.random.default_rng(3)
    count = ops // 2
    put = 2.0 * np.arange(count)
    took = put + 21
    unknown = rng.random(count) < 0.01
    gone = unknown & (rng.random(count) < 0.5)
    points = np.concatenate((put, took[~gone]))
    f = np.repeat(np.array([queues.ENQUEUE, queues.DEQUEUE], np.uint8), [count, count - int(gone.sum())])
    element = np.concatenate((np.arange(count), np.nonzero(~gone)[0]))
    late = np.concatenate((unknown, np.zeros(len(points) - count, np.bool_)))
    return _in_order(f, element, points - rng.uniform(0, 5, len(points)), points + rng.uniform(0, 5, len(points)), late)


def _in_order(f: npt.NDArray[np.uint8], element: Longs, call: Times, ret: Times, late: Flags) -> QueueOps:
    """Times as positions of events, and the ops in order of their calls."""
    stamps = np.concatenate((call, ret[~late]))
    place = np.empty(len(stamps), np.int64)
    place[np.argsort(stamps)] = np.arange(len(stamps))
    returned = np.full(len(call), NEVER, np.int64)
    returned[~late] = place[len(call) :]
    order = np.argsort(place[: len(call)])
    return QueueOps(f[order], element[order], place[: len(call)][order], returned[order], order)


def log(ops: int) -> tuple[Call, ...]:
    """Ten clients append or read; one append in a hundred is of unknown outcome, and half of these happened."""
    rng = Random(1)
    events: list[Op] = []
    entries: list[int] = []
    fresh = 10

    def put(process: int, type_: OpType, f: str, value: object) -> None:
        events.append(make_op(len(events), len(events), process, type_, f, "q", value, None, NO_EXTRA))

    clients = list(range(10))
    for _ in range(ops // 10):
        begun = []
        for place, client in enumerate(clients):
            f = rng.choice(("append", "read"))
            asked = len(events) + 10**6 if f == "append" else rng.randrange(len(entries) + 2)
            put(client, "invoke", f, asked)
            begun.append((place, client, f, asked))
        rng.shuffle(begun)
        for place, client, f, asked in begun:
            if f == "append" and rng.random() < 0.01:
                if rng.random() < 0.5:
                    entries.append(asked)
                put(client, "info", f, asked)
                fresh += 1
                clients[place] = fresh
            elif f == "append":
                entries.append(asked)
                put(client, "ok", f, len(entries) - 1)
            else:
                put(client, "ok", f, entries[asked] if asked < len(entries) else None)
    return History(events).calls
