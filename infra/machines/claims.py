# SPDX-License-Identifier: Apache-2.0
"""A claim on an object in a folder: one process at a time holds it, and the end of the process releases it.

The claim is a lock by flock(2) on a file, so the kernel knows whether the holder is alive. The answer is the same in
every PID namespace and every container that shares the folder. A process number does not have this property.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final, Self

from infra.machines.api import InfraError

_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.02
"""A process that looks (`holder`) has a shared lock for a moment; `take` tries again then."""


class Claim:
    """Held from `take` until `release`, `leave`, or this process' death. A forked child does not hold it too."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        os.register_at_fork(after_in_child=self._close)

    @classmethod
    def take(cls, path: Path) -> Self:
        """Takes the claim. Raises InfraError that names the holder if another process has it."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                if _locked(fd, fcntl.LOCK_EX) and _is_at(fd, path):
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, f"process {os.getpid()}".encode(), 0)
                    return cls(path, fd)
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise InfraError(f"in use by {holder(path) or 'somebody'}")

    def release(self) -> None:
        """Releases the claim, and removes its file. Idempotent."""
        if self._fd >= 0:
            self.path.unlink(missing_ok=True)
            self._close()

    def leave(self) -> int:
        """The lock's file descriptor, for a process that is to hold it from now on (`pass_fds`); close it then."""
        fd, self._fd = self._fd, -1
        return fd

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def holder(path: Path) -> str | None:
    """The holder of the claim (`process 4711`, by its number in its own PID namespace); None if it is free."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if _locked(fd, fcntl.LOCK_SH):
            return None
        return os.pread(fd, 64, 0).decode("ascii", "replace") or "a process"
    finally:
        os.close(fd)


def remove_unheld(path: Path) -> None:
    """Removes the file of a claim that no process has; one that a process has, or is just taking, stays."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        # Under the lock: between a check and the removal a process could take the claim, and a second one after it.
        if _locked(fd, fcntl.LOCK_EX) and _is_at(fd, path):
            path.unlink()
    finally:
        os.close(fd)


def _locked(fd: int, how: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        return True
    return False


def _is_at(fd: int, path: Path) -> bool:
    """True if the file is still the one at the path: its last holder may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
