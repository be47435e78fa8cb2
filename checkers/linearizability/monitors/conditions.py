# SPDX-License-Identifier: Apache-2.0
"""Conditions without which the monitors on columns have no rule, looked up before any column is made.

Most small histories of tests repeat their values. That is found out here in less time than numpy takes to load.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.models.containers import DRAIN

UNIQUE_REGISTER: Final = "unique-value register"
"""The name of the monitor of registers (`registers`)."""

INITIAL: Final = 0
"""The number of a register's value at the beginning, without a writer."""


def no_value_twice(problem: Problem) -> bool:
    """True if no two ops leave a register the same value, and no op shows a value that it did *not* hold."""
    kinds = problem.table.kinds
    left = [(kind.value[1] if kind.f == "cas" else kind.value,) if kind.f != "read" else () for kind in kinds]
    return _differ(problem, left, [kind.f == "cas-refused" for kind in kinds])


def no_element_twice(problem: Problem) -> bool:
    """True if no two ops enqueue the same element, and none drains the queue."""
    kinds = problem.table.kinds
    put = [(kind.value,) if kind.f == "enqueue" else () for kind in kinds]
    return _differ(problem, put, [kind.f == DRAIN for kind in kinds])


def _differ(problem: Problem, put: Sequence[tuple[Hashable, ...]], excluded: Sequence[bool]) -> bool:
    """True if the values that the ops put into the object all differ, and no op is of an excluded kind. `put` and
    `excluded` are by kind.
    """
    values = set[tuple[Hashable, ...]]()
    for op in problem.ops:
        kind = problem.kind[op]
        value = put[kind]
        if excluded[kind] or value in values:
            return False
        if value:
            values.add(value)
    return True
