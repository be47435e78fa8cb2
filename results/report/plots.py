# SPDX-License-Identifier: Apache-2.0
"""The charts over time: latency, rate, leaders and terms, log positions. Each function returns a Plot, or None without
data.

At most one point per small square of the picture is drawn. A run of a million operations gives a picture of some
thousand points that looks the same. Rare outcomes are never dropped.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from results.fault_intervals import FaultInterval
from results.figures import SECOND, clock, quantile
from results.history import Call
from results.machine import MachineSample
from results.op import OP_TYPES
from results.record import Observation
from results.report import svg
from results.report.bands import draw_bands
from results.report.svg import BAND_ROW, Frame, tag, title
from results.report.words import number
from results.visible import visible

OUTCOMES: tuple[str, ...] = OP_TYPES[1:]
POINTS = 9_000
"""The largest number of points of a scatter plot (about 20 bytes each)."""
QUANTILES = (0.5, 0.95, 0.99)
SHAPES = ("dot", "cross", "triangle", "square", "diamond", "plus")
ROLES = ("leader", "follower", "candidate", "starting", "silent")
_MACHINE: Mapping[str, Callable[[MachineSample], float | None]] = {
    "committed": lambda s: s.wait_ms,
    "end": lambda s: max(s.late_ms, 0.001),
    "pause": lambda s: s.pause_ms or None,
}
"""The lines of a machine: class of the line -> ms."""
CSV_ROWS = 10_000
"""The largest number of rows of a plot's data in a report."""
_SILENCE = 5 * SECOND
"""The last reported role of a node is drawn no longer than this after the report."""


@dataclass(frozen=True)
class Stage:
    """The common part of all charts of a run: the time they span and the faults behind them."""

    t0: int
    t1: int
    faults: Sequence[FaultInterval]

    def frame(self, height: float, legend: bool = True) -> Frame:
        """The area of a chart of so many px, with room for the faults' labels above it."""
        top = (24 if legend else 6) + BAND_ROW * svg.band_rows(self.faults, self.t1) + 4
        return Frame(self.t0, self.t1, top, top + height)

    def draw(self, frame: Frame, label: str, *parts: str) -> Markup:
        fault_intervals = draw_bands(self.faults, frame)
        return svg.picture(frame.width, frame.bottom + 24, label, fault_intervals, *parts)


Row = Sequence[str | float | int | None]
"""A row of a plot's data."""


@dataclass(frozen=True)
class Plot:
    """A picture and its data: columns with their units, and rows."""

    picture: Markup
    columns: Sequence[str]
    rows: Sequence[Row]

    @property
    def csv(self) -> str:
        """The data as CSV; of more than `CSV_ROWS` rows, every second, third, ... one."""
        step = -(-len(self.rows) // CSV_ROWS) or 1
        return "".join(",".join(map(_field, row)) + "\n" for row in [self.columns, *self.rows[::step]])

    @property
    def uri(self) -> str:
        """The CSV as the address of a link, so that a report stays one file."""
        return "data:text/csv;charset=utf-8," + quote(self.csv, safe=",.:_-")


def _field(value: str | float | int | None) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").removesuffix(".")
    text = "" if value is None else visible(str(value), keep="")
    # A spreadsheet reads a text that begins so as a formula.
    text = f"'{text}" if isinstance(value, str) and text.startswith(("=", "+", "-", "@")) else text
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"') else text


def _seconds(ns: int) -> float:
    return ns / SECOND


def stage(faults: Sequence[FaultInterval], last_ns: int) -> Stage:
    """The stage of a run whose last event was at `last_ns`."""
    return Stage(0, max(last_ns, 1), faults)


def latency(calls: Sequence[Call], on: Stage) -> Plot | None:
    """Every completed operation at the time of its invocation; log scale, colour = outcome, shape = f."""
    groups: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for call in calls:
        if call.end is not None:
            groups[call.outcome, call.invoke.f].append((call.start, (call.end - call.start) / 1e6))
    if not groups:
        return None
    frame = on.frame(260)
    scale = _LogScale.of((ms for group in groups.values() for _, ms in group), frame)
    fs = sorted({f for _, f in groups})
    placed = {
        which: [(frame.x(t), scale.y(ms)) for t, ms in group]
        for which, group in sorted(groups.items(), key=lambda g: OUTCOMES.index(g[0][0]))
    }
    kept = thinned(placed, POINTS)
    clouds = [_cloud(points, SHAPES[fs.index(f) % len(SHAPES)], outcome) for (outcome, f), points in kept.items()]
    value_of = {which: dict(zip(points, groups[which], strict=True)) for which, points in placed.items()}
    drawn = sorted((*value_of[which][point], *which) for which, points in kept.items() for point in points)
    marks = [(_mark("dot", outcome), outcome) for outcome in OUTCOMES]
    marks += [(_mark(SHAPES[i % len(SHAPES)], "plain"), f) for i, f in enumerate(fs)]
    shown = sum(len(p) for p in placed.values())
    picture = on.draw(
        frame,
        f"Latency of {number(shown)} operations over time, log scale, by outcome and kind of operation",
        frame.time_axis(),
        frame.value_axis(scale.ticks(), "latency"),
        *clouds,
        svg.legend(marks, frame.left, 14),
    )
    rows = [(_seconds(start), ms, outcome, f) for start, ms, outcome, f in drawn]
    return Plot(picture, ("invoked_s", "latency_ms", "outcome", "operation"), rows)


def quantiles(calls: Sequence[Call], on: Stage) -> Plot | None:
    """Latency of the acknowledged operations in windows of time: the quantiles 0.5, 0.95 and 0.99."""
    step = window(on.t1 - on.t0, 60)
    windows: dict[int, list[float]] = defaultdict(list)
    for call in calls:
        if call.outcome == "ok" and call.end is not None:
            windows[call.end // step].append((call.end - call.start) / 1e6)
    if not windows:
        return None
    frame = on.frame(180)
    scale = _LogScale.of((ms for group in windows.values() for ms in group), frame)
    sorted_windows = {at: sorted(group) for at, group in sorted(windows.items())}
    lines = []
    for i, q in enumerate(QUANTILES):
        for run in _runs(sorted_windows):
            points = [(frame.x(min((at + 0.5) * step, on.t1)), scale.y(quantile(sorted_windows[at], q))) for at in run]
            lines += [svg.polyline(points, class_=f"line q{i}"), _cloud(points, "dot", f"q{i}")]
    picture = on.draw(
        frame,
        "Quantiles 0.5, 0.95 and 0.99 of the latency of acknowledged operations over time, log scale",
        frame.time_axis(),
        frame.value_axis(scale.ticks(), "latency of ok"),
        *lines,
        svg.legend([(_stroke(f"line q{i}"), f"{q:g}") for i, q in enumerate(QUANTILES)], frame.left, 14),
    )
    rows = [
        (_seconds(at * step), _seconds(step), len(group), *(quantile(group, q) for q in QUANTILES))
        for at, group in sorted_windows.items()
    ]
    return Plot(picture, ("from_s", "window_s", "acknowledged", "p50_ms", "p95_ms", "p99_ms"), rows)


def rate(calls: Sequence[Call], on: Stage) -> Plot | None:
    """Completions per second, by outcome."""
    step = window(on.t1 - on.t0, 120)
    total = max(1, -(-(on.t1 - on.t0) // step))
    counts = {outcome: [0] * total for outcome in OUTCOMES}
    for call in calls:
        if call.end is not None:
            counts[call.outcome][min(call.end // step, total - 1)] += 1
    if not any(any(c) for c in counts.values()):
        return None
    frame = on.frame(160)
    # The last window is often cut short by the end of the run.
    widths = [min(step, on.t1 - i * step) / SECOND for i in range(total)]
    rates = {
        o: [n / max(w, step / SECOND / 10) for n, w in zip(c, widths, strict=True)] for o, c in counts.items() if any(c)
    }
    ticks = svg.round_ticks(max(max(r) for r in rates.values()))

    def y(value: float) -> float:
        return frame.bottom - value / ticks[-1] * (frame.bottom - frame.top)

    lines = [
        svg.polyline(
            (
                point
                for i, r in enumerate(found)
                for point in ((frame.x(i * step), y(r)), (frame.x(min((i + 1) * step, on.t1)), y(r)))
            ),
            class_=f"line {outcome}",
        )
        for outcome, found in rates.items()
    ]
    picture = on.draw(
        frame,
        "Operations completed per second over time, by outcome: ok, fail, info",
        frame.time_axis(),
        frame.value_axis([(y(t), f"{t:g}") for t in ticks], "ops per second"),
        *lines,
        svg.legend([(_stroke(f"line {o}"), o) for o in OUTCOMES], frame.left, 14),
    )
    rows = [
        (_seconds(i * step), w, *(rates[o][i] if o in rates else 0 for o in OUTCOMES)) for i, w in enumerate(widths)
    ]
    return Plot(picture, ("from_s", "window_s", *(f"{o}_per_s" for o in OUTCOMES)), rows)


def leaders(observations: Sequence[Observation], on: Stage) -> Plot | None:
    """The role that each node reported over time, the terms of the leaders in their bars."""
    if not observations:
        return None
    nodes = sorted({o.node for o in observations}, key=natural)
    row = 24
    frame = on.frame(row * len(nodes))
    parts = [frame.time_axis()]
    rows: list[Row] = []
    for i, node in enumerate(nodes):
        y = frame.top + i * row
        parts.append(tag("text", svg.fit(node, frame.left - 8), x=frame.left - 8, y=y + 16, text_anchor="end"))
        for start, end, role, term in spells([o for o in observations if o.node == node], on.t1):
            x1, x2 = frame.x(start), max(frame.x(end), frame.x(start) + 1)
            rows.append((node, _seconds(start), _seconds(end), role, term))
            words = f"{role}, term {term}" if term is not None else role
            number = "" if term is None else f"{term}"
            label = svg.fit(f"leader {number}".rstrip(), x2 - x1 - 6) or svg.fit(number, x2 - x1 + 10)
            parts.append(
                tag(
                    "g",
                    title(f"{node}: {words}, {clock(start)} to {clock(end)}"),
                    tag("rect", x=x1, y=y + 3, width=x2 - x1, height=row - 6),
                    tag("text", label, x=x1 + 4, y=y + 16) if role == "leader" else "",
                    class_=f"role {role if role in ROLES else 'silent'}",
                )
            )
    marks = [(tag("rect", x=-6, y=-5, width=12, height=10, class_=f"role {r}"), r) for r in ROLES]
    picture = on.draw(frame, "Role and term of each node over time", *parts, svg.legend(marks, frame.left, 14))
    return Plot(picture, ("node", "from_s", "to_s", "role", "term"), rows)


def positions(observations: Sequence[Observation], on: Stage) -> Plot | None:
    """Committed (line) and last (thin line) log index of each node over time."""
    series: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for o in observations:
        for kind, index in (("committed", o.committed), ("end", o.end)):
            if index is not None:
                series.setdefault(o.node, {}).setdefault(kind, []).append((o.time, index))
    return _node_lines(series, on, "log index", "Committed and last log index of each node over time")


def lag(observations: Sequence[Observation], on: Stage) -> Plot | None:
    """The number of entries from each node's committed index to the last entry that any node reported so far."""
    farthest = -1
    series: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for o in observations:
        farthest = max(farthest, o.end if o.end is not None else -1, o.committed if o.committed is not None else -1)
        if o.committed is not None:
            behind = max(0, farthest - o.committed)
            series.setdefault(o.node, {}).setdefault("committed", []).append((o.time, behind))
    return _node_lines(series, on, "entries behind", "How far each node's committed index lies behind, over time")


def machine(samples: Sequence[MachineSample], on: Stage) -> Plot | None:
    """The waits of servers' threads for a processor (line), the delays of timers (thin line), and the pauses of the
    garbage collectors (triangles): per node over time, log scale.
    """
    names = sorted({s.node for s in samples}, key=natural)
    series = {
        (name, kind): [(s.end, ms) for s in samples if s.node == name and (ms := value(s)) is not None]
        for name in names
        for kind, value in _MACHINE.items()
    }
    values = [ms for points in series.values() for _, ms in points]
    if not values:
        return None
    frame = on.frame(180)
    scale = _LogScale.of(values, frame)
    lines = []
    for (name, kind), points in series.items():
        placed = [(frame.x(min(t, on.t1)), scale.y(ms)) for t, ms in points if t <= on.t1]
        class_ = f"node{names.index(name) % 6}"
        if kind == "pause":
            lines.append(_cloud(placed, "triangle", f"plain {class_}"))
        else:
            lines.append(svg.polyline(placed, class_=f"line {class_} {kind}"))
    marks = [(_stroke(f"line node{i % 6}"), name) for i, name in enumerate(names)]
    picture = on.draw(
        frame,
        "Wait of the servers' threads for a processor, and lateness of timers, of each node over time, log scale",
        frame.time_axis(),
        frame.value_axis(scale.ticks(), "waited"),
        *lines,
        svg.legend(marks, frame.left, 14),
    )
    rows = [(_seconds(s.end), s.node, s.wait_ms, s.late_ms, s.pause_ms) for s in samples]
    return Plot(picture, ("until_s", "node", "wait_ms", "timer_late_ms", "gc_pause_ms"), rows)


def spells(observations: Sequence[Observation], until: int) -> list[tuple[int, int, str, int | None]]:
    """One node's observations as stretches `(from, to, role, term)`; a hole is a time of 5 s without a report."""
    found: list[tuple[int, int, str, int | None]] = []
    for i, seen in enumerate(observations):
        following = observations[i + 1].time if i + 1 < len(observations) else until
        end = min(following, seen.time + _SILENCE)
        if found and found[-1][1] == seen.time and found[-1][2:] == (seen.role, seen.term):
            found[-1] = (found[-1][0], end, seen.role, seen.term)
        else:
            found.append((seen.time, end, seen.role, seen.term))
    return found


def window(span: int, most: int) -> int:
    """A round length (ns) of windows, at least 1 s (or a tenth of a very short span), at most `most` in the span."""
    if span < 10 * SECOND:
        return max(1, span // 20)
    steps = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
    longest = -(-span // (3600 * SECOND * most)) * 3600
    return next((s for s in steps if span / (s * SECOND) <= most), longest) * SECOND


def thinned(
    groups: dict[tuple[str, str], list[tuple[float, float]]], most: int
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """At most about `most` points in all: one per square and group, with squares as small as possible."""
    side = 1.0
    while True:
        kept = {which: _one_per_square(points, side) for which, points in groups.items()}
        if sum(len(points) for points in kept.values()) <= most or side > 64:
            return kept
        side *= 1.3


def natural(name: str) -> tuple[str, int]:
    """A sort key that puts `n2` before `n10`."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1)


def _one_per_square(points: Iterable[tuple[float, float]], side: float) -> list[tuple[float, float]]:
    seen: dict[tuple[int, int], tuple[float, float]] = {}
    for x, y in points:
        seen.setdefault((int(x / side), int(y / side)), (x, y))
    return list(seen.values())


@dataclass(frozen=True)
class _LogScale:
    """Milliseconds on a log axis from `10**low` to `10**high`."""

    low: int
    high: int
    frame: Frame

    @staticmethod
    def of(values: Iterable[float], frame: Frame) -> _LogScale:
        """Whole decades around the values; a value under a microsecond counts as one."""
        kept = [max(v, 1e-3) for v in values]
        low = math.floor(math.log10(min(kept)))
        return _LogScale(low, max(math.ceil(math.log10(max(kept))), low + 1), frame)

    def y(self, ms: float) -> float:
        share = (math.log10(max(ms, 1e-3)) - self.low) / (self.high - self.low)
        return self.frame.bottom - share * (self.frame.bottom - self.frame.top)

    def ticks(self) -> list[tuple[float, str]]:
        return [(self.y(10.0**e), _ms(10.0**e)) for e in range(self.low, self.high + 1)]


def _ms(ms: float) -> str:
    if ms >= 1000:
        return f"{ms / 1000:g} s"
    return f"{ms:g} ms" if ms >= 1 else f"{ms * 1000:g} µs"


def _node_lines(series: dict[str, dict[str, list[tuple[int, float]]]], on: Stage, axis: str, label: str) -> Plot | None:
    values = [v for kinds in series.values() for points in kinds.values() for _, v in points]
    if not values:
        return None
    frame = on.frame(180)
    ticks = svg.round_ticks(max(*values, 1))

    def y(value: float) -> float:
        return frame.bottom - max(value, 0) / ticks[-1] * (frame.bottom - frame.top)

    names = sorted(series, key=natural)
    lines = []
    for i, node in enumerate(names):
        for kind, points in series[node].items():
            placed = [(frame.x(t), y(v)) for t, v in points]
            lines.append(svg.polyline(placed, class_=f"line node{i % 6} {kind}"))
    marks = [(_stroke(f"line node{i % 6}"), node) for i, node in enumerate(names)]
    picture = on.draw(
        frame,
        label,
        frame.time_axis(),
        frame.value_axis([(y(t), number(round(t)) if t >= 1 or t == 0 else f"{t:g}") for t in ticks], axis),
        *lines,
        svg.legend(marks, frame.left, 14),
    )
    rows = [(_seconds(t), node, kind, v) for node in names for kind, points in series[node].items() for t, v in points]
    return Plot(picture, ("time_s", "node", "index", axis.replace(" ", "_")), rows)


def _runs(windows: Iterable[int]) -> list[list[int]]:
    """Sorted numbers as runs without a hole: a line must not cross a time in which nothing was acknowledged."""
    runs: list[list[int]] = []
    for at in windows:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


_GLYPHS = {
    "dot": "h0",
    "square": "m-2-2h4v4h-4z",
    "cross": "m-2-2l4,4m0-4l-4,4",
    "plus": "m-2.5,0h5m-2.5-2.5v5",
    "triangle": "m0-2.6l2.5,4.5h-5z",
    "diamond": "m0-3l2.4,3l-2.4,3l-2.4-3z",
}


def _cloud(points: Iterable[tuple[float, float]], shape: str, class_: str) -> Markup:
    """Points as one path: a round line cap makes a line of no length a dot."""
    d = "".join(f"M{x:.1f},{y:.1f}{_GLYPHS[shape]}" for x, y in points)
    return tag("path", d=d, class_=f"pt {shape} {class_}") if d else Markup("")


def _mark(shape: str, class_: str) -> Markup:
    return _cloud([(0, 0)], shape, class_)


def _stroke(class_: str) -> Markup:
    return tag("line", x1=-6, x2=8, y1=0, y2=0, class_=class_)
