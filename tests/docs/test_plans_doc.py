# SPDX-License-Identifier: Apache-2.0
"""The plans and command lines of docs/faults.md and docs/topologies.md are accepted, and the events are all named."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from harness.cli.main import cli, guarded
from harness.nemesis.events import KINDS

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    pytest.param(text, id=f"{page}-{number}")
    for page in ("faults", "topologies")
    for number, text in enumerate(re.findall(r"```toml\n(.+?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL))
    if "[[" in text
]


def dry_run(*argv: str) -> int:
    return guarded(
        lambda: cli.main(["run", "--dry-run", "--cluster", "local", *argv], prog_name="harness", standalone_mode=False)
    )


@pytest.mark.parametrize("text", BLOCKS)
def test_a_plan_is_accepted(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    code, shown = dry_run("--plan", str(plan)), capsys.readouterr()
    assert code == 0, shown.err
    assert set(re.findall(r"^\[\[.+\]\]$", text, re.MULTILINE)) <= set(shown.out.splitlines())


def test_faults_with_options_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = re.findall(
        r'^\$ harness run (--nemesis "pause-slaves.+)$', (DOCS / "faults.md").read_text(), re.MULTILINE
    )
    assert dry_run(*shlex.split(line)) == 0, capsys.readouterr().err
    plan = capsys.readouterr().out
    assert plan.count("[[nemesis]]") == 3
    assert 'pause = "2s"' in plan


def test_every_event_is_in_the_table() -> None:
    section = (DOCS / "faults.md").read_text().partition("## Strikes written out")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == ["after", *KINDS]
