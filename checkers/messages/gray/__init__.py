"""Judge of a gray release by queue isolation: the promises G1 to G7 of docs/gray.md.

G1 `wrong-colour`, G2 `never-received`, G3 `stranded`, G4 `received-out-of-order`, G5 `received-again`, G6
`owned-by-two` and `ownerless`, G7 `recoloured`. Times in which a member's colour is uncertain are not judged. Promises
that depend on a rebalance are judged by the number of rebalances, not by time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from checkers.base.legality import divided, permission, settled
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.gray.case import Case
from checkers.messages.gray.facts import Facts
from checkers.messages.gray.owners import doubles, owned_by_two, ownerless
from checkers.messages.gray.receptions import (
    READ_NS,
    never_received,
    not_again,
    other_colour,
    out_of_order,
    received_again,
    stranded,
)
from checkers.messages.ops import of_messages
from results.figures import SECOND
from results.op import OK
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

__all__ = ["Gray"]

_LISTED = 50
_OPS = 12


class Gray:
    """`copied_within_s`: the largest age of a new master's committed offsets. `lease_s`: the time for which the lock of
    a member that is gone keeps a queue from the others; 0: members do not lock queues.
    """

    name = "gray"

    def __init__(self, copied_within_s: float = 15, lease_s: float = 0) -> None:
        self.copied, self.lease = int(copied_within_s * SECOND), int(lease_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `sent` and `received` messages by colour, `again` (receptions beyond the first), `sessions`,
        `rebalances`, `switches` (flags that an operator changed), `without_gray` (times without a gray member),
        `returned` (messages that were sent back).
        """
        facts, scene = Facts(run.history, self.lease), RunTimeline(run)
        permit = permission(run, "lost", "dirty-read")
        both = list(doubles(facts))
        again = list(received_again(facts, both, scene.fault_intervals, self.copied))
        found = [
            *_anomalies(scene, "wrong-colour", list(other_colour(facts, False)), "were received by the other colour"),
            *_anomalies(
                scene,
                "never-received",
                list(never_received(facts, True)),
                "were received by no member",
                limit_s=READ_NS / SECOND,
            ),
            *(
                anomaly
                for part in divided(permit, never_received(facts, False), lambda case: [case.start])
                for anomaly in _anomalies(
                    scene, "never-received", part.cases, "were received by no member", part.legal, more=part.details
                )
            ),
            *_anomalies(scene, "never-received", list(not_again(facts)), "were sent back, and not received once more"),
            *_anomalies(scene, "stranded", list(stranded(facts)), "had no reader after the last gray member left"),
            *_anomalies(scene, "received-out-of-order", list(out_of_order(facts)), "were received after a later one"),
            *_anomalies(scene, "received-again", again, "were received again without a reason"),
            *_anomalies(scene, "owned-by-two", list(owned_by_two(both)), "times a queue had two owners"),
            *_anomalies(scene, "ownerless", list(ownerless(facts)), "times a queue had no owner"),
            *_anomalies(
                scene,
                "recoloured",
                list(other_colour(facts, True)),
                "were received by the other colour after an expansion",
            ),
        ]
        sent = {c: sum(s.colour == c for s in facts.sends.values()) for c in ("gray", "base")}
        got = {c: sum(s.colour == c for s in facts.sends.values() if s.id in facts.first) for c in sent}
        flags = [c for c in facts.calls if c.invoke.f == "flag" and c.outcome == OK]
        stats = {
            "sent": sent,
            "received": got,
            "again": len(facts.receptions) - len(facts.first),
            "sessions": len(facts.sessions),
            "rebalances": sum(len(s.rebalances) for s in facts.sessions),
            "switches": len(flags),
            "without_gray": len(list(facts.without_gray())),
            "returned": len(facts.returned),
        }
        unknown = None
        if not all(got.values()):
            unknown = f"no {' and no '.join(c for c, n in got.items() if not n)} message was received"
        elif not facts.drained:
            unknown = "the queues were not drained at the end, so messages that were never received are unknown"
        reason = (
            f"{sum(got.values()):,} of {sum(sent.values()):,} messages received, {stats['again']:,} times again; "
            f"{len(flags)} switches, {stats['rebalances']:,} rebalances"
        )
        return settled(self.name, run, found, stats, reason, unknown)


def _anomalies(
    scene: RunTimeline,
    name: str,
    cases: Sequence[Case],
    what: str,
    legal: str | None = None,
    limit_s: float | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Anomaly]:
    """One anomaly for all cases of a kind; the first is described in full. `legal`: why they are permitted. `limit_s`:
    its limit, which counts only time with processors. `more`: further details.
    """
    if not cases:
        return
    first = min(cases, key=lambda case: case.start)
    window = min(c.start for c in cases), max(c.end for c in cases)
    keys = {case.key for case in cases}
    group = group_of(first.key or "")
    yield Anomaly(
        name,
        f"{len(cases):,} {what}: {first.text}.{scene.describe(first.start, first.end, group)}",
        first.key if len(keys) == 1 else None,
        sorted({i for case in (first, *cases[:5]) for i in case.ops})[:_OPS],
        window,
        {
            "count": len(cases),
            "first": [case.text for case in cases[:_LISTED]],
            **more,
            **scene.details(*window, group),
        },
        legal=legal,
        limit_s=limit_s,
    )
