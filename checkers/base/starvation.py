# SPDX-License-Identifier: Apache-2.0
"""A shortage of processor time is no finding: verdicts about time on a machine that did not give the servers enough.

An anomaly of time (`Anomaly.limit_s`) reports that something lasted longer than a limit. Time without a processor for
the servers does not count: the rest of the anomaly's window must reach the limit. If it does not, the cause is unknown,
and so is the verdict. Anomalies of content (a lost message, a wrong read) are never excused.

Time that a fault of the run took from servers by a quota (`Effect.quota`) is no shortage of the machine: while it
lasts, the waits of its servers do not count. Those of other servers still do, and so do timers and stolen time.

The verdict is also unknown if a node was frozen or removed from outside (`environment["lost_nodes"]`).

`results.machine` has the measurements. The limits below are far from both cases: on an idle machine a thread waits less
than 0.5 ms for a processor; beside 40 busy processes on two cores, without a weight for the cluster, tens of
milliseconds (docs/anomalies.md has the figures).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from results.fault_intervals import fault_intervals
from results.figures import SECOND
from results.machine import CONTROL, MachineSample
from results.record import RunRecord
from results.strikes import Effect
from results.verdict import Anomaly, CheckResult, Verdict

WAIT_MS: Final = 5.0
"""A shortage: a thread waits so long for a processor, on average. An answer takes tens of such waits."""

LATE_MS: Final = 1000.0
"""A shortage: a timer of 200 ms comes so late. Heartbeats and time-outs of a second or two then stop working."""

PAUSE_MS: Final = 1000.0
"""A shortage: so long a pause. With such a small heap, a garbage collector needs some milliseconds of a processor."""

STEAL: Final = 0.5
"""A shortage: a hypervisor takes half of the processors."""


_LOST: Final = "but at the end nodes were missing without a fault of this run: it is unknown since when"


@dataclass(frozen=True)
class _Spell:
    """A time (ns) in which a machine was short of a processor, and the measurement that shows it."""

    start: int
    end: int
    why: str


def apply_doubt(result: CheckResult, run: RunRecord) -> CheckResult:
    """The result of any checker after the machine's measurements: `invalid` only by doubtful anomalies is `unknown`."""
    lost = "lost_nodes" in run.environment
    if result.verdict != Verdict.INVALID or not (run.machine or lost):
        return result
    samples = unforced(run)
    marked = [
        replace(a, doubt=_LOST if lost else _doubt(a, samples)) if _is_of_time(a) else a for a in result.anomalies
    ]
    doubts = [a.doubt for a in marked if a.doubt is not None]
    if not doubts:
        return result
    if any(a.legal is None and a.doubt is None for a in marked):
        return replace(result, anomalies=marked)
    return replace(result, verdict=Verdict.UNKNOWN, anomalies=marked, reason=f"{result.reason}; {doubts[0]}")


def unforced(run: RunRecord) -> Sequence[MachineSample]:
    """The samples of a run without the waits of servers under a quota of its own faults."""
    forced = [
        (effect, strike.start_ns, strike.end_ns)
        for strike in fault_intervals(run.history)
        for effect in strike.effects
        if effect.quota
    ]
    return [_without(sample, forced) for sample in run.machine] if forced else run.machine


def _without(sample: MachineSample, forced: Sequence[tuple[Effect, int, int | None]]) -> MachineSample:
    mine = [
        effect
        for effect, start, end in forced
        if effect.node == sample.node and start < sample.end and (end is None or sample.start < end)
    ]
    if not mine:
        return sample
    slowed = {kind for effect in mine for kind in effect.servers}
    left = [wait for kind, wait in sample.waits.items() if kind not in slowed]
    everybody = any(not effect.servers for effect in mine)
    # A collector under a quota pauses for longer; the log does not show whose pause it was.
    return replace(sample, wait_ms=None if everybody or not left else max(left), pause_ms=0.0)


def shortage_s(samples: Sequence[MachineSample], start: int, end: int, node: str | None = None) -> float:
    """The seconds from `start` to `end` (ns) in which the servers, or the clients, were short of a processor.

    node  the server's node that matters; None: a majority of the nodes must have been short.
    """
    return sum(b - a for a, b, _ in _short(samples, start, end, node)) / SECOND


def short_times(run: RunRecord) -> list[tuple[int, int]]:
    """(from, to) in ns: the times of a run in which the servers or the clients were short of a processor."""
    samples = unforced(run)
    if not samples:
        return []
    start, end = min(s.start for s in samples), max(s.end for s in samples)
    return [(a, b) for a, b, _ in _short(samples, start, end, None)]


def describe(samples: Sequence[MachineSample]) -> str:
    """Resources of the machines over these samples, in one line."""
    waits = [s.wait_ms for s in samples if s.wait_ms is not None]
    if not samples:
        return "not measured"
    start, end = min(s.start for s in samples), max(s.end for s in samples)
    mean = f"a server's thread waited {sum(waits) / len(waits):.2f} ms for a processor on average; " if waits else ""
    short = shortage_s(samples, start, end)
    return f"{mean}shortage for {short:.0f} of {(end - start) / SECOND:.0f} s"


def _is_of_time(anomaly: Anomaly) -> bool:
    return anomaly.limit_s is not None and anomaly.window is not None and anomaly.legal is None


def _doubt(anomaly: Anomaly, samples: Sequence[MachineSample]) -> str | None:
    """The reason why the machine may have caused an anomaly of time; None if the anomaly stands."""
    assert anomaly.window is not None
    assert anomaly.limit_s is not None
    start, end = anomaly.window
    node = anomaly.details.get("node")
    spells = list(_short(samples, start, end, node if isinstance(node, str) else None))
    short = sum(b - a for a, b, _ in spells)
    if not short or end - start - short >= anomaly.limit_s * SECOND:
        return None
    why = max(spells, key=lambda spell: spell[1] - spell[0])[2]
    return (
        f"but for {short / SECOND:.0f} of these {(end - start) / SECOND:.0f} s this machine did not give the servers "
        f"enough processor time ({why}): the cause is unknown"
    )


def _short(samples: Sequence[MachineSample], start: int, end: int, node: str | None) -> Iterator[tuple[int, int, str]]:
    """Yields the parts of the window in which the control program, the node, or a majority of the nodes was short."""
    spells: dict[str, list[_Spell]] = {}
    for sample in samples:
        if sample.end > start and sample.start < end:
            mine = spells.setdefault(sample.node, [])
            why = _why(sample)
            if why is not None:
                mine.append(_Spell(max(sample.start, start), min(sample.end, end), why))
    nodes = [name for name in spells if name != CONTROL]
    edges = sorted({t for of in spells.values() for spell in of for t in (spell.start, spell.end)})
    # (Of a node's spells in order of start, the first that has not ended covers the time if any of them does.)
    left = {name: deque(sorted(of, key=lambda spell: spell.start)) for name, of in spells.items()}
    for a, b in pairwise(edges):
        for of in left.values():
            while of and of[0].end <= a:
                of.popleft()
        now = {name: of[0] for name, of in left.items() if of and of[0].start <= a}
        among = [name for name in nodes if name in now]
        if CONTROL in now:
            yield a, b, f"control program: {now[CONTROL].why}"
        elif node in now:
            yield a, b, f"{node}: {now[node].why}"
        elif 2 * len(among) > len(nodes):
            yield a, b, f"{among[0]}: {now[among[0]].why}"


def _why(sample: MachineSample) -> str | None:
    """The measurement by which a machine was short of a processor, in words; None: it was not."""
    found: Iterable[tuple[bool, str]] = (
        (sample.wait_ms is not None and sample.wait_ms >= WAIT_MS, f"threads waited {sample.wait_ms or 0:.0f} ms"),
        (sample.late_ms >= LATE_MS, f"a timer was {sample.late_ms:.0f} ms late"),
        (sample.pause_ms >= PAUSE_MS, f"the garbage collector took {sample.pause_ms:.0f} ms"),
        (
            sample.steal is not None and sample.steal >= STEAL,
            f"{sample.steal or 0:.0%} of the processor time was stolen",
        ),
    )
    return next((why for is_so, why in found if is_so), None)
