"""Thousands of histories in one compiled call: what a Spark task, a fuzzer or a folder of short keys wants.

All histories share one table, and lie one behind the other in arrays (`Packed`); keys of a store have a table each
(`stores`). What the fast path does not decide - too hard, too wide, a model without a closed table - goes through the
same `decide` as a single history, so that both ways give the same verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from checkers.linearizability.budget import Budget
from checkers.linearizability.closed_table import MAX_CELLS, MAX_STATES, enumerate_states
from checkers.linearizability.compiled import jit
from checkers.linearizability.compiled.kv_batch import Keys, portions
from checkers.linearizability.decide import decide
from checkers.linearizability.fast import fast
from checkers.linearizability.history.columns import Dense
from checkers.linearizability.history.encode import Problem, Table, calls_of, encode
from checkers.linearizability.history.events import NEVER, NONE, Bytes, Ints, Longs
from checkers.linearizability.models.specification import Model
from checkers.linearizability.outcome import Outcome
from results.history import Call, History
from results.verdict import Verdict

INVALID: Final = 0
VALID: Final = 1
UNKNOWN: Final = 2

VERDICTS: Final = (Verdict.INVALID, Verdict.VALID, Verdict.UNKNOWN)
"""By the numbers of `BatchResult.verdict`."""

_DEFAULT: Final = Budget()


@dataclass(frozen=True, slots=True)
class Packed:
    """Many histories of one model, one behind the other.

    table        what the kinds mean. Kinds that no history has may be in it too.
    kind         kind of every op.
    call, ret    when it began and ended, on any clock of its history; `ret` is NEVER where the outcome is unknown. At
                 equal times a call comes before a return: calls that touch are concurrent.
    first        the ops of history h are `first[h]` to `first[h + 1]`.
    source       index of each op's invocation, for people.
    """

    table: Table
    kind: Ints
    call: Longs
    ret: Longs
    first: Longs
    source: Longs

    def __len__(self) -> int:
        return len(self.first) - 1

    def problem(self, history: int) -> Problem:
        """One of them, for the searches that take one. Unknown ops that change nothing are left out, as in `encode`."""
        begin, end = int(self.first[history]), int(self.first[history + 1])
        kind, call, ret = (column[begin:end].tolist() for column in (self.kind, self.call, self.ret))
        pure = self.table.pure
        stamped = [(call[op], 0, 2 * op) for op in range(end - begin) if ret[op] != NEVER or not pure[kind[op]]]
        stamped += [(ret[op], 1, 2 * op + 1) for op in range(end - begin) if ret[op] != NEVER]
        events = [event for _, _, event in sorted(stamped)]
        return Problem(self.table, kind, self.source[begin:end].tolist(), events)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """verdict      INVALID, VALID or UNKNOWN a history; UNKNOWN too where it has no op at all: nothing was checked.
    failing_op   as that of a single check (`LinearResult`), or NONE.
    work         steps spent in all.

    The fast path keeps no orders: `witness` finds one when it is asked for.
    """

    verdict: Bytes
    failing_op: Longs
    work: int
    packed: Packed | Keys = field(repr=False)
    budget: Budget = field(repr=False)

    def __getitem__(self, history: int) -> Verdict:
        return VERDICTS[int(self.verdict[history])]

    def witness(self, history: int) -> Sequence[int] | None:
        """An order that explains a valid history, by the indices of its invocations; replayed before it is told. None
        for one that is not valid, or where the budget of a single history is too small for what the batch found out.
        """
        if self[history] != Verdict.VALID:
            return None
        problem = self.packed.problem(history)
        order = decide(problem, self.budget).witness
        return None if order is None else [problem.source[op] for op in order]


def pack(histories: Iterable[Sequence[Call] | History], model: Model[Any]) -> Packed:
    """Calls of one object each, as arrays with a shared table. Raises ValueError as `encode` does, with the history."""
    table = Table(model)
    kind: list[int] = []
    call: list[int] = []
    ret: list[int] = []
    source: list[int] = []
    first = [0]
    for number, history in enumerate(histories):
        try:
            one = encode(calls_of(history), model, table)
        except ValueError as problem:
            raise ValueError(f"history {number}: {problem}") from None
        kind += one.kind
        call += one.call
        ret += one.ret
        source += one.source
        first.append(len(kind))
    table.seal_kinds()
    long = np.int64
    return Packed(
        table, np.array(kind, np.int32), np.array(call, long), np.array(ret, long), np.array(first, long),
        np.array(source, long),
    )  # fmt: skip


def check_batch(
    histories: Packed | Iterable[Sequence[Call] | History], model: Model[Any] | None = None, budget: Budget = _DEFAULT
) -> BatchResult:
    """Verdicts of many histories. `model` goes with calls; what is packed already has one.

    >>> from checkers.linearizability.models.registers import Register
    >>> from results.op import Op
    >>> def read(value): return [Call(Op(0, 0, 0, "invoke", "read", "k"), Op(1, 1, 0, "ok", "read", "k", value))]
    >>> check_batch([read(None), read(5), []], Register()).verdict.tolist()
    [1, 0, 2]
    """
    if isinstance(histories, Packed):
        packed = histories
    elif model is None:
        raise ValueError("check_batch needs a model to read calls with")
    elif fast(model).own_tables and jit.enabled():
        return _check_stores(Keys([calls_of(history) for history in histories]), budget)
    else:
        packed = pack(histories, model)
    verdict = np.full(len(packed), UNKNOWN, np.uint8)
    failing = np.full(len(packed), NONE, np.int64)
    work = 0
    dense = enumerate_states(packed.table, max_cells=MAX_CELLS) if jit.enabled() and len(packed) > 0 else None
    if dense is not None:
        work = _compiled(packed, dense, budget, verdict, failing)
        if (verdict == INVALID).any():
            packed.table.insist_on_known()
    work += _searched(packed, budget, verdict, failing)
    return BatchResult(verdict, failing, work, packed, budget)


def _check_stores(keys: Keys, budget: Budget) -> BatchResult:
    """Keys of a store, each with a table of its own: hardly two of them ever hold the same."""
    from checkers.linearizability.compiled.kv_kernel import walk_stores
    from checkers.linearizability.compiled.warm import STORES, ensure
    from checkers.linearizability.compiled.workspace import workspace

    ensure(STORES)
    verdict = np.full(len(keys), UNKNOWN, np.uint8)
    failing = np.full(len(keys), NONE, np.int64)
    work = 0
    for portion in portions(keys.histories):
        if not portion.ops:
            continue
        part = slice(portion.begin, portion.begin + len(portion.first) - 1)
        ops, first, texts = (np.frombuffer(column, np.int64) for column in (portion.ops, portion.first, portion.texts))
        lengths = np.fromiter(map(len, portion.strings), np.int64, len(portion.strings))
        characters = np.frombuffer(bytearray("".join([*portion.strings, "."]), "utf-32-le", "surrogatepass"), np.uint32)
        space = workspace().prepare(MAX_STATES, portion.longest, budget.memory)
        work += walk_stores(ops, first, characters, lengths, texts, space, verdict[part], failing[part])
    work += _searched(keys, budget, verdict, failing)
    return BatchResult(verdict, failing, work, keys, budget)


def _searched(packed: Packed | Keys, budget: Budget, verdict: Bytes, failing: Longs) -> int:
    """What is undecided goes through the whole portfolio. Returns the work."""
    work = 0
    for history in np.nonzero(verdict == UNKNOWN)[0]:
        problem = packed.problem(int(history))
        if not problem.kind:
            continue
        problem.table.settle()
        outcome = decide(problem, budget)
        work += outcome.work
        verdict[history] = VERDICTS.index(outcome.verdict)
        if outcome.verdict == Verdict.INVALID:
            failing[history] = _failing(problem, outcome, budget)
    return work


def _failing(problem: Problem, outcome: Outcome, budget: Budget) -> int:
    """`LinearResult.failing_op`, as a single check names it."""
    from checkers.linearizability.evidence.explain import earliest

    return problem.source[problem.events[earliest(problem, outcome, budget)] >> 1]


def _compiled(packed: Packed, dense: Dense, budget: Budget, verdict: Bytes, failing: Longs) -> int:
    """The fast path. Fills what it decides and returns the work."""
    from checkers.linearizability.compiled.batch_kernel import walk_many
    from checkers.linearizability.compiled.warm import BATCH, ensure
    from checkers.linearizability.compiled.workspace import workspace

    if len(packed.kind) and not 0 <= int(packed.kind.min()) <= int(packed.kind.max()) < dense.step.shape[1]:
        raise ValueError("a packed op has a kind that its table does not know")
    if (packed.ret < packed.call).any():
        raise ValueError("a packed op ended before it began")
    ensure(BATCH)
    states, kinds = dense.step.shape
    space = workspace().prepare(states, kinds, budget.memory)
    ops = packed.kind, packed.call, packed.ret, packed.first, packed.source
    return int(walk_many(*ops, dense, space, verdict, failing))


__all__ = ["INVALID", "UNKNOWN", "VALID", "VERDICTS", "BatchResult", "Packed", "check_batch", "pack"]
