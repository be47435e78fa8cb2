"""Every model against real objects at work, against brute force, and with a violation planted in each."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from models_at_work import WORK, brute_force, falsified, lived, model_of, told

from checkers.linearizability import MODELS, check
from results.history import History
from results.op import Op, OpType
from results.verdict import Verdict

EFFORT = int(os.environ.get("HARNESS_FUZZ", "1"))
"""Multiplies the number of histories, for nightly runs."""

Event = tuple[int, OpType, str, Any]
Step = tuple[str, Any, Any]
"""f, argument, result"""


def history(*events: Event) -> History:
    return History(Op(i, i * 1000, p, type_, f, "k", value) for i, (p, type_, f, value) in enumerate(events))


def one_by_one(*steps: Step) -> History:
    """One op after the other, each of a client of its own."""
    return history(
        *(event for p, (f, a, r) in enumerate(steps) for event in ((p, "invoke", f, a), (p, "ok", f, r)))  # type: ignore[misc]
    )


def test_every_model_is_tested() -> None:
    assert set(WORK) == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_the_checker_agrees_with_brute_force(name: str) -> None:
    """What a real object did is valid; with one answer falsified, brute force decides."""
    rng, seen = Random(f"{name}/1"), set()
    for _ in range(200 * EFFORT):
        calls = lived(rng, name, rng.choice((0, 0.1, 0.3, 0.6)))
        model = model_of(name)
        if not any(call.outcome == "ok" for call in calls):
            continue
        assert check(calls, model).verdict == Verdict.VALID, told(calls)
        wrong = falsified(rng, name, calls)
        truth = Verdict.VALID if brute_force(wrong, model) else Verdict.INVALID
        result = check(wrong, model)
        assert result.verdict == truth, told(wrong)
        seen.add(truth)
        if truth == Verdict.INVALID:
            assert result.failing_op in result.core
            spared = {c.invoke.index for c in wrong if c.invoke.index not in result.core}
            assert not brute_force(wrong, model, perhaps=spared), told(wrong)
    assert seen == {Verdict.VALID, Verdict.INVALID}


PLANTED: dict[str, tuple[list[Step], Step, str]] = {
    "register": ([("write", 1, 1), ("write", 2, 2)], ("read", None, 1), "2"),
    "cas-register": ([("write", 1, 1), ("cas", [1, 2], [1, 2])], ("cas", [1, 3], [1, 3]), "2"),
    "multi-register": (
        [("txn", [["write", "x", 1], ["write", "y", 1]], [["write", "x", 1], ["write", "y", 1]])],
        ("txn", [["read", "x", None], ["read", "y", None]], [["read", "x", 1], ["read", "y", 0]]),
        "[['x', 1], ['y', 1]]",
    ),
    "kv": ([("put", "a", "a"), ("append", "b", "b")], ("get", None, "ba"), "'(something that no get ever saw)'"),
    "counter": ([("add", 2, 2), ("add", 3, 3)], ("read", None, 4), "5"),
    "grow-only-set": ([("add", 1, 1), ("read", None, [1])], ("read", None, []), "{1}"),
    "set": ([("add", 1, 1), ("remove", 1, 1), ("add", 2, 2)], ("contains", 1, True), "{}"),
    "fifo-queue": ([("enqueue", 1, 1), ("enqueue", 2, 2)], ("dequeue", None, 2), "[what nobody takes]"),
    "unordered-queue": ([("enqueue", 1, 1), ("dequeue", None, 1)], ("dequeue", None, 1), "{}"),
    "stack": ([("push", 1, 1), ("push", 2, 2)], ("pop", None, 1), "[what nobody takes]"),
    "mutex": ([("acquire", None, None)], ("acquire", None, None), "held"),
    "fenced-lock": ([("acquire", "a", 7), ("release", "a", "a")], ("acquire", "b", 7), "free (fence 7)"),
    "reentrant-lock": (
        [("acquire", "a", "a"), ("acquire", "a", "a"), ("release", "a", "a")],
        ("acquire", "b", "b"),
        "held by 'a', 1 times",
    ),
    "log": ([("append", "x", 0), ("append", "y", 1), ("read", 1, "y")], ("read", 0, "y"), "[(never seen), 'y']"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_planted_violation_is_found_and_told(name: str) -> None:
    good, bad, state = PLANTED[name]
    assert check(one_by_one(*good), model_of(name)).verdict == Verdict.VALID
    result = check(one_by_one(*good, bad), model_of(name))
    assert (result.verdict, result.failing_op) == (Verdict.INVALID, 2 * len(good))
    assert list(result.states) == [state], result.reason
