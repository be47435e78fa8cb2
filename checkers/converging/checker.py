# SPDX-License-Identifier: Apache-2.0
"""Judges all objects of a history that converge, each key by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from checkers.converging import SET, Promise
from checkers.converging.counters import judge_counter
from checkers.converging.final_reads import QUIET, Calm, final_reads
from checkers.converging.sets import judge_set
from results.figures import SECOND
from results.history import Call, History
from results.op import OK
from results.verdict import Anomaly, CheckResult, Verdict, worst

if TYPE_CHECKING:
    from results.record import RunRecord

_SHOWN: Final = 20


class Converging:
    """Judges that every key is an object that keeps a promise of convergence. `ignore`: names of ops that are left out.

    `never-added`, `lost-element` and `wrong-sum` are violations. Without final reads, or if nothing was acknowledged,
    the verdict is `unknown`. `stats`: `keys`, `final_reads`, `notes` (one line each).
    """

    name = "converging"

    def __init__(self, promise: Promise, ignore: Collection[str] = ()) -> None:
        self.promise, self.ignore = promise, frozenset(ignore)

    def check(self, run: RunRecord) -> CheckResult:
        return self.examine(run.history)

    def examine(self, history: History) -> CheckResult:
        """`check`, for a history without a run."""
        calm, fs = Calm.of(history), self.promise.fs - self.ignore
        groups = {key: [c for c in calls if c.invoke.f in fs] for key, calls in history.by_key.items()}
        anomalies: list[Anomaly] = []
        verdicts: list[Verdict] = []
        reasons: list[str] = []
        notes: Counter[str] = Counter()
        read = 0
        for key, calls in groups.items():
            if not calls:
                continue
            try:
                verdict, reason, found, finals = self._key(key, calls, calm, notes)
            except ValueError as problem:
                why = f"the history makes no sense to the model {self.promise.name}: {_on(key)}{problem}"
                return CheckResult(self.name, Verdict.UNKNOWN, why)
            read += finals
            anomalies += found
            verdicts.append(verdict)
            if verdict == Verdict.UNKNOWN:
                reasons.append(f"{_on(key)}{reason}")
        if not calm.marked and read:
            note = (
                f"no read is marked as final: those count that begin {QUIET // SECOND} s after the last add and fault"
            )
            notes[note] = 1
        lines = [note.format(count) for note, count in notes.items() if count]
        stats: dict[str, Any] = {"keys": len(verdicts), "final_reads": read, "notes": lines}
        verdict = worst(verdicts)
        if verdict == Verdict.INVALID:
            more = f" ({len(anomalies):,} such cases)" if len(anomalies) > 1 else ""
            key = anomalies[0].key
            reason = f"{_on(key)}{anomalies[0].summary}{more}"
            stats["count"] = len(anomalies)
            return CheckResult(self.name, verdict, reason, anomalies[:_SHOWN], stats)
        if verdict == Verdict.UNKNOWN:
            several = f"{len(reasons)} of {len(verdicts)} keys undecided, the first: " if len(verdicts) > 1 else ""
            reason = f"{several}{reasons[0]}" if reasons else "nothing checked: no add or read is in the history"
            return CheckResult(self.name, verdict, reason, stats=stats)
        return CheckResult(self.name, verdict, f"{read:,} final reads have all that was acknowledged", stats=stats)

    def _key(
        self, key: str | None, calls: Sequence[Call], calm: Calm, notes: Counter[str]
    ) -> tuple[Verdict, str, Sequence[Anomaly], int]:
        """Verdict, reason, violations, and the number of final reads of one object."""
        finals = final_reads(calls, calm)
        judge = judge_set if self.promise is SET else judge_counter
        found = judge(key, calls, finals)
        notes.update(found.notes)
        notes["{:,} final reads have no result"] += finals.unanswered
        notes["{:,} reads that are marked as final began before an add was over, and do not count"] += finals.early
        if found.anomalies:
            return Verdict.INVALID, "", found.anomalies, len(finals.reads)
        if not any(call.outcome == OK for call in calls):
            return Verdict.UNKNOWN, f"nothing checked: none of {len(calls):,} ops is known to have happened", (), 0
        if not found.acknowledged:
            return Verdict.UNKNOWN, "nothing checked: no add is known to have happened", (), len(finals.reads)
        reason = finals.missing or found.doubt
        return Verdict.UNKNOWN if reason else Verdict.VALID, reason, (), len(finals.reads)


def _on(key: str | None) -> str:
    return "" if key is None else f"key {key}: "
