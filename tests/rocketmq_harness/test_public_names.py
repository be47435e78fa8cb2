# SPDX-License-Identifier: Apache-2.0
"""The public names: the package, its page, the examples and the documents agree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketmq_harness
from rocketmq_harness.hidden import OURS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()
PUBLIC = set(rocketmq_harness.__all__)


def test_the_page_lists_every_public_name_and_no_other() -> None:
    named = re.findall(r"^\| `(\w+)` \| .+ \|$", PAGE, re.MULTILINE)
    assert len(named) == len(set(named))
    assert set(named) == PUBLIC


def test_every_name_is_what_its_module_defines() -> None:
    """A module that moves takes its public names along; a type checker and Python see the same."""
    checked = next(node for node in ast.parse(_source()).body if isinstance(node, ast.If))
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: f"{node.module}" for node in imports for alias in node.names}
    found = {name: module.rpartition(".")[0] for name, module in rocketmq_harness._MODULES.items()}
    assert seen == found | rocketmq_harness._PLACES
    assert set(seen) == PUBLIC
    assert set(dir(rocketmq_harness)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(rocketmq_harness, name) is not None


def _source() -> str:
    return Path(rocketmq_harness.__file__).read_text()


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'Worklod'; its names are in docs/python\.md"):
        rocketmq_harness.Worklod  # noqa: B018


def test_the_import_loads_none_of_our_packages() -> None:
    """A plug-in's package may be imported by every command, and must not pay for judges and numpy."""
    code = "import sys; before = set(sys.modules); import rocketmq_harness; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "rocketmq_harness" in loaded
    assert not loaded - set(sys.stdlib_module_names) - {"rocketmq_harness"}


def sources() -> Iterator[tuple[str, str]]:
    """The code that a reader copies: the examples, and the Python of the documents."""
    for path in sorted([*(ROOT / "examples").rglob("*.py"), *(ROOT / "tests" / "docs" / "own_package").glob("*.py")]):
        yield str(path.relative_to(ROOT)), path.read_text()
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]):
        for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)):
            yield f"{path.relative_to(ROOT)}:{number}", code


def test_examples_and_documents_use_public_names_only() -> None:
    used = set()
    for where, code in sources():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                private = {alias.name for alias in node.names if alias.name.partition(".")[0] in OURS}
                assert not private, f"{where}: {private}"
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in OURS, f"{where}: {node.module}"
                if node.module == "rocketmq_harness":
                    used |= {alias.name for alias in node.names}
    assert used
    assert used <= PUBLIC
