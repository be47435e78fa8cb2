# SPDX-License-Identifier: Apache-2.0
"""Atomic file writes: a file is written under another name, synced, and renamed.

A reader sees the old file or the new one, never a part of it; this also holds if a run is killed during the write. The
folder is synced too, because a power loss discards a rename that is only in the page cache.

Temporary files have unpredictable names and are always created new, so nothing is written through a link that another
user has placed there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from results.errors import StoreError, cannot_write


@contextmanager
def replacing(path: Path, what: str) -> Iterator[IO[bytes]]:
    """Opens a temporary file for writing. It replaces `path` unless the block raises an exception; then it is removed.

    An OSError inside becomes a StoreError that names `path` and `what` ("the verdict").
    """
    draft = _draft(path)
    made = False
    try:
        _insist_on_place(path)
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        made = True
        with os.fdopen(fd, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
    except BaseException as problem:
        if made:
            with suppress(OSError):
                draft.unlink()
        if isinstance(problem, OSError):
            raise cannot_write(path, what, problem) from None
        raise


def _draft(path: Path) -> Path:
    """A file beside `path`: a rename does not leave its file system. Raises StoreError if `path` names no file."""
    if "\0" in str(path) or not path.name:
        raise StoreError(f"{path}: it cannot be the name of a file")
    return path.with_name(f".{os.urandom(8).hex()}.tmp")


def _insist_on_place(path: Path) -> None:
    """Rejects a device or a pipe: a rename would replace it by a file, for root even `/dev/null`."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EEXIST, "it is a device or a pipe; a file cannot replace it")


def write_text(path: Path, text: str, what: str) -> None:
    """Writes `text` to `path` in UTF-8. Lone surrogates, which UTF-8 cannot hold, are written as `\\udc80`."""
    with replacing(path, what) as draft:
        draft.write(text.encode("utf-8", errors="backslashreplace"))


def append_text(path: Path, text: str, what: str) -> None:
    """Appends text to a file that several processes extend: whole, behind a whole line, and on the disk."""
    try:
        with locked(path), path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                text = text if file.read(1) == b"\n" else f"\n{text}"
            file.write(text.encode("utf-8", errors="backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise cannot_write(path, what, problem) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file that several processes change; others wait. The kernel frees it when its holder dies.
    Raises OSError if the lock's own file, beside `path`, cannot be made.
    """
    with path.with_name(f".{path.name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def created(path: Path, what: str) -> IO[str]:
    """Opens a user's output file for writing in place, also a device, or a pipe with a reader.

    Raises StoreError, also for a pipe without a reader; writing to it raises OSError.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        os.set_blocking(fd, True)
        return os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace")
    except ValueError:
        raise StoreError(f"{path}: {what} cannot be written: no path can hold a NUL") from None
    except OSError as problem:
        raise cannot_write(path, what, problem) from None


def link(path: Path, target: str) -> None:
    """Makes `path` a symbolic link to `target`, in one step also if it already is one."""
    draft = _draft(path)
    made = False
    try:
        draft.symlink_to(target)
        made = True
        os.replace(draft, path)
    except OSError as problem:
        if made:
            with suppress(OSError):
                draft.unlink()
        raise cannot_write(path, "the link", problem) from None


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
