"""The identity of brokers under controllers: one id each, which stays, and which nobody else ever has.

The history has trials, each under a broker name of its own (the key): members of that name enter, start, are killed,
lose files. `look` tells what a member's node shows: whether its process runs, the ids in its two files, how far it is
(`INITIAL`, `REGISTERED`, `RUNNING`). `next` and `view` are answers of one controller: the next id, and the replicas
that it knows. Only answers are compared of which one came before the other was asked for.

The promises (RocketMQ's document *Persistent unique BrokerId*), each with its anomalies:

I1  an id in `brokerIdentity` stays while the file does: `identity-changed`.
I2  no two brokers of one name have one id: `identity-shared`.
I3  whatever was killed or lost, a broker that is started runs soon: `never-registered`, `never-running`.
I4  the next id is one more than the ids that brokers have got: `burnt-id`; and controllers list no others:
    `ghost-replica`.
I5  controllers know the address of a broker that has registered: `stale-address`.
I6  a SyncStateSet names only ids that brokers have got: `stranger-in-sync`.
I7  what a controller told, the next leader tells: `forgotten-registration`, `controllers-disagree`.
I8  no id is given twice: `reused-id`.

`PERMITTED` says what may be after what was done to the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from checkers.legality import settled
from results.fault_intervals import fault_intervals
from results.figures import SECOND, clock, many
from results.history import Call
from results.op import FAIL, OK
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_GHOST: Final = "nobody knows the register code any more that belongs to the id"
_SET: Final = "the SyncStateSet names only the id that was deleted, and no election takes anybody else"
_COPY: Final = "controllers do not check who uses an id: its file was copied"

PERMITTED: Final[Mapping[str, Mapping[str, str]]] = {
    "rm-temp": {"burnt-id": _GHOST, "ghost-replica": _GHOST},
    "rm-identity": {"never-running": _SET},
    "wipe": {"burnt-id": _GHOST, "ghost-replica": _GHOST, "never-running": _SET},
    "clone": {"identity-shared": _COPY, "stale-address": _COPY, "controllers-disagree": _COPY},
}
"""What was done to a member's files -> anomaly of its group that may follow -> why."""

_DELETES: Final = ("rm-identity", "wipe")
_ASKS: Final = ("next", "view")
_LISTED: Final = 20


class _Case(NamedTuple):
    name: str
    text: str
    start: int
    end: int
    ops: Sequence[int]
    legal: str | None = None
    limit: int | None = None


class _Look(NamedTuple):
    """What a member's node showed: between `start` and `end`."""

    start: int
    end: int
    member: int
    up: bool
    temp: int | None
    identity: int | None
    state: str
    op: int


@dataclass
class _Life:
    """From a start of a member to its end, or its next start. since: when the last fault was over."""

    member: int
    start: int
    since: int
    end: int | None
    looks: Sequence[_Look]
    op: int

    @property
    def runs(self) -> _Look | None:
        return next((one for one in self.looks if one.state == "RUNNING"), None)

    @property
    def died(self) -> bool:
        return any(not one.up for one in self.looks)


@dataclass
class _Group:
    """All that was done under one broker name. acts: what was done, or may have been, to members and by operators.
    problem: the first op that was not done.
    """

    name: str
    row: str
    acts: list[Call] = field(default_factory=list)
    looks: list[_Look] = field(default_factory=list)
    answers: list[Call] = field(default_factory=list)
    problem: str | None = None

    def add(self, call: Call) -> None:
        f, done = call.invoke.f, call.completion
        if f in _ASKS:
            if call.outcome == OK:
                self.answers.append(call)
            return
        if call.outcome != OK and self.problem is None and f not in ("look", "fired"):
            self.problem = f"{f}: {done.error if done is not None else 'no answer'}"
        if f != "look":
            self.acts += [call] if call.outcome != FAIL else []
        elif call.outcome == OK and done is not None:
            value = done.value
            about = value["up"], value["temp"], value["identity"], value["state"]
            self.looks.append(_Look(call.start, done.time, _member(call), *about, call.invoke.index))

    def did(self, *fs: str, member: int | None = None, after: int = -1, before: int | None = None) -> list[Call]:
        """What may have been done in a time."""
        return [
            call
            for call in self.acts
            if call.invoke.f in fs
            and (member is None or _member(call) == member)
            and (call.end is None or call.end > after)
            and (before is None or call.start < before)
        ]

    @property
    def members(self) -> list[int]:
        return sorted({_member(call) for call in self.acts if call.invoke.f == "enter"})

    @cached_property
    def first_seen(self) -> Mapping[int, _Look]:
        """Id -> the first look that showed it in an identity file."""
        found: dict[int, _Look] = {}
        for look in self.looks:
            if look.identity is not None:
                found.setdefault(look.identity, look)
        return found

    def written(self, before: int) -> set[int]:
        """The ids that were seen in identity files before a time."""
        return {number for number, look in self.first_seen.items() if look.end <= before}

    def shown(self, member: int, at: int) -> _Look | None:
        """The last look before a time that still holds then, but for what the member itself has done since."""
        last = next((one for one in reversed(self.looks) if one.member == member and one.end <= at), None)
        if last is None or self.did("start", "rm-temp", "clone", *_DELETES, member=member, after=last.start, before=at):
            return None
        return last

    def settled(self, at: int) -> bool:
        """Whether every member that was started has its identity file."""
        for member in self.members:
            if self.did("start", member=member, before=at):
                left = self.did("leave", member=member, before=at)
                look = self.shown(member, left[0].start if left else at)
                if look is None or look.identity is None:
                    return False
        return True

    def unseen(self, before: int) -> int:
        """How many ids may have been given to members that lost their files before anybody saw the id."""
        number = len(self.did("rm-temp", before=before))
        for call in self.did(*_DELETES, before=before):
            last = [one for one in self.looks if one.member == _member(call) and one.end <= call.start]
            number += not last or last[-1].identity is None
        return number

    def permitted(self, anomaly: str, before: int) -> str | None:
        """Why an anomaly may be, after what was done to files before a time."""
        for f, named in PERMITTED.items():
            if anomaly in named and self.did(f, before=before):
                return f"after {f}: {named[anomaly]}"
        return None

    def shared(self, identity: int) -> bool:
        """Whether the file with this id was copied."""
        return any(
            look.identity == identity and self.did("clone", member=look.member, before=look.end) for look in self.looks
        )

    def address(self, member: int, at: int) -> str | None:
        """Where a member was started last before a time."""
        starts = [c for c in self.did("start", member=member, before=at) if c.outcome == OK and c.completion]
        return None if not starts or starts[-1].completion is None else str(starts[-1].completion.value["address"])

    @cached_property
    def lives(self) -> Sequence[_Life]:
        """Each start of each member."""
        found = []
        for call in self.acts:
            if call.invoke.f != "start" or call.end is None:
                continue
            ends = self.did("start", "kill", "leave", member=_member(call), after=call.end)
            end = min((c.start for c in ends if c is not call), default=None)
            within = [x for x in self.looks if x.member == _member(call) and call.end <= x.start]
            looks = [x for x in within if end is None or x.start < end]
            # Every further look at the counter says the same: the first one was when it happened.
            fired = [c.end for c in self.did("fired", after=call.end, before=end) if _fired(c) and c.end is not None]
            disarmed = [c.end for c in self.did("disarm", after=call.end, before=end) if c.end is not None]
            since = max([call.end, *fired[:1], *disarmed[:1]])
            found.append(_Life(_member(call), call.start, since, end, looks, call.invoke.index))
        return found

    @property
    def untried(self) -> str | None:
        """Why the trial says nothing, or None."""
        if self.problem is not None:
            return self.problem
        if not self.did("leave", member=0):
            return "it did not come to its end"
        if self.did("arm") and not any(map(_fired, self.did("fired"))):
            return "the frame never came"
        return None if self.looks and self.answers else "nobody looked, or no controller answered"


class BrokerIdentity:
    """wanted: the row of each trial that was to be. runs_within_s: how soon a broker that is started must run."""

    name = "broker-identity"

    def __init__(self, wanted: Sequence[str] = (), runs_within_s: float = 30) -> None:
        self.wanted, self.limit = wanted, int(runs_within_s * SECOND)

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `trials`, `starts` of brokers, `runs_s` (the longest time until one ran), and `rows`: row -> in how
        many trials every promise was kept, and what came of the last one.
        """
        groups = _groups(run)
        strikes = fault_intervals(run.history)
        found: list[Anomaly] = []
        rows: dict[str, list[tuple[_Group, list[_Case]]]] = {}
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
        return settled(self.name, run, found, stats, reason, unknown)

    def _cases(self, group: _Group) -> Iterator[_Case]:
        yield from _changed(group)
        yield from _given_twice(group)
        yield from self._late(group)
        yield from _burnt(group)
        yield from _misplaced(group)
        yield from _forgotten(group)

    def _late(self, group: _Group) -> Iterator[_Case]:
        """I3: a broker that was looked at for long enough, and did not run."""
        for life in group.lives:
            if life.runs is not None or not life.looks:
                continue
            killed = any(c.invoke.value.get("victim") == "broker" for c in group.did("arm", member=life.member))
            if life.died and killed:
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
            yield _Case(name, text, life.since, last.end, [life.op, last.op], limit=self.limit)


def _changed(group: _Group) -> Iterator[_Case]:
    """I1."""
    before: dict[int, _Look] = {}
    for look in group.looks:
        old = before.get(look.member)
        before[look.member] = look
        if old is None or old.identity is None or old.identity == look.identity:
            continue
        if not group.did("clone", *_DELETES, member=look.member, after=old.start, before=look.end):
            text = f"member {look.member} had id {old.identity}, and then {look.identity or 'none'}"
            yield _Case("identity-changed", text, old.start, look.end, [old.op, look.op])


def _given_twice(group: _Group) -> Iterator[_Case]:
    """I2 and I8: the id of another member, or of a member whose files are gone."""
    for number, first in group.first_seen.items():
        deleted = group.did(*_DELETES, member=first.member, after=first.start)
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
            yield _Case(name, text, first.start, look.end, [first.op, look.op], legal)
            break
    for call in group.answers:
        ids = group.written(call.start)
        if call.invoke.f == "next" and ids and _value(call) <= max(ids):
            text = f"{_asked(call)} the next id was {_value(call)}, and a broker had {max(ids)} already"
            yield _Case("reused-id", text, call.start, call.end or call.start, [call.invoke.index])
            break


def _burnt(group: _Group) -> Iterator[_Case]:
    """I4 and I6, when all members have got their ids."""
    for call in group.answers:
        if not group.settled(call.start):
            continue
        ids, at = group.written(call.start), (call.start, call.end or call.start, [call.invoke.index])
        spare = group.unseen(call.start)
        if call.invoke.f == "next" and _value(call) > 1 + len(ids):
            text = f"{_asked(call)} the next id was {_value(call)}; brokers had got {_ids(ids)}"
            legal = group.permitted("burnt-id", call.start) if _value(call) - 1 - len(ids) <= spare else None
            yield _Case("burnt-id", text, *at, legal)
        elif call.invoke.f == "view" and _value(call) is not None:
            ghosts = {int(number) for number in _value(call)["replicas"]} - ids
            if ghosts:
                where = ", ".join(f"{n} at {_value(call)['replicas'][str(n)]}" for n in sorted(ghosts))
                text = f"{_asked(call)} there were the replicas {where}; brokers had got {_ids(ids)}"
                legal = group.permitted("ghost-replica", call.start) if len(ghosts) <= spare else None
                yield _Case("ghost-replica", text, *at, legal)
            strangers = set(_value(call)["in_sync"]) - ids
            if strangers:
                text = f"{_asked(call)} the SyncStateSet had {_ids(strangers)}; brokers had got {_ids(ids)}"
                yield _Case("stranger-in-sync", text, *at)


def _misplaced(group: _Group) -> Iterator[_Case]:
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
            listed = ((_value(call) or {}).get("replicas") or {}).get(str(look.identity))
            is_at = group.address(member, call.start)
            if listed is None:
                if group.did("clean", after=0, before=call.end) and look.identity in _cleaned(group, call):
                    continue
                text = f"{_asked(call)} nobody had id {look.identity}, with which member {member} had registered"
                yield _Case("forgotten-registration", text, *at)
            elif listed != is_at:
                legal = group.permitted("stale-address", call.start) if group.shared(look.identity) else None
                text = f"{_asked(call)} id {look.identity} was at {listed}; member {member} with this id is at {is_at}"
                yield _Case("stale-address", text, *at, legal)


def _forgotten(group: _Group) -> Iterator[_Case]:
    """I7: what one answer has, and a later one has no more, or otherwise."""
    known: dict[str, tuple[str, Call]] = {}
    highest: Call | None = None
    for call in group.answers:
        end = call.end or call.start
        if call.invoke.f == "next":
            if highest is not None and _value(call) < _value(highest):
                text = f"{_asked(highest)} the next id was {_value(highest)}; {_asked(call)} {_value(call)}"
                yield _Case("controllers-disagree", text, highest.start, end, [highest.invoke.index, call.invoke.index])
            if highest is None or _value(call) > _value(highest):
                highest = call
            continue
        replicas: Mapping[str, str] = (_value(call) or {}).get("replicas") or {}
        for number, (address, told) in list(known.items()):
            at = (told.start, end, [told.invoke.index, call.invoke.index])
            if number not in replicas:
                del known[number]
                if int(number) not in _cleaned(group, call):
                    text = f"{_asked(told)} there was a replica {number}; {_asked(call)} there is none"
                    yield _Case("forgotten-registration", text, *at)
            elif replicas[number] != address and not group.did("start", after=told.start, before=end):
                legal = group.permitted("controllers-disagree", call.start) if group.shared(int(number)) else None
                text = f"{_asked(told)} id {number} was at {address}; {_asked(call)} at {replicas[number]}"
                yield _Case("controllers-disagree", text, *at, legal)
        known |= {number: (address, call) for number, address in replicas.items()}


def _cleaned(group: _Group, before: Call) -> set[int]:
    """The ids that an operator may have had forgotten."""
    return {int(call.invoke.value) for call in group.did("clean", before=before.end)}


def _groups(run: RunRecord) -> dict[str, _Group]:
    found: dict[str, _Group] = {}
    for call in run.history.clients.calls:
        key = call.invoke.key
        if key is not None and "row" in call.invoke.extra and key not in found:
            found[key] = _Group(key, str(call.invoke.extra["row"]))
        if key in found:
            found[key].add(call)
    return found


def _member(call: Call) -> int:
    return int(call.invoke.extra.get("member", 0))


def _value(call: Call) -> Any:
    return None if call.completion is None else call.completion.value


def _fired(call: Call) -> bool:
    return bool(_value(call)) and call.outcome == OK


def _asked(call: Call) -> str:
    return f"by the controller of {call.invoke.extra.get('controller')} at {clock(call.end or call.start)}"


def _ids(ids: set[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "none"


def _files(look: _Look) -> str:
    told = [f"{kind} {number}" for kind, number in (("temp", look.temp), ("identity", look.identity)) if number]
    return " and ".join(told) or "no file"


def _legal(group: _Group, case: _Case) -> _Case:
    """A broker that does not run may be one whose files were deleted."""
    permitted = group.permitted(case.name, case.end) if case.limit is not None else None
    return case if case.legal is not None or permitted is None else case._replace(legal=permitted)


def _anomalies(group: _Group, cases: Sequence[_Case]) -> Iterator[Anomaly]:
    """One for each name, and whether it is permitted."""
    by_name: dict[tuple[str, str | None], list[_Case]] = {}
    for case in cases:
        by_name.setdefault((case.name, case.legal), []).append(case)
    for (name, legal), some in by_name.items():
        first = some[0]
        yield Anomaly(
            name,
            f"row {group.row}: {first.text} ({many(len(some), 'case')})",
            group.name,
            sorted({i for case in some[:5] for i in case.ops}),
            (first.start, first.end),
            {"row": group.row, "cases": [case.text for case in some[:_LISTED]]},
            legal=legal,
            limit_s=None if first.limit is None else first.limit / SECOND,
        )


def _describe_row(some: Sequence[tuple[_Group, Sequence[_Case]]]) -> str:
    """In how many trials all promises were kept, and how the last one went."""
    told = [(group, cases) for group, cases in some if group.untried is None]
    if not told:
        return f"not tried: {some[-1][0].untried}"
    held = sum(not any(c.legal is None for c in cases) for _, cases in told)
    group, cases = told[-1]
    names = list(dict.fromkeys(c.name for c in cases if c.legal is None))
    legal = list(dict.fromkeys(c.name for c in cases if c.legal is not None))
    facts = [f"held in {held} of {len(told)}", *names, *(f"{name} (permitted)" for name in legal), *_facts(group)]
    return "; ".join(facts)


def _facts(group: _Group) -> Iterator[str]:
    """What the files were when a member was down, what they are at the end, the next id, and how long it took."""
    down = next((look for look in group.looks if not look.up), None)
    if down is not None:
        yield f"files then: {_files(down)}"
    for member in group.members:
        looks = [look for look in group.looks if look.member == member]
        if looks:
            yield f"member {member}: {_files(looks[-1])}, {looks[-1].state}"
    nexts = [call for call in group.answers if call.invoke.f == "next"]
    if nexts:
        yield f"next {_value(nexts[-1])}"
    took = [life.runs.end - life.since for life in group.lives if life.runs is not None]
    if took:
        yield f"ran after {took[-1] / SECOND:.1f} s"
