# SPDX-License-Identifier: Apache-2.0
"""The removal of old runs from a store.

Only folders that `Store.create` made are removed: `<root>/<name>/<time>/` with a plan in it. No link is followed,
neither to a folder nor in one. A run that is under way holds a lock on its folder (`RunDir.held`), and stays.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from results.store import RunDir, Store, real_folders

_HALF: Final = re.compile(r"\.\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-\d+)?\.removed")
"""The name of a folder while its files are removed. An interrupted removal leaves it, and the next one finishes it."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Pruned:
    """A run that is older than the limit, and its size in bytes. kept: the reason why it stays; None: it is removed.
    failed: True if that is an error.
    """

    path: Path
    size: int
    kept: str | None = None
    failed: bool = False


def prune(store: Store, before: datetime, *, dry_run: bool = False) -> Iterator[Pruned]:
    """Removes the runs that began before a time (local, as in the names of runs), and yields each, the oldest first.
    With `dry_run` it removes nothing.
    """
    for run in reversed(store.runs()):
        if run.time < before:
            yield _prune(run.path, before, dry_run)
    if not dry_run:
        _tidy(store.root)


def _prune(path: Path, before: datetime, dry_run: bool) -> Pruned:
    size = size_of(path)
    run = RunDir(path)
    if run.plan.is_symlink() or not run.plan.is_file():
        return Pruned(path, size, "it has no plan.toml, so it may be no run")
    if not run.verdict.exists() and _changed(path) >= before.timestamp():
        return Pruned(path, size, "it has no verdict, and its files changed since")
    kind = folder = -1
    try:
        kind = os.open(path.parent, _FOLDER)
        folder = os.open(path.name, _FOLDER, dir_fd=kind)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not dry_run:
            half = f".{path.name}.removed"
            os.rename(path.name, half, src_dir_fd=kind, dst_dir_fd=kind)
            shutil.rmtree(half, dir_fd=kind)
    except BlockingIOError:
        return Pruned(path, size, "it is under way")
    except OSError as problem:
        return Pruned(path, size, f"it could not be removed: {problem.strerror or problem}", failed=True)
    finally:
        for fd in (folder, kind):
            if fd >= 0:
                os.close(fd)
    return Pruned(path, size)


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder. Links count as links."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(here, name)).st_size
    return total


def _changed(folder: Path) -> float:
    """The last change of a file directly in the folder (s since 1970)."""
    times = [0.0]
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                times.append(entry.stat(follow_symlinks=False).st_mtime)
    return max(times)


def _tidy(root: Path) -> None:
    """Removes what removed runs left: half removed folders, links `latest` to them, and empty folders."""
    for kind in real_folders(root):
        for half in real_folders(kind):
            if _HALF.fullmatch(half.name):
                with suppress(OSError):
                    shutil.rmtree(half)
        _unlink_dead(kind / "latest")
        with suppress(OSError):  # it has runs, or other files
            kind.rmdir()
    _unlink_dead(root / "latest")


def _unlink_dead(link: Path) -> None:
    with suppress(OSError):
        if link.is_symlink() and not link.exists():
            link.unlink()
