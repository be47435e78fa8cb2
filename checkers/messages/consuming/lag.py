# SPDX-License-Identifier: Apache-2.0
"""Judges that the offsets and the lag that administrators see are those of the group, when it is at rest.

Source: "View consumer progress" (docs/en/CLITools.md of apache/rocketmq, `mqadmin consumerProgress`): the command shows
the end of each queue (broker offset), the group's offset, and the difference as its lag (GET_CONSUME_STATS). A client
commits the offset below which it has finished everything, every 5 s (`persistConsumerOffsetInterval`) and when it is
shut down (`DefaultMQPushConsumerImpl.shutdown`). So when members have finished everything and left in an orderly way,
the lag is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.consuming.resets import MemberResets
from checkers.messages.consuming.stored import last_masters, stored
from checkers.messages.consuming.takes import Takes, dead_letters, properties_of, subscribed, takes
from checkers.messages.log.outcomes import study
from checkers.messages.ops import of_messages
from checkers.messages.reports import Life
from results.figures import SECOND, many
from results.history import History
from results.op import OK
from results.record import RunRecord
from results.verdict import CheckResult, Excuse

_COMMIT_S: Final = 6.0
"""A little more than the interval of commits: what was finished so long before the end must be committed."""


class Figure(NamedTuple):
    """A number that a broker reported: its node, the op, and the time (ns) of the answer."""

    value: Any
    node: str
    op: int
    time: int


class Lag:
    """`wrong-lag`, `committed-behind`, `committed-beyond`. wanted: the tags that the group subscribes to; None: all."""

    name = "lag"

    def __init__(self, wanted: frozenset[str] | None = None) -> None:
        self.wanted = wanted

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `queues` judged, `lag`: the sum of their lags as the brokers report it."""
        taken, scene, there = takes(run.history), RunTimeline(run), stored(run)
        shown, committed = _shown(run.history), _committed(run.history)
        ends, left = _ends(run), _left(run.history, taken)
        finished = _finished(taken, run.history)
        tags = {id: of.get("TAGS") for id, of in properties_of(run.history).items()}
        resets = MemberResets(run.history)
        wrong: list[Case] = []
        behind: list[Case] = []
        beyond: list[Case] = []
        unread = list(there.unread)
        moved: list[str] = []
        lag = 0
        for key, messages in there.queues.items():
            figure, commit = shown.get(key), committed.get(key)
            end = None if figure is None else ends.get((figure.node, key))
            masters = last_masters(scene, key)
            if (
                figure is None
                or commit is None
                or end is None
                or (masters and not {figure.node, commit.node} <= masters)
            ):
                unread.append(key)  # another broker than the master knows what it copied some time ago
                continue
            reported, offset = figure.value
            lag += reported - offset
            at = figure.time
            if reported != end:
                text = f"{figure.node} reports {reported} as the end of {key}, where readers find {end}"
                wrong.append(Case(at, at, [figure.op], text, key))
            if commit.node == figure.node and offset != (commit.value or 0):
                text = f"{figure.node} shows {offset} as the group's offset in {key}, and answers {commit.value}"
                wrong.append(Case(at, at, [commit.op, figure.op], text, key))
            if (commit.value or 0) > end:
                text = f"the group's offset in {key} is {commit.value}, and the queue ends at {end}"
                beyond.append(Case(at, at, [commit.op], text, key))
            owed = sorted(o for o, id in messages.items() if subscribed(tags.get(id), self.wanted))
            open_ = next((o for o in owed if o not in finished.get(key, ())), None)
            due = open_ if open_ is not None else owed[-1] + 1 if owed else 0
            if (commit.value or 0) >= due:
                continue
            if key not in left or _disturbed(scene, key, left[key], at) or resets.unanswered(key):
                moved.append(key)
                continue
            text = f"the group's offset in {key} is {commit.value}, and it had finished everything below {due}"
            behind.append(Case(at, at, [commit.op], text, key))
        found = [
            *anomalies(scene, "wrong-lag", wrong, "{n} figures of GET_CONSUME_STATS are not those of the queue"),
            *anomalies(scene, "committed-behind", behind, "{n} queues have a committed offset behind what the group "
                       "had finished"),
            *anomalies(scene, "committed-beyond", beyond, "{n} queues have a committed offset behind their end"),
        ]  # fmt: skip
        judged = len({*there.queues} - {*unread})
        excuses = []
        if moved:
            why = "no member that left in an orderly way had the queue to the end, a reset had no answer, or a fault "
            why += "or a change of master came"
            excuses.append(Excuse("committed-behind", len(moved), why))
        unknown = None
        if unread or not judged:
            unknown = f"not every queue was asked for, and read to its end: {', '.join(unread[:4]) or 'none was'}"
        reason = f"{many(judged, 'queue')}, a lag of {lag:,} in all"
        return conclude(self.name, run, found, {"queues": judged, "lag": lag}, reason, unknown, excuses=excuses)


def _shown(history: History) -> Mapping[str, Figure]:
    """Queue -> (its end, the group's offset), as the last GET_CONSUME_STATS showed them."""
    found: dict[str, Figure] = {}
    for call in history.clients.calls:
        done = call.completion
        if call.invoke.f == "consume-stats" and done is not None and done.type == OK:
            for key, end, offset in done.value or ():
                found[key] = Figure((end, offset), str(done.extra.get("node")), done.index, done.time)
    return found


def _committed(history: History) -> Mapping[str, Figure]:
    """Queue -> the group's committed offset, as the master reported it last; None: it has none."""
    found: dict[str, Figure] = {}
    for call in history.clients.calls:
        done = call.completion
        if call.invoke.f == "committed" and done is not None and done.type == OK and call.invoke.key is not None:
            found[call.invoke.key] = Figure(done.value, str(done.extra.get("node")), done.index, done.time)
    return found


def _ends(run: RunRecord) -> Mapping[tuple[str, str], int]:
    """(node, queue) -> the offset behind the last message that a complete final read shows there."""
    outcomes = study(run)
    return {
        (outcomes.facts.node(reading.node), key): int(reading.offset[-1]) + 1 if len(reading.offset) else reading.begin
        for code, key in enumerate(outcomes.facts.queues)
        for reading in outcomes.readings.of(code)
    }


def _left(history: History, taken: Takes) -> Mapping[str, int]:
    """Queue -> the time (ns) at which the member that had it to the end left in an orderly way."""
    found: dict[str, int] = {}
    current: dict[str, Life] = {}
    for call in history.clients.calls:
        done, member = call.completion, str(call.invoke.extra.get("member"))
        if call.invoke.f == "join" and done is not None and done.type == OK:
            current[member] = Life(member, int(str(done.value).rpartition("-")[2]))
        elif call.invoke.f == "leave" and done is not None and done.type == OK and call.start >= taken.until:
            reports = taken.queues.get(current.get(member, Life(member, 0)), [])
            before = [queues for at, queues in reports if at <= call.start]
            found |= dict.fromkeys(before[-1] if before else (), call.start)
    return found


def _finished(taken: Takes, history: History) -> Mapping[str, set[int]]:
    """Queue -> the offsets that the group had finished for a while: with success, or with a further attempt."""
    dead = dead_letters(history) or {}
    again = {delivery.id for delivery in taken.deliveries if delivery.again}
    found: dict[str, set[int]] = {}
    for delivery in taken.deliveries:
        passed = delivery.done or (delivery.done is False and (delivery.id in dead or delivery.id in again))
        if passed and delivery.end is not None and delivery.end <= taken.until - int(_COMMIT_S * SECOND):
            found.setdefault(delivery.key, set()).add(delivery.offset)
    return found


def _disturbed(scene: RunTimeline, key: str, left: int, until: int) -> bool:
    """True if a fault or a change of master may have taken the last commits of a queue."""
    start = left - int(_COMMIT_S * SECOND)
    return scene.changed_master(group_of(key), start, until) or bool(scene.in_force(start, until))
