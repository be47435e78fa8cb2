# SPDX-License-Identifier: Apache-2.0
"""Every model against real objects at work, against brute force, and with a violation planted in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from effort import effort
from models_at_work import STARTED, WORK, brute_force, falsified, lived, model_of, told

from checkers.linearizability import (
    ANYTHING,
    KV,
    MODELS,
    Counter,
    Linearizable,
    Register,
    check,
    check_keys,
    encode,
)
from checkers.linearizability.batch import check_batch
from checkers.linearizability.budget import Meter
from checkers.linearizability.direct import MANY
from checkers.linearizability.search.jit_linearization import JustInTime
from results.history import Call, History
from results.op import Op, OpType
from results.record import RunRecord
from results.verdict import Verdict

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
@pytest.mark.slow
def test_the_checker_agrees_with_brute_force(name: str) -> None:
    """A history of a real object is valid; with one answer falsified, brute force decides."""
    rng, seen = Random(f"{name}/1"), set()
    for _ in range(effort(200)):
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
        ("txn", [["read", "x", None], ["read", "y", None]], [["read", "x", 1], ["read", "y", None]]),
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
    """Also where the search merges states that no op of the history distinguishes."""
    name, steps, state = EVIDENCE[what]
    result = check(one_by_one(*steps), model_of(name))
    assert (result.verdict, list(result.states)) == (Verdict.INVALID, [state])
    assert f"could only be {state} at that time" in result.reason


MERGED = {
    "counter": ([("add", 5, 5), ("add", 5, 5), ("read", None, 3)], "more than 3"),
    "unordered-queue": (
        [("enqueue", 1, 1), ("enqueue", 2, 2), ("dequeue", None, 3)],
        "{}, perhaps with others that no op takes",
    ),
    "grow-only-set": ([("add", 1, 1), ("read", None, [2])], "a set that is part of none that was read"),
    "set": ([("add", 1, 1), ("contains", 2, True)], "{}, perhaps with others that no op queries"),
    "fifo-queue": ([("enqueue", 1, 1), ("enqueue", 2, 2), ("dequeue", None, 2)], "[an element that no op takes]"),
    "stack": ([("push", 1, 1), ("pop", None, 2)], "[an element that no op takes]"),
    "kv": ([("put", "a", "a"), ("get", None, "b")], "a string that no get shows the beginning of"),
    "log": ([("append", "x", 0), ("read", 0, "y")], "[an entry that no read shows there]"),
}
"""Histories by model, and the text for the state that the search has before the last op."""


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
    assert set(check(robbed, model_of("unordered-queue")).states) == {"1 of {1, 2}", "{1, 2}"}
    fenced = one_by_one(("acquire", "a", 7), ("release", "a", "a"), ("acquire", "b", None), ("acquire", "c", 9))
    assert list(check(fenced, model_of("fenced-lock")).states) == ["held by 'b' (fence 8 or more)"]


def explained_by_some_bag(calls: Sequence[Call]) -> bool:
    """From the definition alone: an unknown take may have taken any element, so a state has several that follow."""
    kept = [call for call in calls if call.outcome != "fail"]
    end = [c.completion.index if c.completion and c.outcome == "ok" else float("inf") for c in kept]
    must = {i for i, call in enumerate(kept) if call.outcome == "ok"}

    def after(bag: tuple[Any, ...], call: Call) -> Iterator[tuple[Any, ...]]:
        f, known = call.invoke.f, call.outcome == "ok"
        shown = call.completion.value if call.completion and known else None
        if f == "enqueue":
            yield tuple(sorted((*bag, call.invoke.value)))
        elif f == "drain":
            yield from [()] if not known or sorted(shown) == list(bag) else []
        elif known and shown is None:
            yield from [bag] if not bag else []
        else:
            yield from {(*bag[:i], *bag[i + 1 :]) for i, one in enumerate(bag) if not known or one == shown}

    def possible(placed: frozenset[int], bag: tuple[Any, ...]) -> bool:
        if must <= placed:
            return True
        first = min(end[i] for i in must - placed)
        ready = [i for i in range(len(kept)) if i not in placed and kept[i].invoke.index < first]
        return any(possible(placed | {i}, next_) for i in ready for next_ in after(bag, kept[i]))

    return possible(frozenset(), ())


def test_a_bag_is_robbed_of_any_element() -> None:
    """Dequeues of unknown outcome may have taken any element, also where a drain shows all that is left."""
    rng, seen = Random("robbed"), set()
    for _ in range(effort(150, 80)):
        for calls in (true := lived(rng, "unordered-queue", 0.4, 6), falsified(rng, "unordered-queue", true)):
            truth = explained_by_some_bag(calls)
            assert brute_force(calls, model_of("unordered-queue")) == truth, told(calls)
            seen.add((truth, any(c.invoke.f == "drain" and c.outcome == "ok" for c in calls)))
    assert len(seen) == 4


@pytest.mark.parametrize("family", STARTED)
def test_a_model_that_begins_with_something_agrees_with_brute_force(family: str) -> None:
    """One by one, with its core: what a real object did from that start, and the same with one answer falsified."""
    make, work = STARTED[family]
    rng, seen, name = Random(f"{family}/start"), set(), family.split(maxsplit=1)[0]
    for _ in range(effort(60, 45)):
        calls = lived(rng, name, rng.choice((0, 0.3, 0.6)), 8, work)
        if not any(call.outcome == "ok" for call in calls):
            continue
        assert check(calls, make()).verdict == Verdict.VALID, told(calls)
        wrong = falsified(rng, name, calls, work)
        truth = brute_force(wrong, make())
        result = check(wrong, make())
        assert result.verdict == (Verdict.VALID if truth else Verdict.INVALID), told(wrong)
        seen.add(truth)
        if not truth and not result.core_starts_anywhere:
            spared = {c.invoke.index for c in wrong if c.invoke.index not in result.core}
            assert not brute_force(wrong, make(), perhaps=spared), told(wrong)
    assert seen == {True, False}


@pytest.mark.parametrize("name", MODELS)
def test_an_op_that_the_model_does_not_know_is_refused(name: str) -> None:
    """Its effect may explain the others' answers, so a verdict must not leave it out silently."""
    steps = [*PLANTED[name][0], ("frobnicate", 1, 1)]
    where = f"the model {name} has no `frobnicate` \\(op {2 * len(steps) - 2}\\); ignore={{'frobnicate'}} leaves it out"
    for judge in (check, check_keys):
        with pytest.raises(ValueError, match=where):
            judge(one_by_one(*steps), model_of(name))
    with pytest.raises(ValueError, match="has no `frobnicate`"):
        check_batch([one_by_one(*steps)], model_of(name))
    assert check(one_by_one(*steps), model_of(name), ignore=["frobnicate"]).verdict == Verdict.VALID
    known = sorted(model_of(name).fs)[0]
    with pytest.raises(ValueError, match=f"has no `{known}x` .*; is it a `{known}`\\?"):
        check(one_by_one((f"{known}x", None, None)), model_of(name))


@pytest.mark.parametrize("name", MODELS)
def test_a_history_in_which_nothing_certainly_happened_is_unknown(name: str) -> None:
    """A test whose every op failed, or was lost, has examined nothing."""
    f, argument, _ = PLANTED[name][0][0]
    for last in ("fail", "info"):
        idle = history((0, "invoke", f, argument), (0, last, f, argument))
        for result in (check(idle, model_of(name)), check_keys(idle, model_of(name))["k"]):
            assert (result.verdict, "known to have happened" in result.reason) == (Verdict.UNKNOWN, True) or (
                last == "fail" and result.reason.startswith("nothing checked")
            )
        assert check_batch([idle], model_of(name))[0] == Verdict.UNKNOWN


def test_one_idle_key_beside_others_is_no_objection() -> None:
    """But a history of which all keys are idle is unknown."""
    lost = [Op(0, 0, 0, "invoke", "write", "a", 1), Op(1, 1, 0, "info", "write", "a", 1)]
    done = [Op(2, 2, 1, "invoke", "write", "b", 1), Op(3, 3, 1, "ok", "write", "b", 1)]
    both = check_keys(History([*lost, *done]), Register())
    assert [both[key].verdict for key in ("a", "b")] == [Verdict.VALID, Verdict.VALID]
    assert both["a"].reason == "nothing contradicts it: none of 1 ops is known to have happened"
    more = [replace(op, index=op.index + 2, key="c", process=2) for op in lost]
    alone = Linearizable(Register()).check(RunRecord(History([*lost, *more])))
    assert (alone.verdict, alone.reason) == (
        Verdict.UNKNOWN,
        "nothing checked: none of its 2 ops is known to have happened",
    )


def test_a_drain_that_others_overlap_is_no_proof() -> None:
    """A loop of dequeues may share the elements with others; as one step it may not."""
    shared = history(
        (0, "invoke", "enqueue", 1), (0, "ok", "enqueue", 1), (0, "invoke", "enqueue", 2), (0, "ok", "enqueue", 2),
        (1, "invoke", "drain", None), (2, "invoke", "drain", None), (1, "ok", "drain", [1]), (2, "ok", "drain", [2]),
    )  # fmt: skip
    for name in ("fifo-queue", "unordered-queue"):
        found = Linearizable(model_of(name)).check(RunRecord(shared))
        assert (found.verdict, "ops 4 and 5 overlap" in found.reason) == (Verdict.UNKNOWN, True), found.reason
        alone = one_by_one(("enqueue", 1, 1), ("enqueue", 2, 2), ("drain", None, [1]))
        assert Linearizable(model_of(name)).check(RunRecord(alone)).verdict == Verdict.INVALID


REFUSED = {
    "try": ("mutex", [("try-acquire", None, 1)], "the result of a try-acquire is true or false, not 1"),
    "fence": ("fenced-lock", [("try-acquire", "a", None)], "the result of a try-acquire is its fence"),
    "owner": ("reentrant-lock", [("try-lock", "a", "a")], "the result of a try-acquire is true or false, not 'a'"),
    "drain": ("fifo-queue", [("drain", None, 7)], "the result of a drain is the list of what it took, not 7"),
    "increment": ("counter", [("increment", 1, 1)], "an increment has no argument, and 1 is one: it is an add if"),
    "number": ("counter", [("add-and-get", "1", 1)], "the argument of an add-and-get is a whole number, not '1'"),
    "list-append": ("multi-register", [("txn", [["append", 1, 1]], [["append", 1, 1]])], "elle-cli checks it"),
    "name": (
        "multi-register",
        [("txn", [["w", None, 1]], [["w", None, 1]])],
        "the name of a register is a text, a number or a truth value, not absent",
    ),
    "step": ("multi-register", [("txn", [["w", "x"]], [["w", "x"]])], "and \\['write', 'x'\\] is no such step"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_value_that_makes_no_sense_is_one_line(what: str) -> None:
    """The message says what is wrong, and what would be right."""
    name, steps, told_as = REFUSED[what]
    with pytest.raises(ValueError, match=f"op 0: .*{told_as}"):
        check(one_by_one(*steps), model_of(name))


def test_a_start_value_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="the start value of a counter is a whole number, not 'x'"):
        Counter("x")
    with pytest.raises(ValueError, match="the start value of a key is a string, not 1"):
        KV(1)


@pytest.mark.slow
def test_a_long_history_knows_its_start_and_the_short_names() -> None:
    """Columns, which long histories are decided from, have no number for a start value."""
    many = [step for n in range(1, MANY) for step in (("w", n, n), ("r", None, n))]
    for model, first, verdict in (
        (Register(), None, Verdict.VALID), (Register(), 5, Verdict.INVALID), (Register(5), None, Verdict.INVALID),
        (Register(-5), -5, Verdict.VALID), (Register(ANYTHING), -5, Verdict.VALID),
    ):  # fmt: skip
        assert check(one_by_one(("read", None, first), *many), model).verdict == verdict, (model.initial, first)


@pytest.mark.parametrize("name", MODELS)
def test_a_planted_violation_is_found_and_told(name: str) -> None:
    good, bad, state = PLANTED[name]
    assert check(one_by_one(*good), model_of(name)).verdict == Verdict.VALID
    result = check(one_by_one(*good, bad), model_of(name))
    assert (result.verdict, result.failing_op) == (Verdict.INVALID, 2 * len(good))
    assert list(result.states) == [state], result.reason


def test_a_counter_that_falls_back_is_invalid() -> None:
    """A server that loses its last additions: the search begins with a number beyond all that is read after it."""
    for seed in range(effort(40)):
        rng, value, events = Random(seed), 0, list[Event]()

        def call(process: int, f: str, argument: int | None, result: int, events: list[Event] = events) -> None:
            events += [(process, "invoke", f, argument), (process, "ok", f, result)]

        for _ in range(rng.randint(60, 160)):
            step = rng.randint(1, 9)
            if rng.random() < 0.6:
                call(1, "add", step, step)
                value += step
            else:
                call(2, "read", None, value)
        events += [
            (3, "invoke", "add", 2),
            (3, "info", "add", 2),
            (4, "invoke", "read", None),
            (4, "info", "read", None),
        ]
        call(5, "read", None, value - rng.randint(1, 9))
        assert check(history(*events), model_of("counter")).verdict == Verdict.INVALID, seed
