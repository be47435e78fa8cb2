# SPDX-License-Identifier: Apache-2.0
"""Judges that a history is well-formed. This check runs first (design.md, section 4; invariants of Jepsen's
`history.clj`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from results.history import History
from results.op import INFO, INVOKE, Op
from results.verdict import Anomaly, CheckResult, Verdict

if TYPE_CHECKING:
    from results.record import RunRecord

_SHOWN = 20


class WellFormed:
    """Dense indices, time that never runs back, one open op per process, completions that match their invocation,
    silence after `info`. A breach is a fault of the harness, not of the servers: `harness-failure`.
    """

    name = "well-formed"

    def check(self, run: RunRecord) -> CheckResult:
        """`stats["ops"]` counts the checked ops."""
        return self.examine(run.history)

    def examine(self, history: History) -> CheckResult:
        """`check`, for a history without a run."""
        every = breaches(history)
        found = list(islice(every, _SHOWN))
        stats = {"ops": len(history)}
        if found:
            count = len(found) + sum(1 for _ in every)
            return CheckResult(
                self.name,
                Verdict.HARNESS_FAILURE,
                f"{count} breaches, the first: {found[0].summary}",
                anomalies=found,
                stats=stats,
            )
        return CheckResult(self.name, Verdict.VALID, f"{len(history)} ops", stats=stats)


def breaches(history: Iterable[Op]) -> Iterator[Anomaly]:
    """Yields every breach of a history's invariants, in order of index."""
    whole = history if isinstance(history, History) else History(history)
    mispaired = whole.mispaired
    misfit = next(mispaired, None)
    gone: set[int] = set()
    before: Op | None = None
    for position, op in enumerate(whole):
        if op.index != position:
            yield _breach(f"the op at position {position} has index {op.index}", op)
        if before is not None and op.time < before.time:
            yield _breach(f"op {op.index} is {before.time - op.time} ns earlier than the op before it", op)
        before = op
        while misfit is not None and misfit[0] is op:
            yield _breach(misfit[1], op)
            misfit = next(mispaired, None)
        if op.type == INVOKE and op.process in gone:
            yield _breach(f"process {op.process} continues (op {op.index}) after its `info`", op)
        elif op.type == INFO and op.is_client:
            gone.add(op.process)


def _breach(summary: str, op: Op) -> Anomaly:
    return Anomaly("malformed-history", summary, key=op.key, ops=[op.index], window=(op.time, op.time))
