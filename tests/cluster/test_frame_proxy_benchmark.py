# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the proxy on its smallest input: it needs clusters, one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]


def test_it_prints_its_ratio() -> None:
    """The runs with the proxy and without it have the same verdict; how fast they were is not looked at."""
    small = ["--seeds", "1", "--seconds", "6", "--rate", "100", "--option", "--cluster local --nodes 3"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    argv = [sys.executable, str(ROOT / "benchmarks" / "frame_proxy.py"), *small]
    ended = subprocess.run(argv, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "verdicts differ in 0 of 1" in ended.stdout
