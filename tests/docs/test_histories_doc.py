# SPDX-License-Identifier: Apache-2.0
"""docs/histories.md: its example is judged as it says, and its tables name every op and field of the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkers.messages.ops import FORMS
from harness.cli.main import cli, guarded

DOC = (Path(__file__).parents[2] / "docs" / "histories.md").read_text()


def harness(*argv: str | Path) -> int:
    return guarded(lambda: cli.main([str(a) for a in argv], prog_name="harness", standalone_mode=False))


def test_the_example_is_judged_as_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```json\n(.+?)```", DOC, re.DOTALL)
    assert example is not None
    path = tmp_path / "mq.jsonl"
    path.write_text(example[1])
    assert harness("check", path, "--workload", "log") == 1
    output = re.sub(r" +\d+ ms", "     2 ms", capsys.readouterr().out.splitlines()[0]).replace(str(path), "mq.jsonl")
    (shown,) = re.findall(r"^mq\.jsonl   invalid.*$", DOC, re.MULTILINE)
    assert output.startswith(shown.removesuffix("..."))


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, code = re.search(r"```json\n(.+?)```", DOC, re.DOTALL), re.search(r"```python\n(.+?)```", DOC, re.DOTALL)
    assert example is not None
    assert code is not None
    (tmp_path / "mq.jsonl").write_text(example[1])
    monkeypatch.chdir(tmp_path)
    output: list[tuple[object, ...]] = []
    exec(code[1], {"print": lambda *what: output.append(what)})
    assert [(str(checker), names) for checker, _, _, names in output] == [
        ("log", ["lost"]),
        ("linearizability", ["nonlinearizable"]),
        ("replicas", []),
    ]


def test_the_page_shows_what_is_said_of_bad_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(
        '{"process":0,"type":"invoke","f":"send","key":"q","value":1}\n\n'
        '{"process":0,"type":"ok","f":"send","key":"q","value":null}\n'
    )
    assert harness("check", path, "--workload", "log") == 2
    (shown,) = re.findall(r"^bad\.jsonl   unknown.*$", DOC, re.MULTILINE)
    assert capsys.readouterr().out.strip().replace(str(path), "bad.jsonl") == shown


def test_the_tables_name_every_op_and_field() -> None:
    rows = [row for row in DOC.splitlines() if row.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([a-z_-]+)`", row)}
    assert set(FORMS) - {"min-offset"} <= named
    fields = {name for form in FORMS.values() for name in form.extra} - {"group"}
    assert fields <= named
    assert "`group`" in DOC
