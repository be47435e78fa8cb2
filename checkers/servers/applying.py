# SPDX-License-Identifier: Apache-2.0
"""Judges that controllers commit and apply what their group has committed (Ongaro and Ousterhout 2014, section 5.3).

DLedger logs its state every 3 s: `[n1][FOLLOWER] term=2 ... committed=1350 ... appliedIndex=935`. If a member's applied
index stays below its committed index while no fault is active, its state machine is stuck. Its group continues while
another member leads; if it is elected itself, it answers nothing. An entry that cannot be applied stops all members. If
a member's committed index stays below that of the others, it does not follow their leader.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from checkers.base.evidence import stamped_lines
from checkers.base.legality import conclude
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND, many
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_STATE: Final = re.compile(r"committed=(?P<committed>-?\d+) .*appliedIndex=(?P<applied>-?\d+)")

LIMIT_S: Final = 15.0
"""A state machine in memory applies thousands of entries a second."""

BEHIND_LIMIT_S: Final = 30.0
"""A leader sends heartbeats every 2 s. Behind a cut, TCP takes as long again as the cut lasted."""

_FRESH: Final = 10 * SECOND
"""An older report proves nothing about the current state of its member."""

Told = list[tuple[int, int, int]]
"""(time in ns, index, the index that it must reach) of the reports of one member."""


@dataclass
class _Stand:
    """An index of a member stood still, below the one that it must reach, from one report to another (ns)."""

    node: str
    index: int
    goal: int
    since: int
    until: int
    at_end: bool = False

    @property
    def seconds(self) -> float:
        return (self.until - self.since) / SECOND


class Applying:
    """`stuck-state-machine` and `controller-left-behind`."""

    name = "applying"
    order = 50

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """True if a controller logged its applied index."""
        return any(True for node, path in _logs(run) for _ in _reports(run, path))

    def check(self, run: RunRecord) -> CheckResult:
        """At most one anomaly of each kind a node. `stats`: `reports` of an applied index; `longest_s`, `behind_s`: the
        longest time that, without a fault, an applied index stood still below the committed one, and a committed index
        below that of another member.
        """
        found = fault_intervals(run.history)
        told: dict[str, Told] = {}
        for node, path in _logs(run):
            told[node] = sorted([*told.get(node, ()), *_reports(run, path)])
        applied = {node: [(at, done, index) for at, index, done in reports] for node, reports in told.items()}
        stuck, longest = _longest(applied, found)
        behind, late = _longest({node: _beside(node, told) for node in told}, found)
        reports = sum(map(len, told.values()))
        anomalies = [_stuck(stand) for stand in stuck if stand.seconds >= LIMIT_S]
        anomalies += [_behind(stand) for stand in behind if stand.seconds >= BEHIND_LIMIT_S]
        stats = {"reports": reports, "longest_s": round(longest, 1), "behind_s": round(late, 1)}
        reason = (
            f"{many(reports, 'report')}; without a fault, what was committed was applied within {longest:.0f} s, and "
            f"no controller stood still behind the others for more than {late:.0f} s"
        )
        return conclude(self.name, run, anomalies, stats, many(reports, "report") if anomalies else reason)


def _logs(run: RunRecord) -> Iterator[tuple[str, Path]]:
    """Yields (node, log) of controllers, which may be part of a name server. DLedger brokers have no state machine."""
    for server in run.deployment.having("controller"):
        for path in run.logs.get(server.node, ()):
            if path.name in ("controller.log", "namesrv.log"):
                yield server.node, path


def _reports(run: RunRecord, path: Path) -> Iterator[tuple[int, int, int]]:
    """(time in ns, committed, applied) of each report in a log."""
    for stamp, line in stamped_lines(path, run.environment):
        if "appliedIndex=" in line and (found := _STATE.search(line)) and stamp is not None:
            yield stamp, int(found["committed"]), int(found["applied"])


def _beside(node: str, told: Mapping[str, Told]) -> Told:
    """The committed index of a node, beside the highest one that another member reported shortly before."""
    others = sorted(report[:2] for other, reports in told.items() if other != node for report in reports)
    times = [at for at, _ in others]
    found = []
    for at, committed, _ in told[node]:
        recent = others[bisect_left(times, at - _FRESH) : bisect_right(times, at)]
        found.append((at, committed, max((index for _, index in recent), default=committed)))
    return found


def _longest(told: Mapping[str, Told], found: list[FaultInterval]) -> tuple[list[_Stand], float]:
    """The longest stand of each node, and the longest of all (s)."""
    worst: dict[str, _Stand] = {}
    for node, reports in told.items():
        for stand in list(_stands(node, reports, found)):
            if node not in worst or stand.seconds >= worst[node].seconds:
                worst[node] = stand
    return list(worst.values()), max((stand.seconds for stand in worst.values()), default=0.0)


def _stands(node: str, told: Told, found: list[FaultInterval]) -> Iterator[_Stand]:
    """Yields stands that still grow afterwards: the caller collects all of them before it reads one."""
    current: _Stand | None = None
    last = 0
    for at, index, goal in told:
        fault = any(interval.covers(last if current else at, at) for interval in found)
        if index >= goal or fault:
            current = None
        elif current is None or index != current.index:
            current = _Stand(node, index, goal, at, at)
            yield current
        else:
            current.until, current.goal = at, goal
        last = at
    if current is not None:
        current.at_end = True


def _stuck(stand: _Stand) -> Anomaly:
    return _tell(
        "stuck-state-machine",
        stand,
        f"applied no entry for {_so_long(stand, LIMIT_S)}, although no fault was active: its applied index is "
        f"{stand.index}, and its committed index {stand.goal}",
        {"applied": stand.index, "committed": stand.goal},
        LIMIT_S,
    )


def _behind(stand: _Stand) -> Anomaly:
    return _tell(
        "controller-left-behind",
        stand,
        f"committed no entry for {_so_long(stand, BEHIND_LIMIT_S)}, although no fault was active: its committed index "
        f"is {stand.index}, and that of another controller {stand.goal}",
        {"committed": stand.index, "group": stand.goal},
        BEHIND_LIMIT_S,
    )


def _so_long(stand: _Stand, limit_s: float) -> str:
    return f"{stand.seconds:.0f} s{', up to the end' if stand.at_end else ''} (limit {limit_s:g} s)"


def _tell(name: str, stand: _Stand, what: str, details: dict[str, int], limit_s: float) -> Anomaly:
    return Anomaly(
        name,
        f"the controller of {stand.node} {what}",
        window=(max(0, stand.since), max(0, stand.until)),
        details={"node": stand.node, **details},
        limit_s=limit_s,
    )
