# SPDX-License-Identifier: Apache-2.0
"""Values that are the same: in every format, for every way to a verdict, and inside of every container."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability import MODELS, check
from checkers.linearizability.batch import VALID, check_batch
from checkers.linearizability.compiled.jit import plain
from checkers.linearizability.direct import find_witness
from checkers.linearizability.history.arrow import objects
from checkers.linearizability.models.registers import Register
from checkers.linearizability.models.specification import show
from checkers.linearizability.models.values import freeze
from checkers.spark.columns import pack_part
from results.formats import ReadOptions, read_history, write_edn
from results.history import History
from results.op import Op
from results.op_table import read_part, row_groups, write_op_table
from results.sealed import read_columns, seal
from results.verdict import Verdict

SAME = [
    ("1", "1.0"),
    ("0", "-0.0"),
    ("100", "1e2"),
    ("9223372036854775808", "9223372036854775808"),
    ("true", "true"),
    ('"a"', r'"\u0061"'),
    ('"\U0001f600"', r'"\ud83d\ude00"'),
    ("[1, [true, null]]", "[1.0, [true, null]]"),
    ('{"a": 1, "b": [2]}', '{"b": [2.0], "a": 1}'),
    ("null", "null"),
]
OTHERS = [
    ("true", "1"),
    ("true", "1.0"),
    ("false", "0"),
    ("false", "null"),
    ("0", "null"),
    ("true", '"true"'),
    ("1", '"1"'),
    ('""', "null"),
    ("[]", "null"),
    ("[]", "{}"),
    ("[[true]]", "[[1]]"),
    ("[1, 2]", "[2, 1]"),
    ('{"a": true}', '{"a": 1}'),
    ('{"a": 1}', '[["a", 1]]'),
    ("9223372036854775808", "9223372036854775809"),
    ("9007199254740993", "9007199254740992.0"),
    ('"\u00e9"', '"e\u0301"'),
]


def ops(written: Any, read: Any) -> list[Op]:
    """A write and then a read, of one client."""
    steps = [("invoke", "write", written), ("ok", "write", written), ("invoke", "read", None), ("ok", "read", read)]
    return [Op(i, i, 0, type_, f, "k", value) for i, (type_, f, value) in enumerate(steps)]  # type: ignore[arg-type]


def raw(written: str, read: str, path: Path) -> None:
    """JSON lines with the values as they stand."""
    steps = [("invoke", "write", written), ("ok", "write", written), ("invoke", "read", "null"), ("ok", "read", read)]
    lines = [f'{{"process": 0, "type": "{t}", "f": "{f}", "key": "k", "value": {v}}}\n' for t, f, v in steps]
    path.write_text("".join(lines), encoding="utf-8")


WRITERS: dict[str, Callable[[str, str, Path], object]] = {
    "jsonl": raw,
    "edn": lambda written, read, path: write_edn(ops(json.loads(written), json.loads(read)), path),
    "parquet": lambda written, read, path: seal(ops(json.loads(written), json.loads(read)), path),
}


def verdicts(history: History) -> Iterator[bool]:
    calls = history.calls
    yield check(calls, Register()).verdict == Verdict.VALID
    yield check_batch([calls], Register()).verdict[0] == VALID
    with plain():
        yield check(calls, Register()).verdict == Verdict.VALID


@pytest.mark.parametrize("format_", WRITERS)
def test_the_same_in_every_format(format_: str, tmp_path: Path) -> None:
    for expected, pairs in ((True, SAME), (False, OTHERS)):
        for written, read in [*pairs, *((read, written) for written, read in pairs)]:
            WRITERS[format_](written, read, tmp_path / "file")
            history = read_history(tmp_path / "file", options=ReadOptions(nil_reads="unset")).history
            assert set(verdicts(history)) == {expected}, f"{written} was written, {read} read"


def test_the_same_from_columns(tmp_path: Path) -> None:
    """A sealed history without an object for an op, and many of them on Spark."""
    path, taken = tmp_path / "history.parquet", 0
    for expected, pairs in ((True, SAME), (False, OTHERS)):
        for written, read in pairs:
            seal(ops(json.loads(written), json.loads(read)), path)
            for _, plain_ops in objects(read_columns(path), Register.fs) or ():
                found = find_witness(plain_ops, Register()) is not None
                taken += found
                assert expected or not found, f"{written} written, {read} read"
            write_op_table([("run", ops(json.loads(written), json.loads(read)))], tmp_path / "table")
            part = pack_part(read_part(tmp_path / "table", (0, len(row_groups(tmp_path / "table")))), Register())
            assert part.packed is not None
            assert (check_batch(part.packed).verdict[0] == VALID) == expected, f"{written} written, {read} read"
    assert taken, "nothing was plain"


def test_not_a_number_can_be_read_again(tmp_path: Path) -> None:
    raw("NaN", "NaN", tmp_path / "file")
    assert set(verdicts(read_history(tmp_path / "file").history)) == {True}
    raw("NaN", "1", tmp_path / "file")
    assert set(verdicts(read_history(tmp_path / "file").history)) == {False}


INSIDE: dict[str, tuple[list[tuple[str, Any, Any]], tuple[str, Any, Any], tuple[str, Any, Any]]] = {
    "cas-register": ([("write", 1, 1)], ("cas", [1.0, 2], [1.0, 2]), ("cas", [True, 2], [True, 2])),
    "multi-register": (
        [("txn", [["write", "x", False]], [["write", "x", False]])],
        ("txn", [["read", "x", None]], [["read", "x", False]]),
        ("txn", [["read", "x", None]], [["read", "x", 0]]),
    ),
    "grow-only-set": ([("add", 1, 1), ("add", True, True)], ("read", None, [True, 1.0]), ("read", None, [1])),
    "set": ([("add", 0, 0)], ("contains", 0.0, True), ("contains", False, True)),
    "fifo-queue": ([("enqueue", True, True)], ("dequeue", None, True), ("dequeue", None, 1)),
    "unordered-queue": ([("enqueue", [1], [1])], ("dequeue", None, [1]), ("dequeue", None, [True])),
    "stack": ([("push", {"a": 1}, None)], ("pop", None, {"a": 1}), ("pop", None, {"a": True})),
    "log": ([("append", 1, 0)], ("read", 0, 1.0), ("read", 0, True)),
    "reentrant-lock": ([("acquire", 1, None)], ("release", 1.0, None), ("release", True, None)),
    "fenced-lock": ([("acquire", 1, 5)], ("release", 1.0, None), ("release", True, None)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_the_same_inside_of_every_model(name: str) -> None:
    first, right, wrong = INSIDE[name]
    for last, expected in ((right, True), (wrong, False)):
        steps = [event for f, a, r in [*first, last] for event in (("invoke", f, a), ("ok", f, r))]
        history = History(Op(i, i, 0, t, f, "k", v) for i, (t, f, v) in enumerate(steps))  # type: ignore[arg-type]
        assert (check(history, MODELS[name]()).verdict == Verdict.VALID) == expected
        with plain():
            assert (check(history, MODELS[name]()).verdict == Verdict.VALID) == expected


def test_a_model_may_begin_with_anything() -> None:
    beginnings: list[Any] = [True, [1], {"a": 1}]
    for initial in beginnings:
        assert check(History(ops(2, 2)[2:]), Register(initial)).verdict == Verdict.INVALID
        assert check(History(ops(initial, initial)[2:]), Register(initial)).verdict == Verdict.VALID
    assert check(History(ops(0, 0)[2:]), Register(False)).verdict == Verdict.INVALID


def test_a_set_in_edn_has_no_order(tmp_path: Path) -> None:
    path = tmp_path / "file.edn"
    path.write_text(
        "{:process 0 :type :invoke :f :write :value #{10 9 [1]}} {:process 0 :type :ok :f :write :value #{10 9 [1]}}"
        "{:process 0 :type :invoke :f :read :value nil} {:process 0 :type :ok :f :read :value #{[1] 9 10}}"
    )
    assert set(verdicts(read_history(path).history)) == {True}


def test_values_for_people() -> None:
    assert show(freeze([True, None, {"b": False, "a": "x"}])) == "[true, absent, {'a': 'x', 'b': false}]"
