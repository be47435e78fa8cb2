# SPDX-License-Identifier: Apache-2.0
"""Packages of others: what a broken plug-in may stop, what it may replace, and what it may make of an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.boundary import guarded
from harness.cli.main import cli
from harness.cli.run import run
from harness.parts import registry
from harness.parts.run_options import FLAGS
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan, ServerPlan
from infra.systems.api import TOPOLOGIES

ROOT = Path(__file__).parents[2]

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package on the path: its name, its module, and its entry points as `KIND.NAME = OBJECT`."""
    registry._leave_out.cache_clear()

    def package(name: str, source: str, **points: str) -> None:
        folder = tmp_path / name
        about = folder / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (folder / f"{name}_module.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = []
        for point, where in points.items():
            kind, _, plugin = point.partition("__")
            lines += [f"[harness.{kind}]", f"{plugin.replace('_', '-')} = {where}"]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
        monkeypatch.delitem(sys.modules, f"{name}_module", raising=False)
        monkeypatch.syspath_prepend(str(folder))

    return package


def harness(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = guarded(lambda: cli.main(list(argv), prog_name="harness", standalone_mode=False))
    output = capsys.readouterr()
    return code, output.out, output.err


BROKEN = {
    "raises": 'raise RuntimeError("boom\\nboom")',
    "no-such-module": "import no_such_module",
    "exits": "import sys; sys.exit(0)",
    "no-class": "N = 5",
    "odd-options": "class N:\n    name = summary = 'x'\n    Options = 7",
    "nothing": "",
}


@pytest.mark.parametrize("kind", list(BROKEN))
@pytest.mark.parametrize(
    "argv",
    [
        ["list"],
        ["list", "nemeses"],
        ["run", "--dry-run", "--seed", "1", "--cluster", "docker"],
        ["run", "--dry-run", "--frobnicate"],
        ["run", "--help"],
        ["nightly", "MATRIX", "--dry-run"],
    ],
    ids=" ".join,
)
@pytest.mark.slow
def test_a_broken_plug_in_does_not_stop_what_does_not_name_it(
    kind: str, argv: list[str], install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands go on without it. Those that look at all plug-ins say one line, with the package."""
    (tmp_path / "m.toml").write_text(
        '[[cells]]\nworkload = ["log"]\ntopology = ["master-slave"]\nversion = ["5.5.0"]\n'
    )
    words = [str(tmp_path / "m.toml") if word == "MATRIX" else word for word in argv]
    before = harness(capsys, *words)
    install("broken", BROKEN[kind], nemeses__zz_broken="broken_module:N", workloads__zz_too="broken_module:N")
    code, out, err = harness(capsys, *words)
    assert (code, out) == (before[0], before[1])
    assert err.removesuffix(before[2]).count("\n") <= 2
    if argv[0] in ("list", "nightly"):
        assert "harness: left out: the nemesis 'zz-broken' of the package broken" in err


@pytest.mark.parametrize("kind", list(BROKEN))
@pytest.mark.parametrize("argv", [["run", "--nemesis", "zz-broken"], ["list", "zz-broken"]], ids=" ".join)
def test_a_broken_plug_in_is_named_by_what_needs_it(
    kind: str, argv: list[str], install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """64, one line, the package, and why. A plug-in that ends the process made `harness run` end with 0: valid."""
    install("broken", BROKEN[kind], nemeses__zz_broken="broken_module:N")
    code, out, err = harness(capsys, *argv)
    assert (code, out) == (64, "")
    assert err.startswith("harness: the nemesis 'zz-broken' of the package broken ")
    assert err.count("\n") == 1


def test_two_packages_of_one_name_are_refused(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """None of them silently takes the place of the other, nor of a plug-in of the harness."""
    source = "from nemesis.process import HammerTime\nclass N(HammerTime):\n    name = 'zz-own'"
    install("first", source, nemeses__hammer_time="first_module:N", nemeses__zz_own="first_module:N")
    code, _, err = harness(capsys, "run", "--dry-run", "--nemesis", "hammer-time")
    said = "several packages register the nemesis 'hammer-time': first, rocketmq-harness; remove all but one"
    assert (code, err) == (64, f"harness: {said}\n")
    code, out, err = harness(capsys, "list", "nemeses")
    assert (code, err) == (0, f"harness: left out: {said}\n")
    assert "zz-own" in out


CLASH = """
from dataclasses import dataclass
from infra.options import option
from {module} import {base}

@dataclass(frozen=True)
class Options:
    {option}: int = option(3, "One of its own.")

class Own({base}):
    name = "zz-clash"
    Options = Options
"""
OWNERS = {
    "workloads": ("workloads.log", "LogWorkload"),
    "clients": ("workloads.clients", "Remoting"),
    "topologies": ("infra.systems.rocketmq.topologies.controller", "ControllerTopology"),
    "clusters": ("infra.machines.backends.docker", "DockerBackend"),
    "nemeses": ("nemesis.process", "HammerTime"),
}


@pytest.mark.parametrize(
    ("kind", "option", "clashes"),
    [
        ("workloads", "seed", True),
        ("workloads", "store", True),
        ("workloads", "strike", True),
        ("workloads", "own_thing", False),
        ("clients", "rate", True),
        ("topologies", "jars", True),
        ("topologies", "on", True),
        ("clusters", "backend", True),
        ("clusters", "json", True),
        ("nemeses", "every", True),
        ("nemeses", "rate", False),
    ],
)
def test_an_option_takes_no_name_of_the_harness(kind: str, option: str, clashes: bool, install: Install) -> None:
    """`--seed 5` went to a workload with an option `seed`, and the plan had another seed."""
    module, base = OWNERS[kind]
    install("clash", CLASH.format(module=module, base=base, option=option), **{f"{kind}__zz_clash": "clash_module:Own"})
    group = f"harness.{kind}"
    if not clashes:
        assert registry.find(group, "zz-clash").cls.name == "zz-clash"
        return
    with pytest.raises(registry.PluginError, match=rf"of the package clash has an option '{option}', .* rename it"):
        registry.find(group, "zz-clash")


def test_the_names_of_the_harness_are_complete() -> None:
    """Every option of `harness run`, and every key that a plan has for itself, is reserved."""
    flags = {option.removeprefix("--") for param in run.params for option in param.opts if option.startswith("--")}
    assert flags | {"help"} == FLAGS
    plan = Plan(
        rate=1.0,
        client="c",
        cluster=ClusterPlan("docker", 3),
        server=ServerPlan("t", "p", "v", "j", mends=("5",)),
        nemeses=(NemesisPlan("x"),),
    ).to_dict()
    assert {*plan, "strike"} == set(registry.PLAN_KEYS)
    assert {*plan["server"], "on"} == set(registry.FAMILY[TOPOLOGIES].keys)
    assert set(plan["cluster"]) == set(registry.FAMILY[registry.CLUSTERS].keys)


ENDS = """
import sys
from nemesis.process import HammerTime

class N(HammerTime):
    name = "zz-ends"
    summary = "ends the process"
    {where}
"""


@pytest.mark.parametrize(
    "where",
    [
        "def __init__(self, *given): sys.exit(0)",
        "def roles(self): sys.exit(0)",
        "def versions(self): sys.exit(0)",
        "def kinds_needed(self): sys.exit(0)",
    ],
)
def test_no_plug_in_ends_a_run_as_valid(where: str, install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """Wherever the harness calls it: exit code 3, and the line names its file."""
    install("ends", ENDS.format(where=where), nemeses__zz_ends="ends_module:N")
    code, out, err = harness(capsys, "run", "--nemesis", "zz-ends", "--cluster", "docker")
    assert (code, out) == (3, "")
    assert "ends_module.py:8 ended the process (sys.exit); the command came to no verdict" in err


def test_a_run_without_a_verdict_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mechanism itself: a `harness run` that returns without having said a verdict ends with 3."""
    monkeypatch.setattr(run, "callback", lambda **given: None)
    code, _, err = harness(capsys, "run", "--cluster", "docker")
    assert code == 3
    assert "the run came to no verdict" in err


def test_the_process_itself_ends_so() -> None:
    """As a user sees it: the exit code of the process."""
    script = (
        "import sys; from harness.cli import main; main.command('run').callback = lambda **given: sys.exit(0); "
        "main.main(['run'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    assert done.returncode == 3
