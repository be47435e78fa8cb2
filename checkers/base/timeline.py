# SPDX-License-Identifier: Apache-2.0
"""The context of a time: the active faults, the masters, and other facts for the description of an anomaly."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from checkers.base.evidence import nodes_at
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND, clock
from results.record import RunRecord
from results.strikes import EffectKind

_WITH_NODES = 6


@dataclass(frozen=True, slots=True)
class MasterPeriod:
    """A node that reported itself as master with an epoch, from the first to the last such report (ns)."""

    node: str
    epoch: int | None
    since: int
    until: int

    def __str__(self) -> str:
        epoch = "" if self.epoch is None else f" (epoch {self.epoch})"
        return f"{self.node}{epoch} {clock(self.since)} to {clock(self.until)}"


class RunTimeline:
    """Faults and masters of a run."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self._descriptions = 0

    @cached_property
    def fault_intervals(self) -> Sequence[FaultInterval]:
        """The faults of the run."""
        return fault_intervals(self.run.history)

    @cached_property
    def master_periods(self) -> Sequence[MasterPeriod]:
        """The nodes that reported themselves as master, in order of time."""
        return sorted(self._master_periods(), key=lambda r: (r.since, r.node))

    @cached_property
    def _reported(self) -> dict[str, list[tuple[int, str, int | None]]]:
        reported: dict[str, list[tuple[int, str, int | None]]] = {}
        for seen in self.run.observations:
            reported.setdefault(seen.node, []).append((seen.time, seen.role, seen.term))
        return reported

    @cached_property
    def _groups(self) -> dict[str, str]:
        """node -> its broker group, if it reported one."""
        named = ((seen.node, seen.extra.get("broker_name")) for seen in self.run.observations)
        return {node: group for node, group in named if isinstance(group, str)}

    def in_force(self, start: int, end: int) -> list[FaultInterval]:
        """The faults that may have had an effect between two moments (ns)."""
        return [interval for interval in self.fault_intervals if interval.covers(start, end)]

    def at_group(self, group: str | None, start: int, end: int) -> list[FaultInterval]:
        """Those that may have had one on a broker of a group; if the faults or the group name no nodes, all."""
        nodes = set(self.run.deployment.groups.get(group or "", ()))
        return [
            interval
            for interval in self.in_force(start, end)
            if not nodes or nodes & {*interval.nodes, *interval.impairs} or not (interval.nodes or interval.impairs)
        ]

    def between(self, group: str | None, start: int, end: int) -> list[FaultInterval]:
        """Those that may have had one between a broker group and its clients: at one of its brokers, at a proxy, or at
        a node that has no server, so one of applications. All of them if the faults or the group name no nodes, or if a
        slave may act as the master: such a slave stores what it must write in other groups, too.
        """
        record = self.run.deployment
        near = {*record.groups.get(group or "", ()), *(server.node for server in record.having("proxy"))}
        if group not in record.groups or record.traits.acting_master:
            return self.in_force(start, end)
        found = []
        for interval in self.in_force(start, end):
            struck = {place.partition(" ")[0] for place in interval.nodes} | {*interval.impairs}
            struck |= {effect.node for effect in interval.effects}
            if not struck or struck & near or not struck <= {*record.nodes}:
                found.append(interval)
        return found

    def masters_of(self, group: str | None) -> list[MasterPeriod]:
        """The nodes that reported themselves as master of a broker group (None: of any), in order of time."""
        return [r for r in self.master_periods if group is None or self._groups.get(r.node, group) == group]

    def master_changes(self, group: str | None) -> list[tuple[int, int]]:
        """The changes of the master of a broker group (None: of any), in order: each is after the last report of one
        and not after the first report of the next (ns).
        """
        return [(min(old.until, new.since), new.since) for old, new in pairwise(self.masters_of(group))]

    def changed_master(self, group: str | None, start: int, end: int) -> bool:
        """True if the master of a broker group may have changed between two moments (ns)."""
        return any(earliest <= end and start < latest for earliest, latest in self.master_changes(group))

    def masters(self, start: int, end: int, group: str | None = None, margin_s: float = 10) -> list[MasterPeriod]:
        """The nodes that reported themselves as master around an interval, of a broker group or of all."""
        margin = int(margin_s * SECOND)
        return [r for r in self.masters_of(group) if r.since <= end + margin and r.until >= start - margin]

    def stayed_master(self, node: str, start: int, end: int) -> bool:
        """True unless a fault or a report shows that the node was not the same master all through an interval."""
        if any(node in interval.nodes or node in interval.impairs for interval in self.in_force(start, end)):
            return False
        reported = [
            (role, term)
            for time, role, term in self._reported.get(node, ())
            if start - 2 * SECOND <= time <= end + 2 * SECOND and role != "silent"
        ]
        return len(set(reported)) <= 1 and all(role == "leader" for role, _ in reported)

    def last_absence(self, node: str, time: int, unless: Collection[EffectKind] = ()) -> tuple[int, int] | None:
        """The last time (from, to; ns) before `time` in which a fault hit a node, or the node neither led nor followed.
        A fault with no other effects on it than `unless` does not count.
        """
        hits = [b for b in self.fault_intervals if (node in b.nodes or node in b.impairs) and b.start_ns < time]
        felt = [(b, {e.kind for e in b.effects if e.node == node}) for b in hits]
        faults = [b for b, kinds in felt if not kinds or not kinds <= {*unless}]
        found = [(b.start_ns, time if b.end_ns is None else min(b.end_ns, time)) for b in faults]
        reported = self._reported.get(node, ())
        found += [(at, at) for at, role, _ in reported if at < time and role not in ("leader", "follower")]
        return max(found, key=lambda times: times[1], default=None)

    def describe(self, start: int, end: int, group: str | None = None) -> str:
        """Faults and masters around an interval, as sentences; starts with a space, or is empty."""
        found = self.in_force(start, end)
        reason = f" Active faults: {', '.join(interval.label for interval in found)}." if found else ""
        masters = self.masters(start, end, group)
        return reason + (f" Called itself master: {'; '.join(map(str, masters[:6]))}." if masters else "")

    def details(self, start: int, end: int, group: str | None = None) -> Mapping[str, Any]:
        """`faults`, `masters` and `nodes` (the report of each at the end of the interval) for an anomaly.

        Only the first few have `nodes`: every node's log is read for that.
        """
        self._descriptions += 1
        names = sorted(self._reported) if self._descriptions <= _WITH_NODES else []
        about: dict[str, Any] = {
            "faults": [interval.label for interval in self.in_force(start, end)],
            "masters": [str(r) for r in self.masters(start, end, group)],
        }
        return about | ({"nodes": nodes_at(self.run, end, names)} if names else {})

    def _master_periods(self) -> list[MasterPeriod]:
        found = []
        for node, reported in self._reported.items():
            current: MasterPeriod | None = None
            for time, role, term in reported:
                if role == "silent":
                    continue  # it may have been too slow to answer; the faults show if it was down
                if current is not None and role == "leader" and current.epoch == term:
                    current = MasterPeriod(node, term, current.since, time)
                    continue
                if current is not None:
                    found.append(current)
                current = MasterPeriod(node, term, time, time) if role == "leader" else None
            if current is not None:
                found.append(current)
        return found


def group_of(queue: str) -> str | None:
    """The broker group in a queue's key, `TOPIC:GROUP:QUEUE`."""
    parts = queue.rsplit(":", 2)
    return parts[1] if len(parts) == 3 else None
