# SPDX-License-Identifier: Apache-2.0
"""The reports of applications' processes. Source: values of `take`, `crash`, `leave` ops.

A report has the form of `workloads.applications.crew`: kind, age, life, and more. Its time is that of the op's
completion less its age, which is when it arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from results.history import History
from results.op import OK

_ENDS: Final = frozenset({"crash", "leave"})
_OPS: Final = _ENDS | {"take"}


class Life(NamedTuple):
    """One process of a member."""

    member: str
    number: int

    def __str__(self) -> str:
        return f"{self.member} (process {self.number})"


class Report(NamedTuple):
    """One report. at: the time (ns) of its arrival. op: the index of the op that shows it. rest: its further fields."""

    at: int
    life: Life
    op: int
    kind: str
    rest: Sequence[Any]


@dataclass
class Reports:
    """All reports in order of time.

    begins, ends   life -> the time (ns) at which its start was requested; at which it ended, or had to.
    until   the begin of the last take of a process whose end was not requested.
    ticks   life and number of a tick -> the time before which the process certainly had not read it.
    """

    all: list[Report] = field(default_factory=list)
    begins: dict[Life, int] = field(default_factory=dict)
    ends: dict[Life, int] = field(default_factory=dict)
    until: int = 0
    ticks: dict[tuple[Life, int], int] = field(default_factory=dict)

    def earliest(self, life: Life, tick: int) -> int:
        """A time (ns) before which something did not happen that a process did when it had read a tick."""
        known = (self.ticks[life, n] for n in range(tick, 0, -1) if (life, n) in self.ticks)
        return next(known, self.begins.get(life, 0))

    def there(self) -> list[tuple[int, int]]:
        """The times (ns; from, to) in which at least one process ran, in order."""
        found: list[tuple[int, int]] = []
        for at, life, _, kind, _ in self.all:
            if kind != "started":
                continue
            end = self.ends.get(life, self.until)
            if found and at <= found[-1][1]:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            else:
                found.append((at, end))
        return found


def reports(history: History) -> Reports:
    """The reports of all members."""
    found = Reports()
    found.all = sorted(_in_order(_reports(history, found)), key=lambda report: report.at)
    for report in found.all:
        if report.kind == "ended":
            found.ends.setdefault(report.life, report.at)
    return found


def _in_order(every: Iterable[Report]) -> Iterator[Report]:
    """Yields the reports with times that never go back within a member: a completion is stamped a little after the age
    of its reports was taken, by another amount each time.
    """
    last: dict[str, int] = {}
    for report in every:
        member = report.life.member
        last[member] = max(report.at, last.get(member, 0))
        yield report._replace(at=last[member])


def _reports(history: History, found: Reports) -> Iterator[Report]:
    current: dict[str, Life] = {}
    ending: dict[Life, int] = {}
    for call in history.clients.calls:
        done, extra = call.completion, call.invoke.extra
        member = str(extra.get("member"))
        if call.invoke.f == "join" and done is not None and done.type == OK:
            life = current[member] = Life(member, int(str(done.value).rpartition("-")[2]))
            found.begins.setdefault(life, call.start)
        if call.invoke.f in _ENDS and member in current:
            ending.setdefault(current[member], call.start)
        if call.invoke.f not in _OPS or done is None or done.type != OK:
            continue
        for kind, age, number, *rest in done.value or ():
            yield Report(done.time - age, Life(member, number), done.index, kind, rest)
        if call.invoke.f == "take" and current.get(member) not in ending:
            found.until = max(found.until, call.start)
            if "tick" in done.extra and member in current:
                found.ticks.setdefault((current[member], done.extra["tick"]), call.start)
        elif call.invoke.f in _ENDS and member in current:
            # It worked until the signal came, which was after the begin of the first op for it.
            found.ends.setdefault(current[member], ending[current[member]])
