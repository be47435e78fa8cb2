# SPDX-License-Identifier: Apache-2.0
"""From columns to a verdict without an object for every op: the same verdicts, and orders that the verifier accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from fuzz.unique import histories, model_of
from models_at_work import brute_force, told

from checkers.linearizability import CasRegister, Linearizable, Log, check, direct, encode, verify_witness
from checkers.linearizability.fast import FAST, fast
from checkers.linearizability.history.arrow import objects
from checkers.linearizability.history.op_columns import from_calls
from checkers.linearizability.monitors import logs, queues, registers
from harness.check.examine import examine
from harness.check.report import CheckOptions
from results.history import Call, History
from results.op import NEMESIS, Op, OpType
from results.record import RunRecord
from results.sealed import read_columns, seal
from results.verdict import Verdict

FAMILIES = ["register", "fifo-queue", "log"]


def as_ops(calls: Sequence[Call], key: str | None = "k") -> list[Op]:
    """Dense indices, and each call a process of its own: a history that can be sealed."""
    events = sorted(
        (op.index, i, op) for i, call in enumerate(calls) for op in (call.invoke, call.completion) if op is not None
    )
    return [Op(at, at, i, op.type, op.f, key, op.value) for at, (_, i, op) in enumerate(events)]


def table(ops: Sequence[Op], folder: Path) -> pa.Table:
    seal(ops, folder / "history.parquet")
    return read_columns(folder / "history.parquet")


def accepted(calls: Sequence[Call], family: str, order: Sequence[int]) -> bool:
    problem = encode(calls, model_of(family))
    number = {source: op for op, source in enumerate(problem.source)}
    return verify_witness(problem, [number[index] for index in order]) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_as_columns_have_the_verdict_of_their_history(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, model = Random(f"direct/{family}"), model_of(family)
    explained = refused = 0
    for _ in range(150):
        for calls in histories(family, rng):
            plain = from_calls(calls)
            assert plain is not None, told(calls)
            found = direct.find_witness(plain, model)
            if found is None:
                refused += 1
                continue
            explained += 1
            assert check(calls, model).verdict == Verdict.VALID, told(calls)
            assert accepted(calls, family, found.order.tolist()), told(calls)
            with monkeypatch.context() as patched:
                patched.setattr(direct, "MANY", 1)
                quick = check(calls, model)
            assert (quick.verdict, quick.witness) == (Verdict.VALID, found.order.tolist()), told(calls)
            assert quick.checked == sum(call.outcome == "ok" for call in calls)
    assert explained > 100, "hardly any valid history goes this way"
    assert refused > 20


def test_a_few_ops_of_a_register_refute_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same op fails as by the ordinary way, and brute force confirms the core: on the whole history."""
    rng, model, found = Random("refuted"), model_of("register"), 0
    for _ in range(250):
        for calls in histories("register", rng):
            usual = check(calls, model)
            plain = from_calls(calls)
            assert plain is not None
            assert usual.verdict == Verdict.INVALID or direct.find_contradiction(plain, model) is None, told(calls)
            if usual.verdict != Verdict.INVALID:
                continue
            with monkeypatch.context() as patched:
                patched.setattr(direct, "MANY", 1)
                quick = check(calls, model)
            assert quick.verdict == Verdict.INVALID
            assert quick.failing_op == usual.failing_op, told(calls)
            assert quick.checked == usual.checked
            assert quick.failing_op in quick.core
            if direct.find_contradiction(plain, model) is not None:
                found += 1
                assert not quick.states
                if not quick.core_starts_anywhere:
                    spared = {call.invoke.index for call in calls if call.invoke.index not in quick.core}
                    assert not brute_force(calls, model, perhaps=spared), told(calls)
    assert found > 40


def merged(rng: Random, keys: Sequence[Sequence[Op]]) -> list[Op]:
    """The ops of several keys and a nemesis in one history; each keeps its order, and each key has its own clients."""
    strike = [Op(0, 0, NEMESIS, "invoke", "inject", None, {"n1": []}), Op(0, 0, NEMESIS, "info", "inject")]
    left = [list(own) for own in (*keys, strike) if own]
    events: list[tuple[Op, int]] = []
    while left:
        own = rng.choice(left)
        op = own.pop(0)
        number = next((i for i, key in enumerate(keys) if op.key == key[0].key), -1) if op.process >= 0 else -1
        events.append((op, op.process if number < 0 else op.process + 100 * number))
        left = [rest for rest in left if rest]
    return [Op(i, i, process, op.type, op.f, op.key, op.value) for i, (op, process) in enumerate(events)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sealed_history_has_the_verdict_of_its_calls(family: str, tmp_path: Path) -> None:
    rng, model = Random(f"sealed/{family}"), model_of(family)
    explained = 0
    for _ in range(40):
        keys = [as_ops(rng.choice(histories(family, rng)), f"k{i}") for i in range(rng.choice((1, 3)))]
        if not any(keys):
            continue
        ops = merged(rng, [own for own in keys if own])
        by_key = History(ops).by_key
        found = objects(table(ops, tmp_path), model.fs)
        assert found is not None
        for key, plain in found:
            called = from_calls(by_key[key])
            assert called is not None
            one, other = direct.find_witness(plain, model), direct.find_witness(called, model)
            assert (one is None) == (other is None), told(by_key[key])
            if one is not None:
                explained += 1
                assert accepted(by_key[key], family, one.order.tolist()), told(by_key[key])
    assert explained > 25


@pytest.mark.parametrize("value", [1.5, True, [1, 2], {"a": 1}, 'say "x"', "\u00e9", 10**30])
def test_values_that_are_equal_in_other_ways_go_the_ordinary_way(value: object, tmp_path: Path) -> None:
    """`1.0`, `1` and `true` are one value in Python, and three texts in a file."""
    ops = [Op(0, 0, 0, "invoke", "write", "k", value), Op(1, 1, 0, "ok", "write", "k", value)]
    found = objects(table(ops, tmp_path), CasRegister.fs)
    assert found is None
    if not isinstance(value, str) and type(value) is not int:
        assert from_calls(History(ops).calls) is None


@pytest.mark.parametrize("bad", [[0, 5], [7, 1], [0, 0]])
def test_indices_that_make_no_sense_go_the_ordinary_way(bad: list[int]) -> None:
    """Two events at one place, or a completion before its call: the encoder says what is wrong."""
    ops = [Op(bad[0], 0, 0, "invoke", "write", "k", 1), Op(bad[1], 1, 0, "ok", "write", "k", 1)]
    more = [Op(5, 2, 1, "invoke", "write", "k", 2), Op(6, 3, 1, "ok", "write", "k", 2)]
    calls = [Call(*ops), Call(*more)]
    assert from_calls(calls) is None
    with pytest.raises(ValueError, match="index"):
        check(calls, CasRegister())


def test_an_unknown_trim_is_no_op_that_could_only_look() -> None:
    done: list[tuple[OpType, str, object]] = [
        ("invoke", "append", "a"), ("ok", "append", 0), ("invoke", "append", "b"), ("ok", "append", 1),
        ("invoke", "read", 0), ("ok", "read", "a"),
    ]  # fmt: skip
    calls = History(Op(i, i, 0, type_, f, "k", value) for i, (type_, f, value) in enumerate(done)).calls
    plain = from_calls(calls)
    assert plain is not None
    assert direct.find_witness(plain, Log()) is not None
    lost = Call(Op(10, 10, 1, "invoke", "trim", "k", 2), None)
    plain = from_calls([*calls, lost])
    assert plain is not None
    assert direct.find_witness(plain, Log()) is None
    wrong = Call(Op(10, 10, 1, "invoke", "read", "k", "three"), None)
    plain = from_calls([*calls, wrong])
    assert plain is not None
    assert direct.find_witness(plain, Log()) is None
    with pytest.raises(ValueError, match="op 10: the argument of a read is an offset"):
        check([*calls, wrong], Log())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_replay_of_columns_accepts_what_the_other_verifier_does(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders that are bent: two ops exchanged, one left out, one twice."""
    rng, model = Random(f"bent/{family}"), model_of(family)
    monitor = {"register": registers, "fifo-queue": queues, "log": logs}[family].MONITOR
    right = monitor.order

    def bent(ops: object) -> object:
        order = right(ops).copy()
        i, j = rng.randrange(len(order)), rng.randrange(len(order))
        how = rng.randrange(4)
        if how == 0:
            order[i], order[j] = order[j], order[i]
        elif how == 1:
            order = np.delete(order, i)
        elif how == 2:
            order = np.insert(order, i, order[j])
        given.append(order)
        return order

    verdicts = {True: 0, False: 0}
    monkeypatch.setitem(FAST, type(model), replace(fast(model), columns=lambda: replace(monitor, order=bent)))
    for _ in range(200):
        for calls in histories(family, rng):
            given: list[np.ndarray] = []
            plain = from_calls(calls)
            assert plain is not None
            if not calls or not plain.known.any():
                continue
            try:
                found = direct.find_witness(plain, model)
            except ValueError:
                continue
            if not given:
                continue
            problem = encode(calls, model)
            number = {source: op for op, source in enumerate(problem.source)}
            kept = [row for row in range(len(plain.f)) if int(plain.source[row]) in number]
            order = [number[int(plain.source[kept[row]])] for row in given[0].tolist()]
            truth = verify_witness(problem, order) is None
            verdicts[truth] += 1
            assert found is not None
            assert (found.wrong is None) == truth, told(calls)
    assert min(verdicts.values()) > 40


def test_the_command_takes_this_way_for_long_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answer as by the ordinary way, witness included, and a violation is explained as ever."""
    path = tmp_path / "history.parquet"
    calls = [op for i in range(30) for op in pair(2 * i, i % 3, i)]
    good = [Op(i, i, op.process, op.type, op.f, "k", op.value) for i, op in enumerate(calls)]
    stale = [Op(120, 120, 5, "invoke", "read", "k"), Op(121, 121, 5, "ok", "read", "k", 3)]
    for ops, verdict in ((good, Verdict.VALID), ([*good, *stale], Verdict.INVALID)):
        seal(ops, path)
        usual = examine(path, "x", None, CheckOptions(witness=True))
        monkeypatch.setattr("harness.check.examine.MANY", 10)
        quick = examine(path, "x", None, CheckOptions(witness=True))
        monkeypatch.undo()
        assert (quick.verdict, quick.ops, quick.model) == (verdict, len(ops), "cas-register")
        assert (quick.failing_op, quick.anomaly, quick.key) == (usual.failing_op, usual.anomaly, usual.key)
        if verdict == Verdict.VALID:
            assert quick.reason == usual.reason
        else:
            assert quick.reason.startswith(
                "op 120: read 3 on key k cannot be placed: write 3 (op 12) had been overwritten"
            )
            assert 120 in quick.core
        assert not quick.states, "of the whole, and not of these few ops"
        assert (quick.witness is None) == (verdict == Verdict.INVALID)
    seal(good, path)
    record = RunRecord(History(good))
    by_columns = Linearizable(CasRegister()).examine_columns(read_columns(path))
    assert by_columns is not None
    ordinary = Linearizable(CasRegister()).examine(record.history)
    assert (by_columns[0].verdict, by_columns[0].reason) == (ordinary[0].verdict, ordinary[0].reason)


def pair(index: int, process: int, value: int) -> list[Op]:
    """A write and a read of it."""
    return [
        Op(index, 0, process, type_, f, "k", None if (type_, f) == ("invoke", "read") else value)
        for f in ("write", "read")
        for type_ in ("invoke", "ok")
    ]
