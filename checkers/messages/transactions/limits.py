# SPDX-License-Identifier: Apache-2.0
"""Limits of questions: a broker asks about an undecided half message `transactionCheckMax` times, never within its
immunity time, and gives it up then: it moves it to a topic of its own, which is read at the end (`given-up`).

A broker counts rounds, and a question is one-way: it also counts a round in which nobody was there, or whose question
was lost with its connection. So questions may be missing, but not more than rounds that a fault, a change of master, or
the absence of producers can have hit. `Limits` knows these times, with their ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from checkers.base.cases import Case
from checkers.base.starvation import short_times
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.transactions.duty import QuestionDuty
from checkers.messages.transactions.facts import Facts, Transaction
from results.figures import SECOND
from results.op import FAIL, OK
from results.record import RunRecord

UNHEARD: Final = (
    "so many rounds of questions can have met a fault, a change of master, a shortage, or no producer, and brokers "
    "count them"
)
HIDDEN: Final = (
    "brokers give a half message up without waiting for replicas: a fault or a change of master around the last "
    "question may undo it"
)
CLOCK_SET: Final = "a fault changed the clocks of brokers, by which they find the end of the immunity time"

_EARLY_NS: Final = SECOND
"""The largest difference between the clocks of a producer and a broker."""

_UNREPORTED_NS: Final = 2 * SECOND
"""Around the end of a producer's process a question may be lost with it, or with its last reports."""

_HEARD_NS: Final = 5 * SECOND
"""The same for our own producer, whose heartbeats come every second, and wait 3 s for an answer."""

_PASSED_NS: Final = SECOND
"""The length of a check, in which no proxy had a stream."""


class Limits:
    """changes: the times (ns; from, to) of faults and of changes of master; to None: it lasted. interval: from one
    round of questions to the next (ns). late: so long after such a time a library's producer, or a proxy's, may still
    be unknown to a broker (ns).
    """

    def __init__(
        self,
        run: RunRecord,
        scene: RunTimeline,
        facts: Facts,
        duty: QuestionDuty,
        changes: Sequence[tuple[int, int | None]],
        check_max: int,
        interval: int,
        late: int,
    ) -> None:
        self._facts, self._duty = facts, duty
        self._check_max, self._interval = check_max, interval
        self._late = late if duty.proxied or facts.reports is not None else _HEARD_NS
        self._last = max((call.end or call.start for call in run.history.clients.calls), default=0)
        self._changes = [(start, self._last if end is None else end) for start, end in changes]
        self._disturbed = _merged(self._spells(run))
        self.clock_set = any("clock" in fault.fault for fault in scene.fault_intervals)
        """True if a fault changed a clock, so that the times at which brokers stored something are unknown."""

    def _spells(self, run: RunRecord) -> Iterator[tuple[int, int]]:
        """Yields the times (ns) in which a question may be lost."""
        for start, end in [*self._changes, *short_times(run)]:
            yield start, end + self._late
        for at in self._duty.deaf:
            yield at - _PASSED_NS, at + self._late
        if self._duty.proxied:
            yield 0, self._late  # until the first heartbeats of the proxies
        reports = self._facts.reports
        if reports is None:
            return
        for at in reports.ends.values():
            yield at - _UNREPORTED_NS, at + _UNREPORTED_NS
        end = 0
        for start, until in reports.there():
            yield end, start + self._late
            end = until
        yield end, self._last

    def rounds(self, start: int, end: int) -> int:
        """The largest number of rounds between two moments (ns) whose questions may be lost."""
        met = ((max(a, start), min(b, end)) for a, b in self._disturbed if a <= end and b >= start)
        return sum(1 + (b - a) // self._interval for a, b in met)

    def unasked(self) -> tuple[list[Case], list[Case], int]:
        """The half messages that were given up although fewer than `transactionCheckMax` questions about them came:
        those without and those with an immunity time; and the number of those whose missing questions may be lost.
        """
        plain: list[Case] = []
        immune: list[Case] = []
        excused = 0
        for t in self._facts.all:
            missing = self._check_max - t.asked
            if not t.given_up or missing <= 0 or t.send.outcome == FAIL:
                continue
            first = t.given_up[0]
            end = first.read.start if self.clock_set else max(first.at, t.send.start)
            if missing <= self.rounds(t.send.start, end):
                excused += 1
                continue
            case = t.proven(t.send.start, end, first.read)._replace(details={"asked": t.asked})
            (immune if t.immunity else plain).append(case)
        return plain, immune, excused

    def early(self) -> tuple[list[Case], list[Case]]:
        """The half messages with a question within their immunity time: those that nothing explains, and those after a
        fault had changed a clock.
        """
        cases = []
        for t in self._facts.all:
            first = t.checks[0] if t.checks else None
            if first is not None and first.at + _EARLY_NS < t.send.start + t.immunity:
                cases.append(t.proven(t.send.start, first.at, first))
        return ([], cases) if self.clock_set else (cases, [])

    def kept(self) -> tuple[list[Case], list[Case]]:
        """The undecided half messages that were asked about `transactionCheckMax` times and not given up: those that
        nothing explains, and those with a fault or a change of master around their last question. Also those with more
        questions, if nothing disturbed the brokers before the last one.
        """
        wrong: list[Case] = []
        explained: list[Case] = []
        facts = self._facts
        if not facts.discards or facts.undiscarded:
            return wrong, explained
        read = min(call.start for call in facts.discards)
        for t in facts.all:
            if t.send.outcome != OK or t.asked < self._check_max or any(end.outcome != FAIL for end in t.ends):
                continue
            last = t.checks[-1]
            if t.asked > self._check_max and not self.rounds(t.send.start, last.at):
                wrong.append(t.proven(t.send.start, last.at, last))
                continue
            start, end = self._duty.longest(last.at, read, group_of(t.queue))
            if t.given_up or end - start <= self._duty.limit:
                continue
            case = t.proven(start, end, last)._replace(limit=self._duty.limit)
            (explained if self._may_be_undone(t, last.at) else wrong).append(case)
        return wrong, explained

    def _may_be_undone(self, t: Transaction, last: int) -> bool:
        """True if a change may have undone that a half message was given up after its last question (ns). A new master
        may also lack the topic of a group, so that what is in it cannot be read.
        """
        missing = any(
            call.completion is not None
            and call.completion.extra.get("no_topic")
            and group_of(str(call.invoke.key)) == group_of(t.queue)
            for call in self._facts.discards
        )
        since, until = last - self._interval, last + 2 * self._interval
        return any(end >= since and (missing or start <= until) for start, end in self._changes)


def _merged(spells: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spells):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
