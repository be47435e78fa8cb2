# SPDX-License-Identifier: Apache-2.0
"""Checks by a JVM of the parts that start servers. A passed check is not repeated: each costs 2 s."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from results.cache import cache_dir


def once(name: str, given: Iterable[str], folders: Sequence[Path], check: Callable[[], None]) -> None:
    """Calls `check`, unless it has passed on this machine with the same input.

    name     of the check. given: its input as texts. folders: its input as files, of which count the names, sizes
             and times of change. The JVM counts as well.
    Raises the errors of `check`; a failed check is repeated.
    """
    digest = hashlib.sha256()
    java = shutil.which("java") or ""
    for text in (name, os.path.realpath(java), *given):
        digest.update(f"{len(text)} {text}\n".encode())
    for folder in folders:
        digest.update(f"{folder}\n".encode())
        for path in sorted(path for path in folder.glob("*") if path.exists()):  # a link may lead nowhere
            status = path.stat()
            digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    noted = cache_dir() / "passed" / digest.hexdigest()[:32]
    if noted.exists():
        return
    check()
    noted.parent.mkdir(exist_ok=True)
    noted.touch()
