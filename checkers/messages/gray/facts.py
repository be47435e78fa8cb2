# SPDX-License-Identifier: Apache-2.0
"""The facts of a run of a gray release: sends with their colour, receptions by members, the queues that each member
held, and the members' colours.

A *session* is one member from a join to its crash, its leave, its next join, or the end of its process. It certainly
holds a queue from the answer of the `assign` that names it to the invocation of the next one that does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from results.history import Call, History
from results.op import FAIL, INFO, OK

FOREVER: Final = 2**62

GRAY: Final = "gray"

READS: Final = ("consume", "pop")


class Send(NamedTuple):
    """An acknowledged message."""

    id: int
    key: str
    offset: int | None
    colour: str
    producer: str
    ordering: int
    call: Call

    @property
    def acked(self) -> int:
        assert self.call.end is not None
        return self.call.end


class Rebalance(NamedTuple):
    """A rebalance that succeeded. gray, base: the queues of each colour, as the member knew them."""

    start: int
    end: int
    gray: frozenset[str]
    base: frozenset[str]


@dataclass
class Span:
    """A session holds a queue: certainly from `start` to `end`, perhaps from `may_start` to `may_end` (ns)."""

    key: str
    may_start: int
    start: int
    end: int = FOREVER
    may_end: int = FOREVER


@dataclass
class Session:
    """One member from its join on. `begun`: the answer to the join (ns); `over`: the time after which it did nothing.

    edges      times around its join and its end, between which the others learn of it.
    refused    queue -> times (ns) when it requested the queue and did not get its lock.
    positions  queue -> its queries of the committed offset that were answered, in order: it began at the first after
               each assignment.
    """

    member: str
    process: int
    begun: int
    over: int = FOREVER
    edges: tuple[int, ...] = ()
    spans: list[Span] = field(default_factory=list)
    rebalances: list[Rebalance] = field(default_factory=list)
    refused: dict[str, list[int]] = field(default_factory=dict)
    positions: dict[str, list[Call]] = field(default_factory=dict)

    def rebalanced(self, start: int, end: int) -> int:
        """The number of its rebalances that began and ended between two moments."""
        at = bisect_left(self.rebalances, start, key=lambda r: r.start)
        return sum(r.end <= end for r in self.rebalances[at:])

    def held(self) -> dict[str, Span]:
        """The queues that it holds now."""
        return {span.key: span for span in self.spans if span.end == FOREVER}

    def end(self, moment: int, sure: int) -> None:
        """Ends the session: it holds nothing after `moment`, and its certain possession ends at `sure`."""
        for span in self.held().values():
            span.end, span.may_end = sure, moment
        self.over = moment
        self.edges = (*self.edges, sure, moment)


class Reception(NamedTuple):
    """One message that a member received."""

    id: Any
    key: str
    offset: int
    session: Session
    call: Call

    @property
    def start(self) -> int:
        return self.call.start

    @property
    def end(self) -> int:
        return self.call.end or self.call.start


class Turn(NamedTuple):
    """A member's colour was set, between two moments; None: perhaps."""

    start: int
    end: int
    gray: bool | None
    op: int
    by_flag: bool


class Facts:
    """The facts of a history. Ops of members name them (`member`); those of the drain at the end do not.

    lease: the time (ns) for which a queue stays locked after its owner has disappeared; 0: members lock no queues.
    """

    def __init__(self, history: History, lease: int = 0) -> None:
        self.calls = history.clients.calls
        drains = [c.start for c in self.calls if c.invoke.f in READS and "member" not in c.invoke.extra]
        last = history[-1].time if len(history) else 0
        self.drained = bool(drains)
        self.cut = min(drains, default=last)
        """The end (ns) of the members' part."""
        self.sessions = list(_sessions(self.calls, self.cut))
        self.lease = lease
        self.turns = _turns(self.calls)

    @cached_property
    def sends(self) -> dict[int, Send]:
        """Id -> an acknowledged message."""
        found = {}
        for call in self.calls:
            if (
                call.invoke.f == "send"
                and call.outcome == OK
                and call.completion is not None
                and "colour" in call.invoke.extra
            ):
                extra, (offset, identity) = call.invoke.extra, call.completion.value
                found[identity] = Send(
                    identity,
                    str(call.invoke.key),
                    offset,
                    str(extra["colour"]),
                    str(extra.get("producer")),
                    int(extra.get("ordering", 0)),
                    call,
                )
        return found

    @cached_property
    def receptions(self) -> list[Reception]:
        """The receptions by members, in order of their answers."""
        by_process: dict[int, list[Session]] = {}
        for session in self.sessions:
            by_process.setdefault(session.process, []).append(session)
        found = []
        for call in self.calls:
            done = call.completion
            if call.invoke.f not in READS or "member" not in call.invoke.extra or done is None or done.type != OK:
                continue
            mine = [s for s in by_process.get(call.invoke.process, []) if s.begun <= call.start]
            if mine:
                found += [Reception(identity, key, at, mine[-1], call) for key, at, identity in _received(call)]
        return sorted(found, key=lambda r: r.end)

    @cached_property
    def first(self) -> dict[Any, Reception]:
        """Id -> its first reception by a member."""
        found: dict[Any, Reception] = {}
        for reception in self.receptions:
            found.setdefault(reception.id, reception)
        return found

    @cached_property
    def drained_ids(self) -> set[Any]:
        """The ids of the messages that the drain at the end read."""
        return {
            identity
            for call in self.calls
            if call.invoke.f in READS and "member" not in call.invoke.extra and call.outcome == OK
            for _, _, identity in _received(call)
        }

    @cached_property
    def returned(self) -> dict[int, Call]:
        """Id -> the first time that a member may have sent that message back."""
        found: dict[int, Call] = {}
        for call in self.calls:
            if call.invoke.f == "send-back" and call.outcome != FAIL:
                found.setdefault(call.invoke.value[1], call)
        return found

    def locked(self, key: str) -> list[tuple[int, int]]:
        """The times in which a queue may be locked by a session that is over."""
        return [
            (session.over, session.over + self.lease)
            for session in self.sessions
            if self.lease
            for span in session.spans
            if span.key == key and span.may_end == session.over
        ]

    @cached_property
    def ends(self) -> dict[str, int]:
        """Queue -> the offset up to which the drain at the end consumed it, if it reached the end of the queue."""
        found = {}
        for call in self.calls:
            if call.invoke.f == "drain" and call.outcome == OK and call.completion is not None:
                value = call.completion.value
                if (value.get("consumed_to") or 0) >= (value.get("max") or 0):
                    found[str(call.invoke.key)] = value.get("max") or 0
        return found

    @cached_property
    def commits(self) -> dict[str, list[Call]]:
        """Queue -> its commits that were not refused, in order of invocation."""
        found: dict[str, list[Call]] = {}
        for call in self.calls:
            if call.invoke.f == "commit" and call.outcome != FAIL:
                found.setdefault(str(call.invoke.key), []).append(call)
        return found

    @cached_property
    def expanded(self) -> Call | None:
        """The first expansion that may have happened."""
        return next((c for c in self.calls if c.invoke.f == "expand" and c.outcome != FAIL), None)

    def colour(self, member: str, start: int, end: int) -> tuple[bool, int] | None:
        """A member's colour (True: gray) through an interval, and the time (ns) of its begin; None: uncertain."""
        turns = self.turns.get(member, ())
        if any(turn.start < end and turn.end > start for turn in turns):
            return None
        before = [turn for turn in turns if turn.end <= start]
        if not before or before[-1].gray is None:
            return None
        since = before[-1].end
        for turn in reversed(before):
            if turn.gray != before[-1].gray:
                break
            since = turn.end
        return before[-1].gray, since

    @cached_property
    def changes(self) -> list[int]:
        """The times (ns, in order) when members joined, left, or changed colour, and when the topic was expanded."""
        found = {moment for session in self.sessions for moment in session.edges}
        found |= {m for turns in self.turns.values() for turn in turns for m in (turn.start, turn.end)}
        if self.expanded is not None:
            found |= {self.expanded.start, self.expanded.end or self.expanded.start}
        return sorted(found)

    def without_gray(self) -> Iterator[tuple[int, int, int]]:
        """Yields (from, to, op): no member is gray from the answer of that flag until one may be again."""
        gray: dict[str, bool | None] = {}
        since: tuple[int, int] | None = None
        for member, turn in sorted(
            ((m, turn) for m, turns in self.turns.items() for turn in turns), key=lambda pair: pair[1].end
        ):
            before, gray[member] = gray.get(member), turn.gray
            if since is not None and turn.gray is not False:
                yield since[0], min(turn.start, self.cut), since[1]
                since = None
            elif since is None and turn.by_flag and before and not any(g is not False for g in gray.values()):
                since = turn.end, turn.op
        if since is not None:
            yield since[0], self.cut, since[1]


def _received(call: Call) -> Iterator[tuple[str, int, Any]]:
    """Yields queue, offset and id of each message that a pull or a pop returned."""
    assert call.completion is not None
    for message in call.completion.value or ():
        if call.invoke.f == "pop":
            yield str(message[0]), message[1], message[2]
        else:
            yield str(call.invoke.key), message[0], message[1]


def _sessions(calls: Iterable[Call], cut: int) -> Iterator[Session]:
    now: dict[int, Session] = {}
    for call in calls:
        if "member" not in call.invoke.extra or call.start >= cut:
            continue
        process, f, end = call.invoke.process, call.invoke.f, call.end
        session = now.get(process)
        if session is not None and (f in ("join", "crash", "leave") or call.outcome == INFO):
            session.end(cut if end is None else end, call.start)
            yield now.pop(process)
        if f == "join" and call.outcome == OK and end is not None:
            now[process] = Session(call.invoke.extra["member"], process, end, edges=(call.start, end))
        elif session is None or call.outcome != OK or end is None or call.completion is None:
            continue
        elif f == "assign":
            _assigned(session, call.completion.value, call.start, end)
            for key in set(call.invoke.value or ()) - set(call.completion.value):
                session.refused.setdefault(key, []).append(end)
        elif f == "rebalance":
            value: Mapping[str, Any] = call.completion.value
            session.rebalances.append(Rebalance(call.start, end, frozenset(value["gray"]), frozenset(value["base"])))
        elif f == "committed":
            session.positions.setdefault(str(call.invoke.key), []).append(call)
    for session in now.values():
        session.end(cut, cut)
        yield session


def _assigned(session: Session, keys: Sequence[str], start: int, end: int) -> None:
    held = session.held()
    for key, span in held.items():
        if key not in keys:
            span.end, span.may_end = start, end
    session.spans += [Span(key, start, end) for key in keys if key not in held]


def _turns(calls: Iterable[Call]) -> dict[str, list[Turn]]:
    """Member -> the settings of its colour, by its join or by the operator. If two that overlap differ, the last one is
    unknown.
    """
    found: dict[str, list[Turn]] = {}
    for call in calls:
        if call.invoke.f not in ("join", "flag") or call.outcome == FAIL:
            continue
        known = call.outcome == OK and call.completion is not None and call.end is not None
        end = call.end if call.end is not None else FOREVER
        if call.invoke.f == "flag":
            member, gray = call.invoke.value["member"], call.invoke.value["gray"] if known else None
        else:
            assert call.completion is not None or not known
            member, gray = call.invoke.extra["member"], None
            if known and call.completion is not None:
                gray = bool(call.completion.extra.get(GRAY))
        found.setdefault(member, []).append(Turn(call.start, end, gray, call.invoke.index, call.invoke.f == "flag"))
    return {member: list(_certain(sorted(turns, key=lambda t: t.end))) for member, turns in found.items()}


def _certain(turns: Sequence[Turn]) -> Iterator[Turn]:
    for at, turn in enumerate(turns):
        both = any(other.end > turn.start and other.gray != turn.gray for other in turns[:at])
        yield turn._replace(gray=None) if both else turn
