# SPDX-License-Identifier: Apache-2.0
"""Checks histories without a plan against a model, all histories of a portion in one call of the engine.

Each history that this call does not find valid is checked again alone, as `harness check` does, for its reason and its
core.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkers.linearizability.batch import VALID, check_batch
from checkers.linearizability.check import calls_by_key
from checkers.linearizability.models.specification import Model
from checkers.spark.columns import applies
from harness.batch.rows import Clock, key_rows, rows_of
from harness.check.examine import algorithms
from harness.check.report import CheckOptions
from results.history import Call
from results.op import OK
from results.record import RunRecord
from results.verdict import Verdict, worst
from results.verdict_table import VerdictRow


@dataclass
class PendingHistory:
    """A history that still has to be judged against a model."""

    run: str
    record: RunRecord
    model: str
    ops: int
    read_ms: tuple[float, float]
    start: int | None = None
    rows: list[VerdictRow] = field(default_factory=list)
    keys: list[tuple[str | None, Sequence[Call]]] = field(default_factory=list)
    sure: bool = True
    """All its keys were found valid in the common call."""

    def group(self, model: Model[Any], ignore: Collection[str]) -> None:
        """Sets its keys. If no op in them is known to have happened, they are judged together."""
        self.keys = calls_by_key(self.record.history, model, ignore)
        self.sure = any(call.outcome == OK for _, calls in self.keys for call in calls)


def decide_all(histories: Sequence[PendingHistory], check_options: CheckOptions) -> None:
    """The histories' rows: those of registers in one call, then each that is not valid by itself.

    (The states of a register are the values that were written, and few; what many histories of another model reach
    together may be more than one table holds.)
    """
    for model in dict.fromkeys(history.model for history in histories):
        own = [history for history in histories if history.model == model]
        made = check_options.model(model)
        if applies(made):
            _together([history for history in own if history.keys and history.sure], made, check_options)
        else:
            for history in own:
                history.sure = False
        for history in own:
            if history.sure and history.keys:
                continue
            try:
                _by_itself(history, check_options)
            except Exception as problem:
                history.rows = [failed_row(history.run, problem)]


def _together(histories: Sequence[PendingHistory], model: Model[Any], check_options: CheckOptions) -> None:
    flat = [(history, key, calls) for history in histories for key, calls in history.keys]
    if not flat:
        return
    clock = Clock()
    try:
        found = check_batch([calls for _, _, calls in flat], model, check_options.checker(model.name).budget)
    except Exception:
        # One of them makes no sense to the model, or is too large: by themselves, it is the only one that suffers.
        for history in histories:
            history.sure = False
        return
    wall, cpu = clock.read()
    total = sum(len(calls) for _, _, calls in flat) or 1
    for number, (history, key, calls) in enumerate(flat):
        if found.verdict[number] != VALID:
            history.sure = False
            continue
        share = len(calls) / total
        completed = sum(call.outcome == "ok" for call in calls)
        history.rows.append(
            VerdictRow(
                history.run,
                "linearizability",
                Verdict.VALID,
                f"an order that explains all {completed} completed ops exists",
                key=key,
                model=model.name,
                ops=2 * len(calls),
                wall_ms=wall * share,
                cpu_ms=cpu * share,
                algorithm="batch",
            )
        )


def _by_itself(history: PendingHistory, check_options: CheckOptions) -> None:
    clock = Clock()
    result, keys = check_options.checker(history.model, history.start).examine(history.record.history)
    wall, cpu = clock.read()
    history.rows = list(key_rows(history.run, history.model, keys, wall))
    for row in history.rows:
        row.cpu_ms = row.wall_ms * cpu / max(wall, 1e-9)
    if not keys or worst(r.verdict for r in keys.values()) != result.verdict:
        row = next(rows_of(history.run, result, None))
        row.model, row.ops, row.algorithm, row.cpu_ms = history.model, history.ops, algorithms(result), cpu
        history.rows.append(row)


def failed_row(run: str, problem: Exception) -> VerdictRow:
    """The row for a bug in a reader or a checker: the other histories are still checked, and a bug is no verdict."""
    if isinstance(problem, MemoryError):
        reason = "there is not enough memory for it"
    elif isinstance(problem, RecursionError):
        reason = "a value in it is nested too deeply"
    else:
        reason = f"the check itself failed ({type(problem).__name__}: {problem}): a bug, please report"
    figures = json.dumps({"traceback": traceback.format_exc()})
    return VerdictRow(run, "reader", Verdict.UNKNOWN, " ".join(reason.split()), figures=figures)
