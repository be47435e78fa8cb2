# SPDX-License-Identifier: Apache-2.0
"""Judges a counter that converges: each final read is the sum of all acknowledged adds and of some of unknown outcome.

Every read shows the sum of some adds that were invoked by then, so it is at least the sum of the negative ones, and at
most that of the positive ones. Nothing else is promised of it: Maelstrom's text has no order of reads, not even for one
client of a counter that only grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from checkers.converging.final_reads import FinalReads
from checkers.converging.findings import Findings
from checkers.converging.sums import SubsetSums
from checkers.linearizability.models.specification import show
from results.history import Call
from results.op import FAIL, INVOKE, OK
from results.verdict import Anomaly


def judge_counter(key: str | None, calls: Sequence[Call], finals: FinalReads) -> Findings:
    """The findings for one counter. Raises ValueError for an add or a read that is no whole number.

    Takes n log n time for n calls, and some for the sums of the adds of unknown outcome (`sums`).
    """
    adds = [call for call in calls if call.invoke.f != "read" and call.outcome != FAIL]
    number = {call.invoke.index: _whole(call.invoke.value, "argument of an add", call) for call in adds}
    for call in calls:
        if call.invoke.f == "read" and call.outcome == OK and call.completion is not None:
            number[call.invoke.index] = _whole(call.completion.value, "result of a read", call)
    anomalies = list(_out_of_range(key, calls, number))
    known = [call for call in adds if call.outcome == OK]
    unknown = [number[call.invoke.index] for call in adds if call.outcome != OK]
    acknowledged = sum(number[call.invoke.index] for call in known)
    sums, undecided = SubsetSums(unknown), 0
    seen = {anomaly.ops[0] for anomaly in anomalies}
    for call in finals.reads:
        if call.invoke.index in seen:
            continue
        total = number[call.invoke.index]
        possible = sums.has(total - acknowledged)
        undecided += possible is None
        if possible is False:
            which = f"the final read {total} (op {call.invoke.index} of process {call.invoke.process})"
            text = f"{which} is not {acknowledged}, the sum of {len(known):,} acknowledged adds"
            if unknown:
                text += f", and {len(unknown):,} adds of unknown outcome do not explain the difference"
            window = (call.start, call.end or call.start)
            anomalies.append(Anomaly("wrong-sum", text, key, (call.invoke.index,), window))
    totals = sorted({number[call.invoke.index] for call in finals.reads})
    doubt = ""
    if len(totals) > 1:
        doubt = (
            f"the final reads differ ({totals[0]} to {totals[-1]}): adds of unknown outcome came late, "
            "or not all nodes converge"
        )
    elif undecided:
        doubt = f"too many sums of {len(unknown):,} adds of unknown outcome are possible to decide about {totals[0]}"
    return Findings(anomalies, doubt, len(known), {"{:,} adds of unknown outcome may or may not count": len(unknown)})


def _whole(value: Any, what: str, call: Call) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is not int:
        raise ValueError(f"the {what} (op {call.invoke.index}) is a whole number, not {show(value)}")
    return value


def _out_of_range(key: str | None, calls: Sequence[Call], number: dict[int, int]) -> Iterator[Anomaly]:
    """Yields each read that the adds invoked by its end cannot explain."""
    moments = [
        op
        for call in calls
        if call.invoke.index in number
        for op in ((call.completion,) if call.invoke.f == "read" else (call.invoke,))
        if op is not None
    ]
    invoked_at = {call.completion.index: call.invoke.index for call in calls if call.completion is not None}
    low = high = 0
    for op in sorted(moments, key=lambda op: op.index):
        if op.type == INVOKE:
            low, high = low + min(number[op.index], 0), high + max(number[op.index], 0)
            continue
        at = invoked_at[op.index]
        if not low <= number[at] <= high:
            limit = f"at most {high}" if number[at] > high else f"at least {low}"
            text = f"read {number[at]} (op {at}), but all adds until then make {limit}"
            yield Anomaly("wrong-sum", text, key, (at,), (op.time, op.time))
