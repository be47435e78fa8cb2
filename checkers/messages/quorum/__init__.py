# SPDX-License-Identifier: Apache-2.0
"""Quorum write and automatic downgrade (RIP-34): how many replicas hold a message that was acknowledged.

The conditions for an acknowledgement (code 0), by the rule of its cluster (`checkers.messages.quorum.rules`):

* Without a downgrade, `inSyncReplicas` replicas hold it; with `enableAutoInSyncReplicas` as many of these as were alive
  and in sync, and `minInSyncReplicas` at least; with `allAckInSyncStateSet` every member of the controllers'
  SyncStateSet; in a Raft log a majority.
* A look at all replicas (`held`) shows which of them certainly do not have it (`too-few-hold`). A replica that could
  not be read may have it.
* No replica that was down, or cut off from the master, all through a send can have confirmed it: if too few others are
  left, the acknowledgement is wrong (`acked-below-quorum`, `acked-below-minimum`).

The conditions for the downgrade and its end, while nothing changes, with limits from the last change on
(`checkers.messages.quorum.calm`):

* with enough replicas left, sends are acknowledged again (`downgrade-late`), and do not wait in vain for the missing
  ones (`late-timeout`);
* with too few, they are refused, not stored and answered with a time-out (`not-refused`);
* with all back, the master counts all of them again (`replica-not-counted`).

`aborted-read` judges that no read returns a refused message.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from checkers.base.cases import anomalies
from checkers.base.legality import conclude
from checkers.base.timeline import RunTimeline
from checkers.messages.ops import of_messages
from checkers.messages.quorum.calm import CalmTimes
from checkers.messages.quorum.copies import below_quorum, too_few
from checkers.messages.quorum.facts import Facts, kind_of
from results.figures import SECOND
from results.op import OK
from results.record import RunRecord
from results.verdict import CheckResult

__all__ = ["QuorumAck"]


class QuorumAck:
    """Limits in seconds. `detected_within_s`: until a master notices that a replica is gone. `returns_within_s`: until
    the master counts a replica that answers again.
    """

    name = "quorum"

    def __init__(self, detected_within_s: float = 6, returns_within_s: float = 15) -> None:
        self.detected, self.returns = int(detected_within_s * SECOND), int(returns_within_s * SECOND)

    @of_messages
    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `sends` by outcome, `looks` at the replicas, `by_file` (replicas whose file was read), `unseen`
        (replicas that could not be read), `copies` (number of replicas that certainly held a message -> looks),
        `survives` (the number of machines whose loss the message with the fewest copies survives), `downgrades` (after
        each change with enough replicas left, the time until the first acknowledgement, s).
        """
        facts, scene = Facts(run), RunTimeline(run)
        times = CalmTimes(facts, self.detected, self.returns)
        below = list(below_quorum(facts))
        few, fewer = ([case for case, minimum in below if minimum is which] for which in (False, True))
        acked = "{n} sends were acknowledged although fewer replicas than"
        found = [
            *anomalies(
                scene, "too-few-hold", list(too_few(facts)), "{n} acknowledgements were held by too few replicas"
            ),
            *anomalies(scene, "acked-below-quorum", few, f"{acked} inSyncReplicas could have the message"),
            *anomalies(scene, "acked-below-minimum", fewer, f"{acked} minInSyncReplicas could have the message"),
            *anomalies(
                scene, "downgrade-late", times.late_downgrades, "{n} times without an acknowledgement were too long"
            ),
            *anomalies(scene, "late-timeout", times.late_timeouts, "{n} sends waited for replicas that were long gone"),
            *anomalies(
                scene, "not-refused", times.not_refused, "{n} sends were stored although too few replicas were left"
            ),
            *anomalies(scene, "replica-not-counted", list(times.not_counted()), "{n} replicas were not counted again"),
        ]
        unknown = None
        if not any(c.outcome == OK for c in facts.sends):
            unknown = "no send was acknowledged"
        elif not facts.looks:
            unknown = "nobody looked at the replicas"
        reason = f"{len(facts.looks):,} looks at the replicas of {len(facts.sends):,} sends"
        return conclude(self.name, run, found, _stats(facts, times), reason, unknown)


def _stats(facts: Facts, times: CalmTimes) -> dict[str, Any]:
    """See `QuorumAck.check`."""
    kinds = Counter(kind_of(c) for c in facts.sends)
    copies: Counter[int] = Counter()
    unseen = by_file = 0
    for look in facts.looks:
        assert look.completion is not None
        held = facts.held(look)
        send = facts.by_id.get(look.completion.value["id"])
        unseen += sum(has is None for has in held.values())
        by_file += len(look.completion.extra.get("by_file", ()))
        if send is not None and None not in held.values():
            copies[sum(has is True for has in held.values())] += 1
    return {
        "sends": dict(sorted(kinds.items())),
        "looks": len(facts.looks),
        "by_file": by_file,
        "unseen": unseen,
        "copies": {str(n): copies[n] for n in sorted(copies)},
        "survives": min(copies) - 1 if copies else None,
        "downgrades": times.downgrades,
    }
