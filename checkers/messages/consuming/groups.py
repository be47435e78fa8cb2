# SPDX-License-Identifier: Apache-2.0
"""Judges that a group agrees on its members and on its queues soon after a change.

Source: "Clustering consumption" (docs/en/Features.md of apache/rocketmq): the members of a group share the queues. The
broker drops a member whose connection ends (`ConsumerManager.doChannelCloseEvent`) and notifies the others, which share
the queues again at once (`NOTIFY_CONSUMER_IDS_CHANGED`), and in any case every 20 s (`rebalance.waitInterval`). Each
member sends a heartbeat to every broker at its start and every 30 s (`heartbeatBrokerInterval`).

Two views are compared with the members that live: the members' own reports of their queues, and the client ids that the
masters, or the proxies of the members, name (GET_CONSUMER_LIST_BY_GROUP), which the run samples. Members that share the
queues by different lists leave one to nobody, or share one. Proxies copy heartbeats to each other (`HeartbeatSyncer`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consumer_times import SETTLED_S
from checkers.messages.consuming.calm import (
    Presence,
    Span,
    calm_times,
    changes_of,
    deleted_times,
    fault_times,
    merged,
    presences,
)
from checkers.messages.consuming.takes import Takes, takes
from checkers.messages.ops import of_messages
from checkers.messages.reports import Life
from results.figures import SECOND, clock, many
from results.history import History
from results.op import OK
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_UNOWNED: Final = "queue-unowned"
_SHARED: Final = "queue-owned-twice"
_NAMED: Final = int(SETTLED_S * SECOND)


class Wrong(NamedTuple):
    """A queue without exactly the owners that it should have, from `start` to `end` (ns)."""

    name: str
    key: str
    start: int
    end: int
    owners: str


class Groups:
    """`queue-unowned`, `queue-owned-twice`, `dead-member-named`, `live-member-unnamed`.

    shared    True: each member has every queue (broadcast); False: one member has it.
    named     True if the run asks the brokers, or the proxies, that the members' heartbeats reach; False: what they
              name is not judged.
    within_s  the time after a change of the members within which each queue must have its owner; brokers must name the
              members within `SETTLED_S`. After a fault or a change of a master, `HEARTBEAT_S` more.
    """

    name = "groups"

    def __init__(self, *, shared: bool = False, named: bool = True, within_s: float = SETTLED_S) -> None:
        self.shared, self.named, self.limit = shared, named, int(within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `changes` of members, `queues`, `answers` of brokers; `settled_p50_s` and `settled_max_s`: from a
        change until each queue has its owners, where no other change came before.
        """
        taken, scene = takes(run.history), RunTimeline(run)
        there = presences(run.history, taken)
        keys = _queues(run.history, taken)
        groups = sorted({group_of(key) or "" for key in keys})
        faults = [*fault_times(scene, groups, taken.until), *deleted_times(run.history, taken.until)]
        changes = [span for presence in there for span in changes_of(presence, taken.until)]
        wrong = list(_wrong(there, taken, keys, self.shared)) if any(taken.queues.values()) else []
        late, excused, open_ = self._late(wrong, merged([*changes, *faults]), taken.until)
        names = _Names(run.history, there, faults) if self.named else None
        if names:
            late = [case._replace(text=case.text + names.doubled(case)) for case in late]
        found = [
            *anomalies(scene, "queue-unowned", [c for c in late if c.name == _UNOWNED], "{n} times a queue had too few "
                       "owners although the members were there", limit=self.limit),
            *anomalies(scene, "queue-owned-twice", [c for c in late if c.name == _SHARED], "{n} times several members "
                       "had a queue that is for one", limit=self.limit),
            *anomalies(scene, "dead-member-named", names.dead if names else [], "{n} times a broker or a proxy "
                       "named a member that was gone", limit=_NAMED),
            *anomalies(scene, "live-member-unnamed", names.missing if names else [], "{n} times a broker or a proxy "
                       "did not name a member that was there", limit=_NAMED),
        ]  # fmt: skip
        settled = sorted(_settled(there, wrong, taken.until))
        stats: dict[str, Any] = {
            "changes": len(changes),
            "queues": len(keys) if taken.queues else 0,
            "answers": names.answers if names else 0,
        }
        if settled and taken.queues:
            p50, longest = (round(float(np.percentile(settled, p)) / SECOND, 2) for p in (50, 100))
            stats |= {"settled_p50_s": p50, "settled_max_s": longest}
        excuses = []
        bound = self.limit / SECOND
        for rule, overlaps in excused.items():
            why = "a fault, a change of a master, or another change of members came before the limit"
            excuses.append(Excuse(rule, len(overlaps), why, bound, max(overlaps) / SECOND))
        for rule, n in names.excused.items() if names else ():
            if n:
                excuses.append(Excuse(rule, n, "a fault, or a change of the master, came before the limit", SETTLED_S))
        unknown = self._unknown(taken, names, open_)
        reason = f"{many(len(changes), 'change')} of members"
        if taken.queues:
            reason += f", {many(len(keys), 'queue')}"
        if "settled_max_s" in stats:
            reason += f" settled within {stats['settled_p50_s']:g} s (p50), {stats['settled_max_s']:g} s at most"
        if names:
            reason += f"; {many(names.answers, 'answer')} of brokers"
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)

    def _unknown(self, taken: Takes, names: _Names | None, open_: Sequence[Wrong]) -> str | None:
        if open_:
            return (
                f"{many(len(open_), 'queue')} without the right owners at the end, the first: {open_[0].key}; the "
                f"run had no {self.limit / SECOND:g} s without a change or a fault for them"
            )
        if names is not None and not taken.queues:
            return "no member reported its queues"
        if names is not None and not names.answers:
            return "no broker answered a request for the members of the group"
        return None

    def _late(
        self, wrong: Sequence[Wrong], disturbed: Sequence[Span], until: int
    ) -> tuple[list[Case], Mapping[str, list[int]], list[Wrong]]:
        """The violations; rule -> the longest calm time (ns) of each case that is none; those at the end of the run
        that were not judged.
        """
        late: list[Case] = []
        excused: dict[str, list[int]] = {}
        open_: list[Wrong] = []
        calm = list(calm_times(disturbed, until))
        for each in wrong:
            parts = [Span(max(each.start, c.start), min(each.end, c.end)) for c in calm]
            longest = max(parts, key=lambda part: part.end - part.start, default=Span(0, 0))
            if longest.end - longest.start > self.limit:
                text = f"{each.key} had {each.owners} from {clock(longest.start)} to {clock(longest.end)}"
                late.append(Case(longest.start, longest.end, [], text, each.key, name=each.name))
            elif each.end >= until:
                open_.append(each)
            elif each.end - each.start > self.limit:
                excused.setdefault(each.name, []).append(max(0, longest.end - longest.start))
        return late, excused, open_


class _Namer(NamedTuple):
    """The master of a broker group, or the proxy of a node."""

    group: str | None
    proxy: str | None

    def __str__(self) -> str:
        return f"the master of {self.group}" if self.proxy is None else f"the proxy of {self.proxy}"


class _Names:
    """The answers of masters and proxies about the members: `dead`: cases of members that were gone, `missing`: of
    those that were there. excused: rule -> the number of members and namers that a fault excuses.
    """

    def __init__(self, history: History, there: Sequence[Presence], faults: Sequence[Span]) -> None:
        self.dead: list[Case] = []
        self.missing: list[Case] = []
        self.excused = {"dead-member-named": 0, "live-member-unnamed": 0}
        self._faults = merged(faults)
        self._doubled: list[tuple[int, _Namer, str]] = []
        answers: dict[_Namer, list[tuple[int, int, int, frozenset[str]]]] = {}
        for call in history.clients.calls:
            done = call.completion
            if call.invoke.f == "named-members" and done is not None and done.type == OK:
                namer = _Namer(group_of(call.invoke.key or ""), call.invoke.extra.get("proxy"))
                answers.setdefault(namer, []).append((call.start, done.time, done.index, frozenset(done.value)))
                twice = sorted({name for name in done.value if done.value.count(name) > 1})
                self._doubled += [(call.start, namer, name) for name in twice]
        self.answers = sum(map(len, answers.values()))
        known = _identified(there, {name for of in answers.values() for *_, names in of for name in names})
        for namer, of in answers.items():
            for presence in known:
                self._judge(namer, sorted(of), presence)

    def doubled(self, case: Case) -> str:
        """A clause on the first answer in the time of a case that named a client twice; empty if none did. Members
        that share the queues by such an answer leave one share to nobody.
        """
        for time, namer, name in self._doubled:
            if case.start <= time <= case.end:
                return f"; {namer} named {name} twice at {clock(time)}"
        return ""

    def _judge(
        self, namer: _Namer, answers: Iterable[tuple[int, int, int, frozenset[str]]], presence: Presence
    ) -> None:
        """Adds the longest wrong stretch of one member at one master or proxy as a case, if it is too long."""
        since: int | None = None
        before: bool | None = None
        worst: Case | None = None
        excused = False
        for start, end, op, names in answers:
            there = _is_there(presence, start, end)
            if there != before:
                since, before = presence.started if there else presence.ended, there
            if there is None:
                continue
            if (presence.client in names) == there:
                since = None
                continue
            if since is None:
                since = start
            fault = self._before(start)
            begin = max(since, fault.end) if fault is not None else since
            if start - begin > _NAMED:
                what = "did not name" if there else "named"
                text = f"{namer} {what} {presence.life} at {clock(start)}, "
                text += (
                    f"which had started at {clock(presence.started or 0)}"
                    if there
                    else f"which had ended at {clock(presence.ended or 0)}"
                )
                worst = Case(begin, end, [op], text, group=namer.group, name="missing" if there else "dead")
            elif start - since > _NAMED:
                excused = True
        if worst is not None:
            (self.missing if worst.name == "missing" else self.dead).append(worst)
        elif excused:
            rule = "dead-member-named" if presence.ended is not None else "live-member-unnamed"
            self.excused[rule] += 1

    def _before(self, time: int) -> Span | None:
        """The last fault that began before a time."""
        at = bisect_right(self._faults, (time, time))
        return self._faults[at - 1] if at else None


def _is_there(presence: Presence, start: int, end: int) -> bool | None:
    """True if a member was there all through an interval (ns), False if it was gone; None: it changed."""
    started, ended = presence.started, presence.ended
    if ended is not None and start >= ended:
        return False
    if started is not None and start >= started and (presence.ending is None or end <= presence.ending):
        return True
    return None


def _identified(there: Sequence[Presence], named: Iterable[str]) -> list[Presence]:
    """The processes with a client id. One that was ended before it could report its id has the id with its instance
    name; an id that no process has belongs to one that was never there.
    """
    known = {presence.client for presence in there}
    by_instance = {f"{p.life.member}-{p.life.number}": p for p in there if p.client is None}
    found = [presence for presence in there if presence.client is not None]
    for name in sorted(set(named) - known):
        presence = by_instance.get(name.partition("@")[2].partition("#")[0])
        if presence is None:
            presence = Presence(Life(name, 0), 0, ended=0)
        presence.client = name
        found.append(presence)
    return found


def _queues(history: History, taken: Takes) -> list[str]:
    """The queues of the run: those that messages were sent to, and those that any member had."""
    sent = {call.invoke.key for call in history.clients.calls if call.invoke.f == "send"}
    had = {key for changes in taken.queues.values() for _, queues in changes for key in queues}
    return sorted(({key for key in sent if key is not None} if had else set()) | had)


def _wrong(there: Sequence[Presence], taken: Takes, keys: Sequence[str], shared: bool) -> Iterator[Wrong]:
    """Yields the times in which a queue had too few or too many owners, as long as any member was there."""
    steps: dict[int, list[tuple[Life, frozenset[str] | None]]] = {}
    for presence in there:
        start, end = presence.started, taken.until if presence.ending is None else presence.ending
        if start is None or start >= end:
            continue
        reports = taken.queues.get(presence.life, [])
        first = [queues for at, queues in reports if at <= start][-1:] or [frozenset[str]()]
        steps.setdefault(start, []).append((presence.life, first[0]))
        for at, queues in reports:
            if start < at < end:
                steps.setdefault(at, []).append((presence.life, queues))
        if end < taken.until:
            steps.setdefault(end, []).append((presence.life, None))
    owned: dict[Life, frozenset[str]] = {}
    open_: dict[str, Wrong] = {}
    for at in sorted(steps):
        for life, reported in steps[at]:
            if reported is None:
                owned.pop(life, None)
            else:
                owned[life] = reported
        for key in keys:
            state, before = _state(key, owned, shared), open_.get(key)
            if before is not None and (state is None or state[0] != before.name):
                yield open_.pop(key)._replace(end=at)
            if state is not None and key not in open_:
                open_[key] = Wrong(state[0], key, at, at, state[1])
    for each in open_.values():
        yield each._replace(end=taken.until)


def _state(key: str, owned: Mapping[Life, frozenset[str]], shared: bool) -> tuple[str, str] | None:
    """The name of what is wrong with a queue, and its owners in words; None: nothing."""
    if not owned:
        return None
    owners = sorted(life for life, queues in owned.items() if key in queues)
    expected = len(owned) if shared else 1
    if len(owners) == expected:
        return None
    words = " and ".join(map(str, owners)) or "no owner"
    return (_UNOWNED, f"{words} of {len(owned)} members") if len(owners) < expected else (_SHARED, words)


def _settled(there: Sequence[Presence], wrong: Sequence[Wrong], until: int) -> Iterator[int]:
    """Yields the time (ns) from each change until all queues had their owners, if no other change came before."""
    spans = sorted(span for presence in there for span in changes_of(presence, until))
    bad = merged(Span(each.start, each.end) for each in wrong)
    for i, span in enumerate(spans):
        following = spans[i + 1].start if i + 1 < len(spans) else until
        around = next((each for each in bad if each.start <= span.end < each.end), None)
        right = span.end if around is None else around.end
        if span.end <= right < following:
            yield right - span.end
