"""The interface of a checker, and the merge of several results into one judgement."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from checkers.legality import applied, excuses
from checkers.message_ops import BadOp
from checkers.starvation import apply_doubt
from results.errors import HistoryError
from results.record import RunRecord
from results.verdict import CheckResult, Judgement, Verdict


class Checker(Protocol):
    """A function of a run's record alone: same record, same verdict, on any machine.

    `check` returns `unknown` where it cannot decide (too little happened, a budget ran out), with the reason.
    """

    @property
    def name(self) -> str: ...

    def check(self, run: RunRecord) -> CheckResult: ...


def judge(run: RunRecord, checkers: Sequence[Checker]) -> Judgement:
    """Run every checker. One that raises gives `unknown`, its traceback in `stats["traceback"]`; the others go on. One
    that cannot read an op of the history gives `unknown`, and says which.

    What the run's configuration permits (`checkers.legality`) is marked so, and fails nothing; what a machine without
    time for the servers may have caused (`checkers.starvation`) leaves the verdict open.
    """
    return Judgement([_safely(checker, run) for checker in checkers])


def _safely(checker: Checker, run: RunRecord) -> CheckResult:
    started = time.perf_counter()
    try:
        result = apply_doubt(applied(checker.check(run), run), run)
        result = replace(result, excuses=excuses(result, run))
    except (HistoryError, BadOp) as problem:
        # What the run left, or a stranger's op, cannot be read: no bug of the checker's.
        result = CheckResult(checker.name, Verdict.UNKNOWN, str(problem))
    except Exception as problem:
        result = CheckResult(
            checker.name,
            Verdict.UNKNOWN,
            f"the checker itself failed: {type(problem).__name__}: {problem}",
            stats={"traceback": traceback.format_exc()},
        )
    return replace(result, ms=(time.perf_counter() - started) * 1000)
