# SPDX-License-Identifier: Apache-2.0
"""`harness check --model converging-set` (or `converging-counter`): objects of which all nodes agree at last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from checkers.converging import CONVERGING, SET
from checkers.converging.checker import Converging
from checkers.linearizability.history.encode import first_unknown, unknown
from checkers.run.wellformed import WellFormed
from harness.check.decision import NOTHING_THERE, DecisionTime
from harness.check.hints import other_elements
from harness.check.report import STARTING, CheckOptions, CheckReport
from results.errors import HistoryError
from results.formats import ForeignHistory
from results.op import INVOKE, OK
from results.verdict import CheckResult, Verdict

_LISTED = 10
"""Violations that get a line."""


def judged(
    path: Path, foreign: ForeignHistory, shown: str, model: str, implied: bool, check_options: CheckOptions
) -> CheckReport:
    """The report on a history. Raises HistoryError for one that the model cannot judge."""
    promise, clients = CONVERGING[model], foreign.history.clients
    if check_options.initial is not None:
        raise HistoryError(
            path, None, f"--initial: the model {model} has no start value; {', '.join(STARTING)} have one"
        )
    whole = CheckReport(
        shown, Verdict.UNKNOWN, "", model, ops=len(clients), notes=[*foreign.notes, *_left_out(foreign, check_options)],
        damage=tuple(foreign.damage), implied=implied,
    )  # fmt: skip
    if not clients:
        return replace(whole, reason=NOTHING_THERE, empty=True)
    other = first_unknown(clients, promise, check_options.ignore)
    if other is not None:
        raise HistoryError(path, None, f"{unknown(other, promise)}; --ignore {other.f} leaves it out")
    odd = other_elements(foreign.history) if promise is SET else None
    if odd is not None:
        raise HistoryError(path, None, odd)
    formed = WellFormed().examine(foreign.history)
    if formed.verdict != Verdict.VALID:
        reason = f"{formed.checker}: {formed.reason}"
        return replace(whole, verdict=formed.verdict, reason=reason, anomaly=formed.anomalies[0].name)
    clock = DecisionTime()
    found = Converging(promise, check_options.ignore).examine(foreign.history)
    happened = any(op.type == OK and op.f not in check_options.ignore for op in clients)
    return _with(replace(whole, ms=clock.ms, empty=not happened), found)


def _with(whole: CheckReport, found: CheckResult) -> CheckReport:
    first = found.anomalies[0] if found.anomalies else None
    lines = [f"  - {anomaly.name}: {anomaly.summary}" for anomaly in found.anomalies[:_LISTED]]
    more = found.stats.get("count", 0) - len(lines)
    return replace(
        whole,
        verdict=found.verdict,
        reason=found.reason,
        algorithm="final reads",
        anomaly=first.name if first else None,
        key=first.key if first else None,
        failing_op=first.ops[-1] if first else None,
        core=tuple(first.ops) if first else (),
        lines=[*lines, f"  - and {more:,} more"] if more > 0 else lines if len(lines) > 1 else [],
        notes=[*whole.notes, *found.stats.get("notes", ())],
    )


def _left_out(foreign: ForeignHistory, check_options: CheckOptions) -> Iterator[str]:
    counts = Counter(op.f for op in foreign.history.clients if op.type == INVOKE)
    for name in check_options.ignore:
        if counts[name]:
            yield f"{counts[name]:,} ops `{name}` are left out of account (--ignore)"
