# SPDX-License-Identifier: Apache-2.0
"""`harness check --plots`: latency and rate of a history from any program, with its faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from checkers.linearizability.evidence.fault_windows import fault_windows
from harness.check.report import CheckReport
from harness.check.set_latencies import set_latencies
from results.fault_intervals import FaultInterval
from results.history import History

NO_TIMES: Final = "no plots: the events have no times"
_FAULTS: Final = 500
"""Faults that are drawn."""


def with_plots(found: CheckReport, history: History) -> CheckReport:
    """The report with its page, or with a note that there is nothing to plot."""
    if not len(history) or all(op.time == op.index for op in history):
        return replace(found, notes=[*found.notes, NO_TIMES])
    # Imported here: pages take longer to load than a small history takes to check.
    from results.report.history_page import history_page

    first = history[0].time
    moved = History([replace(op, time=op.time - first) for op in history])
    faults = []
    for number, (label, began, ended) in enumerate(fault_windows(moved.nemesis.calls)[:_FAULTS], 1):
        last = None if ended is None else ended.completion or ended.invoke
        faults.append(FaultInterval(label, number, began.start, None if last is None else last.time))
    calls = moved.clients.calls
    elements = set_latencies(calls)
    rows = elements.rows() if elements is not None else ()
    page = history_page(found.file, found.verdict.value, found.reason, calls, faults, rows)
    return replace(found, plots=page)
