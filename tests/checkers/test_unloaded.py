# SPDX-License-Identifier: Apache-2.0
"""The first verdict of a process: small histories are decided before Numba is loaded, and nothing else changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from effort import effort
from models_at_work import WORK
from models_at_work import lived as lived_of
from tiny_histories import lived

from checkers.linearizability import MODELS, Budget, CasRegister, LinearResult, Stack, check, unloaded
from checkers.linearizability.compiled import jit
from results.history import Call
from results.verdict import Verdict
from rocketmq_harness import record

ROOT = Path(__file__).parents[2]

FIRST = """
import sys
if sys.argv[3:] == ["without numba"]:
    sys.modules["numba"] = None
from rocketmq_harness import assert_linearizable
try:
    assert_linearizable(sys.argv[1], sys.argv[2])
    print("valid")
except AssertionError as violation:
    print(str(violation).splitlines()[0])
print(*(name for name in ("numba", "pyarrow") if sys.modules.get(name)))
"""


def thousand(path: Path, stale: bool) -> Path:
    """A history of 1,000 ops of four clients, of values that repeat: no special case decides it. In a stale one, the
    last read shows a value that was overwritten long before.
    """
    rng, held, open_ = Random(3), 0, []
    with record(path) as recorder:
        for i in range(1000):
            f = "read" if i >= 992 else rng.choice(("write", "read"))
            value = rng.randrange(1, 6) if f == "write" else None
            open_.append((recorder.op(f, value=value, process=i % 4).__enter__(), f, value))
            if len(open_) == 4 or i == 999:
                for op, was, argument in open_:
                    held = argument if was == "write" and argument is not None else held
                    op.ok(argument if was == "write" else held or None)
                open_ = []
    if stale:
        events = [json.loads(line) for line in path.read_text().splitlines()]
        events[-1]["value"] = held % 5 + 1
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def first_verdict(path: Path, cache: Path, *more: str) -> tuple[list[str], str]:
    """The verdict of a new process, the large modules that it loaded, and its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST, str(path), "register", *more],
        cwd=ROOT,
        env={**{k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}, "HARNESS_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines(), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stale", [False, True], ids=["good", "stale"])
@pytest.mark.parametrize("more", [[], ["without numba"]], ids=["cold cache", "no numba"])
def test_the_first_verdict_of_a_thousand_ops_loads_no_compiler(
    stale: bool, more: Sequence[str], tmp_path: Path
) -> None:
    """Protects the first test of a user: until now it compiled for half a minute, and said so on stderr."""
    path = thousand(tmp_path / "h.jsonl", stale)
    (verdict, *loaded), stderr = first_verdict(path, tmp_path / "cache", *more)
    assert verdict.startswith("not linearizable as register: op 19") if stale else verdict == "valid"
    assert loaded == [""]
    assert not stderr


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded nothing, and spent nothing."""
    monkeypatch.setattr(jit, "ENSURED", set())
    monkeypatch.setattr(unloaded._Spent, "seconds", 0.0)


def shown(result: LinearResult) -> tuple[object, ...]:
    """All that a user sees of a violation; of anything else, verdict and reason."""
    told = (result.failing_op, list(result.states), list(result.core), result.core_is_minimal)
    return (result.verdict, result.reason, *(told if result.verdict == Verdict.INVALID else ()))


def both(calls: Sequence[Call], model: str, monkeypatch: pytest.MonkeyPatch) -> tuple[LinearResult, LinearResult]:
    """The result before compiled code is loaded, and after it."""
    made = MODELS[model]()
    with monkeypatch.context() as before:
        before.setattr(jit, "ENSURED", set())
        before.setattr(unloaded._Spent, "seconds", 0.0)
        first = check(calls, made)
        assert unloaded._Spent.seconds > 0
    jit.ENSURED.add("loaded, as far as a try can see")
    try:
        return first, check(calls, made)
    finally:
        jit.ENSURED.discard("loaded, as far as a try can see")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cas-register", *sorted(WORK.keys() - {"cas-register", "multi-register"})])
def test_verdict_and_reason_are_those_of_compiled_code(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the promise that a verdict does not depend on what the process has checked before."""
    rng, seen = Random(model), set()
    for _ in range(effort(40, 10)):
        calls = lived(rng, 0.2, 60) if model == "cas-register" else lived_of(rng, model, 0.2, 30)
        if not any(call.outcome == "ok" for call in calls):
            continue
        first, then = both(calls, model, monkeypatch)
        assert shown(first) == shown(then)
        seen.add(first.verdict)
    assert Verdict.VALID in seen
    assert Verdict.INVALID in seen or model != "cas-register"


@pytest.mark.usefixtures("fresh")
def test_a_process_spends_only_so_much_on_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects a folder of many histories: what loading costs is spent once, not once for each history."""
    tries: list[Budget] = []

    def work(budget: Budget) -> bool:
        tries.append(budget)
        return False

    for in_cache, count in ((True, 2), (False, 3)):
        monkeypatch.setattr(unloaded, "_in_cache", lambda found=in_cache: found)
        tries.clear()
        unloaded.plainly(100, Budget(), work, bool)
        assert len(tries) == count, "a second, longer try if the compiled searches have to be compiled first"
        assert [budget.steps for budget in tries] == sorted({budget.steps for budget in tries})
        assert tries[-1] == Budget()
    for events, budget in ((10**6, Budget()), (100, Budget(steps=1000))):
        tries.clear()
        unloaded.plainly(events, budget, work, bool)
        assert tries == [budget], "too long for a try, or a budget that a try would exceed"
    monkeypatch.setattr(unloaded._Spent, "seconds", 3600.0)
    tries.clear()
    unloaded.plainly(100, Budget(), work, bool)
    assert tries == [Budget()]


@pytest.mark.usefixtures("fresh")
def test_a_table_that_cannot_be_closed_needs_no_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects a stack from half a minute of compiling for searches that cannot take it."""
    monkeypatch.setattr(unloaded._Spent, "seconds", 3600.0)
    calls = lived_of(Random(1), "stack", 0.0, 400)
    result = check(calls, Stack())
    assert result.verdict == Verdict.VALID
    assert not jit.ENSURED


def test_compiled_code_is_used_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the speed of the second history, and the plain edition (`--no-jit`) from a try beside itself."""
    calls = lived(Random(4), 0.2, 60)
    monkeypatch.setattr(jit, "ENSURED", {"search"})
    monkeypatch.setattr(unloaded._Spent, "seconds", 0.0)
    check(calls, CasRegister())
    monkeypatch.setattr(jit, "ENSURED", set())
    with jit.plain():
        check(calls, CasRegister())
    assert unloaded._Spent.seconds == 0
