# SPDX-License-Identifier: Apache-2.0
"""Topics and consumer groups that brokers forget. (RocketMQ)

A broker holds its topics in memory and in `config/topics.json`, its consumer groups in
`config/subscriptionGroup.json`. A slave copies those of its master every ten seconds. A broker that has answered a pull
or a send of a topic, and whose process has gone on since, must not refuse the next one with TOPIC_NOT_EXIST (17),
unless the topic was deleted in between (`delete-topic`).

Before the load, the topics and groups were made on every broker, acknowledged and read back. At the end the harness
requests them from the master of each broker group (`remake`). The master must have them, whatever ended it meanwhile. A
broker whose disk was replaced or whose files were damaged may have lost them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from checkers.base.legality import conclude
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND
from results.history import Call
from results.op import FAIL, OK, SERVER_DIED, Op
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Excuse

_REMAKE: Final = "remake"
_DELETE: Final = "delete-topic"
_COPIED: Final = 30 * SECOND
"""The longest time (ns) until a slave has copied a deletion from its master: three times the interval."""
_TOPIC_NOT_EXIST: Final = 17
_OF_ANY_TOPIC: Final = ("commit", "committed")
"""Ops that brokers of some versions answer for topics that they do not know."""
_NAMED: Final = re.compile(r"topic\[([^\]]+)\]")
_ENDS: Final = ("down", "unsynced-lost", "disk-dead", "data-lost")
"""Effects after which a broker starts from the content of its disk."""
_TAKEN: Final = ("data-lost", "data-damaged")
"""Effects after which a disk may lack synced data."""


@dataclass
class _Gap:
    """A broker refuses a topic from one op to another, and served it before. ops: indices of the refusals."""

    node: str
    topic: str
    since: int
    until: int
    ops: list[int]


class KnownTopics:
    """`forgotten-topic` for each broker that forgets a topic while it runs; `lost-topic` and `lost-group` for each
    master that does not have one at the end.
    """

    name = "topics"

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `forgotten` (broker -> number of times), `longest_s`, `lost` (broker -> names of lost entries)."""
        late: list[int] = []
        gaps = list(_gaps(run, late))
        count: dict[str, int] = {}
        for gap in gaps:
            count[gap.node] = count.get(gap.node, 0) + 1
        longest = max((gap.until - gap.since for gap in gaps), default=0)
        lost = list(_lost(run))
        stats = {
            "forgotten": count,
            "longest_s": round(longest / SECOND, 2),
            "lost": {node: names for node, _, names, _ in lost},
        }
        found = [_tell(node, [gap for gap in gaps if gap.node == node]) for node in sorted(count)]
        found += [_tell_lost(*one) for one in lost]
        asked = any(op.f == _REMAKE and op.type == OK for op in run.history)
        reason = "" if gaps else "no broker forgot a topic while it ran"
        if asked and not lost:
            reason += f"{', and ' if reason else ''}no master had lost one at the end"
        why = "a slave copies the topics of its master every 10 s, and refused one that had been deleted"
        excuses = [Excuse("after-deletion", len(late), why, _COPIED / SECOND, max(late) / SECOND)] if late else []
        return conclude(self.name, run, found, stats, reason, excuses=excuses)


def _lost(run: RunRecord) -> Iterator[tuple[str, str, list[str], Op]]:
    """Yields node, `topics` or `groups`, names, and the `remake` that found them missing."""
    taken = {e.node for strike in fault_intervals(run.history) for e in strike.effects if e.kind in _TAKEN}
    for op in run.history:
        if op.f != _REMAKE or op.type != OK or not isinstance(op.value, Mapping):
            continue
        node = str(op.extra.get("node"))
        for kind in ("topics", "groups"):
            if node not in taken and (names := [str(name) for name in op.value.get(kind, ())]):
                yield node, kind, names, op


def _tell_lost(node: str, kind: str, names: list[str], op: Op) -> Anomaly:
    what = "topic" if kind == "topics" else "consumer group"
    group = op.extra.get("group")
    return Anomaly(
        "lost-topic" if kind == "topics" else "lost-group",
        f"{node}, the master of {group} at the end, did not know the {what} {', '.join(names)}, which was made, "
        "acknowledged and read back on every broker before the load; the harness made it again to read",
        ops=[op.index],
        window=(op.time, op.time),
        details={"nodes": {node: {kind: names}}},
    )


def _gaps(run: RunRecord, late: list[int]) -> Iterator[_Gap]:
    """Yields gaps in order of their ends. Only ops that name their queue (`TOPIC:GROUP:NUMBER`) show a served topic.

    late  gets an entry for each refusal that a late copy of a deletion explains: the time (ns) from the deletion to
          the last answer.
    """
    ended = [
        (op.time, str(op.value.get("node")))
        for op in run.history.nemesis
        if op.f == SERVER_DIED and isinstance(op.value, Mapping)
    ]
    strikes = fault_intervals(run.history)
    deleted = _deletions(run)
    served: dict[tuple[str, str], int] = {}
    open_gaps: dict[tuple[str, str], _Gap] = {}
    calls = [call for call in run.history.calls if call.completion is not None and call.invoke.is_client]
    for call in sorted(calls, key=_completed):
        done = call.completion
        node = done.extra.get("node") if done is not None else None
        if done is None or not isinstance(node, str) or done.key is None or ":" not in done.key:
            continue
        if done.f in _OF_ANY_TOPIC:
            continue
        at = (node, done.key.rsplit(":", 2)[0])
        if done.type == "ok":
            served[at] = call.invoke.time
            if at in open_gaps:
                yield open_gaps.pop(at)
        elif done.extra.get("code") == _TOPIC_NOT_EXIST and at in served and _topic(done.error) == at[1]:
            if call.invoke.time < served[at] or _may_have_ended(node, served[at], done.time, strikes, ended):
                continue
            gone = max((over for begun, over in deleted.get(at[1], ()) if begun <= done.time), default=None)
            if gone is not None and served[at] <= gone + _COPIED:
                if served[at] > gone:
                    late.append(int(served[at] - gone))
                continue
            gap = open_gaps.setdefault(at, _Gap(node, at[1], call.invoke.time, done.time, []))
            gap.until = done.time
            gap.ops.append(done.index)
    yield from open_gaps.values()


def _deletions(run: RunRecord) -> dict[str, list[tuple[int, float]]]:
    """Topic -> the times (ns) in which it may have been deleted: from the request to the acknowledgement, if any."""
    found: dict[str, list[tuple[int, float]]] = {}
    for call in run.history.clients.calls:
        if call.invoke.f == _DELETE and call.outcome != FAIL:
            over = call.end if call.outcome == OK and call.end is not None else inf
            found.setdefault(str(call.invoke.key), []).append((call.start, over))
    return found


def _completed(call: Call) -> int:
    assert call.completion is not None
    return call.completion.time


def _topic(error: str | None) -> str | None:
    named = _NAMED.search(error or "")
    return named[1] if named else None


def _may_have_ended(
    node: str, since: int, until: int, strikes: list[FaultInterval], ended: list[tuple[int, str]]
) -> bool:
    """True if the broker's process may be another one than before."""
    return any(
        strike.covers(since, until) and any(e.kind in _ENDS and e.node == node for e in strike.effects)
        for strike in strikes
    ) or any(name == node and since <= time <= until for time, name in ended)


def _tell(node: str, gaps: list[_Gap]) -> Anomaly:
    first, longest = gaps[0], max(gap.until - gap.since for gap in gaps)
    times = "once" if len(gaps) == 1 else f"{len(gaps)} times"
    return Anomaly(
        "forgotten-topic",
        f"{node}: {times} it did not know the topic {first.topic} that it had served before, for up to "
        f"{longest / SECOND:.1f} s, and no fault had ended it",
        ops=first.ops[:3],
        window=(first.since, gaps[-1].until),
        details={"gaps": len(gaps), "nodes": {node: {"longest_s": round(longest / SECOND, 2)}}},
    )
