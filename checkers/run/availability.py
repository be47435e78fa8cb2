# SPDX-License-Identifier: Apache-2.0
"""Judges that the service recovers: `unavailable` and `never-recovered` (design.md, section 3).

The check covers the time before the restart for the final reads. Within the limit after a heal (or, without an active
fault, after the last acknowledgement), an operation must be acknowledged, as long as a majority of the nodes is up and
connected. Of a fault with spells (a rolling restart) only these count, each with the server that is down then. A server
that ended after a fault had damaged its files is not up. If a fault leaves such a majority and
lasts longer than the limit, the group must serve during the fault. A group that serves again only when its frozen
leader continues has not failed over. Time in which no client sends a request is not counted, nor is time in which no
replica in sync could serve (`checkers.run.electable`).

Of several replica groups, each owes a service of its own: while all its nodes are up, connected to one another and to
the clients, and the quorums have their majorities. (The rule of one group, a majority, is none for a group of two, nor
for one whose slaves only stand in.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from checkers.base.evidence import nodes_at
from checkers.base.impairment import ended_by_damage, majority_connected, sides
from checkers.base.legality import conclude, summary_of
from checkers.run.electable import Electable
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND, clock
from results.op import INVOKE, Op
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Excuse, Verdict


@dataclass(frozen=True, slots=True)
class _Outage:
    """A silence while a majority was up and connected. Times in ns; `last`: to the end, past every heal; `outlasted`:
    it did not end before the heal of the fault that had begun it. group: one of several replica groups, whose nodes
    were all up and connected; None: the whole cluster.
    """

    start: int
    end: int
    attempts: int
    last: bool
    outlasted: bool = False
    group: str | None = None


@dataclass(frozen=True, slots=True)
class _Course:
    """The basis for judging a run's silences: faults, moments at which faults or requests begin or end, invocations of
    clients, the times in which clients send requests (`_asking`), ends of heals and their beginnings (ns).

    owes       True if service is owed while these faults are active.
    electable  whether the replicas in sync could serve; None: that is not asked.
    """

    fault_intervals: Sequence[FaultInterval]
    moments: Sequence[int]
    tries: Sequence[int]
    asking: Sequence[tuple[int, int]]
    heals: Sequence[int]
    healing: Sequence[int]
    owes: Callable[[Sequence[FaultInterval]], bool]
    electable: Electable | None = None


class Availability:
    """`limit_s`: the longest time until an acknowledgement. `nodes`: all nodes of the group.

    `acknowledges`: True for completions that prove service (`harness.api.Workload.acknowledges`). `quorums`: see
    `results.deployment.DeploymentRecord`; None: one kind of servers, on every node. `group_of`: the replica group that
    an op asked for service; None: groups are not judged one by one.
    """

    name = "availability"

    def __init__(
        self,
        nodes: Sequence[str],
        limit_s: float,
        acknowledges: Callable[[Op], bool],
        quorums: Mapping[str, Collection[str]] | None = None,
        group_of: Callable[[Op], str | None] | None = None,
    ) -> None:
        self.nodes, self.quorums, self.group_of = tuple(nodes), quorums, group_of
        self.limit = int(limit_s * SECOND)
        self.acknowledges = acknowledges

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `longest_silence_s`, `acks`, and per strike: `recovery_s`, seconds from its heal to the next ack;
        `failover_s`, seconds from its injection to the next ack; `sides`: part of the cut nodes -> seconds to the first
        ack by one of them while it was active (`during_s`), and after its heal (`after_s`). None: no such ack.
        """
        ops = _before_restart(run)
        end = ops[-1].time if ops else 0
        acknowledged = [op for op in ops if op.is_client and op.type != "invoke" and self.acknowledges(op)]
        acks = [op.time for op in acknowledged]
        tries = [op.time for op in ops if op.is_client and op.type == "invoke"]
        if not tries:
            return CheckResult(self.name, Verdict.UNKNOWN, "no client op was invoked")
        found = fault_intervals(run.history)
        parts = [part for interval in found for part in interval.parts()]
        heals = sorted(s.end_ns for s in parts if s.end_ns is not None and s.end_ns <= end)
        gaps = list(zip([tries[0], *acks], [*acks, end], strict=True))
        healing = [op.time for op in run.history.nemesis if op.f == "heal" and op.type == "invoke"]
        ended = ended_by_damage(run.history, parts, self.quorums)
        asking = _asking(ops, end, self.limit // 3)
        edges = {t for s in (*parts, *ended) for t in (s.start_ns, s.end_ns) if t is not None}
        electable = Electable(run, self.nodes, self.limit)
        moments = sorted(edges | {t for pair in asking for t in pair} | set(electable.changes))
        course = _Course([*parts, *ended], moments, tries, asking, heals, healing, self._majority, electable)
        outages = [o for a, b in gaps for o in self._outages(course, a, b, b == end)]
        anyway = [o for a, b in gaps for o in self._outages(replace(course, electable=None), a, b, b == end)]
        recovery = {f"{s.fault} {s.id}": _recovery(s, acks) for s in found if s.end_ns is not None}
        longest = max((b - a for a, b in gaps), default=0) / SECOND
        stats = {
            "longest_silence_s": round(longest, 3),
            "acks": len(acks),
            "recovery_s": recovery,
            "failover_s": {f"{s.fault} {s.id}": _after(s.start_ns, acks) for s in found},
            "sides": self._sides(found, acknowledged),
        }
        alone = [o for o in self._of_groups(run, ops, course) if not any(_overlap(o, one) for one in outages)]
        anomalies = [self._tell(run, o) for o in [*outages, *alone]]
        unknown = None
        if not acks:
            unknown = "no operation was ever acknowledged"
        elif heals and acks[-1] < heals[-1]:
            seconds = (end - heals[-1]) / SECOND
            unknown = f"no operation acknowledged after the last heal, but only {seconds:.1f} s were observed"
        slowest = max((r for r in recovery.values() if r is not None), default=None)
        # A silence may be longer than the limit and valid: the limit runs from the heal of the fault in it.
        reason = (
            ""
            if slowest is None
            else f"; slowest acknowledgement after a heal: {slowest:.1f} s (limit {self.limit / SECOND:g} s)"
        )
        long = [(a, b) for a, b in gaps if b - a >= self.limit]
        owed = max((right - left for a, b in long for _, left, right in self._owed(course, a, b)), default=0) / SECOND
        excused = [o for o in anyway if not any(_overlap(o, one) for one in outages)]
        excuses = _none_in_sync(excused, self.limit)
        silent = [(a, b) for a, b in long if not any(a <= o.start < b for o in excused)]
        if silent and not anomalies and unknown is None:
            why = "faults, or pauses of the clients, began again before the limit was over"
            excuses.append(Excuse("silence-under-faults", len(silent), why, self.limit / SECOND, owed))
            reason = f" (service was owed for at most {owed:.1f} s of it without a break: {why}){reason}"
        reason = f"longest silence {longest:.1f} s{reason}"
        invalid = summary_of(anomalies[-1:])
        return conclude(self.name, run, anomalies, stats, reason, unknown, invalid=invalid, excuses=excuses)

    def _majority(self, active: Sequence[FaultInterval]) -> bool:
        return majority_connected(self.nodes, active, self.quorums)

    def _whole(self, members: Collection[str], active: Sequence[FaultInterval]) -> bool:
        return self._majority(active) and not _any_struck(members, active)

    def _of_groups(self, run: RunRecord, ops: Sequence[Op], course: _Course) -> Iterator[_Outage]:
        """Yields the outages of each of several replica groups. Only requests of the kinds that are ever acknowledged
        count: others need no master.
        """
        groups = run.deployment.groups
        if self.group_of is None or len(groups) < 2:
            return
        end = ops[-1].time
        kinds = {op.f for op in ops if op.is_client and self.acknowledges(op)}
        asked: dict[str, list[Op]] = {}
        for op in ops:
            group = self.group_of(op) if op.is_client and op.f in kinds else None
            if group is not None and group in groups:
                asked.setdefault(group, []).append(op)
        for group, own in asked.items():
            members = groups[group]
            acks = [op.time for op in own if op.type != INVOKE and self.acknowledges(op)]
            tries = [op.time for op in own if op.type == INVOKE]
            asking = _asking(own, end, self.limit // 3)
            theirs = replace(
                course,
                moments=sorted({*course.moments, *(t for pair in asking for t in pair)}),
                tries=tries,
                asking=asking,
                owes=partial(self._whole, members),
                electable=None,
            )
            for a, b in zip([tries[0], *acks], [*acks, end], strict=True):
                for outage in self._outages(theirs, a, b, b == end):
                    yield replace(outage, group=group)

    def _outages(self, course: _Course, a: int, b: int, at_end: bool) -> list[_Outage]:
        """The maximal stretches of the silence [a, b], as long as the limit, with a majority connected and clients that
        send requests.
        """
        outages: list[_Outage] = []
        for begin, left, right in self._owed(course, a, b) if b - a >= self.limit else ():
            attempts = bisect_right(course.tries, right) - bisect_left(course.tries, left)
            if right - left >= self.limit and attempts:
                heals = course.heals
                last = at_end and right == b and (not heals or b - max(left, heals[-1]) >= self.limit)
                outages.append(_Outage(left, right, attempts, last))
            else:
                edges = sorted({a, *(t for t in course.moments if a < t < b)})
                outages += self._outlasted(course, [e for e in edges if begin <= e < right], right)
        return outages

    def _owed(self, course: _Course, a: int, b: int) -> Iterator[tuple[int, int, int]]:
        """Yields the stretches of the silence [a, b] with a connected majority and requests of clients: (begin, start
        of the limit, end).
        """
        found = course.fault_intervals
        edges = sorted({a, *(t for t in course.moments if a < t < b)})
        stretches: list[tuple[int, int]] = []
        for left, right in zip(edges, [*edges[1:], b], strict=True):
            active = [s for s in found if s.start_ns <= left and (s.end_ns is None or s.end_ns > left)]
            asked = any(begin <= left < until for begin, until in course.asking)
            if not asked or not course.owes(active):
                continue
            if course.electable is not None and course.electable.nobody(left, right, found):
                continue
            if stretches and stretches[-1][1] == left:
                stretches[-1] = (stretches[-1][0], right)
            else:
                stretches.append((left, right))
        for begin, right in stretches:
            # The limit runs from a heal (also from the one that brings the majority back), and continues when a later
            # fault leaves a majority connected; it runs from the last acknowledgement only if no fault explains
            # the silence that followed.
            troubled = any(s.start_ns < begin + self.limit and (s.end_ns is None or s.end_ns > begin) for s in found)
            yield begin, next((h for h in course.heals if begin <= h < right), right) if troubled else begin, right

    def _outlasted(self, course: _Course, edges: Sequence[int], right: int) -> Iterator[_Outage]:
        """Yields stretches of a silence, as long as the limit, in which no fault began or ended."""
        for start, end in zip(edges, [*edges[1:], right], strict=True):
            attempts = bisect_right(course.tries, end) - bisect_left(course.tries, start)
            if end - start >= self.limit and attempts:
                outlasted = any(start + self.limit <= h <= end for h in course.healing)
                yield _Outage(start, end, attempts, False, outlasted)

    def _sides(
        self, found: Sequence[FaultInterval], acks: Sequence[Op]
    ) -> dict[str, dict[str, dict[str, float | None]]]:
        """The `sides` in `stats`, for every strike that cuts nodes off from one another, or stops some."""
        by_node: dict[str, list[int]] = {}
        for op in acks:
            by_node.setdefault(str(op.extra.get("node")), []).append(op.time)
        felt: dict[str, dict[str, dict[str, float | None]]] = {}
        for interval in found:
            parts = sides(self.nodes, interval)
            if len(parts) > 1 or (parts and len(parts[0]) < len(self.nodes)):
                about = felt[f"{interval.fault} {interval.id}"] = {}
                for part in parts:
                    times = sorted(t for node in part for t in by_node.get(node, ()))
                    during = [t for t in times if interval.end_ns is None or t <= interval.end_ns]
                    about[" ".join(part)] = {
                        "during_s": _after(interval.start_ns, during),
                        "after_s": None if interval.end_ns is None else _after(interval.end_ns, times),
                    }
        return felt

    def _tell(self, run: RunRecord, outage: _Outage) -> Anomaly:
        members = self.nodes if outage.group is None else tuple(run.deployment.groups[outage.group])
        nodes = nodes_at(run, outage.end, members)
        leaders = [
            f"{n} (term {reported.get('term')})" for n, reported in nodes.items() if reported.get("role") == "leader"
        ]
        seconds = (outage.end - outage.start) / SECOND
        alone = self._without_leader(run, outage, members) / SECOND
        who = f"{' and '.join(leaders)} reported to be leader" if leaders else "no node reported to be leader"
        if leaders and alone >= 1:
            who = f"no node reported to be leader for {alone:.1f} s of it; at its end, {who}"
        tail = ", up to the end of the run" if outage.last else ""
        if outage.outlasted:
            tail = ", as long as the fault was active: no other node took over"
        up = "a majority of the nodes was" if outage.group is None else "all its nodes were"
        whose = "" if outage.group is None else f" of broker group {outage.group}"
        summary = (
            f"no operation{whose} was acknowledged for {seconds:.1f} s from {clock(outage.start)}{tail} (limit "
            f"{self.limit / SECOND:g} s) although {up} up and connected; {outage.attempts} ops were tried; {who}"
        )
        tried = [
            op.index
            for op in run.history.clients
            if op.type != "invoke"
            and outage.start < op.time <= outage.end
            and (outage.group is None or self.group_of is None or self.group_of(op) == outage.group)
        ]
        details: dict[str, Any] = {
            "nodes": nodes,
            "attempts": outage.attempts,
            "seconds": round(seconds, 3),
            "leaderless_s": round(alone, 3),
            **({} if outage.group is None else {"group": outage.group}),
        }
        return Anomaly(
            "never-recovered" if outage.last or outage.outlasted else "unavailable",
            summary,
            ops=sorted({*tried[:3], *tried[-3:]}),
            window=(outage.start, outage.end),
            details=details,
            limit_s=self.limit / SECOND,
        )

    def _without_leader(self, run: RunRecord, outage: _Outage, members: Collection[str]) -> int:
        """The time (ns) of an outage in which none of these nodes reported to be leader."""
        leads: dict[str, bool] = {}
        alone, since = 0, outage.start
        for seen in run.observations:
            if seen.node not in members:
                continue
            if seen.time >= outage.end:
                break
            if seen.time > since:
                alone += 0 if any(leads.values()) else seen.time - since
                since = seen.time
            leads[seen.node] = seen.role == "leader"
        return alone + (0 if any(leads.values()) else outage.end - since)


def _overlap(one: _Outage, other: _Outage) -> bool:
    return one.start < other.end and other.start < one.end


def _any_struck(members: Collection[str], active: Iterable[FaultInterval]) -> bool:
    """True if a fault that is active touches one of these nodes."""
    return any(
        {
            *(place.partition(" ")[0] for place in one.nodes),
            *one.impairs,
            *(peer for peers in one.impairs.values() for peer in peers),
        }
        & set(members)
        or any(effect.node in members for effect in one.effects)
        for one in active
    )


def _none_in_sync(excused: Sequence[_Outage], limit: int) -> list[Excuse]:
    """The excuse for outages that count only where replicas out of sync may lead."""
    if not excused:
        return []
    longest = max(o.end - o.start for o in excused) / SECOND
    why = f"every replica in sync was down, cut off or halted, for at most {longest:.1f} s, and only these may lead"
    return [Excuse("none-in-sync", len(excused), why, limit / SECOND)]


def _before_restart(run: RunRecord) -> list[Op]:
    """The ops up to the restart of all servers (or the final phase): after it, recovery is not the service's own."""
    ops: list[Op] = []
    for op in run.history:
        if op.f == "restart-all" or op.extra.get("phase") == "final":
            break
        ops.append(op)
    return ops


def _asking(ops: Sequence[Op], end: int, idle: int) -> list[tuple[int, int]]:
    """The times with requests of clients: from an invocation to its completion. Pauses of at most `idle` ns between two
    requests, or before `end`, count as well. Longer silence of the clients proves nothing about the servers.
    """
    open_since: dict[int, int] = {}
    spans: list[tuple[int, int]] = []
    for op in ops:
        if not op.is_client:
            continue
        if op.type == INVOKE:
            open_since[op.process] = op.time
            spans.append((op.time, op.time))
        else:
            spans.append((open_since.pop(op.process, op.time), op.time))
    found: list[tuple[int, int]] = []
    for begin, until in sorted(spans):
        if found and begin - found[-1][1] <= idle:
            found[-1] = (found[-1][0], max(found[-1][1], until))
        else:
            found.append((begin, until))
    if found and end - found[-1][1] <= idle:
        found[-1] = (found[-1][0], end)
    return found


def _recovery(interval: FaultInterval, acks: Sequence[int]) -> float | None:
    return _after(interval.end_ns or 0, acks)


def _after(moment: int, acks: Sequence[int]) -> float | None:
    """Seconds from a moment to the first acknowledgement after it."""
    at = bisect_right(acks, moment)
    return round((acks[at] - moment) / SECOND, 3) if at < len(acks) else None
