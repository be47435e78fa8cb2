"""Threads of servers that never wait: a loop without a pause, which takes a processor from all others.

The measurement is `BusyThread.runnable` (`results.machine`): the share of the time in which a thread ran, or could
have run if there had been a processor. It does not depend on how many processors the machine has. A thread that works
waits for its next work now and then, also under load; one that spins never does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from results.figures import SECOND
from results.machine import BusyThread, MachineSample
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

RUNNABLE: Final = 0.95
"""Of the time. The rest are the limits of a measurement every two seconds."""

RAN: Final = 0.2
"""Where every processor is taken, a thread with little work is nearly always waiting for one: that is no spin."""

LONG_S: Final = 20.0
"""The least time without an interruption."""

_VIRTUAL_MACHINE: Final = re.compile(r"C[12]_CompilerThre|GC_Thread|G1_|VM_|Sweeper|java$|Signal_Dispatc")
"""Threads of the JVM itself: they compile, and collect garbage."""


class Spinning:
    """`invalid` for a thread of a server that spun for `LONG_S` or longer."""

    name = "threads"

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """Whether threads were measured."""
        return any(sample.threads for sample in run.machine)

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `longest_s`, of any thread that was always runnable."""
        spells = sorted(_spells(run.machine), key=lambda spell: spell[2] - spell[3])
        longest = (spells[0][3] - spells[0][2]) / SECOND if spells else 0.0
        anomalies = [
            Anomaly(
                "spinning-thread",
                f"{node}: {thread.name} of the {thread.server} never waited for {(end - start) / SECOND:.0f} s",
                window=(start, end),
                details={"node": node, "server": thread.server, "thread": thread.name},
            )
            for node, thread, start, end in spells
            if end - start >= LONG_S * SECOND
        ]
        stats = {"longest_s": round(longest, 1)}
        if not anomalies:
            reason = f"every thread of a server waited at least once in {LONG_S:.0f} s"
            return CheckResult(self.name, Verdict.VALID, reason, stats=stats)
        reason = f"{len(anomalies)} threads of servers that do not wait"
        return CheckResult(self.name, Verdict.INVALID, reason, anomalies, stats)


def _spells(samples: Sequence[MachineSample]) -> Iterator[tuple[str, BusyThread, int, int]]:
    """The longest time of each thread in which it was runnable in every sample: (node, thread, start, end)."""
    now: dict[tuple[str, str, int], tuple[int, int]] = {}
    longest: dict[tuple[str, str, int], tuple[str, BusyThread, int, int]] = {}
    for sample in samples:
        for thread in sample.threads:
            key = sample.node, thread.server, thread.id
            if thread.runnable < RUNNABLE or thread.ran < RAN or _VIRTUAL_MACHINE.match(thread.name):
                now.pop(key, None)
                continue
            start, end = now.get(key, (sample.start, sample.start))
            if end != sample.start:  # it was not among the busiest in between
                start = sample.start
            now[key] = start, sample.end
            best = longest.get(key)
            if best is None or sample.end - start > best[3] - best[2]:
                longest[key] = sample.node, thread, start, sample.end
    yield from longest.values()
