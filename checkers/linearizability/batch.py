# SPDX-License-Identifier: Apache-2.0
"""Checks thousands of histories in one compiled call, for a Spark task, a fuzzer or a folder of short keys.

All histories share one table, and lie one behind the other in arrays (`Packed`). Histories that the fast path does not
decide - too hard, too wide, a model without a closed table - go through the same `decide` as a single history, so that
both ways give the same verdict. It skips the small tries if they ended here with the same result. Histories that have
nothing in common (`Apart`) go there, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from checkers.linearizability.budget import Budget
from checkers.linearizability.closed_table import MAX_CELLS, enumerate_states
from checkers.linearizability.compiled import jit
from checkers.linearizability.decide import decide
from checkers.linearizability.evidence.explain import earliest
from checkers.linearizability.fast import fast
from checkers.linearizability.history.arrays import Bools, Bytes, Longs
from checkers.linearizability.history.encode import Problem, calls_of, encode
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.history.packed import Packed, pack
from checkers.linearizability.models.specification import Model
from results.history import Call, History
from results.op import OK
from results.verdict import Verdict

INVALID: Final = 0
VALID: Final = 1
UNKNOWN: Final = 2

VERDICTS: Final = (Verdict.INVALID, Verdict.VALID, Verdict.UNKNOWN)
"""By the numbers of `BatchResult.verdict`."""

_DEFAULT: Final = Budget()


@dataclass(frozen=True, slots=True)
class Apart:
    """Histories with a table each: a common one would be large and empty."""

    histories: Sequence[Sequence[Call]]
    model: Model[Any]

    def __len__(self) -> int:
        return len(self.histories)

    def problem(self, history: int) -> Problem:
        """Raises ValueError as `encode` does, with the history."""
        try:
            return encode(self.histories[history], self.model)
        except ValueError as problem:
            raise ValueError(f"history {history}: {problem}") from None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """verdict      INVALID, VALID or UNKNOWN a history; UNKNOWN too if no op is known to have happened: nothing was
                 checked.
    failing_op   that of a single check (`LinearResult`), or NONE.
    work         steps spent on each, by all methods.

    The fast path keeps no orders: `witness` finds one on request.
    """

    verdict: Bytes
    failing_op: Longs
    work: Longs
    packed: Packed | Apart = field(repr=False)
    budget: Budget = field(repr=False)

    def __getitem__(self, history: int) -> Verdict:
        return VERDICTS[int(self.verdict[history])]

    def witness(self, history: int) -> Sequence[int] | None:
        """An order that explains a valid history, by the indices of its invocations; it was replayed. None for one that
        is not valid, or if the budget of a single history is too small for the verdict of the batch. Raises
        AssertionError if a single check contradicts the batch: a defect of this checker.
        """
        if self[history] != Verdict.VALID:
            return None
        problem = self.packed.problem(history)
        outcome = decide(problem, self.budget)
        if outcome.verdict == Verdict.INVALID:
            raise AssertionError(f"history {history} is valid to the batch, and invalid to {outcome.algorithm}")
        return None if outcome.witness is None else [problem.source[op] for op in outcome.witness]


def check_batch(
    histories: Packed | Iterable[Sequence[Call] | History], model: Model[Any] | None = None, budget: Budget = _DEFAULT
) -> BatchResult:
    """Verdicts of many histories. `model` goes with calls; a `Packed` already has one.

    >>> from checkers.linearizability.models.registers import Register
    >>> from results.op import Op
    >>> def read(value): return [Call(Op(0, 0, 0, "invoke", "read", "k"), Op(1, 1, 0, "ok", "read", "k", value))]
    >>> check_batch([read(None), read(5), []], Register()).verdict.tolist()
    [1, 0, 2]
    """
    packed: Packed | Apart
    if isinstance(histories, Packed):
        packed = histories
    elif model is None:
        raise ValueError("check_batch needs a model to read calls with")
    elif fast(model).own_tables:
        packed = Apart([calls_of(history) for history in histories], model)
    else:
        packed = pack(histories, model)
    verdict = np.full(len(packed), UNKNOWN, np.uint8)
    failing = np.full(len(packed), NONE, np.int64)
    work = np.zeros(len(packed), np.int64)
    if jit.enabled() and len(packed):
        _walk(packed, budget, verdict, failing, work)
        verdict[_idle(packed) & (verdict == VALID)] = UNKNOWN
    _search(packed, budget, verdict, failing, work)
    return BatchResult(verdict, failing, work, packed, budget)


def _walk(packed: Packed | Apart, budget: Budget, verdict: Bytes, failing: Longs, work: Longs) -> None:
    """Fills the verdicts that compiled loops decide, and the work of their tries (`walk_packed`)."""
    if isinstance(packed, Apart):
        from checkers.linearizability.compiled.kv_batch import walk_keys

        return walk_keys(packed.histories, budget.memory, verdict, failing, work)
    from checkers.linearizability.compiled.batch_kernel import walk_packed

    dense = enumerate_states(packed.table, max_cells=MAX_CELLS)
    if dense is not None:
        walk_packed(packed, dense, budget.memory, verdict, failing, work)
    if (verdict == INVALID).any():
        packed.table.insist_on_known()


def _idle(packed: Packed | Apart) -> Bools:
    """A mask of histories in which nothing is known to have happened: nothing can be wrong in them."""
    if isinstance(packed, Apart):
        return np.array([not any(call.outcome == OK for call in history) for history in packed.histories], np.bool_)
    returned = np.concatenate(([0], np.cumsum(packed.ret != NEVER)))
    return returned[packed.first[1:]] == returned[packed.first[:-1]]  # type: ignore[no-any-return]


def _search(packed: Packed | Apart, budget: Budget, verdict: Bytes, failing: Longs, work: Longs) -> None:
    """Decides the open histories by the portfolio, without the tries that were made already."""
    for history in np.nonzero(verdict == UNKNOWN)[0]:
        problem = packed.problem(int(history))
        if not problem.completed:
            continue
        problem.table.settle()
        tried = int(work[history]), problem.ret[failing[history]]
        outcome = decide(problem, budget, tried=tried)
        verdict[history], failing[history], work[history] = VERDICTS.index(outcome.verdict), NONE, outcome.work
        if outcome.verdict == Verdict.INVALID:
            # As a single check names it.
            at = earliest(problem, outcome, budget)
            failing[history] = problem.source[problem.events[at] >> 1]


__all__ = ["INVALID", "UNKNOWN", "VALID", "VERDICTS", "BatchResult", "Packed", "check_batch", "pack"]
