# SPDX-License-Identifier: Apache-2.0
"""Threads of servers that never wait: a loop without a pause, which takes a processor from all others.

The measurement is `BusyThread.runnable` (`results.machine`): the share of the time in which a thread ran, or could
have run if there had been a processor. It does not depend on how many processors the machine has. A thread that works
waits for its next work now and then, also under load; one that spins never does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from checkers.base.legality import conclude
from results.figures import SECOND
from results.machine import BusyThread, MachineSample
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

RUNNABLE: Final = 0.9
"""The share of the time. Measurements come late, and a spin may pause now and then."""

RAN: Final = 0.1
"""The share of the time that a spin really runs. If every processor is busy, a thread with little work often waits for
one, too: that is no spin. Such threads ran for 0.002 of the time, one that spins beside four others on two cores for
0.13 to 0.7.
"""

LONG_S: Final = 20.0
"""The shortest time without an interruption."""

_VIRTUAL_MACHINE: Final = re.compile(r"C[12]_CompilerThre|GC_Thread|G1_|VM_|Sweeper|java$|Signal_Dispatc")
"""Threads of the JVM itself: they compile, and collect garbage."""


class Spinning:
    """`invalid` for a thread of a server that spun for `LONG_S` or longer."""

    name = "threads"
    order = 30

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """True if threads were measured."""
        return any(sample.threads for sample in run.machine)

    def check(self, run: RunRecord) -> CheckResult:
        """The anomalies, the longest first."""
        spells = sorted(_spells(run.machine), key=lambda spell: spell[2] - spell[3])
        anomalies = [
            Anomaly(
                "spinning-thread",
                f"{node}: {thread.name} of the {thread.server} never waited "
                f"from {start / SECOND:.0f} to {end / SECOND:.0f} s",
                window=(start, end),
                details={"node": node, "server": thread.server, "thread": thread.name},
            )
            for node, thread, start, end in spells
        ]
        invalid = f"{len(anomalies)} threads of servers never wait"
        return conclude(self.name, run, anomalies, {}, "every thread of a server waits now and then", invalid=invalid)


def _spells(samples: Sequence[MachineSample]) -> Iterator[tuple[str, BusyThread, int, int]]:
    """Yields the time of each thread in which it never waited, from first to last: (node, thread, start, end)."""
    series: dict[tuple[str, str, int], list[tuple[MachineSample, BusyThread]]] = {}
    for sample in samples:
        for thread in sample.threads:
            if not _VIRTUAL_MACHINE.match(thread.name):
                series.setdefault((sample.node, thread.server, thread.id), []).append((sample, thread))
    for (node, _, _), seen in series.items():
        windows = list(_windows(seen))
        if windows:
            yield node, seen[0][1], windows[0][0], windows[-1][1]


def _windows(seen: Sequence[tuple[MachineSample, BusyThread]]) -> Iterator[tuple[int, int]]:
    """Yields windows of at least `LONG_S`, without a gap, in which a thread was runnable nearly all the time."""
    first = 0
    span = ran = runnable = 0.0
    for i, (sample, thread) in enumerate(seen):
        if i and seen[i - 1][0].end != sample.start:  # it was not among the busiest in between
            first, span, ran, runnable = i, 0.0, 0.0, 0.0
        length = sample.end - sample.start
        span, ran, runnable = span + length, ran + thread.ran * length, runnable + thread.runnable * length
        while span - (dropped := seen[first][0].end - seen[first][0].start) >= LONG_S * SECOND:
            span, ran = span - dropped, ran - seen[first][1].ran * dropped
            runnable -= seen[first][1].runnable * dropped
            first += 1
        if span >= LONG_S * SECOND and runnable >= RUNNABLE * span and ran >= RAN * span:
            yield seen[first][0].start, sample.end
