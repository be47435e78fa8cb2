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
    if jit.ENSURED or not jit.enabled():
        return work(budget)
    for allowed in (_LOADING_S, _COMPILING_S):
        # (To find the cache takes longer than a small history takes to decide. So that comes behind the first try.)
        if allowed == _COMPILING_S and _in_cache():
            break
        steps = int((allowed - _Spent.seconds) * _STEPS_A_SECOND)
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


def _in_cache() -> bool:
    """True if the searches need not be compiled."""
    jit.prepare_cache()
    return any(Path(os.environ.get("NUMBA_CACHE_DIR", "")).glob("ready-search-*"))
