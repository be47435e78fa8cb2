# SPDX-License-Identifier: Apache-2.0
"""Waits for an effect without a fixed sleep."""

from __future__ import annotations

import time
from collections.abc import Callable

_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5


def eventually(done: Callable[[], bool], patience_s: float) -> bool:
    """Calls `done` until it is true or `patience_s` seconds have passed; at least once, with growing pauses."""
    deadline = time.monotonic() + patience_s
    pause = _PAUSE_S
    while not done():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True
