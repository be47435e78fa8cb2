# SPDX-License-Identifier: Apache-2.0
"""Judges that the faults took effect and were healed. A run whose faults had no effect proves nothing."""

from __future__ import annotations

from collections.abc import Mapping

from results.fault_intervals import fault_intervals
from results.op import INVOKE
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict


class Faults:
    """`unknown` if faults were planned and none was seen to take effect, if clients did nothing while one was in force,
    or if the history ends during a fault (Ctrl-C, `kill -9`: the heal then takes place, but is not journalled);
    `harness-failure` if one could not be healed.
    """

    name = "faults"

    def __init__(self, planned: bool) -> None:
        self.planned = planned

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `strikes`, `seen`, `healed`, `idle`: strikes during which no client op was invoked. `skipped`:
        those whose event did not occur, or whose time was over before they could begin.
        """
        found = fault_intervals(run.history)
        seen = [s for s in found if s.seen]
        finished = any(op.extra.get("phase") == "final" for op in run.history)
        open_ones = [s for s in found if s.end_ns is None]
        unhealed = [s for s in open_ones if finished or s.error is not None]
        cut = [s for s in open_ones if s not in unhealed]
        end = run.history[-1].time if len(run.history) else 0
        times = [op.time for op in run.history.clients if op.type == "invoke"]
        idle = [
            s.id for s in seen if not any(s.start_ns <= t <= (end if s.end_ns is None else s.end_ns) for t in times)
        ]
        values = [op.value for op in run.history.nemesis if op.f == "skip" and op.type == INVOKE]
        skipped = [value.get("id") if isinstance(value, Mapping) else None for value in values]
        stats = {"strikes": len(found), "seen": len(seen), "healed": len(found) - len(open_ones), "idle": idle}
        stats |= {"skipped": skipped} if skipped else {}
        if not self.planned and not found:
            return CheckResult(self.name, Verdict.VALID, "none planned, none injected", stats=stats)
        reason = f"{len(seen)} of {len(found)} seen to take effect" + f", {len(skipped)} skipped" * bool(skipped)
        if unhealed:
            names = ", ".join(f"{s.fault} {s.id}" for s in unhealed)
            return CheckResult(
                self.name,
                Verdict.HARNESS_FAILURE,
                f"{reason}; heal not seen: {names}",
                anomalies=[
                    Anomaly("unhealed-fault", f"{s.fault} {s.id} has no observed heal", window=(s.start_ns, end))
                    for s in unhealed
                ],
                stats=stats,
            )
        if cut:
            names = ", ".join(f"{s.fault} {s.id}" for s in cut)
            return CheckResult(self.name, Verdict.UNKNOWN, f"{reason}; the history ends during {names}", stats=stats)
        if not seen:
            return CheckResult(self.name, Verdict.UNKNOWN, f"{reason}: the run shows nothing about faults", stats=stats)
        if idle:
            return CheckResult(self.name, Verdict.UNKNOWN, f"{reason}, but no client op during {idle}", stats=stats)
        return CheckResult(self.name, Verdict.VALID, f"{reason}, all healed", stats=stats)
