# SPDX-License-Identifier: Apache-2.0
"""Faults as shaded stretches behind a picture, in a style for each kind of effect.

A stretch has a strip above the picture, with a stripe for each kind of effect, and a wash over the picture in the style
of the gravest. Styles differ in tint and in pattern, so that they are distinguishable in print, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from results.fault_intervals import FaultInterval, lanes
from results.figures import clock
from results.report import svg
from results.report.svg import tag, title
from results.report.words import text

OTHER: Final = "other"
"""The kind of a fault without known effects: a change of settings, a history from elsewhere."""

KINDS: Final[Mapping[str, str]] = {
    "data-damaged": "data damaged",
    "data-lost": "data lost",
    "disk-dead": "disk dead",
    "disk-full": "disk full",
    "unsynced-lost": "unsynced data lost",
    "down": "down",
    "cut-off": "cut off",
    "slow": "slow",
    OTHER: "other",
}
"""Kind of effect (`results.strikes.EffectKind`) -> its name in a legend; the gravest first."""

_PATTERNS: Final[Mapping[str, str]] = {
    "data-damaged": "M2,2l4,4m0-4l-4,4",
    "data-lost": "M-2,6l8-8M0,12L12,0M6,14l8-8",
    "disk-dead": "M0,4h8M4,0v8",
    "disk-full": "M0,2h8M0,6h8",
    "unsynced-lost": "M-2,2l8,8M0-4l12,12",
    "cut-off": "M2,0v8M6,0v8",
    "slow": "M2,2h.01M6,6h.01",
}
"""Lines of a tile of 8 px; kinds without are an even tint."""


def kinds(fault: FaultInterval) -> list[str]:
    """The kinds of a fault's effects, the gravest first; never empty. Earlier versions stored only downs and cuts."""
    found = {effect.kind for effect in fault.effects if effect.kind in KINDS}
    if not found:
        for node, peers in fault.impairs.items():
            found |= {"down"} if node in peers else {"cut-off"} if peers else set()
    return [kind for kind in KINDS if kind in found] or [OTHER]


def shown(faults: Iterable[FaultInterval]) -> list[str]:
    """The kinds that some of these have, the gravest first: for a legend."""
    there = {kind for fault in faults for kind in kinds(fault)}
    return [kind for kind in KINDS if kind in there]


def measured(fault: FaultInterval) -> str:
    """The probes' evidence of a fault, in one line: `n1: a synced write: ENOSPC; 0 MiB free`."""
    told = "; ".join(f"{place}: {what}" for place, what in fault.evidence.items())
    return text(told or fault.error or ("seen" if fault.seen else "nothing was measured"), 600)


def definitions() -> Markup:
    """The patterns, once for each page."""
    return Markup("").join(
        tag(
            "pattern",
            tag("path", d=lines, class_=f"tile k-{kind}"),
            id=f"tile-{kind}",
            width=8,
            height=8,
            patternUnits="userSpaceOnUse",
        )
        for kind, lines in _PATTERNS.items()
    )


def swatch(kind: str) -> Markup:
    """A small sample of a style, for a legend in a text."""
    parts = _filled(kind, 0.5, 0.5, 25, 12, "chip")
    return tag("svg", *parts, class_="swatch band", width=26, height=13, viewBox="0 0 26 13", aria_hidden="true")


def draw_band(
    fault: FaultInterval, place: tuple[float, float, float, float], y: float, label: str, when: str
) -> Markup:
    """One stretch. place: x, top, width and height of the wash; y: that of the strip. when: times, for the mouse."""
    x, top, wide, high = place
    found = kinds(fault)
    stripe = (svg.BAND_ROW - 2) / len(found)
    words = ", ".join(KINDS[kind] for kind in found)
    parts: list[str] = [title(f"{fault.label}, {when}\n{words}\n{measured(fault)}")]
    parts += _filled(found[0], x, top, wide, high, "wash")
    for i, kind in enumerate(found):
        parts += _filled(kind, x, y + i * stripe, wide, stripe, "chip")
    parts.append(tag("text", label, x=x + 3, y=y + 11) if label else "")
    return tag("g", *parts, class_="band")


def draw_bands(faults: Sequence[FaultInterval], frame: svg.Frame) -> Markup:
    """The faults as shaded stretches with a strip of labels above the area."""
    parts = []
    for fault, lane in zip(faults, lanes(faults, frame.t1), strict=True):
        x1 = max(frame.x(fault.start_ns), frame.left)
        x2 = min(frame.x(frame.t1 if fault.end_ns is None else fault.end_ns), frame.right)
        if x2 < frame.left or x1 > frame.right:
            continue
        wide = max(x2 - x1, 1.5)
        y = frame.top - svg.BAND_ROW * (lane + 1) - 2
        label = svg.fit(fault.label, wide - 6) or svg.fit(f"#{fault.id}", wide + svg.LABEL_PX)
        when = f"{clock(fault.start_ns)} to {clock(fault.end_ns) if fault.end_ns else 'the end'}"
        parts.append(draw_band(fault, (x1, frame.top, wide, frame.bottom - frame.top), y, label, when))
    return Markup("").join(parts)


def _filled(kind: str, x: float, y: float, width: float, height: float, class_: str) -> list[Markup]:
    """A tint, and the pattern on it."""
    box = {"x": x, "y": y, "width": width, "height": height}
    found = [tag("rect", **box, class_=f"{class_} k-{kind}")]
    if kind in _PATTERNS:
        found.append(tag("rect", **box, fill=f"url(#tile-{kind})", class_=f"{class_}-tile"))
    return found


@dataclass(frozen=True)
class StrikeLine:
    """One strike: its effects, and the measured evidence."""

    label: str
    when: str
    effects: str
    measured: str
    samples: Sequence[Markup]


def strike_line(fault: FaultInterval, last: int) -> StrikeLine:
    """The line of a strike. `last`: the end of the run (ns)."""
    found = kinds(fault)
    end = last if fault.end_ns is None else fault.end_ns
    until = "not seen to end" if fault.end_ns is None else f"to {clock(end)}"
    return StrikeLine(
        text(fault.label, 200),
        f"{clock(fault.start_ns)} {until}",
        ", ".join(KINDS[kind] for kind in found),
        measured(fault),
        [swatch(kind) for kind in found],
    )
