# SPDX-License-Identifier: Apache-2.0
"""Judges that every queue is linearizable as an append-only log (Herlihy and Wing 1990).

The sends of a queue are appends, and returned messages are reads of single offsets. The near-linear monitor of
`checkers.linearizability.monitors.logs` decides on columns. One read of each (offset, message) is enough: the one with
the earliest completion bounds the time of the append.

Answers without messages are ignored. RocketMQ builds the index for readers after the log, and slaves may lag, so an
acknowledged message may be invisible for a moment without a violation. Only the final reads prove absence: the end of
the log, and the lost acknowledged messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.linearizability.monitors.logs import APPEND, MAX, READ, LogOps, log_order
from checkers.linearizability.monitors.refusal import Contradiction, Undecided
from checkers.messages.log.columns import INFO, NEVER, NONE, OK, Ints, LogColumns
from checkers.messages.log.outcomes import MessageOutcomes, study
from checkers.messages.ops import of_messages
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

_SHOWN = 20
_WORDS = 4


class LogLinearizable:
    """Judges that each queue of the run is a linearizable append-only log.

    If the configuration permits messages to be lost or read before they are safe, those that are gone at the end count
    as sends that failed: the rest must still be one log.
    """

    name = "linearizability"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """An anomaly `nonlinearizable` per bad queue. `stats`: `queues`, `ops` (appends, and reads of single offsets),
        `invalid_queues`.
        """
        outcomes = study(run)
        found, scene = outcomes.facts, RunTimeline(run)
        anomalies: list[Anomaly] = []
        stats: Counter[str] = Counter(queues=0, ops=0, invalid_queues=0)
        open_: list[str] = []
        for queue, name in enumerate(found.queues):
            ops = queue_ops(outcomes, queue)
            if not len(ops.f):
                continue
            stats["queues"] += 1
            stats["ops"] += len(ops.f)
            try:
                log_order(ops)
            except Contradiction as wrong:
                stats["invalid_queues"] += 1
                if len(anomalies) < _SHOWN:
                    anomalies.append(_anomaly(run, found, scene, queue, ops, wrong.rows))
            except Undecided:
                open_.append(name)
        if not stats["queues"]:
            reason = "nothing checked: no message was acknowledged or read"
            return CheckResult(self.name, Verdict.UNKNOWN, reason)
        unknown = f"{len(open_)} queues undecided, the first: {open_[0]}" if open_ else None
        return conclude(
            self.name, run, anomalies, dict(stats), f"{stats['queues']:,} queues, {stats['ops']:,} ops", unknown
        )


def queue_ops(outcomes: MessageOutcomes, queue: int) -> LogOps:
    """A queue's sends and sightings as ops of a log, in order of call; calls and returns are indices of the history.

    Messages that are gone by permission (`MessageOutcomes.may_lose`, `may_be_dirty`) are left out.
    Offsets count from the queue's origin (`LogColumns.origins`); older messages in front of it are left out.
    """
    found = outcomes.facts
    sends, places, reads = found.sends, found.places, found.reads
    certain = sends.outcome == OK
    missing = outcomes.is_lost | outcomes.superseded
    gone = missing & (sends.queue == queue)
    appended = (sends.queue == queue) & (certain | (sends.outcome == INFO))
    appended &= ~(gone & outcomes.may_lose)
    seen = (places.queue == queue) & ~(outcomes.is_dirty & outcomes.may_be_dirty)
    if len(sends.id):
        seen &= (outcomes.sender == NONE) | ~(missing & outcomes.may_lose)[outcomes.sender]
    origin = int(found.origins[queue])
    seen &= (outcomes.sender != NONE) | (places.offset >= origin)
    of, shown = np.nonzero(appended)[0], np.nonzero(seen)[0]
    read = places.first[shown]
    parts = [
        _part(APPEND, sends.id[of], np.where(certain[of], sends.offset[of], NONE), sends.start[of], sends.end[of]),
        _part(READ, places.id[shown], places.offset[shown], reads.start[read], reads.end[read]),
    ]
    parts += _absent(outcomes, queue, np.nonzero(gone & ~outcomes.may_lose)[0])
    f, entry, offset, call, ret = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(call, kind="stable")
    # -1 is no offset: all offsets in front of the origin count as one.
    since = np.where(offset == NONE, NONE, np.where(offset < origin, NONE - 1, offset - origin))
    return LogOps(f[order].astype(np.uint8), entry[order], since[order], call[order], ret[order], order)


def _absent(outcomes: MessageOutcomes, queue: int, lost: Ints) -> list[tuple[Ints, Ints, Ints, Ints, Ints]]:
    """The absences that the final readings prove: messages behind the log's end, and those that were lost before it."""
    reads = outcomes.facts.reads
    readings = outcomes.readings.of(queue)
    if not readings or outcomes.readings.settled[queue] < np.iinfo(np.int64).max:
        return []
    longest = max(readings, key=lambda r: r.end)
    row = longest.rows[-1]
    times = (reads.start[[row]], reads.end[[row]])
    inside = lost[(outcomes.facts.sends.offset[lost] < longest.end) & (outcomes.facts.sends.offset[lost] >= 0)]
    where = outcomes.facts.sends.offset[inside]
    nothing = np.full(len(inside), NONE, dtype=np.int64)
    free = ~np.isin(where, longest.offset)
    one = (np.repeat(time, int(free.sum())) for time in times)
    end = np.array([longest.end], dtype=np.int64)
    return [_part(MAX, np.array([NONE]), end, *times), _part(READ, nothing[free], where[free], *one)]


def _part(f: int, entry: Ints, offset: Ints, call: Ints, ret: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    return np.full(len(entry), f, dtype=np.int64), entry, offset, call, ret


def _anomaly(
    run: RunRecord, found: LogColumns, scene: RunTimeline, queue: int, ops: LogOps, rows: Sequence[int]
) -> Anomaly:
    name = found.queues[queue]
    chosen = sorted(dict.fromkeys(rows), key=lambda row: int(ops.call[row]))
    calls = sorted({int(ops.call[row]) for row in chosen})
    returns = [int(ops.ret[row]) for row in chosen if ops.ret[row] != NEVER]
    times = [run.history[i].time for i in (*calls, *returns)]
    window = (min(times), max(times))
    words = "; ".join(_words(run, found, queue, ops, row) for row in chosen[:_WORDS])
    more = f"; and {len(chosen) - _WORDS} more" if len(chosen) > _WORDS else ""
    summary = f"queue {name} cannot be an append-only log: {words}{more}.{scene.describe(*window, group_of(name))}"
    details = {"model": "log", **scene.details(*window, group_of(name))}
    return Anomaly("nonlinearizable", summary, name, calls, window, details)


def _words(run: RunRecord, found: LogColumns, queue: int, ops: LogOps, row: int) -> str:
    """`op 12: message 5 acknowledged at offset 3 by n1`."""
    call, ret = int(ops.call[row]), int(ops.ret[row])
    offset = int(ops.offset[row] + found.origins[queue])
    done = run.history[ret] if ret != NEVER else run.history[call]
    by = f" by {done.extra['node']}" if "node" in done.extra else ""
    entry = found.name(int(ops.entry[row]))
    if ops.f[row] == MAX:
        return f"op {call}: at the end the log ends at {offset} (read{by})"
    if ops.f[row] == READ:
        shown = "nothing" if entry == "none" else f"message {entry}"
        return f"op {call}: {shown} at offset {offset} (read{by})"
    if ret == NEVER:
        return f"op {call}: message {entry} sent, outcome unknown"
    return f"op {call}: message {entry} acknowledged at offset {offset}{by}"
