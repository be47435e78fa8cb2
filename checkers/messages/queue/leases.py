# SPDX-License-Identifier: Apache-2.0
"""Pop: every popped message has a lease for some time, then it is acknowledged or delivered again.

Each (group, message) is a state machine: ready -> leased -> acknowledged, or ready again when the lease ends. Leases
follow the broker's clock, from some time between the pop's invocation and its completion. Only certain facts count: a
lease lasts at least from the completion to the invocation plus the invisible time, and at most until the completion
plus that time.

Each delivery has a check point of its own in the broker, and an acknowledgement ends the one that its handle names. A
message that was delivered twice at once, where that is permitted, may come back although one delivery was acknowledged:
the check point of the other is still due.

Slaves receive pop progress and acknowledgements with the consumer offsets (`checkers.messages.queue.offsets`). A change
of master may therefore redeliver messages that were popped or acknowledged shortly before. This is at-least-once: shown
and permitted.

A reset of the group's offset (`checkers.messages.resets`) delivers each place at its target or above it once more,
whatever became of the earlier deliveries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from checkers.base.cases import Case, anomalies
from checkers.base.legality import Part, conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.ops import of_messages
from checkers.messages.resets import FOREVER, resets_of
from results.figures import SECOND, clock
from results.history import Call, History
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

_MS = 1_000_000
_START_NS = 5 * SECOND
"""A master that is first seen so early was master before the run."""

_RETURNING_NS = 30 * SECOND
"""A master that returns needs so long to take over from its acting master, or to follow another (seen: 5 to 20 s)."""

_AFTER_A_FAULT = (
    "a change of master may redeliver messages that were popped or acknowledged shortly before (at least once)"
)
_RESET = "an administrator reset the group's offset to the message or below it"


Place = tuple[str, bool, int]
"""A queue; True for that of the group's retry topic, which may have the same number; and the offset there."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One delivery. `sure`, `over`: the times (ns) until which it certainly lasts, and when it is certainly over.
    `copy`: True if from the retry topic of the group.
    """

    call: Call
    queue: str
    offset: int
    sure: int
    over: int
    handle: str
    copy: bool = False

    @property
    def place(self) -> Place:
        """The place that it was delivered from."""
        return self.queue, self.copy, self.offset

    @property
    def node(self) -> str:
        """The node that delivered it; through a proxy, the proxy."""
        extra = self.call.completion.extra if self.call.completion is not None else {}
        return str(extra.get("node") or extra.get("proxy") or self.call.invoke.extra.get("node"))


Forgotten = tuple[int, int, Lease]
"""A fact that the brokers must have forgotten: the time (from, to; ns) when it may have happened, and the delivery that
shows the loss.
"""


Doubled = tuple[str, int, Any, Lease, Sequence[Forgotten]]
"""(group, id, the first delivery or its acknowledgement, the later delivery, the facts that may be forgotten)."""


@dataclass
class _Held:
    """The life of one message in one group. `acked`: the first acknowledgement that was accepted. `handles`: those of
    all deliveries whose acknowledgement was accepted, with the first such call.
    """

    leases: list[Lease] = field(default_factory=list)
    acked: Call | None = None
    handles: dict[str, Call] = field(default_factory=dict)
    renewed: dict[str, str] = field(default_factory=dict)
    """A handle that an extension returned -> the one of the delivery."""
    perhaps: bool = False
    """True after an acknowledgement of unknown outcome, or an extension of a lease."""

    def delivery(self, call: Call) -> str:
        """The handle of the delivery that an acknowledgement or an extension is about. If it names none, that is the
        last delivery whose answer came before it.
        """
        value = call.invoke.value
        if isinstance(value, list) and value:
            handle = str(value[0])
            return self.renewed.get(handle, handle)
        came = [lease for lease in self.leases if lease.call.end is not None and lease.call.end <= call.start]
        return max(came, key=lambda lease: lease.call.start).handle if came else ""


class Leases:
    """`limit_s`: the longest time from the end of its lease until a message comes back. `copied_within_s`: see
    `checkers.messages.queue.Offsets`.
    """

    name = "leases"

    def __init__(self, limit_s: float = 60, copied_within_s: float = 15) -> None:
        self.limit, self.slack = int(limit_s * SECOND), int(copied_within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`leased-twice`, `acked-redelivered`, `never-returned`. `stats`: `messages`, `leases`, `acked`."""
        held, last_pop = _lives(run.history)
        leases = sum(len(life.leases) for life in held.values())
        if not leases:
            return CheckResult(self.name, Verdict.UNKNOWN, "nothing was popped")
        scene, made, replays = RunTimeline(run), _made(held), _Replays(held, run.history)
        stats = {
            "messages": len(held),
            "leases": leases,
            "acked": sum(life.acked is not None for life in held.values()),
        }
        twice, after, gone = [], [], []
        for (group, identity), life in held.items():
            for a, b in _overlaps(life):
                twice.append((group, identity, a, b, [(a.call.start, a.call.start, b), *_due(life, a, b)]))
            after += [(group, identity, ack, b, _needed(life, ack, b, made[group])) for ack, b in _after_ack(life)]
            last = life.leases[-1]
            if life.acked is None and not life.perhaps and last_pop.get(group, 0) > last.over + self.limit:
                gone.append((group, identity, last))
        found = [
            *self._leased_twice(scene, replays, twice),
            *self._acked_redelivered(scene, replays, after),
            *_never_returned(scene, gone, last_pop, self.limit),
        ]
        return conclude(self.name, run, found, stats, f"{len(held):,} messages popped, {leases:,} leases")

    def _leased_twice(self, scene: RunTimeline, replays: _Replays, cases: Sequence[Doubled]) -> Iterator[Anomaly]:
        for part in self._divided(scene, replays, cases):
            some = [_case(a, b, _twice(identity, a, b)) for _, identity, a, b, _ in part.cases]
            what = f"{{n}} messages were leased twice at once in group {part.cases[0][0]}"
            yield from anomalies(scene, "leased-twice", some, what, legal=part.legal, more=part.details, whole=True)

    def _acked_redelivered(self, scene: RunTimeline, replays: _Replays, cases: Sequence[Doubled]) -> Iterator[Anomaly]:
        for part in self._divided(scene, replays, cases):
            some = [_case(ack, b, _after(identity, ack, b)) for _, identity, ack, b, _ in part.cases]
            group = part.cases[0][0]
            what = f"{{n}} messages were delivered to group {group} after their acknowledgement had been accepted"
            yield from anomalies(
                scene, "acked-redelivered", some, what, legal=part.legal, more=part.details, whole=True
            )

    def _divided(self, scene: RunTimeline, replays: _Replays, cases: Sequence[Doubled]) -> Iterator[Part[Doubled]]:
        """Yields the cases that nothing permits, then those that a reset explains, then the others, with the longest
        time from the fact that the brokers must have forgotten to the fault, or change of master, that explains it.
        """
        wrong: list[Doubled] = []
        by_reset: list[Doubled] = []
        legal: list[Doubled] = []
        ages: list[float] = []
        for case in cases:
            if any(replays.explains(case[0], case[1], one[2]) for one in case[4]):
                by_reset.append(case)
                continue
            found = [age for one in case[4] if (age := self._forgotten(scene, *one)) is not None]
            (legal if found else wrong).append(case)
            ages += [min(found)] if found else []
        if wrong:
            yield Part(wrong)
        if by_reset:
            yield Part(by_reset, _RESET)
        if legal:
            yield Part(legal, _AFTER_A_FAULT, {"bound_s": self.slack / SECOND, "nearest_s": round(max(ages), 3)})

    def _forgotten(self, scene: RunTimeline, first: int, last: int, again: Lease) -> float | None:
        """The time, in seconds, from a fact between `first` and `last` (ns) to the fault, or change of master, that may
        have made the brokers forget it before `again`. That was in force, or had ended for no longer than a returning
        master takes, or came shortly after. None: no such cause.
        """
        until = again.call.end or again.call.start
        changes = [(i.start_ns, i.end_ns) for i in scene.fault_intervals]
        changes += [(r.since, r.since) for r in scene.master_periods if r.since > _START_NS]
        ages = (
            max(0, start - last) / SECOND
            for start, end in changes
            if start - self.slack <= last and start <= until and (end is None or first <= end + _RETURNING_NS)
        )
        return min(ages, default=None)


class _Replays:
    """The deliveries that resets explain.

    * Of each place, one for each reset to it or below it.
    * The return of such a delivery that was not acknowledged in time.
    * If the answer to a pop was lost, the return of what it took: either it was such a delivery, or one came although
      the lost pop had the message.
    """

    def __init__(self, held: Mapping[tuple[str, int], _Held], history: History) -> None:
        self.held, self.resets = held, resets_of(history)
        self._lost: dict[str, list[int]] = {}
        """group -> the times (ns) at which the leases of pops without an answer may end, at the earliest."""
        for call in history.clients.calls if self.resets else ():
            if call.invoke.f == "pop" and call.outcome == "info":
                time = int(call.invoke.extra.get("invisible_ms") or 0) * _MS
                self._lost.setdefault(str(call.invoke.extra.get("group")), []).append(call.start + time)
        self._starts: dict[tuple[str, Place], list[int]] = {}
        for (group, _), life in held.items() if self.resets else ():
            for lease in life.leases:
                self._starts.setdefault((group, lease.place), []).append(lease.call.invoke.index)

    def explains(self, group: str, identity: int, lease: Lease) -> bool:
        """True if a reset may be the reason for a delivery."""
        if not self.resets:
            return False
        life = self.held[group, identity]
        before = sorted((a for a in life.leases if a.call.start < lease.call.start), key=lambda a: a.call.start)
        explained: list[Lease] = []
        for one in [*before, lease]:
            end = one.call.end or 0
            returned = one.copy and any(_unsettled(life, a) and a.sure <= end for a in explained)
            lost = one.copy and any(until <= end for until in self._lost.get(group, ()))
            if returned or (lost and self._reset(group, before, one)) or self._replayed(group, one):
                explained.append(one)
        return bool(explained) and explained[-1] is lease

    def _reset(self, group: str, before: Sequence[Lease], copy: Lease) -> bool:
        """True if a reset to the message's own place, or below, was requested before a copy of it came."""
        end = FOREVER if copy.call.completion is None else copy.call.completion.index
        places = {(a.queue, a.offset) for a in before if not a.copy}
        return any(r.low <= offset and r.start < end for queue, offset in places for r in self.resets.of(group, queue))

    def _replayed(self, group: str, lease: Lease) -> bool:
        """True if no earlier delivery of the place was requested after a reset to it, or below, was acknowledged."""
        if lease.copy:
            return False
        done = lease.call.completion
        start, end = lease.call.invoke.index, FOREVER if done is None else done.index
        back = [r for r in self.resets.of(group, lease.queue) if r.low <= lease.offset and r.start < end]
        starts = self._starts.get((group, lease.place), ())
        return any(not any(r.end < other < start for other in starts) for r in back)


def _unsettled(life: _Held, lease: Lease) -> bool:
    """True unless a delivery was acknowledged while its lease certainly ran."""
    ack = life.handles.get(lease.handle)
    return ack is None or (ack.end or 0) >= lease.sure


def _lives(history: History) -> tuple[dict[tuple[str, int], _Held], dict[str, int]]:
    """(group, id) -> its life, and group -> the invocation (ns) of its last pop that was answered."""
    held: dict[tuple[str, int], _Held] = {}
    last: dict[str, int] = {}
    for call in history.clients.calls:
        f, done = call.invoke.f, call.completion
        extra: dict[str, Any] = {**call.invoke.extra, **(done.extra if done is not None else {})}
        group = str(extra.get("group"))
        if f == "pop" and done is not None and done.type == "ok":
            last[group] = call.start
            time = int(extra.get("invisible_ms") or 0) * _MS
            for queue, offset, identity, handle, copy, *_ in done.value:
                until = call.start + time, done.time + time
                lease = Lease(call, str(queue), int(offset), *until, str(handle), bool(copy))
                held.setdefault((group, identity), _Held()).leases.append(lease)
        elif f in ("ack", "extend") and call.outcome != "fail":
            life = held.get((group, extra.get("id", 0)))
            if life is None:
                continue
            if f == "ack" and call.outcome == "ok":
                life.acked = life.acked or call
                life.handles.setdefault(life.delivery(call), call)
            else:
                life.perhaps = True
                if f == "extend" and done is not None and done.type == "ok" and isinstance(done.value, list):
                    life.renewed.update({str(handle): life.delivery(call) for handle in done.value[:1]})
    return held, last


def _made(held: Mapping[tuple[str, int], _Held]) -> dict[str, dict[Place, int]]:
    """group -> place in its retry topic -> the time (ns) before which the copy there was certainly not made.

    A lease of the message had ended before, and the copies at lower offsets of the queue were made before.
    """
    queues: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for (group, _), life in held.items():
        of = queues.setdefault(group, {})
        for copy in (lease for lease in life.leases if lease.copy):
            ends = [a.sure for a in life.leases if a.call.start < copy.call.start and a.place != copy.place]
            of.setdefault(copy.queue, []).append((copy.offset, min(ends, default=0)))
    found: dict[str, dict[Place, int]] = {}
    for group, of in queues.items():
        found[group] = {}
        for queue, copies in of.items():
            made = 0
            for offset, end in sorted(copies):
                made = max(made, end)
                found[group][queue, True, offset] = made
    return found


def _overlaps(life: _Held) -> Iterator[tuple[Lease, Lease]]:
    """Yields neighbouring leases that certainly both ran when the answers to both pops had arrived."""
    if life.perhaps:
        return
    order = sorted(life.leases, key=lambda lease: lease.call.start)
    for a, b in pairwise(order):
        both = max(a.call.end or 0, b.call.end or 0)
        acked = life.acked is not None and life.acked.start < both
        if both < a.sure and both < b.sure and not acked:
            yield a, b


def _after_ack(life: _Held) -> Iterator[tuple[Call, Lease]]:
    """Deliveries requested after an acknowledgement had been accepted while its lease certainly ran."""
    ack = life.acked
    if ack is None or ack.end is None:
        return
    before = [lease for lease in life.leases if (lease.call.end or 0) <= ack.start]
    if not before or ack.end >= max(lease.sure for lease in before):
        return
    for lease in life.leases:
        if lease.call.start > ack.end:
            yield ack, lease


def _needed(life: _Held, ack: Call, again: Lease, made: Mapping[Place, int]) -> list[Forgotten]:
    """The facts of which the brokers must have forgotten one, for `again` to be permitted after an acknowledgement:

    * The acknowledgement itself.
    * The earlier deliveries of the place of `again`, if that is not the acknowledged place. A message that came back is
      at two places: its own, and one of the group's retry topic.
    * The return of the message: a new master may put it into the retry topic once more, as its check points may be
      older than the last master's. Such a copy waits there until those before it are delivered; it was `made` (`_made`)
      at some time before `again`.
    * An earlier lease: then the acknowledged delivery was a second one, and the first one is due.
    """
    end = ack.end or 0
    found = [(end, end, again)]
    before = [lease for lease in life.leases if lease.call.start < again.call.start]
    if again.place not in (lease.place for lease in before if lease.handle == life.delivery(ack)):
        earlier = [at.call.end or 0 for at in before if at.place == again.place]
        found += [(at, at, again) for at in earlier]
        if again.copy and not earlier and made[again.place] <= again.call.start:
            found.append((made[again.place], again.call.start, again))
    for second in before:
        if second.handle == life.delivery(ack):
            found += _due(life, second, again)
    return found


def _due(life: _Held, second: Lease, again: Lease) -> list[Forgotten]:
    """Leases without an acknowledgement that ran when the message was delivered a `second` time, and may have ended
    when `again` came.
    """
    return [
        (lease.call.end or 0, lease.call.end or 0, second)
        for lease in life.leases
        if lease.handle not in life.handles
        and lease.call.start < second.call.start < lease.over
        and lease.sure <= (again.call.end or 0)
    ]


def _never_returned(
    scene: RunTimeline, gone: Sequence[tuple[str, int, Lease]], last_pop: Mapping[str, int], limit: int
) -> Iterator[Anomaly]:
    """Yields one anomaly. Its window is that of the message that had the most time to come back."""
    if not gone:
        return
    waited = max(((lease.over, last_pop[group]) for group, _, lease in gone), key=lambda span: span[1] - span[0])
    what = (
        f"{{n}} messages of group {gone[0][0]} were popped, never acknowledged, and not delivered again within "
        f"{limit / SECOND:g} s after their leases"
    )
    cases = [
        _case(
            lease.call,
            lease,
            f"message {identity} (offset {lease.offset} of {lease.queue}), popped from {lease.node} at "
            f"{clock(lease.call.end or 0)}, lease over at {clock(lease.over)} at the latest",
        )
        for _, identity, lease in gone
    ]
    for found in anomalies(scene, "never-returned", cases, what):
        yield replace(found, window=waited, limit_s=limit / SECOND)


def _case(first: Call | Lease, lease: Lease, text: str) -> Case:
    """A case of two deliveries, or of an acknowledgement and a delivery."""
    call = first.call if isinstance(first, Lease) else first
    ops = sorted({call.invoke.index, lease.call.invoke.index})
    return Case(call.start, lease.call.end or lease.call.start, ops, text, key=lease.queue)


def _twice(identity: int, a: Lease, b: Lease) -> str:
    longer = (a.sure - (a.call.end or 0)) / SECOND
    return (
        f"message {identity} (offset {a.offset} of {a.queue}) by {a.node} at {clock(a.call.end or 0)}, for at least "
        f"{longer:.1f} s more, and again by {b.node} at {clock(b.call.end or 0)}"
    )


def _after(identity: int, ack: Call, lease: Lease) -> str:
    return (
        f"message {identity} (offset {lease.offset} of {lease.queue}), acknowledged at {clock(ack.end or 0)}, again by "
        f"{lease.node} at {clock(lease.call.end or 0)}"
    )
