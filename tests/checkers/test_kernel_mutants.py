# SPDX-License-Identifier: Apache-2.0
"""The default engine against weakened selves: each reduction of the compiled kernel is needed, and tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mutants_of_kernel import MUTANTS


def test_every_mutant_of_the_kernel_is_found_out() -> None:
    """In a process of its own, without Numba; the kernel as it is must be right on the same histories."""
    program = Path(__file__).parent / "kernel_mutants.py"
    told = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert len(lines) == len(MUTANTS) >= 10
    assert [line for line in lines if not line.endswith(": found out")] == []
