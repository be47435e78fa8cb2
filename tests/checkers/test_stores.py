# SPDX-License-Identifier: Apache-2.0
"""Many keys of a store at once: strings that can be cut in several ways, and calls that are not what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from tiny_histories import brute_force

from checkers.linearizability import KV, encode
from checkers.linearizability.batch import INVALID, UNKNOWN, VALID, check_batch
from results.history import Call
from results.op import Op

TOKENS: Sequence[Sequence[str]] = (
    ("a", "b", "c", "d"),
    ("a", "aa", "b", "ab"),
    ("", "a", "b"),
    ("x1", "x12", "2", "\U0001f600", "\udc80"),
    ("ab", "b", "a", "abb"),
)


def history(rng: Random) -> list[Call]:
    """Up to nine ops of a real key; three gets in ten lie, one op in seven is of unknown outcome."""
    tokens = rng.choice(TOKENS)
    count = rng.randrange(1, 10)
    starts = [rng.random() * count for _ in range(count)]
    ends = [start + rng.random() * rng.choice((0.5, 2, 5)) for start in starts]
    state = ""
    did: dict[int, tuple[str, str, bool, str]] = {}
    for op in sorted(range(count), key=lambda op: rng.uniform(starts[op], ends[op])):
        f, token, unknown = rng.choice(("get", "put", "append", "append")), rng.choice(tokens), rng.random() < 0.15
        if f != "get" and (not unknown or rng.random() < 0.5):
            state = token if f == "put" else state + token
        lie = rng.choice(("", state + token, state[:-1], token))
        did[op] = f, token, unknown, lie if rng.random() < 0.3 else state
    invoked: dict[int, Op] = {}
    completed: dict[int, Op] = {}
    for index, (_, returns, op) in enumerate(
        sorted([(t, False, op) for op, t in enumerate(starts)] + [(t, True, op) for op, t in enumerate(ends)])
    ):
        f, token, unknown, seen = did[op]
        if not returns:
            invoked[op] = Op(index, index, op, "invoke", f, "k", None if f == "get" else token)
        elif not unknown:
            completed[op] = Op(index, index, op, "ok", f, "k", (seen or None) if f == "get" else token)
        elif op % 2:
            completed[op] = Op(index, index, op, "info", f, "k", None)
    return [Call(invoke, completed.get(op)) for op, invoke in invoked.items()]


def call(index: int, f: str, value: object, end: int | None, seen: object = None) -> Call:
    completion = None if end is None else Op(end, end, index, "ok", f, "k", seen if f == "get" else value)
    return Call(Op(index, index, index, "invoke", f, "k", value), completion)


def test_however_the_strings_can_be_cut() -> None:
    rng = Random(5)
    histories = [history(rng) for _ in range(1_000)]
    found = check_batch(histories, KV())
    verdicts = []
    for number, calls in enumerate(histories):
        problem = encode(calls, KV())
        truth = (VALID if brute_force(problem) else INVALID) if problem.completed else UNKNOWN
        assert found.verdict[number] == truth, calls
        verdicts.append(truth)
        assert (found.witness(number) is not None) == (truth == VALID)
    assert min(verdicts.count(VALID), verdicts.count(INVALID)) > 100


def test_what_makes_no_sense_is_told_with_its_history() -> None:
    good = [call(0, "put", "a", 1), call(2, "get", None, 3, "a")]
    assert check_batch([good, [], good], KV()).verdict.tolist() == [VALID, UNKNOWN, VALID]
    for bad, told in (
        ([call(0, "put", 7, 1)], "history 1: op 0: the value of a put is a string, not 7"),
        ([call(0, "get", None, 1, ["a"])], "history 1: op 0: the value of a get is a string"),
        ([call(5, "put", "a", 4)], "history 1: op 5: completed at index 4, before it was invoked"),
        ([call(0, "put", "a", 2), call(1, "get", None, 2, "a")], "history 1: two events have the index 2"),
    ):
        with pytest.raises(ValueError, match=told.replace("[", r"\[")):
            check_batch([good, bad], KV())


def test_a_clock_beyond_64_bits_and_a_key_of_many_strings_are_judged_as_well() -> None:
    far = 10**30
    assert check_batch([[call(far, "put", "a", far + 1), call(far + 2, "get", None, far + 3, "a")]], KV())[0] == "valid"
    many = [call(2 * i, "append", f"{i},", 2 * i + 1) for i in range(400)]
    many.append(call(800, "get", None, 801, "".join(f"{i}," for i in range(400))))
    assert check_batch([many], KV())[0] == "valid"
    many.append(call(802, "get", None, 803, "0,"))
    assert check_batch([many], KV())[0] == "invalid"
