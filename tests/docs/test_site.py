# SPDX-License-Identifier: Apache-2.0
"""The site of the documents: its menu has every page, links out of docs/ lead somewhere, nothing needs a network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MKDOCS = ROOT / ".venv-site" / "bin" / "mkdocs"


class Loader(yaml.SafeLoader):
    """Reads the configuration without mkdocs, whose functions it names."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def config() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    return found


def menu(entries: Any) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values():
                yield from menu([value] if isinstance(value, str) else value)


def test_every_page_is_in_the_menu() -> None:
    shown = list(menu(config()["nav"]))
    hidden = config()["not_in_nav"].split()
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert len(shown) == len(set(shown))
    assert set(shown) - pages == {"findings/index.md"}
    left = {page for page in pages - set(shown) if not any(fnmatch(f"/{page}", pattern) for pattern in hidden)}
    assert left == set(), "mkdocs.yml: nav"


def test_the_first_page_has_three_doors_and_the_analysis() -> None:
    text = (DOCS / "index.md").read_text()
    links = re.findall(r"\]\(([^)#]+)", text)
    assert {"operators.md", "tutorial.md", "checking.md", "track-record.md", "analysis.md"} <= set(links)


def test_a_link_out_of_the_documents_leads_to_a_page_of_the_site(site: ModuleType) -> None:
    known = site.outside(DOCS)
    assert "CHANGELOG.md" in known
    for page in DOCS.rglob("*.md"):
        text = site.rewritten(page.read_text(), page.relative_to(DOCS).as_posix(), known)
        for target in re.findall(r"\]\((\.\./[^)#\s]+)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            path = os.path.normpath(page.parent / target)
            inside = path.startswith(f"{DOCS}/")
            assert inside, f"{page.name}: {target}"


def test_links_are_rewritten(site: ModuleType) -> None:
    text = "[a](../CHANGELOG.md#x) [b](style.md) [c](findings) [d](https://x.org/y)\n```console exact\n[e](../Z)\n```\n"
    assert site.rewritten(text, "design.md", ["CHANGELOG.md"]) == (
        "[a](repo/CHANGELOG.md#x) [b](style.md) [c](findings/index.md) [d](https://x.org/y)\n"
        "```console\n[e](../Z)\n```\n"
    )
    other = "[a](docs/style.md) [b](tests/README.md) [c](https://x.org)"
    assert site.rewritten(other, "repo/CONTRIBUTING.md", []) == "[a](../style.md) b [c](https://x.org)"


def test_the_lock_file_has_hashes() -> None:
    text = (ROOT / "requirements-site.lock").read_text().replace("\\\n", " ")
    locked = [line for line in text.splitlines() if "==" in line and not line.startswith("#")]
    assert any(line.startswith("mkdocs-material==") for line in locked)
    assert all(" --hash=sha256:" in line for line in locked)
    assert "--require-hashes -r requirements-site.lock" in (ROOT / "Makefile").read_text()


@pytest.mark.skipif(not MKDOCS.exists(), reason="make site installs mkdocs")
def test_the_site_is_built_and_needs_no_network(tmp_path: Path) -> None:
    argv = [str(MKDOCS), "build", "--strict", "-q", "-d", str(tmp_path / "site")]
    done = subprocess.run(
        argv, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "search" / "search_index.js").is_file()
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\bsrc=[\"']?(https?:[^\"' >]*)", page.read_text())
        loaded += re.findall(r"<link[^>]*rel=.?stylesheet[^>]*href=[\"']?(https?:[^\"' >]*)", page.read_text())
        assert loaded == [], page.name
