# SPDX-License-Identifier: Apache-2.0
"""The files of a release: the checklist of docs/releasing.md leads to a wheel that works and lacks nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rocketmq_harness.hidden import OURS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RELEASING = (ROOT / "docs" / "releasing.md").read_text()
GITHUB = ROOT / ".github"


def checklist() -> list[str]:
    """The lines that one types to build and to try a wheel."""
    (box,) = re.findall(r"^ +```console\n(.*?)^ +```", RELEASING, re.MULTILINE | re.DOTALL)
    return [line.strip().removeprefix("$ ") for line in box.splitlines()]


def tracked(*below: str) -> list[str]:
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *below]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in set(listed.split("\0")) if name and os.path.lexists(ROOT / name))


def clone(folder: Path) -> None:
    """The files of this checkout, as a clone has them; changes that are not committed are tried, too."""
    for name in tracked():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            place.symlink_to((ROOT / name).readlink())
        else:
            place.write_bytes((ROOT / name).read_bytes())


@pytest.mark.slow
@pytest.mark.nightly
def test_the_checklist_leads_to_a_wheel_that_works_in_an_empty_folder(tmp_path: Path) -> None:
    """Plans, suites, mends and pages are found without a checkout. Dependencies are those of this environment: the new
    one sees its packages, but not the editable installation of this checkout.
    """
    source = tmp_path / "source"
    clone(source)
    folder = source
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    said = {}
    for typed in checklist():
        line = typed.replace("trial/bin/pip install", "trial/bin/pip install --no-deps --no-index")
        if line.startswith("cd "):
            folder = (folder / line.removeprefix("cd ")).resolve()
            assert folder.parent == source
            continue
        done = subprocess.run(
            line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        said[line] = done.stdout
        if line.startswith("python -m venv"):
            (site,) = (source / "trial" / "lib").glob("python*/site-packages")
            (site / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    assert said["../trial/bin/harness --version"].strip().endswith(PROJECT["version"])
    assert "### Steps to Reproduce" in said["../trial/bin/harness reproduce 20 --issue"]
    assert said["../trial/bin/harness reproduce 20 --page"].startswith("<!-- record -->\n# 20. ")
    assert "valid" in said["../trial/bin/harness check history.jsonl --model register"]
    where = subprocess.run(
        [
            "../trial/bin/python",
            "-c",
            "import harness.shipped, results; print(harness.shipped.__file__, results.__file__)",
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert all(Path(place).is_relative_to(source / "trial") for place in where), "the wheel was tried, not the checkout"
    assert sorted(path.name for path in folder.iterdir()) == ["history.jsonl"], "nothing is left in the folder"
    (wheel,) = (source / "dist").glob("*.whl")
    there = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in tracked("rocketmq_harness", *OURS) if not (ROOT / name).is_symlink()} <= there
    for name in tracked("examples/mutants", "examples/plans", "examples/suites", "examples/recorders/[Rr]ecorder*"):
        assert name.replace("examples", "harness/shipped", 1) in there
    for name in tracked("docs/findings/*.md"):
        assert name.replace("docs", "harness/shipped", 1) in there
    assert {Path(name).name for name in there if "/licenses/" in name} == {"LICENSE", "NOTICE"}


def test_the_changelog_begins_with_this_version() -> None:
    (first,) = re.findall(
        r"^## (\S+) \((?:unreleased|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )[:1]
    assert first == PROJECT["version"]
    assert f"@v{PROJECT['version']}" in (ROOT / "docs" / "ci.md").read_text()


def test_ci_has_the_versions_of_python_that_the_package_names() -> None:
    workflow = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())
    tried = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    said = [line.removeprefix("Programming Language :: Python :: ") for line in PROJECT["classifiers"]]
    assert [version for version in said if "." in version and "::" not in version] == tried
    assert PROJECT["requires-python"] == f">={tried[0]}"


def test_actions_are_pinned_by_commit() -> None:
    """The owner of an action can move a tag, but not a commit."""
    found = []
    for path in [ROOT / "action.yml", *(GITHUB / "workflows").glob("*.yml")]:
        found += re.findall(r"^ *- (?:name: .*\n +)?uses: (.+)$|^ +uses: (.+)$", path.read_text(), re.MULTILINE)
    used = {one or other for one, other in found} - {"./"}
    assert len(used) >= 5
    for use in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", use), use


def test_the_lock_file_has_hashes_for_everything_that_is_installed() -> None:
    """`pip install --require-hashes` refuses anything else. Each dependency of the project is in it."""
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    locked = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, _, rest = line.partition("==")
            locked[re.sub(r"[-_.]+", "-", name.strip()).lower()] = rest
    assert all(" --hash=sha256:" in rest for rest in locked.values())
    extras = PROJECT["optional-dependencies"]
    for wanted in [*PROJECT["dependencies"], *extras["dev"], *extras["spark"]]:
        name = re.split(r"[<>=\[;]", wanted)[0]
        assert re.sub(r"[-_.]+", "-", name).lower() in locked, wanted
    assert "--require-hashes -r requirements.lock" in (ROOT / "scripts" / "setup").read_text()


@pytest.mark.parametrize("path", sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_an_issue_template_has_the_form_that_github_reads(path: Path) -> None:
    """https://docs.github.com/en/communities/using-templates-to-encourage-useful-issues-and-pull-requests/"""
    form: dict[str, Any] = yaml.safe_load(path.read_text())
    if path.stem == "config":
        assert all({"name", "url", "about"} == set(link) for link in form["contact_links"])
        return
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] in ("input", "textarea")
        assert field["attributes"]["label"]


def test_the_hooks_before_a_commit_call_what_is_there() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    for hook in config["repos"][0]["hooks"]:
        program, *words = hook["entry"].split()
        assert program in (".venv/bin/ruff", ".venv/bin/python")
        assert all((ROOT / word).exists() for word in words if word.startswith("scripts/"))


# Licence headers.


@pytest.fixture(scope="module")
def spdx() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spdx", ROOT / "scripts" / "spdx.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ('"""Does."""\n', '# SPDX-License-Identifier: Apache-2.0\n"""Does."""\n'),
        ("#!/bin/sh\nset -u\n", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\nset -u\n"),
        ("#!/bin/sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"),
    ],
)
def test_a_header_is_added_once(text: str, right: str, spdx: ModuleType) -> None:
    assert spdx.with_header(text, "#") == right
    assert spdx.with_header(right, "#") == right


def test_the_files_that_need_a_header(tmp_path: Path, spdx: ModuleType) -> None:
    for name, comment in {
        "a.py": "#",
        "A.java": "//",
        "main.go": "//",
        "Makefile": "#",
        "run": "#",
        "plan.toml": "#",
        ".pre-commit-config.yaml": "#",
        "jars-5.5.0.toml": None,
        "data.json": None,
        "page.md": None,
        "NOTICE": None,
        "requirements.lock": None,
    }.items():
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" if name == "run" else "x = 1\n")
        assert spdx.comment_of(path) == comment, name
    (tmp_path / "empty.py").touch()
    (tmp_path / "link.py").symlink_to("a.py")
    assert spdx.comment_of(tmp_path / "empty.py") is None
    assert spdx.comment_of(tmp_path / "link.py") is None
