"""`harness check --workload NAME`: checks a history of messages from any program, by its ops alone.

A run of the harness has more than its history: nodes, roles, faults, a final phase. A foreign history does not need
these. Only checkers of content take part, and only those for which the history has ops. docs/histories.md describes the
input.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkers.api import judge
from checkers.message_ops import BadOp, validate
from checkers.wellformed import WellFormed
from harness.check.report import CheckOptions, CheckReport
from harness.check.summary import check_lines
from harness.parts import registry
from results.errors import HistoryError
from results.formats import ForeignHistory, read_history
from results.formats.detect import is_packed, unpacked
from results.reading import bounded, memory_limit
from results.record import RunRecord
from results.verdict import Judgement, Verdict

_PROBLEMS = 5


def judged(path: Path, shown: str, workload: str, check_options: CheckOptions) -> CheckReport:
    """Judge a file. Raises HistoryError, with the line where the format has one to an op, for what is in it."""
    with bounded(path, memory_limit(path, check_options.memory, packed=is_packed(path))):
        foreign = read_history(path, check_options.format, check_options.options)
    record = RunRecord(foreign.history)
    ops, notes, damage = len(foreign.history.clients), tuple(foreign.notes), tuple(foreign.damage)
    whole = CheckReport(shown, Verdict.UNKNOWN, "", workload, ops=ops, notes=notes, damage=damage)
    problems = validate(foreign.history, _PROBLEMS + 1)
    if problems:
        raise _refusal(path, foreign, problems)
    found = judge(record, [WellFormed()])
    if found.verdict == Verdict.VALID:
        clients = foreign.history.clients
        identified = any("message_id" in op.extra for op in clients)
        judges = registry.workload_class(workload).judges({op.f for op in clients}, identified)
        found = judge(record, judges or ())
    return _examined(whole, found)


def _examined(whole: CheckReport, found: Judgement) -> CheckReport:
    wrong = [a for result in found.results for a in result.anomalies if a.legal is None]
    first = wrong[0] if wrong else None
    return CheckReport(
        whole.file,
        found.verdict,
        found.reason,
        whole.model,
        whole.ops,
        algorithm="judges",
        anomaly=first.name if first else None,
        key=first.key if first else None,
        core=tuple(first.ops) if first else (),
        lines=[line for result in found.results for line in check_lines(result)],
        notes=whole.notes,
        damage=whole.damage,
    )


def _refusal(path: Path, foreign: ForeignHistory, problems: Sequence[BadOp]) -> HistoryError:
    first, *others = problems
    more = f" (and {'more than ' * (len(others) == _PROBLEMS)}{min(len(others), _PROBLEMS - 1)} more" if others else ""
    listed = f": {'; '.join(str(p) for p in others[:2])})" if others else ""
    return HistoryError(
        path, _line(path, foreign, first.op), f"{first}{more}{listed}; docs/histories.md has the ops and their values"
    )


def _line(path: Path, foreign: ForeignHistory, op: int) -> int | None:
    """The line of an op, blank lines not counted. None where ops and lines are not one to one."""
    if foreign.format != "jsonl":
        return None
    seen, found = -1, None
    with unpacked(path) as file:
        for number, text in enumerate(file, 1):
            seen += not text.isspace()
            found = number if seen == op and found is None else found
    return found if seen + 1 == len(foreign.history) else None
