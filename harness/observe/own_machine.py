# SPDX-License-Identifier: Apache-2.0
"""Measures the machine of the control program: the delay of event-loop timers, and figures of the kernel."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from infra.machines.pressure import own_line

TICK_S: Final = 0.2
TICKS: Final = 10
"""A line every two seconds, as on the nodes."""


async def watch_own_machine(path: Path) -> None:
    """Appends lines as `infra.machines.pressure` describes them, until cancelled; the last one covers less than two
    seconds, or a loop that was late to the end. The journal reports a full disk.
    """
    now = asyncio.get_running_loop().time
    while True:
        worst, before = 0.0, now()
        try:
            for _ in range(TICKS):
                before = now()
                await asyncio.sleep(TICK_S)
                worst = max(worst, now() - before - TICK_S)
        finally:
            with contextlib.suppress(OSError), path.open("a") as file:
                file.write(own_line(max(worst, now() - before - TICK_S)) + "\n")
