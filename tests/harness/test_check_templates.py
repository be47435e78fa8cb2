# SPDX-License-Identifier: Apache-2.0
"""`harness check --template`: what it prints is accepted as it says, and the schema accepts what the reader accepts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from checkers.converging import CONVERGING
from checkers.linearizability import MODELS
from harness.check.templates import OPTIONS, RECORDERS, SCHEMA, TEMPLATES, schema, template
from results.formats import HistoryError, read_history
from results.op import Op
from tests.commands import harness


def test_every_model_has_a_template() -> None:
    assert TEMPLATES.keys() == MODELS.keys() | CONVERGING.keys() | OPTIONS.keys()


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_valid_under_the_command_that_it_names(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a note, and with every kind of outcome that its reader should know."""
    code, text, hint = harness(capsys, "check", "--template", name)
    path = tmp_path / "h.jsonl"
    path.write_text(text)
    assert (code, hint.split()[:3]) == (0, ["harness", "check", "FILE"])
    code, out, _ = harness(capsys, "check", path, *hint.split()[3:])
    assert (code, "note:" in out) == (0, False), out


def test_a_recorder_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Protects those who have the wheel alone, the tabs of the source, and a recorder that nobody added to the list."""
    folder = Path(__file__).parents[2] / "examples" / "recorders"
    sources = {path.name: path.read_text() for path in folder.iterdir() if path.suffix != ".md"}
    assert sources.keys() == set(RECORDERS)
    for name, source in sources.items():
        assert harness(capsys, "check", "--template", name) == (0, source, "")


def test_another_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = harness(capsys, "check", "--template", "kw")
    assert (code, out, "no template 'kw'" in err, len(err.splitlines())) == (64, "", True, 1)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
}
_WORDS: Final = frozenset({"$schema", "title", "description"})


def accepts(rule: Mapping[str, Any], value: Any) -> bool:
    """JSON Schema, the part that the schema uses."""
    checks: dict[str, Callable[[Any], bool]] = {
        "type": lambda t: any(_TYPES[one](value) for one in ([t] if isinstance(t, str) else t)),
        "enum": lambda values: value in values,
        "required": lambda names: all(name in value for name in names),
        "anyOf": lambda rules: any(accepts(one, value) for one in rules),
        "properties": lambda rules: all(accepts(one, value[n]) for n, one in rules.items() if n in value),
        "minimum": lambda least: value >= least,
        "minLength": lambda least: len(value) >= least,
    }
    return all(checks[word](what) for word, what in rule.items() if word not in _WORDS)


def test_the_schema_accepts_templates_and_our_own_journal() -> None:
    rule = json.loads(schema())
    ours = [Op(0, 5, 0, "invoke", "read", "x"), Op(1, 6, -1, "info", "kill", None, ["n1"], "e", {"node": "n1"})]
    events = [json.loads(line) for name in TEMPLATES for line in template(name)]
    assert list(template(SCHEMA)) == schema().splitlines()
    for event in [*events, *(op.to_json() for op in ours)]:
        assert accepts(rule, event), event


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"process": "c1"}, True),
        ({"process": None, "client": 4}, True),
        ({"key": 7, "extra": None, "error": ["x"], "time": 4}, True),
        ({"process": None}, False),
        ({"process": 1.5}, False),
        ({"process": ""}, False),
        ({"type": "done"}, False),
        ({"type": None}, False),
        ({"f": 3}, False),
        ({"f": None}, False),
        ({"time": "now"}, False),
        ({"extra": 3}, False),
    ],
)
def test_the_schema_agrees_with_the_reader(change: dict[str, Any], good: bool, tmp_path: Path) -> None:
    """None: the field is not there."""
    event: dict[str, Any] = {"process": 0, "type": "invoke", "f": "read", **change}
    event = {name: value for name, value in event.items() if value is not None or name == "extra"}
    path = tmp_path / "h.jsonl"
    path.write_text(json.dumps(event) + "\n")
    assert accepts(json.loads(schema()), event) == good
    if good:
        assert len(read_history(path).history) == 1
    else:
        with pytest.raises(HistoryError):
            read_history(path)
