# SPDX-License-Identifier: Apache-2.0
"""RIP-32's pre-online: a master that returns takes over its acting master's data before it is online.

A master is *online* while a majority of the name servers lists it (`checkers.messages.listing`). Commits of a queue
have ever larger offsets, so a broker that must know some of them must answer at least the largest. All times are those
of the machine that runs the clients.

* A master must know the commits that it acknowledged, except in the last seconds before it was killed, in which it may
  not have written its table (`flushConsumerOffsetInterval`, 5 s). If it answers less once it is online again, a slave's
  older table has overwritten its own (`offset-overwritten`).
* It must know the commits of its acting master, except after the transfer, or in the last seconds before it was online
  again. If they are missing, the acting master's table was dropped (`offset-dropped`).
* An acting master must know commits that the master acknowledged longer ago than the interval at which slaves copy them
  (`offset-not-copied`). Younger ones may be missing; `stats` counts these answers as `stale_at_failover`.
* The same holds for the progress of delayed messages and of the timer (`progress-regressed`).
* A master is online soon after it runs (`late-online`), but not before it has taken over the data of each slave that is
  listed (`early-online`, by its log). Until then it serves no client (`served-unlisted`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.base.cases import Case, by_group
from checkers.base.evidence import stamped_lines
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.listing import FOREVER, Listing, Period
from checkers.messages.ops import of_messages
from results.fault_intervals import FaultInterval
from results.figures import SECOND, clock
from results.history import Call, History
from results.op import OK
from results.record import RunRecord
from results.verdict import CheckResult

FLUSHED_NS: Final = 7 * SECOND
"""A broker writes its committed offsets every 5 s, and may be late."""

WRITTEN_NS: Final = 13 * SECOND
"""The same for the progress of delayed messages (`flushDelayOffsetInterval`) and timers: every 10 s."""

HANDED_OVER_NS: Final = 6 * SECOND
"""A commit to an acting master so shortly before its master is online again may not be in the data it hands over."""

NEAR_NS: Final = 3 * SECOND
"""Slaves listed from so long before a master comes online are listed when it looks for them."""

_REVERSE: Final = "Get metadata reverse from "
_ONLINE: Final = ("master preOnline complete", "no other broker online, will start service directly")
"""Lines in a broker's log (`BrokerPreOnlineService`)."""


@dataclass
class _Told:
    """The values that one broker acknowledged or reported, in order of time: `at` (ns), value, and call."""

    at: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def add(self, at: int, value: int, call: Call) -> None:
        self.at.append(at)
        self.values.append(value)
        self.calls.append(call)

    def largest(self, since: int, until: int) -> tuple[int, Call] | None:
        """The largest value that was reported from one time to another, with its call."""
        some = range(bisect_left(self.at, since), bisect_right(self.at, until))
        best = max(some, key=lambda n: self.values[n], default=None)
        return None if best is None else (self.values[best], self.calls[best])


class _Group:
    """One broker group: its master, the periods in which that was online, and the faults that struck the nodes."""

    def __init__(
        self, name: str, nodes: Sequence[str], master: str, periods: Sequence[Period], strikes: Sequence[FaultInterval]
    ) -> None:
        self.name, self.nodes, self.master = name, nodes, master
        self.transfers: dict[str, list[int]] = {}
        """Slave -> the times when the master requested its data, by the master's log."""
        self.online = periods
        self.strikes = {node: [i for i in strikes if node in i.impairs or node in i.nodes] for node in nodes}
        stops = [i for i in self.strikes[master] if master in i.impairs.get(master, ())]
        self.stops = sorted((i.start_ns, FOREVER if i.end_ns is None else i.end_ns) for i in stops)
        """The longest times (from, to; ns) in which the master may have been stopped."""

    def online_at(self, time: int) -> Period | None:
        return next((p for p in self.online if p.start <= time < p.end), None)

    def returned(self, call: Call) -> Period | None:
        """The time since its return in which the master answered a call, all of it; None: it was not online."""
        period = self.online_at(call.start)
        if period is None or period == self.online[0] or (call.end or FOREVER) > period.end:
            return None
        return period

    def struck(self, node: str, start: int, end: int) -> bool:
        """True if a fault was active at a node."""
        return any(i.covers(start, end) for i in self.strikes[node])

    def down(self, node: str, start: int, end: int) -> bool:
        """True if a fault stopped the node."""
        return any(i.covers(start, end) and node in i.impairs.get(node, ()) for i in self.strikes[node])

    def written(self, until: int, flushed: int) -> Iterator[tuple[int, int]]:
        """Yields the times (from, to) whose acknowledgements the master must still know at `until`, despite faults."""
        since = 0
        for start, end in self.stops:
            if start <= until:
                yield since, start - flushed
                since = max(since, end)
        yield since, until

    def acting(self, period: Period, slave: str) -> tuple[int, int] | None:
        """The time (from, to) in which a slave acted for the master before this period, and whose results the master
        must know: until the transfer, if the master's log gives its time.
        """
        at = self.online.index(period)
        start, end = self.online[at - 1].end, period.start - HANDED_OVER_NS
        transfers = [t for t in self.transfers.get(slave, ()) if start <= t <= period.start]
        end = min([end, *transfers[-1:]])
        return None if start >= end or self.down(slave, start, period.start) else (start, end)


class Preonline:
    """Limits in seconds. `online_within_s`: until a master that runs again is listed. `copied_within_s`: the age of a
    slave's copy of its master's offsets.
    """

    name = "preonline"

    def __init__(self, online_within_s: float = 15, copied_within_s: float = 75) -> None:
        self.limit, self.slack = int(online_within_s * SECOND), int(copied_within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `commits`, `queries`, `returns` of masters, `online_s` (the longest time until one was listed after
        it ran again), `stale_at_failover` (answers of an acting master that lack commits which it need not know),
        `direct_unlisted` (requests to a master that was certainly not listed).
        """
        scene, listing = RunTimeline(run), Listing(run.history)
        strikes = scene.fault_intervals
        groups = {
            name: _Group(name, nodes, listing.masters[name], listing.periods(name, listing.masters[name]), strikes)
            for name, nodes in run.deployment.groups.items()
            if name in listing.masters and listing.masters[name] in nodes
        }
        handed_over = {name: _handed_over(run, group) for name, group in groups.items()}
        for name, group in groups.items():
            for at, slave in handed_over[name]:
                if slave is not None:
                    group.transfers.setdefault(slave, []).append(at)
        commits, queries = _commits(run.history), _calls(run.history, "committed")
        own, dropped, stale, missing = self._offsets(groups, commits, queries)
        late, longest = self._late(groups, strikes, run.history)
        direct, tried = _unlisted(groups, listing, run.history)
        found = [
            *by_group(scene, "offset-overwritten", own, "an online master lacks offsets that it had acknowledged"),
            *by_group(scene, "offset-dropped", dropped, "an online master lacks offsets that its acting master took"),
            *by_group(scene, "offset-not-copied", missing, "an acting master lacks offsets that are older than a copy"),
            *by_group(scene, "progress-regressed", _progress(groups, run.history), "an online master lacks progress"),
            *by_group(scene, "late-online", late, "a master that ran was not listed within the limit", self.limit),
            *by_group(
                scene,
                "early-online",
                _early(groups, handed_over, listing),
                "a master was online before all handed over",
            ),
            *by_group(scene, "served-unlisted", direct, "a master that was not listed acknowledged commits"),
        ]
        returns = sum(max(0, len(group.online) - 1) for group in groups.values())
        stats: dict[str, Any] = {
            "commits": sum(len(t.at) for told in commits.values() for t in told.values()),
            "queries": len(queries),
            "returns": returns,
            "online_s": None if longest is None else round(longest / SECOND, 3),
            "stale_at_failover": stale,
            "direct_unlisted": tried,
        }
        unknown = None
        if not groups:
            unknown = "no name server ever listed a master"
        elif not stats["commits"] or not queries:
            unknown = "no offset was committed and queried"
        reason = f"{len(queries):,} queries of committed offsets, {returns} returns of masters"
        return conclude(self.name, run, found, stats, reason, unknown)

    def _offsets(
        self,
        groups: Mapping[str, _Group],
        commits: Mapping[str, Mapping[str, _Told]],
        queries: Sequence[Call],
    ) -> tuple[list[Case], list[Case], int, list[Case]]:
        """Answers that lack the master's own commits; answers that lack those of its acting master; the number of
        answers that lack commits which they may lack; answers of acting masters that lack commits
        which they must have copied.
        """
        own, dropped, missing = [], [], []
        stale = 0
        for call in queries:
            group, key = groups.get(group_of(str(call.invoke.key)) or ""), str(call.invoke.key)
            if group is None or call.completion is None:
                continue
            node, said = str(call.invoke.extra.get("node")), call.completion.value or 0
            told = commits.get(key, {})
            if node == group.master:
                period = group.returned(call)
                if period is None:
                    continue
                times = group.written(call.start, FLUSHED_NS)
                mine = _best(told[node].largest(*some) for some in times) if node in told else None
                if mine is not None and mine[0] > said:
                    own.append(_offset_case(group, call, mine, node, node))
                    continue
                for slave in group.nodes:
                    acted = group.acting(period, slave) if slave != node and slave in told else None
                    theirs = told[slave].largest(*acted) if acted is not None else None
                    if theirs is not None and theirs[0] > said and not _killed(group, period.start, call.start):
                        dropped.append(_offset_case(group, call, theirs, node, slave))
                        break
            elif group.master in told and group.online and group.online_at(call.start) is None:
                gone = group.online[0].end
                if gone > call.start or (len(group.online) > 1 and group.online[1].start < call.start):
                    continue  # what it copied since a return may be older
                away = min([gone, *(i.start_ns for i in group.strikes[group.master] if i.covers(gone, gone))])
                theirs = told[group.master].largest(0, away - self.slack)
                struck = group.struck(node, away - 2 * self.slack, call.start)
                if theirs is not None and theirs[0] > said and not struck:
                    missing.append(_offset_case(group, call, theirs, node, group.master))
                elif (last := told[group.master].largest(0, away)) is not None and last[0] > said:
                    stale += 1
        return own, dropped, stale, missing

    def _late(
        self, groups: Mapping[str, _Group], strikes: Sequence[FaultInterval], history: History
    ) -> tuple[list[Case], int | None]:
        """Masters that were not listed within the limit after the last fault that had struck them."""
        cases: list[Case] = []
        longest: int | None = None
        last = max((op.time for op in history.clients), default=0)
        for group in groups.values():
            for strike in group.strikes[group.master]:
                if strike.end_ns is None:
                    continue
                since = strike.end_ns
                if any(i is not strike and i.covers(since, since) for i in strikes) or group.online_at(since):
                    continue
                later = min([last, *(i.start_ns for i in strikes if i.start_ns >= since)])
                listed = next((p.start for p in group.online if p.start >= since), FOREVER)
                until = min(listed, later)
                if listed <= later:
                    longest = max(longest or 0, listed - since)
                if until - since > self.limit:
                    text = f"{group.master} ran again at {clock(since)}" + (
                        f", and was listed at {clock(listed)}" if listed < FOREVER else ", and was not listed any more"
                    )
                    cases.append(Case(since, until, [], text, group=group.name))
        return cases, longest


def _calls(history: History, f: str) -> list[Call]:
    """The calls of a kind that succeeded, in order of invocation."""
    return [c for c in history.clients.calls if c.invoke.f == f and c.outcome == OK]


def _commits(history: History) -> dict[str, dict[str, _Told]]:
    """Queue -> node -> the commits that it acknowledged."""
    found: dict[str, dict[str, _Told]] = {}
    for call in sorted(_calls(history, "commit"), key=lambda c: c.end or 0):
        assert call.completion is not None
        node = str(call.completion.extra.get("node"))
        told = found.setdefault(str(call.invoke.key), {}).setdefault(node, _Told())
        told.add(call.completion.time, call.invoke.value, call)
    return found


def _best(found: Iterable[tuple[int, Call] | None]) -> tuple[int, Call] | None:
    return max((f for f in found if f is not None), key=lambda f: f[0], default=None)


def _killed(group: _Group, start: int, end: int) -> bool:
    """True if the master was killed between two times: then data that it took over may be lost."""
    return any(start < stop <= end for stop, _ in group.stops)


def _offset_case(group: _Group, query: Call, owed: tuple[int, Call], node: str, by: str) -> Case:
    offset, commit = owed
    said = query.completion.value if query.completion is not None else None
    text = (
        f"{query.invoke.key}: {node} answered {'no offset' if said is None else said} at {clock(query.end or 0)}; {by} "
        f"had acknowledged {offset} at {clock(commit.end or 0)}"
    )
    ops = [commit.invoke.index, query.invoke.index]
    return Case(commit.end or 0, query.end or 0, ops, text, key=query.invoke.key, group=group.name)


def _progress(groups: Mapping[str, _Group], history: History) -> list[Case]:
    """Reports of online masters that are behind the progress they had written, or that of their acting master."""
    told: dict[str, dict[str, _Told]] = {}
    reports = sorted(_calls(history, "progress"), key=lambda c: c.end or 0)
    for call in reports:
        mine = told.setdefault(str(call.invoke.extra.get("node")), {})
        for what, value in _figures(call):
            mine.setdefault(what, _Told()).add(call.end or 0, value, call)
    cases = []
    for group in groups.values():
        for call in reports:
            node = str(call.invoke.extra.get("node"))
            period = group.returned(call) if node == group.master else None
            if period is None or _killed(group, period.start, call.start):
                continue
            for what, value in _figures(call):
                kill = max((start for start, _ in group.stops if start <= period.start), default=0)
                owed = [(node, told[node][what].largest(*some)) for some in group.written(kill, WRITTEN_NS)]
                owed += [
                    (slave, told[slave][what].largest(*times))
                    for slave in group.nodes
                    if slave != node and what in told.get(slave, {}) and (times := group.acting(period, slave))
                ]
                worst = max(((by, o) for by, o in owed if o is not None), key=lambda item: item[1][0], default=None)
                if worst is not None and worst[1][0] > value:
                    by, (more, earlier) = worst
                    text = (
                        f"{what}: {node} reported {value} at {clock(call.end or 0)}, and {by} {more} at "
                        f"{clock(earlier.end or 0)}"
                    )
                    ops = [earlier.invoke.index, call.invoke.index]
                    cases.append(Case(earlier.end or 0, call.end or 0, ops, text, group=group.name))
    return cases


def _figures(call: Call) -> Iterator[tuple[str, int]]:
    """Yields name and value of each figure in a report of progress."""
    said = call.completion.value if call.completion is not None else {}
    for level, offset in (said.get("delay") or {}).items():
        yield f"delay level {level}", offset
    if said.get("timer") is not None:
        yield "timer", said["timer"]


def _unlisted(groups: Mapping[str, _Group], listing: Listing, history: History) -> tuple[list[Case], int]:
    """Direct commits that a master acknowledged while it was certainly not listed; and the number of attempts."""
    cases, tried = [], 0
    for call in history.clients.calls:
        node, group = str(call.invoke.extra.get("node")), groups.get(group_of(str(call.invoke.key)) or "")
        if call.invoke.f != "direct" or group is None or node != group.master or call.end is None:
            continue
        if group.struck(node, call.start, call.end) or not listing.unlisted(group.name, node, call.start, call.end):
            continue
        tried += 1
        if call.outcome == OK:
            text = f"{node} acknowledged a commit to {call.invoke.key} at {clock(call.end)}"
            cases.append(Case(call.start, call.end, [call.invoke.index], text, key=call.invoke.key, group=group.name))
    return cases, tried


def _handed_over(run: RunRecord, group: _Group) -> list[tuple[int, str | None]]:
    """The events in the master's log, in order: (time, the slave whose data it requested), or (time, None) when it
    came online.
    """
    nodes = {address: node for node, address in run.deployment.nodes.items()}
    found: list[tuple[int, str | None]] = []
    for path in run.logs.get(group.master, ()):
        if path.name != "broker.log":
            continue
        for at, line in stamped_lines(path, run.environment):
            if at is not None and _REVERSE in line:
                found.append((at, nodes.get(line.partition(_REVERSE)[2].split(":")[0].strip(), "")))
            elif at is not None and any(text in line for text in _ONLINE):
                found.append((at, None))
    return sorted(found, key=lambda item: item[0])


def _early(
    groups: Mapping[str, _Group], handed_over: Mapping[str, Sequence[tuple[int, str | None]]], listing: Listing
) -> list[Case]:
    """Starts of a master's service, by its log, without the data of a slave that was listed all the time before."""
    cases = []
    for group in groups.values():
        taken: set[str] = set()
        for at, slave in handed_over[group.name]:
            if slave is not None:
                taken.add(slave)
                continue
            listed = listing.listed(group.name, set(group.nodes) - {group.master}, at - NEAR_NS, at)
            if left := sorted(listed - taken):
                text = f"{group.master} came online at {clock(at)} without the data of {', '.join(left)}"
                cases.append(Case(at - NEAR_NS, at, [], text, group=group.name))
            taken = set()
    return cases
