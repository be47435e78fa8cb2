# SPDX-License-Identifier: Apache-2.0
"""Judges that every message was delivered to every group, and counts the deliveries.

RocketMQ guarantees at-least-once: a message may be delivered again as long as its group has not committed past it, and
after that only if a broker may have forgotten the commit (`checkers.messages.queue.memory`). Redelivery is counted and
shown. A consumer that starts below a commit which the broker must remember received messages again without a reason. A
missing delivery is a violation, too. When the group is drained (its position equals the end of the queue, as the broker
reports), every acknowledged message that still exists must have been delivered.

A reset of the group's offsets (`checkers.messages.resets`) permits the redelivery of what it went back to, and
passes over what lies below its target. Everything else is judged as without it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude, permission
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.log.columns import OK
from checkers.messages.log.order import final_offsets
from checkers.messages.log.outcomes import MessageOutcomes, study
from checkers.messages.ops import of_messages
from checkers.messages.queue.memory import OffsetMemory
from checkers.messages.queue.offsets import SHORT_LIFE, Query, contradicted, ledgers
from checkers.messages.resets import FOREVER, GroupResets, Reset, resets_of
from results.figures import SECOND, clock
from results.history import Call, History
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Excuse, merged

_FORGOTTEN = "at-least-once: a broker that was restarted, or became master, may have forgotten the last commits"
_NOT_DECIDED = f"at-least-once: {SHORT_LIFE}, and may not have written its committed offsets"
_COMMITTED_LOWER = "at-least-once: the group itself had committed a lower offset since"
_UNKNOWN_POSITION = "at-least-once: the history does not show from which committed offset the consumer started"
_RESET = "an administrator reset the group's offset to the message or below it"
_PASSED = "an administrator reset the group's offset past the message"
_MOVED = 21
_LISTED = 50
_OPS = 12


@dataclass
class Consumption:
    """The consumption of one queue by one group.

    deliveries  offset -> its deliveries, in order; `ids` of all messages delivered, also from a retry topic.
    commits     (index of the acknowledgement, offset). committed_at: the times (ns) of the acknowledgements.
    copies      id of a message that returned through the retry topic -> its deliveries from here, in order.
    end         the offset up to which the drain is proven complete, or None.
    retries     True if only returned messages were delivered from here: the retry topic of a group that pops. Its
                messages are in another queue as well, and that one is drained.
    """

    deliveries: dict[int, list[Call]] = field(default_factory=dict)
    ids: set[Any] = field(default_factory=set)
    commits: list[tuple[int, int]] = field(default_factory=list)
    committed_at: list[int] = field(default_factory=list)
    copies: dict[Any, list[Call]] = field(default_factory=dict)
    end: int | None = None
    retries: bool = False


class Deliveries:
    """`lost-to-group`, `skipped-by-reset`, `redelivered`; unknown if a drain is not proven complete.

    `copied_within_s`: see `Offsets`.
    """

    name = "deliveries"

    def __init__(self, copied_within_s: float = 15) -> None:
        self.slack = int(copied_within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `groups`, `deliveries`, `messages` delivered, `again`: deliveries beyond the first, `after_commit`:
        those of them that followed a commit which covered the message.
        """
        groups, resets = consumption(run.history), resets_of(run.history)
        total = sum(len(calls) for c in groups.values() for calls in c.deliveries.values())
        outcomes, scene = study(run), RunTimeline(run)
        distinct = sum(len(c.deliveries) for c in groups.values())
        again = {at: _again(c, bool(resets.of(*at))) for at, c in groups.items()}
        stats = {
            "groups": sorted({group for group, _ in groups}),
            "deliveries": total,
            "messages": distinct,
            "again": total - distinct,
            "after_commit": sum(map(len, again.values())),
        }
        passed: list[Excuse] = []
        found = [
            *_lost(run, scene, outcomes, groups, resets, passed),
            *_redelivered(scene, again, _Causes(run, scene, self.slack)),
        ]
        open_ = sorted(
            {f"{group} on {queue}" for (group, queue), c in groups.items() if c.end is None and not c.retries}
        )
        unknown = None
        if not total:
            unknown = "no message was delivered to any group"
        elif open_:
            unknown = f"it is not proven that everything was consumed: no complete drain of {', '.join(open_[:4])}"
            unknown += f" and {len(open_) - 4} more" if len(open_) > 4 else ""
        reason = f"{distinct:,} messages delivered, {total - distinct:,} times again"
        return replace(conclude(self.name, run, found, stats, reason, unknown), excuses=merged(passed))


def consumption(history: History) -> dict[tuple[str, str], Consumption]:
    """(group, queue) -> its consumption."""
    found: dict[tuple[str, str], Consumption] = {}
    for call in history.clients.calls:
        f, done = call.invoke.f, call.completion
        if f not in ("consume", "commit", "drain", "pop", "assign") or done is None or done.type != "ok":
            continue
        group = str({**call.invoke.extra, **done.extra}.get("group"))
        if f == "assign":
            for queue in done.value or ():
                found.setdefault((group, str(queue)), Consumption())
        elif f == "pop":
            for queue, offset, identity, _, retried, *_ in done.value:
                of = found.setdefault((group, str(queue)), Consumption())
                of.ids.add(identity)
                of.retries = bool(retried)
                if retried:
                    of.copies.setdefault(identity, []).append(call)
                else:
                    of.deliveries.setdefault(offset, []).append(call)
        elif call.invoke.key is not None:
            _note(found.setdefault((group, call.invoke.key), Consumption()), call, f, done.value, done.index)
    return found


def _note(of: Consumption, call: Call, f: str, value: Any, index: int) -> None:
    if f == "consume":
        for offset, identity in value:
            of.ids.add(identity)
            of.deliveries.setdefault(offset, []).append(call)
    elif f == "commit":
        of.commits.append((index, call.invoke.value))
        of.committed_at.append(call.end or call.start)
    elif isinstance(value, Mapping):
        end, reached = value.get("max"), value.get("consumed_to")
        if isinstance(end, int) and isinstance(reached, int) and reached >= end:
            of.end = max(of.end or 0, end)


def _lost(
    run: RunRecord,
    scene: RunTimeline,
    outcomes: MessageOutcomes,
    groups: Mapping[tuple[str, str], Consumption],
    resets: GroupResets,
    passed: list[Excuse],
) -> Iterator[Anomaly]:
    """Yields messages that were acknowledged, exist, are below the end of a complete drain, and were never delivered.
    Those that a reset passed over are counted in `passed` instead.

    If another message had been delivered from the same offset, and is gone, the loss of that one is the cause: the case
    is legal if that loss is.
    """
    permit = permission(run, "lost", "dirty-read")
    why = None if permit is None else permit.why
    for group in sorted({name for name, _ in groups}):
        mine = {queue: of for (name, queue), of in groups.items() if name == group}
        delivered: set[Any] = set().union(*(of.ids for of in mine.values()))
        missed = [m for queue, of in mine.items() for m in _missed(outcomes, queue, of, delivered)]
        if resets:
            ends = outcomes.facts.sends.end
            over = {m for m in missed if resets.passes(group, m.queue, m.offset, int(ends[m.send]))}
            passed += [Excuse("passed-over", len(over), _PASSED)] if over else []
            order = {queue: _in_order(of) for queue, of in mine.items()}
            found = ((m, _skipping(resets.of(group, m.queue), order[m.queue], m.offset)) for m in missed)
            skips = {m: reset for m, reset in found if reset is not None and m not in over}
            yield from _skipped_by_reset(scene, outcomes, group, skips)
            missed = [m for m in missed if m not in over and m not in skips]
        yield from _lost_to_group(run, scene, outcomes, group, [m for m in missed if not m.reused], None)
        yield from _lost_to_group(run, scene, outcomes, group, [m for m in missed if m.reused], why)


class _Missed(NamedTuple):
    """`send`: its row. `reused`: True if the group received another message from this offset."""

    queue: str
    offset: int
    send: int
    reused: bool


def _missed(outcomes: MessageOutcomes, queue: str, of: Consumption, delivered: Set[Any]) -> Iterator[_Missed]:
    """Yields acknowledged sends below the end of the drain that were not delivered. Those that the run shows to be
    lost, or deleted for their age, do not count.
    """
    facts = outcomes.facts
    if of.end is None or queue not in facts.queues:
        return
    code = facts.queues.index(queue)
    sends, place = facts.sends, final_offsets(facts, outcomes)
    lowest = (outcomes.lowest(int(read)) for read in np.nonzero(facts.reads.queue == code)[0])
    oldest = max((int(facts.origins[code]), *lowest))
    owed = (sends.queue == code) & (sends.outcome == OK) & (place >= oldest) & (place < of.end)
    gone = ~outcomes.kept & (outcomes.is_lost | outcomes.readings.decided(sends.queue, sends.offset))
    for row in np.nonzero(owed & ~gone)[0]:
        if int(sends.id[row]) not in delivered:
            offset = int(place[row])
            yield _Missed(queue, offset, int(row), offset in of.deliveries)


def _lost_to_group(
    run: RunRecord,
    scene: RunTimeline,
    outcomes: MessageOutcomes,
    group: str,
    missed: Sequence[_Missed],
    legal: str | None,
) -> Iterator[Anomaly]:
    if not missed:
        return
    sends = outcomes.facts.sends
    first = missed[0]
    acker = outcomes.facts.node(int(sends.node[first.send]))
    window = (min(int(sends.t1[m.send]) for m in missed), run.history[-1].time)
    broker_group = group_of(first.queue)
    cause = "; the group had received another message from that offset, which is lost" if first.reused else ""
    yield Anomaly(
        "lost-to-group",
        f"{len(missed):,} messages were never delivered to group {group}, although the group has consumed "
        f"every queue to its end and they are not known to be lost: "
        f"message {sends.id[first.send]}, acknowledged by {acker} at {clock(int(sends.t1[first.send]))}, is at "
        f"offset {first.offset} of {first.queue}{cause}.{scene.describe(window[0], window[0], broker_group)}",
        first.queue if len({m.queue for m in missed}) == 1 else None,
        sorted(int(sends.start[m.send]) for m in missed[:_OPS]),
        window,
        {
            "count": len(missed),
            "first": [{"queue": m.queue, "offset": m.offset, "id": int(sends.id[m.send])} for m in missed[:_LISTED]],
            **scene.details(*window, broker_group),
        },
        legal=legal,
    )


def _in_order(of: Consumption) -> list[tuple[int, int]]:
    """(index of the request, offset) of each delivery, in order."""
    return sorted((call.invoke.index, offset) for offset, calls in of.deliveries.items() for call in calls)


def _skipping(resets: Sequence[Reset], order: Sequence[tuple[int, int]], offset: int) -> Reset | None:
    """The last reset to a message or below it after which the group continued above it; None: none did."""
    for reset in reversed(resets):
        if reset.sure and reset.high <= offset:
            at = bisect_left(order, (reset.end, 0))
            if at < len(order) and order[at][1] > offset:
                return reset
    return None


def _skipped_by_reset(
    scene: RunTimeline, outcomes: MessageOutcomes, group: str, skips: Mapping[_Missed, Reset]
) -> Iterator[Anomaly]:
    sends = outcomes.facts.sends
    cases = [
        Case(
            reset.acked,
            reset.acked,
            [reset.start, int(sends.start[m.send])],
            f"message {sends.id[m.send]} at offset {m.offset} of {m.queue}, although the reset that {reset.node} "
            f"acknowledged at {clock(reset.acked)} was to offset {reset.high}",
            key=m.queue,
        )
        for m, reset in skips.items()
    ]
    what = f"{{n}} messages were never delivered to group {group}, which continued above them after a reset"
    yield from anomalies(scene, "skipped-by-reset", cases, what, whole=True)


def _again(of: Consumption, last: bool = False) -> list[tuple[int, Call, int]]:
    """(offset, delivery, index of the commit) for deliveries requested after a commit that covers the message. The
    commit is the first such one, or the `last` before the delivery.
    """
    first: list[tuple[int, int]] = []  # (offset, index) of commits that reach further than all before them
    for index, offset in sorted(of.commits):
        if not first or offset > first[-1][0]:
            first.append((offset, index))
    offsets = np.array([offset for offset, _ in first], dtype=np.int64)
    found = []
    for offset, calls in of.deliveries.items():
        at = int(np.searchsorted(offsets, offset, side="right"))
        if at < len(first) and len(calls) > 1:
            commit = first[at][1]
            some = [call for call in calls[1:] if call.invoke.index > commit]
            covering = sorted(index for index, to in of.commits if to > offset) if last and some else [commit]
            found += [(offset, c, covering[bisect_left(covering, c.invoke.index) - 1]) for c in some]
    return found


class _Causes:
    """The reasons for deliveries after a commit."""

    def __init__(self, run: RunRecord, scene: RunTimeline, slack: int) -> None:
        self.scene, self.slack, self.written = scene, slack, run.deployment.traits.offsets_written_s
        self.ledgers = ledgers(run.history)
        self.answers: dict[tuple[str, str, int], list[Query]] = {}
        for (group, queue), ledger in self.ledgers.items():
            for query in ledger.queries:
                process = run.history[query.start].process
                self.answers.setdefault((group, queue, process), []).append(query)
        self._memories: dict[str | None, tuple[OffsetMemory, OffsetMemory]] = {}
        self.resets = resets_of(run.history)
        self.moves: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
        """(group, queue, process) -> the answers that sent a consumer back within the queue: (index, offset)."""
        for call in run.history.clients.calls:
            if call.invoke.f == "consume" and call.outcome == "ok" and (to := _sent_back(call)) is not None:
                place = str(call.invoke.extra.get("group")), str(call.invoke.key), call.invoke.process
                self.moves.setdefault(place, []).append((call.completion.index if call.completion else 0, to))

    def by_reset(self, group: str, queue: str, offset: int, call: Call) -> bool:
        """True if a reset explains a delivery: it went back to the offset or below, and the group has not certainly
        committed past the offset since then.
        """
        end = FOREVER if call.completion is None else call.completion.index
        back = [r for r in self.resets.of(group, queue) if r.low <= offset and r.start < end]
        if not back:
            return False
        commits = self.ledgers[group, queue].commits if (group, queue) in self.ledgers else []
        past = [c.start for c in commits if c.until is None and (c.offset or 0) > offset and c.end < call.invoke.index]
        return any(not any(start > r.taken for start in past) for r in back)

    def moved(self, group: str, queue: str, offset: int, call: Call) -> bool:
        """True if the consumer came to an offset because the broker had sent it back to there, or below, after its last
        start.
        """
        place = group, queue, call.invoke.process
        moves = [(at, to) for at, to in self.moves.get(place, ()) if at < call.invoke.index and to <= offset]
        starts = [query.end for query in self.answers.get(place, ()) if query.end < call.invoke.index]
        return bool(moves) and moves[-1][0] > max(starts, default=-1)

    def excuse(self, group: str, queue: str, offset: int, call: Call, commit: int) -> Excuse | None:
        """The excuse for a delivery; None if the broker had no right to forget the commit at this index.

        The consumer started from the last answer at or below the offset.
        """
        answers = self.answers.get((group, queue, call.invoke.process), ())
        if self.by_reset(group, queue, offset, call):
            return Excuse("redelivered", 1, _RESET)
        if self.moved(group, queue, offset, call):
            return None
        earlier = (query for query in reversed(answers) if query.end < call.invoke.index)
        start = next((query for query in earlier if (query.offset or 0) <= offset), None)
        if start is None or start.start < commit:
            return Excuse("redelivered", 1, _UNKNOWN_POSITION)
        commits = self.ledgers[group, queue].commits
        lower = (c for c in commits if (c.offset or 0) <= offset and commit < c.start < start.end)
        if next(lower, None) is not None:
            return Excuse("redelivered", 1, _COMMITTED_LOWER)
        brokers = group_of(queue)
        if brokers not in self._memories:
            args = (self.scene, self.slack, brokers, self.written)
            self._memories[brokers] = OffsetMemory(*args), OffsetMemory(*args, whole_lives=True)
        (memory, of_whole_lives), ledger = self._memories[brokers], self.ledgers[group, queue]
        since = memory.since(start.node, start.invoked, start.answered, ledger.others(start))
        if since is None:
            return Excuse("redelivered", 1, _FORGOTTEN)  # a slave answered
        if contradicted(ledger, start, since, memory.inherited(since, start.node)) is not None:
            return None
        acked = next((c.acked for c in ledger.commits if c.end == commit), since)
        age = max(0, since - acked) / SECOND
        if contradicted(ledger, start, since, of_whole_lives.inherited(since, start.node)) is not None:
            return Excuse("redelivered", 1, _NOT_DECIDED, None, age)
        return Excuse("redelivered", 1, _FORGOTTEN, memory.limit_s(since, start.node), age)


def _sent_back(call: Call) -> int | None:
    """The offset to which an answer sent a consumer that had requested a higher one within the queue; None: it did not.
    Only a reset does that.
    """
    extra: Mapping[str, Any] = {} if call.completion is None else call.completion.extra
    to, end, at = extra.get("next"), extra.get("max"), call.invoke.value
    if extra.get("code") != _MOVED or not (isinstance(to, int) and isinstance(end, int) and isinstance(at, int)):
        return None
    return to if to < at <= end else None


def _redelivered(
    scene: RunTimeline, again: Mapping[tuple[str, str], Sequence[tuple[int, Call, int]]], causes: _Causes
) -> Iterator[Anomaly]:
    """Yields one anomaly for each group and reason: messages consumed again after the group had committed past them."""
    for group in sorted({name for name, _ in again}):
        by: dict[str | None, list[tuple[str, int, Call, int]]] = {}
        used: list[Excuse] = []
        for (name, queue), found in again.items():
            for offset, call, commit in found if name == group else ():
                excuse = causes.excuse(group, queue, offset, call, commit)
                why = None if excuse is None else excuse.why
                by.setdefault(why, []).append((queue, offset, call, commit))
                used += [] if excuse is None else [excuse]
        limits = {excuse.why: excuse for excuse in merged(used)}
        for why, cases in by.items():
            limit = limits.get(why or "")
            more = {} if limit is None else {"bound_s": limit.bound_s, "nearest_s": limit.nearest_s}
            yield _redelivery(scene, group, sorted(cases, key=lambda case: case[2].start), why, more)


def _redelivery(
    scene: RunTimeline,
    group: str,
    cases: Sequence[tuple[str, int, Call, int]],
    why: str | None,
    more: Mapping[str, Any],
) -> Anomaly:
    queue, offset, call, _ = cases[0]
    window = (cases[0][2].start, max(c[2].end or c[2].start for c in cases))
    per_queue = Counter(case[0] for case in cases)
    return Anomaly(
        "redelivered",
        f"{len(cases):,} deliveries to group {group} of messages that it had consumed and committed: offset "
        f"{offset} of {queue} again at {clock(call.start)}.{scene.describe(window[0], window[0], group_of(queue))}",
        queue if len(per_queue) == 1 else None,
        sorted({i for c in cases[: _OPS // 2] for i in (c[2].invoke.index, c[3])}),
        window,
        {
            "count": len(cases),
            "per_queue": dict(per_queue),
            **more,
            **scene.details(window[0], window[0], group_of(queue)),
        },
        legal=why,
    )
