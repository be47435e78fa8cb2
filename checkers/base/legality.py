# SPDX-License-Identifier: Apache-2.0
"""The anomalies that a configuration permits: they are shown with their count and do not make a run `invalid`.

The topology states them (`infra.systems.api.Topology.permits`: name of an anomaly -> permission), and the run stores
them in its environment under `permits`. A permission that needs a fault of some kind (servers that do not sync may lose
messages in a power failure) is under `permits_after`: effect -> anomaly -> permission. Checkers read them there, so a
stored run is checked by the rules of its own time.

A permission has a limit if the servers' settings give one (`results.permission.Permission.within_s`): a broker that
syncs every 10 s may lose with its power the messages that it acknowledged in the last 10 s, and nothing older.
`Permit.allows` applies the limit to the time of one acknowledgement. Time in which the node could not work (another
fault had stopped it, or its machine had no processor for it) does not count towards the limit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from checkers.base.impairment import certain_times
from checkers.base.starvation import short_times
from results.errors import HistoryError
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND
from results.history import History
from results.op import OK
from results.permission import Permission, permissions_of
from results.record import RunRecord
from results.strikes import EffectKind
from results.verdict import Anomaly, CheckResult, Excuse, Verdict

LEARNED_S: Final = 15.0
"""The longest time, after the end of the fault between them, until a replaced master learns of its successor.
Heartbeats to the controllers go out every second here, and a lost connection is retried within seconds (seen: 1 to
6 s)."""

FLUSHED_S: Final = 15.5
"""The limit for ASYNC_FLUSH with RocketMQ's default settings, for runs that were stored without one."""

_HINDERS: Final[Collection[EffectKind]] = ("down", "slow", "disk-full", "disk-dead")
"""Effects under which a server cannot sync or copy in time, so that its losses are not limited."""

_TAKES_UNSYNCED: Final[Collection[EffectKind]] = frozenset[EffectKind](("unsynced-lost",))

_FOREVER: Final = 2**62
_START_NS: Final = 5 * SECOND
"""A master that is seen so early was master before the run."""


@dataclass(frozen=True)
class Window:
    """A time (ns) in which an acknowledged operation may lose its effect.

    start  `fault` less the limit. `fault`: the earliest time when the fault struck. end: the end of the permission.
    nodes  the nodes that the fault struck; None: the permission is not tied to a node.
    """

    start: int
    fault: int
    end: int
    nodes: frozenset[str] | None = None


@dataclass(frozen=True)
class Permit:
    """The configuration's permission for an anomaly.

    why      its reason.
    nodes    the nodes struck by the fault that it needs; None: it needs no fault.
    windows  the times in which it holds; None: it has no limit in time.
    within_s the limit of which the windows are made.
    """

    why: str
    nodes: frozenset[str] | None = None
    windows: Sequence[Window] | None = None
    within_s: float | None = None

    def covers(self, anomaly: Anomaly) -> bool:
        """True if it holds for a whole anomaly: one of a node (`details["node"]`), or of some (`nodes`), only if one of
        them was struck. A permission with a limit holds for single cases (`allows`, `divided`), which the checker
        knows, and never for an anomaly because of its name.
        """
        if self.windows is not None:
            return False
        named = anomaly.details.get("node"), anomaly.details.get("nodes")
        nodes = [named[0]] if isinstance(named[0], str) else named[1]
        return self.nodes is None or not isinstance(nodes, list | tuple | dict) or not self.nodes.isdisjoint(nodes)

    def allows(self, times: npt.NDArray[np.int64], nodes: Collection[str] | None = None) -> npt.NDArray[np.bool_]:
        """A mask over the times (ns) of acknowledgements: those whose effect may be gone.

        nodes  the replicas that may have held it; None, or a permission that is not tied to a node: any.
        """
        if self.windows is None:
            return np.ones(len(times), dtype=bool)
        found: npt.NDArray[np.bool_] = np.zeros(len(times), dtype=bool)
        for w in self.windows:
            if nodes is None or w.nodes is None or not w.nodes.isdisjoint(nodes):
                found |= (w.start <= times) & (times <= w.end)
        return found

    def nearest_s(self, times: Iterable[int]) -> float | None:
        """The longest time, in seconds, from one of these acknowledgements to the fault that excuses it; 0.0 for those
        of the time of the fault. None if the permission has no limit.
        """
        if self.windows is None:
            return None
        ages = [
            min((max(0, w.fault - time) for w in self.windows if w.start <= time <= w.end), default=None)
            for time in times
        ]
        return max((age / SECOND for age in ages if age is not None), default=None)


def permits(run: RunRecord) -> Mapping[str, Permit]:
    """Name of an anomaly -> the run's permission for it, after the faults that struck."""
    found: dict[str, Permit] = {}
    faults = fault_intervals(run.history)
    for kind, named in _noted(run, "permits_after").items():
        strikes = [fault for fault in faults if any(e.kind == kind for e in fault.effects)]
        struck = frozenset(e.node for fault in strikes for e in fault.effects if e.kind == kind)
        for name, permission in named.items() if strikes else ():
            windows = None
            if permission.within_s is not None:
                windows = [_after(run, faults, fault, kind, permission) for fault in strikes]
            found[name] = Permit(permission.why, struck, windows, permission.within_s)
    for name, permission in _noted(run, "permits").get("", {}).items():
        windows = None if permission.within_s is None else _changes(run, faults, permission.within_s)
        found[name] = Permit(permission.why, None, windows, permission.within_s)
    return found


def permission(run: RunRecord, *names: str) -> Permit | None:
    """The run's permission for the first of these anomalies that has one."""
    allowed = permits(run)
    return next((allowed[name] for name in names if name in allowed), None)


Item = TypeVar("Item")


@dataclass(frozen=True)
class Part(Generic[Item]):
    """Cases of one kind that are all permitted (`legal`, the reason), or all not (None). details: the entries that
    `excuses` reads of a permitted anomaly.
    """

    cases: Sequence[Item]
    legal: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def divided(
    permit: Permit | None, cases: Iterable[Item], times: Callable[[Item], Sequence[int]]
) -> Iterator[Part[Item]]:
    """Yields the cases that a permission does not cover, then those that it does; a part without cases is left out.

    times  the times (ns) of the steps that a case has lost: the acknowledgement, and later steps of the servers on
           their own. One of them in the permission's time is enough.
    """
    wrong: list[Item] = []
    legal: list[Item] = []
    nearest: list[float] = []
    for case in cases:
        at = np.array(times(case), dtype=np.int64)
        allowed = permit is not None and bool(permit.allows(at).any())
        (legal if allowed else wrong).append(case)
        if allowed and permit is not None and permit.windows is not None:
            nearest.append(min(age for t in at if (age := permit.nearest_s([int(t)])) is not None))
    if wrong:
        yield Part(wrong)
    if legal and permit is not None:
        details = {} if permit.windows is None else {"bound_s": permit.within_s, "nearest_s": round(max(nearest), 3)}
        yield Part(legal, permit.why, details)


def _after(
    run: RunRecord, faults: Sequence[FaultInterval], fault: FaultInterval, kind: str, permission: Permission
) -> Window:
    """The time in which a fault of this kind may undo acknowledged operations."""
    nodes = frozenset(e.node for e in fault.effects if e.kind == kind)
    busy = [
        (other.start_ns, _FOREVER if other.end_ns is None else other.end_ns)
        for other in faults
        if other.id != fault.id and any(e.node in nodes and e.kind in _HINDERS for e in other.effects)
    ]
    busy += short_times(run)
    struck = _struck(run, fault, nodes)
    start = _back(struck, int((permission.within_s or 0) * SECOND), busy)
    lives = {node: _life(faults, node, fault) for node in nodes}
    if kind in _TAKES_UNSYNCED and all(durable for _, durable in lives.values()):
        # Data that was there after the last such fault was read from the disk: this fault cannot remove it.
        start = max(start, min((life for life, _ in lives.values()), default=start))
    if permission.bytes is not None and not any(begin < struck and end > start for begin, end in busy):
        written = [_written(run, node, life, struck, permission) for node, (life, _) in lives.items()]
        start = max(start, min((at for at in written if at is not None), default=start))
    return Window(start, struck, _FOREVER if fault.end_ns is None else fault.end_ns, nodes)


def _struck(run: RunRecord, fault: FaultInterval, nodes: Collection[str]) -> int:
    """The earliest time (ns) when a fault struck the first of these nodes: an injection takes seconds on a busy
    machine, and as long as a node acknowledges something, it has not been struck.
    """
    done = next((done for done, _, other in certain_times(run.history, [fault]) if other is fault), fault.start_ns)
    alive = _alive(run.history)
    last = []
    for node in nodes:
        times = alive.get(node, [])
        at = bisect_right(times, done)
        last.append(max(fault.start_ns, times[at - 1] if at else fault.start_ns))
    return min(last, default=fault.start_ns)


def _alive(history: History) -> Mapping[str, list[int]]:
    """Node -> the times (ns) at which it had acknowledged something, in order."""
    found = _acknowledged.get(history)
    if found is None:
        found = _acknowledged[history] = {}
        for op in history.clients:
            if op.type == OK and isinstance(op.extra.get("node"), str):
                found.setdefault(op.extra["node"], []).append(op.time)
        for times in found.values():
            times.sort()
    return found


_acknowledged: Final[WeakKeyDictionary[History, dict[str, list[int]]]] = WeakKeyDictionary()


def _life(faults: Sequence[FaultInterval], node: str, fault: FaultInterval) -> tuple[int, bool]:
    """The heal (ns; 0: none) of the last fault before this one at a node, and True if that fault removed everything
    that was not on the disk.
    """
    before = [
        (f.end_ns, any(e.node == node and e.kind in _TAKES_UNSYNCED for e in f.effects))
        for f in faults
        if f.id != fault.id and f.end_ns is not None and any(e.node == node for e in f.effects)
    ]
    return max((found for found in before if found[0] <= fault.start_ns), default=(0, False))


def _written(run: RunRecord, node: str, since: int, time: int, permission: Permission) -> int | None:
    """The time (ns) until which a node's log, in the life that began at `since`, is safe: enough bytes followed it,
    early enough before `time`. None: unknown.
    """
    of_life = (o for o in run.observations if o.node == node and since <= o.time <= time)
    seen = [(o.time, o.end) for o in of_life if o.end is not None]
    early = [end for at, end in seen if at <= time - int((permission.bytes_s or 0) * SECOND)]
    if not early or permission.bytes is None:
        return None
    return max((at for at, end in seen if end + permission.bytes <= early[-1]), default=None)


def _back(time: int, by: int, busy: Sequence[tuple[int, int]]) -> int:
    """The time `by` ns before `time`, not counting the times that are `busy`."""
    for start, end in sorted(busy, reverse=True):
        if start < time and end > time - by:
            by += min(end, time) - start
    return time - by


def _changes(run: RunRecord, faults: Sequence[FaultInterval], within_s: float) -> list[Window]:
    """The times around changes of master, of any node, and around the faults in which, or soon after which, one was
    seen: a master that is cut off acknowledges until it learns of its successor.
    """
    within, learned = int(within_s * SECOND), int(LEARNED_S * SECOND)
    changed: list[int] = []
    leaders: dict[tuple[object, ...], tuple[str, int | None]] = {}
    for seen in run.observations:
        if seen.role == "leader":
            group = (seen.extra.get("broker_name"),)
            before = leaders.get(group)
            if before is not None and before != (seen.node, seen.term) and seen.time > _START_NS:
                changed.append(seen.time)
            leaders[group] = (seen.node, seen.term)
    ends = [(f.start_ns, _FOREVER if f.end_ns is None else f.end_ns + learned) for f in faults]
    found = [Window(start - within, start, end) for start, end in ends if any(start <= at <= end for at in changed)]
    return found + [Window(at - within - learned, at - learned, at + learned) for at in changed]


def _noted(run: RunRecord, name: str) -> Mapping[str, Mapping[str, Permission]]:
    """`permits` (under the empty kind) or `permits_after` of the environment: kind of effect -> anomaly -> permission.

    Raises HistoryError if the environment holds another kind of value.
    """
    try:
        by_kind = permissions_of(run.environment, name)
    except ValueError as problem:
        raise HistoryError((run.path or Path()) / "environment.json", None, str(problem)) from None
    return {kind: {anomaly: _dated(kind, p) for anomaly, p in named.items()} for kind, named in by_kind.items()}


def _dated(kind: str, permission: Permission) -> Permission:
    """The permission with the limit of the default settings, for a run stored before permissions had limits."""
    if kind == "unsynced-lost" and permission.within_s is None:
        return replace(permission, within_s=FLUSHED_S)
    return permission


def count(anomaly: Anomaly) -> int:
    """The number of cases that an anomaly stands for: `details["count"]`, or one."""
    number = anomaly.details.get("count", 1)
    return number if isinstance(number, int) else 1


def counted(anomalies: Sequence[Anomaly]) -> str:
    """`289 lost, 2 dirty-read`, in order of first mention."""
    total: Counter[str] = Counter()
    for anomaly in anomalies:
        total[anomaly.name] += count(anomaly)
    return ", ".join(f"{n:,} {name}" for name, n in total.items())


def conclude(
    checker: str,
    run: RunRecord,
    found: Sequence[Anomaly],
    stats: Mapping[str, Any],
    valid: str,
    unknown: str | None = None,
    *,
    invalid: str | None = None,
    excuses: Sequence[Excuse] = (),
) -> CheckResult:
    """The result of a judge that found these anomalies: invalid if one of them is not permitted. Judges that count
    cases end here.

    valid    the reason of a valid result, or what holds all the same; empty: nothing. unknown: the reason why the run
             proves nothing, or None.
    invalid  the reason of an invalid result; None: the numbers of cases, and `valid`.
    """
    marked = _marked(found, permits(run))
    wrong = [a for a in marked if a.legal is None]
    legal = _describe(marked)
    if wrong:
        reason = _joined(counted(wrong), valid) if invalid is None else invalid
        found = [*wrong, *legal_ones(marked)]
        return CheckResult(checker, Verdict.INVALID, _joined(reason, legal), found, stats, excuses=excuses)
    verdict, reason = (Verdict.VALID, valid) if unknown is None else (Verdict.UNKNOWN, unknown)
    return CheckResult(checker, verdict, _joined(reason, legal), marked, stats, excuses=excuses)


def summary_of(anomalies: Sequence[Anomaly]) -> str | None:
    """The summary of the first of these anomalies, as the reason of an invalid result; None without anomalies."""
    return anomalies[0].summary if anomalies else None


def applied(result: CheckResult, run: RunRecord) -> CheckResult:
    """The result of a checker that made it without `conclude`, after the permissions: `invalid` for permitted anomalies
    alone becomes valid.
    """
    marked = _marked(result.anomalies, permits(run))
    if marked == list(result.anomalies):
        return result
    if result.verdict != Verdict.INVALID or any(a.legal is None for a in marked):
        return replace(result, anomalies=marked)
    return replace(result, verdict=Verdict.VALID, anomalies=marked, reason=_joined(result.reason, _describe(marked)))


def legal_ones(anomalies: Sequence[Anomaly]) -> list[Anomaly]:
    """The anomalies that are permitted."""
    return [a for a in anomalies if a.legal is not None]


def _marked(found: Sequence[Anomaly], allowed: Mapping[str, Permit]) -> list[Anomaly]:
    return [
        replace(a, legal=allowed[a.name].why)
        if a.legal is None and a.name in allowed and allowed[a.name].covers(a)
        else a
        for a in found
    ]


def excuses(result: CheckResult, run: RunRecord) -> list[Excuse]:
    """The checker's own excuses, and one for each anomaly that is permitted or doubtful, with the number of cases."""
    found = list(result.excuses)
    allowed = permits(run) if result.anomalies else {}
    by: dict[tuple[str, str], list[Anomaly]] = {}
    for a in result.anomalies:
        if a.legal is not None or a.doubt is not None:
            by.setdefault((a.name, str(a.legal or a.doubt)), []).append(a)
    for (name, why), some in by.items():
        limit = allowed[name].within_s if name in allowed and allowed[name].why == why else None
        near = [a.details["nearest_s"] for a in some if isinstance(a.details.get("nearest_s"), int | float)]
        limits = [a.details["bound_s"] for a in some if isinstance(a.details.get("bound_s"), int | float)]
        used = sum(count(a) for a in some)
        found.append(Excuse(name, used, why, max(limits, default=limit), max(near, default=None)))
    return found


def _describe(marked: Sequence[Anomaly]) -> str:
    legal = legal_ones(marked)
    if not legal:
        return ""
    whys = "; ".join(dict.fromkeys(str(a.legal) for a in legal))
    return f"legal here: {counted(legal)} ({whys})"


def _joined(*parts: str) -> str:
    """Joins the parts of a reason that are not empty."""
    return "; ".join(part for part in parts if part)
