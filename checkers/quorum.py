"""Quorum write and automatic downgrade (RIP-34): how many replicas hold a message that was acknowledged.

What is judged of an acknowledgement (code 0), by the rule of its cluster (`checkers.quorum_rules`):

* Where nobody lowers the number, `inSyncReplicas` replicas hold it; with `enableAutoInSyncReplicas` as many of these as
  were alive and in sync, and `minInSyncReplicas` at least; with `allAckInSyncStateSet` every member of the controllers'
  SyncStateSet; in a Raft log a majority.
* A look at all replicas (`held`) shows which of them certainly do not have it (`too-few-hold`). A replica that nobody
  could look at may have it.
* No replica that was down, or cut off from the master, all through a send can have confirmed it: if too few others are
  left, the acknowledgement is wrong (`acked-below-quorum`, `acked-below-minimum`).

What is judged of the downgrade and its end, while nothing changes (`_Calm`), with limits from the last change on:

* with enough replicas left, sends are acknowledged again (`downgrade-late`), and do not wait in vain for those that are
  gone (`late-timeout`);
* with too few, they are refused, not stored and answered with a time-out (`not-refused`);
* with all back, the master counts all of them again (`replica-not-counted`).

That a refused message is never seen is the business of `aborted-read`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from checkers.impairment import FOREVER, certain_times, hears
from checkers.legality import settled
from checkers.log.context import RunTimeline, group_of
from checkers.message_ops import of_messages
from checkers.quorum_rules import Setting, rule_of
from results.fault_intervals import FaultInterval
from results.figures import SECOND, clock
from results.history import Call, History
from results.op import INFO, OK
from results.record import Observation, RunRecord
from results.strikes import LASTING
from results.verdict import Anomaly, CheckResult

LOOK_BACK_NS: Final = 3 * SECOND
"""A master goes by a list of the living that it asks for every second, and that name servers correct every second."""

AROUND_NS: Final = 2 * SECOND
"""The controllers are asked every second."""

_TIMED_OUT: Final = 12
_REFUSED: Final = 1
_NOT_ENOUGH: Final = "in-sync replicas"
_ENOUGH_CASES: Final = 3
_LISTED: Final = 50


@dataclass
class _Answers:
    """Answers of one server, in order of their ends."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def around(self, start: int, end: int) -> list[Any]:
        """The values that hold somewhere between two times: from the last answer before to the first one after."""
        first = max(0, bisect_right(self.ends, start) - 1)
        # Several clients ask, so the answers are not in the order of the questions.
        last = next((n for n in range(first, len(self.starts)) if self.starts[n] >= end), len(self.starts))
        return self.values[first : last + 1]


@dataclass(frozen=True)
class _Calm:
    """A time without a change: no fault begins or ends. limit: how long after `since` the servers may need to adapt.

    active  the faults that are certainly in force. since: when it began, or the last replica that returned answered.
    """

    start: int
    end: int
    active: Sequence[FaultInterval]
    since: int
    limit: int

    @property
    def plain(self) -> bool:
        """Whether all that is wrong is that nodes are down, or cut off: who is slow may, or may not, be in sync."""
        return all(e.kind in ("down", "cut-off") for i in self.active for e in i.effects)


class _Case(NamedTuple):
    """One violation. node: the master. limit: how long it may last, of an anomaly of time."""

    node: str
    start: int
    end: int
    ops: Sequence[int]
    text: str
    limit: int | None = None


class QuorumAck:
    """`detected_within_s`: how soon a master must notice that a replica is gone. `returns_within_s`: how soon one that
    answers again must be counted again.
    """

    name = "quorum"

    def __init__(self, detected_within_s: float = 6, returns_within_s: float = 15) -> None:
        self.detected, self.returns = int(detected_within_s * SECOND), int(returns_within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `sends` by what came of them, `looks` at the replicas, `by_file` (replicas whose file was read),
        `unseen` (replicas at which nobody could look), `copies` (number of replicas that certainly held a message ->
        looks), `survives` (the machines whose loss the weakest of these messages outlives), `downgrades` (after each
        change with enough replicas left, the time until the first acknowledgement, s).
        """
        case = _Run(run, self.detected, self.returns)
        scene = RunTimeline(run)
        below = list(case.below())
        found = [
            *_anomalies(scene, "too-few-hold", list(case.too_few()), "acknowledgements were held by too few replicas"),
            *_anomalies(
                scene,
                "acked-below-quorum",
                [c for c, least in below if not least],
                "sends were acknowledged although fewer replicas than inSyncReplicas could have the message",
            ),
            *_anomalies(
                scene,
                "acked-below-minimum",
                [c for c, least in below if least],
                "sends were acknowledged although fewer replicas than minInSyncReplicas could have the message",
            ),
            *_anomalies(
                scene, "downgrade-late", case.late_downgrades, "times without an acknowledgement were too long"
            ),
            *_anomalies(scene, "late-timeout", case.late_timeouts, "sends waited for replicas that were long gone"),
            *_anomalies(
                scene, "not-refused", case.not_refused, "sends were stored although too few replicas were left"
            ),
            *_anomalies(scene, "replica-not-counted", list(case.not_counted()), "replicas were not counted again"),
        ]
        unknown = None
        if not any(c.outcome == OK for c in case.sends):
            unknown = "no send was acknowledged"
        elif not case.looks:
            unknown = "nobody looked at the replicas"
        reason = f"{len(case.looks):,} looks at the replicas of {len(case.sends):,} sends"
        return settled(self.name, run, found, case.stats(), reason, unknown)


class _Run:
    """What the ops of a run say. `late_downgrades`, `late_timeouts` and `not_refused` are the cases of times without a
    change.
    """

    def __init__(self, run: RunRecord, detected: int, returns: int) -> None:
        self.run, self.detected, self.returns = run, detected, returns
        self.rule = rule_of(run.deployment.traits)
        self.faults = RunTimeline(run).fault_intervals
        self.certain = certain_times(run.history, self.faults)
        self.sends = [c for c in run.history.clients.calls if c.invoke.f == "send"]
        self.by_id = {c.invoke.value: c for c in self.sends}
        self.looks = [c for c in run.history.clients.calls if c.invoke.f == "held" and c.outcome == OK]
        self.settings: dict[str, _Answers] = {}
        self.counted: dict[str, _Answers] = {}
        self.members: dict[str, dict[str, _Answers]] = {}
        self.sets = [o for o in run.observations if isinstance(o.extra.get("in_sync"), list)]
        self._set_times = [o.time for o in self.sets]
        self._collect(run.history)
        self.downgrades: list[float] = []
        self.late_downgrades: list[_Case] = []
        self.late_timeouts: list[_Case] = []
        self.not_refused: list[_Case] = []
        if not self.rule.majority:
            self._judge_calm()

    def _collect(self, history: History) -> None:
        for call in sorted(history.clients.calls, key=lambda c: c.end or FOREVER):
            if call.outcome != OK or call.completion is None or call.end is None:
                continue
            extra, value = call.invoke.extra, call.completion.value
            match call.invoke.f:
                case "settings":
                    told = self.settings.setdefault(str(extra["node"]), _Answers())
                    value = Setting.of(value)
                case "in-sync":
                    told = self.counted.setdefault(str(extra["node"]), _Answers())
                case "members":
                    servers = self.members.setdefault(str(call.invoke.key), {})
                    told = servers.setdefault(str(extra["name_server"]), _Answers())
                    value = len(value)
                case _:
                    continue
            told.starts.append(call.start)
            told.ends.append(call.end)
            told.values.append(value)

    # What a configuration asks for.

    def nodes(self, call: Call) -> Sequence[str]:
        """The replicas of the group that a message belongs to."""
        return self.run.deployment.groups.get(group_of(str(call.invoke.key)) or "", ())

    def needs(self, node: str, replicas: int, alive: int, start: int, end: int) -> tuple[int, Setting]:
        """The least number that the settings of a master ask for between two times."""
        told = self.settings.get(node)
        some = told.around(start, end) if told is not None else []
        return min(((s.needs(self.rule, replicas, alive), s) for s in some or [Setting()]), key=lambda item: item[0])

    def in_sync(self, node: str, group: str, start: int, end: int) -> int:
        """The smallest number of replicas in sync that anybody told around a time; 1: nobody told."""
        counted = self.counted.get(node)
        own = [v["in_sync"] for v in counted.around(start, end) if v["master"]] if counted is not None else []
        listed = [n for told in self.members.get(group, {}).values() for n in told.around(start, end)]
        return min([*own, *listed]) if own and listed else 1

    def in_set(self, start: int, end: int) -> set[str]:
        """Who was in every SyncStateSet that a controller told around a time."""
        first = max(0, bisect_right(self._set_times, start - AROUND_NS) - 1)
        last = bisect_left(self._set_times, end + AROUND_NS)
        some = self.sets[first : last + 1]
        if not some or some[-1].time < end or self._jumps(some):
            return set()
        return set.intersection(*({str(n) for n in o.extra["in_sync"]} for o in some))

    @staticmethod
    def _jumps(some: Sequence[Observation]) -> bool:
        """Whether there was a set among these that nobody told."""
        epochs = sorted({(o.extra.get("master_epoch") or 0, o.extra.get("in_sync_epoch") or 0) for o in some})
        return any(b[1] - a[1] > 1 for a, b in pairwise(epochs))

    # An acknowledgement, and who holds the message.

    def too_few(self) -> Iterator[_Case]:
        for look in self.looks:
            assert look.completion is not None
            send = self.by_id.get(look.completion.value["id"])
            if send is None or send.outcome != OK or send.completion is None or send.end is None:
                continue
            held = self._held(look)
            nodes, master = list(held), _node(send)
            lacking = [n for n, has in held.items() if has is False]
            if not lacking:
                continue
            group = group_of(str(send.invoke.key)) or ""
            alive = self.in_sync(master, group, send.start - LOOK_BACK_NS, send.end)
            need, setting = self.needs(master, len(nodes), alive, send.start, send.end)
            text = (
                f"message {send.invoke.value}, acknowledged by {master} at {clock(send.end)}, was not in the log of "
                f"{', '.join(lacking)} at {clock(look.end or look.start)}"
            )
            ops = [send.invoke.index, look.invoke.index]
            when = send.start, look.end or look.start
            if len(nodes) - len(lacking) < need:
                text += f"; {need} of {len(nodes)} replicas must have it"
                yield _Case(master, *when, ops, text)
            elif self.rule.by_set and setting.all_ack and (owed := self.in_set(send.start, send.end) & {*lacking}):
                yield _Case(
                    master, *when, ops, f"{text}; {', '.join(sorted(owed))} is in the controllers' SyncStateSet"
                )

    def _held(self, look: Call) -> Mapping[str, bool | None]:
        """What a look showed, without the replicas whose disk a fault had changed."""
        assert look.completion is not None
        struck = {e.node for i in self.faults if i.start_ns <= (look.end or 0) for e in i.effects if e.kind in LASTING}
        held: Mapping[str, bool | None] = look.completion.value["held"]
        return {node: None if node in struck else has for node, has in held.items()}

    def below(self) -> Iterator[tuple[_Case, bool]]:
        """Acknowledgements that too few replicas can have confirmed; whether it is the minimum that counts."""
        for send in self.sends:
            nodes = self.nodes(send)
            if send.outcome != OK or send.end is None or not nodes:
                continue
            active = [i for start, end, i in self.certain if start <= send.start and send.end <= end]
            if not active:
                continue
            master = _node(send)
            out = [n for n in nodes if n != master and not hears(master, n, active)]
            need, setting = self.needs(master, len(nodes), 1, send.start, send.end)
            if len(nodes) - len(out) >= need:
                continue
            least = (self.rule.auto and setting.auto) or (self.rule.by_set and setting.all_ack)
            text = (
                f"message {send.invoke.value} by {master} at {clock(send.end)}, while {', '.join(out)} could not hear "
                f"it; {need} of {len(nodes)} replicas must have it"
            )
            yield _Case(master, send.start, send.end, [send.invoke.index], text), least

    # Times without a change.

    def calm(self) -> Iterator[_Calm]:
        """The times without a change, with their limits. A replica that was down counts from its first answer on."""
        edges = sorted({t for start, end, i in self.certain for t in (i.start_ns, start, end, i.end_ns or FOREVER)})
        last = max((op.time for op in self.run.history.clients), default=0)
        gone: set[str] = set()
        for start, end in zip([0, *edges], [*edges, last], strict=True):
            moving = [i for i in self.faults if i.covers(start + 1, end - 1)]
            active = [i for a, b, i in self.certain if a <= start and end <= b]
            if end - start < SECOND or len(moving) != len(active):
                gone |= {n for i in moving for n in (*i.impairs, *i.nodes)}
                continue
            out = {n for i in active for n in i.impairs}
            back = gone - out
            firsts = [self._first_answer(n, start) for n in back if n in self.counted]
            gone = out
            limit = self.returns if back else self.detected + 2 * self._timeout(start, end)
            yield _Calm(start, end, active, max([start, *firsts]), limit)

    def _first_answer(self, node: str, after: int) -> int:
        """When a broker first answered after a time."""
        told = self.counted[node]
        at = bisect_left(told.starts, after)
        return told.ends[at] if at < len(told.ends) else FOREVER

    def _timeout(self, start: int, end: int) -> int:
        some = [s.timeout_ns for told in self.settings.values() for s in told.around(start, end)]
        return max(some, default=2 * SECOND)

    def _judge_calm(self) -> None:
        ordered = sorted((c for c in self.sends if c.end is not None), key=lambda c: c.start)
        starts = [c.start for c in ordered]
        for calm in self.calm():
            if not calm.plain:
                continue
            mine = [c for c in ordered[bisect_left(starts, calm.start) : bisect_left(starts, calm.end)] if _node(c)]
            mine = [c for c in mine if (c.end or 0) <= calm.end]
            if not mine:
                continue
            master = _node(mine[-1])
            nodes = self.nodes(mine[-1])
            left = len([n for n in nodes if n == master or hears(master, n, calm.active)])
            alone = master in {n for i in calm.active for n in i.impairs}
            need, _ = self.needs(master, len(nodes), 1, calm.start, calm.end)
            if left >= need and not (alone and self.rule.by_set):
                self._enough(calm, master, mine)
            elif left < need and self.rule.refuses:
                late = [c for c in mine if c.start >= calm.since + calm.limit and _timed_out(c)]
                if late:
                    text = f"{len(late)} sends were answered with FLUSH_SLAVE_TIMEOUT by {master}, with {left} replicas"
                    self.not_refused.append(_case(master, calm, late, f"{text} left and {need} needed"))

    def _enough(self, calm: _Calm, master: str, mine: Sequence[Call]) -> None:
        acks = [c for c in mine if c.outcome == OK and (c.end or 0) >= calm.since]
        first = min((c.end or 0 for c in acks), default=FOREVER)
        vain = [c for c in mine if c.start >= calm.since and (_timed_out(c) or _refused(c)) and (c.end or 0) <= first]
        if vain and first < FOREVER and calm.active:
            self.downgrades.append(round((first - calm.since) / SECOND, 1))
        until = min(first, max((c.end or 0 for c in vain), default=0))
        if len(vain) >= _ENOUGH_CASES and until - calm.since > calm.limit:
            text = f"{master} acknowledged nothing from {clock(calm.since)} to {clock(until)}"
            ops = [c.invoke.index for c in (*vain[:3], *vain[-3:])]
            self.late_downgrades.append(_Case(master, calm.since, until, ops, text, calm.limit))
        late = [c for c in mine if c.start >= calm.since + calm.limit and _timed_out(c)]
        if late and acks and self.rule.refuses:
            text = f"{len(late)} sends were answered with FLUSH_SLAVE_TIMEOUT by {master}"
            self.late_timeouts.append(_case(master, calm, late, text))

    def not_counted(self) -> Iterator[_Case]:
        """With everybody up, fewer replicas in sync than the settings ask for, in every report after the limit."""
        if self.rule.majority or self.rule.by_set:
            return
        for calm in self.calm():
            if calm.active:
                continue
            begin = calm.since + calm.limit
            for group, nodes in self.run.deployment.groups.items():
                for node in nodes:
                    yield from self._short(node, group, calm, begin)

    def _short(self, node: str, group: str, calm: _Calm, begin: int) -> Iterator[_Case]:
        told = self.counted.get(node, _Answers())
        some = [
            (s, e, v)
            for s, e, v in zip(told.starts, told.ends, told.values, strict=True)
            if s >= begin and e <= calm.end and v["master"]
        ]
        if len(some) < _ENOUGH_CASES:
            return
        wanted = min((s.in_sync for s in self.settings.get(node, _Answers()).around(begin, calm.end)), default=1)
        if wanted > len(self.run.deployment.groups[group]):
            return
        listed = [n for t in self.members.get(group, {}).values() for n in t.around(begin, calm.end)]
        most = min(max(v["in_sync"] for _, _, v in some), max(listed) if self.rule.auto and listed else FOREVER)
        if most < wanted:
            text = f"{node} counted {most} replicas in sync from {clock(begin)} to {clock(some[-1][1])}, of {wanted}"
            yield _Case(node, calm.since, some[-1][1], [], text, calm.limit)

    def stats(self) -> dict[str, Any]:
        """See `QuorumAck.check`."""
        kinds = Counter(_kind(c) for c in self.sends)
        copies: Counter[int] = Counter()
        unseen = by_file = 0
        for look in self.looks:
            assert look.completion is not None
            held = self._held(look)
            send = self.by_id.get(look.completion.value["id"])
            unseen += sum(has is None for has in held.values())
            by_file += len(look.completion.extra.get("by_file", ()))
            if send is not None and None not in held.values():
                copies[sum(has is True for has in held.values())] += 1
        return {
            "sends": dict(sorted(kinds.items())),
            "looks": len(self.looks),
            "by_file": by_file,
            "unseen": unseen,
            "copies": {str(n): copies[n] for n in sorted(copies)},
            "survives": min(copies) - 1 if copies else None,
            "downgrades": self.downgrades,
        }


def _node(call: Call) -> str:
    """Who answered a send; "": nobody."""
    return str(call.completion.extra.get("node", "")) if call.completion is not None else ""


def _timed_out(call: Call) -> bool:
    return call.outcome == INFO and call.completion is not None and call.completion.extra.get("code") == _TIMED_OUT


def _refused(call: Call) -> bool:
    """Whether too few replicas were the reason."""
    done = call.completion
    return done is not None and done.extra.get("code") == _REFUSED and _NOT_ENOUGH in (done.error or "")


def _kind(call: Call) -> str:
    """What came of a send, in a word."""
    if _timed_out(call):
        return "timed out for replicas"
    return "refused for replicas" if _refused(call) else str(call.outcome)


def _case(master: str, calm: _Calm, late: Sequence[Call], text: str) -> _Case:
    end = max(c.end or 0 for c in late)
    ops = [c.invoke.index for c in (*late[:3], *late[-3:])]
    when = f", the first of them sent {(late[0].start - calm.since) / SECOND:.1f} s after the last change"
    return _Case(master, calm.since, end, ops, text + when, calm.limit)


def _anomalies(scene: RunTimeline, name: str, cases: Sequence[_Case], what: str) -> Iterable[Anomaly]:
    """One anomaly for all cases of a kind; the first, or the longest, is told in full."""
    if not cases:
        return
    first = max(cases, key=lambda c: c.end - c.start) if cases[0].limit is not None else cases[0]
    yield Anomaly(
        name,
        f"{len(cases):,} {what}: {first.text}.{scene.describe(first.start, first.end)}",
        None,
        sorted({i for c in (first, *cases[:5]) for i in c.ops}),
        (first.start, first.end),
        {
            "count": len(cases),
            "master": first.node,
            "first": [c.text for c in cases[:_LISTED]],
            **scene.details(first.start, first.end),
        },
        limit_s=None if first.limit is None else first.limit / SECOND,
    )
