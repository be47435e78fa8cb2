# SPDX-License-Identifier: Apache-2.0
"""Judges that a group's committed offset stays.

`checkers.messages.queue.memory` gives the commits that a broker must remember. An answer is right if it is the last of
these, or one that is concurrent with it or later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.ops import of_messages
from checkers.messages.queue.memory import FIRST_WRITE_S, MARGIN_S, OffsetMemory, Reign
from checkers.messages.resets import GroupResets, resets_of
from results.figures import SECOND, clock
from results.history import Call, History
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Excuse, merged

_FOREVER = 2**62
_EVERYTHING: Final[Sequence[Reign]] = ((-_FOREVER, _FOREVER, None),)
SHORT_LIFE: Final = f"a broker was ended less than {FIRST_WRITE_S + MARGIN_S:g} s after its start"
_COPIED: Final = "a new master has a copy, and a restarted one its file; neither has the last commits"
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Commit:
    """`end`: index of the acknowledgement, or `_FOREVER`; `acked`: its time in ns.

    offset  None: any offset, as of a reset to a time without an answer.
    until   for a reset: the index until which it may replace commits (`Reset.taken`); None: `end`.
    """

    start: int
    end: int
    acked: int
    offset: int | None
    node: str
    until: int | None = None

    @property
    def last(self) -> int:
        """The index until which it may take effect."""
        return self.end if self.until is None else self.until

    def sets(self, offset: int | None) -> bool:
        """True if it may be the source of this offset."""
        return self.offset == offset or self.offset is None


@dataclass(frozen=True, slots=True)
class Query:
    """`offset` None: the broker knows no offset."""

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
        """The index of each commit's invocation."""
        return [commit.start for commit in self.commits]

    @cached_property
    def latest(self) -> list[int]:
        """The latest end among each commit and all before it."""
        return list(accumulate((commit.last for commit in self.commits), max))

    def others(self, query: Query) -> int:
        """The time (ns) of the last commit, before a query, that another broker acknowledged; 0: none did."""
        acked = (c.acked for c in self.commits if c.node != query.node and c.end < query.start)
        return max(acked, default=0)


@dataclass(frozen=True, slots=True)
class _Breach:
    """`last`: the commit that the answer contradicts; None: no offset had been committed."""

    group: str
    queue: str
    query: Query
    last: Commit | None
    back: bool


class Offsets:
    """`copied_within_s`: the largest age of a new master's copy of the offsets: 12 s between two copies with
    controllers, 10 s in DLedger mode, 60 s elsewhere, and a margin to make the copy and to see the change.
    """

    name = "offsets"

    def __init__(self, copied_within_s: float = 15) -> None:
        self.slack = int(copied_within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`committed-offset-regression` if a broker knows less than was committed, `committed-offset-jump` if it knows
        more. `stats`: `commits`, `queries`, `at_slaves` (queries not judged), `undecided`: answers of brokers that were
        ended soon after their start, and may not have written their offsets.
        """
        found = ledgers(run.history)
        queries = sum(len(ledger.queries) for ledger in found.values())
        commits = sum(len(ledger.commits) for ledger in found.values())
        unknown = None
        if not queries or not commits:
            unknown = "no offset was committed" if not commits else "no committed offset was ever queried"
        scene, written = RunTimeline(run), run.deployment.traits.offsets_written_s
        memories: dict[str | None, tuple[OffsetMemory, OffsetMemory]] = {}
        breaches: list[_Breach] = []
        excused: list[Excuse] = []
        slaves = short = 0
        for (group, queue), ledger in found.items():
            brokers = group_of(queue)
            if brokers not in memories:
                memories[brokers] = (
                    OffsetMemory(scene, self.slack, brokers, written),
                    OffsetMemory(scene, self.slack, brokers, written, whole_lives=True),
                )
            memory, of_whole_lives = memories[brokers]
            for query in ledger.queries:
                since = memory.since(query.node, query.invoked, query.answered, ledger.others(query))
                if since is None:
                    slaves += 1
                    continue
                wrong = contradicted(ledger, query, since, memory.inherited(since, query.node))
                if wrong is not None:
                    breaches.append(_Breach(group, queue, query, *wrong))
                elif (lacks := contradicted(ledger, query, since, _EVERYTHING)) is not None and lacks[0] is not None:
                    age = max(0, since - lacks[0].acked) / SECOND
                    known = of_whole_lives.inherited(since, query.node)
                    if contradicted(ledger, query, since, known) is not None:
                        short += 1
                        excused.append(Excuse("short-life", 1, SHORT_LIFE, None, age))
                    else:
                        limit = memory.limit_s(since, query.node)
                        excused.append(Excuse("forgotten-commit", 1, _COPIED, limit, age))
        stats = {"commits": commits, "queries": queries, "at_slaves": slaves, "undecided": short}
        if unknown is None and slaves == queries:
            unknown = "committed offsets were queried only at slaves"
        elif unknown is None and short:
            unknown = f"{short:,} answers lack commits that a broker may not have written to its disk: {SHORT_LIFE}"
        result = conclude(
            self.name,
            run,
            list(_describe(scene, breaches)),
            stats,
            f"{queries:,} queries of committed offsets, {commits:,} commits",
            unknown,
        )
        if slaves:
            excused.append(Excuse("asked-a-slave", slaves, "a slave may know less than its master"))
        return replace(result, excuses=merged(excused))


def ledgers(history: History) -> dict[tuple[str, str], CommitLedger]:
    """(group, queue) -> its commits and queries. A reset is a commit by an administrator."""
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
    resets = resets_of(history)
    for (group, queue), ledger in found.items() if resets else ():
        ledger.commits += _by_resets(resets, group, queue)
        ledger.commits.sort(key=lambda commit: commit.start)
    return found


def _by_resets(resets: GroupResets, group: str, queue: str) -> Iterator[Commit]:
    for reset in resets.of(group, queue):
        offset = reset.low if reset.low == reset.high else None
        yield Commit(reset.start, reset.end, reset.acked, offset, reset.node, reset.taken)


def _commit(call: Call, node: str) -> Commit:
    done = call.completion
    known = done is not None and done.type == "ok"
    end, acked = (done.index, done.time) if done is not None and known else (_FOREVER, _FOREVER)
    if not isinstance(call.invoke.value, int):
        raise ValueError("not an offset")
    return Commit(call.invoke.index, end, acked, call.invoke.value, node)


def contradicted(
    ledger: CommitLedger, query: Query, since: int, inherited: Sequence[Reign]
) -> tuple[Commit | None, bool] | None:
    """(the forgotten commit, True if the answer is below it), or None if the answer is right.

    A commit binds the broker if it was acknowledged before the query, by itself in this reign, or is among those it
    inherited. An answer is right if no binding commit began after the commit it comes from had ended. For an offset
    although no commit had begun, the result is (None, False).
    """
    known = bisect_left(ledger.starts, query.end)
    last = next((c for c in reversed(ledger.commits[:known]) if _binds(c, query, since, inherited)), None)
    from_ = 0 if last is None else last.start
    if not query.offset and last is None:
        return None  # for a group without commits, brokers answer 0, or no offset
    # Commits are made one after the other, so that few of those begun before `last` ended after its beginning.
    at = known
    while at and ledger.latest[at - 1] >= from_:
        at -= 1
        commit = ledger.commits[at]
        if commit.sets(query.offset) and commit.last >= from_:
            return None
    blamed = last if last is not None else ledger.commits[known - 1] if known else None
    back = blamed is not None and (query.offset is None or query.offset < (blamed.offset or 0))
    return blamed, back


def _binds(commit: Commit, query: Query, since: int, inherited: Sequence[Reign]) -> bool:
    if commit.end >= query.start:
        return False
    if commit.node == query.node and commit.acked >= since:
        return True
    return any(a <= commit.acked <= b and node in (None, commit.node) for a, b, node in inherited)


def _describe(scene: RunTimeline, breaches: Sequence[_Breach]) -> Iterator[Anomaly]:
    """Yields one anomaly for each group of consumers, answering broker, and direction; the worst case in full."""
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
        yield Anomaly(
            "committed-offset-regression" if back else "committed-offset-jump",
            reason,
            worst.queue,
            ops,
            window,
            details,
        )


def _committed(breach: _Breach) -> int:
    return (breach.last.offset or 0) if breach.last else 0


def _words(last: Commit | None) -> str:
    """`7 had been committed and acknowledged by n1 at 00:03.0`."""
    if last is None:
        return "no offset had been committed"
    if last.acked >= _FOREVER:
        return f"the last commit was of {last.offset}, at {last.node}, and not acknowledged"
    return f"{last.offset} had been committed and acknowledged by {last.node} at {clock(last.acked)}"
