# SPDX-License-Identifier: Apache-2.0
"""docs/any-system.md: its files are those of the examples, and its tables have all keys, placeholders and models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from infra.systems.any_system.description import OF_CLIENT, ON_NODE
from workloads.any_system.objects import OBJECTS
from workloads.any_system.workload import AnyOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "any-system.md").read_text()
MOST_LINES = 60


@pytest.mark.parametrize("file", ["etcd/etcd.toml", "etcd/client.py", "redis/redis.toml", "redis/client.py"])
def test_a_file_of_the_page_is_that_of_the_examples(file: str) -> None:
    example = re.sub(r"\A# SPDX-License-Identifier: .*\n", "", (ROOT / "examples" / "any" / file).read_text())
    language = {".toml": "toml", ".py": "python"}[Path(file).suffix]
    assert f"`{file}`:\n\n```{language}\n{example}```" in PAGE
    code = example.split('"""\n', 2)[-1].strip().splitlines()
    assert len(code) <= MOST_LINES, "a client takes at most 60 lines below its docstring"


def test_every_placeholder_and_model_is_on_the_page() -> None:
    for name in {*ON_NODE, *OF_CLIENT}:
        assert f"`{{{name}}}`" in PAGE, name
    table = PAGE.partition("## Models")[2].partition("\n## ")[0]
    models = set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)))) - {"--model"}
    assert models == set(OBJECTS) == set(get_args(get_type_hints(AnyOptions)["model"]))


def test_every_key_of_a_description_is_in_the_table() -> None:
    source = (ROOT / "infra" / "systems" / "any_system" / "description.py").read_text()
    table = PAGE.partition("## The description")[2].partition("\n## ")[0]
    keys = set(re.findall(r"\.take\(\s*\"(\w+)\"", source)) | set(re.findall(r"\.tables?\(\"(\w+)\"\)", source))
    assert keys >= {"packages", "server", "once", "unpack"}
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", table)] == []
