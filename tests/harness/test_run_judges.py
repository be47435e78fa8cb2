# SPDX-License-Identifier: Apache-2.0
"""The judges of every run: their order, and those of other packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from fault_stories import Story

from harness.check import run_judges
from harness.check.judging import judge_by
from harness.plan.plan import PlanError
from results.verdict import CheckResult, Verdict

Install = Callable[[str, str], None]

JUDGE = """
from results.verdict import CheckResult, Verdict

class Theirs:
    name = "theirs"

    @staticmethod
    def concerns(run):
        return {concerns}

    def check(self, run):
        return CheckResult(self.name, Verdict.VALID, f"{{len(run.history)}} ops were looked at")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with a judge on the path."""

    def package(point: str, source: str) -> None:
        about = tmp_path / "theirs-1.0.dist-info"
        about.mkdir()
        (tmp_path / "theirs_judge.py").write_text(source)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[harness.judges]\n{point} = theirs_judge:Theirs\n")
        monkeypatch.delitem(sys.modules, "theirs_judge", raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))

    return package


def results() -> dict[str, CheckResult]:
    story = Story()
    story.write(1)
    return {result.checker: result for result in judge_by(story.record(), []).results}


def test_the_judges_of_the_harness_stand_in_their_order() -> None:
    """The order of the results of a verdict, and of the reasons in it."""
    classes = sorted((point.load() for point in run_judges.registered()), key=lambda cls: cls.order)
    expected = "durable-files dead-disks threads terms applying elections state-hashes replica-files"
    assert [cls.name for cls in classes] == expected.split()
    assert all(point.name == point.load().name for point in run_judges.registered())


def test_a_judge_of_another_package_judges_the_runs_that_concern_it(install: Install) -> None:
    install("theirs", JUDGE.format(concerns="len(run.history) == 2"))
    found = results()
    assert found["theirs"].reason == "2 ops were looked at"
    assert list(found)[:2] == ["well-formed", "theirs"]


def test_a_judge_whose_condition_does_not_hold_is_silent(install: Install) -> None:
    install("theirs", JUDGE.format(concerns="False"))
    assert "theirs" not in results()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import no_such_module", "ModuleNotFoundError"),
        (JUDGE.format(concerns="1 / 0"), "ZeroDivisionError"),
        ("Theirs = 5", "AttributeError"),
    ],
)
def test_a_judge_that_fails_leaves_the_run_unknown_and_names_its_package(
    install: Install, source: str, what: str
) -> None:
    """A run that it could not judge must not pass for a valid one."""
    install("theirs", source)
    found = results()["theirs"]
    assert found.verdict == Verdict.UNKNOWN
    assert found.reason.startswith("the judge 'theirs' of the package theirs failed: ")
    assert what in found.reason


def test_two_packages_may_not_register_one_name(install: Install) -> None:
    install("terms", JUDGE.format(concerns="True"))
    with pytest.raises(PlanError, match="several packages register the judge 'terms': rocketmq-harness, theirs"):
        results()


def test_an_installation_without_judges_is_an_error_and_not_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata is older than its sources: no judge of every run would be asked."""
    monkeypatch.setattr(run_judges, "_PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(run_judges, "entry_points", lambda group: [EntryPoint("x", "y:z", group)])
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PlanError, match="registers no judges of every run"):
        run_judges.registered()


def test_a_checkout_is_newer_than_the_metadata_of_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that is added to pyproject.toml judges at once."""
    project = '[project]\nname = "rocketmq-harness"\n[project.entry-points."harness.judges"]\nnew = "a:B"\n'
    (tmp_path / "pyproject.toml").write_text(project)
    monkeypatch.setattr(run_judges, "_PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [point.name for point in run_judges.registered()] == ["new"]
