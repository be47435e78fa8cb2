# SPDX-License-Identifier: Apache-2.0
"""Answers whose bytes are no messages. (RocketMQ)

A broker answers a pull or a pop with stored messages, one after the other; each begins with its size and a magic number
(`MessageDecoder`). An answer that came whole, and holds something else, is from a broker whose queue names a place in
its log where no message is. No client can read on from there: such a queue stands still for its consumers.

A broker whose files a fault has damaged may answer so; nothing else permits it.
"""

from __future__ import annotations

from checkers.base.cases import Case, of_parts
from checkers.base.legality import Part, conclude
from checkers.base.timeline import RunTimeline
from results.fault_intervals import fault_intervals
from results.history import Call
from results.op import UNREADABLE
from results.record import RunRecord
from results.verdict import CheckResult

_DAMAGED = "a fault had damaged this broker's files"


class Answers:
    """`unreadable-answer`: reads that a broker answered with bytes that are no messages."""

    name = "answers"

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `unreadable` (broker -> number of such answers)."""
        damaged = {
            (effect.node, strike.start_ns)
            for strike in fault_intervals(run.history)
            for effect in strike.effects
            if effect.kind == "data-damaged"
        }
        wrong: list[Case] = []
        legal: list[Case] = []
        count: dict[str, int] = {}
        for call in run.history.clients.calls:
            if call.completion is None or not call.completion.extra.get(UNREADABLE):
                continue
            node = str(call.completion.extra.get("node"))
            count[node] = count.get(node, 0) + 1
            excused = any(name == node and since <= (call.end or call.start) for name, since in damaged)
            (legal if excused else wrong).append(_case(call, node))
        parts = [Part(cases, why) for cases, why in ((wrong, None), (legal, _DAMAGED)) if cases]
        found = list(of_parts(RunTimeline(run), "unreadable-answer", parts, _WHAT, whole=True))
        reason = "" if count else "every answer to a read could be decoded"
        return conclude(self.name, run, found, {"unreadable": dict(sorted(count.items()))}, reason)


_WHAT = "{n} reads of {queues} queues were answered with bytes that are no messages"


def _case(call: Call, node: str) -> Case:
    done = call.completion
    assert done is not None
    text = f"{node}, for a read of {call.invoke.key} from offset {call.invoke.value}: {done.error}"
    return Case(call.start, call.end or call.start, [call.invoke.index], text, key=call.invoke.key)
