# SPDX-License-Identifier: Apache-2.0
"""Judges that a group receives again what an administrator reset its offset back to.

"RocketMQ supports backtracking consumption by time trace, with the time dimension down to milliseconds" (its
`docs/en/Feature.md`, section 6), and `mqadmin resetOffsetByTime`: "Broker and consumer will all be reset"
(`docs/en/operation.md`). So after an acknowledged reset, every message of the queue at the target or above it that the
group had received before must come again: before the group receives a higher one, and at the latest before the queue is
drained. A later reset that goes further ends this. A reset to a time may leave out no message that was sent later than
a second after that time.

Brokers keep a reset as they keep a commit: in memory, copied to slaves and written to a file periodically. So a fault,
or a change of master, soon after the last commit or reset that the group's position followed from may undo it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.base.cases import Case, anomalies, of_parts
from checkers.base.legality import Part, conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.log.columns import OK, Ints
from checkers.messages.log.order import final_offsets
from checkers.messages.log.outcomes import MessageOutcomes, study
from checkers.messages.ops import of_messages
from checkers.messages.queue.deliveries import Consumption, consumption
from checkers.messages.resets import FOREVER, Reset, resets_of
from results.fault_intervals import FaultInterval
from results.figures import SECOND, clock
from results.history import Call
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

_START_NS: Final = 5 * SECOND
"""A master that is first seen so early was master before the run."""

_CLOCKS_NS: Final = SECOND
"""The largest difference between the clocks of the machines."""

_CLOCK_FAULT: Final = "a fault changed the clocks of brokers, by which they find the offset of a time"

_FORGOTTEN: Final = "a broker that was restarted, or became master, may have forgotten the last resets and commits"


@dataclass(frozen=True, slots=True)
class _Owed:
    """Messages of a queue that exist at the end: their offsets in order, the rows of their sends, and the indices of
    their acknowledgements.
    """

    offsets: Ints
    rows: Ints
    acked: Ints
    ids: Ints


class Replays:
    """`not-replayed`, `wrong-reset-time`. `copied_within_s`: see `Offsets`."""

    name = "replays"

    def __init__(self, copied_within_s: float = 15) -> None:
        self.slack = int(copied_within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `resets` (requests that were not refused), `acknowledged`, `back`: (reset, queue) pairs with a
        message that had to come again, `replayed`: such messages that came.
        """
        resets = resets_of(run.history)
        if not resets:
            return CheckResult(self.name, Verdict.VALID, "nobody reset an offset")
        scene, outcomes = RunTimeline(run), study(run)
        groups, back, replayed = consumption(run.history), 0, 0
        cases: dict[str | None, list[Case]] = {}
        ages: list[float] = []
        late: list[Case] = []
        returned = _returned(groups)
        for (group, queue), of in groups.items():
            owed, spent = _owed(outcomes, queue), _Spent(resets.of(group, queue))
            pops = any(call.invoke.f == "pop" for calls in of.deliveries.values() for call in calls)
            copies = returned.get(group, {}) if pops else None
            for reset in spent.resets:
                if not reset.sure:
                    continue
                found = _Replay(of, owed, spent, reset, copies)
                late += list(_left_out(outcomes, group, queue, owed, reset))
                back += found.due > 0
                replayed += found.due - len(found.missing)
                if not found.missing:
                    continue
                age = self._forgotten(scene, queue, of, reset, found.until)
                ages += [] if age is None else [age]
                cases.setdefault(None if age is None else _FORGOTTEN, []).append(
                    _case(outcomes, group, queue, reset, found, resets.lost_answer(group, queue, reset))
                )
        found_all: list[Anomaly] = []
        for why, some in cases.items():
            what = "{n} resets on {queues} queues did not bring back every message that the group had received before"
            more = {"bound_s": self.slack / SECOND, "nearest_s": round(max(ages), 3)} if why is not None else {}
            found_all += anomalies(scene, "not-replayed", some, what, legal=why, more=more, whole=True)
        what = "{n} resets to a time set the group's offset above messages that were sent later"
        excused = [case for case in late if _clock_was_set(scene, case)]
        wrong = [case for case in late if case not in excused]
        parts = [Part(some, why) for some, why in ((wrong, None), (excused, _CLOCK_FAULT)) if some]
        found_all += of_parts(scene, "wrong-reset-time", parts, what, whole=True)
        calls = resets.calls
        acknowledged = sum(call.outcome == "ok" for call in calls)
        stats = {"resets": len(calls), "acknowledged": acknowledged, "back": back, "replayed": replayed}
        reason = f"{len(calls):,} resets, {replayed:,} messages delivered again"
        unknown = None if back else "no acknowledged reset went back to a message that the group had received"
        return conclude(self.name, run, found_all, stats, reason, unknown)

    def _forgotten(self, scene: RunTimeline, queue: str, of: Consumption, reset: Reset, until: int) -> float | None:
        """The time, in seconds, from the last commit or reset before a fault or a change of master to this, if it may
        have undone a reset before `until` (ns); None: no such event.
        """
        brokers = group_of(queue)
        nodes = set(scene.run.deployment.groups.get(brokers or "", ()))
        changes = [
            (i.start_ns, i.end_ns)
            for i in scene.fault_intervals
            if (not nodes or nodes & {*i.nodes, *i.impairs} or not (i.nodes or i.impairs)) and not _harmless(i)
        ]
        changes += [(r.since, r.since) for r in scene.masters_of(brokers) if r.since > _START_NS]
        kept = [reset.acked, *(at for at in of.committed_at if at > reset.acked)]
        ages = []
        for start, end in changes:
            if start > until or (end is not None and end < reset.begun):
                continue
            last = max((at for at in kept if at <= start), default=start)
            if start - last <= self.slack:
                ages.append(max(0, start - last) / SECOND)
        return min(ages, default=None)


def _clock_was_set(scene: RunTimeline, case: Case) -> bool:
    """True if a fault had changed the clock of a broker of the group by the end of a case: a broker finds the offset of
    a time by the times that its group's masters stored.
    """
    nodes = set(scene.run.deployment.groups.get(case.broker_group or "", ()))
    faults = (i for i in scene.fault_intervals if "clock" in i.fault and i.start_ns <= case.end)
    return any(not nodes or nodes & {*i.nodes, *i.impairs} for i in faults)


def _harmless(fault: FaultInterval) -> bool:
    """True if a fault only slowed servers down, so that they forget nothing."""
    return bool(fault.effects) and all(effect.kind == "slow" for effect in fault.effects)


class _Spent:
    """The resets of one queue of a group, each with the index of the next one's request."""

    def __init__(self, resets: Sequence[Reset]) -> None:
        self.resets = resets

    def limit(self, reset: Reset) -> int:
        """The index of the request of the next reset after one; `FOREVER`: the last one."""
        return min((r.start for r in self.resets if r.start > reset.start), default=FOREVER)

    def passed(self, reset: Reset) -> int:
        """The offset below which another reset, at the same time or of unknown outcome, may have passed over."""
        others = (r for r in self.resets if r is not reset and r.end > reset.start and r.start < reset.end)
        unsure = (r for r in self.resets if r is not reset and not r.sure)
        return max([0, *(r.high for r in others), *(r.high for r in unsure)])


class _Replay:
    """The messages that one acknowledged reset had to bring back.

    due      the number of these messages.
    missing  (offset, row of the send) of those that did not come, in order.
    until    the time (ns) by which this is certain.
    beyond   the delivery that passed over the first one; None: the queue was drained.

    copies: for a group that pops, the deliveries of each message (id) that returned through the retry topic. Such a
    group may get a message after higher ones: an earlier pop has it, or its answer was lost.
    """

    def __init__(
        self, of: Consumption, owed: _Owed, spent: _Spent, reset: Reset, copies: Mapping[Any, Sequence[Call]] | None
    ) -> None:
        low, limit = max(reset.high, spent.passed(reset)), spent.limit(reset)
        inside = (owed.offsets >= low) & (owed.acked < reset.start)
        self.missing: list[tuple[int, int]] = []
        self.beyond: Call | None = None
        self.due = self.until = 0
        highest, passing = _after(of, reset, limit)
        rows = zip(*(column[inside].tolist() for column in (owed.offsets, owed.rows, owed.ids)), strict=True)
        for offset, row, identity in rows:
            calls = of.deliveries.get(offset, [])
            if not any(call.invoke.index < reset.start for call in calls):
                continue
            drained = limit == FOREVER and of.end is not None and offset < of.end
            if not drained and highest <= offset:
                continue
            self.due += 1
            last = limit if copies is None else FOREVER
            calls = [*calls, *copies.get(identity, ())] if copies else calls
            if any(_done(call) > reset.start and call.invoke.index < last for call in calls):
                continue
            self.missing.append((offset, row))
        if self.missing:
            self.beyond = passing if passing is not None and highest > self.missing[0][0] else None
            self.until = FOREVER if self.beyond is None or self.beyond.end is None else self.beyond.end


def _left_out(outcomes: MessageOutcomes, group: str, queue: str, owed: _Owed, reset: Reset) -> Iterator[Case]:
    """Yields a case if a message below the target was sent after the time of a reset."""
    if reset.since is None:
        return
    sends = outcomes.facts.sends
    below = owed.rows[(owed.offsets < reset.high) & (owed.acked < reset.start)]
    after = below[sends.t0[below] > reset.since + _CLOCKS_NS]
    if len(after):
        row = int(after[0])
        text = (
            f"the reset of group {group} on {queue} to a time not after {clock(reset.since)} went to offset "
            f"{reset.high}, acknowledged by {reset.node} at {clock(reset.acked)}; message {sends.id[row]} below it was "
            f"sent at {clock(int(sends.t0[row]))} ({len(after):,} such messages)"
        )
        yield Case(reset.begun, reset.acked, [reset.start, int(sends.start[row])], text, key=queue)


def _after(of: Consumption, reset: Reset, limit: int) -> tuple[int, Call | None]:
    """The highest offset delivered by a request that began after a reset and was answered before an index, and the
    request; -1: none.
    """
    best: tuple[int, Call | None] = (-1, None)
    for offset, calls in of.deliveries.items():
        if offset <= best[0]:
            continue
        call = next((c for c in calls if reset.end < c.invoke.index and _done(c) < limit), None)
        if call is not None:
            best = offset, call
    return best


def _returned(groups: Mapping[tuple[str, str], Consumption]) -> dict[str, dict[Any, list[Call]]]:
    """Group -> id -> its deliveries through the retry topics."""
    found: dict[str, dict[Any, list[Call]]] = {}
    for (group, _), of in groups.items():
        for identity, calls in of.copies.items():
            found.setdefault(group, {}).setdefault(identity, []).extend(calls)
    return found


def _done(call: Call) -> int:
    return FOREVER if call.completion is None else call.completion.index


def _owed(outcomes: MessageOutcomes, queue: str) -> _Owed:
    facts = outcomes.facts
    if queue not in facts.queues:
        none = np.zeros(0, dtype=np.int64)
        return _Owed(none, none, none, none)
    sends, place = facts.sends, final_offsets(facts, outcomes)
    code = facts.queues.index(queue)
    lowest = (outcomes.lowest(int(read)) for read in np.nonzero(facts.reads.queue == code)[0])
    oldest = max((int(facts.origins[code]), *lowest))
    rows = np.nonzero((sends.queue == code) & (sends.outcome == OK) & outcomes.kept & (place >= oldest))[0]
    rows = rows[np.argsort(place[rows], kind="stable")]
    return _Owed(place[rows], rows, sends.end[rows], sends.id[rows])


def _case(outcomes: MessageOutcomes, group: str, queue: str, reset: Reset, found: _Replay, lost: Call | None) -> Case:
    """lost: a pull without an answer that may have taken the reset."""
    offset, row = found.missing[0]
    sends = outcomes.facts.sends
    what = "the group had received it before, and consumed the queue to its end"
    ops = [reset.start, int(sends.start[row])]
    end = reset.acked
    if found.beyond is not None:
        what = f"the group had received it before, and received a higher one at {clock(found.beyond.start)}"
        ops.append(found.beyond.invoke.index)
        end = found.beyond.end or end
    if lost is not None:
        what += f"; a pull at {clock(lost.start)} that got no answer may have taken the reset from the broker"
        ops.append(lost.invoke.index)
    text = (
        f"{len(found.missing):,} of {found.due:,} did not come again to group {group} after the reset to offset "
        f"{reset.high} of {queue}, which {reset.node} acknowledged at {clock(reset.acked)}: message {sends.id[row]} at "
        f"offset {offset}; {what}"
    )
    return Case(reset.begun, end, ops, text, key=queue)
