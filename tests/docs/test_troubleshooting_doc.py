# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md quotes texts of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "troubleshooting.md").read_text()
ROOMS = ("rocketmq_harness", "harness", "infra", "results", "checkers", "workloads", "nemesis")
QUOTED = re.findall(r"^\| `([^`]+)` \|", DOC, re.MULTILINE)


def texts() -> list[str]:
    """Returns every text in the code, with `...` for what an f-string fills in."""
    found = []
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [str(v.value) if isinstance(v, ast.Constant) else "..." for v in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_the_code_has_every_quoted_text() -> None:
    """The words around the dots stand in one text of the code, in their order."""
    found = texts()
    for quoted in QUOTED:
        words = [re.escape(part) for part in quoted.replace(" ...", "...").replace("... ", "...").split("...")]
        pattern = re.compile(r"\s?(?:.*?)\s?".join(words), re.DOTALL)
        assert any(pattern.search(text) for text in found), f"no text of the code is: {quoted}"


def test_there_is_something_to_compare() -> None:
    assert len(QUOTED) > 25
