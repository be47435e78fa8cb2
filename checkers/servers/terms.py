# SPDX-License-Identifier: Apache-2.0
"""Terms, votes and epochs must not go back: Raft's persistent state (Ongaro and Ousterhout 2014, figure 2).

A server's term only grows, over restarts too, and it votes for at most one candidate in a term. A server that forgets
its term may vote a second time, and then a term may have two leaders. The same holds for the epochs that RocketMQ's
controllers count: one for each master of a group, one for each change of the SyncStateSet (`SyncStateInfo`).

Sources, in the files of the run:

* the status of each node (`Observation.term`), where the message log is a Raft log;
* lines that DLedger 0.3.2 and 0.4.0 log under the lock of the member's state, so in the order of the changes:
  `[INCREASE_TERM] from A to B`, `[ChangeRoleTo...] ... currTerm: N`, `load persistent state ok. term=N`;
* the file of the term before and after a failure of power (`nemesis.power`);
* the answers to requests for votes, which each candidate logs as JSON (`[GetVoteResponse]`);
* the epochs of the leader of the controllers.

The epochs of brokers are not judged: a broker that truncates its log drops the epochs behind that point.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from checkers.base.evidence import stamped_lines
from checkers.base.legality import conclude
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import clock, many
from results.record import Observation, RunRecord
from results.verdict import Anomaly, CheckResult

_TERM: Final = re.compile(
    r"_\[INCREASE_TERM\] from (?P<from>-?\d+) to (?P<to>-?\d+)"
    r"|\] ?\[ChangeRoleTo\w+\] from term: -?\d+ .*currTerm: (?P<now>-?\d+)"
    r"|load persistent state ok\. term=(?P<loaded>-?\d+)"
)
_VOTE: Final = "][GetVoteResponse] {"
_MARKS: Final = ("[INCREASE_TERM]", "[ChangeRoleTo", "load persistent state ok", _VOTE)
_FILE: Final = re.compile(r"currTerm=(-?\d+)")

_EPOCHS: Final = ("in_sync_epoch", "master_epoch")
_SHOWN: Final = 20


@dataclass(frozen=True)
class _Term:
    """A node was in `term` at `time` (ns). where: a log's name, or `status`; each has its own sequence."""

    node: str
    where: str
    time: int
    term: int
    said: str


@dataclass(frozen=True)
class _Vote:
    """`voter` voted for `candidate` in `term` of a Raft group."""

    group: str
    voter: str
    term: int
    candidate: str
    time: int
    said: str


class Terms:
    """`term-went-back`, `voted-twice` and `epoch-went-back`."""

    name = "terms"
    order = 40

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """True if the run has any report of terms, votes or epochs."""
        return any(True for _ in _facts(run)) or any(
            name in seen.extra for seen in run.observations for name in _EPOCHS
        )

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `terms`: reports of a term; `votes`; `epochs`: reports of an epoch."""
        terms: dict[tuple[str, str], list[_Term]] = {}
        votes: dict[tuple[str, str, int], dict[str, _Vote]] = {}
        counted = {"terms": 0, "votes": 0, "epochs": 0}
        for fact in _facts(run):
            if isinstance(fact, _Term):
                counted["terms"] += 1
                terms.setdefault((fact.node, fact.where), []).append(fact)
            else:
                counted["votes"] += 1
                votes.setdefault((fact.group, fact.voter, fact.term), {}).setdefault(fact.candidate, fact)
        counted["epochs"] = sum(name in seen.extra for seen in run.observations for name in _EPOCHS)
        found = [*_fallen(terms), *_twice(votes), *_epochs(run)]
        told = ", ".join(many(count, thing.removesuffix("s")) for thing, count in counted.items() if count)
        return conclude(self.name, run, found[:_SHOWN], counted, f"{told or 'nothing'} read")


def _facts(run: RunRecord) -> Iterator[_Term | _Vote]:
    """Yields terms and votes; terms of one (node, where) come in their order."""
    if run.deployment.traits.raft_log:
        for seen in run.observations:
            if seen.term is not None and seen.role not in ("silent", "starting"):
                yield _Term(seen.node, "status", seen.time, seen.term, f"status at {clock(seen.time)}: {seen.term}")
    for node, paths in run.logs.items():
        for path in paths:
            if path.suffix == ".log" and not path.name.startswith("gc-"):
                for stamp, line in stamped_lines(path, run.environment):
                    if any(mark in line for mark in _MARKS):
                        yield from _said(node, path.name, stamp or 0, line)
    for strike in fault_intervals(run.history):
        yield from _kept(strike)


def _said(node: str, where: str, time: int, line: str) -> Iterator[_Term | _Vote]:
    """Yields the term or vote in a line of a log."""
    found = _TERM.search(line)
    if found is not None:
        for name in ("from", "now", "loaded", "to"):
            if found[name] is not None:
                yield _Term(node, where, time, int(found[name]), line[:300])
    elif _VOTE in line:
        with suppress(ValueError, KeyError, TypeError):
            answer = json.loads(line[line.index(_VOTE) + len(_VOTE) - 1 :])
            if answer["voteResult"] == "ACCEPT":
                yield _Vote(
                    str(answer.get("group")),
                    str(answer["remoteId"]),
                    int(answer["term"]),
                    str(answer["leaderId"]),
                    time,
                    line[:300],
                )


def _kept(strike: FaultInterval) -> Iterator[_Term]:
    """Yields the terms in the files that a failure of power changed. An empty or missing file is read as term 0
    (`MemberState.loadState`).
    """
    for detail in strike.nodes.values():
        changed = detail.get("changed") if isinstance(detail, Mapping) else None
        for node, files in (changed or {}).items():
            for file in files:
                before = _FILE.search(str(file["before"]))
                if before is not None:
                    after = _FILE.search(file["after"] or "")
                    name = str(file["file"])
                    for term in (int(before[1]), int(after[1]) if after else 0):
                        yield _Term(node, name, strike.start_ns, term, f"{name}: term {term}")


def _fallen(terms: Mapping[tuple[str, str], list[_Term]]) -> Iterator[Anomaly]:
    """Yields one anomaly for each node, from the source that shows most."""
    falls: dict[str, list[tuple[_Term, _Term]]] = {}
    for (node, _), said in terms.items():
        highest = said[0]
        mine = []
        for now in said:
            if now.term < highest.term:
                mine.append((highest, now))
                highest = now
            elif now.term > highest.term:
                highest = now
        if len(mine) > len(falls.get(node, ())):
            falls[node] = mine
    for node, cases in falls.items():
        before, after = cases[0]
        again = f" (the first of {len(cases)} times)" if len(cases) > 1 else ""
        yield Anomaly(
            "term-went-back",
            f"{node} was in term {before.term} and, later, in term {after.term}{again}; a term never decreases, not "
            "over a restart either",
            window=(max(0, before.time), max(0, after.time)),
            details={"node": node, "count": len(cases), "said": [before.said, after.said]},
        )


def _twice(votes: Mapping[tuple[str, str, int], Mapping[str, _Vote]]) -> Iterator[Anomaly]:
    for (_, voter, term), given in sorted(votes.items()):
        if len(given) > 1:
            ordered = sorted(given.values(), key=lambda vote: vote.time)
            names = " and ".join(vote.candidate for vote in ordered)
            yield Anomaly(
                "voted-twice",
                f"{voter} voted for {names} in term {term}; a server has one vote in a term",
                window=(max(0, ordered[0].time), max(0, ordered[-1].time)),
                details={"node": voter, "term": term, "said": [vote.said for vote in ordered]},
            )


def two_leaders(run: RunRecord, leaders: Mapping[int, Mapping[str, int]], kind: str | None = None) -> Iterator[Anomaly]:
    """`two-leaders-in-a-term`.

    leaders  term -> leader -> the time (ns) when it was first seen to lead.
    kind     the kind of server that elects, or None: any.

    `details["nodes"]`: members whose data, and so their vote, was lost between the elections.
    """
    lost = [
        (strike.start_ns, effect.node)
        for strike in fault_intervals(run.history)
        for effect in strike.effects
        if effect.kind == "data-lost" and (kind is None or not effect.servers or kind in effect.servers)
    ]
    whose = f" of the {kind}s" if kind else ""
    for term, who in sorted(leaders.items()):
        if len(who) > 1:
            first, last = min(who.values()), max(who.values())
            yield Anomaly(
                "two-leaders-in-a-term",
                f"term {term}{whose} had {len(who)} leaders: {', '.join(sorted(who))}; a term has at most one",
                window=(first, last),
                details={
                    "term": term,
                    "leaders": sorted(who),
                    "nodes": sorted({node for at, node in lost if first <= at <= last}),
                },
            )


def _epochs(run: RunRecord) -> Iterator[Anomaly]:
    """Yields for each epoch the first time that a leader of the controllers reports less than it must know.

    It must know its own reports, and those of others before it was last seen not to lead: a later leader has applied
    all of that. A report counts if the next one of this leader confirms it: JRaft calls a node leader a moment before
    it has applied them.
    """
    controllers = [server.node for server in run.deployment.having("controller")]
    for name in _EPOCHS:
        highest: Observation | None = None
        must: dict[str, Observation] = {}
        doubted: dict[str, Observation] = {}
        for seen in run.observations:
            role, epoch = seen.extra.get("controller"), seen.extra.get(name)
            if role == "follower" and highest is not None:
                must[seen.node] = highest
            if role != "leader" or not isinstance(epoch, int):
                doubted.pop(seen.node, None)
                continue
            known = must.get(seen.node)
            if known is not None and epoch < known.extra[name]:
                if seen.node in doubted:
                    yield _behind(run, name, known, doubted[seen.node], controllers)
                    break
                doubted[seen.node] = seen
                continue
            doubted.pop(seen.node, None)
            must[seen.node] = seen
            if highest is None or epoch > highest.extra[name]:
                highest = seen


def _behind(run: RunRecord, name: str, known: Observation, seen: Observation, controllers: list[str]) -> Anomaly:
    words = {"in_sync_epoch": "the epoch of the SyncStateSet", "master_epoch": "the master's epoch"}
    told = Anomaly(
        "epoch-went-back",
        f"{words[name]} was {known.extra[name]} by {known.node}, and later {seen.extra[name]} by {seen.node}, each as "
        "the leader of the controllers; an epoch never decreases",
        window=(known.time, seen.time),
        details={"reports": [known.to_json(), seen.to_json()]},
    )
    wiped = {
        effect.node
        for strike in fault_intervals(run.history)
        if strike.start_ns <= seen.time
        for effect in strike.effects
        if effect.kind == "data-lost" and effect.node in controllers
    }
    if 2 * len(wiped) > len(controllers):
        return replace(
            told, legal="a majority of the controllers lost their disks, and what they had counted with them"
        )
    return told
