# SPDX-License-Identifier: Apache-2.0
"""The resident memory of this process (Linux, proc(5))."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def peak_mib() -> int:
    """The peak of resident memory (MiB) since `forget_peak`; -1: unknown."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    return -1


def forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
