# SPDX-License-Identifier: Apache-2.0
"""Judges the downgrade and its end in times without a change: sends are acknowledged or refused, replicas counted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from checkers.base.cases import Case
from checkers.base.impairment import FOREVER, hears
from checkers.messages.quorum.facts import Answers, Facts, node_of, refused, timed_out
from results.fault_intervals import FaultInterval
from results.figures import SECOND, clock
from results.history import Call
from results.op import OK

_ENOUGH_CASES: Final = 3


@dataclass(frozen=True)
class Calm:
    """A time without a change: no fault begins or ends. limit: how long (ns) after `since` the servers may adapt.

    active  the faults that are certainly in force.
    since   the begin, or the first answer of the last replica that returned.
    """

    start: int
    end: int
    active: Sequence[FaultInterval]
    since: int
    limit: int

    @property
    def plain(self) -> bool:
        """True if all active faults only stop nodes or cut them off: a slow node may or may not be in sync."""
        return all(e.kind in ("down", "cut-off") for i in self.active for e in i.effects)


class CalmTimes:
    """A run's times without a change, and the violations in them: `late_downgrades`, `late_timeouts`, `not_refused`.
    downgrades: see `QuorumAck.check`. detected, returns: limits (ns).
    """

    def __init__(self, facts: Facts, detected: int, returns: int) -> None:
        self.facts, self.detected, self.returns = facts, detected, returns
        self.downgrades: list[float] = []
        self.late_downgrades: list[Case] = []
        self.late_timeouts: list[Case] = []
        self.not_refused: list[Case] = []
        if not facts.rule.majority:
            self._judge()

    def calm(self) -> Iterator[Calm]:
        """The times without a change, with their limits. A replica that was down counts from its first answer on."""
        certain = self.facts.certain
        edges = sorted({t for start, end, i in certain for t in (i.start_ns, start, end, i.end_ns or FOREVER)})
        last = max((op.time for op in self.facts.run.history.clients), default=0)
        gone: set[str] = set()
        for start, end in zip([0, *edges], [*edges, last], strict=True):
            moving = [i for i in self.facts.faults if i.covers(start + 1, end - 1)]
            active = [i for a, b, i in certain if a <= start and end <= b]
            if end - start < SECOND or len(moving) != len(active):
                gone |= {n for i in moving for n in (*i.impairs, *i.nodes)}
                continue
            out = {n for i in active for n in i.impairs}
            back = gone - out
            firsts = [self._first_answer(n, start) for n in back if n in self.facts.counted]
            gone = out
            limit = self.returns if back else self.detected + 2 * self._timeout(start, end)
            yield Calm(start, end, active, max([start, *firsts]), limit)

    def _first_answer(self, node: str, after: int) -> int:
        """The time (ns) of a broker's first answer after a time."""
        told = self.facts.counted[node]
        at = bisect_left(told.starts, after)
        return told.ends[at] if at < len(told.ends) else FOREVER

    def _timeout(self, start: int, end: int) -> int:
        some = [s.timeout_ns for told in self.facts.settings.values() for s in told.around(start, end)]
        return max(some, default=2 * SECOND)

    def _judge(self) -> None:
        ordered = sorted((c for c in self.facts.sends if c.end is not None), key=lambda c: c.start)
        starts = [c.start for c in ordered]
        for calm in self.calm():
            if not calm.plain:
                continue
            mine = [c for c in ordered[bisect_left(starts, calm.start) : bisect_left(starts, calm.end)] if node_of(c)]
            mine = [c for c in mine if (c.end or 0) <= calm.end]
            if not mine:
                continue
            master = node_of(mine[-1])
            nodes = self.facts.nodes(mine[-1])
            left = len([n for n in nodes if n == master or hears(master, n, calm.active)])
            alone = master in {n for i in calm.active for n in i.impairs}
            need, _ = self.facts.needs(master, len(nodes), 1, calm.start, calm.end)
            if left >= need and not (alone and self.facts.rule.by_set):
                self._enough(calm, master, mine)
            elif left < need and self.facts.rule.refuses:
                late = [c for c in mine if c.start >= calm.since + calm.limit and timed_out(c)]
                if late:
                    text = f"{len(late)} sends were answered with FLUSH_SLAVE_TIMEOUT by {master}, with {left} replicas"
                    self.not_refused.append(_case(master, calm, late, f"{text} left and {need} needed"))

    def _enough(self, calm: Calm, master: str, mine: Sequence[Call]) -> None:
        acks = [c for c in mine if c.outcome == OK and (c.end or 0) >= calm.since]
        first = min((c.end or 0 for c in acks), default=FOREVER)
        vain = [c for c in mine if c.start >= calm.since and (timed_out(c) or refused(c)) and (c.end or 0) <= first]
        if vain and first < FOREVER and calm.active:
            self.downgrades.append(round((first - calm.since) / SECOND, 1))
        until = min(first, max((c.end or 0 for c in vain), default=0))
        if len(vain) >= _ENOUGH_CASES and until - calm.since > calm.limit:
            text = f"{master} acknowledged nothing from {clock(calm.since)} to {clock(until)}"
            ops = [c.invoke.index for c in (*vain[:3], *vain[-3:])]
            self.late_downgrades.append(
                Case(calm.since, until, ops, text, limit=calm.limit, details={"master": master})
            )
        late = [c for c in mine if c.start >= calm.since + calm.limit and timed_out(c)]
        if late and acks and self.facts.rule.refuses:
            text = f"{len(late)} sends were answered with FLUSH_SLAVE_TIMEOUT by {master}"
            self.late_timeouts.append(_case(master, calm, late, text))

    def not_counted(self) -> Iterator[Case]:
        """Yields masters that, with all nodes up, count fewer replicas in sync than the settings require in every
        report after the limit.
        """
        if self.facts.rule.majority or self.facts.rule.by_set:
            return
        for calm in self.calm():
            if calm.active:
                continue
            begin = calm.since + calm.limit
            for group, nodes in self.facts.run.deployment.groups.items():
                for node in nodes:
                    yield from self._short(node, group, calm, begin)

    def _short(self, node: str, group: str, calm: Calm, begin: int) -> Iterator[Case]:
        told = self.facts.counted.get(node, Answers())
        some = [
            (s, e, v)
            for s, e, v in zip(told.starts, told.ends, told.values, strict=True)
            if s >= begin and e <= calm.end and v["master"]
        ]
        if len(some) < _ENOUGH_CASES:
            return
        wanted = min((s.in_sync for s in self.facts.settings.get(node, Answers()).around(begin, calm.end)), default=1)
        if wanted > len(self.facts.run.deployment.groups[group]):
            return
        listed = [n for t in self.facts.members.get(group, {}).values() for n in t.around(begin, calm.end)]
        most = min(max(v["in_sync"] for _, _, v in some), max(listed) if self.facts.rule.auto and listed else FOREVER)
        if most < wanted:
            text = f"{node} counted {most} replicas in sync from {clock(begin)} to {clock(some[-1][1])}, of {wanted}"
            yield Case(calm.since, some[-1][1], [], text, limit=calm.limit, details={"master": node})


def _case(master: str, calm: Calm, late: Sequence[Call], text: str) -> Case:
    end = max(c.end or 0 for c in late)
    ops = [c.invoke.index for c in (*late[:3], *late[-3:])]
    when = f", the first of them sent {(late[0].start - calm.since) / SECOND:.1f} s after the last change"
    return Case(calm.since, end, ops, text + when, limit=calm.limit, details={"master": master})
