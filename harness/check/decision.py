# SPDX-License-Identifier: Apache-2.0
"""The time of a verdict itself, and the reason of a verdict without anything to decide."""

from __future__ import annotations

import time
from typing import Final

from checkers.linearizability.compiled.jit import setup_seconds

NOTHING_THERE: Final = "nothing checked: no client did anything in this history"


class DecisionTime:
    """Milliseconds since its creation, without the time that this process spent on loading and compiling."""

    def __init__(self) -> None:
        self._began, self._setup = time.perf_counter(), setup_seconds()

    @property
    def ms(self) -> float:
        return (time.perf_counter() - self._began - (setup_seconds() - self._setup)) * 1000
