# SPDX-License-Identifier: Apache-2.0
"""Latency and rate of any history as one HTML page: charts with its faults, and the figures of each operation."""

from __future__ import annotations

from collections.abc import Sequence

from results.fault_intervals import FaultInterval
from results.figures import clock
from results.history import Call
from results.report import bands, plots
from results.report.layout import render_template
from results.report.model import charts_of_ops
from results.report.tables import stats
from results.report.words import text


def history_page(
    name: str,
    verdict: str,
    reason: str,
    calls: Sequence[Call],
    faults: Sequence[FaultInterval],
    elements: Sequence[tuple[str, str]] = (),
) -> str:
    """The page. Times of calls and faults count from the first event, in ns. elements: figures of a set, with names."""
    ends = [call.start if call.end is None else call.end for call in calls]
    last = max([*ends, *(fault.end_ns or fault.start_ns for fault in faults)], default=0)
    on = plots.stage(faults, last)
    return render_template(
        "history.html.j2",
        name=text(name, 400),
        verdict=verdict,
        reason=text(reason, 800),
        patterns=bands.definitions(),
        charts=list(charts_of_ops(calls, on)),
        stats=stats(calls),
        elements=elements,
        faults=[
            (text(fault.label, 200), clock(fault.start_ns), "" if fault.end_ns is None else clock(fault.end_ns))
            for fault in faults
        ],
    )
