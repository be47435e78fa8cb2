# SPDX-License-Identifier: Apache-2.0
"""The signature of a finding: an anomaly, the fault that it needs, and the line in a server's log that shows the
mechanism.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from checkers.base.evidence import own_lines, stamped_lines
from harness.findings.patterns import LIMIT_S, LINE, TookTooLong, in_time
from results.alarm import EarlyEnd
from results.fault_intervals import fault_intervals
from results.record import RunRecord
from results.verdict import Anomaly, Judgement, Verdict

log = logging.getLogger(__name__)

ALIGNED: Final = 0.8
"""A replay in which a smaller share of the strikes met their event tried nothing."""

FOLLOWS_S: Final = 10
"""A line must follow another one within this time."""


class Sight(StrEnum):
    """`not tried`: the run is no evidence, neither for nor against the finding."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Sighting:
    """The result of one run for a finding, and the reason."""

    sight: Sight
    why: str


@dataclass(frozen=True)
class Signature:
    """anomalies  names; one of them is enough.
    permitted  whether an anomaly that the configuration permits counts as well.
    log        pattern of a line in any server's log that must be there, too; None: none.
    unless     pattern of a line that must not follow this one in its log within FOLLOWS_S; `{name}` stands for what the
               group `name` of `log` found. None: anything may follow.
    during     whether this line must stand in the time of the anomaly (`Anomaly.window`), not just anywhere in the run.
    says       pattern in the anomaly's summary; None: any will do.
    after      effects of faults (`results.strikes.Effect`), one of which must have struck; empty: no fault is needed.
    at_node    whether this line must stand in a log of the node that the anomaly names.
    other      another signature of the same finding: either is enough; None: there is no other.
    """

    anomalies: tuple[str, ...]
    permitted: bool = False
    log: re.Pattern[str] | None = None
    after: tuple[str, ...] = ()
    says: re.Pattern[str] | None = None
    during: bool = False
    unless: str | None = None
    at_node: bool = False
    other: Signature | None = None

    @property
    def names(self) -> frozenset[str]:
        """The anomalies of this signature and of the other one."""
        return frozenset(self.anomalies) | (frozenset() if self.other is None else self.other.names)

    def look(self, record: RunRecord, judgement: Judgement) -> Sighting:
        """Returns whether a judged run shows the finding, with the reason. One that ended early without it tried
        nothing: it might have come later.
        """
        found = self._look(record, judgement)
        if found.sight != Sight.SHOWN and self.other is not None:
            second = self.other.look(record, judgement)
            found = second if second.sight == Sight.SHOWN else found
        early = EarlyEnd.of(record.environment)
        if found.sight == Sight.NOT_SHOWN and early is not None:
            return Sighting(Sight.NOT_TRIED, f"{found.why}; {early.describe()}")
        return found

    def _look(self, record: RunRecord, judgement: Judgement) -> Sighting:
        named = [a for a in judgement.anomalies if self._means(a) and (self.permitted or a.legal is None)]
        certain = [a for a in named if a.doubt is None]
        if certain:
            if not self._struck(record):
                return Sighting(Sight.NOT_SHOWN, f"{certain[0].name}, but no fault of effect {' or '.join(self.after)}")
            reported = self._reported(record, certain)
            if not reported:
                assert self.log is not None
                where = "in a log at that time" if self.during else "in a log"
                return Sighting(Sight.NOT_SHOWN, f"{certain[0].name}, but no line like {self.log.pattern!r} {where}")
            return Sighting(Sight.SHOWN, f"{reported[0].name}: {reported[0].summary}")
        why = not_tried(record, judgement)
        if why is None and named:
            why = f"{named[0].name}, {named[0].doubt}"
        if why is not None:
            return Sighting(Sight.NOT_TRIED, why)
        return Sighting(Sight.NOT_SHOWN, f"{judgement.verdict.value}: {judgement.reason}")

    def explains(self, record: RunRecord, judgement: Judgement) -> list[Anomaly]:
        """The anomalies of a judged run that are this finding, in their order; empty if the run does not show it."""
        named = [a for a in judgement.anomalies if a.counts and self._means(a)]
        found = self._reported(record, named) if named and self._struck(record) else []
        others = [] if self.other is None else self.other.explains(record, judgement)
        return [a for a in judgement.anomalies if a in found or a in others]

    def _means(self, anomaly: Anomaly) -> bool:
        return anomaly.name in self.anomalies and (self.says is None or self.says.search(anomaly.summary) is not None)

    def _struck(self, record: RunRecord) -> bool:
        struck = {e.kind for fault in fault_intervals(record.history) for e in fault.effects}
        return not self.after or not struck.isdisjoint(self.after)

    def _reported(self, record: RunRecord, anomalies: Sequence[Anomaly]) -> list[Anomaly]:
        """Returns the anomalies that a log reports; all of them if no line is needed."""
        if self.log is None:
            return list(anomalies)
        try:
            with in_time():
                return self._searched(record, anomalies)
        except TookTooLong:
            pattern = self.log.pattern
            log.warning("the pattern %r took more than %.0f s in the logs: it counts as not found", pattern, LIMIT_S)
            return []

    def _searched(self, record: RunRecord, anomalies: Sequence[Anomaly]) -> list[Anomaly]:
        found: list[Anomaly] = []
        for node, path in ((node, path) for node, files in record.logs.items() for path in files):
            mine = [a for a in anomalies if not self.at_node or a.details.get("node") == node]
            for at, _ in self.lines(path, record.environment) if mine else ():
                found += [a for a in mine if self.tells_of(at, a) and a not in found]
                if len(found) == len(anomalies):
                    return found
        return [a for a in anomalies if a in found]

    def tells_of(self, at: int | None, anomaly: Anomaly) -> bool:
        """True if a line of `lines` with this time is about the anomaly."""
        return not self.during or _within(at, anomaly.window)

    def describe_log(self) -> str:
        """Markdown: the pattern of the log line, and the one that must not follow it; empty if no line is needed."""
        if self.log is None:
            return ""
        after = f", not followed by `{self.unless}` within {FOLLOWS_S} s" if self.unless is not None else ""
        where = " (at the node of the anomaly)" if self.at_node else ""
        return f"`{self.log.pattern}`{after}{where}"

    def lines(self, path: Path, environment: Mapping[str, Any]) -> Iterator[tuple[int | None, str]]:
        """The lines of a server's log that show the mechanism, with their times in ns of the run; None if the time is
        not known, or does not matter.
        """
        if self.log is None:
            return
        if self.unless is not None:
            yield from _not_followed(stamped_lines(path, environment), self.log, self.unless)
        elif self.during:
            yield from ((at, line) for at, line in stamped_lines(path, environment) if self.log.search(line, 0, LINE))
        else:
            yield from ((None, line) for line in own_lines(path, environment) if self.log.search(line, 0, LINE))


def _not_followed(
    lines: Iterator[tuple[int | None, str]], pattern: re.Pattern[str], unless: str
) -> Iterator[tuple[int, str]]:
    """Yields lines with the pattern that no line of `unless` follows within FOLLOWS_S. A line less than FOLLOWS_S
    before the end of the log is left out, since its successors are unknown.
    """
    waiting: deque[tuple[int, str, re.Pattern[str]]] = deque()
    for at, line in lines:
        if at is None:
            continue
        while waiting and at - waiting[0][0] > FOLLOWS_S * 10**9:
            yield waiting.popleft()[:2]
        waiting = deque(one for one in waiting if not one[2].search(line, 0, LINE))
        if found := pattern.search(line, 0, LINE):
            then = unless
            for name, text in found.groupdict().items():
                then = then.replace(f"{{{name}}}", re.escape(text or ""))
            waiting.append((at, line, re.compile(then)))


def _within(at: int | None, window: tuple[int, int] | None) -> bool:
    return at is not None and window is not None and window[0] <= at <= window[1]


def not_tried(record: RunRecord, judgement: Judgement) -> str | None:
    """The reason why a run without the finding counts as not tried, or None."""
    if judgement.verdict == Verdict.HARNESS_FAILURE:
        return f"the harness failed: {judgement.reason}"
    for result in judgement.results:
        if result.checker == "complete":
            return result.reason
        if result.checker == "faults" and result.verdict == Verdict.UNKNOWN:
            return result.reason
    injected = skipped = 0
    for op in record.history:
        if op.process < 0 and op.type == "invoke":
            injected += op.f == "inject"
            skipped += op.f == "skip"
    if injected < ALIGNED * (injected + skipped):
        return f"only {injected} of {injected + skipped} strikes met their event"
    return None
