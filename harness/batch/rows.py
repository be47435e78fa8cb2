# SPDX-License-Identifier: Apache-2.0
"""Converts results of checkers to rows of the verdict table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.base.api import Checker
from checkers.linearizability import Linearizable, LinearResult
from results.record import RunRecord
from results.trends import PERMITTED
from results.verdict import CheckResult, Verdict, worst
from results.verdict_file import plain
from results.verdict_table import VerdictRow, from_columns


class TimedChecker:
    """A linearizability checker that keeps what it found for each key."""

    def __init__(self, checker: Linearizable) -> None:
        self.checker = checker
        self.name = checker.name
        self.keys: Mapping[str | None, LinearResult] = {}

    def check(self, run: RunRecord) -> CheckResult:
        result, self.keys = self.checker.examine(run.history)
        return result


def rows_of(run: str, result: CheckResult, checker: Checker | None) -> Iterator[VerdictRow]:
    """A row for each key that was judged by itself, else one for the run."""
    if isinstance(checker, TimedChecker) and checker.keys:
        yield from key_rows(run, checker.checker.model.name, checker.keys, result.ms)
        if worst(r.verdict for r in checker.keys.values()) == result.verdict:
            return
    first = result.anomalies[0] if result.anomalies else None
    yield VerdictRow(
        run,
        result.checker,
        result.verdict,
        result.reason,
        key=first.key if first else None,
        anomaly=first.name if first else None,
        core=tuple(first.ops) if first else (),
        wall_ms=result.ms,
        anomalies=list(dict.fromkeys(a.name for a in result.anomalies)),
        figures=json.dumps(plain({**result.stats, **_permitted(result)})),
    )


def _permitted(result: CheckResult) -> dict[str, list[str]]:
    """`{"permitted": [...]}`: the names of anomalies that this configuration permits, every one of that name."""
    forbidden = {a.name for a in result.anomalies if a.legal is None}
    names = sorted({a.name for a in result.anomalies} - forbidden)
    return {PERMITTED: names} if names else {}


def key_rows(run: str, model: str, keys: Mapping[str | None, LinearResult], ms: float) -> Iterator[VerdictRow]:
    total = sum(r.checked for r in keys.values()) or 1
    for key, found in keys.items():
        bad = found.verdict == Verdict.INVALID
        yield VerdictRow(
            run,
            "linearizability",
            found.verdict,
            found.reason,
            key=key,
            model=model,
            anomaly="nonlinearizable" if bad else None,
            core=tuple(found.core),
            ops=2 * found.checked,
            wall_ms=ms * found.checked / total,
            algorithm=found.algorithm,
            anomalies=["nonlinearizable"] if bad else [],
        )


@dataclass(frozen=True)
class ColumnarResults:
    """Histories of an op table that were found valid from their columns.

    names, good, events   of every history of the part: its name, whether it is one of these, and its rows.
    owner, keys, completed, calls   of every object: its history's number, its key, its acknowledged and all its calls.
    """

    model: str
    names: Sequence[str]
    good: npt.NDArray[np.bool_]
    events: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]
    keys: Sequence[str | None]
    completed: npt.NDArray[np.int64]
    calls: npt.NDArray[np.int64]
    wall_ms: float
    cpu_ms: float

    def tables(self, constant: Mapping[str, Any]) -> list[pa.Table]:
        """Their rows: one a history (well-formed), and one an object."""
        which = np.nonzero(self.good)[0]
        events = self.events[which]
        share = self.calls / max(int(self.calls.sum()), 1)
        names = pa.array(self.names, pa.string())
        formed = {
            "run": names.take(pa.array(which)),
            "reason": [f"{count} ops" for count in events.tolist()],
            "ops": events,
        }
        judged = {
            "run": names.take(pa.array(self.owner)),
            "key": self.keys,
            "reason": [f"an order that explains all {count} completed ops exists" for count in self.completed.tolist()],
            "ops": 2 * self.calls,
            "wall_ms": self.wall_ms * share,
            "cpu_ms": self.cpu_ms * share,
        }
        valid = {**constant, "verdict": "valid"}
        linear = {**valid, "checker": "linearizability", "model": self.model, "algorithm": "batch"}
        return [
            from_columns(len(which), formed, {**valid, "checker": "well-formed"}),
            from_columns(len(self.owner), judged, linear),
        ]


class Clock:
    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Milliseconds of wall and of processor since it was made."""
        return (time.perf_counter() - self.wall) * 1e3, (time.process_time() - self.cpu) * 1e3
