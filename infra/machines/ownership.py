# SPDX-License-Identifier: Apache-2.0
"""The owner of objects on this machine: a process, named so that no later process can be confused with it.

A pid alone is reused, and has no meaning after a reboot. An owner is therefore three numbers: pid, start time in clock
ticks since boot (field 22 of `/proc/PID/stat`, proc(5)), and the kernel's boot id. As text they fit into a label.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_DEAD: Final = ("Z", "X", "x")
"""States of a process that has ended but was not reaped yet."""


@dataclass(frozen=True)
class Owner:
    """A process of this machine. `str()` and `parse` are each other's inverse: `4711.982345.<boot id>`."""

    pid: int
    started: int
    boot: str

    def __str__(self) -> str:
        return f"{self.pid}.{self.started}.{self.boot}"

    @classmethod
    def parse(cls, text: str) -> Owner:
        """The owner that a label names. Raises ValueError for an invalid text."""
        parts = text.strip().split(".")
        if len(parts) != 3 or not parts[2]:
            raise ValueError(f"{text!r} is not an owner: expected PID.START.BOOT-ID")
        return cls(int(parts[0]), int(parts[1]), parts[2])

    @classmethod
    def of(cls, pid: int) -> Owner | None:
        """The running process with this number, or None."""
        started = _started(pid)
        return None if started is None else cls(pid, started, _boot_id())


def current() -> Owner:
    """This process."""
    me = Owner.of(os.getpid())
    assert me is not None, "a process that runs is seen in /proc"
    return me


def is_alive(owner: Owner) -> bool:
    """True if exactly this process still runs; a zombie, a reused pid and an earlier boot do not count."""
    return Owner.of(owner.pid) == owner


def text_is_alive(text: str) -> bool:
    """`is_alive` of a label that may be damaged: a label without a valid owner has no living one."""
    try:
        return is_alive(Owner.parse(text))
    except ValueError:
        return False


def _started(pid: int) -> int | None:
    """Start time of a running process. The command's name (field 2) may hold anything: cut at the last `)`."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in _DEAD else int(fields[19])


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()


def slug(run_id: str) -> str:
    """The run id as a part of names (of containers, networks, folders): readable, and unique although cut."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", run_id).strip("-.")[:60]
    return f"{readable}-{digest(run_id)[:6]}"


def digest(run_id: str) -> str:
    """Hex digits that stand for the run id."""
    return hashlib.sha256(run_id.encode()).hexdigest()
