# SPDX-License-Identifier: Apache-2.0
"""The interface of a checker, and the merge of several results into one judgement."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from checkers.base.legality import applied, excuses
from checkers.base.schema import BadOp
from checkers.base.starvation import apply_doubt
from results.errors import HistoryError
from results.record import RunRecord
from results.verdict import CheckResult, Judgement, Verdict


class Checker(Protocol):
    """A function of a run's record alone: same record, same verdict, on any machine.

    `check` returns `unknown` if it cannot decide (too little happened, a budget ran out), with the reason.
    """

    @property
    def name(self) -> str: ...

    def check(self, run: RunRecord) -> CheckResult: ...


def judge(run: RunRecord, checkers: Sequence[Checker]) -> Judgement:
    """Runs every checker. One that raises gives `unknown`, its traceback in `stats["traceback"]`; the others continue.
    One that cannot read an op of the history gives `unknown`, and names the op.

    Anomalies that the run's configuration permits (`checkers.base.legality`) are marked so, and fail nothing. Those
    that a machine without time for the servers may have caused (`checkers.base.starvation`) leave the verdict open.
    """
    return Judgement([_safely(checker, run) for checker in checkers])


def _safely(checker: Checker, run: RunRecord) -> CheckResult:
    started = time.perf_counter()
    try:
        result = apply_doubt(applied(checker.check(run), run), run)
        result = replace(result, excuses=excuses(result, run))
    except (HistoryError, BadOp) as problem:
        # A file of the run, or a foreign op, is unreadable: no bug of the checker.
        result = CheckResult(checker.name, Verdict.UNKNOWN, str(problem))
    except Exception as problem:
        result = CheckResult(
            checker.name,
            Verdict.UNKNOWN,
            f"the checker itself failed: {type(problem).__name__}: {problem}",
            stats={"traceback": traceback.format_exc()},
        )
    return replace(result, ms=(time.perf_counter() - started) * 1000)
