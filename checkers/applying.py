"""Do the controllers apply what was committed? (Raft's state machines: Ongaro and Ousterhout 2014, section 5.3)

DLedger logs its state every 3 s: `[n1][FOLLOWER] term=2 ... committed=1350 ... appliedIndex=935`. If a member's applied
index stays below its committed index while no fault is active, its state machine is stuck. Its group goes on while
another member leads; if it is elected itself, it answers nothing. An entry that cannot be applied stops all members.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from checkers.evidence import stamped_lines
from checkers.legality import settled
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND, many
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_STATE: Final = re.compile(r"committed=(?P<committed>-?\d+) .*appliedIndex=(?P<applied>-?\d+)")

LIMIT_S: Final = 15.0
"""A state machine in memory applies thousands of entries a second."""


@dataclass
class _Stand:
    """A member's applied index stood still, below its committed index, from one report to another (ns)."""

    node: str
    applied: int
    committed: int
    since: int
    until: int
    at_end: bool = False

    @property
    def seconds(self) -> float:
        return (self.until - self.since) / SECOND


class Applying:
    """`stuck-state-machine`."""

    name = "applying"

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """Whether a controller told how far it has applied its log."""
        return any(True for node, path in _logs(run) for _ in _reports(run, path))

    def check(self, run: RunRecord) -> CheckResult:
        """One anomaly a node. `stats`: `reports` of an applied index; `longest_s`: the longest time that one stood
        still, without a fault, below the committed index.
        """
        found = fault_intervals(run.history)
        stands: list[_Stand] = []
        reports = 0
        for node, path in _logs(run):
            told = list(_reports(run, path))
            reports += len(told)
            stands += _stands(node, told, found)
        longest = max((stand.seconds for stand in stands), default=0.0)
        worst = {stand.node: stand for stand in sorted(stands, key=lambda stand: stand.seconds)}
        anomalies = [_tell(stand) for stand in worst.values() if stand.seconds >= LIMIT_S]
        stats = {"reports": reports, "longest_s": round(longest, 1)}
        reason = f"{many(reports, 'report')}; what was committed was applied within {longest:.0f} s without a fault"
        return settled(self.name, run, anomalies, stats, many(reports, "report") if anomalies else reason)


def _logs(run: RunRecord) -> Iterator[tuple[str, Path]]:
    """Those of controllers, which may be part of a name server. A broker with DLedger has no state machine."""
    for server in run.deployment.having("controller"):
        for path in run.logs.get(server.node, ()):
            if path.name in ("controller.log", "namesrv.log"):
                yield server.node, path


def _reports(run: RunRecord, path: Path) -> Iterator[tuple[int, int, int]]:
    """(time in ns, committed, applied) of each report in a log."""
    for stamp, line in stamped_lines(path, run.environment):
        if "appliedIndex=" in line and (found := _STATE.search(line)) and stamp is not None:
            yield stamp, int(found["committed"]), int(found["applied"])


def _stands(node: str, told: list[tuple[int, int, int]], found: list[FaultInterval]) -> Iterator[_Stand]:
    """They grow after they are yielded: the caller takes all of them before it looks at one."""
    current: _Stand | None = None
    last = 0
    for at, committed, applied in told:
        fault = any(interval.covers(last if current else at, at) for interval in found)
        if applied >= committed or fault:
            current = None
        elif current is None or applied != current.applied:
            current = _Stand(node, applied, committed, at, at)
            yield current
        else:
            current.until, current.committed = at, committed
        last = at
    if current is not None:
        current.at_end = True


def _tell(stand: _Stand) -> Anomaly:
    tail = ", up to the end" if stand.at_end else ""
    return Anomaly(
        "stuck-state-machine",
        f"the controller of {stand.node} applied no entry for {stand.seconds:.0f} s{tail} (limit "
        f"{LIMIT_S:g} s), although no fault was active: its applied index is {stand.applied}, and its committed index "
        f"{stand.committed}",
        window=(max(0, stand.since), max(0, stand.until)),
        details={"node": stand.node, "applied": stand.applied, "committed": stand.committed},
        limit_s=LIMIT_S,
    )
