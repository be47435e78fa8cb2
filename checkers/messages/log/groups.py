# SPDX-License-Identifier: Apache-2.0
"""Groups many single cases into a few anomalies.

A failover that loses three hundred messages is one event. Its cases are described together, by broker and by active
faults, with the first case in detail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.log.columns import LogColumns
from results.figures import clock

SHOWN = 20
"""The largest number of anomalies of one name; the cases beyond are in the counts of the last one."""

_OPS = 6
_LISTED = 50


class Case(NamedTuple):
    """One case. `node`: the one responsible; `start`, `end` in ns; `ops`: the indices of the ops that prove it."""

    queue: int
    offset: int
    id: int
    node: int
    start: int
    end: int
    ops: tuple[int, ...]


@dataclass(frozen=True)
class AnomalyText:
    """The parts of an anomaly, except its name."""

    summary: str
    key: str | None
    ops: Sequence[int]
    window: tuple[int, int]
    details: dict[str, Any]
    times: Sequence[int] = ()
    """The ends (ns) of all cases."""


class AnomalyGroups:
    """Cases of one kind, in groups of one node and one set of faults, in order of time."""

    def __init__(self, facts: LogColumns, scene: RunTimeline, cases: Iterable[Case]) -> None:
        self.facts, self.scene = facts, scene
        self.all = sorted(cases, key=lambda c: (c.end, c.queue, c.offset))

    def __len__(self) -> int:
        return len(self.all)

    def describe(self, say: Callable[[Sequence[Case], str], tuple[str, dict[str, Any]]]) -> list[AnomalyText]:
        """The texts of the groups. `say(cases, where)` returns a group's sentence and details; `where`: its queues and
        offsets.
        """
        groups: dict[tuple[int, str, tuple[int, ...]], list[Case]] = {}
        for case in self.all:
            faults = tuple(interval.id for interval in self.scene.in_force(case.start, case.end))
            group = group_of(self.facts.queues[case.queue]) or ""
            groups.setdefault((case.node, group, faults), []).append(case)
        chosen = list(groups.values())
        if len(chosen) > SHOWN:
            chosen[SHOWN - 1 :] = [[case for group in chosen[SHOWN - 1 :] for case in group]]
        return [self._group(cases, say) for cases in chosen]

    def _group(
        self, cases: Sequence[Case], say: Callable[[Sequence[Case], str], tuple[str, dict[str, Any]]]
    ) -> AnomalyText:
        start, end = min(c.start for c in cases), max(c.end for c in cases)
        queues = {c.queue for c in cases}
        group = group_of(self.facts.queues[cases[0].queue])
        sentence, more = say(cases, self.where(cases))
        chosen = [*cases[:_OPS], *cases[_OPS:][-_OPS:]]
        listed = [
            {
                "id": self.facts.name(c.id),
                "queue": self.facts.queues[c.queue],
                "offset": c.offset,
                "node": self.facts.node(c.node),
                "at": clock(c.end),
            }
            for c in cases[:_LISTED]
        ]
        return AnomalyText(
            sentence + self.scene.describe(start, end, group),
            self.facts.queues[cases[0].queue] if len(queues) == 1 else None,
            sorted({op for c in chosen for op in c.ops}),
            (start, end),
            {"count": len(cases), **more, "first": listed, **self.scene.details(start, end, group)},
            [c.end for c in cases],
        )

    def where(self, cases: Sequence[Case]) -> str:
        """`t:a:0 at 812 to 870 (41)`, for up to four queues."""
        by: dict[int, list[int]] = {}
        for case in cases:
            by.setdefault(case.queue, []).append(case.offset)
        parts = []
        for queue, offsets in sorted(by.items())[:4]:
            low, high = min(offsets), max(offsets)
            place = f"at {low}" if low == high else f"at {low} to {high} ({len(offsets)})"
            parts.append(f"{self.facts.queues[queue]} {place}")
        return ", ".join(parts) + (f" and {len(by) - 4} more queues" if len(by) > 4 else "")


def times(cases: Sequence[Case]) -> str:
    """`at 00:31.2`, or `between 00:31.2 and 00:39.8`."""
    first, last = clock(cases[0].end), clock(cases[-1].end)
    return f"at {first}" if first == last else f"between {first} and {last}"
