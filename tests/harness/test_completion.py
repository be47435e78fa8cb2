# SPDX-License-Identifier: Apache-2.0
"""The help of `harness run` in groups, and the completion of commands, options and values in a shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.boundary import USAGE, guarded
from harness.cli import main
from harness.cli.completion import VARIABLE
from harness.parts.run_options import OPTIONS

ROOT = Path(__file__).parents[2]


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    """The words that bash offers at the end of a line."""
    words = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv(VARIABLE, "bash_complete")
    with pytest.raises(SystemExit) as ended:
        main.main([])
    assert ended.value.code == 0
    return [found.partition(",")[2] for found in capsys.readouterr().out.splitlines() if found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("harness che", ["check"]),
        ("harness run --workl", ["--workload"]),
        ("harness run --nemesis hammer", ["hammer-time"]),
        ("harness run --nemesis hammer-time,bri", ["hammer-time,bridge"]),
        ("harness run --workload register --read-m", ["--read-mode"]),
        ("harness run --workload register --read-mode u", ["unsafe"]),
        ("harness run --version 5.5", ["5.5.0"]),
        ("harness run --mend al", ["all"]),
        ("harness run --cluster lo", ["local"]),
        ("harness run --fail-on n", ["new"]),
        ("harness completion f", ["fish"]),
        ("harness run --nemesis no-such-f", []),
    ],
)
def test_a_shell_completes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, expected: list[str]
) -> None:
    """Commands, options, and values: names of plug-ins behind a comma too, and the options of the chosen plug-ins."""
    assert completed(monkeypatch, capsys, line) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_its_shell(shell: str) -> None:
    """A shell that is installed here accepts its script; each script calls back by the variable that we answer."""
    printed = CliRunner().invoke(main.cli, ["completion", shell], prog_name="harness")
    assert printed.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in printed.stdout
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n", "-c" if shell != "zsh" else "-fc", printed.stdout], check=True)


def test_bash_completes_by_the_script(tmp_path: Path) -> None:
    """The function that the script defines fills COMPREPLY, from the command of this checkout."""
    (tmp_path / "harness").write_text(f'#!/bin/sh\nexec {sys.executable} -m harness "$@"\n')
    (tmp_path / "harness").chmod(0o755)
    typed = """
        eval "$(harness completion bash)"
        COMP_WORDS=(harness run --workload reg) COMP_CWORD=3
        _harness_completion harness reg --workload
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", typed],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.split() == ["register"]


def test_the_help_of_a_run_is_in_groups() -> None:
    """Each option once; those of a chosen plug-in under its name."""
    words = ["run", "--workload", "register", "--nemesis", "packet-delay", "--help"]
    text = CliRunner().invoke(main.cli, words, prog_name="harness").stdout
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings[:6] == ["The run:", "Faults:", "Servers:", "Machines:", "Results:", "Help:"]
    assert "Workload register:" in headings
    assert "Nemesis packet-delay:" in headings
    assert text.index("Workload register:") < text.index("--read-mode") < text.index("Nemesis packet-delay:")
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
    assert sorted(listed) == sorted(set(listed))
    assert {option.opts[0] for option in OPTIONS} <= set(listed)


@pytest.mark.parametrize("words", [[], ["store"]])
def test_a_missing_command_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It was the whole help in one line, with an escape for each of its line ends."""
    assert guarded(lambda: main.cli.main(words, prog_name="harness", standalone_mode=False)) == USAGE
    assert capsys.readouterr().err == f"harness: Missing command.  ({' '.join(['harness', *words])} --help)\n"
