# SPDX-License-Identifier: Apache-2.0
"""docs/anomalies.md has a chapter for every anomaly that the code can name, and no other."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "anomalies.md").read_text()
ROOMS = ("checkers", "harness", "workloads", "nemesis")
ASKED = (
    "What it means.",
    "What you see.",
    "What is broken.",
    "Can it be a false alarm?",
    "What to do next.",
)


class Module:
    """One walk of a module's tree: its functions, its calls by the name of what is called, and what it imports."""

    def __init__(self, where: str, source: str) -> None:
        self.where, self.name = where, where.removesuffix(".py").replace("/", ".")
        self.functions: list[ast.FunctionDef] = []
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.imported: set[tuple[str | None, str]] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                self.functions.append(node)
            elif isinstance(node, ast.Call):
                called = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
                self.calls[str(called)].append(node)
            elif isinstance(node, ast.ImportFrom):
                self.imported |= {(node.module, alias.name) for alias in node.names}


def names_in(module: Module, others: Sequence[Module]) -> Iterator[str]:
    """Yields the first argument of every `Anomaly(...)`. For a function that passes a parameter on: that of its calls,
    here and in the modules that import it, and so on.
    """
    for call in module.calls.get("Anomaly", ()):
        first = call.args[0] if call.args else next(k.value for k in call.keywords if k.arg == "name")
        yield from passed(first, call, module, others)


def passed(argument: ast.expr, call: ast.Call, module: Module, others: Sequence[Module]) -> Iterator[str]:
    """Yields the texts that may be the argument of a call."""
    if isinstance(argument, ast.Name):
        around = (f for f in module.functions if f.lineno <= call.lineno <= (f.end_lineno or 0))
        for function in around:
            parameters = [a.arg for a in function.args.args if a.arg != "self"]
            if argument.id in parameters:
                place = parameters.index(argument.id)
                callers = [module, *(other for other in others if (module.name, function.name) in other.imported)]
                found = [(c, caller) for caller in callers for c in caller.calls.get(function.name, ())]
                assert found, f"{module.where}: no call of {function.name}"
                for one, caller in found:
                    yield from passed(one.args[place], one, caller, others)
                return
    yield from constants(argument, module.where)


def constants(node: ast.expr, where: str) -> Iterator[str]:
    """`"a"`, or `"a" if ... else "b"`. Any other way to name an anomaly cannot be read, and is refused."""
    if isinstance(node, ast.IfExp):
        yield from constants(node.body, where)
        yield from constants(node.orelse, where)
    else:
        assert isinstance(node, ast.Constant), f"{where}:{node.lineno}: name the anomaly by a text that can be found"
        assert isinstance(node.value, str)
        yield node.value


@cache
def emitted() -> set[str]:
    """The names of all anomalies in the code."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    modules = [Module(str(path.relative_to(ROOT)), path.read_text()) for path in files]
    return {name for module in modules for name in names_in(module, modules)}


def chapters() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", DOC, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_anomaly_has_its_chapter_and_no_chapter_is_about_nothing() -> None:
    text = {name for name in chapters() if re.fullmatch(r"[a-z]+(-[a-z]+)*", name)}
    assert text == emitted()


def test_a_chapter_answers_every_question() -> None:
    """And has its row in the table at the top."""
    for name, text in chapters().items():
        if name in emitted():
            answers = re.findall(r"\*\*([^*]+)\*\* (\S+)", text)
            assert [question for question, _ in answers] == list(ASKED), name
            assert f"| [`{name}`](#{name}) |" in DOC, name


def test_names_are_found_however_they_are_passed() -> None:
    source = (
        "def f(x):\n    return Anomaly('plain' if x else 'other', 's')\n"
        "class A:\n"
        "    def report(self, what, name):\n        return Anomaly(name, what)\n"
        "    def go(self):\n        return self.report('s', 'passed-on')\n"
    )
    here = Module("here.py", source)
    assert set(names_in(here, [here])) == {"plain", "other", "passed-on"}
    passing = Module("room/module.py", "def f(name):\n    return Anomaly(name, 's')\n")
    caller = Module("elsewhere.py", "from room.module import f\nf('from-afar')\n")
    assert set(names_in(passing, [passing, caller])) == {"from-afar"}
    between = Module("between.py", "from room.module import f\ndef g(x, name):\n    f(name)\ng(1, 'twice')\n")
    assert set(names_in(passing, [passing, caller, between])) == {"from-afar", "twice"}
    with pytest.raises(AssertionError, match=r"room/module\.py: no call of f"):
        list(names_in(passing, [passing]))
    with pytest.raises(AssertionError, match="here:2: name the anomaly"):
        list(names_in(Module("here", "def f(x):\n    return Anomaly('a' + x, 's')\n"), []))


def test_the_report_says_what_the_table_says() -> None:
    rows = re.findall(r"^\| \[`([\w-]+)`\]\(#[\w-]+\) \| [^|]+ \| (.*?) \|$", DOC, re.MULTILINE)
    table = {name: line.replace("`", "") for name, line in rows}
    data = tomllib.loads((ROOT / "results" / "report" / "meanings.toml").read_text())
    assert data["meaning"] == table
    assert {name for head, others in data["told_also"].items() for name in (head, *others)} <= set(table)
