# SPDX-License-Identifier: Apache-2.0
"""Routes: the answers of name servers about each broker group while brokers come and go, and reads along these routes.

Name servers do not communicate with one another. A name server's list is known for certain between two equal answers.
Limits start again when a fault begins or ends.

* All name servers list the same smallest broker id of a group, soon after a change (`routes-disagree`): soon after a
  broker is gone, or within a period of registration after it is back. A name server that forgot a broker learns of it
  only by a registration, and one may fail on a connection from before the fault. Two name servers that hear different
  brokers because of a fault are not compared, nor is one with an empty list: it was restarted.
* The smallest member of a group stands under "0" in the routes of its topics (`wrong-route`): with an acting master
  this is a slave, and its queues must not be writable (`acting-writable`).
* Reads along the routes go on (`reads-interrupted`), except while all nodes of the group or most name servers are down.
* Each slave learns of a new smallest id, by its log (`change-not-learned`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, Final, NamedTuple

from checkers.base.cases import Case, by_group
from checkers.base.evidence import stamped_lines
from checkers.base.impairment import hears
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.listing import FOREVER, MASTER, Listing
from checkers.messages.ops import of_messages
from results.fault_intervals import FaultInterval
from results.figures import SECOND, clock
from results.history import Call, History
from results.op import OK
from results.record import RunRecord
from results.strikes import CLIENTS
from results.verdict import CheckResult

NEAR_NS: Final = 3 * SECOND
"""Two answers that are farther apart prove nothing about the time between."""

_WRITE: Final = 2
_CHANGED: Final = re.compile(r"Min broker changed, old: .*, new (\d+)-")
"""`BrokerController.onMinBrokerChange`."""


class _Said(NamedTuple):
    """A name server certainly listed `node` with the smallest id `number`, from `start` to `end`."""

    number: int
    node: str
    start: int
    end: int


class Routes:
    """`detected_s`: the time in which name servers notice that a broker is gone. `registers_s`: the period at which
    brokers register. Agreement may take a second longer, reads five seconds.
    """

    name = "routes"

    def __init__(self, detected_s: float = 5, registers_s: float = 10) -> None:
        self.agree, self.read = int((detected_s + 1) * SECOND), int((detected_s + 5) * SECOND)
        self.returned = max(self.agree, int((registers_s + 1) * SECOND))

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `answers` about members, `routes`, `reads`, `changes` of the smallest id of a group, `acting`
        (routes that were judged while a slave was the smallest), `longest_gap_s` without a read, `learned`: lines of
        slaves' logs.
        """
        scene, listing = RunTimeline(run), Listing(run.history)
        faults = scene.fault_intervals
        groups = {g: nodes for g, nodes in run.deployment.groups.items() if listing.servers(g)}
        said = {g: {s: _said(listing.told(g, s)) for s in listing.servers(g)} for g in groups}
        acting = run.deployment.traits.acting_master
        wrong, writable, judged = _routed(run.history, listing, acting)
        gaps, longest = self._gaps(run.history, groups, listing, faults)
        changes = {g: _changes(servers, self.agree) for g, servers in said.items()}
        unlearned, learned = self._learned(run, groups, changes, faults) if acting else ([], 0)
        disagree = [d for g, servers in said.items() for d in self._disagreements(g, groups[g], servers, faults)]
        gone, back = ([case for returned, case in disagree if returned == which] for which in (False, True))
        found = [
            *by_group(scene, "routes-disagree", gone, "name servers did not agree that a broker is gone", self.agree),
            *by_group(
                scene, "routes-disagree", back, "name servers did not agree that a broker is back", self.returned
            ),
            *by_group(scene, "wrong-route", wrong, "a route did not name the smallest member first"),
            *by_group(scene, "acting-writable", writable, "a route let clients write to an acting master"),
            *by_group(scene, "reads-interrupted", gaps, "no read along the route was answered", self.read),
            *by_group(scene, "change-not-learned", unlearned, "slaves did not learn of a new smallest id"),
        ]
        stats: dict[str, Any] = {
            "answers": listing.answers,
            "routes": sum(c.invoke.f == "route" and c.outcome == OK for c in run.history.clients.calls),
            "reads": sum(c.invoke.f == "routed-read" and c.outcome == OK for c in run.history.clients.calls),
            "changes": sum(map(len, changes.values())),
            "acting": judged,
            "longest_gap_s": round(longest / SECOND, 3),
            "learned": learned,
        }
        unknown = (
            None if said and stats["routes"] and stats["reads"] else "no route was requested, or no read followed one"
        )
        reason = f"{stats['answers']:,} answers of name servers, {stats['changes']} changes of the smallest id"
        return conclude(self.name, run, found, stats, reason, unknown)

    def _disagreements(
        self,
        group: str,
        nodes: Sequence[str],
        servers: Mapping[str, Sequence[_Said]],
        faults: Sequence[FaultInterval],
    ) -> Iterator[tuple[bool, Case]]:
        """Yields for each two name servers the longest time without a change of faults in which they named different
        brokers; True with it if a broker had come back.
        """
        healed = sorted(i.end_ns for i in faults if i.end_ns is not None)
        for (a, ours), (b, theirs) in combinations(sorted(servers.items()), 2):
            worst: dict[bool, tuple[int, int, _Said, _Said]] = {}
            for one in ours:
                for other in theirs:
                    if one.node == other.node or one.start >= other.end or other.start >= one.end:
                        continue
                    for start, end in _quiet(max(one.start, other.start), min(one.end, other.end), faults):
                        if not _comparable(a, b, nodes, _active(faults, start, end)):
                            continue
                        since = self._return(start, min(one, other), healed)
                        returned = since is not None
                        late = end - start > self.agree if since is None else end - since > self.returned
                        longest = worst[returned][1] - worst[returned][0] if returned in worst else 0
                        if late and end - start > longest:
                            worst[returned] = start, end, one, other
            for returned, (start, end, one, other) in worst.items():
                text = (
                    f"group {group}: the name server of {a} listed {one.node} first, that of {b} {other.node}, from "
                    f"{clock(start)} to {clock(end)}"
                )
                yield returned, Case(start, end, [], text, group=group)

    def _return(self, start: int, smaller: _Said, healed: Sequence[int]) -> int | None:
        """The time (ns) since which the broker with the smaller id may be coming back: `start`, if it was listed again
        then; or the last heal, if that is not longer ago than a return takes. None: it is not coming back.
        """
        if smaller.start == start:
            return start
        return next((t for t in reversed(healed) if start - self.returned < t <= start), None)

    def _gaps(
        self,
        history: History,
        groups: Mapping[str, Sequence[str]],
        listing: Listing,
        faults: Sequence[FaultInterval],
    ) -> tuple[list[Case], int]:
        """The longest time of each group without a read, in which no fault came or went, and a broker could serve."""
        reads: dict[str, list[Call]] = {}
        for call in history.clients.calls:
            if call.invoke.f == "routed-read":
                reads.setdefault(group_of(str(call.invoke.key)) or "", []).append(call)
        cases, longest = [], 0
        for group, calls in reads.items():
            ends = sorted(c.end for c in calls if c.outcome == OK and c.end is not None)
            starts = [c.start for c in calls]
            worst: Case | None = None
            for a, b in pairwise([starts[0], *ends, max(c.end or c.start for c in calls)]):
                if b - a <= SECOND:
                    continue
                for start, end in _quiet(a, b, faults):
                    down = _down(_active(faults, start, end))
                    servers = listing.servers(group)
                    tried = calls[bisect_left(starts, start) : bisect_right(starts, end)]
                    nobody = down.issuperset(groups.get(group, ())) or 2 * len(down & set(servers)) >= len(servers)
                    if nobody or not tried:
                        continue
                    longest = max(longest, end - start)
                    if end - start > self.read and (worst is None or end - start > worst.end - worst.start):
                        ops = [c.invoke.index for c in (*tried[:3], *tried[-3:])]
                        text = f"group {group}: {len(tried)} reads from {clock(start)} to {clock(end)} failed"
                        worst = Case(start, end, ops, text, group=group)
            if worst is not None:
                cases.append(worst)
        return cases, longest

    def _learned(
        self,
        run: RunRecord,
        groups: Mapping[str, Sequence[str]],
        changes: Mapping[str, Sequence[_Said]],
        faults: Sequence[FaultInterval],
    ) -> tuple[list[Case], int]:
        """Changes that lasted and are missing in the log of a slave; and the number of such lines in the logs."""
        cases, lines = [], 0
        for group, nodes in groups.items():
            for node in nodes:
                paths = [p for p in run.logs.get(node, ()) if p.name == "broker.log"]
                told = sorted(_lines(run, paths)) if paths else []
                lines += len(told)
                for change in changes[group]:
                    lasted = change.end - change.start > 2 * self.agree
                    begun, done = change.start - self.agree, change.start + self.agree
                    struck = any(_hits(i, node) and i.covers(begun, done) for i in faults)
                    if not paths or not lasted or struck or (node == change.node and change.number == int(MASTER)):
                        continue
                    if not any(begun <= at <= done and number == change.number for at, number in told):
                        text = (
                            f"group {group}: {change.node} was listed first at {clock(change.start)}, and the log of "
                            f"{node} does not report it"
                        )
                        cases.append(Case(change.start, change.start, [], text, group=group))
        return cases, lines


def _said(told: Sequence[tuple[int, int, Mapping[str, str]]]) -> list[_Said]:
    """The smallest member that one name server certainly listed, from its answers in order; equal ones are merged."""
    found: list[_Said] = []
    before: tuple[int, str] | None = None
    for start, end, members in told:
        if not members:
            before = None
            continue
        number = min(map(int, members))
        now = number, members[str(number)]
        if before == now and start - found[-1].end <= NEAR_NS:
            found[-1] = found[-1]._replace(end=max(found[-1].end, start))
        else:
            found.append(_Said(*now, end, end))
        before = now
    return found


def _changes(servers: Mapping[str, Sequence[_Said]], agree: int) -> list[_Said]:
    """Changes of the smallest id, from the name server that listed the most: one that is cut off sees the fewest.

    A name server that was restarted learns of the brokers one after the other. A member that is new to it alone, and
    that another one listed already (`agree`: ns before), is no change.
    """
    told = {
        server: [now for before, now in pairwise(some) if now.node != before.node] for server, some in servers.items()
    }
    real = [
        [
            now
            for now in changes
            if not any(
                one.node == now.node and one.start <= now.start - agree <= one.end
                for other, some in servers.items()
                if other != server
                for one in some
            )
        ]
        for server, changes in told.items()
    ]
    return max(real, key=len, default=[])


def _routed(history: History, listing: Listing, acting: bool) -> tuple[list[Case], list[Case], int]:
    """Routes that name another broker than the smallest member first; routes that let clients write to a slave; and
    the number of routes that were judged while a slave was the smallest.
    """
    told = {(g, s): listing.told(g, s) for g in listing.groups for s in listing.servers(g)}
    ends = {place: [end for _, end, _ in some] for place, some in told.items()}
    wrong, writable, judged = [], [], 0
    for call in history.clients.calls:
        if call.invoke.f != "route" or call.outcome != OK or call.end is None or call.completion is None:
            continue
        group, server = str(call.invoke.key), str(call.invoke.extra.get("name_server"))
        members = _around(told.get((group, server), []), ends.get((group, server), []), call.start, call.end)
        if not members:
            continue
        number = min(map(int, members))
        if number and not acting:
            continue
        judged += number != 0
        route, node = call.completion.value, members[str(number)]
        first = route["addresses"].get(MASTER)
        what = (
            f"group {group}: the name server of {server} listed {node} with id {number}; its route at {clock(call.end)}"
        )
        if first != node:
            case = Case(
                call.start, call.end, [call.invoke.index], f"{what} had {first or 'no broker'} under 0", group=group
            )
            wrong.append(case)
        elif number and (route["permission"] or 0) & _WRITE:
            case = Case(
                call.start, call.end, [call.invoke.index], f"{what} had permission {route['permission']}", group=group
            )
            writable.append(case)
    return wrong, writable, judged


def _around(
    told: Sequence[tuple[int, int, Mapping[str, str]]], ends: Sequence[int], start: int, end: int
) -> Mapping[str, str] | None:
    """The members in the last answer before a time and in the first one after another, if they are the same."""
    at = bisect_right(ends, start)
    after = next((t for t in told[at:] if t[0] >= end), None)
    if not at or after is None:
        return None
    before = told[at - 1]
    near = start - before[1] <= NEAR_NS and after[0] - end <= NEAR_NS
    return before[2] if near and before[2] == after[2] else None


def _lines(run: RunRecord, paths: Sequence[Any]) -> Iterator[tuple[int, int]]:
    for path in paths:
        for at, line in stamped_lines(path, run.environment):
            if at is not None and (found := _CHANGED.search(line)):
                yield at, int(found[1])


def _hits(interval: FaultInterval, node: str) -> bool:
    return node in interval.nodes or node in interval.impairs


def _active(faults: Sequence[FaultInterval], start: int, end: int) -> list[FaultInterval]:
    return [i for i in faults if i.covers(start + 1, end - 1)]


def _down(active: Sequence[FaultInterval]) -> set[str]:
    """The nodes that are stopped, or that clients do not reach."""
    return {node for i in active for node, peers in i.impairs.items() if node in peers or CLIENTS in peers}


def _comparable(a: str, b: str, nodes: Sequence[str], active: Sequence[FaultInterval]) -> bool:
    """True if faults let two name servers hear the same brokers of a group, and slow down none of them."""
    slow = any(node in i.nodes and node not in i.impairs for i in active for node in (a, b, *nodes))
    down = _down(active)
    heard = [{n for n in nodes if n not in down and (n == s or hears(s, n, active))} for s in (a, b)]
    return not slow and a not in down and b not in down and heard[0] == heard[1]


def _quiet(start: int, end: int, faults: Sequence[FaultInterval]) -> list[tuple[int, int]]:
    """The parts of a time in which no fault comes or goes."""
    edges = sorted({t for i in faults for t in (i.start_ns, i.end_ns or FOREVER) if start < t < end})
    return list(pairwise([start, *edges, end]))
