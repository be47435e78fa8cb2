"""Cases of one kind of violation in broker groups, and the anomalies that stand for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from checkers.base.timeline import RunTimeline
from results.figures import SECOND
from results.verdict import Anomaly

_LISTED: Final = 50
_OPS_OF: Final = 5


class Case(NamedTuple):
    """One violation: its broker group, its time (ns), the indices of its ops, and a description in one clause.

    key: the queue or topic; None: it belongs to none.
    """

    group: str
    start: int
    end: int
    ops: Sequence[int]
    text: str
    key: str | None = None


def anomalies(
    scene: RunTimeline, name: str, cases: Sequence[Case], what: str, limit_ns: int | None = None
) -> Iterator[Anomaly]:
    """One anomaly for each group with such cases; the first, or with a limit the longest, is described in full."""
    by_group: dict[str, list[Case]] = {}
    for case in cases:
        by_group.setdefault(case.group, []).append(case)
    for group, some in by_group.items():
        first = max(some, key=lambda c: c.end - c.start) if limit_ns is not None else some[0]
        yield Anomaly(
            name,
            f"{what} ({len(some):,} cases): {first.text}.{scene.describe(first.start, first.end, group)}",
            first.key if len({c.key for c in some}) == 1 else None,
            sorted({i for c in (first, *some[:_OPS_OF]) for i in c.ops}),
            (first.start, first.end),
            {
                "count": len(some),
                "first": [c.text for c in some[:_LISTED]],
                **scene.details(first.start, first.end, group),
            },
            limit_s=None if limit_ns is None else limit_ns / SECOND,
        )
