"""Does a group's committed offset stay?

Per group and queue, a committed offset is a register: a query returns the last commit, or one that is concurrent or of
unknown outcome. RocketMQ weakens this in one way: slaves copy the offsets only periodically (every 10 s in DLedger
mode, every 12 s with controllers, every 60 s otherwise; `BrokerController`, `ReplicasManager`, `SlaveSynchronize`), and
a broker writes them to disk every 5 s. A broker that has just become master, or was restarted, may have an older state,
but not older than that. From then on its own commits bind it. When its disk fails, it cannot know before its next
write: what it acknowledged until then may be gone after a restart. What it acknowledged later binds it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

from checkers.legality import settled
from checkers.log.context import RunTimeline, group_of
from checkers.message_ops import of_messages
from results.figures import SECOND, clock
from results.history import Call, History
from results.record import RunRecord
from results.strikes import EffectKind
from results.verdict import Anomaly, CheckResult

NOTICED_S: Final = 6.0
"""A broker writes its offsets every 5 s (`flushConsumerOffsetInterval`). Then it knows that its disk fails."""
WRITTEN_S: Final = 15.0
"""How old its file may be, with room for our seeing the end of the broker."""

_ENDS: Final[Collection[EffectKind]] = ("down", "unsynced-lost")
_UNWRITTEN: Final[Collection[EffectKind]] = ("disk-dead", "disk-full")
_FOREVER = 2**62
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Commit:
    """`end`: index of the acknowledgement, or for ever; `acked`: when, in ns."""

    start: int
    end: int
    acked: int
    offset: int
    node: str


@dataclass(frozen=True, slots=True)
class Query:
    """`offset` None: the broker knows of none."""

    start: int
    end: int
    invoked: int
    answered: int
    offset: int | None
    node: str


@dataclass
class CommitLedger:
    """The commits and queries of one group and queue, in order of time."""

    commits: list[Commit] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)

    @cached_property
    def starts(self) -> list[int]:
        """Where each commit begins."""
        return [commit.start for commit in self.commits]

    @cached_property
    def latest(self) -> list[int]:
        """The latest end among each commit and all before it."""
        return list(accumulate((commit.end for commit in self.commits), max))


@dataclass(frozen=True, slots=True)
class _Breach:
    """`last`: the commit that the answer contradicts; None: no offset had been committed."""

    group: str
    queue: str
    query: Query
    last: Commit | None
    back: bool


class Offsets:
    """`copied_within_s`: how old a new master's copy of the offsets may be: 12 s between two copies with controllers,
    10 s in DLedger mode, 60 s elsewhere, and room for their being made and for our seeing the change. A master that
    was restarted has its own file (`WRITTEN_S`).
    """

    name = "offsets"

    def __init__(self, copied_within_s: float = 15) -> None:
        self.slack = int(copied_within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`committed-offset-regression` where a broker knows less than was committed, `committed-offset-jump` where it
        knows more. `stats`: `commits`, `queries`, `at_slaves` (queries not judged), `oldest_copy_s`: the age of the
        oldest state that a new master was allowed to have.
        """
        ledgers = _ledgers(run.history)
        queries = sum(len(ledger.queries) for ledger in ledgers.values())
        commits = sum(len(ledger.commits) for ledger in ledgers.values())
        unknown = None
        if not queries or not commits:
            unknown = "no offset was committed" if not commits else "no committed offset was ever queried"
        scene = RunTimeline(run)
        memories: dict[str | None, _Memory] = {}
        breaches: list[_Breach] = []
        slaves = 0
        for (group, queue), ledger in ledgers.items():
            brokers = group_of(queue)
            if brokers not in memories:
                memories[brokers] = _Memory(scene, self.slack, brokers)
            memory = memories[brokers]
            for query in ledger.queries:
                since = memory.since(query, ledger)
                if since is None:
                    slaves += 1
                    continue
                wrong = _wrong(ledger, query, since, memory.inherited(since, query.node))
                if wrong is not None:
                    breaches.append(_Breach(group, queue, query, *wrong))
        stats = {"commits": commits, "queries": queries, "at_slaves": slaves}
        if unknown is None and slaves == queries:
            unknown = "committed offsets were queried only at slaves"
        return settled(
            self.name,
            run,
            list(_describe(scene, breaches)),
            stats,
            f"{queries:,} queries of committed offsets, {commits:,} commits",
            unknown,
        )


class _Memory:
    """What a master of a broker group must remember, from who was its master when.

    A master that took over at T has a copy that is at most `slack` old, if it had followed for as long: a slave that
    was away has made none meanwhile, and its copy may be from before it left. When the master before it had begun
    earlier than that, it is a copy of that one's table: its own commits until then, and what it had inherited.
    Otherwise it may be a copy of a table that was hardly begun: then only what that one had inherited is sure. So
    changes in quick succession add up.
    """

    def __init__(self, scene: RunTimeline, slack: int, brokers: str | None) -> None:
        self.scene, self.slack, self.periods = scene, slack, scene.masters_of(brokers)
        first: str | None = self.periods[0].node if self.periods else None
        # A fault on the master counts as a change of its own: what it had not yet written to disk may be gone.
        hit = [
            (interval.start_ns, node)
            for interval in scene.fault_intervals
            for node in {*interval.impairs, *interval.nodes}
        ]
        self.changes: list[tuple[int, str | None]] = [
            (0, first),
            *((r.since, r.node) for r in self.periods[1:]),
        ]
        self.changes += [(at, node) for at, node in hit if self._master(at) == node]
        self.changes.sort(key=lambda change: change[0])
        self._inherited: dict[tuple[int, str], list[tuple[int, int, str | None]]] = {}

    def since(self, query: Query, ledger: CommitLedger) -> int | None:
        """Since when (ns) the broker that answers has been master without a break; None: it is none."""
        if self.periods:
            near = (r for r in reversed(self.periods) if r.node == query.node and r.since - 2 * SECOND <= query.invoked)
            reign = next((r for r in near if r.until + 2 * SECOND >= query.invoked), None)
            if reign is None:
                return None
            begun = 0 if reign == self.periods[0] else reign.since
        else:
            others = (c.acked for c in ledger.commits if c.node != query.node and c.end < query.start)
            begun = max(others, default=0)
        hit = [b for b in self.scene.fault_intervals if query.node in b.impairs or query.node in b.nodes]
        broken = [b.start_ns for b in hit if b.start_ns <= query.answered]
        # What a server acknowledged while it was being killed, or before it was killed at the end of a strike at its
        # disk, is in the memory that it lost.
        killed = [b for b in hit if any(e.kind in _ENDS and e.node == query.node for e in b.effects)]
        lost = [min(b.end_ns or query.answered, query.answered) for b in killed if b.start_ns <= query.answered]
        return max([begun, *broken, *lost])

    def inherited(self, since: int, heir: str) -> list[tuple[int, int, str | None]]:
        """(from, to, node): `heir`, who took over at `since`, must know what that master acknowledged in that time."""
        found = self._inherited.get((since, heir))
        if found is None:
            found = self._inherited[since, heir] = []
            begun, by, copied = since, heir, since
            for at, node in reversed(self.changes):
                if at < begun:
                    own = node in (None, by)
                    copied = min(copied, self._copied(by, begun, own))
                    if at <= copied:
                        times = self._written(at, copied, by) if own else [(at, copied)]
                        found += [(begin, end, node) for begin, end in times]
                    begun, by = at, node or by
        return found

    def _written(self, begin: int, end: int, node: str) -> list[tuple[int, int]]:
        """What is left of a time in which a broker acknowledged commits, without the seconds in which it could not
        write them, and could not know.
        """
        failed = sorted(
            (interval.start_ns, interval.start_ns + int(NOTICED_S * SECOND))
            for interval in self.scene.fault_intervals
            if any(e.kind in _UNWRITTEN and e.node == node for e in interval.effects)
        )
        found: list[tuple[int, int]] = []
        for start, known in failed:
            if begin <= start <= end:
                found.append((begin, start - 1))
            if start <= end:
                begin = max(begin, known)
        return [*found, (begin, end)] if begin <= end else found

    def _copied(self, heir: str, time: int, own: bool) -> int:
        """As of when a node that took over at `time` has surely copied its master's table. own: it was the master, and
        its copy is on its disk.
        """
        slack = self.slack
        unless: Collection[EffectKind] = ()
        if own:
            unless = (*_UNWRITTEN, "unsynced-lost")
            slack = slack if self._unsynced(heir, time) else min(slack, int(WRITTEN_S * SECOND))
        while (away := self.scene.last_absence(heir, time, unless)) is not None and away[1] > time - slack:
            time = away[0]  # it may have made no copy since it left
        return time - slack

    def _unsynced(self, node: str, time: int) -> bool:
        """Whether a power failure took what the kernel had not written: the file is not synced."""
        return any(
            "unsynced-lost" in kinds and not kinds & {*_UNWRITTEN}
            for interval in self.scene.fault_intervals
            if interval.covers(time, time)
            for kinds in [{e.kind for e in interval.effects if e.node == node}]
        )

    def _master(self, time: int) -> str | None:
        return next((node for at, node in reversed(self.changes) if at <= time), None)


def _ledgers(history: History) -> dict[tuple[str, str], CommitLedger]:
    found: dict[tuple[str, str], CommitLedger] = {}
    for call in history.clients.calls:
        f, key = call.invoke.f, call.invoke.key
        if key is None or f not in ("commit", "committed"):
            continue
        extra = {**call.invoke.extra, **(call.completion.extra if call.completion is not None else {})}
        ledger = found.setdefault((str(extra.get("group")), key), CommitLedger())
        node = str(extra.get("node"))
        if f == "commit" and call.outcome != "fail":
            ledger.commits.append(_commit(call, node))
        elif f == "committed" and call.outcome == "ok" and call.completion is not None:
            done = call.completion
            offset = done.value if isinstance(done.value, int) and done.value >= 0 else None
            times = (call.invoke.time, done.time)
            ledger.queries.append(Query(call.invoke.index, done.index, *times, offset, node))
    return found


def _commit(call: Call, node: str) -> Commit:
    done = call.completion
    known = done is not None and done.type == "ok"
    end, acked = (done.index, done.time) if done is not None and known else (_FOREVER, _FOREVER)
    if not isinstance(call.invoke.value, int):
        raise ValueError("not an offset")
    return Commit(call.invoke.index, end, acked, call.invoke.value, node)


def _wrong(
    ledger: CommitLedger, query: Query, since: int, inherited: Sequence[tuple[int, int, str | None]]
) -> tuple[Commit | None, bool] | None:
    """(the commit that was forgotten, whether the answer is below it), or None where the answer is right.

    A commit binds the broker when it was acknowledged before the query, by itself in this reign, or is among what it
    inherited. An answer is right when no binding commit began after the commit it comes from had ended. An offset
    although no commit had begun is (None, False).
    """
    known = bisect_left(ledger.starts, query.end)
    last = next((c for c in reversed(ledger.commits[:known]) if _binds(c, query, since, inherited)), None)
    from_ = 0 if last is None else last.start
    if not query.offset and last is None:
        return None  # brokers say 0 of a group that has committed nothing, or that they know none
    # Commits are made one after the other, so that few of those begun before `last` ended after its beginning.
    at = known
    while at and ledger.latest[at - 1] >= from_:
        at -= 1
        commit = ledger.commits[at]
        if commit.offset == query.offset and commit.end >= from_:
            return None
    blamed = last if last is not None else ledger.commits[known - 1] if known else None
    back = blamed is not None and (query.offset is None or query.offset < blamed.offset)
    return blamed, back


def _binds(commit: Commit, query: Query, since: int, inherited: Sequence[tuple[int, int, str | None]]) -> bool:
    if commit.end >= query.start:
        return False
    if commit.node == query.node and commit.acked >= since:
        return True
    return any(a <= commit.acked <= b and node in (None, commit.node) for a, b, node in inherited)


def _describe(scene: RunTimeline, breaches: Sequence[_Breach]) -> Iterator[Anomaly]:
    """One anomaly for each group of consumers, answering broker, and reign; the worst case of each in full."""
    by: dict[tuple[str, str, bool], list[_Breach]] = {}
    for breach in breaches:
        by.setdefault((breach.group, breach.query.node, breach.back), []).append(breach)
    for (group, node, back), cases in list(by.items())[:_SHOWN]:
        worst = max(cases, key=lambda b: abs(_committed(b) - (b.query.offset or 0)))
        query, last = worst.query, worst.last
        start = min(b.last.acked if b.last and b.last.acked < _FOREVER else b.query.invoked for b in cases)
        window = (start, max(b.query.answered for b in cases))
        extra = "no offset at all" if query.offset is None else f"offset {query.offset}"
        queues = len({b.queue for b in cases})
        reason = (
            f"{node} returned {extra} for group {group} on {worst.queue} at {clock(query.answered)}, although "
            f"{_words(last)} ({len(cases)} such answers on {queues} queues)."
            f"{scene.describe(*window, group_of(worst.queue))}"
        )
        details: dict[str, Any] = {
            "count": len(cases),
            "first": [
                {
                    "queue": b.queue,
                    "said": b.query.offset,
                    "committed": b.last.offset if b.last else None,
                    "at": clock(b.query.answered),
                }
                for b in cases[:50]
            ],
            **scene.details(*window, group_of(worst.queue)),
        }
        ops = sorted(
            {i for b in [worst, *cases[:5]] for i in (b.last.start if b.last else b.query.start, b.query.start)}
        )
        yield _anomaly(
            "committed-offset-regression" if back else "committed-offset-jump",
            reason,
            worst.queue,
            ops,
            window,
            details,
        )


def _committed(breach: _Breach) -> int:
    return breach.last.offset if breach.last else 0


def _words(last: Commit | None) -> str:
    """`7 had been committed and acknowledged by n1 at 00:03.0`."""
    if last is None:
        return "no offset had been committed"
    if last.acked >= _FOREVER:
        return f"the last commit was of {last.offset}, at {last.node}, and not acknowledged"
    return f"{last.offset} had been committed and acknowledged by {last.node} at {clock(last.acked)}"


def _anomaly(
    name: str, reason: str, key: str, ops: Sequence[int], window: tuple[int, int], details: dict[str, Any]
) -> Anomaly:
    return Anomaly(name, reason, key, ops, window, details)
