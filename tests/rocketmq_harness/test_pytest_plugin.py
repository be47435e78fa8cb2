# SPDX-License-Identifier: Apache-2.0
"""The plug-in for pytest, in test-suites of their own: what passes, what fails, what is shown and kept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rocketmq_harness import pytest_plugin

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "pytest-project"
PLUGIN = "rocketmq_harness.pytest_plugin"


def suite(folder: Path, source: str = "", *options: str, **environment: str) -> tuple[str, dict[str, int]]:
    """Runs a test-suite. Its output, and the numbers of its last line: passed, failed, errors."""
    if source:
        (folder / "test_it.py").write_text(source)
    argv = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "--strict-markers", *options]
    done = subprocess.run(
        [*argv, f"--basetemp={folder / 'kept'}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1]
    return done.stdout + done.stderr, {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|error)", last)}


def histories(folder: Path) -> list[str]:
    """The files that the tests left, by the name of the test's folder."""
    folders = [path for path in (folder / "kept").iterdir() if not path.is_symlink()]
    return sorted(f"{path.parent.name}/{path.name}" for place in folders for path in place.glob("history.*"))


JUDGED = """
import pytest

def write_and_read(history, seen):
    for value in (1, 2):
        with history.op("write", key="x", value=value) as op:
            op.ok()
    with history.op("read", key="x") as op:
        op.ok(seen)

@pytest.mark.linearizable("register")
def test_good(history):
    write_and_read(history, 2)

@pytest.mark.linearizable("register")
def test_stale(history):
    write_and_read(history, 1)

def test_not_judged(history):
    write_and_read(history, 1)

def test_own_failure(history):
    write_and_read(history, 2)
    assert 1 == 2

@pytest.mark.linearizable("register")
def test_no_fixture():
    pass

@pytest.mark.linearizable("register")
class TestClass:
    def test_of_the_class(self, history):
        write_and_read(history, 1)

    @pytest.mark.linearizable("register", ignore={"read"})
    def test_nearer_mark(self, history):
        write_and_read(history, 1)
"""


@pytest.mark.slow
def test_a_history_is_judged_with_its_test(tmp_path: Path) -> None:
    """Protects: a good history passes and leaves no file; a violation fails its own test, in a few lines, and leaves
    history and picture; a test that failed by itself names its history.
    """
    output, numbers = suite(tmp_path, JUDGED)
    assert numbers == {"passed": 3, "failed": 4}, output
    assert histories(tmp_path) == [
        "test_of_the_class0/history.html",
        "test_of_the_class0/history.jsonl",
        "test_own_failure0/history.jsonl",
        "test_stale0/history.html",
        "test_stale0/history.jsonl",
    ]
    stale = re.split(r"^__+ (?:test_stale|TestClass\S+) __+$", output, flags=re.MULTILINE)[1]
    stale = stale[: stale.index("\n____")]
    assert "not linearizable as register: op 4: read 1 on key x cannot be placed" in stale
    assert "<- cannot be placed" in stale
    assert f"history: {tmp_path}/kept/test_stale0/history.jsonl" in stale
    assert f"picture: {tmp_path}/kept/test_stale0/history.html" in stale
    assert "Traceback" not in stale
    assert len(stale.splitlines()) < 12
    assert f"history: {tmp_path}/kept/test_own_failure0/history.jsonl" in output
    assert "the mark `linearizable` needs the fixture `history`" in output


MISTAKES = {
    "linearizable": "the mark `linearizable`: missing a required argument: 'model'",
    "linearizable('regster')": "the mark `linearizable`: no model 'regster'; there are ",
    "linearizable(3)": "the mark `linearizable`: the model is 3; a name is right, such as 'register'",
    "linearizable('register', ignor={'x'})": "the mark `linearizable`: got an unexpected keyword argument 'ignor'",
    "message_log(ignore='write')": "the mark `message_log`: ignore is 'write'; a set of names is right",
    "linearizable(Odd())": "TypeError: unsupported operand",
}
"""Mark -> its failure."""


def test_a_mistake_in_a_mark_is_one_line(tmp_path: Path) -> None:
    """Protects from a traceback for what is wrong in one line of a test; an error of the user's own model keeps its."""
    source = """
import pytest
from rocketmq_harness import linearizability

class Odd(linearizability.models.Register):
    def step(self, state, op):
        return None + op.value
""" + "".join(
        f"""
@pytest.mark.{mark}
def test_{number}(history):
    with history.op("write", value=1) as op:
        op.ok()
"""
        for number, mark in enumerate(MISTAKES)
    )
    output, numbers = suite(tmp_path, source)
    assert numbers == {"failed": len(MISTAKES)}, output
    for number, said in enumerate(MISTAKES.values()):
        report = re.split(rf"^__+ test_{number} __+$", output, flags=re.MULTILINE)[1].split("\n____")[0]
        assert said in report, report
        assert (len(report.strip().splitlines()) < 5) == ("operand" not in said), report


def test_nothing_is_loaded_where_nothing_is_judged(tmp_path: Path) -> None:
    """Protects every other test-suite of a machine: pytest loads the plug-in in all of them."""
    source = """
import sys

def test_of_another_project():
    assert not {"numpy", "rocketmq_harness.recording", "harness", "checkers", "results"} & set(sys.modules)

def test_that_records(history):
    with history.op("write", value=1) as op:
        op.ok()
    assert not {"numpy", "harness", "checkers", "results"} & set(sys.modules)
"""
    output, numbers = suite(tmp_path, source)
    assert numbers == {"passed": 2}, output


def test_the_wheel_registers_the_plug_in() -> None:
    """Protects the entry point. Its name is that of the module, so that `-p` does not load it twice."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert points == {PLUGIN: PLUGIN}
    assert pytest_plugin.__name__ == PLUGIN


def test_the_marks_are_explained(tmp_path: Path) -> None:
    """Protects `--strict-markers`, and `pytest --markers` as the help of the plug-in."""
    output, _ = suite(tmp_path, "", "--markers")
    for name, line in pytest_plugin.MARKS.items():
        assert f"@pytest.mark.{line}" in output
        assert line.startswith(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "numbers", "shown"),
    [
        (None, {"passed": 3}, []),
        ("STALE", {"passed": 1, "failed": 2}, ["not linearizable as register: ", "<- cannot be placed"]),
        ("LOSES", {"passed": 2, "failed": 1}, ["not valid as log: ", "- lost: "]),
    ],
)
def test_the_example_project(planted: str | None, numbers: dict[str, int], shown: list[str], tmp_path: Path) -> None:
    """Protects the example that users copy: it passes, and each error that its page plants is found."""
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {planted: "1"} if planted else {}
    output, found = suite(folder, "", **environment)
    assert found == numbers, output
    for text in shown:
        assert text in output
    kept = [name for name in histories(folder) if name.endswith(".jsonl")]
    assert len(kept) == numbers.get("failed", 0)


@pytest.mark.cluster
def test_the_example_project_on_a_cluster(tmp_path: Path) -> None:
    """Protects `rocketmq_cluster` on real servers: addresses that answer, and brokers that are killed and come back."""
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    output, found = suite(folder, "", "-m", "cluster")
    assert found == {"passed": 1}, output


CONFTEST = """
from contextlib import contextmanager
import pytest

class Cluster:
    log = []

    @contextmanager
    def repeated(self, name, recorder=None, **options):
        self.log.append((name, options, recorder is not None))
        yield
        self.log.append("over")
        if name == "nothing":
            raise RuntimeError("it had no effect")

@pytest.fixture(scope="session")
def rocketmq_cluster():
    yield Cluster()
"""

STRUCK = """
import pytest

@pytest.mark.nemesis("kill", target="broker", for_s=5)
@pytest.mark.nemesis("cut")
def test_struck(rocketmq_cluster, history):
    assert rocketmq_cluster.log == [("cut", {}, True), ("kill", {"target": "broker", "for_s": 5}, True)]

def test_not_struck(rocketmq_cluster):
    assert rocketmq_cluster.log[2:] == ["over", "over"]

@pytest.mark.nemesis("nothing")
def test_no_effect(rocketmq_cluster):
    pass

@pytest.mark.nemesis("kill")
def test_no_cluster():
    pass
"""


def test_faults_strike_during_the_test_alone(tmp_path: Path) -> None:
    """Protects the mark `nemesis`: each strikes in its own test, one without an effect fails it, and so does a mark
    without a cluster.
    """
    (tmp_path / "conftest.py").write_text(CONFTEST)
    output, numbers = suite(tmp_path, STRUCK)
    assert numbers == {"passed": 2, "failed": 2}, output
    assert "RuntimeError: it had no effect" in output
    assert "the mark `nemesis` needs the fixture `rocketmq_cluster`" in output
