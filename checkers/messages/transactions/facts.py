# SPDX-License-Identifier: Apache-2.0
"""The transactions of a run: half messages, their ends, and the questions of brokers.

Our own client ends a transaction with a request of its own (`end`), and takes each question with an op (`check`). So
does the client of proxies, which send its ends one-way (`one_way`): their outcomes are unknown. Java producers do both
by themselves, and report it (`decided`, `workloads.transaction_producers`). Their ends are one-way, too; a report says
only that an end was sent before the report arrived, and after the process had read a tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from checkers.base.cases import Case
from checkers.messages.duties import Followed, QueueReads, follow
from checkers.messages.reports import Reports, reports
from results.figures import SECOND
from results.history import Call
from results.op import FAIL, INFO, OK, OpType
from results.record import RunRecord

_MS: Final = 1_000_000

_NOTED_NS: Final = SECOND
"""The time for which a broker may take from the message of a commit to the record of the decision. A client that gets
an answer knows that both are done; of a one-way end, only the message is seen.
"""


class End(NamedTuple):
    """A request to end a transaction. start, end: the times (ns) between which it was sent, or answered. op: the index
    of the op that shows it.
    """

    answer: str
    outcome: OpType
    start: int
    end: int
    node: str | None
    op: int
    one_way: bool = False


class Question(NamedTuple):
    """A question of a broker. since, at: the times (ns) between which it arrived. member: the producer that it reached,
    if there are several. number: 1, and one for each earlier question that it replaced before a client took it.
    """

    since: int
    at: int
    node: str | None
    group: str | None
    op: int
    member: str | None = None
    number: int = 1


class GivenUp(NamedTuple):
    """A copy of a half message in the topic of those that brokers gave up. at: the time (ns) at which it was stored
    there, by the broker's clock. counted: the number of questions by the broker's count. read: the call that shows it.
    """

    at: int
    counted: int
    read: Call


@dataclass
class Transaction(Followed):
    """One transaction. `send`: that of the half message. `ends`, `checks` and `given_up` in order."""

    ends: list[End] = field(default_factory=list)
    checks: list[Question] = field(default_factory=list)
    given_up: list[GivenUp] = field(default_factory=list)

    @property
    def immunity(self) -> int:
        """The time (ns) after the send in which no broker may ask; 0: the message has none of its own."""
        return int(self.send.invoke.extra.get("immunity_s", 0)) * SECOND

    @property
    def asked(self) -> int:
        """The number of questions that arrived."""
        return sum(check.number for check in self.checks)

    @property
    def commits(self) -> list[End]:
        """Ends as a commit that a broker accepted, or may have accepted."""
        return [e for e in self.ends if e.answer == "commit" and e.outcome != FAIL]

    def ended(self, answer: str) -> End | None:
        """The first end of a kind that was acknowledged."""
        return next((e for e in self.ends if e.answer == answer and e.outcome == OK), None)

    @property
    def accepted(self) -> list[int | None]:
        """For each commit the time (ns) at which a broker had certainly accepted it and noted the decision; None:
        unknown. A one-way commit was accepted if a reader got as many copies before the next commit as there were
        commits.
        """
        commits = self.commits
        reads = [call.end or 0 for _, call in self.copies]
        found: list[int | None] = []
        for i, commit in enumerate(commits):
            if commit.outcome == OK:
                found.append(commit.end)
                continue
            until = commits[i + 1].start if i + 1 < len(commits) else None
            seen = commit.one_way and len(reads) > i and (until is None or reads[i] <= until)
            found.append(reads[i] + _NOTED_NS if seen else None)
        return found

    def proven(self, start: int, end: int, *proofs: Call | End | Question) -> Case:
        """A case of this transaction, which its half message and these prove."""
        ops = {proof.op if isinstance(proof, (End, Question)) else proof.invoke.index for proof in proofs}
        return self.case(start, end)._replace(ops=sorted({self.send.invoke.index, *ops}))


@dataclass
class Facts:
    """all: the transactions. strangers: values that no client sent, each with the read that returned it. reads: all of
    them. misled: questions that reached a producer of another group. reports: those of Java producers; None: the
    harness was the producer. discards: the reads of the half messages that were given up.
    """

    all: list[Transaction]
    strangers: list[tuple[Any, Call]]
    reads: QueueReads
    misled: list[tuple[Transaction, Call]]
    reports: Reports | None
    discards: Sequence[Call] = ()

    @property
    def undiscarded(self) -> list[str]:
        """The queues of half messages that were given up which were not read to their end."""
        read = {c.invoke.key for c in self.discards if c.completion is not None and c.completion.extra.get("done")}
        return sorted({str(c.invoke.key) for c in self.discards if c.invoke.key not in read})


def collect(run: RunRecord) -> Facts:
    """The facts of a run."""
    found: dict[Any, Transaction] = {}
    later, reads, discards, java = [], [], [], False
    for call in run.history.clients.calls:
        f = call.invoke.f
        if f == "half":
            found[call.invoke.value] = Transaction(call.invoke.value, call)
        elif f in ("end", "check"):
            later.append(call)
        elif f in ("poll", "replica-read"):
            reads.append(call)
        elif f == "given-up":
            discards.append(call)
        java = java or f == "join"
    misled = []
    for call in later:
        if call.invoke.f == "end":
            found[call.invoke.value].ends.append(_end_of(call))
        elif call.completion is not None and call.outcome == OK and call.completion.value in found:
            t = found[call.completion.value]
            if "stranger" in call.completion.extra:
                misled.append((t, call))
            else:
                t.checks.append(_question_of(call))
    told = reports(run.history) if java else None
    if told is not None:
        _add_reports(told, found, run.deployment.groups)
    strangers = [*follow(reads, found), *_add_discards(discards, found)]
    for t in found.values():
        t.ends.sort(key=lambda end: end.start)
        t.checks.sort(key=lambda check: check.at)
        t.given_up.sort(key=lambda given_up: given_up.at)
    return Facts(list(found.values()), strangers, QueueReads(reads), misled, told, discards)


def _add_discards(discards: Sequence[Call], found: Mapping[Any, Transaction]) -> list[tuple[Any, Call]]:
    """Adds the half messages that were given up. Returns the values that no client sent, each with its read."""
    strangers = []
    for call in discards:
        if call.completion is None or call.outcome != OK:
            continue
        for _, identity, age_ms, counted in call.completion.value:
            if identity in found:
                found[identity].given_up.append(GivenUp((call.end or call.start) - age_ms * _MS, counted, call))
            else:
                strangers.append((identity, call))
    return strangers


def _end_of(call: Call) -> End:
    node = (call.completion.extra if call.completion is not None else {}).get("node")
    answer, op = call.invoke.extra["as"], call.invoke.index
    one_way = call.invoke.extra.get("one_way", False)
    return End(answer, call.outcome, call.start, call.end or call.start, node, op, one_way)


def _question_of(check: Call) -> Question:
    """The client may have handled the question later than it came."""
    done = check.completion
    assert done is not None
    at = (check.end or check.start) - int(done.extra.get("waited_ms", 0)) * _MS
    number = 1 + int(done.extra.get("replaces", 0))
    return Question(at, at, done.extra.get("node"), done.extra.get("group"), check.invoke.index, number=number)


def _add_reports(told: Reports, found: Mapping[Any, Transaction], groups: Mapping[str, Any]) -> None:
    for at, life, op, kind, rest in told.all:
        if kind != "decided" or rest[0] not in found:
            continue
        identity, answer, node, asked, tick = rest
        t = found[identity]
        start = min(told.earliest(life, tick), at) if asked else t.send.start
        if asked:
            group = next((name for name, nodes in groups.items() if node in nodes), None)
            t.checks.append(Question(start, at, node, group, op, life.member))
        if answer is not None:
            t.ends.append(End(answer, INFO, start, at, node, op, one_way=True))
