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
  all nodes of the group are impaired, nor while the group's master serves no sends although no fault struck it. With
  a client of proxies, it starts again when none of them had a stream to the client.
* The ends of Java producers and of proxies are one-way, so nobody knows their outcome. But a commit that did not
  arrive leaves the half message open: then the broker asks. So its message is delivered, or the broker asks again in
  time.
* A message is at as many places (offsets of queues at the end) as it was delivered. Each commit that a broker accepts
  makes a copy. So a second copy comes from a question about a decided transaction. The broker stores decisions in
  batches; a fault right after one may lose it, and the question after that is permitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from checkers.base.cases import Case, anomalies, by_group, of_parts
from checkers.base.legality import Part, conclude, divided, permission
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.duties import QueueReads, never_sent
from checkers.messages.ops import of_messages
from checkers.messages.transactions.duty import QUESTIONS, QuestionDuty, node_of
from checkers.messages.transactions.facts import End, Facts, Question, Transaction, collect
from checkers.messages.transactions.limits import CLOCK_SET, HIDDEN, UNHEARD, Limits
from results.figures import SECOND, clock, quantile
from results.op import FAIL, OK
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_START_NS: Final = 5 * SECOND
"""A master that is first seen so early was master before the run."""

_BATCHED: Final = (
    "brokers store decisions in batches: they ask again about a transaction that was decided right before a fault, and "
    "a second commit makes a second message (at least once)"
)


class Transactions:
    """`timeout_s`, `interval_s`, `batch_s`: the brokers' transactionTimeOut, transactionCheckInterval and
    transactionOpBatchInterval. `limit_s`: the further delay that is allowed for a question, also after a fault begins
    or ends. `check_max`: their transactionCheckMax. `limited`: True if the half messages that were given up were to be
    read.
    """

    name = "transactions"

    def __init__(
        self,
        timeout_s: float = 3,
        interval_s: float = 5,
        batch_s: float = 0.5,
        limit_s: float = 10,
        check_max: int = 15,
        *,
        limited: bool = False,
    ) -> None:
        self.timeout, self.interval, self.batch = (int(s * SECOND) for s in (timeout_s, interval_s, batch_s))
        self.late = int(limit_s * SECOND)
        self.bound = self.timeout + 2 * self.interval + self.late
        self.check_max, self.limited = check_max, limited

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`committed-lost`, `commit-forgotten`, `rolled-back-read`, `uncommitted-read`, `never-asked`,
        `asked-elsewhere`, `delivered-again`, `aborted-read`, `never-sent`; with limits also `given-up-unasked`,
        `asked-early`, `not-given-up`.
        `stats`: `halves`, `acknowledged`,
        `committed`, `rolled_back` (both acknowledged), `one_way` (ends that no broker answers), `asked` (transactions
        that were asked about), `asked_again` (although their end had been acknowledged), `asked_by_others`: questions
        of another broker group than the half message's; `asked_of_others`: transactions with a question to another
        producer than the one that sent the half message; `asked_after_s` (`p50`, `max`): from a half message's
        acknowledgement to the first question; `delivered`, `copies` beyond the first, `most_copies` of one message;
        `deaf`: checks during which no proxy could pass a question on. With limits also `immune`: half messages with an
        immunity time; `given_up`; `given_up_ended`: those of them with an end that did not fail.
        """
        facts = collect(run)
        everyone, reads = facts.all, facts.reads
        scene = RunTimeline(run)
        duty = QuestionDuty(run, scene, facts, self.bound, self.check_max if self.limited else QUESTIONS)
        changes = _changes(scene, everyone, self.bound)
        limits = Limits(
            run, scene, facts, duty, [(c.start, c.end) for c in changes], self.check_max, self.interval, self.late
        )
        unasked, immune, unheard = limits.unasked()
        early, early_by_clock = limits.early()
        kept, undone = limits.kept()
        open_, lost = _lost(everyone, reads, duty)
        losses = permission(run, "lost")
        forgotten = self._forgotten(duty, everyone, reads)
        found = [
            *of_parts(scene, "committed-lost", divided(losses, lost, _lossy_times), _LOST, **_SHOWN),
            *of_parts(scene, "commit-forgotten", divided(losses, forgotten, _lossy_times), _FORGOTTEN, **_SHOWN),
            *anomalies(scene, "rolled-back-read", _rolled_back(everyone), _ROLLED_BACK, **_SHOWN),
            *anomalies(scene, "uncommitted-read", _uncommitted(everyone), _UNCOMMITTED, **_SHOWN),
            *anomalies(scene, "aborted-read", _aborted(everyone), _ABORTED, **_SHOWN),
            *by_group(scene, "never-asked", self._never_asked(duty, limits, everyone), _ASKED, self.bound, **_SHOWN),
            *anomalies(scene, "asked-elsewhere", _misled(facts), _MISLED, **_SHOWN),
            *anomalies(scene, "given-up-unasked", unasked, _UNASKED.format("{n}", ""), **_SHOWN),
            *anomalies(scene, "given-up-unasked", immune, _UNASKED.format("{n}", _IMMUNE), **_SHOWN),
            *of_parts(scene, "asked-early", [Part(early), Part(early_by_clock, CLOCK_SET)], _EARLY, **_SHOWN),
            *of_parts(
                scene, "not-given-up", [*divided(losses, kept, _lossy_times), Part(undone, HIDDEN)], _KEPT, **_SHOWN
            ),
            *of_parts(
                scene, "delivered-again", self._again(changes, run.deployment.groups, everyone), _AGAIN, **_SHOWN
            ),
            *never_sent(facts.strangers),
        ]
        stats = _stats(everyone) | {"deaf": len(duty.deaf)} | (_limit_stats(everyone) if self.limited else {})
        unknown = None
        if not stats["acknowledged"]:
            unknown = "no half message was acknowledged"
        elif reads.unproven is not None:
            unknown = reads.unproven
        elif open_:
            unknown = f"{open_:,} committed messages were not yet due for long enough when the final reads began"
        elif not stats["asked"]:
            unknown = "no broker asked about any half message"
        elif self.limited:
            unknown = _undecided(facts)
        given_up = sum(bool(t.given_up) for t in everyone)
        reason = (
            f"{stats['delivered']:,} of {_to_deliver(everyone):,} committed messages delivered, {stats['asked']:,} "
            f"transactions asked about{f', {given_up:,} given up' if self.limited else ''}"
        )
        excuses = [Excuse("given-up-unasked", unheard, UNHEARD)] if unheard else []
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)

    def _never_asked(self, duty: QuestionDuty, limits: Limits, everyone: Sequence[Transaction]) -> list[Case]:
        cases = []
        for t in everyone:
            if t.send.outcome != OK:
                continue
            if t.given_up and limits.clock_set:
                continue  # nobody knows since when nothing is owed
            until = duty.until(t, self.interval)
            spans = (duty.longest(start, end, group_of(t.queue)) for start, end in _open(t, until, duty.questions))
            start, end = max(spans, key=lambda span: span[1] - span[0], default=(0, 0))
            if end - start > duty.limit:
                cases.append(t.proven(start, end)._replace(limit=duty.limit))
        return cases

    def _forgotten(self, duty: QuestionDuty, everyone: Sequence[Transaction], reads: QueueReads) -> list[Case]:
        """Transactions whose commits have an unknown outcome, that are in no queue, and that no broker asked about."""
        since, cases = reads.complete_since, []
        for t in everyone:
            commits = t.commits
            if t.send.outcome != OK or not commits or t.final or since is None or len(t.checks) >= duty.questions:
                continue
            if t.given_up:
                continue  # a broker asked, and gave it up: `given-up-unasked` judges that
            if t.ended("commit") is not None or len(commits) < sum(e.outcome != FAIL for e in t.ends):
                continue  # `committed-lost` judges it; or it may be rolled back
            last = max([e.end for e in t.ends] + [check.at for check in t.checks])
            start, end = duty.longest(last, min(since, duty.until(t, self.interval)), group_of(t.queue))
            if end - start > duty.limit:
                cases.append(t.proven(start, end, *commits)._replace(limit=duty.limit))
        return cases

    def _again(
        self, changes: Sequence[_Change], groups: Mapping[str, Sequence[str]], everyone: Sequence[Transaction]
    ) -> list[Part[Case]]:
        """Transactions with more than one copy at the end: those that nothing explains, and the others."""
        wrong: list[Case] = []
        explained: list[Case] = []
        for t in everyone:
            if len(t.final) < 2:
                continue
            commits = t.commits
            before = list(zip(commits[:-1], t.accepted, strict=False))  # after each of these, a broker asked again
            doubtful = sum(by is None or self._is_late(t, e, by) for e, by in before)
            mine = groups.get(group_of(t.queue) or "", ())
            faults = {c for e, by in before for c in changes if self._forgets(c, e, by, mine)}
            legal = len(t.final) <= min(len(commits), 1 + doubtful + len(faults))
            (_, first), *_ = copies = t.copies
            last = copies[-1][1]
            case = t.proven(first.end or 0, last.end or 0, first, last, *commits)
            (explained if legal else wrong).append(case)
        return [Part(wrong), Part(explained, _BATCHED)]

    def _is_late(self, t: Transaction, end: End, accepted: int) -> bool:
        """True if the broker may have asked once more before it could know of this end."""
        asked = [check.since for check in t.checks if check.since <= end.start]
        since, patience = (asked[-1], self.interval) if asked else (t.send.start, self.timeout)
        return accepted + self.batch > since + patience

    def _forgets(self, change: _Change, end: End, accepted: int | None, group: Sequence[str]) -> bool:
        """True if a change may have lost a decision: made shortly before it began, or on a node that it impaired. A
        proxy does not say to which node of the group it sent an end.
        """
        by = end.end if accepted is None else accepted
        if change.start - self.batch - self.interval <= by and end.end <= change.start:
            return True
        where = group if end.one_way and end.node is None else (end.node,)
        reached = change.nodes is None or not change.nodes.isdisjoint(where)
        return reached and change.start <= by and (change.end is None or end.start <= change.end)


class _Change(NamedTuple):
    """A fault, or a change of master without one. `nodes`: the impaired ones; None: unknown."""

    start: int
    end: int | None
    nodes: frozenset[str] | None


def _changes(scene: RunTimeline, everyone: Sequence[Transaction], limit: int) -> list[_Change]:
    """Faults, changes of master without one, and slaves that acted without one, as questions of other groups show."""
    found = [_Change(i.start_ns, i.end_ns, frozenset({*i.impairs, *i.nodes})) for i in scene.fault_intervals]
    alone = [r.since for r in scene.master_periods if r.since > _START_NS]
    alone += [check.at for t in everyone for check in t.checks if _is_of_others(t, check)]
    last = None
    for at in sorted(alone):
        if scene.in_force(at - 2 * limit, at) or (last is not None and at <= last + limit):
            continue
        found.append(_Change(at - limit, at, None))
        last = at
    return found


def _is_of_others(t: Transaction, check: Question) -> bool:
    """True if another broker group asked than the one that accepted the half message."""
    return check.group is not None and check.group != group_of(t.queue)


def _lost(everyone: Sequence[Transaction], reads: QueueReads, duty: QuestionDuty) -> tuple[int, list[Case]]:
    """The number of committed messages that may still appear, and those that must appear and are in no queue."""
    since = reads.complete_since
    if since is None:
        return 0, []
    gone = [(t, end) for t in everyone if not t.final and (end := t.ended("commit")) is not None]
    due = [(t, end) for t, end in gone if duty.is_settled(end.end, since)]
    cases = [t.proven(end.end, since, end) for t, end in due]
    return len(gone) - len(due), cases


def _lossy_times(case: Case) -> list[int]:
    """The times when brokers stored a part of a transaction: its half message, and each end."""
    t: Transaction = case.about
    return [t.send.end or t.send.start, *(end.end for end in t.ends)]


def _rolled_back(everyone: Sequence[Transaction]) -> list[Case]:
    found = []
    for t in everyone:
        end = t.ended("rollback")
        if end is not None and t.seen and not t.commits:
            read = t.copies[0][1]
            found.append(t.proven(end.start, read.end or 0, read, end))
    return found


def _uncommitted(everyone: Sequence[Transaction]) -> list[Case]:
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


def _aborted(everyone: Sequence[Transaction]) -> list[Case]:
    first = [(t, t.copies[0][1]) for t in everyone if t.send.outcome == FAIL and t.seen]
    first += [(t, t.given_up[0].read) for t in everyone if t.send.outcome == FAIL and t.given_up and not t.seen]
    return [t.case(t.send.start, call.end or 0, call) for t, call in first]


def _misled(facts: Facts) -> list[Case]:
    return [t.proven(t.send.start, check.end or check.start, check) for t, check in facts.misled]


def _open(t: Transaction, until: int, questions: int) -> Iterator[tuple[int, int]]:
    """The times (ns) in which the broker had no decision, and had to ask, and did not."""
    decided = min((e.start for e in t.ends if e.outcome != FAIL), default=until)
    start = (t.send.end or t.send.start) + t.immunity
    for at in [check.at for check in t.checks if check.at < decided][:questions]:
        yield start, min(at, until)
        start = max(start, at)
    if len(t.checks) < questions:
        yield start, min(decided, until)


def _to_deliver(everyone: Sequence[Transaction]) -> int:
    """The number of transactions with a commit that was acknowledged, or sent one-way."""
    return sum(any(e.outcome == OK or e.one_way for e in t.commits) for t in everyone)


def _undecided(facts: Facts) -> str | None:
    """The reason why the run does not show which half messages were given up, or None."""
    if not facts.discards or facts.undiscarded:
        unread = ", ".join(facts.undiscarded[:4]) or "nowhere"
        return f"the half messages that were given up were not read to the end: {unread}"
    if not any(t.given_up for t in facts.all):
        return "no half message was given up"
    return None


def _limit_stats(everyone: Sequence[Transaction]) -> dict[str, Any]:
    given_up = [t for t in everyone if t.given_up]
    return {
        "immune": sum(bool(t.immunity) for t in everyone),
        "given_up": len(given_up),
        "given_up_ended": sum(any(e.outcome != FAIL for e in t.ends) for t in given_up),
    }


def _stats(everyone: Sequence[Transaction]) -> dict[str, Any]:
    def asked_again(t: Transaction) -> bool:
        known = min((e.end for e in t.ends if e.outcome == OK), default=None)
        return known is not None and any(check.at > known for check in t.checks)

    def asked_of_others(t: Transaction) -> bool:
        sender = t.send.completion.extra.get("member") if t.send.completion is not None else None
        return any(check.member not in (None, sender) for check in t.checks)

    took = sorted((t.checks[0].at - (t.send.end or 0)) / SECOND for t in everyone if t.checks)
    return {
        "halves": len(everyone),
        "acknowledged": sum(t.send.outcome == OK for t in everyone),
        "committed": sum(t.ended("commit") is not None for t in everyone),
        "rolled_back": sum(t.ended("rollback") is not None for t in everyone),
        "one_way": sum(e.one_way for t in everyone for e in t.ends),
        "asked": sum(bool(t.checks) for t in everyone),
        "asked_again": sum(map(asked_again, everyone)),
        "asked_by_others": sum(_is_of_others(t, check) for t in everyone for check in t.checks),
        "asked_of_others": sum(map(asked_of_others, everyone)),
        "asked_after_s": {"p50": round(quantile(took, 0.5), 3), "max": round(took[-1], 3)} if took else None,
        "delivered": sum(bool(t.seen) for t in everyone),
        "copies": sum(max(0, len(t.final) - 1) for t in everyone),
        "most_copies": max((len(t.final) for t in everyone), default=0),
    }


_LOST: Final = "{n} transactions were committed, with an acknowledgement, and are in no queue of any replica at the end"
_FORGOTTEN: Final = (
    "{n} transactions have a commit with an unknown outcome, are in no queue of any replica at the end, and no broker "
    "asked about them again within the limit"
)
_ROLLED_BACK: Final = "{n} transactions were rolled back, with an acknowledgement, and were read"
_UNCOMMITTED: Final = "{n} transactions were read although no client had requested their commit"
_ABORTED: Final = "{n} transactions were read although the send of their half message had certainly failed"
_ASKED: Final = "{n} transactions were left open, and no broker asked about them within the limit"
_MISLED: Final = "{n} questions about transactions reached a producer of another group"
_AGAIN: Final = "{n} transactions were delivered more than once"
_EARLY: Final = "{n} half messages were asked about within their immunity time"
_KEPT: Final = (
    "{n} half messages had transactionCheckMax questions without an answer, and were not given up: they are not in the "
    "topic for them, or more questions came"
)
_UNASKED: Final = "{} half messages{} were given up although no broker had asked about them transactionCheckMax times"
_IMMUNE: Final = " with an immunity time"


def _shown(case: Case) -> Case:
    """The case with its texts."""
    life = _life(case.about)
    took = "" if case.limit is None else f" for {case.took / SECOND:.1f} s from {clock(case.start)}"
    return case._replace(text=life + took, listed={"id": case.about.id, "queue": case.about.queue, "life": life})


_SHOWN: Final[Mapping[str, Any]] = {"whole": True, "text": _shown}
"""One anomaly stands for all cases of a kind, and its time is theirs."""


def _life(t: Transaction) -> str:
    """The events of a transaction, in order: `message 7 (t:a:0), half at n1 00:01.0, n4 asked 00:09.2, ...`."""
    events = [(t.send.start, f"half at {node_of(t.send)} {clock(t.send.start)}")]
    events += [(c.at, f"{c.node or 'nobody'} asked {clock(c.at)}") for c in t.checks]
    events += [
        (e.start, f"{e.answer} at {e.node or 'nobody'} {clock(e.end)} ({'one-way' if e.one_way else e.outcome})")
        for e in t.ends
    ]
    events += [(g.at, f"given up {clock(g.at)} (count of the broker: {g.counted})") for g in t.given_up]
    seen = [f"seen at {queue}:{offset} {clock(call.end or 0)}" for (queue, offset), call in t.copies[:4]]
    told = [text for _, text in sorted(events, key=lambda event: event[0])]
    middle = told if len(told) <= 9 else [*told[:5], "...", *told[-3:]]
    return f"message {t.id} ({t.queue}), {', '.join([*middle, *(seen or ['never seen'])])}"
