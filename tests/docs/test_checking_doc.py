# SPDX-License-Identifier: Apache-2.0
"""docs/checking.md: every model with its operations, every option, and a model of one's own that works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from checkers import linearizability as lin
from checkers.converging import CONVERGING
from checkers.linearizability.fast import FAST
from checkers.linearizability.monitors import locks, logs, queues, registers, sets, strings
from harness.cli.main import command as command_of
from results.history import History
from results.op import Op
from results.verdict import Verdict

DOC = (Path(__file__).parents[2] / "docs" / "checking.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The first table under a heading, without its head."""
    section = DOC.split(f"## {heading}\n", 1)[1]
    table = re.search(r"((?:^\|.*\n)+)", section, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()[2:]]


def test_every_model_is_there_with_its_operations() -> None:
    text = dict(rows("Models"))
    assert {name.strip("`") for name in text} == set(lin.MODELS)
    for name, model in lin.MODELS.items():
        words = set(re.findall(r"`([a-z-]+)`", text[f"`{name}`"]))
        inherited = {"read", "write", "r", "w", "get", "put"} if name == "cas-register" else set()
        assert words | inherited == model.fs, name


def test_every_option_is_there() -> None:
    """Of the command, and no other."""
    text = set(re.findall(r"--[a-z-]+", " ".join(row[0] for row in rows("The command"))))
    assert text == {option for parameter in command_of("check").params for option in parameter.opts if "--" in option}


def test_every_special_case_is_there() -> None:
    text = {
        (name.strip("`"), algorithm.strip("`"))
        for names, algorithm, _ in rows("Special cases")
        for name in names.split(", ")
    }
    modules = {"kv": strings, "fifo-queue": queues, "mutex": locks, "log": logs, "grow-only-set": sets, "set": sets}
    modules |= {"register": registers, "cas-register": registers}
    assert modules.keys() == {model.name for model, record in FAST.items() if record.monitor}
    assert text == {(name, module.NAME) for name, module in modules.items()} | {("set", "search of each element")}


def test_every_path_names_tests_that_are_there() -> None:
    """And every special case and search has a row."""
    tests = Path(__file__).parents[1] / "checkers"
    section = DOC.split("### Path -> evidence -> test\n", 1)[1].split("\n## ", 1)[0]
    named = re.findall(r"`(test_\w+)::(test_\w+)`", section)
    assert len(named) > 25
    for module, test in named:
        assert f"def {test}(" in (tests / f"{module}.py").read_text(), f"{module}::{test}"
    paths = {row[0].strip("`") for row in rows("Path -> evidence -> test")}
    assert {algorithm.strip("`") for _, algorithm, _ in rows("Special cases")} <= paths
    assert {"WGL", "just-in-time linearization", "CEGAR", "state flow", "batch", "direct, from calls"} <= paths


def test_a_model_of_ones_own_works() -> None:
    found: dict[str, Any] = {"lin": lin}
    for code in re.findall(r"```python\n(class .*?)```", DOC, re.DOTALL):
        exec(code, found)
    ops = [("set", True), ("test", True), ("test", False)]
    history = History(
        Op(2 * i + end, i, 0, "ok" if end else "invoke", f, "k", value if end else None)
        for i, (f, value) in enumerate(ops)
        for end in (0, 1)
    )
    result = lin.check(history, found["Flag"]())
    assert (result.verdict, result.failing_op) == (Verdict.INVALID, 4)
    assert lin.check(history.calls[:2], found["Flag"]()).verdict == Verdict.VALID


def test_a_queue_of_ones_own_knows_what_nobody_heard() -> None:
    found: dict[str, Any] = {"lin": lin}
    for code in re.findall(r"```python\n(class .*?)```", DOC, re.DOTALL):
        exec(code, found)
    assert "Without the two lines on `op.known`" in DOC
    lost = [
        Op(0, 0, 0, "invoke", "enqueue", None, 1),
        Op(1, 1, 0, "ok", "enqueue", None, 1),
        Op(2, 2, 1, "invoke", "dequeue"),
        Op(3, 3, 1, "info", "dequeue"),
        Op(4, 4, 2, "invoke", "dequeue"),
        Op(5, 5, 2, "ok", "dequeue"),
    ]
    assert lin.check(History(lost), found["Jobs"]()).verdict == Verdict.VALID
    (without,) = re.findall(r"```python\n(class Jobs.*?)```", DOC, re.DOTALL)
    exec(re.sub(r"        if not op.known:\n.*\n", "", without), found)
    with pytest.raises(ValueError, match=r"never looks at op\.known"):
        lin.check(History(lost), found["Jobs"]())


def test_a_model_with_choices_works() -> None:
    found: dict[str, Any] = {"lin": lin}
    (code,) = re.findall(r"```python\n(class Cache.*?)```", DOC, re.DOTALL)
    exec(code, found)
    ops = [
        Op(2 * at + end, at, 0, "ok" if end else "invoke", f, "k", value if end or f == "write" else None)
        for at, (f, value) in enumerate([("write", 1), ("read", 1), ("read", None), ("read", 1)])
        for end in (0, 1)
    ]
    assert lin.check(History(ops[:6]), found["Cache"]()).verdict == Verdict.VALID
    assert lin.check(History(ops), found["Cache"]()).verdict == Verdict.INVALID


def test_every_object_that_converges_is_there_with_its_operations() -> None:
    text = {name.strip("`"): operations for name, operations, _ in rows("Objects that converge")}
    assert text.keys() == CONVERGING.keys()
    for name, promise in CONVERGING.items():
        assert set(re.findall(r"`([a-z-]+)`", text[name])) == promise.fs, name
