# SPDX-License-Identifier: Apache-2.0
"""Small pictures in SVG, generated directly: they use the page's colours, print sharply and are small.

Everything is `Markup`. Plain text is escaped, so a key named `<script>` stays a name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from results.fault_intervals import FaultInterval, lanes
from results.figures import SECOND
from results.report.words import text
from results.visible import visible

Attribute = str | float | None
LABEL_PX = 6.1
"""Width of a character of the labels (11 px sans-serif), on average."""


def tag(name: str, *children: str, **attributes: Attribute) -> Markup:
    """An element. `stroke_width=2` becomes `stroke-width="2"`, `class_` becomes `class`; None is left out."""
    label = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(_clean(child) for child in children)
    return Markup(f"<{name}{label}>{inner}</{name}>" if inner else f"<{name}{label}/>")


def title(label: str) -> Markup:
    """The text that is shown while the mouse rests on the element."""
    return Markup("<title>") + visible(label) + Markup("</title>")


def picture(width: float, height: float, label: str, *parts: str, class_: str = "plot") -> Markup:
    """A whole SVG that shrinks with the page; `label` is its text for readers who cannot see it."""
    return tag(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_short(width)} {_short(height)}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
        class_=class_,
    )


def fit(label: str, px: float) -> str:
    """The text if it fits in so many pixels, else cut; empty if less than three characters fit."""
    room = int(px / LABEL_PX)
    return label if len(label) <= room else text(label, room) if room >= 3 else ""


@dataclass(frozen=True)
class Frame:
    """The plotting area of a chart over time: from `t0` to `t1` ns, `left`..`right` px; `top`..`bottom` px."""

    t0: int
    t1: int
    top: float
    bottom: float
    left: float = 64
    right: float = 1084
    width: float = 1100

    def x(self, ns: float) -> float:
        return self.left + (ns - self.t0) / max(self.t1 - self.t0, 1) * (self.right - self.left)

    def time_axis(self) -> Markup:
        """Ticks and their times under the area."""
        parts = []
        for ns in time_ticks(self.t0, self.t1):
            x = self.x(ns)
            parts.append(tag("line", x1=x, x2=x, y1=self.top, y2=self.bottom, class_="grid"))
            parts.append(tag("text", _axis(ns), x=x, y=self.bottom + 16, text_anchor="middle"))
        parts.append(tag("line", x1=self.left, x2=self.right, y1=self.bottom, y2=self.bottom, class_="axis"))
        return Markup("").join(parts)

    def value_axis(self, ticks: Iterable[tuple[float, str]], name: str) -> Markup:
        """Ticks `(y in px, label)` at the left, and the name of the axis."""
        parts = []
        for y, label in ticks:
            parts.append(tag("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="grid"))
            parts.append(tag("text", label, x=self.left - 6, y=y + 4, text_anchor="end"))
        middle = (self.top + self.bottom) / 2
        parts.append(tag("text", name, x=12, y=middle, text_anchor="middle", transform=f"rotate(-90 12 {middle:.0f})"))
        return Markup("").join(parts)


BAND_ROW = 16
"""Height of one row of fault labels above a plot, px."""


def band_rows(shown: Sequence[FaultInterval], end_ns: int) -> int:
    """The number of rows of labels that the faults need."""
    return max(lanes(shown, end_ns), default=-1) + 1


def legend(entries: Iterable[tuple[Markup, str]], x: float, y: float) -> Markup:
    """Marks (drawn around 0,0) with their names, in a row."""
    parts = []
    for mark, name in entries:
        parts.append(tag("g", mark, transform=f"translate({x + 6:.0f} {y - 4:.0f})"))
        parts.append(tag("text", name, x=x + 16, y=y))
        x += 32 + len(name) * LABEL_PX
    return Markup("").join(parts)


def polyline(points: Iterable[tuple[float, float]], **attributes: Attribute) -> Markup:
    """A line through points in px. Points without a visible difference (under half a px) are left out."""
    label: list[str] = []
    last: tuple[float, float] | None = None
    for x, y in points:
        if last is None or abs(x - last[0]) + abs(y - last[1]) >= 0.5:
            label.append(f"{_short(x)},{_short(y)}")
            last = (x, y)
    return tag("polyline", points=" ".join(label), fill="none", **attributes) if label else Markup("")


def time_ticks(t0: int, t1: int, wanted: int = 12) -> list[int]:
    """Round times (ns) from `t0` to `t1`, about `wanted` of them or fewer."""
    span = max(t1 - t0, 1) / SECOND
    steps = [m * 10.0**e for e in range(-6, 0) for m in (1, 2, 5)]
    steps += [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400]
    step = int(next((s for s in steps if span / s <= wanted), span / wanted) * SECOND) or 1
    first = -(-t0 // step) * step
    return list(range(first, t1 + 1, step))


def round_ticks(top: float, wanted: int = 5) -> list[float]:
    """0 and round numbers up to at least `top`."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / wanted
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(m * scale for m in (1, 2, 5, 10) if m * scale >= raw * 0.999)
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def _axis(ns: int) -> str:
    """A time on an axis: `01:30`, or with as many decimals as the tick has."""
    seconds, rest = divmod(ns, SECOND)
    decimals = f"{rest / SECOND:.6f}"[1:].rstrip("0").rstrip(".")
    return f"{seconds // 60:02d}:{seconds % 60:02d}{decimals}"


def _short(value: Attribute) -> str:
    """Numbers with at most one decimal: a tenth of a pixel is enough."""
    if isinstance(value, float | int):
        return f"{value:.1f}".removesuffix(".0")
    return visible(str(value))


def _clean(child: str) -> str:
    return child if isinstance(child, Markup) else visible(child)
