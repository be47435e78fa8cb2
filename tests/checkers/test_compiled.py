# SPDX-License-Identifier: Apache-2.0
"""The compiled searches against brute force and against the plain ones, on the histories of the plain ones' fuzz."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any

import numba
import numpy as np
import pytest
from effort import effort
from tiny_histories import FAMILIES, brute_force, calls, lived, problems, told

from checkers.linearizability import (
    INCONSISTENT,
    Budget,
    CasRegister,
    Inconsistent,
    Model,
    Register,
    Transition,
    check,
    encode,
    verify_witness,
)
from checkers.linearizability.batch import check_batch
from checkers.linearizability.budget import Meter
from checkers.linearizability.closed_table import enumerate_states
from checkers.linearizability.compiled import jit, kernel
from checkers.linearizability.compiled.code_cache import Part, ensure, prune
from checkers.linearizability.compiled.jit import enabled, plain
from checkers.linearizability.compiled.kv_batch import KEYS
from checkers.linearizability.compiled.searches import Compiled
from checkers.linearizability.compiled.workspace import Workspace
from checkers.linearizability.decide import decide
from checkers.linearizability.history.columns import columns
from checkers.linearizability.history.events import NEVER
from checkers.linearizability.history.packed import pack
from checkers.linearizability.search.jit_linearization import JustInTime
from results.history import Call
from results.op import Op
from results.verdict import Verdict

ROOT = Path(__file__).parents[2]

ensure(KEYS)


@pytest.fixture(scope="module", autouse=True)
def nothing_else_is_compiled() -> Iterator[None]:
    """`ensure` has made every variant there is: what is compiled later is written without a lock, and costs seconds."""
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    before = {path.name for path in folder.rglob("*.nbc")}
    yield
    assert {path.name for path in folder.rglob("*.nbc")} == before


AMPLE = 10**7


def meter() -> Meter:
    return Meter(AMPLE, 10**8)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_every_compiled_stage_agrees_with_brute_force(family: str) -> None:
    seen = set()
    for problem in problems(family, seed=11):
        truth = Verdict.VALID if brute_force(problem) else Verdict.INVALID
        seen.add(truth)
        fast = Compiled.of(problem)
        assert fast is not None
        full = fast.just_in_time(meter())
        assert full.verdict == truth, told(problem)
        coarse = fast.cegar(meter())
        assert coarse.verdict == truth, told(problem)
        only_valid = truth if truth == Verdict.VALID else Verdict.UNKNOWN
        deep = fast.wgl(meter())
        assert deep.verdict == only_valid, told(problem)
        for refute in fast.refuters():
            assert refute(meter()).verdict in (Verdict.UNKNOWN, truth), told(problem)
        assert refute(meter()).verdict == (truth if truth == Verdict.INVALID else Verdict.UNKNOWN)
        for outcome in (full, deep, coarse):
            if outcome.verdict == Verdict.VALID:
                assert outcome.witness is not None
                assert verify_witness(problem, outcome.witness) is None, told(problem)
    assert seen == {Verdict.VALID, Verdict.INVALID}


@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_and_plain_tell_the_same(family: str) -> None:
    """Verdict, the event that proves it, and all states possible before."""
    for problem in problems(family, seed=12, count=500):
        fast = Compiled.of(problem)
        assert fast is not None
        one, other = fast.just_in_time(meter()), JustInTime(problem, meter()).run()
        assert one.verdict == other.verdict, told(problem)
        if one.verdict == Verdict.INVALID:
            assert (one.position, set(one.states)) == (other.position, set(other.states)), told(problem)
            assert one.survivors
            assert {state for state, _ in one.survivors} <= set(other.states)


@pytest.mark.parametrize("crash", [0.0, 0.1, 0.4])
def test_they_agree_on_longer_histories_too(crash: float) -> None:
    rng = Random(f"longer/{crash}")
    seen = set()
    for _ in range(effort(150, 50)):
        problem = encode(lived(rng, crash, 60), CasRegister())
        fast = decide(problem, Budget())
        with plain():
            slow = decide(problem, Budget())
        assert fast.verdict == slow.verdict != Verdict.UNKNOWN, told(problem)
        seen.add(fast.verdict)
    assert seen == {Verdict.VALID, Verdict.INVALID}


OVERTAKEN_IN_THE_GAP = """
c0w0 r0 c1s03 c2w2 c3r3 c4w2 c5w1 c6r3 r6 c7s32 r7 c8r1 r3 r1 c9w4 r9 c10w1 r8 r2 c11s43 r11 r10 r5 r4
"""
"""Calls (w: write, r: read, s: cas) and returns. Read 8 is served by write 5, hidden in front of write 9; write 10, of
the same value, returns before write 5 does, but was called too late for that.
"""


def test_a_hidden_write_is_not_kept_waiting_for_a_later_one() -> None:
    """Once called invalid: symmetry said that of two equal writes the one that returns first goes first."""
    begun: dict[int, Op] = {}
    calls = {}
    for index, word in enumerate(OVERTAKEN_IN_THE_GAP.split()):
        client = int("".join(takewhile(str.isdigit, word[1:])))
        if word[0] == "r":
            calls[client] = Call(begun[client], replace(begun[client], index=index, type="ok"))
            continue
        f, *digits = word[1 + len(str(client)) :]
        value: Any = [int(digit) for digit in digits] if f == "s" else int(digits[0])
        begun[client] = Op(index, index, client, "invoke", {"w": "write", "r": "read", "s": "cas"}[f], "k", value)
    problem = encode(sorted(calls.values(), key=lambda call: call.invoke.index), CasRegister())
    assert brute_force(problem)
    fast = Compiled.of(problem)
    assert fast is not None
    outcome = fast.just_in_time(meter())
    assert outcome.verdict == Verdict.VALID
    assert verify_witness(problem, outcome.witness or ()) is None


def burst(clients: int, rounds: int, rng: Random) -> list[Call]:
    """Overlapping writes of so many clients, all of them read in a hidden order while they are open."""
    made: list[Call] = []
    index = 0
    for _ in range(rounds):
        values = [rng.randrange(1000) for _ in range(clients)]
        writes = [Op(index + i, 0, i, "invoke", "write", "k", value) for i, value in enumerate(values)]
        index += clients
        order = rng.sample(values, clients)
        for value in order:
            read = Op(index, 0, clients, "invoke", "read", "k"), Op(index + 1, 0, clients, "ok", "read", "k", value)
            made.append(Call(*read))
            index += 2
        for write in rng.sample(writes, clients):
            made.append(Call(write, replace(write, index=index, type="ok")))
            index += 1
    return sorted(made, key=lambda call: call.invoke.index)


def test_more_open_ops_than_a_word_has_bits() -> None:
    calls = burst(90, 3, Random(1))
    problem = encode(calls, CasRegister())
    fast = Compiled.of(problem)
    assert fast is not None
    outcome = fast.just_in_time(meter())
    assert outcome.verdict == Verdict.VALID
    assert verify_witness(problem, outcome.witness or ()) is None
    last = calls[-1].invoke.index + 10_000
    stale = Call(Op(last, 0, 0, "invoke", "read", "k"), Op(last + 1, 0, 0, "ok", "read", "k", -1))
    assert Compiled.of(encode([*calls, stale], CasRegister())).just_in_time(meter()).verdict == Verdict.INVALID  # type: ignore[union-attr]


def test_unknown_ops_of_many_kinds_take_more_than_a_word_to_count() -> None:
    calls = [Call(Op(i, 0, i, "invoke", "cas", "k", [i, i + 1]), None) for i in range(200)]
    calls += [Call(Op(200, 0, 0, "invoke", "write", "k", 0), Op(201, 0, 0, "ok", "write", "k", 0))]
    reads = [
        Call(Op(300 + 2 * i, 0, 0, "invoke", "read", "k"), Op(301 + 2 * i, 0, 0, "ok", "read", "k", value))
        for i, value in enumerate((50, 100, 200))
    ]
    for more, verdict in ((reads, Verdict.VALID), ([*reads, *map(_later, reads[:1])], Verdict.INVALID)):
        fast = Compiled.of(encode([*calls, *more], CasRegister()))
        assert fast is not None
        assert fast.just_in_time(meter()).verdict == verdict


def _later(call: Call) -> Call:
    assert call.completion is not None
    return Call(replace(call.invoke, index=900), replace(call.completion, index=901))


class Counter(Model[int]):
    """Has endlessly many states."""

    name, noun, fs, observers = "counter", "counter", frozenset({"add", "read"}), frozenset({"read"})
    initial = 0

    def step(self, state: int, op: Transition) -> int | Inconsistent:
        return state + 1 if op.f == "add" else state if op.value == state else INCONSISTENT


def test_a_table_that_cannot_be_closed_never_reaches_compiled_code() -> None:
    """The plain search fills what it needs; an unfilled cell taken for an impossible step would be a false verdict."""
    calls = []
    for i in range(20):
        f, value = ("add", None) if i % 2 == 0 else ("read", i // 2 + 1)
        calls.append(Call(Op(2 * i, 0, 0, "invoke", f, "k"), Op(2 * i + 1, 0, 0, "ok", f, "k", value)))
    problem = encode(calls, Counter())
    assert enumerate_states(problem.table) is None
    assert Compiled.of(problem) is None
    assert check(calls, Counter()).verdict == Verdict.VALID


class Subclass(Register):
    """May mean something else, so that every cell is asked for."""


def test_closing_is_bounded_in_cells_too() -> None:
    calls = [
        Call(Op(2 * i, 0, 0, "invoke", "write", "k", i), Op(2 * i + 1, 0, 0, "ok", "write", "k", i)) for i in range(50)
    ]
    problem = encode(calls, Subclass())
    assert enumerate_states(problem.table, max_cells=2_000) is None
    assert enumerate_states(problem.table, max_states=20) is None
    dense = enumerate_states(problem.table)
    assert dense is not None
    assert dense.step.shape == (51, 50)
    by_rule = enumerate_states(encode(calls, Register()).table)
    assert by_rule is not None
    assert all((one == other).all() for one, other in zip(dense, by_rule, strict=True))


def test_memory_is_bounded_and_told() -> None:
    """Ten unknown cas of ten kinds that all matter: thousands of configurations."""
    calls = [Call(Op(i, 0, i, "invoke", "cas", "k", [i % 4, (i * 7 + 1) % 4]), None) for i in range(40)]
    for i in range(30):
        at = 100 + 2 * i
        calls.append(Call(Op(at, 0, 99, "invoke", "read", "k"), Op(at + 1, 0, 99, "ok", "read", "k", i % 4)))
    calls.insert(40, Call(Op(90, 0, 99, "invoke", "write", "k", 3), Op(91, 0, 99, "ok", "write", "k", 3)))
    problem = encode(calls, CasRegister())
    dense = enumerate_states(problem.table)
    assert dense is not None
    history = columns(problem, dense)
    space = Workspace()
    for memory in (600_000, 1_500_000):
        code = space.walk(history, dense, kernel.RECORD, 10**9, memory)
        assert space.bytes <= memory * 1.1
        assert code in (kernel.VALID, kernel.INVALID, kernel.TOO_BIG, kernel.TOO_LONG)
    small = Compiled(problem, dense, history).just_in_time(Meter(10**9, 300_000))
    assert small.verdict in (Verdict.UNKNOWN, Verdict.INVALID)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_gives_the_verdicts_of_single_checks(family: str) -> None:
    model, draw, _ = FAMILIES[family]
    rng = Random(f"batch/{family}")
    histories: list[list[Call]] = [[]]
    for _ in range(effort(400, 100)):
        crash = rng.choice((0, 0.1, 0.3))
        histories.append(lived(rng, crash, 10) if draw is None else calls(rng, draw, crash))
    found = check_batch(histories, model)
    with plain():
        slow = check_batch(histories, model)
    assert found[0] == Verdict.UNKNOWN, "nothing was checked"
    assert (found.verdict == slow.verdict).all()
    for number, history in enumerate(histories):
        problem = encode(history, model)
        if not problem.completed:
            assert found[number] == Verdict.UNKNOWN, "nothing is known to have happened"
        else:
            truth = brute_force(problem)
            assert found[number] == (Verdict.VALID if truth else Verdict.INVALID), told(problem)
            order = found.witness(number)
            assert (order is None) == (not truth)
            if order is not None:
                by_source = {source: op for op, source in enumerate(problem.source)}
                assert verify_witness(problem, [by_source[index] for index in order]) is None, told(problem)
            if not truth:
                assert found.failing_op[number] == check(history, model).failing_op, told(problem)
                assert found.failing_op[number] == slow.failing_op[number], told(problem)


def test_a_batch_may_come_as_columns_on_any_clock() -> None:
    """Times in nanoseconds, far apart or equal: calls that touch are concurrent."""
    rng = Random(8)
    histories = [lived(rng, 0.2, 20) for _ in range(200)]
    packed = pack(histories, CasRegister())
    known = packed.ret != NEVER
    far = replace(
        packed,
        call=packed.call * 1_000_003 + 10**15,
        ret=np.where(known, packed.ret * 1_000_003 + 10**15, NEVER),
    )
    assert (check_batch(far).verdict == check_batch(packed).verdict).all()
    touching = [
        Call(Op(0, 0, 0, "invoke", "write", "k", 1), Op(1, 0, 0, "ok", "write", "k", 1)),
        Call(Op(2, 0, 0, "invoke", "read", "k"), Op(3, 0, 0, "ok", "read", "k", None)),
    ]
    one = pack([touching], CasRegister())
    assert check_batch(one)[0] == Verdict.INVALID
    for scale in (1, 10**12):
        assert (
            check_batch(replace(one, call=np.array([0, scale]), ret=np.array([scale, 3 * scale])))[0] == Verdict.VALID
        )


def test_a_batch_does_not_take_kinds_that_its_table_lacks() -> None:
    packed = pack([lived(Random(1), 0, 5)], CasRegister())
    with pytest.raises(ValueError, match="a kind that its table does not know"):
        check_batch(replace(packed, kind=packed.kind + 1000))


def test_a_batch_does_not_take_ops_that_end_before_they_begin() -> None:
    packed = pack([lived(Random(1), 0, 5)], CasRegister())
    with pytest.raises(ValueError, match="ended before it began"):
        check_batch(replace(packed, ret=packed.call - 5))


def test_code_compiled_from_old_sources_is_removed_when_nobody_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    now = time.time()

    def folder(name: str, days: float, used: float) -> Path:
        made = tmp_path / f"numba-{name * 12}"
        made.mkdir()
        (made / "code.nbi").touch()
        (made / "ready-x").touch()
        os.utime(made / "ready-x", (now, now - 86_400 * used))
        os.utime(made, (now, now - 86_400 * days))
        return made

    own, second, third = folder("a", 9, 9), folder("b", 7, 7), folder("c", 8, 8)
    oldest, in_use, fresh = folder("d", 10, 10), folder("e", 9, 0.5), folder("f", 0.1, 0.1)
    (tmp_path / "numba-of-another-kind").mkdir()
    prune(own)
    assert own.exists(), "however old"
    assert in_use.exists()
    assert fresh.exists()
    assert not any(folder.exists() for folder in (second, third, oldest))
    assert (tmp_path / "numba-of-another-kind").exists()
    fresh.rename(tmp_path / "elsewhere")
    old = [folder(name, 5 + place, 5 + place) for place, name in enumerate("012")]
    prune(in_use)
    assert [path.exists() for path in (own, *old)] == [False, True, True, False], "the newest are kept, however old"


@pytest.mark.slow
@pytest.mark.nightly
def test_warming_compiles_and_says_where(tmp_path: Path) -> None:
    """In a process of its own, with an empty cache elsewhere; a second one finds everything there."""
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | {"HARNESS_CACHE": str(tmp_path)}
    argv = [sys.executable, "-m", "checkers.linearizability.compiled.warm"]
    told_ = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"in {tmp_path}/numba-" in told_
    assert list(tmp_path.rglob("ready-*"))
    compiled = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert compiled
    subprocess.run(argv, env=environment, capture_output=True, check=True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == compiled
    # A second checkout, at another place and with other times, has nothing to compile: the cache goes by content.
    second = tmp_path / "second checkout"
    for package in ("checkers", "results"):
        shutil.copytree(ROOT / package, second / package, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    for path in second.rglob("*.py"):
        os.utime(path, (1e9, 1e9))
    there = environment | {"PYTHONPATH": str(second)}
    ended = subprocess.run(argv, env=there, cwd=second, capture_output=True, text=True, check=True)
    assert "compiling" not in ended.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == compiled
    off = subprocess.run(argv, env=environment | {"HARNESS_NO_JIT": "1"}, capture_output=True, text=True, check=True)
    assert "nothing to compile" in off.stdout


def test_what_a_first_call_takes_is_set_up_and_no_other_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a method of Numba's own that has no public name: a Numba without it fails here, and not in silence."""
    # (The checkers' own cache has the checkers' code alone.)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def one_more(number: int) -> int:
        return number + 1

    before = jit.setup_seconds()
    ready = jit.compiled(one_more)
    assert ready(1) == 2
    first = jit.setup_seconds()
    assert first > before
    assert ready(2) == 3
    assert jit.setup_seconds() == first


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert enabled()
    with plain():
        assert not enabled()
    monkeypatch.setenv("HARNESS_NO_JIT", "1")
    assert not enabled()


def test_work_is_counted_not_timed() -> None:
    """The same history takes the same steps, again and again, and a smaller budget ends at the same event."""
    rng = Random(5)
    problem = encode(lived(rng, 0.3, 40), CasRegister())
    fast = Compiled.of(problem)
    assert fast is not None
    first = fast.just_in_time(meter())
    assert fast.just_in_time(meter()) == first
    ended: list[Any] = [fast.just_in_time(Meter(first.work // 3, 10**8)) for _ in range(2)]
    assert ended[0] == ended[1]
    assert ended[0].verdict == Verdict.UNKNOWN


def test_with_too_small_a_budget_plain_python_is_undecided_and_says_so() -> None:
    """It never contradicts compiled code, but gets elsewhere with the same steps."""
    rng, undecided, decided = Random("too small"), 0, 0
    for _ in range(20):
        history = lived(rng, 0.5, 60)
        truth = check(history, CasRegister()).verdict
        for steps in (50, 500):
            budget = Budget(steps=steps, per_event=0, explain=0)
            fast = check(history, CasRegister(), budget)
            with plain():
                slow = check(history, CasRegister(), budget)
            assert {fast.verdict, slow.verdict} <= {truth, Verdict.UNKNOWN}
            assert "plain Python" not in fast.reason
            decided += slow.verdict != Verdict.UNKNOWN
            if slow.verdict == Verdict.UNKNOWN:
                undecided += 1
                assert "steps in plain Python (compiled code may get further)" in slow.reason
    assert undecided > 5
    assert decided > 5


def test_compiling_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, also where stderr is a file: the first check of a new installation takes a minute."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba-000000000000"))
    (tmp_path / "numba-000000000000").mkdir()
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    for name in ("first", "first", "second"):
        ensure(Part(f"announced-{name}", lambda: None, 14))
    assert (
        capsys.readouterr().err.splitlines()
        == ["harness: compiling the checkers, once for this installation: about 14 s of a processor"] * 2
    )
    jit.ENSURED.difference_update({"announced-first", "announced-second"})
