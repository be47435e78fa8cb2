# SPDX-License-Identifier: Apache-2.0
"""The operations around an anomaly: processes as lanes, operations as bars, faults as shaded intervals.

The time axis is not linear: an interval without events is drawn short, and one with many events is drawn wide. So ops
of a millisecond and time-outs of four seconds fit into one picture. The order of events is exact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup

from results.fault_intervals import FaultInterval, lanes
from results.history import Call
from results.report import svg
from results.report.bands import draw_band
from results.report.svg import tag, title
from results.report.words import call_text, count, number, precise, text

MOST = 150
"""The largest number of operations in a timeline."""
_ROW = 30
_LEFT = 92


@dataclass(frozen=True)
class TimelineSlice:
    """The calls chosen for a picture, in order of invocation.

    core      indices of the invocations that belong to the anomaly's proof.
    cuts      `(from, to, n)`: between these times (ns) n calls were left out.
    """

    calls: Sequence[Call]
    core: frozenset[int]
    cuts: Sequence[tuple[int, int, int]]

    @property
    def start(self) -> int:
        return min(c.start for c in self.calls)

    @property
    def end(self) -> int:
        return max(max(c.start, c.end if c.end is not None else c.start) for c in self.calls)


def choose(
    calls: Sequence[Call], ops: Collection[int], window: tuple[int, int] | None, most: int = MOST
) -> TimelineSlice:
    """The ops of the core (`ops`: indices), and of the others those nearest to them in the order of the history.

    `calls` are the candidates (of one key, say). Without a core, the ops in the window, from its start on.
    At most `most`, and fewer around a small core, so that it is visible at once.
    """
    core = {i for i, c in enumerate(calls) if c.invoke.index in ops or (c.completion and c.completion.index in ops)}
    if len(core) > most:
        core = set(sorted(core)[:most])
    low, high = window or (0, calls[-1].start if calls else 0)
    if core:
        low = min(low if window else calls[min(core)].start, *(calls[i].start for i in core))
        high = max(high if window else 0, *(calls[i].end or calls[i].start for i in core))
        margin = max(high - low, 1) // 4
        low, high = low - margin, high + margin
    inside = [i for i, c in enumerate(calls) if c.start <= high and (c.end is None or c.end >= low)]
    if len(inside) < 8 and core:
        inside = sorted({i + d for i in core for d in range(-4, 5) if 0 <= i + d < len(calls)} | set(inside))
    anchors = sorted(core)
    others = [i for i in inside if i not in core]
    if anchors:
        others.sort(key=lambda i: _distance(anchors, i))
    room = min(most, 36 + 5 * len(core)) if core else most // 2
    chosen = sorted(core.union(others[: room - len(core)]))
    indices = frozenset(calls[i].invoke.index for i in core)
    return TimelineSlice([calls[i] for i in chosen], indices, list(_cuts(calls, sorted(core.union(inside)), chosen)))


def _cuts(calls: Sequence[Call], inside: Sequence[int], chosen: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yields (from, to, n) for each two neighbours of the chosen calls with n calls of the window between them."""
    for a, b in pairwise(chosen):
        n = bisect_left(inside, b) - bisect_right(inside, a)
        if n:
            yield calls[a].start, calls[b].start, n


def draw(scene: TimelineSlice, faults: Sequence[FaultInterval]) -> Markup:
    """The picture."""
    calls, rows = scene.calls, _lanes(scene.calls)
    shown = [b for b in faults if b.covers(scene.start, scene.end)]
    bend = _Bend.around(scene)
    depth = max(rows.values()) + 1
    top = 8 + svg.BAND_ROW * (max(lanes(shown, scene.end), default=-1) + 1)
    bottom = top + depth * _ROW + 6
    width = bend.right + 24
    parts: list[str] = [
        _axis(bend, top, bottom),
        _faults(shown, bend, top, bottom),
        _gaps(scene, bend, top, bottom),
    ]
    starts: dict[int, list[float]] = {}
    for call in calls:
        starts.setdefault(rows[call.invoke.index], []).append(bend.x(call.start))
    for lane in range(depth):
        here = dict.fromkeys(str(c.invoke.process) for c in calls if rows[c.invoke.index] == lane)
        y = top + lane * _ROW
        label = text(("process " if len(here) == 1 else "") + " ".join(here), 13)
        parts.append(tag("text", title("processes " + " ".join(here)), label, x=8, y=y + 21, class_="lane"))
        parts.append(tag("line", x1=_LEFT, x2=bend.right, y1=y + _ROW, y2=y + _ROW, class_="grid"))
    for call in calls:
        lane = rows[call.invoke.index]
        later = [x for x in starts[lane] if x > bend.x(call.start) + 0.5]
        room = (min(later) if later else bend.right) - bend.x(call.start)
        parts.append(_bar(call, bend, top + lane * _ROW, room, call.invoke.index in scene.core, later == []))
    label = (
        f"Timeline of {count(len(calls), 'operation')} by process, {precise(scene.start)} to {precise(scene.end)}; "
        f"{count(len(scene.core), 'operation')} of the anomaly highlighted; the table beside it has the same data"
    )
    return svg.picture(width, bottom + (36 if scene.cuts else 22), label, *parts, class_="timeline")


@dataclass(frozen=True)
class _Bend:
    """Times (ns, sorted) and their places in the picture (px); other times are in proportion between them."""

    times: Sequence[int]
    places: Sequence[float]

    @staticmethod
    def around(scene: TimelineSlice) -> _Bend:
        times = sorted({t for c in scene.calls for t in (c.start, c.end) if t is not None})
        gaps = [b - a for a, b in pairwise(times)]
        usual = sorted(gaps)[len(gaps) // 2] if gaps else 1
        weights = [min(max(gap / max(usual, 1), 0.6), 5.0) for gap in gaps]
        width = min(max(len(times) * 11, 940), 3000)
        unit = width / max(sum(weights), 1e-9)
        places = [_LEFT + 10.0]
        for weight in weights:
            places.append(places[-1] + weight * unit)
        return _Bend(times, places)

    @property
    def right(self) -> float:
        return max(self.places[-1], _LEFT + 940.0) + 14

    def x(self, ns: int) -> float:
        """The place of a time in the picture (px); a time outside is at the edge."""
        if ns < self.times[0]:
            return float(_LEFT)
        if ns > self.times[-1]:
            return self.right
        at = min(bisect_right(self.times, ns), len(self.times) - 1)
        t1, t2 = self.times[at - 1], self.times[at]
        share = (ns - t1) / (t2 - t1) if at and t2 > t1 else 0.0
        return self.places[at - 1] + share * (self.places[at] - self.places[at - 1]) if at else self.places[0]


def _lanes(calls: Sequence[Call]) -> dict[int, int]:
    """Invocation index -> lane, one per process. A lane is reused only after an `info`, which ends its process."""
    spans: dict[int, tuple[int, int]] = {}
    for call in calls:
        end = call.end if call.end is not None and call.outcome == "info" else 1 << 62
        start, _ = spans.get(call.invoke.process, (call.start, 0))
        spans[call.invoke.process] = (start, end)
    free: list[int] = []
    lane_of: dict[int, int] = {}
    for process, (start, end) in sorted(spans.items(), key=lambda s: (s[1][0], s[0])):
        lane = next((i for i, until in enumerate(free) if until < start), len(free))
        free[lane : lane + 1] = [end]
        lane_of[process] = lane
    return {call.invoke.index: lane_of[call.invoke.process] for call in calls}


def _distance(anchors: Sequence[int], i: int) -> int:
    at = bisect_right(anchors, i)
    return min(abs(a - i) for a in anchors[max(0, at - 1) : at + 1])


def _bar(call: Call, bend: _Bend, y: float, room: float, core: bool, last: bool) -> Markup:
    x1 = bend.x(call.start)
    x2 = max(bend.x(call.end), x1 + 3) if call.end is not None else bend.right
    label = call_text(call)
    done = call.completion
    known = "there was no answer" if done is None else f"{done.type} at {precise(done.time)}"
    node = call.invoke.extra.get("node") or (done.extra.get("node") if done else None)
    hover = [
        f"{label}  (op {call.invoke.index}, process {call.invoke.process}"
        + (f", node {text(node, 40)})" if node else ")"),
        f"invoked at {precise(call.start)}, {known}",
        *([text(done.error)] if done is not None and done.error else []),
    ]
    beside = x2 - x1 < 14
    place = x2 + 3 if beside else x1 + 4
    shown = _label(call, label, x1 + room - place - 2, core)
    fade = ""
    if call.outcome == "info":
        # It may still take effect at any later time: the bar fades out to the right and has no end.
        reach = min(x1 + room, x2 + 160) if call.end is not None else x2
        fade = tag("rect", x=x2 - 1, y=y + 5, width=max(reach - x2, 8), height=20, class_="fade")
    return tag(
        "g",
        title("\n".join(hover)),
        fade,
        tag("rect", x=x1, y=y + 5, width=x2 - x1, height=20, rx=2),
        tag("text", shown, x=place, y=y + 19) if shown else "",
        class_=f"bar {call.outcome}{' core' if core else ''}",
    )


def _label(call: Call, label: str, room: float, core: bool) -> str:
    """The longest label of the call that fits: with its index (in a core), with its key, without it, or cut."""
    bare = call_text(Call(replace(call.invoke, key=None), call.completion and replace(call.completion, key=None)))
    bold = 1.12 if core else 1.0
    ways = [f"{call.invoke.index}: {label}"] if core else []
    for way in [*ways, label, bare]:
        if len(way) * svg.LABEL_PX * bold <= room:
            return way
    return svg.fit(bare, room / bold)


def _axis(bend: _Bend, top: float, bottom: float) -> Markup:
    """The axis with the times of events, as many as fit: the scale is not even."""
    parts = []
    last = -1e9
    for ns, x in zip(bend.times, bend.places, strict=True):
        if x - last >= 90:
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
            parts.append(tag("text", precise(ns), x=x, y=bottom + 15, text_anchor="middle"))
            last = x
    return Markup("").join(parts)


def _gaps(scene: TimelineSlice, bend: _Bend, top: float, bottom: float) -> Markup:
    """A dotted line where calls were left out, with their number."""
    parts = []
    for start, end, n in scene.cuts:
        x = (bend.x(start) + bend.x(end)) / 2
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="cut"))
        parts.append(tag("text", f"{number(n)} more", x=x, y=bottom + 30, text_anchor="middle"))
    return Markup("").join(parts)


def _faults(shown: Sequence[FaultInterval], bend: _Bend, top: float, bottom: float) -> Markup:
    end = bend.times[-1]
    parts = []
    for interval, lane in zip(shown, lanes(shown, end), strict=True):
        x1 = bend.x(interval.start_ns)
        x2 = max(bend.x(interval.end_ns) if interval.end_ns is not None else bend.right, x1 + 2)
        y = top - svg.BAND_ROW * (lane + 1) - 2
        label = svg.fit(interval.label, x2 - x1 - 6)
        when = f"from {precise(interval.start_ns)}"
        parts.append(draw_band(interval, (x1, top, x2 - x1, bottom - top), y, label, when))
    return Markup("").join(parts)
