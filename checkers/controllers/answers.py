# SPDX-License-Identifier: Apache-2.0
"""The controllers as one object for each broker group: acknowledged changes are there, and no answer is stale.

The version of a group's metadata is its two epochs, `(master_epoch, epoch)`: an election adds to both (or, without a
new master, to the first), a change of the SyncStateSet to the second, and each replaces exactly the version before it.
So the order of all changes is known, and needs no search: a history is linearizable if

* two answers with the same epoch have the same content: the master, the SyncStateSet (`epoch-reused`);
* no two changes were acknowledged with the same epoch (`epoch-reused`);
* every answer has at least the version of each operation that had ended before (`stale-metadata`);
* no operation ended with a version before the change that made it was invoked; and each SyncStateSet is one that a
  client requested with its epoch, or the one that an election returned (`unasked-metadata`; an election without an
  answer may have kept a part of an earlier set).

Data that is missing permanently, not only in an old answer, is `lost-metadata`: the last answer of the run about the
group lacks the version, an acknowledged id or the whole group, or has a group that was removed (`forget`).

Ids: one id has one owner (`id-given-twice`), and the next id is above all acknowledged ones. An address of an id is the
last one that was registered (`stale-metadata`; all addresses are different). In the final phase nothing changes: each
leader then returns the same as the leaders before it (`controllers-differ`).

After each restart of the leader, another controller leads and answers (`leader-serves-nothing`).

One controller leads in a term (`two-leaders-in-a-term`), by the logs. Snapshots are counted from the logs, too; one
that a controller cannot write or load is `snapshot-failed`.

Operations: see `workloads.controller`. A group that was removed, and that an application for id 1 may have created
again, is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from checkers.base.cases import Case, by_reason
from checkers.base.legality import conclude
from checkers.base.schema import explained
from checkers.controllers.groups import (
    ABSENT,
    ANSWERS,
    GroupHistory,
    Seen,
    Version,
    asked,
    ended,
    is_over,
    read,
    seen,
    told,
    told_by,
)
from checkers.controllers.logs import ControllerLogs, read_controller_logs
from checkers.controllers.ops import problems
from checkers.servers.terms import two_leaders
from results.figures import SECOND, clock, many
from results.history import Call
from results.op import INFO, INVOKE, OK, Op
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_LISTED: Final = 20

SERVES_NS: Final = 10 * SECOND
"""The time in which a new leader has applied its log, and answers."""


class Controllers:
    """`snapshots`: True if a run without a snapshot proves nothing (`unknown`)."""

    name = "controllers"

    def __init__(self, snapshots: bool = False) -> None:
        self.snapshots = snapshots

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `groups`, `changes` acknowledged, `answers`, `longest_version` (epochs of one group), `led_at_end`
        (controllers that answered as leaders in the final phase), and counts from the logs (`ControllerLogs`).
        """
        with explained(run.history, problems):
            return self._check(run)

    def _check(self, run: RunRecord) -> CheckResult:
        groups = read(run)
        cases = [case for group in groups.values() if group.judged for case in judge_group(group)]
        logs = read_controller_logs(run)
        found = [*_anomalies(cases), *_mute(run), *_of_logs(run, logs)]
        final = [c for g in groups.values() for c in g.answers if c.invoke.extra.get("phase") == "final"]
        led = sorted({str(told_by(c)) for c in final})
        versions = [s.version for g in groups.values() for s in seen(g)]
        stats: dict[str, Any] = {
            "groups": len(groups),
            "unjudged_groups": sum(not g.judged for g in groups.values()),
            "changes": sum(c.outcome == OK for g in groups.values() for c in g.changes),
            "unknown_changes": sum(c.outcome != OK for g in groups.values() for c in g.changes),
            "answers": sum(len(g.answers) for g in groups.values()),
            "highest_epoch": max((max(v) for v in versions), default=0),
            "led_at_end": led,
            **logs.stats(),
        }
        reason = (
            f"{stats['changes']:,} changes and {stats['answers']:,} answers about {many(len(groups), 'group')}; "
            f"{stats['elections']} elections of controllers, {stats['snapshots_saved']} snapshots taken, "
            f"{stats['snapshots_loaded']} loaded, {stats['snapshots_installed']} of them sent by a leader"
        )
        unknown = None
        if not final:
            unknown = "no controller answered in the final phase"
        elif self.snapshots and not logs.saved:
            unknown = "no controller took a snapshot"
        return conclude(self.name, run, found, stats, reason, unknown)


def judge_group(group: GroupHistory) -> Iterator[Case]:
    """All violations in one group."""
    forgets = group.of("forget")
    gone = min((c.start for c in forgets), default=None)
    surely = min((c.end for c in forgets if c.outcome == OK and c.end is not None), default=None)
    before = [s for s in seen(group) if gone is None or s.end < gone]
    yield from _reused(group, before)
    yield from _old(group, before)
    yield from _unasked(group, before)
    yield from _ids(group, gone)
    yield from _addresses(group, gone)
    yield from _returned(group, surely)
    yield from _differing(group)


def _reused(group: GroupHistory, some: Sequence[Seen]) -> Iterator[Case]:
    """Yields epochs with two contents, or made by two changes."""
    masters: dict[int, tuple[Any, Seen]] = {}
    sets: dict[int, tuple[Any, Seen]] = {}
    makers: dict[tuple[str, int], Seen] = {}
    for one in some:
        if one.version == ABSENT:
            continue
        value, (master_epoch, epoch) = told(one.call), one.version
        in_sync = sorted(value["in_sync"]) if "in_sync" in value else [value["master"]]
        for kind, number, content, table in (
            ("master", master_epoch, value["master"], masters),
            ("SyncStateSet", epoch, in_sync, sets),
        ):
            first = table.setdefault(number, (content, one))
            if first[0] != content:
                text = (
                    f"epoch {number} of the {kind} was {first[0]} {_at(first[1].call)}, and {content} {_at(one.call)}"
                )
                yield Case(first[1].start, one.end, [first[1].op, one.op], text, key=group.name, name="epoch-reused")
        for kind, number in (("SyncStateSet", epoch), *([("master", master_epoch)] if _is(one, "elect") else [])):
            if one.made:
                maker = makers.setdefault((kind, number), one)
                if maker is not one:
                    text = (
                        f"epoch {number} of the {kind} was given to two changes: {maker.call.invoke.f} "
                        f"{_at(maker.call)}, {one.call.invoke.f} {_at(one.call)}"
                    )
                    yield Case(maker.start, one.end, [maker.op, one.op], text, key=group.name, name="epoch-reused")


def _old(group: GroupHistory, some: Sequence[Seen]) -> Iterator[Case]:
    """Yields answers older than a version known before their request, and changes that replaced such an old version.

    If all later answers are older, too, the version is lost.
    """
    started = sorted(some, key=lambda s: s.start)
    newest: Seen | None = None
    at = 0
    lost: dict[int, Seen] = {}
    for one in started:
        while at < len(some) and some[at].end < one.start:
            newest = some[at] if newest is None or _above(some[at].version, newest.version) else newest
            at += 1
        if newest is None:
            continue
        base = _base(one) if one.made else one.version
        # A change makes its version out of the one before: that one may be as new as the newest known one.
        if not _covers(base, newest.version):
            later = [s for s in started if s.start >= one.start]
            name = "stale-metadata"
            if not any(_covers(s.version, newest.version) for s in later):
                if newest.op in lost:
                    continue
                lost[newest.op] = newest
                name = "lost-metadata"
            what = "changed" if one.made else "was"
            text = (
                f"{one.call.invoke.f} {_at(one.call)}: the version {what} {_of(base)}; it had been "
                f"{_of(newest.version)} before ({newest.call.invoke.f} {_at(newest.call)})"
            )
            yield Case(newest.start, one.end, [newest.op, one.op], text, key=group.name, name=name)


def _unasked(group: GroupHistory, some: Sequence[Seen]) -> Iterator[Case]:
    """Yields SyncStateSets that no client requested, and versions that were seen before the change that made them."""
    wanted: dict[int, list[tuple[list[int], int]]] = {}
    for call in group.of("alter"):
        value = asked(call)
        if "in_sync" in value:
            wanted.setdefault(int(value["expected"]) + 1, []).append((sorted(value["in_sync"]), call.start))
        else:  # An interrupted attempt, which did not record its request.
            return
    for call in group.of("elect", acknowledged=True):
        value = told(call)
        if "in_sync" in value:
            wanted.setdefault(int(value["epoch"]), []).append((sorted(value["in_sync"]), call.start))
    silent = [call for call in group.of("elect") if call.outcome == INFO]
    told_of: set[int] = set()
    for one in some:
        if one.version == ABSENT or one.made or one.version[1] in told_of:
            continue
        in_sync, epoch = sorted(told(one.call)["in_sync"]), one.version[1]
        if len(in_sync) <= 1:
            continue
        kept = any(call.start < one.end for call in silent) and any(
            set(in_sync) <= set(w) for before, sets in wanted.items() if before < epoch for w, _ in sets
        )
        if not kept and not any(w == in_sync and start < one.end for w, start in wanted.get(epoch, [])):
            told_of.add(epoch)
            text = f"{_at(one.call)} the SyncStateSet was {in_sync} with epoch {epoch}; no client had requested it"
            yield Case(one.start, one.end, [one.op], text, key=group.name, name="unasked-metadata")
    for maker in some:
        if not maker.made:
            continue
        early = next((s for s in some if s.end < maker.start and _covers(s.version, maker.version)), None)
        if early is not None and not early.made:
            text = f"{_at(early.call)} the version was {_of(early.version)}; {_at(maker.call)} a change made it"
            yield Case(early.start, maker.end, [early.op, maker.op], text, key=group.name, name="unasked-metadata")


def _ids(group: GroupHistory, gone: int | None) -> Iterator[Case]:
    """Yields ids with two owners, ids that were lost or came back, and next ids that are too low."""
    owners: dict[int, Call] = {}
    cleans = [c for c in group.of("clean") if "id" in asked(c)]
    for call in group.of("apply", acknowledged=True):
        number = int(told(call)["id"])
        first = owners.setdefault(number, call)
        if first is not call:
            text = f"id {number} was given {_at(first)} and {_at(call)}"
            yield Case(first.start, ended(call), _both(first, call), text, key=group.name, name="id-given-twice")
    lists = sorted((c for c in group.answers if gone is None or ended(c) < gone), key=lambda c: c.start)
    for number, owner in owners.items():
        after = [c for c in lists if c.start > ended(owner)]
        for call in after:
            if call.invoke.f == "next" and told(call) <= number:
                text = f"{_at(call)} the next id was {told(call)}; {number} had been given {_at(owner)}"
                yield Case(owner.start, ended(call), _both(owner, call), text, key=group.name, name="id-given-twice")
                break
        views = [c for c in after if c.invoke.f == "view"]
        missing = [c for c in views if not _lists(c, number)]
        mine = [c for c in cleans if int(asked(c)["id"]) == number]
        if mine:
            missing = [c for c in missing if ended(c) < min(c.start for c in mine)]
        if missing:
            name = "lost-metadata" if missing[-1] is views[-1] else "stale-metadata"
            text = f"id {number} was given {_at(owner)}, and {_at(missing[0])} no replica had it"
            yield Case(owner.start, ended(missing[0]), _both(owner, missing[0]), text, key=group.name, name=name)
        clean = next((c for c in mine if c.outcome == OK), None)
        # An application that is still under way may bring it back.
        others = [c for c in group.of("apply") if c is not owner and asked(c).get("id", number) == number]
        if clean is not None and all(is_over(c, clean.start) for c in others):
            again = next((c for c in views if c.start > ended(clean) and _lists(c, number)), None)
            if again is not None:
                name = "lost-metadata" if _lists(views[-1], number) else "stale-metadata"
                text = f"id {number} was forgotten {_at(clean)}, and {_at(again)} it was there again"
                yield Case(clean.start, ended(again), _both(clean, again), text, key=group.name, name=name)


def _addresses(group: GroupHistory, gone: int | None) -> Iterator[Case]:
    """Yields addresses that were never registered, or were replaced before the request."""
    writes: dict[int, list[Call]] = {}
    for call in group.of("apply", "register"):
        if "id" in asked(call):
            writes.setdefault(int(asked(call)["id"]), []).append(call)
        else:
            return
    views = [c for c in group.answers if c.invoke.f == "view" and told(c) and (gone is None or ended(c) < gone)]
    for view in views:
        for text_id, address in told(view)["replicas"].items():
            mine = writes.get(int(text_id), [])
            written = next((w for w in mine if asked(w)["address"] == address), None)
            if written is None or written.start > ended(view):
                text = f"{_at(view)} id {text_id} was at {address}, which no broker had registered"
                yield Case(view.start, ended(view), [view.invoke.index], text, key=group.name, name="unasked-metadata")
                continue
            over = written.end if written.outcome == OK else None
            newer = [
                w for w in mine if w.outcome == OK and over is not None and w.start > over and ended(w) < view.start
            ]
            if newer:
                last = [v for v in views if v.start >= view.start and str(text_id) in told(v)["replicas"]]
                good = any(told(v)["replicas"][text_id] != address for v in last)
                text = (
                    f"{_at(view)} id {text_id} was at {address}; it had registered at {asked(newer[-1])['address']} "
                    f"{_at(newer[-1])}"
                )
                name = "stale-metadata" if good else "lost-metadata"
                yield Case(newer[-1].start, ended(view), _both(newer[-1], view), text, key=group.name, name=name)


def _returned(group: GroupHistory, surely: int | None) -> Iterator[Case]:
    """Yields a group that was removed (`forget`) and is there again."""
    if surely is None:
        return
    later = sorted((c for c in group.answers if c.start > surely), key=lambda c: c.start)
    there = [c for c in later if (told(c) != 1 if c.invoke.f == "next" else told(c) is not None)]
    if there:
        name = "lost-metadata" if there[-1] is later[-1] else "stale-metadata"
        text = (
            f"the group was forgotten at {clock(surely)}, and {_at(there[0])} it was there ({_short(told(there[0]))})"
        )
        yield Case(surely, ended(there[0]), [there[0].invoke.index], text, key=group.name, name=name)


def _differing(group: GroupHistory) -> Iterator[Case]:
    """Yields answers that differ in the final phase, in which no client changes anything. An election by a controller
    changes the version; answers with different versions are not compared.
    """
    final = sorted((c for c in group.answers if c.invoke.extra.get("phase") == "final"), key=lambda c: c.start)
    for f in ("view", "next", "read"):
        some = [c for c in final if c.invoke.f == f]
        for one, other in pairwise(some):
            if _same_version(one, other) and told(one) != told(other):
                text = f"{_at(one)} {f} was {_short(told(one))}, {_at(other)} {_short(told(other))}"
                yield Case(one.start, ended(other), _both(one, other), text, key=group.name, name="controllers-differ")
                break


def _same_version(one: Call, other: Call) -> bool:
    """True if both answers have the same epochs, or no epochs: then they must be equal."""
    a, b = told(one), told(other)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return (a["master_epoch"], a["epoch"]) == (b["master_epoch"], b["epoch"])
    return True


def _lists(view: Call, number: int) -> bool:
    value = told(view)
    return value is not None and str(number) in value["replicas"]


def _is(one: Seen, f: str) -> bool:
    return one.call.invoke.f == f


def _base(one: Seen) -> Version:
    """The version that a change replaced. An election adds one to each epoch."""
    master_epoch, epoch = one.version
    return (master_epoch - 1, epoch - 1) if _is(one, "elect") else (master_epoch, epoch - 1)


def _covers(one: Version, other: Version) -> bool:
    return one[0] >= other[0] and one[1] >= other[1]


def _above(one: Version, other: Version) -> bool:
    return one != other and _covers(one, other)


def _of(version: Version) -> str:
    return "that of an unknown group" if version == ABSENT else f"{version[0]}/{version[1]}"


def _at(call: Call) -> str:
    where = told_by(call)
    return f"at {clock(ended(call))}" + (f" by {where}" if where else "")


def _both(one: Call, other: Call) -> list[int]:
    return [one.invoke.index, other.invoke.index]


def _short(value: Any) -> str:
    return "unknown" if value is None else str(value)[:200]


def _anomalies(cases: Sequence[Case]) -> Iterator[Anomaly]:
    """One for each name and group."""
    yield from _named("epoch-reused", cases)
    yield from _named("stale-metadata", cases)
    yield from _named("lost-metadata", cases)
    yield from _named("unasked-metadata", cases)
    yield from _named("id-given-twice", cases)
    yield from _named("controllers-differ", cases)


def _named(name: str, cases: Sequence[Case]) -> Iterator[Anomaly]:
    mine = [case for case in cases if case.name == name]
    groups = list(dict.fromkeys(case.key for case in mine))
    for group in groups[:_LISTED]:
        some = [case for case in mine if case.key == group]
        more = f" ({len(groups)} groups)" if len(groups) > 1 else ""
        yield from by_reason(name, some, f"group {group}", {"groups": len(groups)}, more)


def _mute(run: RunRecord) -> Iterator[Anomaly]:
    """Yields leaders of the final phase that answered nothing. Each round begins with a restart of the leader."""
    leader: Op | None = None
    asks: list[Op] = []
    for op in (*run.history, None):
        if op is not None and op.is_client:
            if leader is not None and op.f in ANSWERS and op.type != INVOKE:
                asks.append(op)
            continue
        if op is not None and (op.f != "restart-leading" or op.type == INVOKE):
            continue
        mine = [ask for ask in asks if leader is not None and ask.extra.get("controller") == leader.value["to"]]
        silent = leader is not None and bool(mine) and not any(ask.type == OK for ask in asks)
        if silent and leader is not None and mine[-1].time - leader.time >= SERVES_NS:
            node = leader.value["to"]
            yield Anomaly(
                "leader-serves-nothing",
                f"the controller of {node} led from {clock(leader.time)} on, all of them ran, and none of "
                f"{many(len(mine), 'question')} was answered, up to {clock(mine[-1].time)}: {mine[-1].error}",
                ops=[mine[0].index, mine[-1].index],
                window=(leader.time, mine[-1].time),
                details={"node": node},
            )
        value = op.value if op is not None else None
        leader, asks = (op if isinstance(value, Mapping) and value.get("to") and not op.error else None), []


def _of_logs(run: RunRecord, logs: ControllerLogs) -> Iterator[Anomaly]:
    yield from two_leaders(run, logs.leaders, "controller")
    for node, lines in logs.failed.items():
        at, line = lines[0]
        yield Anomaly(
            "snapshot-failed",
            f"the controller of {node} could not take or load a snapshot ({many(len(lines), 'line')}): {line[:300]}",
            window=(at, at),
            details={"node": node, "log": [text[:400] for _, text in lines[:_LISTED]]},
        )
