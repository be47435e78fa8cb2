# SPDX-License-Identifier: Apache-2.0
"""Judges that every acknowledged message has a unique id (Jepsen's `checker/unique-ids`).

RocketMQ's `offsetMsgId` is the broker's address and the message's position in its CommitLog, over all queues. Two
acknowledged messages with one id were written to the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkers.base.legality import Part, conclude, divided, permission
from checkers.base.timeline import RunTimeline
from checkers.messages.ops import of_messages
from results.figures import clock, many
from results.history import Call
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_SHOWN = 20
"""The largest number of anomalies; the ids beyond are in the count of the last one."""


class MessageIds:
    """Compares the `message_id` of acknowledgements (docs/histories.md), in any form.

    A history without ids has nothing to compare: it is valid, with that reason. If the loss of acknowledged messages is
    permitted, so is the second use of their ids.
    """

    name = "message-ids"

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `ids`, the number of different ones."""
        owners: dict[str, Call] = {}
        reused: dict[str, list[Call]] = {}
        for call in run.history.clients.calls:
            done = call.completion
            if call.invoke.f != "send" or done is None or done.type != "ok":
                continue
            identity = done.extra.get("message_id")
            if identity is None:
                continue
            first = owners.setdefault(identity, call)
            if first is not call:
                reused.setdefault(identity, [first]).append(call)
        stats = {"ids": len(owners)}
        reason = f"{len(owners):,} ids, each assigned once" if owners else "no acknowledgement carries a message id"
        if reused:
            reason = f"{len(owners):,} ids"
        return conclude(self.name, run, _anomalies(run, reused), stats, reason)


def _anomalies(run: RunRecord, reused: dict[str, list[Call]]) -> list[Anomaly]:
    scene, found = RunTimeline(run), []
    # If the first message with an id may be lost, its place in the log is free for another one.
    for part in divided(permission(run, "lost"), reused, lambda identity: [_end(reused[identity][0])]):
        groups = [[identity] for identity in part.cases]
        if len(groups) > _SHOWN:
            groups[_SHOWN - 1 :] = [[identity for group in groups[_SHOWN - 1 :] for identity in group]]
        found += [_anomaly(scene, part, group, [reused[identity] for identity in group]) for group in groups]
    return found


def _anomaly(scene: RunTimeline, part: Part[str], ids: Sequence[str], calls: Sequence[Sequence[Call]]) -> Anomaly:
    first, *others = calls[0]
    start, end = first.invoke.time, max(_end(call) for call in others)
    givers = "; ".join(
        f"message {call.invoke.value} of {call.invoke.key}, acknowledged by {_node(call)} at {clock(_end(call))}"
        for call in calls[0][:4]
    )
    return Anomaly(
        "reused-message-id",
        f"{many(len(ids), 'message id')} assigned to more than one message: {ids[0]} to {givers}."
        + scene.describe(start, end),
        first.invoke.key if all(call.invoke.key == first.invoke.key for call in others) else None,
        sorted(call.invoke.index for call in calls[0]),
        (start, end),
        {"count": len(ids), "ids": list(ids[:50]), **part.details, **scene.details(start, end)},
        part.legal,
    )


def _end(call: Call) -> int:
    return call.invoke.time if call.completion is None else call.completion.time


def _node(call: Call) -> str:
    done = call.completion
    return str(
        (done.extra if done is not None else {}).get("node") or call.invoke.extra.get("node") or "an unknown node"
    )
