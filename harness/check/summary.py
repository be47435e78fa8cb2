"""The summary at the end of a run: verdict, one line per checker, path of the report, command to repeat the run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.parts import registry
from harness.plan.plan import Plan
from results.store import RunDir
from results.verdict import CheckResult, Judgement, Verdict

_NAMES = 20


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    unhealed  whether a fault is left on the cluster. run_id: the cluster's.
    """

    folder: RunDir
    judgement: Judgement
    seconds: float
    unhealed: bool = False
    run_id: str = ""

    def to_json(self) -> dict[str, Any]:
        """For scripts (`harness run --json`)."""
        return {
            "folder": str(self.folder.path.resolve()),
            "verdict": self.judgement.verdict.value,
            "reason": self.judgement.reason,
            "seconds": round(self.seconds, 1),
            "run_id": self.run_id,
        }


def summary(outcome: Outcome, plan: Plan) -> list[str]:
    """Every line answers a question: what happened, how do we know, where do I look, how do I see it again."""
    minutes, seconds = divmod(round(outcome.seconds), 60)
    faults = ", ".join(n.fault for n in plan.nemeses or plan.strikes) or "no faults"
    head = f"{outcome.judgement.verdict.value.upper()}   {plan.workload}, {faults}, seed {plan.seed}"
    lines = ["", f"{head}   {minutes} min {seconds} s"]
    for result in outcome.judgement.results:
        lines += check_lines(result)
    folder = _short(outcome.folder.path)
    lines += [
        f"  {'report':<{_NAMES}}{folder / 'report.html'}",
        f"  {'again':<{_NAMES}}harness run --plan {folder / 'plan.toml'}{_permissions(plan)}",
    ]
    return lines


def _permissions(plan: Plan) -> str:
    """What the plan had, and a plan alone cannot give."""
    backend = plan.cluster.backend
    known = registry.options_by_name(registry.backend_class(backend)) if backend != "auto" else {}
    granted = (spec for spec in known.values() if spec.permission and plan.cluster.options.get(spec.name))
    return "".join(f" {spec.flag}" for spec in granted)


def check_lines(result: CheckResult) -> list[str]:
    """One line for the checker, and one more for each of its first anomalies."""
    lines = [f"  {result.checker:<{_NAMES}}{result.verdict.value:<9} {result.reason}"]
    if result.verdict != Verdict.VALID:
        lines += [f"  {'':<{_NAMES}}- {a.name}: {a.summary}" for a in result.anomalies[:3]]
        if len(result.anomalies) > 3:
            lines.append(f"  {'':<{_NAMES}}- and {len(result.anomalies) - 3} more in the report")
    return lines + [f"  {'':<{_NAMES}}excused {excuse}" for excuse in result.excuses]


def _short(path: Path) -> Path:
    relative = os.path.relpath(path)
    return Path(relative) if not relative.startswith("..") else path
