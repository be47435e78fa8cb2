# SPDX-License-Identifier: Apache-2.0
"""The `harness` command in the process of a test: its exit code, and its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.main import cli, guarded


def harness(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, str, str]:
    """Its exit code, its standard output and its standard error."""
    code = guarded(lambda: cli.main([str(a) for a in argv], prog_name="harness", standalone_mode=False))
    output = capsys.readouterr()
    return code, output.out, output.err


def harness_lines(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, list[str], str]:
    """The same with the standard output in lines."""
    code, out, err = harness(capsys, *argv)
    return code, out.splitlines(), err


def quiet_harness(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, list[str]]:
    """The same of a command that may write nothing to its standard error."""
    code, out, err = harness_lines(capsys, *argv)
    assert err == ""
    return code, out
