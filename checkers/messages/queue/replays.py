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

from collections.abc import Mapping, Sequence
from typing import Any

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.log.outcomes import MessageOutcomes, study
from checkers.messages.ops import of_messages
from checkers.messages.queue.deliveries import Consumption, consumption
from checkers.messages.reset_faults import (
    FORGOTTEN,
    Owed,
    forgotten,
    left_out,
    owed_messages,
    wrong_times,
)
from checkers.messages.resets import FOREVER, Reset, resets_of
from results.figures import SECOND, clock
from results.history import Call
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict


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
            owed, spent = owed_messages(outcomes, queue), _Spent(resets.of(group, queue))
            pops = any(call.invoke.f == "pop" for calls in of.deliveries.values() for call in calls)
            copies = returned.get(group, {}) if pops else None
            for reset in spent.resets:
                if not reset.sure:
                    continue
                found = _Replay(of, owed, spent, reset, copies)
                late += list(left_out(outcomes, group, queue, owed, reset))
                back += found.due > 0
                replayed += found.due - len(found.missing)
                if not found.missing:
                    continue
                age = forgotten(scene, queue, reset, found.until, of.committed_at, self.slack)
                ages += [] if age is None else [age]
                cases.setdefault(None if age is None else FORGOTTEN, []).append(
                    _case(outcomes, group, queue, reset, found, resets.lost_answer(group, queue, reset))
                )
        found_all: list[Anomaly] = []
        for why, some in cases.items():
            what = "{n} resets on {queues} queues did not bring back every message that the group had received before"
            more = {"bound_s": self.slack / SECOND, "nearest_s": round(max(ages), 3)} if why is not None else {}
            found_all += anomalies(scene, "not-replayed", some, what, legal=why, more=more, whole=True)
        found_all += wrong_times(scene, late)
        calls = resets.calls
        acknowledged = sum(call.outcome == "ok" for call in calls)
        stats = {"resets": len(calls), "acknowledged": acknowledged, "back": back, "replayed": replayed}
        reason = f"{len(calls):,} resets, {replayed:,} messages delivered again"
        unknown = None if back else "no acknowledged reset went back to a message that the group had received"
        return conclude(self.name, run, found_all, stats, reason, unknown)


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
        self, of: Consumption, owed: Owed, spent: _Spent, reset: Reset, copies: Mapping[Any, Sequence[Call]] | None
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
