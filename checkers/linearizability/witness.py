"""The independent judge of witnesses. Deliberately shares nothing with the searches but the definition."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.linearizability.encode import NEVER, Problem


def verify_witness(problem: Problem, order: Sequence[int]) -> str | None:
    """What is wrong with this order as an explanation of the history, or None when it is one.

    Right means: every completed op once, every unknown op at most once, no op before one that had returned when it was
    called, and the model accepts each in turn.
    """
    if len(set(order)) != len(order):
        return "an op is placed twice"
    left_out = set(problem.completed) - set(order)
    if left_out:
        return f"op {problem.source[min(left_out)]} completed and is not placed"
    if not set(order) <= set(problem.ops):
        return "an op is placed that nobody called"
    latest_call = NEVER
    for op in order:
        returned = problem.ret[op]
        if returned != NEVER and returned < latest_call:
            return f"op {problem.source[op]} had returned before an op placed in front of it was called"
        latest_call = max(latest_call, problem.call[op])
    place = problem.table.model.replay(problem.table.kinds[problem.kind[op]] for op in order)
    return None if place is None else f"op {problem.source[order[place]]} cannot happen where it is placed"
