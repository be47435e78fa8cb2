# SPDX-License-Identifier: Apache-2.0
"""The effect of each fault on clients: successful operations, latency, and the longest time without acknowledgement."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND, quantile
from results.history import Call, History
from results.op import OK

_MS = 1_000_000

CALM = "(no fault)"
"""The name of the time without a fault."""


@dataclass(frozen=True, slots=True)
class Impact:
    """The effect on clients of all strikes of one kind of fault in a run.

    times     the number of strikes. seconds: their total duration.
    ops, ok   calls of clients that began meanwhile, and those of them that were acknowledged.
    p50_ms, p99_ms   latency of the acknowledged ones; None without any.
    silence_s   the longest time within a strike in which nothing was acknowledged.
    """

    fault: str
    times: int
    seconds: float
    ops: int
    ok: int
    p50_ms: float | None
    p99_ms: float | None
    silence_s: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def impacts(history: History) -> list[Impact]:
    """The impacts by fault in order of its first strike, and then that of the time without faults."""
    calls = [call for call in history.clients.calls if call.invoke.extra.get("phase", "main") != "final"]
    if not calls:
        return []
    end = max(call.end or call.start for call in calls)
    shown = fault_intervals(history)
    found = []
    for fault in dict.fromkeys(interval.fault for interval in shown):
        own = [(interval.start_ns, min(end, interval.end_ns or end)) for interval in shown if interval.fault == fault]
        found.append(_felt(fault, [(a, b) for a, b in own if b > a], calls))
    found.append(_felt(CALM, _gaps(shown, min(call.start for call in calls), end), calls))
    return [one for one in found if one.times]


def _felt(fault: str, spans: Sequence[tuple[int, int]], calls: Sequence[Call]) -> Impact:
    starts = [call.start for call in calls]
    chosen: list[Call] = []
    silence = 0
    acks = sorted(call.end for call in calls if call.outcome == OK and call.end is not None)
    for begin, end in spans:
        chosen += calls[bisect_left(starts, begin) : bisect_left(starts, end)]
        within = [begin, *acks[bisect_left(acks, begin) : bisect_right(acks, end)], end]
        silence = max(silence, *(later - earlier for earlier, later in pairwise(within)))
    took = sorted((call.end - call.start) / _MS for call in chosen if call.outcome == OK and call.end is not None)
    return Impact(
        fault,
        len(spans),
        round(sum(end - begin for begin, end in spans) / SECOND, 3),
        len(chosen),
        len(took),
        _quantile(took, 0.5),
        _quantile(took, 0.99),
        round(silence / SECOND, 3),
    )


def _gaps(shown: Sequence[FaultInterval], begin: int, end: int) -> list[tuple[int, int]]:
    """The times without a fault."""
    gaps, at = [], begin
    for interval in sorted(shown, key=lambda interval: interval.start_ns):
        if interval.start_ns > at:
            gaps.append((at, min(interval.start_ns, end)))
        at = max(at, end if interval.end_ns is None else interval.end_ns)
    return [(a, b) for a, b in [*gaps, (at, end)] if b > a]


def _quantile(took: Sequence[float], q: float) -> float | None:
    return round(quantile(took, q), 3) if took else None
