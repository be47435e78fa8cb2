# SPDX-License-Identifier: Apache-2.0
"""`harness check --workload NAME`: checks a history of messages from any program, by its ops alone.

A run of the harness has more than its history: nodes, roles, faults, a final phase. A foreign history does not need
these. Only checkers of content take part, and only those for which the history has ops. docs/histories.md describes the
input.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Final

from checkers.base.api import judge
from checkers.base.schema import BadOp
from checkers.messages.exchange import Exchange
from checkers.messages.ops import FORMS, validate
from checkers.run.wellformed import WellFormed
from harness.check.decision import NOTHING_THERE, DecisionTime
from harness.check.report import CheckOptions, CheckReport
from harness.check.summary import check_lines
from harness.parts import registry
from results.errors import HistoryError
from results.formats import ForeignHistory, OpenedHistory
from results.formats.messages import has_gaps, in_our_form
from results.formats.micro_ops import BadMicroOp, has_micro_ops
from results.history import History
from results.op import INVOKE, OK
from results.record import RunRecord
from results.verdict import Judgement, Verdict

_PROBLEMS = 5
_ALIKE = 0.75
"""The least likeness of a name that is meant: `polls` is `poll`, and `write` is no `route`."""
_NAMED = 10
"""Messages whose own names are shown."""

_MESSAGE: Final = re.compile(r"\b(?:[Mm]essage|first:) (\d+)\b")


def judged(
    history: OpenedHistory, foreign: ForeignHistory, shown: str, workload: str, check_options: CheckOptions
) -> CheckReport:
    """Judges the content of a file. Raises HistoryError for it, with the line if the format has one line for each
    op.
    """
    _insist_on_messages(history.path, workload, foreign.history.clients, check_options)
    try:
        messages = in_our_form(foreign.history, check_options.options.offsets)
    except BadMicroOp as problem:
        raise HistoryError(history.path, None, f"op {problem.op}: {problem}") from None
    record, clients = RunRecord(messages.history), messages.history.clients
    notes, damage = (*foreign.notes, *messages.notes), tuple(foreign.damage)
    count = len(foreign.history.clients)
    whole = CheckReport(shown, Verdict.UNKNOWN, "", workload, ops=count, notes=notes, damage=damage)
    problems = validate(messages.history, _PROBLEMS + 1)
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
    if found.verdict == Verdict.INVALID and check_options.options.offsets is None and has_gaps(messages.history):
        notes = (*notes, _GAPS)
    return _examined(replace(whole, ms=clock.ms, notes=notes), found, messages.names)


_GAPS: Final = (
    "some offsets hold no known message; if the broker leaves offsets out, as Kafka does, --offsets sparse says so"
)


def implied_workload(path: Path, history: History, check_options: CheckOptions) -> str | None:
    """The workload of messages that judges all these ops; of several, the one that judges the fewest. None: there is no
    such one. Raises HistoryError if it depends on an option what they say: some offsets hold no known message.
    """
    if has_micro_ops(history):
        return "log"
    names = {op.f for op in history.clients}.difference(check_options.ignore)
    fit = [
        (len(cls.judged_ops), name)
        for name, cls in ((name, plugin.cls) for name, plugin in registry.loadable(registry.WORKLOADS).items())
        if cls.judged_ops >= names and cls.judges(frozenset(), identified=False) is not None
    ]
    if fit and check_options.options.offsets is None and has_gaps(history):
        what = (
            "of messages, and some offsets hold no known one; --offsets sparse says that the broker leaves offsets out"
        )
        raise HistoryError(path, None, f"these are ops {what}, as Kafka does, and --offsets dense that it does not")
    return min(fit)[1] if fit else None


def by_values(foreign: ForeignHistory, shown: str) -> CheckReport:
    """Judges a history of a queue that has no offsets."""
    record, clients = RunRecord(foreign.history), foreign.history.clients
    whole = CheckReport(
        shown, Verdict.UNKNOWN, "", "queue", ops=len(clients), notes=tuple(foreign.notes), damage=tuple(foreign.damage)
    )
    if not any(op.type == OK for op in clients):
        return replace(whole, reason=NOTHING_THERE, empty=True)
    clock = DecisionTime()
    found = judge(record, [WellFormed(), Exchange()])
    return _examined(replace(whole, ms=clock.ms), found)


def _insist_on_messages(path: Path, workload: str, clients: History, check_options: CheckOptions) -> None:
    """Raises HistoryError for an op that is not one of messages: its effect may explain the results of the others."""
    if has_micro_ops(clients):
        return
    other = next((op for op in clients if op.f not in FORMS and op.f not in check_options.ignore), None)
    if other is None:
        return
    near = get_close_matches(other.f, FORMS, 1, _ALIKE)
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


def _examined(whole: CheckReport, found: Judgement, names: Mapping[int, str] = MappingProxyType({})) -> CheckReport:
    wrong = [a for result in found.results for a in result.anomalies if a.legal is None]
    first = wrong[0] if wrong else None
    lines = [line for result in found.results for line in check_lines(result, whole=True)]
    return replace(
        whole,
        verdict=found.verdict,
        reason=found.reason,
        algorithm="judges",
        anomaly=first.name if first else None,
        key=first.key if first else None,
        core=tuple(first.ops) if first else (),
        lines=lines,
        notes=(*whole.notes, *_own_names(lines, names)),
    )


def _own_names(lines: Sequence[str], names: Mapping[int, str]) -> Iterator[str]:
    """Yields the own names of the messages that the lines name, in one line."""
    numbers = dict.fromkeys(int(n) for line in lines for n in _MESSAGE.findall(line) if int(n) in names)
    if numbers:
        yield "; ".join(f"message {number} is {names[number]}" for number in list(numbers)[:_NAMED])


def _refusal(history: OpenedHistory, foreign: ForeignHistory, problems: Sequence[BadOp]) -> HistoryError:
    first, *others = problems
    path = history.path
    line = history.line_of(first.op, len(foreign.history)) if foreign.format == "jsonl" else None
    more = f" (and {'more than ' * (len(others) == _PROBLEMS)}{min(len(others), _PROBLEMS - 1)} more" if others else ""
    listed = f": {'; '.join(str(p) for p in others[:2])})" if others else ""
    return HistoryError(path, line, f"{first}{more}{listed}; docs/histories.md has the ops and their values")
