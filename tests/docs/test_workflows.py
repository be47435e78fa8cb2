"""The workflows and the action: their shell runs here with stand-ins for sudo and make, and their options exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli.nightly import nightly
from harness.cli.run import run

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"


def steps(path: Path) -> Iterator[Mapping[str, Any]]:
    data = yaml.safe_load(path.read_text())
    jobs = data.get("jobs", {"": data.get("runs")})
    for job in jobs.values():
        yield from job["steps"]


def scripts(path: Path) -> list[str]:
    return [step["run"] for step in steps(path) if "run" in step]


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.name)
def test_the_shell_of_every_step_is_sound(path: Path) -> None:
    for script in scripts(path):
        subprocess.run(["bash", "-n", "-c", script], check=True)
    assert all("${{" not in script for script in scripts(path)), "values reach a shell as variables, never as its text"


@pytest.fixture
def runner(tmp_path: Path) -> Mapping[str, str]:
    """What the scripts see of a hosted runner. `sudo` runs what it is given; what is heavy only notes its words."""
    tools = tmp_path / "bin"
    tools.mkdir()
    tell = f'#!/bin/bash\necho "$(basename "$0") $*" >> "{tmp_path}/told"\n'
    for name in ("apt-get", "make", "chown"):
        (tools / name).write_text(tell)
    (tools / "sudo").write_text('#!/bin/bash\nexec "$@"\n')
    action = tmp_path / "action"
    (action / ".venv" / "bin").mkdir(parents=True)
    (action / ".venv" / "bin" / "harness").write_text(tell + "exit 1\n")
    for path in [*tools.iterdir(), action / ".venv" / "bin" / "harness"]:
        path.chmod(0o755)
    return {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "JAVA_HOME": "/nowhere",
        "GITHUB_ACTION_PATH": str(action),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }


def test_the_action_passes_everything_on(tmp_path: Path, runner: Mapping[str, str]) -> None:
    set_up, work = scripts(ACTION)
    subprocess.run(["bash", "-e", "-c", set_up], check=True, env=runner, cwd=tmp_path)
    (tmp_path / "lib").mkdir()
    given = {"COMMAND": "run", "ARGS": "--nemesis bridge --time-limit 90s", "JARS": "lib"}
    done = subprocess.run(["bash", "-e", "-c", work], check=False, env={**runner, **given}, cwd=tmp_path)
    assert done.returncode == 1
    assert (tmp_path / "output").read_text() == "code=1\n"
    given = {"COMMAND": "nightly", "ARGS": "--part 2/4 --hours 5", "JARS": "lib"}
    subprocess.run(["bash", "-e", "-c", work], check=False, env={**runner, **given}, cwd=tmp_path)
    told = (tmp_path / "told").read_text().splitlines()
    store, jars = f"{runner['HOME']}/harness-store", tmp_path / "lib"
    assert [line for line in told if line.startswith("harness")] == [
        f"harness run --store {store} --nemesis bridge --time-limit 90s --server-jars {jars}",
        f"harness nightly --store {store} --part 2/4 --hours 5 --option --server-jars {jars}",
    ]
    assert f"make -C {runner['GITHUB_ACTION_PATH']} setup" in told


def test_the_options_in_workflows_exist() -> None:
    known = {option for command in (run, nightly) for param in command.params for option in param.opts}
    for path in [*WORKFLOWS, ACTION, ROOT / "docs" / "ci.md"]:
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text()):
            assert option in known | {"--depth"}, f"{path.name}: {option}"


@pytest.mark.nightly
@pytest.mark.slow
def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    """actionlint is a Go module; it also checks the shell of the steps where shellcheck is installed."""
    go = shutil.which("go")
    assert go is not None, "this test needs Go"
    tool = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
    subprocess.run([go, "run", tool, *map(str, WORKFLOWS)], check=True, cwd=ROOT)
