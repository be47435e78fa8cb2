# SPDX-License-Identifier: Apache-2.0
"""The course of a run in one independent picture: rate of the clients, leaders, faults, and times of anomalies.

For pages outside a report (`docs/findings`), so it has its own style.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from markupsafe import Markup

from results.fault_intervals import fault_intervals
from results.figures import clock
from results.history import History
from results.record import RunRecord
from results.report import bands, plots, svg
from results.report.layout import render_template
from results.report.svg import tag
from results.report.words import text
from results.verdict import Anomaly

MOST: Final = 6
"""The largest number of marked anomalies."""

_WIDTH: Final = 1100
_HEADING: Final = 100
"""Characters in a line of the heading."""
_ROW: Final = 20
_OWN: Final = """
svg .head { fill: var(--ink); font-size: 15px; font-weight: 600; }
svg .said { fill: var(--ink); }
svg .paper { fill: var(--page); }
"""


def course(record: RunRecord, anomalies: Sequence[Anomaly], heading: str, line: str = "") -> str:
    """The picture as an independent file. anomalies: marked at their times, the first `MOST`. line: below it."""
    faults = fault_intervals(record.history)
    last = record.history[-1].time if len(record.history) else 0
    on = plots.stage(faults, last)
    calls = record.history.clients.calls
    drawn = [plots.rate(calls, on), plots.leaders(record.observations, on)]
    panels = [*(plot.picture for plot in drawn if plot), marked(record.history, anomalies, on)]
    parts: list[str] = []
    y = 12.0
    for title in wrap(text(heading, 200), _HEADING):
        parts.append(tag("text", title, x=8, y=y + 8, class_="head"))
        y += 18
    for panel in panels:
        if panel is not None:
            parts.append(tag("g", panel, transform=f"translate(0 {y:.0f})"))
            y += _height(panel)
    kinds = bands.shown(faults)
    for i, kind in enumerate(kinds):
        parts.append(tag("g", bands.swatch(kind), transform=f"translate({64 + 150 * i} {y:.0f})"))
        parts.append(tag("text", bands.KINDS[kind], x=64 + 150 * i + 32, y=y + 11))
    y += 24 if kinds else 4
    for said in _lines(line):
        parts.append(tag("text", said, x=64, y=y + 10, class_="said"))
        y += 16
    paper = tag("rect", x=0, y=0, width=_WIDTH, height=y + 8, class_="paper")
    style, patterns = tag("style", Markup(_style())), tag("defs", bands.definitions())
    return str(svg.picture(_WIDTH, y + 8, heading, style, patterns, paper, *parts)) + "\n"


def marked(history: History, anomalies: Sequence[Anomaly], on: plots.Stage) -> Markup | None:
    """A row for each anomaly: its name, and a bar over its time."""
    shown = [(a, span) for a in anomalies if (span := _span(history, a)) is not None][:MOST]
    if not shown:
        return None
    frame = svg.Frame(on.t0, on.t1, 4, 4 + _ROW * len(shown))
    parts = [frame.time_axis()]
    for i, (anomaly, (start, end)) in enumerate(shown):
        y = frame.top + _ROW * (i + 0.5)
        x1, x2 = frame.x(start), frame.x(min(end, on.t1))
        parts.append(tag("line", x1=x1, x2=max(x2, x1 + 1), y1=y, y2=y, class_="mark"))
        label = f"{anomaly.name}, {clock(start)}" + (f" to {clock(end)}" if end > start else "")
        width = 8 + len(label) * svg.LABEL_PX * 1.25  # the letters are bold
        anchor, x, lift = "start", x2 + 8, -4.0
        if x2 + width > frame.right:
            anchor, x = "end", x1 - 8
            if x1 < width:  # it has no room beside the line
                anchor, x, lift = "start", x1, 5.0
        parts.append(tag("text", label, x=x, y=y - lift, text_anchor=anchor, class_="named"))
    return svg.picture(frame.width, frame.bottom + 24, "When the anomalies were", *parts)


def _span(history: History, anomaly: Anomaly) -> tuple[int, int] | None:
    """The time (from, to) of an anomaly: its window, or the times of its ops."""
    if anomaly.window is not None:
        return anomaly.window
    proof = set(anomaly.ops)
    times = [op.time for op in history if op.index in proof] if proof else []
    return (min(times), max(times)) if times else None


def _height(panel: Markup) -> float:
    found = re.search(r'height="([0-9.]+)"', panel)
    assert found is not None
    return float(found.group(1))


def _lines(line: str, room: int = 165) -> Iterator[str]:
    for start in range(0, min(len(line), 2 * room), room):
        yield text(line[start : start + room], room)


def _style() -> str:
    """The parts of the report's style for colours and for the inside of a picture."""
    whole = render_template("style.css.j2")
    colours = whole[: whole.index("* { box-sizing")]
    inside = re.findall(r"^svg (?!\.plot).*$", whole, re.MULTILINE)
    return "\n".join([colours, *inside, _OWN])
