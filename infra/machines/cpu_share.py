# SPDX-License-Identifier: Apache-2.0
"""Priority for the processors of this machine: first the control program, then the cluster, then everything else.

Five nodes that share a machine with a compiler or a test suite are slow, and their behaviour is then no finding. So a
cluster created here runs in its own control group with a hundred times the weight of an ordinary process. The control
program, which keeps the time and ends the faults, has an even higher priority. Both are requests. Without root, or with
a kernel that lacks the function, everything works in the same way, and only the measurement (`infra.machines.pressure`)
shows the difference.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

GROUP: Final = "rocketmq-harness"
"""The control group's name, below the root; Docker makes it as the parent of the harness' containers."""

_ROOT: Final = Path("/sys/fs/cgroup")
_TIMES: Final = 100
_FIRST: Final = -20
"""The control program's niceness while servers run. It weighs 87 times as much as an ordinary process (sched(7)), and
runs a small part of the time; next to the cluster's weight, less would not do.
"""


class Priority:
    """The control program's priority: the highest from `take` to `close`. Without the right, it stays unchanged."""

    def __init__(self) -> None:
        self._before: int | None = None
        self._group_before: str | None = None

    def take(self) -> None:
        self._before = os.getpriority(os.PRIO_PROCESS, 0)
        self._group_before = _autogroup()
        _set_niceness(min(_FIRST, self._before))
        _set_autogroup(str(_FIRST))

    def close(self) -> None:
        """Idempotent."""
        if self._before is not None:
            _set_niceness(self._before)
            if self._group_before is not None:
                _set_autogroup(self._group_before)
            self._before = None


def cluster_group(member: str = "") -> Path | None:
    """The folder of the clusters' control group, made and with its weight; None if the machine does not support it.

    member  the name of a group in it, for processes: in version 2 a group has processes or groups, not both.
    """
    try:
        if (_ROOT / "cpu" / "cgroup.procs").exists():  # version 1
            folder = _ROOT / "cpu" / GROUP
            folder.mkdir(exist_ok=True)
            (folder / "cpu.shares").write_text(str(_TIMES * 1024))
        else:
            subtree = _ROOT / "cgroup.subtree_control"
            if "cpu" not in subtree.read_text().split():
                subtree.write_text("+cpu")
            folder = _ROOT / GROUP
            folder.mkdir(exist_ok=True)
            (folder / "cpu.weight").write_text(str(_TIMES * 100))
        (folder / member).mkdir(exist_ok=True)
    except OSError:
        return None
    return folder / member


def remove_group() -> None:
    """Removes the control group if nothing is in it."""
    above = _ROOT / "cpu" / GROUP, _ROOT / GROUP
    for folder in (*(group / "local" for group in above), *above):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _set_niceness(value: int) -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, value)


def _autogroup() -> str | None:
    """The niceness of this session among the others, if the kernel counts sessions and not processes (sched(7))."""
    with contextlib.suppress(OSError, IndexError):
        return Path("/proc/self/autogroup").read_text().split()[-1]  # `/autogroup-147 nice 0`
    return None


def _set_autogroup(niceness: str) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(niceness)
