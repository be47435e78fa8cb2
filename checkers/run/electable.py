# SPDX-License-Identifier: Apache-2.0
"""Times in which nobody could serve, because each replica in sync was away: an excuse for a silence.

RocketMQ's controllers elect only members of the SyncStateSet (`DefaultElectPolicy.elect`, unless
`enableElectUncleanMaster`). If all of these are down, cut off, or halted by a fault, the group has no master until one
of them returns, although a majority of its brokers is up. Otherwise it would lose messages: this is no defect.

The set must be small for a reason. A broker outside it that no fault had struck within the limit had the time to catch
up, so the set is too small by a defect (docs/findings/25-an-election-leaves-a-set-of-one.md), and service is owed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from checkers.base.impairment import is_away
from results.fault_intervals import FaultInterval
from results.figures import SECOND
from results.record import RunRecord

_KIND: Final = "broker"
_FRESH_NS: Final = 5 * SECOND
"""The greatest age of the report that shows the set at the beginning of a stretch. Reports come about once a second."""


class Electable:
    """The SyncStateSet as reported during a run, beside the faults.

    nodes     those that must hear one another. limit: ns that a replica without a fault has to come back into the set.
    changes   times (ns) at which another set than before was reported.
    """

    def __init__(self, run: RunRecord, nodes: Sequence[str], limit: int) -> None:
        self._nodes, self._limit = nodes, limit
        self._brokers = _brokers(run)
        reports = [o for o in run.observations if isinstance(o.extra.get("in_sync"), list)] if self._brokers else []
        self._times = [o.time for o in reports]
        self._sets = [frozenset(map(str, o.extra["in_sync"])) for o in reports]
        moments = zip(self._times[1:], self._sets, self._sets[1:], strict=False)
        self.changes: Sequence[int] = [at for at, before, now in moments if before != now]

    def nobody(self, start: int, end: int, found: Iterable[FaultInterval]) -> bool:
        """True if from `start` to `end` (ns) the faults kept each replica in sync from serving, and had struck each
        other replica shortly before. False where no report shows the set.
        """
        first, last = bisect_right(self._times, start) - 1, bisect_left(self._times, end)
        if first < 0 or self._times[first] < start - _FRESH_NS:
            return False
        in_sync = frozenset[str]().union(*self._sets[first : max(last, first + 1)])
        faults = [one for one in found if one.seen and one.start_ns <= start]
        lasting = [one for one in faults if one.end_ns is None or one.end_ns >= end]
        if not in_sync or not all(self._away(node, lasting) for node in in_sync):
            return False
        since = min(one.start_ns for one in lasting if any(self._away(node, [one]) for node in in_sync))
        before = [one for one in faults if one.covers(since - self._limit, since)]
        return all(any(self._away(node, [one]) for one in before) for node in self._brokers - in_sync)

    def _away(self, node: str, active: Collection[FaultInterval]) -> bool:
        return is_away(node, _KIND, self._nodes, active)


def _brokers(run: RunRecord) -> frozenset[str]:
    """The brokers of the only group, if its masters come from the set; else none."""
    groups = list(run.deployment.groups.values())
    return frozenset(groups[0]) if run.deployment.traits.elects_in_sync and len(groups) == 1 else frozenset()
