# SPDX-License-Identifier: Apache-2.0
"""The independent judge of witnesses. It shares nothing with searches and monitors but the definition of a history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NONE

FAILED_REPLAY: Final = "the checker's own witness failed its replay ({}): a defect of the checker, please report it"


def verify_witness(problem: Problem, order: Sequence[int]) -> str | None:
    """The error in this order as an explanation of the history, or None if it is one.

    Right means: every completed op once, every unknown op at most once, no op before one that had returned when it was
    called, and the model accepts each in turn.
    """
    if len(set(order)) != len(order):
        return "an op is placed twice"
    left_out = set(problem.completed) - set(order)
    if left_out:
        return f"op {problem.source[min(left_out)]} completed and is not placed"
    if not set(order) <= set(problem.ops):
        return "an op is placed that no client called"
    latest_call = NONE
    for op in order:
        returned = problem.ret[op]
        if returned < latest_call:
            return f"op {problem.source[op]} had returned before an op placed in front of it was called"
        latest_call = max(latest_call, problem.call[op])
    place = problem.table.model.replay(problem.table.kinds[problem.kind[op]] for op in order)
    return None if place is None else f"op {problem.source[order[place]]} cannot happen where it is placed"
