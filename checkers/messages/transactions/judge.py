# SPDX-License-Identifier: Apache-2.0
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
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from checkers.base.cases import Case, anomalies, by_group, of_parts
from checkers.base.legality import Part, conclude, divided, permission
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.duties import Duty, Followed, QueueReads, follow, never_sent, unserved
from checkers.messages.ops import of_messages
from results.figures import SECOND, clock, quantile
from results.history import Call
from results.op import FAIL, INFO, OK
from results.record import RunRecord
from results.verdict import CheckResult

_MS: Final = 1_000_000
_START_NS: Final = 5 * SECOND
"""A master that is first seen so early was master before the run."""

_QUESTIONS: Final = 10
"""The number of questions about one half message that are judged: brokers give up after 15 (`transactionCheckMax`)."""


_BATCHED: Final = (
    "brokers store decisions in batches: they ask again about a transaction that was decided right before a fault, and "
    "a second commit makes a second message (at least once)"
)


@dataclass
class _Transaction(Followed):
    """One transaction. `send`: that of the half message. `ends` and `checks` in order."""

    ends: list[Call] = field(default_factory=list)
    checks: list[Call] = field(default_factory=list)

    @property
    def commits(self) -> list[Call]:
        """Ends as a commit that a broker accepted, or may have accepted."""
        return [e for e in self.ends if e.invoke.extra["as"] == "commit" and e.outcome != FAIL]

    def ended(self, how: str) -> Call | None:
        """The first end of a kind that was acknowledged."""
        return next((e for e in self.ends if e.invoke.extra["as"] == how and e.outcome == OK), None)


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
        found = [
            *of_parts(scene, "committed-lost", divided(permission(run, "lost"), lost, _lossy_times), _LOST, **_SHOWN),
            *anomalies(scene, "rolled-back-read", _rolled_back(everyone), _ROLLED_BACK, **_SHOWN),
            *anomalies(scene, "uncommitted-read", _uncommitted(everyone), _UNCOMMITTED, **_SHOWN),
            *anomalies(scene, "aborted-read", _aborted(everyone), _ABORTED, **_SHOWN),
            *by_group(scene, "never-asked", _never_asked(duty, everyone), _ASKED, self.bound, **_SHOWN),
            *of_parts(scene, "delivered-again", self._again(scene, everyone), _AGAIN, **_SHOWN),
            *never_sent(strangers),
        ]
        stats = _stats(everyone)
        unknown = None
        if not stats["acknowledged"]:
            unknown = "no half message was acknowledged"
        elif reads.unproven is not None:
            unknown = reads.unproven
        elif open_:
            unknown = f"{open_:,} committed messages were not yet due for long enough when the final reads began"
        elif not stats["asked"]:
            unknown = "no broker asked about any half message"
        reason = (
            f"{stats['delivered']:,} of {stats['committed']:,} committed messages delivered, {stats['asked']:,} "
            "transactions asked about"
        )
        return conclude(self.name, run, found, stats, reason, unknown)

    def _again(self, scene: RunTimeline, everyone: Sequence[_Transaction]) -> list[Part[Case]]:
        """Transactions with more than one copy at the end: those that nothing explains, and the others."""
        changes = _changes(scene, everyone, self.bound)
        wrong: list[Case] = []
        explained: list[Case] = []
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
            case = t.case(first.end or 0, last.end or 0, first, last, *commits)
            (explained if legal else wrong).append(case)
        return [Part(wrong), Part(explained, _BATCHED)]

    def _is_late(self, t: _Transaction, end: Call) -> bool:
        """True if the broker may have asked once more before it could know of this end."""
        asked = [at for at in map(_asked_at, t.checks) if at <= end.start]
        since, patience = (asked[-1], self.interval) if asked else (t.send.start, self.timeout)
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


class _Duty(Duty):
    """The times in which the brokers owed a question, or a delivery."""

    def __init__(self, run: RunRecord, scene: RunTimeline, everyone: Sequence[_Transaction], bound: int) -> None:
        super().__init__(run, scene, everyone, bound)
        self.stand_in = run.deployment.traits.stands_in
        of: dict[str | None, list[Call]] = {}
        for t in everyone:
            of.setdefault(group_of(t.queue), []).append(t.send)
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
            if not self.stand_in or master not in self.impaired(time):
                found.append(time)
        return found

    def longest(self, start: int, end: int, group: str | None) -> tuple[int, int]:
        """The longest time between two moments in which a question was owed without a break."""
        refused = self._refused.get(group, [])
        if not self.served:
            end = min(end, self.unserved[-1])  # no broker serves after this
        elif refused and refused[-1] > self._last_ack.get(group, 0):
            end = min(end, refused[-1])
        breaks = (t for times in (self.edges, self.unserved, refused) for t in times)
        points = sorted({start, end, *(t for t in breaks if start < t < end)})
        spans = [(a, b) for a, b in pairwise(points) if b <= end and not self.all_impaired(group, (a + b) // 2)]
        return max(spans, key=lambda span: span[1] - span[0], default=(start, start))


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
    return list(found.values()), follow(reads, found), QueueReads(reads)


def _asked_at(check: Call) -> int:
    """The time (ns) when the broker's question arrived; the client may have handled it later."""
    done = check.completion
    waited = done.extra.get("waited_ms", 0) if done is not None else 0
    return (check.end or check.start) - int(waited) * _MS


def _is_of_others(t: _Transaction, check: Call) -> bool:
    """True if another broker group asked than the one that accepted the half message."""
    asker = check.completion.extra.get("group") if check.completion is not None else None
    return asker is not None and asker != group_of(t.queue)


def _lost(everyone: Sequence[_Transaction], reads: QueueReads, duty: _Duty) -> tuple[int, list[Case]]:
    """The number of committed messages that may still appear, and those that must appear and are in no queue."""
    since = reads.complete_since
    if since is None:
        return 0, []
    gone = [(t, end) for t in everyone if not t.final and (end := t.ended("commit")) is not None]
    due = [(t, end) for t, end in gone if duty.is_settled(end.end or 0, since)]
    cases = [t.case(end.end or 0, since, end) for t, end in due]
    return len(gone) - len(due), cases


def _lossy_times(case: Case) -> list[int]:
    """The times when brokers stored a part of a transaction: its half message, and each end."""
    return [call.end or call.start for call in (case.about.send, *case.about.ends)]


def _rolled_back(everyone: Sequence[_Transaction]) -> list[Case]:
    found = []
    for t in everyone:
        end = t.ended("rollback")
        if end is not None and t.seen and not t.commits:
            read = t.copies[0][1]
            found.append(t.case(end.start, read.end or 0, read, end))
    return found


def _uncommitted(everyone: Sequence[_Transaction]) -> list[Case]:
    """Transactions that were read before the first commit was requested, or without any such request."""
    found = []
    for t in everyone:
        if not t.seen or t.send.outcome == FAIL:
            continue
        read = t.copies[0][1]
        commits = t.commits
        if t.ended("rollback") is not None and not commits:
            continue  # `rolled-back-read` reports it
        if not commits or (read.end or 0) < commits[0].start:
            found.append(t.case(t.send.start, read.end or 0, read))
    return found


def _aborted(everyone: Sequence[_Transaction]) -> list[Case]:
    first = ((t, t.copies[0][1]) for t in everyone if t.send.outcome == FAIL and t.seen)
    return [t.case(t.send.start, call.end or 0, call) for t, call in first]


def _never_asked(duty: _Duty, everyone: Sequence[_Transaction]) -> list[Case]:
    cases = []
    for t in everyone:
        if t.send.outcome != OK:
            continue
        spans = (duty.longest(start, end, group_of(t.queue)) for start, end in _open(t, duty.heard_until))
        start, end = max(spans, key=lambda span: span[1] - span[0], default=(0, 0))
        if end - start > duty.limit:
            cases.append(t.case(start, end)._replace(limit=duty.limit))
    return cases


def _open(t: _Transaction, until: int) -> Iterator[tuple[int, int]]:
    """The times (ns) in which the broker had no decision and did not ask."""
    decided = min((e.start for e in t.ends if e.outcome != FAIL), default=until)
    start = t.send.end or t.send.start
    for at in [at for at in map(_asked_at, t.checks) if at < decided][:_QUESTIONS]:
        yield start, at
        start = at
    if len(t.checks) < _QUESTIONS:
        yield start, min(decided, until)


def _stats(everyone: Sequence[_Transaction]) -> dict[str, Any]:
    def asked_again(t: _Transaction) -> bool:
        known = min((e.end for e in t.ends if e.outcome == OK and e.end is not None), default=None)
        return known is not None and any(_asked_at(check) > known for check in t.checks)

    took = sorted((_asked_at(t.checks[0]) - (t.send.end or 0)) / SECOND for t in everyone if t.checks)
    return {
        "halves": len(everyone),
        "acknowledged": sum(t.send.outcome == OK for t in everyone),
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


_LOST: Final = "{n} transactions were committed, with an acknowledgement, and are in no queue of any replica at the end"
_ROLLED_BACK: Final = "{n} transactions were rolled back, with an acknowledgement, and were read"
_UNCOMMITTED: Final = "{n} transactions were read although no client had requested their commit"
_ABORTED: Final = "{n} transactions were read although the send of their half message had certainly failed"
_ASKED: Final = "{n} transactions were left open, and no broker asked about them within the limit"
_AGAIN: Final = "{n} transactions were delivered more than once"


def _shown(case: Case) -> Case:
    """The case with its texts."""
    life = _life(case.about)
    took = "" if case.limit is None else f" for {case.took / SECOND:.1f} s from {clock(case.start)}"
    return case._replace(text=life + took, listed={"id": case.about.id, "queue": case.about.queue, "life": life})


_SHOWN: Final[Mapping[str, Any]] = {"whole": True, "text": _shown}
"""One anomaly stands for all cases of a kind, and its time is theirs."""


def _life(t: _Transaction) -> str:
    """The events of a transaction, in order: `message 7 (t:a:0), half at n1 00:01.0, n4 asked 00:09.2, ...`."""
    events = [(t.send.start, f"half at {_node(t.send)} {clock(t.send.start)}")]
    events += [(_asked_at(c), f"{_node(c)} asked {clock(_asked_at(c))}") for c in t.checks]
    events += [
        (e.start, f"{e.invoke.extra['as']} at {_node(e)} {clock(e.end or e.start)} ({e.outcome})") for e in t.ends
    ]
    seen = [f"seen at {queue}:{offset} {clock(call.end or 0)}" for (queue, offset), call in t.copies[:4]]
    told = [text for _, text in sorted(events, key=lambda event: event[0])]
    middle = told if len(told) <= 9 else [*told[:5], "...", *told[-3:]]
    return f"message {t.id} ({t.send.invoke.key}), {', '.join([*middle, *(seen or ['never seen'])])}"


def _node(call: Call) -> str:
    return str((call.completion.extra if call.completion is not None else {}).get("node", "nobody"))
