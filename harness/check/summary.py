# SPDX-License-Identifier: Apache-2.0
"""The summary at the end of a run: one line per checker and anomaly, the path of the report, the command to repeat the
run, and last the verdict, where the prompt of a shell leaves it visible.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import terminal
from harness.parts import registry
from harness.plan.plan import Plan
from results.store import RunDir
from results.verdict import CheckResult, Judgement, Verdict

_NAMES = 20
_REASON = 2 + _NAMES + 10
"""The column of the reasons."""
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    unhealed  whether a fault is left on the cluster. run_id: the cluster's.
    """

    folder: RunDir
    judgement: Judgement
    seconds: float
    unhealed: bool = False
    run_id: str = ""

    def to_json(self) -> dict[str, Any]:
        """The facts for scripts (`harness run --json`)."""
        return {
            "folder": str(self.folder.path.resolve()),
            "verdict": self.judgement.verdict.value,
            "reason": self.judgement.reason,
            "known": [finding.id for finding in self.judgement.known],
            "new": list(self.judgement.new or ()),
            "seconds": round(self.seconds, 1),
            "run_id": self.run_id,
        }


def summary(outcome: Outcome, plan: Plan) -> list[str]:
    """The lines of the summary: the evidence, the files, the command that repeats the run, and the result."""
    judgement = outcome.judgement
    minutes, seconds = divmod(round(outcome.seconds), 60)
    faults = ", ".join(n.fault for n in plan.nemeses or plan.strikes) or "no faults"
    head = f"{judgement.verdict.value.upper()}   {plan.workload}, {faults}, seed {plan.seed}"
    lines = [""]
    for result in judgement.results:
        lines += check_lines(result, judgement.new)
    again = f"harness run --plan {_short(outcome.folder.path) / 'plan.toml'}{_permissions(plan)}"
    lines += [_line("report", str(_short(outcome.folder.path) / "report.html")), _line("again", again)]
    lines += [
        _line(f"without {finding.id}", f"{again} {finding.without}") for finding in judgement.known if finding.without
    ]
    return [*lines, *known_lines(judgement), f"{head}   {minutes} min {seconds} s"]


def known_lines(judgement: Judgement) -> list[str]:
    """Known findings and new anomalies, a line each; empty if nothing makes the run invalid, or no record was used."""
    if judgement.new is None or not (judgement.known or judgement.new):
        return []
    lines = [
        part
        for finding in judgement.known
        for part in _wrapped(_line("known", f"{finding.id:<3} {finding.describe()}"), _NAMES + 6)
    ]
    return [*lines, _line("new", ", ".join(judgement.new) or "nothing")]


def _line(name: str, text: str) -> str:
    return f"  {name:<{_NAMES}}{text}"


def _permissions(plan: Plan) -> str:
    """Flags of the plan's permissions, which a user must repeat on the command line: a plan alone cannot grant them."""
    backend = plan.cluster.backend
    known = registry.find(registry.CLUSTERS, backend).options if backend != "auto" else {}
    granted = (spec for spec in known.values() if spec.permission and plan.cluster.options.get(spec.name))
    return "".join(f" {spec.flag}" for spec in granted)


def check_lines(result: CheckResult, new: Sequence[str] | None = None, *, whole: bool = False) -> list[str]:
    """One line for the checker, and one more for each of its first anomalies; on a narrow terminal a reason takes
    several.

    new    names of the anomalies that no finding explains; the report alone describes the others. None: it describes
           none of them as known.
    whole  an anomaly's line has all that is known about it, since no report has the rest.
    """
    lines = _wrapped(_line(result.checker, f"{result.verdict.value:<9} {result.reason}"), _REASON)
    if result.verdict != Verdict.VALID:
        shown = [a for a in result.anomalies if new is None or not a.counts or a.name in new]
        found = [_line("", f"- {a.name}: {a.summary}") for a in shown[:3]]
        lines += found if whole else map(_first_sentence, found)
        if shown and len(result.anomalies) > 3:
            lines.append(_line("", f"- and {len(result.anomalies) - 3} more in the report"))
    return lines + [part for excuse in result.excuses for part in _wrapped(_line("", f"excused {excuse}"), _REASON)]


def _wrapped(line: str, indent: int) -> list[str]:
    return terminal.wrapped(line, terminal.columns(sys.stdout), indent)


def _first_sentence(line: str) -> str:
    """The part of an anomaly's line that one line of the terminal holds. The report has the rest."""
    first = _SENTENCE_END.split(line, maxsplit=1)[0]
    return terminal.fitted(first, terminal.columns(sys.stdout))


def _short(path: Path) -> Path:
    relative = os.path.relpath(path)
    return Path(relative) if not relative.startswith("..") else path
