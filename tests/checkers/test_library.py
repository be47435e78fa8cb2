# SPDX-License-Identifier: Apache-2.0
"""The checker in somebody else's program: models of one's own, histories that make no sense."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from checkers.linearizability import (
    INCONSISTENT,
    Inconsistent,
    Linearizable,
    Model,
    Register,
    Transition,
    UnorderedQueue,
    check,
    check_keys,
)
from checkers.linearizability.batch import check_batch
from checkers.linearizability.compiled import jit
from checkers.linearizability.models.kv import KV
from results.history import Call, History
from results.op import Op, OpType
from results.record import RunRecord
from results.verdict import Verdict

_Jobs = tuple[Any, ...]


class Jobs(Model[_Jobs]):
    """A queue that takes every dequeue for one that was answered."""

    name, noun, fs, observers = "jobs", "queue", frozenset({"enqueue", "dequeue"}), frozenset({"dequeue"})
    initial = ()

    def pure(self, op: Transition) -> bool:
        return False

    def step(self, state: _Jobs, op: Transition) -> _Jobs | Inconsistent:
        if op.f == "enqueue":
            return (*state, op.value)
        if op.value is None:
            return INCONSISTENT if state else state
        return state[1:] if state[:1] == (op.value,) else INCONSISTENT


class KnowingJobs(Jobs):
    def step(self, state: _Jobs, op: Transition) -> _Jobs | Inconsistent:
        return super().step(state, op) if op.f == "enqueue" or op.known else state[1:]


class Seats(Model[int]):
    """`book` of so many seats -> how many were left. What is full refuses, whatever was asked."""

    name, noun, fs, observers = "seats", "train", frozenset({"book"}), frozenset({"book"})
    initial = 0

    def pure(self, op: Transition) -> bool:
        return False

    def step(self, state: int, op: Transition) -> int | Inconsistent:
        return INCONSISTENT


def events(*rows: tuple[int, OpType, str, Any]) -> History:
    return History(Op(i, i, process, type_, f, "k", value) for i, (process, type_, f, value) in enumerate(rows))


LOST = events(
    (0, "invoke", "enqueue", 1), (0, "ok", "enqueue", 1), (1, "invoke", "dequeue", None), (1, "info", "dequeue", None),
    (2, "invoke", "dequeue", None), (2, "ok", "dequeue", None),
)  # fmt: skip


@pytest.mark.parametrize("edition", [nullcontext, jit.plain])
def test_a_model_that_takes_an_argument_for_an_answer_is_refused(edition: type[AbstractContextManager[None]]) -> None:
    with edition():
        assert check(LOST, KnowingJobs()).verdict == Verdict.VALID
        with pytest.raises(ValueError, match=r"model jobs: step never looks at op\.known, but there is 'dequeue' of"):
            check(LOST, Jobs())
        with pytest.raises(ValueError, match=r"step never looks at op\.known"):
            check_batch([LOST], Jobs())
    run = Linearizable(Jobs()).check(RunRecord(LOST))
    assert (run.verdict, "op.known" in run.reason) == (Verdict.UNKNOWN, True)


def test_a_model_may_refuse_an_op_whatever_its_argument() -> None:
    booked = events((0, "invoke", "book", 1), (0, "info", "book", None), (1, "invoke", "book", 1), (1, "ok", "book", 0))
    assert check(booked, Seats()).verdict == Verdict.INVALID


def test_where_nothing_is_unknown_nobody_has_to_look() -> None:
    assert check(events((0, "invoke", "dequeue", None), (0, "ok", "dequeue", 1)), Jobs()).verdict == Verdict.INVALID


MISPAIRED = {
    "a completion that nobody invoked": (
        [(0, "invoke", "write", 1), (1, "ok", "read", 1)],
        r"process 1 completes a read that it never invoked \(op 1\)",
    ),
    "a second completion": (
        [(0, "invoke", "write", 1), (0, "ok", "write", 1), (0, "ok", "write", 1)],
        r"process 0 completes a write that it never invoked \(op 2\)",
    ),
    "a completion of another op": (
        [(0, "invoke", "write", 1), (0, "ok", "read", 1)],
        r"op 1 completes read k where process 0 had invoked write k \(op 0\)",
    ),
    "two open ops of a process": (
        [(0, "invoke", "write", 1), (0, "invoke", "read", None), (0, "ok", "read", 1)],
        "process 0 invokes op 1 although its op 0 is still open",
    ),
    "a type that is none": ([(0, "invoke", "write", 1), (0, "done", "write", 1)], "op 1 has type 'done', not one of"),
}


@pytest.mark.parametrize("how", MISPAIRED)
def test_a_history_that_does_not_pair_is_refused(how: str) -> None:
    rows, what = MISPAIRED[how]
    history = events(*rows)  # type: ignore[arg-type]
    for judge in (
        lambda: check(history, Register()),
        lambda: check_keys(history, Register()),
        lambda: check_batch([history], Register()),
    ):
        with pytest.raises(ValueError, match=what):
            judge()
    assert Linearizable(Register()).check(RunRecord(history)).verdict == Verdict.UNKNOWN


@pytest.mark.parametrize("count", [1, 20_001])
def test_a_call_that_another_op_completes_is_refused(count: int) -> None:
    """Also where calls go to a special case without being looked at one by one."""
    calls = [
        Call(Op(2 * i, i, 0, "invoke", "write", "k", i), Op(2 * i + 1, i, 0, "ok", "write", "k", i))
        for i in range(count)
    ]
    calls[-1] = Call(calls[-1].invoke, Op(2 * count - 1, count, 0, "ok", "append", "k", 0))
    with pytest.raises(ValueError, match=f"op {2 * count - 2}: a write is completed by an append"):
        check(calls, Register())


def test_a_call_of_a_store_that_another_op_completes_is_refused() -> None:
    call = Call(Op(0, 0, 0, "invoke", "put", "k", "x"), Op(1, 1, 0, "ok", "get", "k", "x"))
    with pytest.raises(ValueError, match="history 0: op 0: a put is completed by a get"):
        check_batch([[call]], KV())


def test_a_model_is_called_by_its_article() -> None:
    assert check(History([]), UnorderedQueue()).reason == "nothing checked: there is no op of an unordered-queue"
