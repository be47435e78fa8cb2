# SPDX-License-Identifier: Apache-2.0
"""Judges that every member of a broadcast group gets every message.

Source: "Broadcasting consumption" (docs/en/Features.md of apache/rocketmq): each consumer instance of the group gets
every message. An instance that is new begins at the start of each queue (CONSUME_FROM_FIRST_OFFSET), or with what is
sent after its start (CONSUME_FROM_LAST_OFFSET).
"""

from __future__ import annotations

from typing import Any, Final

from checkers.base.cases import Case, anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.consumer_times import QUIET_S
from checkers.messages.consuming.stored import stored
from checkers.messages.consuming.takes import properties_of, subscribed, takes
from checkers.messages.ops import of_messages
from checkers.messages.reports import Life
from results.figures import SECOND, many
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Excuse

_MISSED: Final = "{n} times a member did not get a message"
_MISSED_AT_FIRST: Final = f"{_MISSED} that was sent after its start and before it had the queue"

_BEFORE: Final = "sent before the start of the member, which begins at the end of a queue"


class Broadcast:
    """`missed-by-member`. wanted: the tags that the group subscribes to; None: everything. last: members begin with
    what is sent after their start.
    """

    name = "broadcast"

    def __init__(self, wanted: frozenset[str] | None = None, *, last: bool = False) -> None:
        self.wanted, self.last = wanted, last

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `members` that were there at the end, `messages` for each, `deliveries`."""
        told, there, scene = takes(run.history), stored(run), RunTimeline(run)
        tags = {id: of.get("TAGS") for id, of in properties_of(run.history).items()}
        owed = {
            id: (key, offset)
            for key, of in there.queues.items()
            for offset, id in of.items()
            if subscribed(tags.get(id), self.wanted)
        }
        got: dict[Life, set[Any]] = {
            life: set() for life in told.queues if told.ends.get(life, told.until) >= told.until
        }
        for delivery in told.deliveries:
            if delivery.life in got:
                got[delivery.life].add(delivery.id)
        sent = {call.invoke.value: call.start for call in run.history.clients.calls if call.invoke.f == "send"}
        before = 0
        missed: dict[str, list[Case]] = {_MISSED: [], _MISSED_AT_FIRST: []}
        for life, ids in got.items():
            begun = told.started.get(life, (told.until, ""))[0] if self.last else 0
            for id in sorted(owed.keys() - ids):
                key, offset = owed[id]
                if sent.get(id, 0) < begun:
                    before += 1
                    continue
                text = f"message {id} (offset {offset} of {key}) did not come to {life}"
                had = min((at for at, queues in told.queues[life] if key in queues), default=told.until)
                what = _MISSED_AT_FIRST if self.last and sent.get(id, 0) < had else _MISSED
                missed[what].append(Case(sent.get(id, 0), told.until, [], text, key))
        quiet = told.quiet >= QUIET_S * SECOND or not any(missed.values())
        found: list[Anomaly] = []
        for what, cases in missed.items() if quiet else ():
            found += anomalies(scene, "missed-by-member", cases, what, limit=int(QUIET_S * SECOND))
        stats = {"members": len(got), "messages": len(owed), "deliveries": len(told.deliveries)}
        unknown = None
        if not got or not owed:
            unknown = "no member was there at the end" if not got else "no message is stored"
        elif there.unread:
            unknown = f"not every queue was read to its end: {', '.join(there.unread[:4])}"
        elif not quiet:
            unknown = f"the group was still busy {told.quiet / SECOND:.1f} s before its end; {QUIET_S:g} s are needed"
        reason = f"{many(len(got), 'member')} got {many(len(owed), 'message')} each"
        excuses = [Excuse("missed-by-member", before, _BEFORE)] if before else []
        return conclude(self.name, run, found, stats, reason, unknown, excuses=excuses)
