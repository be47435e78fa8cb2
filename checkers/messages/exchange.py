# SPDX-License-Identifier: Apache-2.0
"""Judges what a queue took and gave, by the values of its messages alone: without offsets, queues and replicas.

For histories of other projects that record only `enqueue` and `dequeue` (OpenChaos). Delivery is at least once: a value
that is delivered again is counted, and is no anomaly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from results.history import Call
from results.op import INFO, OK
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

_SHOWN: Final = 20


class Exchange:
    """Judges that each delivered value had been enqueued (`never-sent`), that each acknowledged one was delivered
    (`lost`), and that values of one sharding key were delivered in the order of their enqueues (`reordered`).

    An undelivered value is `lost` only if every consumer found nothing at its end: after the last enqueue, and while no
    fault was active. Otherwise it is undecided, and so is the history.
    """

    name = "exchange"

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `enqueued` (acknowledged), `delivered` (different values), `again`: deliveries of a value after its
        first, `undelivered`.
        """
        calls = run.history.clients.calls
        sent: dict[str, Call] = {}
        for call in calls:
            if call.invoke.f == "enqueue" and sent.setdefault(call.invoke.value, call) is not call:
                text = (
                    f"the value {call.invoke.value!r} was enqueued twice (op {call.invoke.index}), so nothing follows"
                )
                return CheckResult(self.name, Verdict.UNKNOWN, text)
        got = [call for call in calls if call.invoke.f == "dequeue" and call.outcome == OK]
        first: dict[str, Call] = {}
        for call in got:
            first.setdefault(_value(call), call)
        acked = [value for value, call in sent.items() if call.outcome == OK]
        missing = [sent[value] for value in acked if value not in first]
        stats = {"enqueued": len(acked), "delivered": len(first), "again": len(got) - len(first),
                 "undelivered": len(missing)}  # fmt: skip
        anomalies = [*_never_sent(sent, first), *_reordered(sent, got)]
        if missing and _read_to_the_end(run):
            anomalies.insert(0, _anomaly("lost", missing, "acknowledged, and never delivered"))
        if anomalies:
            return CheckResult(self.name, Verdict.INVALID, "; ".join(a.summary for a in anomalies), anomalies, stats)
        if not acked:
            return CheckResult(self.name, Verdict.UNKNOWN, "no message was acknowledged", stats=stats)
        if missing:
            text = f"{len(missing):,} acknowledged messages were not delivered, the first: {_sent(missing[0])}"
            why = "the history does not show that the queue was read to its end"
            return CheckResult(self.name, Verdict.UNKNOWN, f"{text}; {why}", stats=stats)
        again = f", {stats['again']:,} deliveries more than once" if stats["again"] else ""
        reason = f"{len(acked):,} acknowledged messages delivered{again}"
        return CheckResult(self.name, Verdict.VALID, reason, stats=stats)


def _never_sent(sent: Mapping[str, Call], first: Mapping[str, Call]) -> list[Anomaly]:
    strange = [call for value, call in first.items() if value not in sent]
    early = [call for value, call in first.items() if value in sent and _answer(call) < sent[value].invoke.index]
    found = []
    if strange:
        found.append(_anomaly("never-sent", strange, "delivered, and never enqueued"))
    if early:
        found.append(_anomaly("read-before-send", early, "delivered before its enqueue began"))
    return found


def _reordered(sent: Mapping[str, Call], got: Sequence[Call]) -> list[Anomaly]:
    """Keys whose enqueues are no subsequence of the deliveries: a redelivery may go back, and catches up then."""
    wrong = []
    orders: dict[str, list[str]] = {}
    delivered = {_value(call) for call in got}
    for value, call in sent.items():
        key = call.invoke.extra.get("sharding_key")
        if key is not None and call.outcome == OK and value in delivered:
            orders.setdefault(key, []).append(value)
    place = dict.fromkeys(orders, 0)
    keys = {value: key for key, values in orders.items() for value in values}
    for call in got:
        key = keys.get(_value(call))
        if key is not None and place[key] < len(orders[key]) and orders[key][place[key]] == _value(call):
            place[key] += 1
    for key, values in orders.items():
        # (Enqueues that overlap have no order; those of one client never do.)
        if place[key] < len(values) and len({sent[value].invoke.process for value in values}) == 1:
            wrong.append(sent[values[place[key]]])
    return [_anomaly("reordered", wrong, "not delivered in the order of its sharding key")] if wrong else []


def _read_to_the_end(run: RunRecord) -> bool:
    last = max((op.index for op in run.history.clients if op.f == "enqueue"), default=0)
    ends: dict[int, Call] = {}
    for call in run.history.clients.calls:
        if call.invoke.f == "dequeue":
            ends[call.invoke.process] = call
    active: Counter[str] = Counter()
    for op in run.history.nemesis:
        if op.type == INFO:
            verb, _, fault = op.f.partition("-")
            active[fault] += {"start": 1, "stop": -1}.get(verb, 0)
    open_ = any(call.completion is None for call in run.history.clients.calls)
    found_nothing = all(call.outcome != OK and call.invoke.index > last for call in ends.values())
    return bool(ends) and found_nothing and not open_ and not any(count > 0 for count in active.values())


def _anomaly(name: str, calls: Sequence[Call], what: str) -> Anomaly:
    first = calls[0]
    value = first.invoke.value if first.invoke.f == "enqueue" else _value(first)
    many = "message" if len(calls) == 1 else "messages"
    summary = f"{len(calls):,} {many} {what}, the first: {value} (op {first.invoke.index})"
    times = [op.time for call in calls for op in (call.invoke, call.completion) if op is not None]
    listed = [call.invoke.value if call.invoke.f == "enqueue" else _value(call) for call in calls[:_SHOWN]]
    details: dict[str, Any] = {"count": len(calls), "first": listed}
    return Anomaly(
        name, summary, None, [call.invoke.index for call in calls[:_SHOWN]], (min(times), max(times)), details
    )


def _value(call: Call) -> str:
    assert call.completion is not None
    return str(call.completion.value)


def _answer(call: Call) -> int:
    assert call.completion is not None
    return call.completion.index


def _sent(call: Call) -> str:
    return f"{call.invoke.value} (op {call.invoke.index})"
