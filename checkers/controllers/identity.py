# SPDX-License-Identifier: Apache-2.0
"""The identity of brokers under controllers: each broker has one id, which stays, and which no other broker ever has.

The history has trials, each under a broker name of its own (the key): members of that name enter, start, are killed,
lose files. `look` returns the state of a member's node: process up or down, the ids in its two files, and its
registration (`INITIAL`, `REGISTERED`, `RUNNING`). `next` and `view` are answers of one controller: the next id, and the
replicas that it knows. Two answers are compared only if one arrived before the other was requested.

The promises (RocketMQ's document *Persistent unique BrokerId*), each with its anomalies:

I1  an id in `brokerIdentity` stays while the file does: `identity-changed`.
I2  no two brokers of one name have one id: `identity-shared`.
I3  a broker that is started runs soon, whatever was killed or lost: `never-registered`, `never-running`.
I4  the next id is one more than the ids that brokers have got: `burnt-id`; and controllers list no others:
    `ghost-replica`.
I5  controllers know the address of a broker that has registered: `stale-address`.
I6  a SyncStateSet names only ids that brokers have got: `stranger-in-sync`.
I7  the next leader reports everything that a controller reported: `forgotten-registration`, `controllers-disagree`.
I8  no id is given twice: `reused-id`.

`checkers.controllers.trials.PERMITTED` lists the anomalies that each operation on the files permits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from checkers.base.cases import Case, by_reason
from checkers.base.legality import conclude
from checkers.controllers.trials import DELETES, Group, Look, read_groups, value_of
from results.fault_intervals import fault_intervals
from results.figures import SECOND, clock, many
from results.history import Call
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult


class BrokerIdentity:
    """wanted: the row of each planned trial. runs_within_s: the longest time (s) until a started broker runs."""

    name = "broker-identity"

    def __init__(self, wanted: Sequence[str] = (), runs_within_s: float = 30) -> None:
        self.wanted, self.limit = wanted, int(runs_within_s * SECOND)

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `trials`, `starts` of brokers, `runs_s` (the longest time until one ran), and `rows`: row -> the
        number of trials in which every promise was kept, and the result of the last one.
        """
        groups = read_groups(run)
        strikes = fault_intervals(run.history)
        found: list[Anomaly] = []
        rows: dict[str, list[tuple[Group, list[Case]]]] = {}
        for group in groups.values():
            cases = [_legal(group, case) for case in self._cases(group)]
            cases = [c for c in cases if c.limit is None or not any(s.covers(c.start, c.end) for s in strikes)]
            rows.setdefault(group.row, []).append((group, cases))
            found += _anomalies(group, cases)
        took = [life.runs.end - life.since for g in groups.values() for life in g.lives if life.runs is not None]
        stats: dict[str, Any] = {
            "trials": len(groups),
            "starts": sum(len(g.lives) for g in groups.values()),
            "runs_s": round(max(took) / SECOND, 1) if took else None,
            "rows": {row: _describe_row(some) for row, some in rows.items()},
        }
        tried = Counter(g.row for g in groups.values() if g.untried is None)
        lacking = [row for row, number in Counter(self.wanted).items() if tried[row] < number]
        unknown = None
        if lacking or not tried:
            whys = {g.row: g.untried for g in groups.values() if g.untried is not None}
            first = lacking[0] if lacking else next(iter(whys), "all")
            why = whys.get(first, "there was no time for it")
            unknown = f"{sum(tried.values())} of {len(self.wanted)} trials were completed; {first}: {why}"
        reason = f"{many(sum(tried.values()), 'trial')} of {many(len(tried), 'row')}"
        return conclude(self.name, run, found, stats, reason, unknown)

    def _cases(self, group: Group) -> Iterator[Case]:
        yield from _changed(group)
        yield from _given_twice(group)
        yield from self._late(group)
        yield from _burnt(group)
        yield from _misplaced(group)
        yield from _forgotten(group)

    def _late(self, group: Group) -> Iterator[Case]:
        """I3: yields each broker that did not run although looks observed it for long enough."""
        for life in group.lives:
            if life.runs is not None or not life.looks:
                continue
            if life.died and group.killed(life):
                continue
            last = life.looks[-1]
            if last.start - life.since < self.limit and not life.died:
                continue
            name = "never-registered" if last.state == "INITIAL" else "never-running"
            ended = "; its process had ended" if life.died else ""
            text = (
                f"member {life.member} was started at {clock(life.start)}, and at {clock(last.end)} it was still "
                f"{last.state}, with {_files(last)}{ended}"
            )
            yield Case(life.since, last.end, [life.op, last.op], text, name=name, limit=self.limit)


def _changed(group: Group) -> Iterator[Case]:
    """I1."""
    before: dict[int, Look] = {}
    for look in group.looks:
        old = before.get(look.member)
        before[look.member] = look
        if old is None or old.identity is None or old.identity == look.identity:
            continue
        if not group.did("clone", *DELETES, member=look.member, after=old.start, before=look.end):
            text = f"member {look.member} had id {old.identity}, and then {look.identity or 'none'}"
            yield Case(old.start, look.end, [old.op, look.op], text, name="identity-changed")


def _given_twice(group: Group) -> Iterator[Case]:
    """I2 and I8: the id of another member, or of a member whose files are gone."""
    for number, first in group.first_seen.items():
        deleted = group.did(*DELETES, member=first.member, after=first.start)
        gone = min((call.start for call in deleted), default=None)
        for look in group.looks:
            if look.identity != number or look.start < first.end:
                continue
            if look.member == first.member and (gone is None or look.start < gone):
                continue
            legal = group.permitted("identity-shared", look.end) if group.shared(number) else None
            held = gone is None or look.end < gone
            text = f"member {first.member} got id {number}, and so did member {look.member}" + (
                "" if held else " when its files were gone"
            )
            name = "identity-shared" if held else "reused-id"
            yield Case(first.start, look.end, [first.op, look.op], text, name=name, legal=legal)
            break
    for call in group.answers:
        ids = group.written(call.start)
        if call.invoke.f == "next" and ids and value_of(call) <= max(ids):
            text = f"{_asked(call)} the next id was {value_of(call)}, and a broker had {max(ids)} already"
            yield Case(call.start, call.end or call.start, [call.invoke.index], text, name="reused-id")
            break


def _burnt(group: Group) -> Iterator[Case]:
    """I4 and I6, when all members have got their ids."""
    for call in group.answers:
        if not group.settled(call.start):
            continue
        ids, at = group.written(call.start), (call.start, call.end or call.start, [call.invoke.index])
        spare = group.unseen(call.start)
        if call.invoke.f == "next" and value_of(call) > 1 + len(ids):
            text = f"{_asked(call)} the next id was {value_of(call)}; brokers had got {_ids(ids)}"
            legal = group.permitted("burnt-id", call.start) if value_of(call) - 1 - len(ids) <= spare else None
            yield Case(*at, text, name="burnt-id", legal=legal)
        elif call.invoke.f == "view" and value_of(call) is not None:
            ghosts = {int(number) for number in value_of(call)["replicas"]} - ids
            if ghosts:
                where = ", ".join(f"{n} at {value_of(call)['replicas'][str(n)]}" for n in sorted(ghosts))
                text = f"{_asked(call)} there were the replicas {where}; brokers had got {_ids(ids)}"
                legal = group.permitted("ghost-replica", call.start) if len(ghosts) <= spare else None
                yield Case(*at, text, name="ghost-replica", legal=legal)
            strangers = set(value_of(call)["in_sync"]) - ids
            if strangers:
                text = f"{_asked(call)} the SyncStateSet had {_ids(strangers)}; brokers had got {_ids(ids)}"
                yield Case(*at, text, name="stranger-in-sync")


def _misplaced(group: Group) -> Iterator[Case]:
    """I5, and registrations that are not listed (I7)."""
    for call in group.answers:
        if call.invoke.f != "view":
            continue
        for member in group.members:
            look = group.shown(member, call.start)
            if look is None or look.identity is None or look.state == "INITIAL" or not look.up:
                continue
            if group.did("kill", "leave", member=member, after=look.start, before=call.end):
                continue
            at = (look.start, call.end or call.start, [look.op, call.invoke.index])
            listed = ((value_of(call) or {}).get("replicas") or {}).get(str(look.identity))
            is_at = group.address(member, call.start)
            if listed is None:
                if group.did("clean", after=0, before=call.end) and look.identity in _cleaned(group, call):
                    continue
                text = f"{_asked(call)} no replica had id {look.identity}, with which member {member} had registered"
                yield Case(*at, text, name="forgotten-registration")
            elif listed != is_at:
                legal = group.permitted("stale-address", call.start) if group.shared(look.identity) else None
                text = f"{_asked(call)} id {look.identity} was at {listed}; member {member} with this id is at {is_at}"
                yield Case(*at, text, name="stale-address", legal=legal)


def _forgotten(group: Group) -> Iterator[Case]:
    """I7: yields each fact of an answer that a later answer lacks, or contradicts."""
    known: dict[str, tuple[str, Call]] = {}
    highest: Call | None = None
    for call in group.answers:
        end = call.end or call.start
        if call.invoke.f == "next":
            if highest is not None and value_of(call) < value_of(highest):
                text = f"{_asked(highest)} the next id was {value_of(highest)}; {_asked(call)} {value_of(call)}"
                yield Case(
                    highest.start, end, [highest.invoke.index, call.invoke.index], text, name="controllers-disagree"
                )
            if highest is None or value_of(call) > value_of(highest):
                highest = call
            continue
        replicas: Mapping[str, str] = (value_of(call) or {}).get("replicas") or {}
        for number, (address, told) in list(known.items()):
            at = (told.start, end, [told.invoke.index, call.invoke.index])
            if number not in replicas:
                del known[number]
                if int(number) not in _cleaned(group, call):
                    text = f"{_asked(told)} there was a replica {number}; {_asked(call)} it is missing"
                    yield Case(*at, text, name="forgotten-registration")
            elif replicas[number] not in (address, *(group.address(member, end) for member in group.members)):
                text = f"{_asked(told)} id {number} was at {address}; {_asked(call)} at {replicas[number]}"
                yield Case(*at, text, name="controllers-disagree")
        known |= {number: (address, call) for number, address in replicas.items()}


def _cleaned(group: Group, before: Call) -> set[int]:
    """The ids that an operator may have removed (`clean`)."""
    return {int(call.invoke.value) for call in group.did("clean", before=before.end)}


def _asked(call: Call) -> str:
    return f"by the controller of {call.invoke.extra.get('controller')} at {clock(call.end or call.start)}"


def _ids(ids: set[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "none"


def _files(look: Look) -> str:
    told = [f"{kind} {number}" for kind, number in (("temp", look.temp), ("identity", look.identity)) if number]
    return " and ".join(told) or "no file"


def _legal(group: Group, case: Case) -> Case:
    """A broker that does not run may be one whose files were deleted."""
    permitted = group.permitted(case.name, case.end) if case.limit is not None else None
    return case if case.legal is not None or permitted is None else case._replace(legal=permitted)


def _anomalies(group: Group, cases: Sequence[Case]) -> Iterator[Anomaly]:
    """One for each name, and whether it is permitted."""
    yield from _named("identity-changed", group, cases)
    yield from _named("identity-shared", group, cases)
    yield from _named("never-registered", group, cases)
    yield from _named("never-running", group, cases)
    yield from _named("burnt-id", group, cases)
    yield from _named("ghost-replica", group, cases)
    yield from _named("stale-address", group, cases)
    yield from _named("stranger-in-sync", group, cases)
    yield from _named("forgotten-registration", group, cases)
    yield from _named("controllers-disagree", group, cases)
    yield from _named("reused-id", group, cases)


def _named(name: str, group: Group, cases: Sequence[Case]) -> Iterator[Anomaly]:
    mine = [case._replace(key=group.name) for case in cases if case.name == name]
    return by_reason(name, mine, f"row {group.row}", {"row": group.row})


def _describe_row(some: Sequence[tuple[Group, Sequence[Case]]]) -> str:
    """The number of trials in which all promises were kept, and the result of the last one."""
    told = [(group, cases) for group, cases in some if group.untried is None]
    if not told:
        return f"not tried: {some[-1][0].untried}"
    held = sum(not any(c.legal is None for c in cases) for _, cases in told)
    group, cases = told[-1]
    names = list(dict.fromkeys(c.name for c in cases if c.legal is None))
    legal = list(dict.fromkeys(c.name for c in cases if c.legal is not None))
    facts = [f"held in {held} of {len(told)}", *names, *(f"{name} (permitted)" for name in legal), *_facts(group)]
    return "; ".join(facts)


def _facts(group: Group) -> Iterator[str]:
    """Yields the files while a member was down, the files at the end, the next id, and the time until it ran."""
    down = next((look for look in group.looks if not look.up), None)
    if down is not None:
        yield f"files then: {_files(down)}"
    for member in group.members:
        looks = [look for look in group.looks if look.member == member]
        if looks:
            yield f"member {member}: {_files(looks[-1])}, {looks[-1].state}"
    nexts = [call for call in group.answers if call.invoke.f == "next"]
    if nexts:
        yield f"next {value_of(nexts[-1])}"
    took = [life.runs.end - life.since for life in group.lives if life.runs is not None]
    if took:
        yield f"ran after {took[-1] / SECOND:.1f} s"
