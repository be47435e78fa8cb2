"""Every model against real objects at work, against brute force, and with a violation planted in each."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from models_at_work import WORK, brute_force, falsified, lived, model_of, told

from checkers.linearizability import MODELS, check, encode
from checkers.linearizability.budget import Meter
from checkers.linearizability.search.jit_linearization import JustInTime
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
    "kv": ([("put", "a", "a"), ("append", "b", "b")], ("get", None, "ba"), "'ab'"),
    "counter": ([("add", 2, 2), ("add", 3, 3)], ("read", None, 4), "5"),
    "grow-only-set": ([("add", 1, 1), ("read", None, [1])], ("read", None, []), "{1}"),
    "set": ([("add", 1, 1), ("remove", 1, 1), ("add", 2, 2)], ("contains", 1, True), "{2}"),
    "fifo-queue": ([("enqueue", 1, 1), ("enqueue", 2, 2)], ("dequeue", None, 2), "[1, 2]"),
    "unordered-queue": ([("enqueue", 1, 1), ("dequeue", None, 1)], ("dequeue", None, 1), "{}"),
    "stack": ([("push", 1, 1), ("push", 2, 2)], ("pop", None, 1), "[2, 1]"),
    "mutex": ([("acquire", None, None)], ("acquire", None, None), "held"),
    "fenced-lock": ([("acquire", "a", 7), ("release", "a", "a")], ("acquire", "b", 7), "free (fence 7)"),
    "reentrant-lock": (
        [("acquire", "a", "a"), ("acquire", "a", "a"), ("release", "a", "a")],
        ("acquire", "b", "b"),
        "held by 'a', 1 times",
    ),
    "log": ([("append", "x", 0), ("append", "y", 1), ("read", 1, "y")], ("read", 0, "y"), "['x', 'y']"),
}


EVIDENCE: dict[str, tuple[str, list[Step], str]] = {
    "a sum beyond all that was read": ("counter", [("add", 5, 5), ("add", 5, 5), ("read", None, 3)], "10"),
    "elements that nobody takes": (
        "unordered-queue",
        [("enqueue", 1, 1), ("enqueue", 2, 2), ("dequeue", None, 3)],
        "{1, 2}",
    ),
    "a set that nobody read": ("grow-only-set", [("add", 1, 1), ("add", 2, 2), ("read", None, [3])], "{1, 2}"),
    "elements that nobody asks about": ("set", [("add", 1, 1), ("add", 2, 2), ("contains", 3, True)], "{1, 2}"),
    "a string that no get shows": ("kv", [("put", "xy", "xy"), ("get", None, "z")], "'xy'"),
}


@pytest.mark.parametrize("what", EVIDENCE)
def test_the_states_told_are_those_of_the_model(what: str) -> None:
    """Also where the search merges states that no op of the history tells apart."""
    name, steps, state = EVIDENCE[what]
    result = check(one_by_one(*steps), model_of(name))
    assert (result.verdict, list(result.states)) == (Verdict.INVALID, [state])
    assert f"could only be {state} at that time" in result.reason


MERGED = {
    "counter": ([("add", 5, 5), ("add", 5, 5), ("read", None, 3)], "more than 3"),
    "unordered-queue": (
        [("enqueue", 1, 1), ("enqueue", 2, 2), ("dequeue", None, 3)],
        "{}, perhaps with others that nobody takes",
    ),
    "grow-only-set": ([("add", 1, 1), ("read", None, [2])], "a set that is part of none that was read"),
    "set": ([("add", 1, 1), ("contains", 2, True)], "{}, perhaps with others that nobody asks about"),
    "fifo-queue": ([("enqueue", 1, 1), ("enqueue", 2, 2), ("dequeue", None, 2)], "[what nobody takes]"),
    "stack": ([("push", 1, 1), ("pop", None, 2)], "[what nobody takes]"),
    "kv": ([("put", "a", "a"), ("get", None, "b")], "a string that no get shows the beginning of"),
    "log": ([("append", "x", 0), ("read", 0, "y")], "[an entry that no read shows there]"),
}
"""Histories by model, and how the state that the search has before the last op is told."""


@pytest.mark.parametrize("name", MERGED)
def test_a_state_that_stands_for_several_says_so(name: str) -> None:
    steps, told_as = MERGED[name]
    problem = encode(one_by_one(*steps).calls, model_of(name))
    found = JustInTime(problem, Meter(10**6, 10**9)).run()
    assert [problem.table.tell(state) for state in found.states] == [told_as]


def test_what_an_unknown_take_left_is_not_made_up() -> None:
    """Nobody knows which element went, or which fence was granted."""
    robbed = history(
        (0, "invoke", "enqueue", 1), (0, "ok", "enqueue", 1), (0, "invoke", "enqueue", 2), (0, "ok", "enqueue", 2),
        (1, "invoke", "dequeue", None), (2, "invoke", "dequeue", None), (2, "ok", "dequeue", 3),
    )  # fmt: skip
    assert set(check(robbed, model_of("unordered-queue")).states) == {"{1 of the elements}", "{2 of the elements}"}
    fenced = one_by_one(("acquire", "a", 7), ("release", "a", "a"), ("acquire", "b", None), ("acquire", "c", 9))
    assert list(check(fenced, model_of("fenced-lock")).states) == ["held by 'b' (fence 8 or more)"]


@pytest.mark.parametrize("name", MODELS)
def test_a_planted_violation_is_found_and_told(name: str) -> None:
    good, bad, state = PLANTED[name]
    assert check(one_by_one(*good), model_of(name)).verdict == Verdict.VALID
    result = check(one_by_one(*good, bad), model_of(name))
    assert (result.verdict, result.failing_op) == (Verdict.INVALID, 2 * len(good))
    assert list(result.states) == [state], result.reason
