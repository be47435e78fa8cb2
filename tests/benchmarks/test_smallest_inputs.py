# SPDX-License-Identifier: Apache-2.0
"""Every benchmark still runs, on its smallest input, and finds its own output right. Speed is not looked at."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALLEST = {
    "interpreter": ["--ops", "400", "--concurrency", "20"],
    "journal": ["2000"],
    "linearizability": ["--keys", "5", "--longest", "200"],
    "log_checker": ["--ops", "4000"],
    "batch": ["--histories", "40", "--rounds", "1"],
    "first_verdict": ["40"],
    "recording": ["400"],
    "checker": ["--rounds", "1", "--limit-s", "0.1", "--only", "swaps"],
}
ON_SERVERS = {"applications", "frame_proxy"}
"""Runs on clusters: part of the night (`tests/cluster/test_*_benchmark.py`)."""

pytestmark = pytest.mark.slow


def test_no_benchmark_is_left_out() -> None:
    """A new file or folder in benchmarks/ needs a smallest input here."""
    folder = ROOT / "benchmarks"
    programs = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    programs |= {path.parent.name for path in folder.glob("*/__main__.py")}
    assert programs == SMALLEST.keys() | ON_SERVERS


LONG = [pytest.param("checker.ablation", marks=pytest.mark.nightly)]
"""A minute: the hard histories are what it is about."""


@pytest.mark.parametrize("name", [*SMALLEST, *LONG])
def test_a_benchmark_runs_on_its_smallest_input(name: str) -> None:
    """Each ends with a code other than 0 when a verdict, or what came back from a file, is wrong."""
    argv = [sys.executable, "-m", f"benchmarks.{name}", *SMALLEST.get(name, ["--count", "1"])]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if name == "checker" and shutil.which("go") is None:
        assert ended.returncode == 64
        assert "needs Go" in ended.stderr
        return
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(ended.stdout.splitlines()) >= 2
