# SPDX-License-Identifier: Apache-2.0
"""Finds queues that had two owners, or none, for more than two rebalances (G6).

Rebalances count here, not time: a member that had no processor, or no answer, could not act yet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from checkers.base.cases import Case
from checkers.messages.gray.facts import FOREVER, Facts, Session, Span
from results.figures import clock

ENOUGH: Final = 3
"""Rebalances of each member concerned, within the time: more than two."""


class Double(NamedTuple):
    """Two sessions certainly held a queue from `start` to `end`, and rebalanced often enough to notice."""

    key: str
    one: Session
    other: Session
    start: int
    end: int


def doubles(facts: Facts) -> Iterator[Double]:
    """Yields times in which two members certainly held a queue, each rebalanced often enough, and nothing changed."""
    by_key: dict[str, list[tuple[Session, Span]]] = {}
    for session in facts.sessions:
        for span in session.spans:
            by_key.setdefault(span.key, []).append((session, span))
    edges = facts.changes
    for key, held in sorted(by_key.items()):
        for (one, mine), (other, theirs) in combinations(held, 2):
            start, end = max(mine.start, theirs.start), min(mine.end, theirs.end)
            if one is other or start >= end:
                continue
            for begun, over in _pieces([(start, end)], edges):
                if min(one.rebalanced(begun, over), other.rebalanced(begun, over)) >= ENOUGH:
                    yield Double(key, one, other, begun, over)


def owned_by_two(found: Iterable[Double]) -> Iterator[Case]:
    """Yields a case for each time with two owners."""
    for key, one, other, start, end in found:
        yield Case(
            start, end, (), f"{key}: {one.member} and {other.member} from {clock(start)} to {clock(end)}", key=key
        )


def ownerless(facts: Facts) -> Iterator[Case]:
    """Yields each time in which no member held a queue, although its colour had members and all of them rebalanced
    often enough. If one of them requested the queue, and its broker refused the lock, the scheme is not to blame.
    """
    keys = sorted({key for session in facts.sessions for r in session.rebalances for key in (*r.gray, *r.base)})
    for key in keys:
        spans = [span for session in facts.sessions for span in session.spans if span.key == key]
        locked = facts.locked(key)
        for start, end in _pieces(_gaps(spans, facts.cut), facts.changes):
            if any(start < free and taken < end for taken, free in locked):
                continue
            there = [s for s in facts.sessions if s.begun <= start and s.over >= end]
            colours = {key in r.gray for s in there for r in s.rebalances if r.start >= start and r.end <= end}
            known = all(
                key in r.gray or key in r.base for s in there for r in s.rebalances if r.start >= start and r.end <= end
            )
            if len(colours) != 1 or not known:
                continue
            mine = [(s, facts.colour(s.member, start, end)) for s in there]
            owed = [s for s, colour in mine if colour is None or colour[0] in colours]
            sure = any(colour is not None for _, colour in mine if colour is not None and colour[0] in colours)
            if any(start <= at <= end for s in owed for at in s.refused.get(key, ())):
                continue
            if sure and all(s.rebalanced(start, end) >= ENOUGH for s in owed):
                names = ", ".join(sorted(s.member for s in owed))
                yield Case(start, end, (), f"{key}: from {clock(start)} to {clock(end)}, with {names} there", key=key)


def _gaps(spans: Sequence[Span], cut: int) -> Iterator[tuple[int, int]]:
    """Yields the times in which no member can have held the queue."""
    at = 0
    for span in sorted(spans, key=lambda s: s.may_start):
        if span.may_start > at:
            yield at, span.may_start
        at = max(at, span.may_end)
    if at < min(cut, FOREVER):
        yield at, cut


def _pieces(gaps: Iterable[tuple[int, int]], edges: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields the parts of the gaps in which no member joins, leaves, or changes its colour."""
    for start, end in gaps:
        marks = [start, *edges[bisect_right(edges, start) : bisect_left(edges, end)], end]
        yield from pairwise(marks)
