# SPDX-License-Identifier: Apache-2.0
"""The times in which nothing disturbs a group, and the processes of its members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from checkers.base.timeline import RunTimeline
from checkers.messages.consumer_times import HEARTBEAT_S
from checkers.messages.consuming.changes import GroupChanges
from checkers.messages.consuming.takes import Takes
from checkers.messages.reports import Life
from results.figures import SECOND
from results.history import History
from results.op import OK

_FOLLOWED_S: Final = 60.0
"""The longest time from a change of the mode until nothing comes again because of it: 20 s until the next rebalance of
each member, 10 s for which what it popped is hidden, and 20 s for its return; with a reserve.
"""


class Span(NamedTuple):
    """A time (ns), from `start` to `end`."""

    start: int
    end: int


@dataclass
class Presence:
    """One process of a member. Times in ns.

    begun    its start was requested. started: its consumer runs; None: not reported.
    ending   its end was requested, or it was found dead; None: it stayed. ended: it is gone; None: not, or unknown.
    client   the id that brokers know it by.
    """

    life: Life
    begun: int
    started: int | None = None
    ending: int | None = None
    ended: int | None = None
    client: str | None = None


def presences(history: History, taken: Takes) -> list[Presence]:
    """All processes of members, in order of their start."""
    found: dict[Life, Presence] = {}
    current: dict[str, Presence] = {}
    for call in history.clients.calls:
        done, member = call.completion, str(call.invoke.extra.get("member"))
        if call.invoke.f == "join" and done is not None and done.type == OK:
            life = Life(member, int(str(done.value).rpartition("-")[2]))
            current[member] = found.setdefault(life, Presence(life, call.start))
        elif call.invoke.f in ("crash", "leave") and (presence := current.get(member)) is not None:
            presence.ending = call.start if presence.ending is None else presence.ending
            presence.ended = done.time if done is not None and done.type == OK else None
    for life, presence in found.items():
        if life in taken.started:
            presence.started, presence.client = taken.started[life]
        gone = taken.ends.get(life)
        if gone is not None and (presence.ending is None or gone < presence.ending):
            presence.ending = presence.ended = gone
    return list(found.values())


def changes_of(presence: Presence, until: int) -> Iterator[Span]:
    """Yields the start and the end of a process, each from its request until it took effect."""
    gone = presence.ended if presence.ended is not None else until
    started = presence.started if presence.started is not None else gone
    yield Span(presence.begun, min(max(presence.begun, started), until))
    if presence.ending is not None and presence.ending < until:
        yield Span(presence.ending, max(presence.ending, min(gone, until)))


def fault_times(scene: RunTimeline, groups: Sequence[str], until: int) -> list[Span]:
    """The faults and the changes of masters, each with the time that heartbeats may take afterwards; and the end of a
    run in which no broker of all these groups reported to be master: members have nobody to ask about their group.
    """
    more = int(HEARTBEAT_S * SECOND)
    found = [Span(f.start_ns, until if f.end_ns is None else f.end_ns + more) for f in scene.fault_intervals]
    for group in groups:
        found += [Span(earliest, latest + more) for earliest, latest in scene.master_changes(group)]
    last = [max((each.until for each in scene.masters_of(group)), default=None) for group in groups]
    reported = max((seen.time for seen in scene.run.observations), default=0)
    if last and None not in last and (since := max(at for at in last if at is not None)) < min(reported, until):
        found.append(Span(since, min(reported, until)))
    return found


def deleted_times(history: History, until: int) -> Iterator[Span]:
    """Yields the times in which brokers may not know the group, each with the time of a heartbeat afterwards: they take
    none for a group that they do not know (`ClientManageProcessor.heartBeat`).
    """
    for each in GroupChanges(history).deletions:
        yield Span(each.start, min(until, each.end + int(HEARTBEAT_S * SECOND)))


def mode_times(history: History) -> Iterator[tuple[int, int]]:
    """Yields the times (ns) from, until, in which a change of the mode may bring messages again: members follow one by
    one, and what they had pulled and not committed, or popped and not acknowledged, comes to the others. If not every
    replica took it, members follow now the one, now the other mode, until all replicas took another one.
    """
    calls = [call for call in history.clients.calls if call.invoke.f == "mode" and call.outcome != "fail"]
    for n, call in enumerate(calls):
        sure = (one.end for one in calls[n:] if one.outcome == "ok" and one.end is not None)
        yield call.start, next(sure, history[-1].time) + int(_FOLLOWED_S * SECOND)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, those that overlap as one."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def calm_times(disturbed: Sequence[Span], until: int) -> Iterator[Span]:
    """Yields the times between the spans."""
    at = 0
    for span in disturbed:
        if span.start > at:
            yield Span(at, min(span.start, until))
        at = max(at, span.end)
    if at < until:
        yield Span(at, until)


def change_times(told: Takes, scene: RunTimeline) -> Sequence[int]:
    """The times (ns) of changes of queues, of members, and of masters, in order."""
    queues = [at for changes in told.queues.values() for at, _ in changes]
    masters = [period.since for period in scene.masters_of(None)]
    lives: dict[Any, int] = {}
    for delivery in told.deliveries:
        lives.setdefault(delivery.life, delivery.start)
    return sorted([*queues, *masters, *told.ends.values(), *lives.values()])
