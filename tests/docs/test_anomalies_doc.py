"""docs/anomalies.md tells every anomaly that the code can name, and none that it cannot."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
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


def names_in(tree: ast.Module, where: str, trees: Sequence[ast.Module]) -> Iterator[str]:
    """The first argument of every `Anomaly(...)`. Where a function passes a parameter on, that of its calls, here and
    in the modules that import it.
    """
    module = where.removesuffix(".py").replace("/", ".")
    for function in (f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)):
        for call in calls_of(function, "Anomaly"):
            first = call.args[0] if call.args else next(k.value for k in call.keywords if k.arg == "name")
            parameters = [a.arg for a in function.args.args if a.arg != "self"]
            if isinstance(first, ast.Name) and first.id in parameters:
                place = parameters.index(first.id)
                callers = [tree, *(other for other in trees if imports(other, module, function.name))]
                passed = [c.args[place] for caller in callers for c in calls_of(caller, function.name)]
                assert passed, f"{where}: nobody calls {function.name}"
                for argument in passed:
                    yield from constants(argument, where)
            else:
                yield from constants(first, where)


def imports(tree: ast.Module, module: str, name: str) -> bool:
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == module)
    return any(alias.name == name for node in froms for alias in node.names)


def calls_of(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name in (getattr(node.func, "id", None), getattr(node.func, "attr", None)):
            yield node


def constants(node: ast.expr, where: str) -> Iterator[str]:
    """`"a"`, or `"a" if ... else "b"`. Any other way to name an anomaly cannot be read, and is refused."""
    if isinstance(node, ast.IfExp):
        yield from constants(node.body, where)
        yield from constants(node.orelse, where)
    else:
        assert isinstance(node, ast.Constant), f"{where}:{node.lineno}: name the anomaly by a text that can be found"
        assert isinstance(node.value, str)
        yield node.value


def emitted() -> set[str]:
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in files}
    return {name for where, tree in trees.items() for name in names_in(tree, where, list(trees.values()))}


def chapters() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", DOC, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_anomaly_has_its_chapter_and_no_chapter_is_about_nothing() -> None:
    text = {name for name in chapters() if re.fullmatch(r"[a-z]+(-[a-z]+)*", name)}
    assert text == emitted()


@pytest.mark.parametrize("name", sorted(emitted()))
def test_a_chapter_answers_every_question(name: str) -> None:
    text = chapters()[name]
    answers = re.findall(r"\*\*([^*]+)\*\* (\S+)", text)
    assert [question for question, _ in answers] == list(ASKED)
    assert f"| [`{name}`](#{name}) |" in DOC


def test_names_are_found_however_they_are_passed() -> None:
    source = (
        "def f(x):\n    return Anomaly('plain' if x else 'other', 's')\n"
        "class A:\n"
        "    def tell(self, what, name):\n        return Anomaly(name, what)\n"
        "    def go(self):\n        return self.tell('s', 'passed-on')\n"
    )
    here = ast.parse(source)
    assert set(names_in(here, "here.py", [here])) == {"plain", "other", "passed-on"}
    passing = ast.parse("def f(name):\n    return Anomaly(name, 's')\n")
    caller = ast.parse("from room.module import f\nf('from-afar')\n")
    assert set(names_in(passing, "room/module.py", [passing, caller])) == {"from-afar"}
    with pytest.raises(AssertionError, match="here: nobody calls f"):
        list(names_in(passing, "here", [passing, caller]))
    with pytest.raises(AssertionError, match="here:2: name the anomaly"):
        list(names_in(ast.parse("def f(x):\n    return Anomaly('a' + x, 's')\n"), "here", []))
