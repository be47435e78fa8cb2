# SPDX-License-Identifier: Apache-2.0
"""Commands that only look something up: the modules that they load, and the rows that they keep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from harness.cli import main

ROOT = Path(__file__).parents[2]

HEAVY = ("numpy", "docker", "paramiko", "pyarrow", "cryptography", "jinja2", "flask", "numba")
JUDGES = ("checkers.linearizability", "checkers.messages.log", "checkers.base.legality", "harness.check.judging")

LOADED = """
import sys
from harness.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert ended.code in (None, 0, int(sys.argv[1] == "check")), ended.code
print(*sys.modules, file=sys.stderr)
"""


def loaded(cache: Path, *argv: str) -> tuple[str, set[str]]:
    """The output of a command, and the modules that it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *argv],
        capture_output=True,
        text=True,
        check=True,
        # (Another engine than the usual one is reached through Docker's SDK.)
        env={**{k: v for k, v in os.environ.items() if k != "DOCKER_HOST"}, "HARNESS_CACHE": str(cache)},
    )
    return done.stdout, set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "argv", [["--help"], ["list"], ["run", "--dry-run"], ["run", "--help"], ["list", "docker"]], ids=" ".join
)
def test_a_command_that_judges_nothing_loads_no_judges(argv: list[str], tmp_path: Path) -> None:
    """numpy, the judges and Docker's SDK took two seconds of processor time before `harness list` printed a line."""
    _, modules = loaded(tmp_path, *argv)
    assert modules.isdisjoint(HEAVY + JUDGES), sorted(modules.intersection(HEAVY + JUDGES))


@pytest.mark.parametrize(
    ("model", "ops", "verdict"),
    [
        ("register", [("write", 1), ("write", 1)], "valid"),
        ("register", [("write", 1), ("write", 2), ("read", 2)], "valid"),
        ("register", [("write", 1), ("write", 2), ("read", 1)], "invalid"),
        ("cas-register", [("write", 1), ("cas", [1, 2]), ("cas", [2, 3]), ("read", 3)], "valid"),
        ("cas-register", [("write", 1), ("cas", [1, 2]), ("read", 1)], "invalid"),
        ("kv", [("put", '"a"'), ("put", '"aa"'), ("get", '"aa"')], "valid"),
        ("kv", [("put", '"a"'), ("put", '"aa"'), ("get", '"a"')], "invalid"),
    ],
)
def test_a_check_of_a_foreign_history_loads_no_plug_ins(
    model: str, ops: list[tuple[str, object]], verdict: str, tmp_path: Path
) -> None:
    """Plans, plug-ins and findings took as long to load as numpy, for a history that decides within 3 ms."""
    history = tmp_path / "h.jsonl"
    event = '{{"process": 0, "type": "{}", "f": "{}", "value": {}}}\n'
    history.write_text("".join(event.format(type_, f, value) for f, value in ops for type_ in ("invoke", "ok")))
    output, modules = loaded(tmp_path, "check", str(history), "--model", model)
    assert f"  {verdict}  " in output
    light = {"numpy", "logging", "multiprocessing", "hashlib", "tomllib", "checkers.base.legality"}
    assert modules.isdisjoint(light), sorted(modules & light)
    runs = {
        "harness.plan.plan",
        "harness.parts.registry",
        "harness.findings.known",
        "importlib.metadata",
        "pyarrow",
        "numba",
    }
    assert modules.isdisjoint(runs), sorted(modules & runs)


def test_the_help_of_the_group_is_that_of_the_commands() -> None:
    """The group knows the first sentences by heart, and loads no command to print them."""
    for name, (_, text) in main._COMMANDS.items():
        first = " ".join(str(main.command(name).help).split("\n\n")[0].split())
        assert first == text or first.startswith(text.removesuffix(".") + ". "), name
        assert main.cli.get_command(click.Context(main.cli), name) is main.command(name)
    with pytest.raises(click.UsageError, match=r"No such command 'chek'\."):
        main.cli.resolve_command(click.Context(main.cli), ["chek"])


def nemesis(folder: Path, summary: str) -> None:
    (folder / "own_module.py").write_text(
        f"from nemesis.process import HammerTime\nclass Own(HammerTime):\n    name, summary = 'zz-own', {summary!r}\n"
    )


def test_the_list_remembers_nothing_that_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows come from the cache, without any plug-in but the backends, until a module changes."""
    about = tmp_path / "own-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[harness.nemeses]\nzz-own = own_module:Own\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    nemesis(tmp_path, "one")
    first, modules = loaded(tmp_path / "cache", "list", "nemeses")
    assert "zz-own" in first
    assert "own_module" in modules
    again, modules = loaded(tmp_path / "cache", "list", "nemeses")
    assert again == first
    assert modules.isdisjoint(("own_module", "nemesis.process", "workloads.log"))
    nemesis(tmp_path, "another")  # of another length: Python compares the size and the second of a source
    changed, _ = loaded(tmp_path / "cache", "list", "nemeses")
    assert changed.splitlines() == [
        line[: -len("one")] + "another" if "zz-own" in line else line for line in first.splitlines()
    ]
    (tmp_path / "cache" / "listing.json").write_text('{"key": 5')
    assert loaded(tmp_path / "cache", "list", "nemeses")[0] == changed
