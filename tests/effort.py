# SPDX-License-Identifier: Apache-2.0
"""The effort of the tests that search: `HARNESS_EFFORT`, one of `fast` (`make test-fast`), `ci` (`make test`), `night`.

A test that draws its cases draws `effort(count)` of them. The mutants of the kernel and of the judges must die at the
effort of CI: `tests/checkers/test_kernel_mutants.py`, `tests/fuzz/judge_mutants.py`.
"""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Final

_SHARES: Final = {"fast": Fraction(1, 8), "ci": Fraction(1, 2), "night": Fraction(4)}
LEVEL: Final = os.environ.get("HARNESS_EFFORT", "ci")
if LEVEL not in _SHARES:
    raise ValueError(f"HARNESS_EFFORT={LEVEL!r}; {', '.join(_SHARES)} are right")


def effort(count: int, least: int = 1) -> int:
    """Returns the share of `count` cases that this level tries, and at least `least`."""
    return max(least, int(count * _SHARES[LEVEL]))
