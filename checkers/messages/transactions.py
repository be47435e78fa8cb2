"""Transactional messages: a committed one appears, one that was rolled back or left open never does, and the broker
asks about each one whose end it does not know.

A client sends a half message (`half`), which no reader sees, and ends it (`end`): commit or rollback. Brokers ask their
producers about half messages without an end (`check`), and the client answers with another `end`. The checker follows a
message by its id through all queues, because RIP-32's acting master hands half messages over to another broker group,
which then asks and delivers. All times are those of the machine that runs the clients (monotonic).

* A half message is open from its acknowledgement, or the last question about it, to the next question, or to the first
  end that did not fail. After the timeout, the broker that has it asks within an interval of its checks.
* The limit for a question starts again when a fault begins or ends, and when no broker serves. It does not run while
  all nodes of the group are impaired, nor while the group's master serves no sends although no fault struck it.
* A message is at as many places (offsets of queues at the end) as it was delivered. Each commit that a broker accepts
  makes a copy. So a second copy comes from a question about a decided transaction. The broker stores decisions in
  batches; a fault right after one may lose it, and the question after that is permitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from checkers.base.legality import divided, permission, settled
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.duties import Place, QueueReads, never_sent, unserved
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, quantile
from results.history import Call
from results.op import FAIL, INFO, OK
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_MS: Final = 1_000_000
_START_NS: Final = 5 * SECOND
"""A master that is first seen so early was master before the run."""

_QUESTIONS: Final = 10
"""The number of questions about one half message that are judged: brokers give up after 15 (`transactionCheckMax`)."""

_LISTED: Final = 50
_OPS: Final = 12

_BATCHED: Final = (
    "brokers store decisions in batches: they ask again about a transaction that was decided right before a fault, and "
    "a second commit makes a second message (at least once)"
)


@dataclass
class _Transaction:
    """One transaction. `ends` and `checks` in order; `seen`: the first read of each place where the message was;
    `final`: the places where the final reads found it.
    """

    id: int
    half: Call
    ends: list[Call] = field(default_factory=list)
    checks: list[Call] = field(default_factory=list)
    seen: dict[Place, Call] = field(default_factory=dict)
    final: set[Place] = field(default_factory=set)

    @property
    def commits(self) -> list[Call]:
        """Ends as a commit that a broker accepted, or may have accepted."""
        return [e for e in self.ends if e.invoke.extra["as"] == "commit" and e.outcome != FAIL]

    def ended(self, how: str) -> Call | None:
        """The first end of a kind that was acknowledged."""
        return next((e for e in self.ends if e.invoke.extra["as"] == how and e.outcome == OK), None)

    @property
    def copies(self) -> list[tuple[Place, Call]]:
        """Places in the order in which they were first seen."""
        return sorted(self.seen.items(), key=lambda item: (item[1].end or 0, item[0]))


class _Case(NamedTuple):
    """One transaction that breaks a promise. `start`, `end` in ns; `ops`: the ops that prove it."""

    of: _Transaction
    start: int
    end: int
    ops: Sequence[int]


class Transactions:
    """`timeout_s`, `interval_s`, `batch_s`: the brokers' transactionTimeOut, transactionCheckInterval and
    transactionOpBatchInterval. `limit_s`: the further delay that is allowed for a question, also after a fault begins
    or ends.
    """

    name = "transactions"

    def __init__(self, timeout_s: float = 3, interval_s: float = 5, batch_s: float = 0.5, limit_s: float = 10) -> None:
        self.timeout, self.interval, self.batch = (int(s * SECOND) for s in (timeout_s, interval_s, batch_s))
        self.bound = self.timeout + 2 * self.interval + int(limit_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`committed-lost`, `rolled-back-read`, `uncommitted-read`, `never-asked`, `delivered-again`, `aborted-read`,
        `never-sent`. `stats`: `halves`, `acknowledged`, `committed`, `rolled_back`, `asked` (transactions that were
        asked about), `asked_again` (although their end had been acknowledged), `asked_by_others`: questions of another
        broker group than the half message's; `asked_after_s` (`p50`, `max`): from a half message's acknowledgement to
        the first question; `delivered`, `copies` beyond the first, `most_copies` of one message.
        """
        everyone, strangers, reads = _collect(run)
        scene = RunTimeline(run)
        duty = _Duty(run, scene, everyone, self.bound)
        open_, lost = _lost(everyone, reads, duty)
        again = self._again(scene, everyone)
        found = [
            *(
                anomaly
                for part in divided(permission(run, "lost"), lost, _lossy_times)
                for anomaly in _anomalies(scene, "committed-lost", part.cases, _LOST, part.legal, part.details)
            ),
            *_anomalies(scene, "rolled-back-read", _rolled_back(everyone), _ROLLED_BACK),
            *_anomalies(scene, "uncommitted-read", _uncommitted(everyone), _UNCOMMITTED),
            *_anomalies(scene, "aborted-read", _aborted(everyone), _ABORTED),
            *_never_asked(scene, duty, everyone),
            *_anomalies(scene, "delivered-again", [case for case, legal in again if not legal], _AGAIN),
            *_anomalies(scene, "delivered-again", [case for case, legal in again if legal], _AGAIN, legal=_BATCHED),
            *never_sent(strangers),
        ]
        stats = _stats(everyone)
        unknown = None
        if not stats["acknowledged"]:
            unknown = "no half message was acknowledged"
        elif reads.final_since is None or reads.missing:
            what = reads.missing or ["no queue"]
            unknown = f"it is not proven that all queues were read to their end: {', '.join(what[:4])}"
        elif open_:
            unknown = f"{open_:,} committed messages were not yet due for long enough when the final reads began"
        elif not stats["asked"]:
            unknown = "no broker asked about any half message"
        reason = (
            f"{stats['delivered']:,} of {stats['committed']:,} committed messages delivered, {stats['asked']:,} "
            "transactions asked about"
        )
        return settled(self.name, run, found, stats, reason, unknown)

    def _again(self, scene: RunTimeline, everyone: Sequence[_Transaction]) -> list[tuple[_Case, bool]]:
        """Transactions with more than one copy at the end; True with one if all of its copies are explained."""
        changes = _changes(scene, everyone, self.bound)
        found = []
        for t in everyone:
            if len(t.final) < 2:
                continue
            commits = t.commits
            before = commits[:-1]  # after each of these, a broker asked again
            doubtful = sum(e.outcome == INFO or self._is_late(t, e) for e in before)
            faults = {c for e in before for c in changes if self._forgets(c, e)}
            legal = len(t.final) <= min(len(commits), 1 + doubtful + len(faults))
            (_, first), *_ = copies = t.copies
            last = copies[-1][1]
            ops = [*_ops(t, first, last), *(e.invoke.index for e in commits)]
            found.append((_Case(t, first.end or 0, last.end or 0, ops), legal))
        return found

    def _is_late(self, t: _Transaction, end: Call) -> bool:
        """True if the broker may have asked once more before it could know of this end."""
        asked = [at for at in map(_asked_at, t.checks) if at <= end.start]
        since, patience = (asked[-1], self.interval) if asked else (t.half.start, self.timeout)
        return (end.end or end.start) + self.batch > since + patience

    def _forgets(self, change: _Change, end: Call) -> bool:
        """True if a change may have lost a decision: made shortly before it began, or on a node that it impaired."""
        by = end.end or end.start
        if change.start - self.batch - self.interval <= by <= change.start:
            return True
        node = (end.completion.extra if end.completion is not None else {}).get("node")
        reached = change.nodes is None or node in change.nodes
        return reached and change.start <= by and (change.end is None or end.start <= change.end)


class _Change(NamedTuple):
    """A fault, or a change of master without one. `nodes`: the impaired ones; None: unknown."""

    start: int
    end: int | None
    nodes: frozenset[str] | None


def _changes(scene: RunTimeline, everyone: Sequence[_Transaction], limit: int) -> list[_Change]:
    """Faults, changes of master without one, and slaves that acted without one, as questions of other groups show."""
    found = [_Change(i.start_ns, i.end_ns, frozenset({*i.impairs, *i.nodes})) for i in scene.fault_intervals]
    alone = [r.since for r in scene.master_periods if r.since > _START_NS]
    alone += [_asked_at(check) for t in everyone for check in t.checks if _is_of_others(t, check)]
    last = None
    for at in sorted(alone):
        if scene.in_force(at - 2 * limit, at) or (last is not None and at <= last + limit):
            continue
        found.append(_Change(at - limit, at, None))
        last = at
    return found


class _Duty:
    """The times in which the brokers owed a question, or a delivery."""

    def __init__(self, run: RunRecord, scene: RunTimeline, everyone: Sequence[_Transaction], bound: int) -> None:
        self.bound = bound
        self.intervals = scene.fault_intervals
        self.edges = sorted(t for i in self.intervals for t in (i.start_ns, i.end_ns) if t is not None)
        self.groups: Mapping[str, Sequence[str]] = run.deployment.groups
        self.stand_in = run.deployment.traits.stands_in
        self._unserved, self.served = unserved([t.half for t in everyone])
        of: dict[str | None, list[Call]] = {}
        for t in everyone:
            of.setdefault(group_of(str(t.half.invoke.key)), []).append(t.half)
        self._refused = {group: self._refusals(halves) for group, halves in of.items()}
        self._last_ack = {
            group: max((half.end or 0 for half in halves if half.outcome == OK), default=0)
            for group, halves in of.items()
        }
        checks = [c for c in run.history.clients.calls if c.invoke.f == "check" and c.end is not None]
        self.heard_until = max((c.end or 0 for c in checks if c.outcome == OK), default=0)
        """The time (ns) of the last question that a client received."""

    def _refusals(self, halves: Sequence[Call]) -> list[int]:
        """The times when the group's master served no send, although no fault impaired it or no slave replaces it."""
        times, _ = unserved(halves)
        acks = sorted((c for c in halves if c.outcome == OK), key=lambda c: c.end or 0)
        found, at, master = [], 0, ""
        for time in times:
            while at < len(acks) and (acks[at].end or 0) <= time:
                master, at = _node(acks[at]), at + 1
            if not self.stand_in or master not in self._impaired(time):
                found.append(time)
        return found

    def _impaired(self, time: int) -> set[str]:
        return {
            node
            for i in self.intervals
            if i.start_ns <= time and (i.end_ns is None or i.end_ns >= time)
            for node in {*i.impairs, *i.nodes}
        }

    def longest(self, start: int, end: int, group: str | None) -> tuple[int, int]:
        """The longest time between two moments in which a question was owed without a break."""
        refused = self._refused.get(group, [])
        if not self.served:
            end = min(end, self._unserved[-1])  # no broker serves after this
        elif refused and refused[-1] > self._last_ack.get(group, 0):
            end = min(end, refused[-1])
        breaks = (t for times in (self.edges, self._unserved, refused) for t in times)
        points = sorted({start, end, *(t for t in breaks if start < t < end)})
        spans = [(a, b) for a, b in pairwise(points) if b <= end and not self._all_impaired(group, (a + b) // 2)]
        return max(spans, key=lambda span: span[1] - span[0], default=(start, start))

    def is_settled(self, due: int, by: int) -> bool:
        """True if a message due at `due` must be there at `by`: after the last fault, if masters served again."""
        return self.served and max([due, *self.edges[-1:], *self._unserved[-1:]]) + self.bound <= by

    def _all_impaired(self, group: str | None, time: int) -> bool:
        nodes = set(self.groups.get(group or "", ()))
        return bool(nodes) and nodes <= self._impaired(time)


def _collect(run: RunRecord) -> tuple[list[_Transaction], list[tuple[Any, Call]], QueueReads]:
    """The transactions; values that no client sent, each with the read that returned it; and the reads."""
    found: dict[int, _Transaction] = {}
    later, reads = [], []
    for call in run.history.clients.calls:
        f = call.invoke.f
        if f == "half":
            found[call.invoke.value] = _Transaction(call.invoke.value, call)
        elif f in ("end", "check"):
            later.append(call)
        elif f in ("poll", "replica-read"):
            reads.append(call)
    for call in later:
        if call.invoke.f == "end":
            found[call.invoke.value].ends.append(call)
        elif call.completion is not None and call.outcome == OK and call.completion.value in found:
            found[call.completion.value].checks.append(call)
    for t in found.values():
        t.ends.sort(key=lambda c: c.start)
        t.checks.sort(key=_asked_at)
    strangers = []
    for call in reads:
        if call.completion is None or call.completion.type != OK:
            continue
        for offset, identity in call.completion.value:
            transaction = found.get(identity)
            if transaction is None:
                strangers.append((identity, call))
                continue
            place = (str(call.invoke.key), offset)
            if call.invoke.f == "replica-read":
                transaction.final.add(place)
            if place not in transaction.seen or (call.end or 0) < (transaction.seen[place].end or 0):
                transaction.seen[place] = call
    return list(found.values()), strangers, QueueReads(reads)


def _asked_at(check: Call) -> int:
    """The time (ns) when the broker's question arrived; the client may have handled it later."""
    done = check.completion
    waited = done.extra.get("waited_ms", 0) if done is not None else 0
    return (check.end or check.start) - int(waited) * _MS


def _is_of_others(t: _Transaction, check: Call) -> bool:
    """True if another broker group asked than the one that accepted the half message."""
    asker = check.completion.extra.get("group") if check.completion is not None else None
    return asker is not None and asker != group_of(str(t.half.invoke.key))


def _lost(everyone: Sequence[_Transaction], reads: QueueReads, duty: _Duty) -> tuple[int, list[_Case]]:
    """The number of committed messages that may still appear, and those that must appear and are in no queue."""
    since = reads.final_since
    if since is None or reads.missing:
        return 0, []
    gone = [(t, end) for t in everyone if not t.final and (end := t.ended("commit")) is not None]
    due = [(t, end) for t, end in gone if duty.is_settled(end.end or 0, since)]
    cases = [_Case(t, end.end or 0, since, [*_ops(t), end.invoke.index]) for t, end in due]
    return len(gone) - len(due), cases


def _lossy_times(case: _Case) -> list[int]:
    """The times when brokers stored a part of a transaction: its half message, and each end."""
    return [call.end or call.start for call in (case.of.half, *case.of.ends)]


def _rolled_back(everyone: Sequence[_Transaction]) -> list[_Case]:
    found = []
    for t in everyone:
        end = t.ended("rollback")
        if end is not None and t.seen and not t.commits:
            read = t.copies[0][1]
            found.append(_Case(t, end.start, read.end or 0, [*_ops(t, read), end.invoke.index]))
    return found


def _uncommitted(everyone: Sequence[_Transaction]) -> list[_Case]:
    """Transactions that were read before the first commit was requested, or without any such request."""
    found = []
    for t in everyone:
        if not t.seen or t.half.outcome == FAIL:
            continue
        read = t.copies[0][1]
        commits = t.commits
        if t.ended("rollback") is not None and not commits:
            continue  # `rolled-back-read` reports it
        if not commits or (read.end or 0) < commits[0].start:
            found.append(_Case(t, t.half.start, read.end or 0, _ops(t, read)))
    return found


def _aborted(everyone: Sequence[_Transaction]) -> list[_Case]:
    first = ((t, t.copies[0][1]) for t in everyone if t.half.outcome == FAIL and t.seen)
    return [_Case(t, t.half.start, call.end or 0, _ops(t, call)) for t, call in first]


def _never_asked(scene: RunTimeline, duty: _Duty, everyone: Sequence[_Transaction]) -> Iterator[Anomaly]:
    """One anomaly of time for each group that acknowledged such half messages; its window is that of the worst."""
    by_group: dict[str | None, list[_Case]] = {}
    for t in everyone:
        if t.half.outcome != OK:
            continue
        group = group_of(str(t.half.invoke.key))
        spans = (duty.longest(start, end, group) for start, end in _open(t, duty.heard_until))
        start, end = max(spans, key=lambda span: span[1] - span[0], default=(0, 0))
        if end - start > duty.bound:
            by_group.setdefault(group, []).append(_Case(t, start, end, _ops(t)))
    for cases in by_group.values():
        worst = max(cases, key=lambda c: c.end - c.start)
        for told in _anomalies(scene, "never-asked", [worst, *(c for c in cases if c is not worst)], _ASKED):
            yield replace(told, window=(worst.start, worst.end), limit_s=duty.bound / SECOND)


def _open(t: _Transaction, until: int) -> Iterator[tuple[int, int]]:
    """The times (ns) in which the broker had no decision and did not ask."""
    decided = min((e.start for e in t.ends if e.outcome != FAIL), default=until)
    start = t.half.end or t.half.start
    for at in [at for at in map(_asked_at, t.checks) if at < decided][:_QUESTIONS]:
        yield start, at
        start = at
    if len(t.checks) < _QUESTIONS:
        yield start, min(decided, until)


def _stats(everyone: Sequence[_Transaction]) -> dict[str, Any]:
    def asked_again(t: _Transaction) -> bool:
        known = min((e.end for e in t.ends if e.outcome == OK and e.end is not None), default=None)
        return known is not None and any(_asked_at(check) > known for check in t.checks)

    took = sorted((_asked_at(t.checks[0]) - (t.half.end or 0)) / SECOND for t in everyone if t.checks)
    return {
        "halves": len(everyone),
        "acknowledged": sum(t.half.outcome == OK for t in everyone),
        "committed": sum(t.ended("commit") is not None for t in everyone),
        "rolled_back": sum(t.ended("rollback") is not None for t in everyone),
        "asked": sum(bool(t.checks) for t in everyone),
        "asked_again": sum(map(asked_again, everyone)),
        "asked_by_others": sum(_is_of_others(t, check) for t in everyone for check in t.checks),
        "asked_after_s": {"p50": round(quantile(took, 0.5), 3), "max": round(took[-1], 3)} if took else None,
        "delivered": sum(bool(t.seen) for t in everyone),
        "copies": sum(max(0, len(t.final) - 1) for t in everyone),
        "most_copies": max((len(t.final) for t in everyone), default=0),
    }


_LOST: Final = "committed, with an acknowledgement, and are in no queue of any replica at the end"
_ROLLED_BACK: Final = "rolled back, with an acknowledgement, and were read"
_UNCOMMITTED: Final = "read although no client had requested their commit"
_ABORTED: Final = "read although the send of their half message had certainly failed"
_ASKED: Final = "left open, and no broker asked about them within the limit"
_AGAIN: Final = "delivered more than once"


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
    queue = str(first.of.half.invoke.key)
    took = f" for {(first.end - first.start) / SECOND:.1f} s from {clock(first.start)}" if name == "never-asked" else ""
    yield Anomaly(
        name,
        f"{len(cases):,} transactions were {what}: {_life(first.of)}{took}."
        f"{scene.describe(first.start, first.end, group_of(queue))}",
        queue if len({c.of.half.invoke.key for c in cases}) == 1 else None,
        sorted({i for c in cases[: _OPS // 2] for i in c.ops}),
        (min(c.start for c in cases), max(c.end for c in cases)),
        {
            "count": len(cases),
            "first": [{"id": c.of.id, "queue": c.of.half.invoke.key, "life": _life(c.of)} for c in cases[:_LISTED]],
            **more,
            **scene.details(first.start, first.end, group_of(queue)),
        },
        legal=legal,
    )


def _life(t: _Transaction) -> str:
    """The events of a transaction, in order: `message 7 (t:a:0), half at n1 00:01.0, n4 asked 00:09.2, ...`."""
    events = [(t.half.start, f"half at {_node(t.half)} {clock(t.half.start)}")]
    events += [(_asked_at(c), f"{_node(c)} asked {clock(_asked_at(c))}") for c in t.checks]
    events += [
        (e.start, f"{e.invoke.extra['as']} at {_node(e)} {clock(e.end or e.start)} ({e.outcome})") for e in t.ends
    ]
    seen = [f"seen at {queue}:{offset} {clock(call.end or 0)}" for (queue, offset), call in t.copies[:4]]
    told = [text for _, text in sorted(events, key=lambda event: event[0])]
    middle = told if len(told) <= 9 else [*told[:5], "...", *told[-3:]]
    return f"message {t.id} ({t.half.invoke.key}), {', '.join([*middle, *(seen or ['never seen'])])}"


def _node(call: Call) -> str:
    return str((call.completion.extra if call.completion is not None else {}).get("node", "nobody"))


def _ops(t: _Transaction, *calls: Call) -> list[int]:
    return sorted({t.half.invoke.index, *(call.invoke.index for call in calls)})
