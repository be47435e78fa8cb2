# SPDX-License-Identifier: Apache-2.0
"""docs/histories.md: what Python finds in its example, and its tables name every op and field of the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkers.messages.ops import FORMS

DOC = (Path(__file__).parents[2] / "docs" / "histories.md").read_text()


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


def test_the_tables_name_every_op_and_field() -> None:
    rows = [row for row in DOC.splitlines() if row.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([a-z_-]+)`", row)}
    assert set(FORMS) - {"min-offset"} <= named
    fields = {name for form in FORMS.values() for name in form.extra} - {"group"}
    assert fields <= named
    assert "`group`" in DOC
