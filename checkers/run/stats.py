# SPDX-License-Identifier: Apache-2.0
"""Counts and latencies by kind of op; judges that the run did enough for a verdict.

A run that did too little is `unknown`, never `valid` (design.md, section 4; Jepsen's `stats`, and etcd's rule that a
run below a minimum of traffic proves nothing).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from results.figures import quantile
from results.history import Call
from results.op import INFO
from results.record import RunRecord
from results.verdict import CheckResult, Verdict

_MS = 1_000_000


class Stats:
    """Counts of ok, fail, info and latency quantiles (ms) by f. `unknown` if a kind in `needed` has no `ok`."""

    name = "stats"

    def __init__(self, needed: Sequence[str]) -> None:
        self.needed = tuple(needed)

    def check(self, run: RunRecord) -> CheckResult:
        by_f: dict[str, list[Call]] = {}
        for call in run.history.clients.calls:
            by_f.setdefault(call.invoke.f, []).append(call)
        stats = {f: summary(calls) for f, calls in sorted(by_f.items())}
        errors = Counter(
            f"{op.f}: {op.error}" for op in run.history.clients if op.error is not None and op.type in ("fail", INFO)
        )
        figures: dict[str, Any] = {"by_f": stats, "errors": dict(errors.most_common(20))}
        silent = [f for f in self.needed if not stats.get(f, {}).get("ok")]
        total = summary(run.history.clients.calls)
        reason = f"{total['count']} ops: {total['ok']} ok, {total['fail']} fail, {total['info']} info"
        if silent:
            return CheckResult(
                self.name, Verdict.UNKNOWN, f"no {' and no '.join(silent)} succeeded; {reason}", stats=figures
            )
        return CheckResult(self.name, Verdict.VALID, reason, stats=figures)


def summary(calls: Sequence[Call]) -> dict[str, Any]:
    """`count`, `ok`, `fail`, `info`, and `p50`, `p95`, `p99`, `max` of the latency of the ok ones in ms (or None)."""
    outcomes = Counter(call.outcome for call in calls)
    took = sorted((call.end - call.start) / _MS for call in calls if call.outcome == "ok" and call.end is not None)
    latency = {
        name: round(quantile(took, q), 3) if took else None
        for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
    }
    return {"count": len(calls), "ok": outcomes["ok"], "fail": outcomes["fail"], "info": outcomes["info"], **latency}
