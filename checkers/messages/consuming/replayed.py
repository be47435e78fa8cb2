# SPDX-License-Identifier: Apache-2.0
"""Judges that the members of a group receive again what an administrator reset its offset back to.

Source: as of `checkers.messages.queue.replays`. Members report deliveries, and no pulls, so the judge looks at the end:
a message that the group had received before the last acknowledged reset to it or below it, and that no later reset may
have passed over, must have come again by the time at which the group has got nothing for a while.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.consumer_times import QUIET_S
from checkers.messages.consuming.resets import MemberResets
from checkers.messages.consuming.stored import stored
from checkers.messages.consuming.takes import Delivery, properties_of, subscribed, takes
from checkers.messages.log.outcomes import study
from checkers.messages.ops import of_messages
from checkers.messages.reset_faults import FORGOTTEN, forgotten, left_out, owed_messages, wrong_times
from checkers.messages.resets import Reset
from results.figures import SECOND, clock, many
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict


class Replayed:
    """`not-replayed`, `wrong-reset-time`.

    wanted   the tags that the group subscribes to; None: everything. holds: False for members that pop: a message may
             come again through a retry topic.
    copied_within_s   the longest time until a broker has copied its offsets to a slave and to a file.
    quiet_s  a group that has got nothing for so long, with members in it, has got all that it will get.
    """

    name = "replayed"

    def __init__(
        self,
        wanted: frozenset[str] | None = None,
        *,
        holds: bool = True,
        copied_within_s: float = 15,
        quiet_s: float = QUIET_S,
    ) -> None:
        self.wanted, self.holds = wanted, holds
        self.slack, self.quiet = int(copied_within_s * SECOND), int(quiet_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `resets` (requests that were not refused), `acknowledged`, `back`: (reset, queue) pairs with a
        message that had to come again, `replayed`: such messages that came; `first_p50_s` and `first_max_s`: from the
        acknowledgement of such a reset to the first of them.
        """
        resets = MemberResets(run.history)
        if not resets:
            return CheckResult(self.name, Verdict.VALID, "nobody reset an offset")
        told, scene, outcomes = takes(run.history, popped=not self.holds), RunTimeline(run), study(run)
        tags = {id: of.get("TAGS") for id, of in properties_of(run.history).items()}
        by_key: dict[str, dict[Any, list[Delivery]]] = {}
        by_id: dict[Any, list[Delivery]] = {}
        for d in told.deliveries:
            by_key.setdefault(d.key, {}).setdefault(d.id, []).append(d)
            by_id.setdefault(d.id, []).append(d)
        late: list[Case] = []
        back = replayed = 0
        cases: dict[str | None, list[Case]] = {}
        ages: list[float] = []
        first: list[int] = []
        for key, messages in stored(run).queues.items():
            of = resets.of(key)
            if any(reset.since is not None for reset in of):
                owed = owed_messages(outcomes, key)
                late += [case for reset in of for case in left_out(outcomes, resets.group, key, owed, reset)]
            wanted = {offset: id for offset, id in messages.items() if subscribed(tags.get(id), self.wanted)}
            deliveries = by_key.get(key, {}) if self.holds else by_id
            positions = sorted(d.start for each in by_key.get(key, {}).values() for d in each)
            for found in _replays(of, wanted, deliveries):
                back += 1
                replayed += found.came
                first += [found.first] if found.first is not None else []
                if not found.missing:
                    continue
                age = forgotten(scene, key, found.reset, told.until, positions, self.slack)
                ages += [] if age is None else [age]
                case = _case(key, found, told.until, resets.known)
                cases.setdefault(None if age is None else FORGOTTEN, []).append(case)
        busy = bool(cases) and told.quiet < self.quiet
        found_all: list[Anomaly] = wrong_times(scene, late)
        for why, some in cases.items() if not busy else ():
            what = "{n} resets on {queues} queues did not bring back every message that the group had received before"
            more = {"bound_s": self.slack / SECOND, "nearest_s": round(max(ages), 3)} if why is not None else {}
            found_all += anomalies(scene, "not-replayed", some, what, legal=why, more=more, whole=True)
        acknowledged = sum(call.outcome == "ok" for call in resets.calls)
        stats: dict[str, Any] = {
            "resets": len(resets.calls),
            "acknowledged": acknowledged,
            "back": back,
            "replayed": replayed,
        }
        if first:
            p50, longest = (round(float(np.percentile(first, p)) / SECOND, 2) for p in (50, 100))
            stats |= {"first_p50_s": p50, "first_max_s": longest}
        unknown = None if back else "no acknowledged reset went back to a message that the group had received"
        if busy:
            unknown = f"the group still got messages {told.quiet / SECOND:.1f} s before its end; "
            unknown += f"{self.quiet / SECOND:g} s are needed"
        reason = f"{many(len(resets.calls), 'reset')}, {replayed:,} messages delivered again"
        return conclude(self.name, run, found_all, stats, reason, unknown)


@dataclass
class _Replay:
    """The messages that one acknowledged reset had to bring back to a queue.

    missing  offset -> id of the messages that did not come again. came: the number of those that did.
    first    the time (ns) from the acknowledgement to the first of these.
    """

    reset: Reset
    missing: dict[int, Any] = field(default_factory=dict)
    came: int = 0
    first: int | None = None


def _replays(resets: list[Reset], wanted: Mapping[int, Any], deliveries: Mapping[Any, list[Delivery]]) -> list[_Replay]:
    """The resets of a queue that had to bring back a message, each with the messages that no later one may end, and
    those that came before it did.
    """
    found: dict[int, _Replay] = {}
    for offset, identity in wanted.items():
        starts = [d.start for d in deliveries.get(identity, ())]
        last = next((i for i in reversed(range(len(resets))) if resets[i].sure and resets[i].high <= offset), None)
        if last is None:
            continue
        reset = resets[last]
        before = bisect_right(starts, reset.begun)
        if not before:
            continue
        # Another one may pass over the message that is later, or at the same time, or has no answer and happens late.
        passing = [each.begun for each in resets if each.high > offset and each.end > reset.start]
        if passing and (before == len(starts) or starts[before] >= min(passing)):
            continue
        replay = found.setdefault(last, _Replay(reset))
        if before == len(starts):
            replay.missing[offset] = identity
            continue
        replay.came += 1
        took = max(0, starts[before] - reset.acked)
        replay.first = took if replay.first is None else min(replay.first, took)
    return list(found.values())


def _case(key: str, found: _Replay, until: int, known: Mapping[object, int]) -> Case:
    offset, identity = min(found.missing.items())
    reset = found.reset
    text = (
        f"{len(found.missing):,} of {len(found.missing) + found.came:,} did not come again after the reset to offset "
        f"{reset.high} of {key}, which {reset.node} acknowledged at {clock(reset.acked)}: message {identity} at offset "
        f"{offset}, which the group had received before"
    )
    ops = [reset.start, *([known[identity]] if identity in known else [])]
    return Case(reset.begun, until, ops, text, key=key)
