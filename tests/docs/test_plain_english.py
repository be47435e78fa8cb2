# SPDX-License-Identifier: Apache-2.0
"""The checker of docs/style.md: it finds each kind of fault, and leaves good text and quotations alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def faults(*paths: Path) -> list[str]:
    """The lines of the checker on these paths. Its exit code is 1 if it prints any, and otherwise 0."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "plain_english.py", *paths], check=False, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.returncode == bool(done.stdout)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "text", "line", "fault"),
    [
        ("a.py", '"""Who injects faults."""\n', 1, "begins with 'Who'"),
        ("a.py", 'class A:\n    """Whether it runs."""\n', 2, "begins with 'Whether'"),
        ("a.py", 'async def f():\n    """\n    `where` it is."""\n', 2, "begins with 'where'"),
        ("a.py", 'LIMIT_S: float = 3\n"""How long it waits."""\n', 2, "begins with 'How'"),
        ("a.py", "def f():\n    return 1  # sets the time anew\n", 2, "'anew'"),
        ("a.py", 'def f(n):\n    raise ValueError(f"no\\nnode {n} was told")\n', 2, "'told'"),
        ("a.py", '"""Returns the count."""\nx = "it fails for good"\n', 2, "'for good'"),
        ("a.md", "# Title\n\nThe peers are\ntold at once.\n", 4, "'told'"),
        ("a.toml", 'x = 1\ny = "Whoever sends"\n', 2, "'Whoever'"),
        ("a.md", "It gets `good text`, and nobody asked `f()`.\n", 1, "'nobody asked'"),
    ],
)
def test_a_fault_is_found_at_its_line(name: str, text: str, line: int, fault: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    (found,) = faults(tmp_path)
    assert found.startswith(f"{path}:{line}: ")
    assert fault in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a.py",
            '"""Returns the retold count."""\n\n\ndef f():\n    """True if it runs."""\n    "What is no docstring"\n',
        ),
        ("a.py", 'def tell(told):\n    """Calls `tell()` of the model."""\n    return told\n'),
        ("a.py", 'KEY = "told"  # plain_english: the key in stored files\n'),
        ("a.md", "Call `tell`, and read `told: 3` in the log.\n"),
        ("a.txt", "told\n"),
    ],
)
def test_good_text_and_quotations_pass(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert faults(tmp_path) == []


def test_an_exemption_needs_a_reason(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('KEY = "told"  # plain_english:\n')
    assert len(faults(tmp_path)) == 1


def test_files_that_quote_the_words_are_exempt() -> None:
    quoting = (ROOT / "scripts" / "plain_english.py", ROOT / "docs" / "style.md", Path(__file__))
    assert faults(*quoting) == []
    assert all("told" in path.read_text() for path in quoting)
