"""Is this a history at all? Run before any other judge (design.md, section 4; invariants of Jepsen's `history.clj`)."""

from __future__ import annotations

from collections.abc import Iterator

from results.op import INFO, INVOKE, NEMESIS, OP_TYPES, Op
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

_SHOWN = 20


class WellFormed:
    """Dense indices, time that never runs back, one open op per process, completions that match their invocation,
    silence after `info`. A breach is a fault of the harness, not of the servers: `harness-failure`.
    """

    name = "well-formed"

    def check(self, run: RunRecord) -> CheckResult:
        """`stats["ops"]` counts the ops looked at."""
        found = list(breaches(run.history))
        stats = {"ops": len(run.history)}
        if found:
            return CheckResult(
                self.name,
                Verdict.HARNESS_FAILURE,
                f"{len(found)} breaches, the first: {found[0].summary}",
                anomalies=found[:_SHOWN],
                stats=stats,
            )
        return CheckResult(self.name, Verdict.VALID, f"{len(run.history)} ops", stats=stats)


def breaches(history: object) -> Iterator[Anomaly]:
    """Every breach of a history's invariants, in order of index."""
    open_ops: dict[int, Op] = {}
    gone: dict[int, Op] = {}
    before: Op | None = None
    for position, op in enumerate(history):  # type: ignore[arg-type,var-annotated]
        if op.index != position:
            yield _breach(f"the op at position {position} has index {op.index}", op)
        if before is not None and op.time < before.time:
            yield _breach(f"op {op.index} is {before.time - op.time} ns earlier than the op before it", op)
        before = op
        if op.type not in OP_TYPES:
            yield _breach(f"op {op.index} has type {op.type!r}", op)
        elif op.type == INVOKE:
            if op.process in open_ops:
                yield _breach(
                    f"process {op.process} invokes op {op.index} although its op "
                    f"{open_ops[op.process].index} is still open",
                    op,
                )
            if op.process in gone:
                yield _breach(f"process {op.process} acts again (op {op.index}) after its `info`", op)
            open_ops[op.process] = op
        elif not op.is_event:
            invoked = open_ops.pop(op.process, None)
            if invoked is None:
                yield _breach(f"process {op.process} completes a {op.f} that it never invoked (op {op.index})", op)
            elif (invoked.f, invoked.key) != (op.f, op.key):
                yield _breach(
                    f"op {op.index} completes {op.f} {op.key} where process {op.process} had invoked "
                    f"{invoked.f} {invoked.key} (op {invoked.index})",
                    op,
                )
            if op.type == INFO and op.process != NEMESIS:
                gone[op.process] = op


def _breach(summary: str, op: Op) -> Anomaly:
    return Anomaly("malformed-history", summary, key=op.key, ops=[op.index], window=(op.time, op.time))
