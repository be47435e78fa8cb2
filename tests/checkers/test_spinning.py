# SPDX-License-Identifier: Apache-2.0
"""Threads that never wait: one that spins is found whatever the processors are; others are not."""

from __future__ import annotations

from checkers.servers.spinning import Spinning
from results.history import History
from results.machine import BusyThread, MachineSample
from results.record import RunRecord
from results.verdict import Verdict

S = 1_000_000_000


def run_of(*shares: tuple[float, float], name: str = "ReputMessageSer", gap: int | None = None) -> RunRecord:
    """A sample of two seconds for each (ran, runnable) of one thread; in the sample `gap` it is not listed."""
    samples = [
        MachineSample(
            "n2",
            2 * i * S,
            2 * (i + 1) * S,
            late_ms=0.0,
            threads=() if i == gap else (BusyThread("broker", 77, name, ran, runnable),),
        )
        for i, (ran, runnable) in enumerate(shares)
    ]
    return RunRecord(History(()), machine=samples)


def test_a_planted_spin_is_found_with_and_without_enough_processors() -> None:
    for ran in (1.0, 0.3):
        result = Spinning().check(run_of(*[(0.1, 0.2)] * 3, *[(ran, 0.99)] * 11))
        assert result.verdict == Verdict.INVALID
        (found,) = result.anomalies
        assert found.name == "spinning-thread"
        assert found.window == (4 * S, 28 * S)
        assert found.details == {"node": "n2", "server": "broker", "thread": "ReputMessageSer"}


def test_it_is_silent_on_threads_that_wait() -> None:
    busy = run_of(*[(0.8, 0.85)] * 30)
    interrupted = run_of(*([*[(1.0, 1.0)] * 8, (0.1, 0.2), (0.1, 0.2)] * 3))
    starved = run_of(*[(0.01, 1.0)] * 30)
    compiler = run_of(*[(1.0, 1.0)] * 30, name="C2_CompilerThre")
    unlisted = run_of(*[(1.0, 1.0)] * 19, gap=9)
    for run in (busy, interrupted, starved, compiler, unlisted):
        assert Spinning().check(run).verdict == Verdict.VALID


def test_it_is_asked_only_where_threads_were_measured() -> None:
    assert Spinning.concerns(run_of((0.0, 0.0)))
    assert not Spinning.concerns(RunRecord(History(()), machine=[MachineSample("n1", 0, S, late_ms=0.0)]))
