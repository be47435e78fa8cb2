# SPDX-License-Identifier: Apache-2.0
"""Plain Python first, as long as the compiled searches are not loaded and loading them would cost more.

Loading takes half a second, and compiling half a minute. Most small histories of tests need some milliseconds in plain
Python. So a process begins in plain Python, and spends at most a part of these costs there (`_LOADING_S`,
`_COMPILING_S`, over all its histories). What is undecided then is decided by compiled code from the beginning, as if no
try had been made. Verdict and reason are those of compiled code; only `work` and the witness are the try's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from checkers.linearizability.budget import Budget
from checkers.linearizability.compiled import jit

T = TypeVar("T")

_LOADING_S: Final = 0.3
"""Seconds of a process in plain Python, if compiled code is in the cache."""

_COMPILING_S: Final = 3.0
"""The same, if it must be compiled first."""

_STEPS_A_SECOND: Final = 500_000
_STEPS_AN_EVENT: Final = 20
"""A try that could not give each event so many steps is not made."""


class _Spent:
    """Seconds that this process has spent on tries."""

    seconds = 0.0


def plainly(events: int, budget: Budget, work: Callable[[Budget], T], decided: Callable[[T], bool]) -> T:
    """The result of `work`: in plain Python, if that is worth a try and decides; otherwise as usual.

    events  those of the history. budget: of the work; with one that is smaller than that of a try, none is made.
    """
    steps = _steps() if jit.enabled() else 0
    if _STEPS_AN_EVENT * events <= steps <= budget.steps:
        began = time.thread_time()
        try:
            with jit.plain():
                found = work(replace(budget, steps=steps, per_event=0))
        finally:
            _Spent.seconds += time.thread_time() - began
        if decided(found):
            return found
    return work(budget)


def _steps() -> int:
    """Steps of plain Python that still cost less than the compiled searches; 0 if these are loaded."""
    if jit.ENSURED:
        return 0
    cache = Path(os.environ.get("NUMBA_CACHE_DIR", ""))
    allowed = _LOADING_S if any(cache.glob("ready-search-*")) else _COMPILING_S
    return max(0, int((allowed - _Spent.seconds) * _STEPS_A_SECOND))
