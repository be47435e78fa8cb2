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
  master is alive that could accept the message). It does not run while all nodes of the group are impaired.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from checkers.base.legality import Part, divided, permission, settled
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.duties import Place, QueueReads, never_sent, unserved
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, quantile
from results.history import Call
from results.op import FAIL, OK
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

EARLY_NS: Final = SECOND
"""RocketMQ's timers have a precision of one second (`timerPrecisionMs`)."""

TOO_LATE_NS: Final = 2 * SECOND
"""A recall acknowledged so shortly before the due time may be too late (`TimerMessageStore` has dequeued it)."""

_MS: Final = 1_000_000
_START_NS: Final = 5 * SECOND
"""A master that is first seen so early was master before the run."""

_LISTED: Final = 50
_OPS: Final = 12
_PROGRESS: Final = (
    "slaves copy the progress of delayed messages only periodically: a message that was delivered before a change of "
    "master may be delivered again (at least once)"
)


@dataclass
class _Message:
    """One delayed message. `owed`: acknowledged, and certainly not recalled. `seen`: the first read of each place where
    it was; `stays`: it was in the final reads.
    """

    id: int
    send: Call
    earliest: int
    latest: int
    outcome: str
    recalls: list[Call] = field(default_factory=list)
    seen: dict[Place, Call] = field(default_factory=dict)
    stays: bool = False

    @property
    def owed(self) -> bool:
        return self.outcome == OK and all(recall.outcome == FAIL for recall in self.recalls)

    @property
    def recalled(self) -> Call | None:
        """The recall that was acknowledged in time."""
        in_time = (r for r in self.recalls if r.outcome == OK and (r.end or 0) + TOO_LATE_NS <= self.earliest)
        return next(in_time, None)

    @property
    def copies(self) -> list[tuple[Place, Call]]:
        """Places in the order in which they were first seen."""
        return sorted(self.seen.items(), key=lambda item: (item[1].end or 0, item[0]))


class _Case(NamedTuple):
    """One message that breaks a promise. `start`, `end` in ns; `ops`: the ops that prove it."""

    message: _Message
    start: int
    end: int
    ops: Sequence[int]


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
        found = [
            *(
                anomaly
                for part in divided(lossy, lost, _lossy_times)
                for anomaly in _anomalies(scene, "delayed-lost", part.cases, _LOST, part.legal, part.details)
            ),
            *_anomalies(scene, "delivered-early", _early(everyone), _EARLY),
            *_late(scene, everyone, reads, service),
            *(
                anomaly
                for part in divided(lossy, _recalled(everyone), lambda case: [case.start])
                for anomaly in _anomalies(scene, "recalled-delivered", part.cases, _RECALLED, part.legal, part.details)
            ),
            *_anomalies(scene, "aborted-read", _refused(everyone), _REFUSED),
            *never_sent(strangers),
        ]
        for part in self._replayed(service, again):
            found += _anomalies(scene, "delivered-again", part.cases, _AGAIN, part.legal, part.details)
        for part in self._replayed(service, later):
            found += _anomalies(scene, "reappeared", part.cases, _LATER, part.legal, part.details)
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
        elif reads.final_since is None or reads.missing:
            missing = reads.missing or ["no queue"]
            unknown = f"it is not proven that all queues were read to their end: {', '.join(missing[:4])}"
        elif open_:
            why = (
                "were not yet due for long enough"
                if service.served
                else "could not be delivered, because no send was acknowledged"
            )
            unknown = f"{open_:,} undelivered messages {why} when the final reads began"
        reason = f"{stats['delivered']:,} of {stats['acknowledged']:,} acknowledged delayed messages delivered"
        return settled(self.name, run, found, stats, reason, unknown)

    def _replayed(self, service: _Service, cases: Sequence[_Case]) -> list[Part[_Case]]:
        """The cases that nothing explains, and those that an older progress explains."""
        ages = [service.replays(c.start, c.end, self.slack) for c in cases]
        wrong = [c for c, age in zip(cases, ages, strict=True) if age is None]
        legal = [c for c, age in zip(cases, ages, strict=True) if age is not None]
        near = round(max((age for age in ages if age is not None), default=0.0), 3)
        return [Part(wrong), Part(legal, _PROGRESS, {"bound_s": self.slack / SECOND, "nearest_s": near})]


class _Service:
    """The times in which the servers owed a delivery."""

    def __init__(self, run: RunRecord, scene: RunTimeline, messages: Iterable[_Message], limit: int) -> None:
        self.limit = limit
        self.intervals = scene.fault_intervals
        self._changes = [(i.start_ns, i.end_ns) for i in self.intervals]
        self._changes += [(r.since - limit, r.since) for r in scene.master_periods if r.since > _START_NS]
        escaped = (
            call.end or 0
            for m in messages
            for (queue, _), call in m.seen.items()
            if group_of(queue) != group_of(str(m.send.invoke.key))
        )
        self._changes += [(at - limit, at) for at in {t - t % SECOND for t in escaped}]
        self.edges = sorted(t for i in self.intervals for t in (i.start_ns, i.end_ns) if t is not None)
        self.groups: Mapping[str, Sequence[str]] = run.deployment.groups
        sends = [c for c in run.history.clients.calls if c.invoke.f == "delay" and c.completion is not None]
        self._unserved, self.served = unserved(sends)

    def owed_since(self, due: int, until: int, group: str | None) -> int:
        """The time (ns) since which the message was owed without a break, as of `until`."""
        if self._all_impaired(group, until):
            return until
        breaks = (times[at - 1] for times in (self.edges, self._unserved) if (at := bisect_left(times, until)))
        return max([due, *breaks])

    def is_settled(self, due: int, by: int) -> bool:
        """True if a message due at `due` must be there at `by`: after the last fault, if masters served again."""
        return self.served and max([due, *self.edges[-1:], *self._unserved[-1:]]) + self.limit <= by

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

    def _all_impaired(self, group: str | None, time: int) -> bool:
        nodes = set(self.groups.get(group or "", ()))
        hit = {
            node
            for i in self.intervals
            if i.start_ns <= time and (i.end_ns is None or i.end_ns >= time)
            for node in {*i.impairs, *i.nodes}
        }
        return bool(nodes) and nodes <= hit


def _collect(run: RunRecord) -> tuple[dict[int, _Message], list[tuple[Any, Call]], QueueReads]:
    """The messages by id; values that no client sent, each with the read that returned it; and the reads."""
    messages: dict[int, _Message] = {}
    recalls, reads = [], []
    for call in run.history.clients.calls:
        f = call.invoke.f
        if f == "delay":
            wait = call.invoke.extra["wait_ms"] * _MS
            end = call.end if call.outcome == OK and call.end is not None else call.start
            known = _Message(call.invoke.value, call, call.start + wait, end + wait, call.outcome)
            messages[known.id] = known
        elif f == "recall":
            recalls.append(call)
        elif f in ("poll", "replica-read"):
            reads.append(call)
    for call in recalls:
        messages[call.invoke.value].recalls.append(call)
    strangers = []
    for call in reads:
        if call.completion is None or call.completion.type != OK:
            continue
        for offset, identity in call.completion.value:
            message = messages.get(identity)
            if message is None:
                strangers.append((identity, call))
                continue
            message.stays |= call.invoke.f == "replica-read"
            place = (str(call.invoke.key), offset)
            if place not in message.seen or (call.end or 0) < (message.seen[place].end or 0):
                message.seen[place] = call
    return messages, strangers, QueueReads(reads)


def _lost(everyone: Sequence[_Message], reads: QueueReads, service: _Service) -> tuple[list[_Case], int]:
    """Messages that must appear and are in no queue at the end; and the number of those that may still appear."""
    since = reads.final_since
    if since is None or reads.missing:
        return [], 0
    gone = [m for m in everyone if m.owed and not m.stays]
    due = [m for m in gone if service.is_settled(m.latest, since)]
    return [_Case(m, m.latest, since, _ops(m)) for m in due], len(gone) - len(due)


def _lossy_times(case: _Case) -> list[int]:
    """The times when brokers stored a message: at its acknowledgement, and again when it was due."""
    m = case.message
    return [m.send.end or m.send.start, m.latest]


def _early(everyone: Sequence[_Message]) -> list[_Case]:
    cases = []
    for m in everyone:
        for _, call in m.copies[:1]:
            if call.end is not None and call.end < m.earliest - EARLY_NS:
                cases.append(_Case(m, call.end, m.earliest, _ops(m, call)))
    return cases


def _late(scene: RunTimeline, everyone: Sequence[_Message], reads: QueueReads, service: _Service) -> Iterator[Anomaly]:
    """One anomaly of time for each group that acknowledged such messages; its window is that of the worst."""
    by_group: dict[str | None, list[_Case]] = {}
    for m in everyone:
        if not m.seen or not m.owed:
            continue
        bounds = [reads.absent_until(place, m.copies[0][1].end or 0) for place in m.seen]
        if None in bounds:
            continue
        until = min(b for b in bounds if b is not None)
        group = group_of(str(m.send.invoke.key))
        start = service.owed_since(m.latest, until, group)
        if until - start > service.limit:
            by_group.setdefault(group, []).append(_Case(m, start, until, _ops(m, m.copies[0][1])))
    for cases in by_group.values():
        worst = max(cases, key=lambda c: c.end - c.start)
        for told in _anomalies(scene, "delivered-late", [worst, *(c for c in cases if c is not worst)], _LATE):
            yield replace(told, window=(worst.start, worst.end), limit_s=service.limit / SECOND)


def _copies(everyone: Sequence[_Message], reads: QueueReads, limit: int) -> tuple[list[_Case], list[_Case]]:
    """Messages with a second copy: soon after the first, and certainly more than the limit after it."""
    again: list[_Case] = []
    later: list[_Case] = []
    for m in everyone:
        if len(m.seen) < 2:
            continue
        (_, first), *others = m.copies
        seen = first.end or 0
        absent = [(reads.absent_until(place, call.end or 0), call) for place, call in others]
        late = next((call for until, call in absent if until is not None and until > seen + limit), None)
        call = late or others[0][1]
        (later if late else again).append(_Case(m, seen, call.end or 0, _ops(m, first, call)))
    return again, later


def _recalled(everyone: Sequence[_Message]) -> list[_Case]:
    found = []
    for m in everyone:
        recall = m.recalled
        if recall is not None and m.seen:
            call = m.copies[0][1]
            found.append(_Case(m, recall.end or 0, call.end or 0, _ops(m, recall, call)))
    return found


def _refused(everyone: Sequence[_Message]) -> list[_Case]:
    first = ((m, m.copies[0][1]) for m in everyone if m.outcome == FAIL and m.seen)
    return [_Case(m, m.send.start, call.end or 0, _ops(m, call)) for m, call in first]


_LOST: Final = "acknowledged and are in no queue of any replica at the end"
_EARLY: Final = "returned by a read more than a second before they were due"
_LATE: Final = "not readable at any node for longer than the limit after they were due"
_RECALLED: Final = "recalled in time, with an acknowledgement, and delivered"
_REFUSED: Final = "delivered although their send had certainly failed"
_AGAIN: Final = "delivered more than once"
_LATER: Final = "delivered again long after a reader had received them"


def _anomalies(
    scene: RunTimeline,
    name: str,
    cases: Sequence[_Case],
    what: str,
    legal: str | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Anomaly]:
    """One anomaly for all cases of a kind; the first is described in full. more: further details."""
    if not cases:
        return
    first = cases[0]
    m, queue = first.message, str(first.message.send.invoke.key)
    node = (m.send.completion.extra if m.send.completion is not None else {}).get("node")
    places = ", ".join(f"{at}:{offset} at {clock(call.end or 0)}" for (at, offset), call in m.copies[:4])
    took = (
        f" for {(first.end - first.start) / SECOND:.1f} s from {clock(first.start)}" if name == "delivered-late" else ""
    )
    yield Anomaly(
        name,
        f"{len(cases):,} delayed messages were {what}: message {m.id}, sent to {node} ({queue}) at "
        f"{clock(m.send.start)}, due at {clock(m.latest)}{took}; seen: {places or 'never'}."
        f"{scene.describe(first.start, first.end, group_of(queue))}",
        queue if len({c.message.send.invoke.key for c in cases}) == 1 else None,
        sorted({i for c in cases[: _OPS // 2] for i in c.ops}),
        (min(c.start for c in cases), max(c.end for c in cases)),
        {
            "count": len(cases),
            "first": [_listed(c) for c in cases[:_LISTED]],
            **more,
            **scene.details(first.start, first.end, group_of(queue)),
        },
        legal=legal,
    )


def _listed(case: _Case) -> dict[str, Any]:
    m = case.message
    return {
        "id": m.id,
        "by": m.send.invoke.extra.get("by"),
        "queue": m.send.invoke.key,
        "due": clock(m.latest),
        "seen": [[queue, offset, clock(call.end or 0)] for (queue, offset), call in m.copies],
    }


def _ops(message: _Message, *calls: Call) -> list[int]:
    return sorted({message.send.invoke.index, *(call.invoke.index for call in calls)})
