# SPDX-License-Identifier: Apache-2.0
"""The page with the summary of many runs (`results.trends`): three tables and two plots."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from markupsafe import Markup

from results.report.layout import render_template
from results.report.svg import legend, picture, polyline, round_ticks, tag, title
from results.report.words import text
from results.trends import Group, RunTrend, Trends
from results.verdict import Verdict

_WIDTH, _LEFT, _RIGHT = 1100.0, 300.0, 1084.0
_ROW = 20.0
MOST = 400
"""The largest number of runs in a plot: the last ones."""


def trends_page(trends: Trends, nonce: str = "") -> str:
    """The page as HTML, without external resources."""
    shown = list(trends.runs)[-MOST:]
    return render_template(
        "trends.html.j2",
        nonce=nonce,
        total=len(trends.runs),
        shown=len(shown),
        verdicts=[v.value for v in Verdict],
        groups=[(group, sum(counts.values()), [counts[v] for v in Verdict]) for group, counts in trends.groups.items()],
        faults=[
            {
                "fault": fault,
                "version": version,
                "runs": one.runs,
                "times": one.times,
                "ok": f"{one.ok / one.ops:.0%}" if one.ops else "-",
                "p50": f"{median(one.p50s):.1f}" if one.p50s else "-",
                "p99": f"{median(one.p99s):.1f}" if one.p99s else "-",
                "silence": f"{one.silence_s:.1f}",
            }
            for (version, fault), one in trends.faults.items()
        ],
        anomalies=[
            (
                name,
                seen.runs,
                seen.permitted,
                seen.first.when,
                text(seen.first.run, 80),
                seen.last.when,
                text(seen.last.run, 80),
            )
            for name, seen in trends.anomalies.items()
        ],
        verdict_plot=_verdict_plot(shown),
        silence_plot=_silence_plot(shown),
    )


def _x(number: int, count: int) -> float:
    return _LEFT + (number + 0.5) / max(count, 1) * (_RIGHT - _LEFT)


def _name(group: Group) -> str:
    return " ".join(word for word in (group.workload, group.nemesis, group.version) if word != "-") or "other histories"


def _verdict_plot(runs: Sequence[RunTrend]) -> Markup:
    """A row a group, a mark a run, from the oldest to the newest."""
    if not runs:
        return Markup("")
    groups = list(dict.fromkeys(run.group for run in runs))
    parts = []
    for number, group in enumerate(groups):
        y = 10 + _ROW * (number + 0.5)
        parts.append(tag("text", text(_name(group), 46), x=_LEFT - 8, y=y + 4, text_anchor="end"))
        parts.append(tag("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_="grid"))
    wide = max(2.0, min(10.0, (_RIGHT - _LEFT) / len(runs) - 1))
    for number, run in enumerate(runs):
        y = 10 + _ROW * (groups.index(run.group) + 0.5)
        what = f"{run.run}: {run.verdict.value}" + (f" ({', '.join(sorted(run.anomalies))})" if run.anomalies else "")
        mark = tag("rect", title(what), x=_x(number, len(runs)) - wide / 2, y=y - 6, width=wide, height=12)
        parts.append(tag("g", mark, class_=f"mark {run.verdict.value}"))
    height = 10 + _ROW * len(groups) + 8
    return picture(_WIDTH, height, "verdicts of the runs, the newest on the right", *parts)


def _silence_plot(runs: Sequence[RunTrend]) -> Markup:
    """For each fault a line: the longest silence under it, run by run."""
    faults = list(dict.fromkeys(felt["fault"] for run in runs for felt in run.felt))
    if not faults:
        return Markup("")
    top, bottom = 12.0, 220.0
    ticks = round_ticks(max(felt["silence_s"] for run in runs for felt in run.felt))
    parts = []
    for tick in ticks:
        y = bottom - tick / ticks[-1] * (bottom - top)
        parts.append(tag("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", f"{tick:g} s", x=_LEFT - 6, y=y + 4, text_anchor="end"))
    for number, fault in enumerate(faults):
        points = [
            (_x(at, len(runs)), bottom - felt["silence_s"] / ticks[-1] * (bottom - top), run, felt)
            for at, run in enumerate(runs)
            for felt in run.felt
            if felt["fault"] == fault
        ]
        line = polyline(((x, y) for x, y, _, _ in points), class_="line")
        dots = [
            tag("circle", title(f"{run.run}: {felt['silence_s']:g} s under {fault}"), cx=x, cy=y, r=2.5)
            for x, y, run, felt in points
        ]
        parts.append(tag("g", line, *dots, class_=f"series{number % 6}"))
    marks = [
        (tag("g", tag("circle", cx=0, cy=0, r=4), class_=f"series{number % 6}"), fault)
        for number, fault in enumerate(faults)
    ]
    parts.append(legend(marks, _LEFT, bottom + 24))
    return picture(_WIDTH, bottom + 36, "longest silence under each fault, run by run", *parts)
