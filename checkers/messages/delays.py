# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: every acknowledged one appears, not early, not late, once; a recalled one never.

The judge follows a message by its id through all queues of all broker groups, because RIP-32's escape delivers it
through another group than the one that acknowledged it. All times are those of the machine that runs the clients
(monotonic). A message is due at its delay after the send: at the earliest counted from the invocation, at the latest
from the acknowledgement.

* Early: a read had returned the message before the earliest due time.
* Late: for longer than the limit after the latest due time, no node could return the message. The proof is, for each
  node of the queue's group, a read that failed, or that reported an end of the queue at or before the message's offset.
* A copy in a queue of another broker group than the one that acknowledged the message comes from an acting master. So
  such copies show when a slave acted, with or without a fault: a master whose heartbeats come late loses its role.
* The limit for a late message starts again when a fault begins or ends, and when sends are not acknowledged (then no
  master is alive that could accept the message). It does not run while all nodes of the group are impaired. Where
  nobody stands in for a master, it starts again as well when the group acknowledges no sends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.base.cases import Case, anomalies, by_group, of_parts
from checkers.base.legality import Part, conclude, divided, permission
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.duties import Duty, Followed, QueueReads, follow, never_sent
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, quantile
from results.history import Call
from results.op import FAIL, OK
from results.record import RunRecord
from results.verdict import CheckResult

EARLY_NS: Final = SECOND
"""RocketMQ's timers have a precision of one second (`timerPrecisionMs`)."""

TOO_LATE_NS: Final = 2 * SECOND
"""A recall acknowledged so shortly before the due time may be too late (`TimerMessageStore` has dequeued it)."""

_MS: Final = 1_000_000
_START_NS: Final = 5 * SECOND
"""A master that is first seen so early was master before the run."""

_PROGRESS: Final = (
    "slaves copy the progress of delayed messages only periodically: a message that was delivered before a change of "
    "master may be delivered again (at least once)"
)


@dataclass
class _Message(Followed):
    """One delayed message. `owed`: acknowledged, and certainly not recalled. `earliest`, `latest`: when it is due."""

    earliest: int = 0
    latest: int = 0
    recalls: list[Call] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        return self.send.outcome

    @property
    def owed(self) -> bool:
        return self.outcome == OK and all(recall.outcome == FAIL for recall in self.recalls)

    @property
    def recalled(self) -> Call | None:
        """The recall that was acknowledged in time."""
        in_time = (r for r in self.recalls if r.outcome == OK and (r.end or 0) + TOO_LATE_NS <= self.earliest)
        return next(in_time, None)


class Delays:
    """`limit_s`: the longest time after its due time, or after a fault begins or ends, until a message is readable.
    `copied_within_s`: the largest age of a slave's copy of the progress.
    """

    name = "delays"

    def __init__(self, limit_s: float = 10, copied_within_s: float = 75) -> None:
        self.limit, self.slack = int(limit_s * SECOND), int(copied_within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`delayed-lost`, `delivered-early`, `delivered-late`, `delivered-again`, `reappeared`, `recalled-delivered`,
        `aborted-read`, `never-sent`. `stats`: `messages`, `acknowledged`, `delivered`, `recalled`, `copies` beyond the
        first, and `after_due_s` (`p50`, `max`): from the due time to the first read that returned the message.
        """
        messages, strangers, reads = _collect(run)
        scene = RunTimeline(run)
        service = _Service(run, scene, messages.values(), self.limit)
        lossy = permission(run, "lost")
        everyone = list(messages.values())
        lost, open_ = _lost(everyone, reads, service)
        again, later = _copies(everyone, reads, self.limit)
        recalled = divided(lossy, _recalled(everyone), lambda case: [case.start])
        found = [
            *of_parts(scene, "delayed-lost", divided(lossy, lost, _lossy_times), _LOST, **_SHOWN),
            *anomalies(scene, "delivered-early", _early(everyone), _EARLY, **_SHOWN),
            *by_group(scene, "delivered-late", _late(everyone, reads, service), _LATE, self.limit, **_SHOWN),
            *of_parts(scene, "recalled-delivered", recalled, _RECALLED, **_SHOWN),
            *anomalies(scene, "aborted-read", _refused(everyone), _REFUSED, **_SHOWN),
            *never_sent(strangers),
            *of_parts(scene, "delivered-again", self._replayed(service, again), _AGAIN, **_SHOWN),
            *of_parts(scene, "reappeared", self._replayed(service, later), _LATER, **_SHOWN),
        ]
        after = sorted(
            ((min(c.end or 0 for c in m.seen.values()) - m.latest) / SECOND) for m in everyone if m.seen and m.owed
        )
        stats: dict[str, Any] = {
            "messages": len(everyone),
            "acknowledged": sum(m.outcome == OK for m in everyone),
            "delivered": sum(bool(m.seen) for m in everyone),
            "recalled": sum(m.recalled is not None for m in everyone),
            "copies": sum(max(0, len(m.seen) - 1) for m in everyone),
            "after_due_s": {"p50": round(quantile(after, 0.5), 3), "max": round(after[-1], 3)} if after else None,
        }
        unknown = None
        if not stats["acknowledged"]:
            unknown = "no delayed message was acknowledged"
        elif reads.unproven is not None:
            unknown = reads.unproven
        elif open_:
            why = (
                "were not yet due for long enough"
                if service.served
                else "could not be delivered, because no send was acknowledged"
            )
            unknown = f"{open_:,} undelivered messages {why} when the final reads began"
        reason = f"{stats['delivered']:,} of {stats['acknowledged']:,} acknowledged delayed messages delivered"
        return conclude(self.name, run, found, stats, reason, unknown)

    def _replayed(self, service: _Service, cases: Sequence[Case]) -> list[Part[Case]]:
        """The cases that nothing explains, and those that an older progress explains."""
        ages = [service.replays(c.start, c.end, self.slack) for c in cases]
        wrong = [c for c, age in zip(cases, ages, strict=True) if age is None]
        legal = [c for c, age in zip(cases, ages, strict=True) if age is not None]
        near = round(max((age for age in ages if age is not None), default=0.0), 3)
        return [Part(wrong), Part(legal, _PROGRESS, {"bound_s": self.slack / SECOND, "nearest_s": near})]


class _Service(Duty):
    """The times in which the servers owed a delivery, and the reasons for a second one."""

    def __init__(self, run: RunRecord, scene: RunTimeline, messages: Collection[_Message], limit: int) -> None:
        super().__init__(run, scene, messages, limit)
        self._changes = [(i.start_ns, i.end_ns) for i in self.intervals]
        self._changes += [(r.since - limit, r.since) for r in scene.master_periods if r.since > _START_NS]
        escaped = (
            call.end or 0
            for m in messages
            for (queue, _), call in m.seen.items()
            if group_of(queue) != group_of(m.queue)
        )
        self._changes += [(at - limit, at) for at in {t - t % SECOND for t in escaped}]

    def owed_since(self, due: int, until: int, group: str | None) -> int:
        """The time (ns) since which the message was owed without a break, as of `until`."""
        if self.all_impaired(group, until):
            return until
        every = (self.edges, self.unserved, self.unserved_of.get(group, []))
        breaks = (times[at - 1] for times in every if (at := bisect_left(times, until)))
        return max([due, *breaks])

    def replays(self, first: int, again: int, slack: int) -> float | None:
        """The time, in seconds, from the first delivery to the fault, or change of master, that explains a second one:
        another server, or the same after its restart, went on from a progress that may lack the first. None: nothing
        explains it.
        """
        ages = (
            max(0, start - first) / SECOND
            for start, end in self._changes
            if start <= again and (end is None or end + self.limit >= first) and first >= start - slack
        )
        return min(ages, default=None)


def _collect(run: RunRecord) -> tuple[dict[int, _Message], list[tuple[Any, Call]], QueueReads]:
    """The messages by id; values that no client sent, each with the read that returned it; and the reads."""
    messages: dict[int, _Message] = {}
    recalls, reads = [], []
    for call in run.history.clients.calls:
        f = call.invoke.f
        if f == "delay":
            wait = call.invoke.extra["wait_ms"] * _MS
            end = call.end if call.outcome == OK and call.end is not None else call.start
            known = call.invoke.value
            messages[known] = _Message(known, call, earliest=call.start + wait, latest=end + wait)
        elif f == "recall":
            recalls.append(call)
        elif f in ("poll", "replica-read"):
            reads.append(call)
    for call in recalls:
        messages[call.invoke.value].recalls.append(call)
    return messages, follow(reads, messages), QueueReads(reads)


def _lost(everyone: Sequence[_Message], reads: QueueReads, service: _Service) -> tuple[list[Case], int]:
    """Messages that must appear and are in no queue at the end; and the number of those that may still appear."""
    since = reads.complete_since
    if since is None:
        return [], 0
    gone = [m for m in everyone if m.owed and not m.final]
    due = [m for m in gone if service.is_settled(m.latest, since)]
    return [m.case(m.latest, since) for m in due], len(gone) - len(due)


def _lossy_times(case: Case) -> list[int]:
    """The times when brokers stored a message: at its acknowledgement, and again when it was due."""
    m = case.about
    return [m.send.end or m.send.start, m.latest]


def _early(everyone: Sequence[_Message]) -> list[Case]:
    cases = []
    for m in everyone:
        for _, call in m.copies[:1]:
            if call.end is not None and call.end < m.earliest - EARLY_NS:
                cases.append(m.case(call.end, m.earliest, call))
    return cases


def _late(everyone: Sequence[_Message], reads: QueueReads, service: _Service) -> list[Case]:
    cases = []
    for m in everyone:
        if not m.seen or not m.owed:
            continue
        bounds = [reads.absent_until(place, m.copies[0][1].end or 0) for place in m.seen]
        if None in bounds:
            continue
        until = min(b for b in bounds if b is not None)
        start = service.owed_since(m.latest, until, group_of(m.queue))
        if until - start > service.limit:
            cases.append(m.case(start, until, m.copies[0][1])._replace(limit=service.limit))
    return cases


def _copies(everyone: Sequence[_Message], reads: QueueReads, limit: int) -> tuple[list[Case], list[Case]]:
    """Messages with a second copy: soon after the first, and certainly more than the limit after it."""
    again: list[Case] = []
    later: list[Case] = []
    for m in everyone:
        if len(m.seen) < 2:
            continue
        (_, first), *others = m.copies
        seen = first.end or 0
        absent = [(reads.absent_until(place, call.end or 0), call) for place, call in others]
        late = next((call for until, call in absent if until is not None and until > seen + limit), None)
        call = late or others[0][1]
        (later if late else again).append(m.case(seen, call.end or 0, first, call))
    return again, later


def _recalled(everyone: Sequence[_Message]) -> list[Case]:
    found = []
    for m in everyone:
        recall = m.recalled
        if recall is not None and m.seen:
            call = m.copies[0][1]
            found.append(m.case(recall.end or 0, call.end or 0, recall, call))
    return found


def _refused(everyone: Sequence[_Message]) -> list[Case]:
    first = ((m, m.copies[0][1]) for m in everyone if m.outcome == FAIL and m.seen)
    return [m.case(m.send.start, call.end or 0, call) for m, call in first]


_LOST: Final = "{n} delayed messages were acknowledged and are in no queue of any replica at the end"
_EARLY: Final = "{n} delayed messages were returned by a read more than a second before they were due"
_LATE: Final = "{n} delayed messages were not readable at any node for longer than the limit after they were due"
_RECALLED: Final = "{n} delayed messages were recalled in time, with an acknowledgement, and delivered"
_REFUSED: Final = "{n} delayed messages were delivered although their send had certainly failed"
_AGAIN: Final = "{n} delayed messages were delivered more than once"
_LATER: Final = "{n} delayed messages were delivered again long after a reader had received them"


def _shown(case: Case) -> Case:
    """The case with its texts."""
    m: _Message = case.about
    node = (m.send.completion.extra if m.send.completion is not None else {}).get("node")
    places = ", ".join(f"{at}:{offset} at {clock(call.end or 0)}" for (at, offset), call in m.copies[:4])
    took = "" if case.limit is None else f" for {case.took / SECOND:.1f} s from {clock(case.start)}"
    text = (
        f"message {m.id}, sent to {node} ({m.queue}) at {clock(m.send.start)}, due at {clock(m.latest)}{took}; seen: "
        f"{places or 'never'}"
    )
    listed = {
        "id": m.id,
        "by": m.send.invoke.extra.get("by"),
        "queue": m.send.invoke.key,
        "due": clock(m.latest),
        "seen": [[queue, offset, clock(call.end or 0)] for (queue, offset), call in m.copies],
    }
    return case._replace(text=text, listed=listed)


_SHOWN: Final[Mapping[str, Any]] = {"whole": True, "text": _shown}
"""One anomaly stands for all cases of a kind, and its time is theirs."""
