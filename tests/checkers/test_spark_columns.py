# SPDX-License-Identifier: Apache-2.0
"""Histories as columns (`checkers.spark.columns`): the same problems as from calls, and nothing that is odd."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from models_at_work import falsified, lived

from checkers.linearizability import CasRegister, Model, Mutex, Problem, Register, encode
from checkers.run.wellformed import breaches
from checkers.spark import session
from checkers.spark.columns import applies, pack_part, runs_with
from results.history import Call, History
from results.op import NEMESIS, Op
from results.op_table import read_part, row_groups, runs_of, write_op_table

Named = list[tuple[str, list[Op]]]


def history(rng: Random, keys: int) -> list[Op]:
    """Clients that share keys and go on from one op to the next, a nemesis between them, unknown ops, failed ones."""
    events: list[tuple[int, float, Op]] = []
    for key in range(keys):
        calls: list[Call] = falsified(rng, "cas-register", lived(rng, "cas-register", 0.2))
        name = f"k{key}" if keys > 1 or rng.random() < 0.5 else None
        for call in calls:
            for op in (call.invoke, call.completion):
                if op is not None:
                    events.append((op.index, rng.random(), replace(op, process=100 * key + op.process, key=name)))
    events.sort(key=lambda event: event[:2])
    ops = [op for _, _, op in events]
    if rng.random() < 0.5:
        at = rng.randrange(len(ops) + 1)
        ops[at:at] = [Op(0, 0, NEMESIS, "invoke", "inject", None, {"n1": []}), Op(0, 0, NEMESIS, "info", "inject")]
    return [replace(op, index=i, time=2 * i) for i, op in enumerate(ops)]


def many(seed: int, count: int = 60) -> Named:
    rng = Random(seed)
    return [(f"h{i}", history(rng, rng.choice((1, 1, 2, 4)))) for i in range(count)]


def as_problem(problem: Problem) -> list[tuple[object, int, int]]:
    """The problem of a search without the numbers: (kind, source, +1 call / -1 return) in the order of events."""
    kinds = problem.table.kinds
    return [
        (kinds[problem.kind[event >> 1]], problem.source[event >> 1], -1 if event & 1 else 1)
        for event in problem.events
    ]


@pytest.mark.parametrize(("model", "ignore"), [(CasRegister(), ()), (Register(), ("cas",)), (CasRegister(), ("cas",))])
@pytest.mark.parametrize("seed", range(5))
def test_the_problems_are_those_of_the_calls(
    model: Model[object], ignore: Sequence[str], seed: int, tmp_path: Path
) -> None:
    """Without what is to be ignored, whether the model knows it or not."""
    fs = model.fs.difference(ignore)
    named = many(seed)
    path = tmp_path / "ops.parquet"
    write_op_table(named, path, row_group=300)
    seen = 0
    assert len(row_groups(path)) > 2
    for group in range(len(row_groups(path))):
        part = pack_part(read_part(path, (group, group + 1)), model, ignore)
        assert not any(happened(dict(named)[part.spans[odd][0]], fs) for odd in part.odd)
        for number, (owner, key) in enumerate(zip(part.owner.tolist(), part.key, strict=True)):
            assert part.packed is not None
            ops = History(dict(named)[part.spans[owner][0]])
            calls = [call for call in ops.by_key[key] if call.invoke.f in fs]
            assert as_problem(part.packed.problem(number)) == as_problem(encode(calls, model))
            assert part.completed[number] == sum(call.outcome == "ok" for call in calls)
            seen += 1
    active = [History(ops) for _, ops in named if happened(ops, fs)]
    expected = [key for ops in active for key, calls in ops.by_key.items() if useful(calls, fs)]
    assert seen == len(expected)


def happened(ops: list[Op], fs: Set[str]) -> bool:
    """Is something known to have happened? Otherwise a history is judged by itself."""
    return any(op.f in fs and op.type == "ok" for op in ops if op.is_client)


def useful(calls: tuple[Call, ...], fs: Set[str]) -> bool:
    """A key of which something is known, or may have happened."""
    return any(call.invoke.f in fs and call.outcome != "fail" for call in calls)


BREACHES = {
    "an index that is missing": lambda ops: [op for op in ops if op.index != len(ops) // 2],
    "a clock that runs back": lambda ops: [*ops[:-1], replace(ops[-1], time=-1)],
    "two open ops of a process": lambda ops: [*ops, op_after(ops, 0, "invoke"), op_after(ops, 1, "invoke")],
    "a completion without invocation": lambda ops: [*ops, op_after(ops, 0, "ok")],
    "a completion of something else": lambda ops: [
        *ops, op_after(ops, 0, "invoke"), replace(op_after(ops, 1, "ok"), f="cas")
    ],
    "a completion of another key": lambda ops: [
        *ops, op_after(ops, 0, "invoke"), replace(op_after(ops, 1, "ok"), key="other")
    ],
    "a process that acts after its info": lambda ops: [
        *ops, op_after(ops, 0, "invoke"), op_after(ops, 1, "info"), op_after(ops, 2, "invoke")
    ],
}  # fmt: skip


def op_after(ops: list[Op], more: int, type_: str) -> Op:
    at = len(ops) + more
    return Op(at, 2 * at, 9_999, type_, "write", "k", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("breach", sorted(BREACHES))
def test_a_malformed_history_is_left_to_those_who_say_what_is_wrong(breach: str, tmp_path: Path) -> None:
    named = [(name, ops) for name, ops in many(7) if len(ops) > 4 and happened(ops, CasRegister.fs)]
    broken = BREACHES[breach](named[3][1])
    assert list(breaches(History(broken)))
    write_op_table([*named[:3], ("broken", broken), *named[4:]], tmp_path / "ops.parquet")
    part = pack_part(read_part(tmp_path / "ops.parquet", (0, 1)), CasRegister())
    assert [part.spans[number][0] for number in part.odd] == ["broken"]
    assert 3 not in part.owner.tolist()


def test_a_value_that_the_model_does_not_accept_costs_its_history_only(tmp_path: Path) -> None:
    bad = [Op(0, 0, 1, "invoke", "cas", "k", 5), Op(1, 1, 1, "ok", "cas", "k", 5)]
    good = [Op(0, 0, 1, "invoke", "write", "k", 5), Op(1, 1, 1, "ok", "write", "k", 5)]
    write_op_table([("good", good), ("bad", bad), ("empty", []), ("also good", good)], tmp_path / "ops.parquet")
    part = pack_part(read_part(tmp_path / "ops.parquet", (0, 1)), CasRegister())
    assert [part.spans[number][0] for number in part.odd] == ["bad"]
    assert part.owner.tolist() == [0, 2]


def test_a_value_that_is_nested_too_deeply_costs_its_history_only(tmp_path: Path) -> None:
    deep: list[object] = []
    for _ in range(600):  # JSON's parser takes it, within the depth of Python's stack; `freeze` does not
        deep = [deep]
    bad = [Op(0, 0, 1, "invoke", "write", "k", deep), Op(1, 1, 1, "ok", "write", "k", deep)]
    write_op_table([("bad", bad)], tmp_path / "ops.parquet")
    part = pack_part(read_part(tmp_path / "ops.parquet", (0, 1)), CasRegister())
    assert [part.spans[number][0] for number in part.odd] == ["bad"]


def test_what_another_model_implies_is_odd(tmp_path: Path) -> None:
    """And so is one with an op that the model does not know, and one of which nothing is known to have happened."""
    mutex = [Op(0, 0, 1, "invoke", "acquire"), Op(1, 1, 1, "ok", "acquire")]
    both = [Op(0, 0, 1, "invoke", "write", "k", 1), Op(1, 1, 1, "ok", "write", "k", 1), *map(later, mutex)]
    idle = [Op(0, 0, 1, "invoke", "write", "k", 1), Op(1, 1, 1, "info", "write", "k", 1)]
    good = [(name, ops) for name, ops in many(3, 9) if happened(ops, CasRegister.fs)]
    write_op_table([*good, ("mutex", mutex), ("both", both), ("idle", idle)], tmp_path / "ops.parquet")
    table = read_part(tmp_path / "ops.parquet", (0, 1))
    spans = runs_of(table)
    assert [spans[i][0] for i in pack_part(table, CasRegister()).odd] == ["mutex", "both", "idle"]
    assert [spans[i][0] for i in pack_part(table, CasRegister(), ["acquire"]).odd] == ["mutex", "idle"]
    assert [spans[i][0] for i in runs_with(table, spans, frozenset({"acquire"})).nonzero()[0]] == ["mutex", "both"]
    assert not runs_with(table, spans, frozenset({"acquire"}), ["acquire"]).any()
    assert applies(Register())
    assert not applies(Mutex())


def later(op: Op) -> Op:
    return replace(op, index=op.index + 2, time=op.time + 2)


def test_the_classes_of_spark_are_written_once_and_then_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next session starts in half of the time; a machine without a cache folder starts as ever."""
    monkeypatch.setattr(session, "_WANTED", {})
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    written = session._classes().partition("-XX:ArchiveClassesAtExit=")[2]
    assert Path(written).parent == tmp_path / "cache"
    archive = session._WANTED["archive"]
    archive.write_bytes(b"classes")
    os.utime(archive, (0, 0))
    assert session._classes() == f" -Xlog:disable -XX:SharedArchiveFile={archive}"
    assert archive.stat().st_mtime > 0, "it is in use, so it stays"
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "a folder"))
    assert session._classes() == ""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file" / "cache"))
    assert session._classes() == ""
