# SPDX-License-Identifier: Apache-2.0
"""Judges that the replicas of every queue agree at the end. Each was read alone, by address, after the last heal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.log.columns import OK, Ints, LogColumns
from checkers.messages.log.outcomes import study
from checkers.messages.log.replica_reads import Reading, ReplicaReads
from checkers.messages.ops import of_messages
from results.figures import SECOND
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Excuse, Verdict

_SHOWN = 20


class Replicas:
    """Compares the final readings of each queue, offset by offset, where two of them overlap.

    `divergent-replicas` if they differ, also if one begins later and nothing permits that
    (`checkers.messages.log.expiry`). One that merely ends earlier is behind (`stats["behind"]`): `replica-left-behind`
    if it lacks acknowledged messages that it had `limit_s` to copy, without a fault or a restart (None: that is not
    judged, as the servers are unknown). `unknown` if a replica could not be read to its end, or none was.
    """

    name = "replicas"

    def __init__(self, limit_s: float | None = None) -> None:
        self.limit = None if limit_s is None else int(limit_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `queues` compared, `messages` in the longest readings, `silent`: nodes that could not be read
        through, `behind`: node -> the number of messages that it lacks at the end of its queues.
        """
        readings = study(run).readings
        found = readings.facts
        scene = RunTimeline(run)
        differ: dict[tuple[str, ...], list[tuple[int, int, Mapping[str, str]]]] = {}
        behind: Counter[str] = Counter()
        messages = queues = 0
        nodes: set[int] = set()
        for queue in range(len(found.queues)):
            held = readings.of(queue)
            if not held:
                continue
            queues += 1
            longest = max(held, key=lambda r: r.end)
            messages += len(longest.id)
            nodes.update(r.node for r in held)
            for reading in held:
                behind[found.node(reading.node)] += longest.end - reading.end
            for offset in _offsets_that_differ(held):
                held_by = {found.node(r.node): _at(found, r, offset) for r in held if r.floor <= offset < r.end}
                differ.setdefault(_odd(held_by), []).append((queue, offset, held_by))
        silent = sorted({found.node(node) for _, node in readings.missing})
        lacks = {node: n for node, n in sorted(behind.items()) if n}
        stats = {"queues": queues, "messages": messages, "silent": silent, "behind": lacks}
        late = {} if self.limit is None else _left_behind(run, readings, scene)
        left = {node: waited for node, waited in late.items() if self.limit is not None and waited >= self.limit}
        anomalies = [_tell(run, found, scene, readings, odd, cases) for odd, cases in list(differ.items())[:_SHOWN]]
        if not queues and not silent:
            return CheckResult(self.name, Verdict.UNKNOWN, "no replica was read", stats=stats)
        unknown = f"{', '.join(silent)} could not be read to the end" if silent else None
        reason = f"{messages:,} messages in {queues} queues identical on {', '.join(sorted(map(found.node, nodes)))}"
        if lacks:
            reason += f"; behind: {', '.join(f'{node} {n:,} messages' for node, n in lacks.items())}"
        anomalies += [_tell_behind(run, node, lacks[node], waited, self.limit or 0) for node, waited in left.items()]
        result = conclude(self.name, run, anomalies, stats, f"{queues} queues read" if anomalies else reason, unknown)
        waiting = {node: waited for node, waited in late.items() if node not in left}
        if not waiting or self.limit is None:
            return result
        why = "a replica had less time than the limit to copy these messages"
        most = max(waiting.values()) / SECOND
        excuse = Excuse("behind", sum(lacks[n] for n in waiting), why, self.limit / SECOND, most)
        return replace(result, excuses=[excuse])


def _left_behind(run: RunRecord, readings: ReplicaReads, scene: RunTimeline) -> dict[str, int]:
    """Node -> the time (ns) that it had to copy the oldest acknowledged message that it lacks at the end of a queue:
    from its acknowledgement, the last heal and the last restart of the servers, to the final read.
    """
    found = readings.facts
    sends, reads = found.sends, found.reads
    calm = [f.end_ns or f.start_ns for f in scene.fault_intervals]
    calm += [op.time for op in run.history.nemesis if op.f.startswith("restart")]
    late: dict[str, int] = {}
    for queue in range(len(found.queues)):
        held = readings.of(queue)
        longest = max((r.end for r in held), default=0)
        for r in held:
            mine = (sends.queue == queue) & (sends.outcome == OK) & (sends.offset >= r.end) & (sends.offset < longest)
            if mine.any():
                since = max([int(sends.t1[mine].min()), *calm])
                node = found.node(r.node)
                late[node] = max(late.get(node, 0), int(reads.t0[r.rows[-1]]) - since)
    return late


def _tell_behind(run: RunRecord, node: str, lacks: int, waited: int, limit: int) -> Anomaly:
    end = run.history[-1].time
    return Anomaly(
        "replica-left-behind",
        f"at the end {node} lacks {lacks:,} messages that other replicas hold, although it had {waited / SECOND:.0f} s "
        f"(limit {limit / SECOND:g} s) without a fault to copy them",
        window=(end - waited, end),
        details={"node": node, "count": lacks},
        limit_s=limit / SECOND,
    )


def _offsets_that_differ(held: Sequence[Reading]) -> list[int]:
    """Offsets that two readings cover with different results (a hole is a result, too)."""
    found: set[int] = set()
    for i, a in enumerate(held):
        for b in held[i + 1 :]:
            begin, end = max(a.floor, b.floor), min(a.end, b.end)
            first, second = _between(a, begin, end), _between(b, begin, end)
            if not np.array_equal(first, second):
                one, two = (set(map(tuple, rows.tolist())) for rows in (first, second))
                found.update(offset for offset, _ in one ^ two)
    return sorted(found)


def _between(reading: Reading, begin: int, end: int) -> Ints:
    """[[offset, id], ...] in order, between two offsets."""
    inside = (reading.offset >= begin) & (reading.offset < end)
    rows = np.column_stack([reading.offset[inside], reading.id[inside]])
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


def _at(found: LogColumns, reading: Reading, offset: int) -> str:
    ids = reading.id[reading.offset == offset]
    return " and ".join(f"message {found.name(int(i))}" for i in ids) if len(ids) else "nothing"


def _odd(reported: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes that differ from the majority; all of them if no majority exists."""
    common, votes = Counter(reported.values()).most_common(1)[0]
    if votes * 2 <= len(reported):
        return tuple(sorted(reported))
    return tuple(sorted(node for node, what in reported.items() if what != common))


def _tell(
    run: RunRecord,
    found: LogColumns,
    scene: RunTimeline,
    readings: ReplicaReads,
    odd: tuple[str, ...],
    cases: Sequence[tuple[int, int, Mapping[str, str]]],
) -> Anomaly:
    queue, offset, held_by = cases[0]
    name = found.queues[queue]
    rows = [r for q, n in readings.all if q == queue and found.node(n) in held_by for r in readings.all[q, n].rows]
    times = [int(t) for r in rows for t in (found.reads.t0[r], found.reads.t1[r])]
    window = (min(times), max(times))
    who = " and ".join(odd) if len(odd) < len(held_by) else "the replicas"
    summary = (
        f"at the end {who} {'differs' if len(odd) == 1 else 'differ'} at {len(cases):,} offsets of "
        f"{len({q for q, _, _ in cases})} queues; at offset {offset} of {name}: "
        f"{', '.join(f'{node} holds {what}' for node, what in sorted(held_by.items()))}"
    )
    listed = [{"queue": found.queues[q], "offset": o, **held} for q, o, held in cases[:50]]
    details = {"count": len(cases), "first": listed, **scene.details(*window)}
    ops = [int(found.reads.start[r]) for r in _showing(found, rows, offset)]
    return Anomaly("divergent-replicas", summary, name, sorted(ops), window, details)


def _showing(found: LogColumns, rows: Sequence[int], offset: int) -> list[int]:
    """The reads whose stretch of the queue covers an offset."""
    reads, seen = found.reads, found.sightings
    covering = []
    for row in rows:
        if reads.count[row]:
            last = int(seen.offset[reads.first[row] + reads.count[row] - 1])
            if reads.requested[row] <= offset <= last:
                covering.append(row)
    return covering
