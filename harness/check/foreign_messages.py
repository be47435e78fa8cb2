# SPDX-License-Identifier: Apache-2.0
"""`harness check --workload NAME`: checks a history of messages from any program, by its ops alone.

A run of the harness has more than its history: nodes, roles, faults, a final phase. A foreign history does not need
these. Only checkers of content take part, and only those for which the history has ops. docs/histories.md describes the
input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from checkers.base.api import judge
from checkers.base.schema import BadOp
from checkers.messages.ops import FORMS, validate
from checkers.run.wellformed import WellFormed
from harness.check.decision import NOTHING_THERE, DecisionTime
from harness.check.report import CheckOptions, CheckReport
from harness.check.summary import check_lines
from harness.parts import registry
from results.errors import HistoryError
from results.formats import ForeignHistory, OpenedHistory
from results.history import History
from results.op import INVOKE, OK
from results.record import RunRecord
from results.verdict import Judgement, Verdict

_PROBLEMS = 5


def judged(history: OpenedHistory, shown: str, workload: str, check_options: CheckOptions) -> CheckReport:
    """Judges a file. Raises HistoryError for its content, with the line if the format has one line for each op."""
    with history.limited(check_options.memory):
        foreign = history.read(check_options.options)
    record, clients = RunRecord(foreign.history), foreign.history.clients
    notes, damage = tuple(foreign.notes), tuple(foreign.damage)
    whole = CheckReport(shown, Verdict.UNKNOWN, "", workload, ops=len(clients), notes=notes, damage=damage)
    _insist_on_messages(history.path, workload, clients, check_options)
    problems = validate(foreign.history, _PROBLEMS + 1)
    if problems:
        raise _refusal(history, foreign, problems)
    found = judge(record, [WellFormed()])
    clock = DecisionTime()
    if found.verdict == Verdict.VALID:
        if not any(op.type == OK for op in clients):
            calls = sum(op.type == INVOKE for op in clients)
            reason = f"nothing checked: none of {calls:,} ops is known to have happened"
            return replace(whole, reason=reason if calls else NOTHING_THERE, empty=True, algorithm="none")
        identified = any("message_id" in op.extra for op in clients)
        judges = registry.workload_class(workload).judges({op.f for op in clients}, identified)
        found = judge(record, judges or ())
    notes = (*notes, *_not_judged(workload, clients, check_options))
    return _examined(replace(whole, ms=clock.ms, notes=notes), found)


def _insist_on_messages(path: Path, workload: str, clients: History, check_options: CheckOptions) -> None:
    """Raises HistoryError for an op that is not one of messages: its effect may explain the results of the others."""
    other = next((op for op in clients if op.f not in FORMS and op.f not in check_options.ignore), None)
    if other is None:
        return
    near = get_close_matches(other.f, FORMS, 1)
    meant = f"; is it a `{near[0]}`?" if near else ""
    what = f"the workload {workload} has no `{other.f}` (op {other.index}){meant}; --ignore {other.f} leaves it out"
    raise HistoryError(path, None, what)


def _not_judged(workload: str, clients: History, check_options: CheckOptions) -> Iterator[str]:
    """Yields the ops that the verdict leaves out, a line for each reason."""
    counts = Counter(op.f for op in clients if op.type == INVOKE)
    for name in check_options.ignore:
        if counts[name]:
            yield f"{counts[name]:,} ops `{name}` are left out of account (--ignore)"
    judged = registry.workload_class(workload).judged_ops or FORMS.keys()
    others = sorted((counts.keys() & FORMS.keys()) - judged - set(check_options.ignore))
    if others:
        named = ", ".join(f"{counts[name]:,} {name}" for name in others)
        yield f"--workload {workload} does not judge: {named}"


def _examined(whole: CheckReport, found: Judgement) -> CheckReport:
    wrong = [a for result in found.results for a in result.anomalies if a.legal is None]
    first = wrong[0] if wrong else None
    return CheckReport(
        whole.file,
        found.verdict,
        found.reason,
        whole.model,
        whole.ops,
        whole.ms,
        algorithm="judges",
        anomaly=first.name if first else None,
        key=first.key if first else None,
        core=tuple(first.ops) if first else (),
        lines=[line for result in found.results for line in check_lines(result)],
        notes=whole.notes,
        damage=whole.damage,
    )


def _refusal(history: OpenedHistory, foreign: ForeignHistory, problems: Sequence[BadOp]) -> HistoryError:
    first, *others = problems
    path = history.path
    line = history.line_of(first.op, len(foreign.history)) if foreign.format == "jsonl" else None
    if any(_is_micro_ops(op.value) for op in foreign.history.clients):
        what = (
            "its value is a list of Jepsen's micro-ops ([[:send key value] ...]); an op for each send and poll is right"
        )
        return HistoryError(path, line, f"op {first.op}: {what} (docs/histories.md)")
    more = f" (and {'more than ' * (len(others) == _PROBLEMS)}{min(len(others), _PROBLEMS - 1)} more" if others else ""
    listed = f": {'; '.join(str(p) for p in others[:2])})" if others else ""
    return HistoryError(path, line, f"{first}{more}{listed}; docs/histories.md has the ops and their values")


def _is_micro_ops(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(step, list) and step[:1] in (["send"], ["poll"]) for step in value
    )
