"""How a run shows a finding: an anomaly, the fault that it needs, and the line in a server's log that tells the
mechanism.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from checkers.evidence import own_lines, stamped_lines
from results.fault_intervals import fault_intervals
from results.record import RunRecord
from results.verdict import Anomaly, Judgement, Verdict

ALIGNED: Final = 0.8
"""A replay in which a smaller share of the strikes met their event tried nothing."""


class Sight(StrEnum):
    """`not tried`: the run says nothing about the finding, neither for nor against it."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Sighting:
    """What one run says of a finding, and why."""

    sight: Sight
    why: str


@dataclass(frozen=True)
class Signature:
    """anomalies  names; one of them is enough.
    permitted  whether an anomaly that the configuration permits counts as well.
    log        pattern of a line in any server's log that must be there, too; None: none.
    during     whether this line must stand in the time of the anomaly (`Anomaly.window`), not just anywhere in the run.
    says       pattern in the anomaly's summary; None: any will do.
    after      effects of faults (`results.strikes.Effect`), one of which must have struck; empty: no fault is needed.
    """

    anomalies: tuple[str, ...]
    permitted: bool = False
    log: re.Pattern[str] | None = None
    after: tuple[str, ...] = ()
    says: re.Pattern[str] | None = None
    during: bool = False

    def look(self, record: RunRecord, judgement: Judgement) -> Sighting:
        """Whether a judged run shows the finding."""
        named = [a for a in judgement.anomalies if self._means(a) and (self.permitted or a.legal is None)]
        certain = [a for a in named if a.doubt is None]
        if certain:
            if not self._struck(record):
                return Sighting(Sight.NOT_SHOWN, f"{certain[0].name}, but no fault of effect {' or '.join(self.after)}")
            told = self._told(record, certain)
            if told is None:
                assert self.log is not None
                where = "in a log at that time" if self.during else "in a log"
                return Sighting(Sight.NOT_SHOWN, f"{certain[0].name}, but no line like {self.log.pattern!r} {where}")
            return Sighting(Sight.SHOWN, f"{told.name}: {told.summary}")
        why = not_tried(record, judgement)
        if why is None and named:
            why = f"{named[0].name}, {named[0].doubt}"
        if why is not None:
            return Sighting(Sight.NOT_TRIED, why)
        return Sighting(Sight.NOT_SHOWN, f"{judgement.verdict.value}: {judgement.reason}")

    def _means(self, anomaly: Anomaly) -> bool:
        return anomaly.name in self.anomalies and (self.says is None or self.says.search(anomaly.summary) is not None)

    def _struck(self, record: RunRecord) -> bool:
        struck = {e.kind for fault in fault_intervals(record.history) for e in fault.effects}
        return not self.after or not struck.isdisjoint(self.after)

    def _told(self, record: RunRecord, anomalies: Sequence[Anomaly]) -> Anomaly | None:
        """The first of the anomalies that a log tells of."""
        if self.log is None:
            return anomalies[0]
        for at in self._logged(record, self.log):
            for anomaly in anomalies:
                if not self.during or _within(at, anomaly.window):
                    return anomaly
        return None

    def _logged(self, record: RunRecord, pattern: re.Pattern[str]) -> Iterator[int | None]:
        """When servers wrote such a line, in ns of the run; None where that is not known, or does not matter."""
        for path in (path for files in record.logs.values() for path in files):
            if self.during:
                yield from (at for at, line in stamped_lines(path, record.environment) if pattern.search(line))
            else:
                yield from (None for line in own_lines(path, record.environment) if pattern.search(line))


def _within(at: int | None, window: tuple[int, int] | None) -> bool:
    return at is not None and window is not None and window[0] <= at <= window[1]


def not_tried(record: RunRecord, judgement: Judgement) -> str | None:
    """Why a run without the finding says nothing about it, or None."""
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
