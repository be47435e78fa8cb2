# SPDX-License-Identifier: Apache-2.0
"""Judges that every replica returns to the SyncStateSet, and that the set settles (RocketMQ's controller mode).

The controllers' leader reports the brokers in sync (`Observation.extra["in_sync"]`). If a broker is up and connected,
but not in the set within the limit, the group survives one failure less: with `allAckInSyncStateSet` nothing waits for
it, and it cannot be elected. A broker that ended by itself is not up; `checkers.servers.deaths` reports it.

Each change of the set raises its epoch (`in_sync_epoch`). A change is due when a slave falls behind for
`haMaxTimeSlaveNotCatchup` (15 s), loses its connection (it waits 5 s before the next), or has caught up again. So four
slaves account for less than 50 changes in 30 s, whatever the fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from checkers.base.evidence import nodes_at
from checkers.base.legality import conclude
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND
from results.op import SERVER_DIED, Op
from results.record import Observation, RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

_CHANGES: Final = 60
_WITHIN: Final = 30 * SECOND
"""More changes than `_CHANGES` within this time are too many."""


@dataclass
class _Absence:
    """A broker outside the set from one observation to another, with no active fault."""

    node: str
    since: int
    until: int
    in_sync: Sequence[str]
    epoch: int | None
    at_end: bool = False


class SyncState:
    """`limit_s`: the longest time that a broker may be out of the SyncStateSet while no fault is active."""

    name = "sync-state"

    def __init__(self, limit_s: float) -> None:
        self.limit = int(limit_s * SECOND)

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `brokers`; `out_s`: broker -> the longest time it was out while no fault was active; `changes`: the
        most changes of the set within 30 s.
        """
        brokers = sorted({o.node for o in run.observations if o.extra.get("broker_name") is not None})
        reports = [o for o in run.observations if isinstance(o.extra.get("in_sync"), list)]
        if not brokers or not reports:
            return CheckResult(self.name, Verdict.UNKNOWN, "no controller ever reported the SyncStateSet")
        found = fault_intervals(run.history)
        absences = [a for a in _absences(brokers, reports, found) if not _dead(run, a)]
        longest: dict[str, float] = {}
        for absence in absences:
            longest[absence.node] = max(
                longest.get(absence.node, 0), round((absence.until - absence.since) / SECOND, 1)
            )
        rises = list(_rises([o for o in reports if isinstance(o.extra.get("in_sync_epoch"), int)]))
        changes = max((_epoch(last) - _epoch(first) for first, last in rises), default=0)
        stats = {"brokers": brokers, "out_s": longest, "changes": changes}
        left = [self._tell(run, a) for a in absences if a.until - a.since >= self.limit]
        above = [(first, last) for first, last in rises if _epoch(last) - _epoch(first) > _CHANGES]
        if above:
            left.append(_tell_unsettled(above[0][0], above[-1][1], changes))
        worst = max(longest.values(), default=0.0)
        short = sorted({a.node for a in absences if a.at_end and a.until - a.since < self.limit})
        unknown = None
        if short:
            unknown = f"{', '.join(short)} not in sync at the end, but observed for less than {self.limit / SECOND:g} s"
        reason = f"{len(brokers)} brokers; none was out of the SyncStateSet for more than {worst:.1f} s without a fault"
        return conclude(self.name, run, left, stats, f"{len(brokers)} brokers" if left else reason, unknown)

    def _tell(self, run: RunRecord, absence: _Absence) -> Anomaly:
        seconds = (absence.until - absence.since) / SECOND
        epoch = "" if absence.epoch is None else f", epoch {absence.epoch}"
        tail = ", up to the end" if absence.at_end else ""
        names = sorted({o.node for o in run.observations})
        return Anomaly(
            "replica-left-behind",
            f"{absence.node} stayed outside the SyncStateSet ({', '.join(absence.in_sync) or 'empty'}{epoch}) for "
            f"{seconds:.0f} s{tail} (limit {self.limit / SECOND:g} s), although it was up and no fault was active",
            window=(absence.since, absence.until),
            details={"node": absence.node, "nodes": nodes_at(run, absence.until, names), "seconds": round(seconds, 1)},
            limit_s=self.limit / SECOND,
        )


def _tell_unsettled(first: Observation, last: Observation, most: int) -> Anomaly:
    seconds = (last.time - first.time) / SECOND
    return Anomaly(
        "unsettled-sync-state-set",
        f"the SyncStateSet changed {_epoch(last) - _epoch(first)} times in {seconds:.0f} s (epoch {_epoch(first)} to "
        f"{_epoch(last)}), up to {most} times within 30 s; it takes in slaves and drops them again without a cause. "
        f"At last it is {', '.join(map(str, last.extra['in_sync'])) or 'empty'}",
        window=(first.time, last.time),
        details={"reports": [first.to_json(), last.to_json()]},
    )


def _rises(reports: Sequence[Observation]) -> Iterator[tuple[Observation, Observation]]:
    """Yields for each report the one of this controller with the lowest epoch in the 30 s before it, and the report
    itself. Another controller, which was cut off, may report an old epoch.
    """
    begin = 0
    for at, seen in enumerate(reports):
        while seen.time - reports[begin].time > _WITHIN:
            begin += 1
        yield min((r for r in reports[begin : at + 1] if r.node == seen.node), key=_epoch), seen


def _epoch(seen: Observation) -> int:
    return int(seen.extra["in_sync_epoch"])


def _dead(run: RunRecord, absence: _Absence) -> bool:
    """True if the broker ended by itself, and gave no answer in all that time."""
    died = [op.time for op in run.history.nemesis if op.f == SERVER_DIED and _is_broker(op, absence.node)]
    answers = (o.time for o in run.observations if o.node == absence.node and "broker_name" in o.extra)
    return any(at <= absence.until for at in died) and not any(absence.since <= at <= absence.until for at in answers)


def _is_broker(died: Op, node: str) -> bool:
    return isinstance(died.value, dict) and (died.value.get("node"), died.value.get("server")) == (node, "broker")


def _absences(brokers: Sequence[str], reports: Sequence[Observation], found: Sequence[FaultInterval]) -> list[_Absence]:
    """The stretches of observations in which a broker was out and no fault was active. Groups of brokers have sets of
    their own: an observation names its group, or concerns all. While no controller leads, no observations exist: a
    fault in such a gap ends the stretch as well.
    """
    absences: list[_Absence] = []
    for node in brokers:
        current: _Absence | None = None
        for seen in reports:
            names = [str(n) for n in seen.extra["in_sync"]]
            if current is not None and any(interval.covers(current.until, seen.time) for interval in found):
                current = None
            if node in names or not names or any(interval.covers(seen.time, seen.time) for interval in found):
                current = None
            elif current is None:
                current = _Absence(node, seen.time, seen.time, names, seen.extra.get("in_sync_epoch"))
                absences.append(current)
            else:
                current.until, current.in_sync = seen.time, names
        if current is not None:
            current.at_end = True
    return absences
