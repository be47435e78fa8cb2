# SPDX-License-Identifier: Apache-2.0
"""Expected errors: each is one line with the place, the problem, and the right form."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class ExpectedError(Exception):
    """An error that a user can correct. Commands show its text and no traceback."""


class UsageError(ExpectedError):
    """A request that is wrong in itself: the exit code is 64."""


class CacheError(ExpectedError):
    """The cache folder cannot be made."""


class StoreError(ExpectedError):
    """The store, or a file in it, cannot be written (also re-exported by `results.store`)."""


class HistoryError(ExpectedError):
    """A history, or a file beside it, cannot be read (also re-exported by `results.formats`).

    >>> str(HistoryError("etcd_003.log", 117, "process 4 completes a read that it never invoked"))
    'etcd_003.log:117: process 4 completes a read that it never invoked'
    """

    def __init__(self, path: str | Path, line: int | None, what: str) -> None:
        self.path, self.line, self.what = Path(path), line, " ".join(what.split())
        where = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {self.what}")


def cannot_write(path: Path, what: str, problem: OSError) -> StoreError:
    """The StoreError for an error of the operating system, with the free space if the disk is full.

    >>> str(cannot_write(Path("/nowhere/j"), "the journal", OSError(errno.EACCES, "Permission denied")))
    '/nowhere/j: the journal cannot be written: Permission denied'
    """
    reason = problem.strerror or str(problem)
    full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
    return StoreError(f"{path}: {what} cannot be written: {reason}{_free_near(path) if full else ''}")


def _free_near(path: Path) -> str:
    """`" (12 KiB free)"` of the file system that holds `path`, or "" if that is unknown."""
    # Imported here: every command loads this module, and hardly any finds a full disk.
    import shutil

    try:
        return f" ({in_bytes(shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free)} free)"
    except OSError:
        return ""


def with_article(word: str) -> str:
    """The name of an operation or of a model in a sentence.

    >>> with_article("read"), with_article("append"), with_article("unordered-queue")
    ('a read', 'an append', 'an unordered-queue')
    """
    return f"{'an' if word[:1] in tuple('aeiou') else 'a'} {word}"


def in_bytes(count: int) -> str:
    """A number of bytes as readable text: `37 bytes`, `12.0 KiB`, `99.5 MiB`, `1.2 GiB`."""
    if count < 1024:
        return f"{count} bytes"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"
