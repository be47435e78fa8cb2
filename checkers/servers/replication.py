# SPDX-License-Identifier: Apache-2.0
"""Judges that every follower receives entries: one that is up and connected to its leader must get the committed ones.

The check uses the statuses of the nodes during the load, before any restart. If a follower's log does not grow for
longer than the limit although its leader commits, the follower is starved. Clients see nothing, because the group
serves until a fault hits one of the other followers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checkers.base.evidence import nodes_at
from checkers.base.legality import conclude, summary_of
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND
from results.record import Observation, RunRecord
from results.verdict import Anomaly, CheckResult, Verdict


@dataclass
class _Stand:
    """A follower's log that stands still (`since`, `until`: ns), and the leader at that time."""

    since: int
    end: int
    leader: str
    until: int = 0
    committed: int = -1


class Replication:
    """`limit_s`: the longest time that a follower's log may stand still while its leader commits, both connected."""

    name = "replication"

    def __init__(self, limit_s: float) -> None:
        self.limit = int(limit_s * SECOND)

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `longest_stand_s`: node -> the longest time for which it was starved."""
        stop = next((op.time for op in run.history if op.f == "restart-all"), None)
        seen = [o for o in run.observations if stop is None or o.time < stop]
        if not any(o.role == "leader" for o in seen):
            return CheckResult(self.name, Verdict.UNKNOWN, "no leader was ever seen")
        stands = list(_stands(seen, fault_intervals(run.history)))
        longest: dict[str, float] = {}
        for node, stand in stands:
            longest[node] = max(longest.get(node, 0.0), round((stand.until - stand.since) / SECOND, 1))
        stats = {"longest_stand_s": longest}
        starved = [_tell(run, node, s, self.limit) for node, s in stands if s.until - s.since >= self.limit]
        reason = f"no follower's log stopped for more than {max(longest.values(), default=0.0):.1f} s"
        return conclude(self.name, run, starved, stats, reason, invalid=summary_of(starved))


def _stands(seen: Sequence[Observation], found: Sequence[FaultInterval]) -> Iterator[tuple[str, _Stand]]:
    """Yields every time in which a node's log stood still while its leader had committed more."""
    leader: Observation | None = None
    standing: dict[str, _Stand] = {}
    for o in seen:
        if o.role == "leader" and (leader is None or (o.term or 0) >= (leader.term or 0)):
            leader = o
        stand = standing.get(o.node)
        if leader is not None and o.end is not None and _starved(o, leader, found):
            committed = leader.committed or -1
            if stand is not None and (stand.end, stand.leader) == (o.end, leader.node):
                stand.until, stand.committed = o.time, committed
                continue
            standing[o.node] = _Stand(o.time, o.end, leader.node, o.time, committed)
        else:
            standing.pop(o.node, None)
        if stand is not None:
            yield o.node, stand
    yield from standing.items()


def _starved(o: Observation, leader: Observation, found: Sequence[FaultInterval]) -> bool:
    """True if a node lacks entries that its leader has committed, although no fault stops or separates the two."""
    if o.node == leader.node or o.end is None or leader.committed is None or o.end >= leader.committed:
        return False
    pair = {o.node, leader.node}
    active = [interval for interval in found if interval.covers(o.time, o.time)]
    return not any(pair.intersection(interval.impairs.get(node, ())) for interval in active for node in pair)


def _tell(run: RunRecord, node: str, stand: _Stand, limit: int) -> Anomaly:
    seconds = (stand.until - stand.since) / SECOND
    return Anomaly(
        "starved-follower",
        f"{node}'s log stopped at index {stand.end} for {seconds:.0f} s (limit {limit / SECOND:g} s) although it was "
        f"up and connected to {stand.leader}, which was leader and committed up to {stand.committed} meanwhile",
        window=(stand.since, stand.until),
        details={"node": node, "nodes": nodes_at(run, stand.until, [node, stand.leader])},
        limit_s=limit / SECOND,
    )
