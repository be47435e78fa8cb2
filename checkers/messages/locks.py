# SPDX-License-Identifier: Apache-2.0
"""Locks of queues: leases of clients, judged by the times at which a client certainly held one.

A client certainly holds a queue from the answer of a granted lock until the lease counted from its invocation is over
(60 s, `RebalanceLockManager`), or until the client invokes an unlock, or a renewal that is refused. If two clients
certainly hold a queue at one time, brokers granted it to both, whatever the brokers' clocks show.

* Two holders: one broker that was not struck granted both (`locked-twice`), or two brokers did, or one that was struck
  in between and so forgot its locks (`locked-by-two`). Without lockInStrictMode the second is legal: brokers do not
  share their locks.
* A grant without a majority: while a fault certainly separated the broker from a majority of its group
  (`minority-grant`); legal without lockInStrictMode.
* An end of service: no client is granted a queue for longer than the limit, although clients request it, no fault is
  active, and no client that sends no request can hold it (`lock-stuck`).
* Order: a message is consumed first after a later one of its queue was (`consumed-out-of-order`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from checkers.base.cases import Case, anomalies
from checkers.base.impairment import FOREVER, certain_times, hears
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.ops import of_messages
from results.fault_intervals import FaultInterval
from results.figures import SECOND, clock
from results.history import Call, History
from results.op import FAIL, INFO, OK
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

LEASE_S: Final = 60.0
"""`rocketmq.broker.rebalance.lockMaxLiveTime`, in every version."""

_ATTEMPTS: Final = 3
"""Refusals that make an end of service."""


class Held(NamedTuple):
    """A client certainly held a queue from `start` to `end` (ns), by a grant of `node`."""

    client: str
    node: str
    start: int
    end: int
    grant: Call


@dataclass
class _Queue:
    """The calls about one queue, each in order of invocation."""

    locks: list[Call] = field(default_factory=list)
    unlocks: list[Call] = field(default_factory=list)
    reads: list[Call] = field(default_factory=list)

    @property
    def clients(self) -> list[str]:
        return sorted({client_of(call) for call in self.locks})


class Locks:
    """`limit_s`: the time in which a client must be granted a queue, once no fault is active. `lease_s`: the duration
    of a grant.
    """

    name = "locks"

    def __init__(self, limit_s: float = 10, lease_s: float = LEASE_S) -> None:
        self.limit, self.lease = int(limit_s * SECOND), int(lease_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `granted`, `refused`, `unlocked`, `holders` (changes of the holder)."""
        queues = _collect(run.history)
        scene = RunTimeline(run)
        certain = {key: held(queue.locks, queue.unlocks, self.lease) for key, queue in queues.items()}
        strikes = certain_times(run.history, scene.fault_intervals)
        same, others = _overlaps(certain, scene.fault_intervals)
        minority = _minority(queues, run.deployment.groups, strikes)
        stuck = self._stuck(queues, scene.fault_intervals)
        found = [
            *_of_queues(scene, "locked-twice", same, "were held by two clients at one time, by grants of one broker"),
            *_of_queues(
                scene, "locked-by-two", others, "were held by two clients at one time, by grants of two brokers"
            ),
            *_of_queues(scene, "minority-grant", minority, "were granted by a broker without a majority of its group"),
            *_of_queues(scene, "lock-stuck", stuck, "were granted to no client for longer than the limit"),
            *_of_queues(scene, "consumed-out-of-order", _disorder(queues), "were consumed out of order"),
        ]
        granted = sum(len(each) for each in certain.values())
        changes = sum(a.client != b.client for each in certain.values() for a, b in pairwise(each))
        stats: dict[str, Any] = {
            "granted": granted,
            "refused": sum(_refused(call) for queue in queues.values() for call in queue.locks),
            "unlocked": sum(call.outcome == OK for queue in queues.values() for call in queue.unlocks),
            "holders": changes,
        }
        unknown = None
        if not granted:
            unknown = "no lock was granted"
        elif not changes:
            unknown = "no queue ever had a second holder"
        reason = f"{granted:,} grants of {len(queues):,} queues, {changes:,} changes of the holder"
        return conclude(self.name, run, found, stats, reason, unknown)

    def _stuck(self, queues: Mapping[str, _Queue], faults: Sequence[FaultInterval]) -> list[Case]:
        """The longest time of each queue without a grant, if it is longer than the limit."""
        cases = []
        calm = _calm(faults)
        for key, queue in queues.items():
            starts = [call.start for call in queue.locks]
            worst: Case | None = None
            for start, end in self._waits(queue):
                for left, right in calm:
                    begin, stop = max(start, left), min(end, right)
                    tries = queue.locks[bisect_left(starts, begin) : bisect_left(starts, stop)]
                    refused = [c for c in tries if c.outcome == FAIL and (c.end or 0) <= stop]
                    if len(refused) < _ATTEMPTS:
                        continue
                    granted = stop == end and end < FOREVER
                    since, until = refused[0].start, end if granted else refused[-1].end or refused[-1].start
                    if until - since > self.limit and (worst is None or until - since > worst.took):
                        text = (
                            f"{key}: {len(refused)} locks by {_names(refused)} were refused by {_places(refused)} from "
                            f"{clock(since)} to {clock(until)}"
                        )
                        ops = [c.invoke.index for c in (*refused[:3], *refused[-3:])]
                        worst = Case(since, until, ops, text, key=key, limit=self.limit)
            if worst is not None:
                cases.append(worst)
        return cases

    def _waits(self, queue: _Queue) -> Iterator[tuple[int, int]]:
        """Yields the times between the answers of two grants in which no client that sends no request may hold it."""
        grants = [c for c in queue.locks if c.outcome == OK and c.end is not None]
        edges = [0, *(c.end or 0 for c in grants)]
        mine = {client: [c for c in queue.locks if client_of(c) == client] for client in queue.clients}
        unlocks = {client: [c for c in queue.unlocks if client_of(c) == client] for client in queue.clients}
        for start, end in zip(edges, [*(c.end or 0 for c in grants), FOREVER], strict=True):
            if end - start <= self.limit:
                continue
            begin = max([start, *(self._may_hold_until(mine[c], unlocks[c], start) for c in mine)])
            if begin < end:
                yield begin, end

    def _may_hold_until(self, mine: Sequence[Call], unlocks: Sequence[Call], start: int) -> int:
        """The time (ns) until which a client may hold a queue, as of `start`, without an op that would show it."""
        at = bisect_left(mine, start, key=lambda c: c.start)
        last = next((c for c in reversed(mine[:at]) if c.outcome in (OK, INFO)), None)
        if last is None:
            return start
        since = last.end or last.start
        asks = mine[at].start if at < len(mine) else FOREVER  # then a grant, or a refusal, shows it
        freed = min((c.end or 0 for c in unlocks if c.outcome == OK and c.start >= since), default=FOREVER)
        return min(asks, freed, since + self.lease)


def held(locks: Iterable[Call], unlocks: Iterable[Call], lease: int) -> list[Held]:
    """The times of certain possession, in order of their beginning; each ends with the lease or a release."""
    ends: dict[str, list[int]] = {}
    granted = []
    for call in locks:
        if call.outcome == OK and call.end is not None:
            granted.append(call)
        elif _refused(call):
            ends.setdefault(client_of(call), []).append(call.start)
    for call in unlocks:
        if call.outcome != FAIL:
            ends.setdefault(client_of(call), []).append(call.start)
    for times in ends.values():
        times.sort()
    found = []
    for call in granted:
        assert call.end is not None
        releases = ends.get(client_of(call), [])
        at = bisect_right(releases, call.start)
        end = min([call.start + lease, *releases[at : at + 1]])
        if call.end < end:
            found.append(Held(client_of(call), node_of(call), call.end, end, call))
    return sorted(found, key=lambda h: (h.start, h.client))


def client_of(call: Call) -> str:
    return str(call.invoke.extra.get("client"))


def node_of(call: Call) -> str:
    return str((call.completion.extra if call.completion is not None else {}).get("node"))


def _refused(call: Call) -> bool:
    """True if the broker answered that the client does not hold the queue."""
    return call.outcome == FAIL and call.completion is not None and bool(call.completion.extra.get("refused"))


def _collect(history: History) -> dict[str, _Queue]:
    found: dict[str, _Queue] = {}
    for call in history.clients.calls:
        f = call.invoke.f
        if call.invoke.key is None or f not in ("lock", "unlock", "consume"):
            continue
        queue = found.setdefault(call.invoke.key, _Queue())
        {"lock": queue.locks, "unlock": queue.unlocks, "consume": queue.reads}[f].append(call)
    return {key: queue for key, queue in found.items() if queue.locks}


def _overlaps(certain: Mapping[str, Sequence[Held]], faults: Sequence[FaultInterval]) -> tuple[list[Case], list[Case]]:
    """Queues with two holders at one time: by one broker that was not struck; by two, or one that was struck."""
    same: list[Case] = []
    others: list[Case] = []
    for key, each in certain.items():
        latest: dict[str, Held] = {}
        for now in each:
            for client, before in latest.items():
                if client == now.client or before.end <= now.start:
                    continue
                text = (
                    f"{key}: {client} by {before.node} from {clock(before.start)} to {clock(before.end)}, {now.client} "
                    f"by {now.node} at {clock(now.start)}"
                )
                ops = [before.grant.invoke.index, now.grant.invoke.index]
                case = Case(before.start, now.start, ops, text, key=key, about=sorted({before.node, now.node}))
                struck = any(
                    now.node in {*i.nodes, *i.impairs} and i.covers(before.grant.start, now.start) for i in faults
                )
                (others if struck or before.node != now.node else same).append(case)
            if now.client not in latest or latest[now.client].end < now.end:
                latest[now.client] = now
    return same, others


def _minority(
    queues: Mapping[str, _Queue],
    groups: Mapping[str, Sequence[str]],
    strikes: Sequence[tuple[int, int, FaultInterval]],
) -> list[Case]:
    cases = []
    for key, queue in queues.items():
        members = groups.get(group_of(key) or "", ())
        for call in queue.locks:
            if call.outcome != OK or call.end is None or node_of(call) not in members:
                continue
            active = [i for start, end, i in strikes if start <= call.start and call.end <= end]
            node = node_of(call)
            with_it = [m for m in members if m == node or hears(node, m, active)]
            if 2 * len(with_it) <= len(members):
                text = (
                    f"{key}: to {client_of(call)} by {node} at {clock(call.end)}, which heard {len(with_it) - 1} of "
                    f"the {len(members) - 1} others"
                )
                cases.append(Case(call.start, call.end, [call.invoke.index], text, key=key, about=[node]))
    return cases


def _disorder(queues: Mapping[str, _Queue]) -> list[Case]:
    """Messages that were consumed for the first time after a later one."""
    cases = []
    for key, queue in queues.items():
        calls = [c for c in queue.reads if c.outcome == OK and c.completion is not None and c.completion.value]
        ended = sorted(calls, key=lambda c: c.end or 0)
        seen: set[int] = set()
        top, at = -1, 0
        by: Call | None = None
        for call in calls:
            while at < len(ended) and (ended[at].end or 0) < call.start:
                offsets = [offset for offset, _ in ended[at].completion.value]  # type: ignore[union-attr]
                seen.update(offsets)
                if max(offsets) > top:
                    top, by = max(offsets), ended[at]
                at += 1
            assert call.completion is not None
            late = [offset for offset, _ in call.completion.value if offset < top and offset not in seen]
            if late and by is not None:
                text = (
                    f"{key}: offset {late[0]} by {client_of(call)} at {clock(call.end or 0)}, after {top} by "
                    f"{client_of(by)} at {clock(by.end or 0)}"
                )
                ops = [by.invoke.index, call.invoke.index]
                cases.append(Case(by.end or 0, call.end or 0, ops, text, key=key))
    return cases


def _calm(faults: Sequence[FaultInterval]) -> list[tuple[int, int]]:
    """The times in which no fault is active."""
    free, since = [], 0
    for interval in sorted(faults, key=lambda i: i.start_ns):
        if interval.start_ns > since:
            free.append((since, interval.start_ns))
        since = max(since, FOREVER if interval.end_ns is None else interval.end_ns)
    return [*free, (since, FOREVER)]


def _names(calls: Sequence[Call]) -> str:
    return ", ".join(sorted({client_of(c) for c in calls}))


def _places(calls: Sequence[Call]) -> str:
    return ", ".join(sorted({node_of(c) for c in calls}))


def _of_queues(scene: RunTimeline, name: str, cases: Sequence[Case], what: str) -> Iterator[Anomaly]:
    """`anomalies` with the brokers that granted the locks, if the cases are about grants."""
    nodes = sorted({node for case in cases for node in case.about or ()})
    more = {"granted_by": nodes} if nodes else {}
    return anomalies(scene, name, cases, f"{{queues}} queues {what} ({{n}} cases)", more=more)
