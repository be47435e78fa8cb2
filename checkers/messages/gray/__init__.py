# SPDX-License-Identifier: Apache-2.0
"""Judge of a gray release by queue isolation: the promises G1 to G7 of docs/gray.md.

G1 `wrong-colour`, G2 `never-received`, G3 `stranded`, G4 `received-out-of-order`, G5 `received-again`, G6
`owned-by-two` and `ownerless`, G7 `recoloured`. Times in which a member's colour is uncertain are not judged. Promises
that depend on a rebalance are judged by the number of rebalances, not by time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from checkers.base.cases import Case, anomalies, of_parts
from checkers.base.legality import conclude, divided, permission
from checkers.base.timeline import RunTimeline
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
        again = received_again(facts, both, scene.fault_intervals, self.copied)
        unread = "{n} were received by no member"
        found = [
            *_in_order(scene, "wrong-colour", other_colour(facts, False), "{n} were received by the other colour"),
            *_in_order(scene, "never-received", never_received(facts, True), unread, limit=READ_NS),
            *of_parts(
                scene,
                "never-received",
                divided(permit, _sorted(never_received(facts, False)), lambda case: [case.start]),
                f"{unread}, and are not in the queue at the end",
                whole=True,
            ),
            *_in_order(scene, "never-received", not_again(facts), "{n} were sent back, and not received once more"),
            *_in_order(scene, "stranded", stranded(facts), "{n} had no reader after the last gray member left"),
            *_in_order(scene, "received-out-of-order", out_of_order(facts), "{n} were received after a later one"),
            *_in_order(scene, "received-again", again, "{n} were received again without a reason"),
            *_in_order(scene, "owned-by-two", owned_by_two(both), "{n} times a queue had two owners"),
            *_in_order(scene, "ownerless", ownerless(facts), "{n} times a queue had no owner"),
            *_in_order(
                scene,
                "recoloured",
                other_colour(facts, True),
                "{n} were received by the other colour after an expansion",
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
        return conclude(self.name, run, found, stats, reason, unknown)


def _in_order(
    scene: RunTimeline, name: str, cases: Iterable[Case], what: str, limit: int | None = None
) -> Iterator[Anomaly]:
    return anomalies(scene, name, _sorted(cases), what, limit=limit, whole=True)


def _sorted(cases: Iterable[Case]) -> list[Case]:
    return sorted(cases, key=lambda case: case.start)
