# SPDX-License-Identifier: Apache-2.0
"""The linearizability checker as its users meet it: verdicts, what it says, bad input, hostile input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from checkers.linearizability import (
    INCONSISTENT,
    KV,
    Budget,
    CasRegister,
    Inconsistent,
    Linearizable,
    Model,
    MultiRegister,
    Mutex,
    Register,
    Transition,
    check,
    check_keys,
    encode,
    verify_witness,
)
from results.history import History
from results.op import NEMESIS, Op, OpType
from results.record import RunRecord
from results.verdict import Verdict

Event = tuple[int, OpType, str, Any]
"""process, type, f, value"""


def history(*events: Event, key: str | None = "k1") -> History:
    return History(
        Op(i, i * 1000, process, type_, f, key, value) for i, (process, type_, f, value) in enumerate(events)
    )


def did(process: int, f: str, argument: Any, result: Any = None) -> list[Event]:
    """One op after the other."""
    return [(process, "invoke", f, argument), (process, "ok", f, argument if result is None else result)]


STALE = history(*did(0, "write", 4), *did(1, "write", 2), *did(0, "read", None, 4))


def test_stale_read_is_explained() -> None:
    result = check(STALE, Register())
    assert result.verdict == Verdict.INVALID
    assert result.reason == (
        "op 4: read 4 on key k1 cannot be placed: the register could only be 2 at that time; "
        "write 4 (op 0) had been overwritten by write 2 (op 2)"
    )
    assert (result.failing_op, list(result.core), list(result.states)) == (4, [0, 2, 4], ["2"])
    assert result.window == (0, 5000)
    assert result.core_is_minimal


def test_search_explains_as_the_special_case_does() -> None:
    """A value written twice elsewhere takes the history to the search; the sentence stays."""
    busy = history(
        *did(0, "write", 9), *did(0, "write", 9), *did(0, "write", 4), *did(1, "write", 2), *did(0, "read", None, 4)
    )
    result = check(busy, Register())
    assert result.algorithm == "just-in-time linearization"
    assert result.reason == (
        "op 8: read 4 on key k1 cannot be placed: the register could only be 2 at that time; "
        "write 4 (op 4) had been overwritten by write 2 (op 6)"
    )
    assert result.final_paths == [("2", 6)]


def test_where_values_repeat_the_past_is_left_out_of_the_core() -> None:
    """Each of the ten writes could explain the read if it came late; all of them are over, though."""
    often = [event for _ in range(10) for event in did(0, "write", 1)]
    result = check(history(*often, *did(1, "write", 2), *did(0, "read", None, 1)), Register())
    assert (list(result.core), result.core_starts_anywhere, result.core_is_minimal) == ([20, 22], True, True)
    assert result.reason.endswith("it contradicts write 2 (op 20), in whatever state the register was before them")


def test_read_from_nowhere_is_explained() -> None:
    result = check(history(*did(0, "write", 1), *did(0, "read", None, 5)), Register())
    assert result.reason == (
        "op 2: read 5 on key k1 cannot be placed: the register could only be 1 at that time; "
        "nothing had written 5 until then"
    )
    assert list(result.core) == [2]


def test_lost_write_is_explained() -> None:
    result = check(history(*did(0, "write", 1), (1, "invoke", "read", None), (1, "ok", "read", None)), Register())
    assert "the initial value absent had been overwritten by write 1 (op 0)" in result.reason


def test_concurrent_calls_may_take_effect_in_any_order() -> None:
    overlapping = history(
        (0, "invoke", "write", 1),
        (1, "invoke", "write", 2),
        (0, "ok", "write", 1),
        (1, "ok", "write", 2),
        *did(2, "read", None, 1),
    )
    result = check(overlapping, Register())
    assert result.verdict == Verdict.VALID
    assert list(result.witness or ()) == [1, 0, 4]


def test_unknown_write_may_take_effect_much_later_but_once() -> None:
    late: list[Event] = [
        (0, "invoke", "write", 1),
        (0, "info", "write", None),
        *did(1, "write", 2),
        *did(1, "read", None, 1),
    ]
    again = [*did(1, "write", 3), *did(1, "read", None, 1)]
    assert check(history(*late), Register()).verdict == Verdict.VALID
    assert check(history(*late, *again), Register()).verdict == Verdict.INVALID


def test_failed_write_never_takes_effect() -> None:
    refused = history((0, "invoke", "write", 1), (0, "fail", "write", None), *did(1, "read", None, 1))
    assert check(refused, Register()).verdict == Verdict.INVALID


@pytest.mark.parametrize(
    ("model", "good", "bad"),
    [
        (CasRegister(), [*did(0, "write", 1), *did(0, "cas", [1, 2]), *did(0, "read", None, 2)], did(0, "cas", [1, 3])),
        (CasRegister(), [*did(0, "write", 1), *did(0, "cas-refused", [2, 3])], did(0, "cas-refused", [1, 2])),
        (KV(), [*did(0, "put", "a"), *did(0, "append", "b"), *did(0, "get", None, "ab")], did(0, "get", None, "a")),
        (Mutex(), [*did(0, "acquire", None), *did(0, "release", None)], did(0, "release", None)),
        (
            MultiRegister(),
            did(0, "txn", [["write", "x", 1], ["read", "y", None]], [["write", "x", 1], ["read", "y", None]]),
            did(0, "txn", [["read", "x", None]], [["read", "x", None]]),
        ),
    ],
    ids=["cas", "refused", "kv", "mutex", "txn"],
)
def test_models(model: Model[Any], good: list[Event], bad: list[Event]) -> None:
    assert check(history(*good), model).verdict == Verdict.VALID
    result = check(history(*good, *bad), model)
    assert result.verdict == Verdict.INVALID
    assert result.failing_op == len(good)


def test_one_writes_a_model_in_a_few_lines() -> None:
    class Counter(Model[int]):
        name, noun, fs, observers, initial = "counter", "counter", frozenset({"add", "get"}), frozenset({"get"}), 0

        def step(self, state: int, op: Transition) -> int | Inconsistent:
            return state + op.value if op.f == "add" else state if op.value == state else INCONSISTENT

    counted = [*did(0, "add", 2), *did(0, "add", 3), *did(0, "get", None, 5)]
    assert check(history(*counted), Counter()).verdict == Verdict.VALID
    wrong = check(history(*counted, *did(0, "get", None, 3)), Counter())
    assert wrong.reason.startswith("op 6: get 3 on key k1 cannot be placed: the counter could only be 5 at that time;")


def test_model_that_lies_about_itself_is_told() -> None:
    class Liar(Register):
        def pure(self, op: Transition) -> bool:
            return True

    with pytest.raises(ValueError, match=r"model register calls 'write 4' pure, but its step changes the state"):
        check(STALE, Liar())


def test_witness_judge_finds_what_is_wrong() -> None:
    problem = encode(STALE.calls[:2], Register())
    assert verify_witness(problem, [0, 1]) is None
    assert verify_witness(problem, [1, 0]) == "op 0 had returned before an op placed in front of it was called"
    assert verify_witness(problem, [0]) == "op 2 completed and is not placed"
    assert verify_witness(problem, [0, 1, 1]) == "an op is placed twice"
    assert verify_witness(encode(STALE.calls, Register()), [0, 1, 2]) == "op 4 cannot happen where it is placed"


@pytest.mark.parametrize(
    ("ops", "model", "message"),
    [
        (history(*did(0, "cas", 3)), CasRegister(), r"op 0: the value of a cas is \[expected, new\], not 3"),
        (history(*did(0, "put", 3)), KV(), "op 0: the value of a put is a string, not 3"),
        (
            history(*did(0, "txn", [["inc", "x", 1]])),
            MultiRegister(),
            r"op 0: a txn is a list of .* and \['inc', 'x', 1\] is",
        ),
        (
            [*history(*did(0, "write", 1)).calls, *history(*did(0, "write", 2), key="k2").calls],
            Register(),
            r"these are ops of 2 keys; each is an object of its own \(use check_keys\)",
        ),
        (history(*did(0, "write", 1)).calls * 2, Register(), "two events have the index 0; indices are the order"),
    ],
)
def test_bad_input_is_one_clear_line(ops: History, model: Model[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(ops, model)


def storm() -> History:
    """Forty concurrent cas over five values. Used all once, they lead back to 0: the last read cannot be, and only
    trying their orders shows it. (A write over all the time keeps the books from being closed; 3 it does not explain.)
    """
    swaps = [[p % 5, (p % 5 + 1 + p // 5 % 4) % 5] for p in range(40)]
    opening: list[Event] = [(p, "invoke", "cas", swap) for p, swap in enumerate(swaps)]
    ending: list[Event] = [(p, "ok", "cas", swap) for p, swap in enumerate(swaps)]
    begin, end = ((91, outcome, "write", 9) for outcome in ("invoke", "ok"))
    return history(*did(90, "write", 0), begin, *did(90, "write", 0), *opening, *ending, *did(90, "read", None, 3), end)


def test_budget_that_runs_out_is_unknown_and_says_how_far() -> None:
    result = check(storm(), CasRegister(), Budget(steps=5_000, per_event=0))
    assert result.verdict == Verdict.UNKNOWN
    assert result.reason.startswith("undecided after 5,0")
    assert "linearizable up to 2 of 44 completed ops, then the just-in-time linearization gave up" in result.reason
    assert result == check(storm(), CasRegister(), Budget(steps=5_000, per_event=0))


def test_memory_budget_is_kept() -> None:
    result = check(storm(), CasRegister(), Budget(memory=2**20))
    assert result.verdict == Verdict.UNKNOWN
    assert "it needs more than 1 MiB" in result.reason
    assert result.work < 500_000


def run(*parts: tuple[str, Sequence[Event]]) -> RunRecord:
    ops: list[Op] = []
    for key, events in parts:
        for process, type_, f, value in events:
            ops.append(Op(len(ops), len(ops) * 1000, process, type_, f, key, value))
    return RunRecord(History(ops))


GOOD = [*did(0, "write", 1), *did(0, "read", None, 1)]
BAD = [*did(0, "write", 4), *did(0, "write", 2), *did(0, "read", None, 4)]


def test_checker_judges_each_key() -> None:
    result = Linearizable(CasRegister()).check(run(("a", GOOD), ("b", BAD), ("c", GOOD)))
    assert result.verdict == Verdict.INVALID
    assert result.reason.endswith("(1 of 3 keys are not linearizable)")
    (anomaly,) = result.anomalies
    assert (anomaly.name, anomaly.key, list(anomaly.ops)) == ("nonlinearizable", "b", [4, 6, 8])
    assert anomaly.window == (4000, 9000)
    assert anomaly.summary.startswith("op 8: read 4 on key b cannot be placed: the register could only be 2")
    assert anomaly.details["model"] == "cas-register"
    assert (result.stats["keys"], result.stats["ops"]) == (3, 7)


def test_checker_is_silent_on_good_runs() -> None:
    result = Linearizable(CasRegister()).check(run(("a", GOOD), ("b", GOOD)))
    assert (result.verdict, result.reason, list(result.anomalies)) == (Verdict.VALID, "2 keys, 4 ops", [])


def test_checker_leaves_others_ops_alone() -> None:
    """Reads of one replica are stale by design, and the nemesis is no client."""
    stale_replica: list[Event] = [(5, "invoke", "replica-read", None), (5, "ok", "replica-read", 77)]
    nemesis: list[Event] = [(NEMESIS, "invoke", "write", 3), (NEMESIS, "info", "write", 3)]
    result = Linearizable(CasRegister()).check(run(("a", [*GOOD, *stale_replica, *nemesis])))
    assert (result.verdict, result.stats["ops"]) == (Verdict.VALID, 2)


def test_nothing_to_check_is_unknown() -> None:
    result = Linearizable(CasRegister()).check(run(("a", did(0, "enqueue", 1))))
    assert result.verdict == Verdict.UNKNOWN
    assert result.reason == "nothing checked: no cas or cas-refused or read or write is in the history"
    assert check(history(), Register()).reason == "nothing checked: there is no op of a register"


def test_nonsense_makes_the_run_unknown_in_one_line() -> None:
    result = Linearizable(CasRegister()).check(run(("a", GOOD), ("b", did(0, "cas", "x"))))
    assert result.verdict == Verdict.UNKNOWN
    assert result.reason == (
        "the history makes no sense to the model cas-register: key b: op 4: "
        "the value of a cas is [expected, new], not 'x'"
    )


def test_many_bad_keys_are_counted_and_the_first_told() -> None:
    result = Linearizable(CasRegister()).check(run(*((f"k{i}", BAD) for i in range(30))))
    assert len(result.anomalies) == 20
    assert result.stats["invalid_keys"] == 30
    assert result.reason.endswith("(30 of 30 keys are not linearizable)")


def test_keys_can_be_checked_at_once() -> None:
    record = run(("a", GOOD), ("b", BAD))
    assert {key: r.verdict.value for key, r in check_keys(record.history, Register()).items()} == {
        "a": "valid",
        "b": "invalid",
    }


@pytest.mark.slow
def test_long_valid_history_of_one_key() -> None:
    """50,000 ops; no recursion, no quadratic step."""
    events: list[Event] = []
    for i in range(25_000):
        events += [*did(0, "write", i + 1), *did(1, "read", None, i + 1)]
    result = check(history(*events), CasRegister())
    assert (result.verdict, result.checked) == (Verdict.VALID, 50_000)


def test_long_history_through_the_search() -> None:
    events: list[Event] = []
    for i in range(5_000):
        events += [*did(0, "write", i % 3), *did(1, "read", None, i % 3)]
    result = check(history(*events), CasRegister())
    assert (result.verdict, result.algorithm) == (Verdict.VALID, "just-in-time linearization")
    assert result.work < 200_000


class Sum(Model[int]):
    """As many states as there are subsets of what was added."""

    name, noun, fs, observers, initial = "sum", "sum", frozenset({"add", "get"}), frozenset({"get"}), 0

    def step(self, state: int, op: Transition) -> int | Inconsistent:
        return state + op.value if op.f == "add" else state if op.value == state else INCONSISTENT


def test_a_million_states_end_in_unknown_within_the_budget() -> None:
    opening: list[Event] = [(p, "invoke", "add", 2**p) for p in range(20)]
    seen = did(99, "get", None, -1)
    result = check(history(*opening, *seen), Sum(), Budget(steps=50_000, per_event=0))
    assert result.verdict == Verdict.UNKNOWN
    assert result.work <= 51_000
    small = check(history(*opening, *seen), Sum(), Budget(memory=2**20))
    assert (small.verdict, "more than 1 MiB" in small.reason) == (Verdict.UNKNOWN, True)


def test_values_that_hold_themselves_or_are_huge() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="op 0: its value is nested too deeply, or holds itself"):
        check(history(*did(0, "write", endless)), Register())
    huge = [*range(10_000)]
    assert check(history(*did(0, "write", huge), *did(0, "read", None, huge)), Register()).verdict == Verdict.VALID
    wrong = check(history(*did(0, "write", huge), *did(0, "read", None, [*huge, 1])), Register())
    assert (wrong.verdict, len(wrong.reason) < 500) == (Verdict.INVALID, True)
    nan = history(*did(0, "write", float("nan")), *did(0, "read", None, float("nan")))
    assert check(nan, Register()).verdict == Verdict.VALID


@pytest.mark.parametrize("outcome", ["ok", "info"])
@pytest.mark.parametrize("f", ["write", "cas"])
def test_thousands_of_open_ops_end(f: str, outcome: OpType) -> None:
    """All concurrent, values repeated: a verdict or unknown, within the budget."""

    def value(p: int) -> Any:
        return p % 3 if f == "write" else [p % 7, p * 3 % 7]

    opening: list[Event] = [(p, "invoke", f, value(p)) for p in range(3_000)]
    ending: list[Event] = [(p, outcome, f, value(p)) for p in range(3_000)]
    seen = did(20_000, "read", None, 2)
    result = check(history(*opening, *seen, *ending), CasRegister(), Budget(steps=200_000, per_event=1))
    assert result.work <= 200_000 + 20_002 + 10_001


@pytest.mark.slow
@pytest.mark.parametrize(("f", "outcome"), [("write", "info"), ("cas", "ok")])
def test_a_hundred_thousand_open_ops_end(f: str, outcome: OpType) -> None:
    def value(p: int) -> Any:
        return p % 3 if f == "write" else [p % 7, p * 3 % 7]

    opening: list[Event] = [(p, "invoke", f, value(p)) for p in range(100_000)]
    ending: list[Event] = [(p, outcome, f, value(p)) for p in range(100_000)]
    seen = did(200_000, "read", None, 2)
    result = check(history(*opening, *seen, *ending), CasRegister(), Budget(steps=200_000, per_event=1))
    assert result.verdict == (Verdict.VALID if f == "write" else Verdict.INVALID)
