# SPDX-License-Identifier: Apache-2.0
"""Linearizability as a checker of runs: every key on its own, the worst verdict wins."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from checkers.linearizability import direct
from checkers.linearizability.budget import Budget
from checkers.linearizability.check import calls_by_key, check, check_columns, judged_together, nothing_happened
from checkers.linearizability.history.encode import insist_on_pairs
from checkers.linearizability.models.specification import Model
from checkers.linearizability.result import LinearResult
from results.history import Call, History
from results.op import OK
from results.verdict import Anomaly, CheckResult, Verdict

if TYPE_CHECKING:
    import pyarrow as pa

    from results.record import RunRecord

_DETAILED: Final = 20
"""The number of bad keys that are explained; further ones are only counted."""

_TOTAL: Final = 40_000_000
"""Steps for a whole run. Once they are used up, a key gets the steps of `Budget.per_event`."""


class Linearizable:
    """Judges that every key is a linearizable object of a model. Locality makes keys independent (Herlihy and Wing
    1990).

    `budget` is that of one key, `total_steps` that of all together; verdicts do not depend on the machine's speed.
    `ignore`: names of ops of the model that are left out. A run's other ops belong to its workload's other checkers.
    """

    name = "linearizability"

    def __init__(
        self,
        model: Model[Any],
        budget: Budget = Budget(),  # noqa: B008 - frozen
        total_steps: int = _TOTAL,
        ignore: Collection[str] = (),
    ) -> None:
        self.model, self.budget, self.total_steps, self.ignore = model, budget, total_steps, ignore

    def check(self, run: RunRecord) -> CheckResult:
        """An anomaly `nonlinearizable` per bad key. Unknown if a budget ran out, or nothing was there to check.

        `stats`: `keys`, `ops` (completed, checked), `invalid_keys`, `unknown_keys`, `slowest_key`, `slowest_key_ms`,
        `work`, `algorithms` (the number of keys that each decided).
        """
        return self.examine(run.history)[0]

    def examine(self, history: History) -> tuple[CheckResult, Mapping[str | None, LinearResult]]:
        """`check`, with the evidence for each key: witnesses, cores, paths."""
        results: dict[str | None, LinearResult] = {}
        try:
            insist_on_pairs(history)
        except ValueError as problem:
            return CheckResult(self.name, Verdict.UNKNOWN, str(problem)), results
        seconds: dict[str | None, float] = {}
        left, explained = self.total_steps, 0
        groups = calls_by_key(history, self.model, self.ignore)
        for key, calls in groups:
            steps = min(self.budget.steps, max(left, 0))
            budget = replace(self.budget, steps=steps, explain=self.budget.explain if explained < _DETAILED else 0)
            started = time.perf_counter()
            try:
                result = check(calls, self.model, budget)
            except ValueError as problem:
                reason = f"the history makes no sense to the model {self.model.name}: {_on(key)}{problem}"
                return CheckResult(self.name, Verdict.UNKNOWN, reason), results
            left -= result.work
            explained += result.verdict == Verdict.INVALID
            results[key], seconds[key] = self._sure(result, calls), time.perf_counter() - started
        found = judged_together(results, dict(groups))
        merged = self._merge(found, seconds)
        if found and not any(call.outcome == OK for _, calls in groups for call in calls):
            # (Each key says so of itself; this is on all of them.)
            merged = replace(merged, reason=nothing_happened(sum(len(calls) for _, calls in groups)).reason)
        return merged, found

    def _sure(self, result: LinearResult, calls: Sequence[Call]) -> LinearResult:
        """The result, or `unknown` for a violation that a simplification of the model may cause."""
        doubt = self.model.doubt(calls) if result.verdict == Verdict.INVALID else None
        if doubt is None:
            return result
        return LinearResult(
            Verdict.UNKNOWN, f"{doubt} (otherwise, {result.reason})", algorithm=result.algorithm, work=result.work
        )

    def examine_columns(self, table: pa.Table) -> tuple[CheckResult, Mapping[str | None, LinearResult]] | None:
        """`examine` of a sealed history's columns, with no object for an op (`direct`). None if that way does not lead
        to a verdict: then it has to be read, and judged, op by op.
        """
        if not direct.applies(self.model):
            return None
        # Imported here: a check without such a file need not wait for Arrow.
        from checkers.linearizability.history.arrow import calls_at, objects

        results: dict[str | None, LinearResult] = {}
        seconds: dict[str | None, float] = {}
        fs = self.model.fs.difference(self.ignore)
        for key, ops in objects(table, fs, self.model.aliases) or ():
            started = time.perf_counter()
            result = check_columns(ops, self.model, key, self.budget, partial(calls_at, table, fs))
            if result is None:
                return None
            results[key], seconds[key] = result, time.perf_counter() - started
        return (self._merge(results, seconds), results) if results else None

    def _merge(self, results: Mapping[str | None, LinearResult], seconds: Mapping[str | None, float]) -> CheckResult:
        if not results:
            names = sorted(self.model.fs - self.model.aliases.keys())
            reason = f"nothing checked: no {' or '.join(names)} is in the history"
            return CheckResult(self.name, Verdict.UNKNOWN, reason)
        bad = {key: r for key, r in results.items() if r.verdict == Verdict.INVALID}
        open_ = {key: r for key, r in results.items() if r.verdict == Verdict.UNKNOWN}
        ops = sum(r.checked for r in results.values())
        slowest = max(seconds, key=seconds.__getitem__)
        stats = {
            "keys": len(results),
            "ops": ops,
            "invalid_keys": len(bad),
            "unknown_keys": len(open_),
            "slowest_key": slowest,
            "slowest_key_ms": round(seconds[slowest] * 1000, 1),
            "work": sum(r.work for r in results.values()),
            "algorithms": dict(Counter(r.algorithm for r in results.values())),
        }
        anomalies = [self._anomaly(key, r) for key, r in list(bad.items())[:_DETAILED]]
        if bad:
            more = f" ({len(bad)} of {len(results)} keys are not linearizable)" if len(results) > 1 else ""
            return CheckResult(self.name, Verdict.INVALID, f"{anomalies[0].summary}{more}", anomalies, stats)
        if open_:
            key, result = next(iter(open_.items()))
            reason = f"{len(open_)} of {len(results):,} keys undecided, the first: {_on(key)}{result.reason}"
            return CheckResult(self.name, Verdict.UNKNOWN, reason, stats=stats)
        reason = f"{len(results):,} key{'s' * (len(results) != 1)}, {ops:,} ops"
        return CheckResult(self.name, Verdict.VALID, reason, stats=stats)

    def _anomaly(self, key: str | None, result: LinearResult) -> Anomaly:
        details = {
            "model": self.model.name,
            "algorithm": result.algorithm,
            "failing_op": result.failing_op,
            "states": list(result.states),
            "core_is_minimal": result.core_is_minimal,
            "final_paths": [{"state": state, "last_op": last} for state, last in result.final_paths],
        }
        return Anomaly("nonlinearizable", result.reason, key, tuple(result.core), result.window, details)


def _on(key: str | None) -> str:
    return "" if key is None else f"key {key}: "
