"""Files that are whole or not there: written under another name, synced, renamed.

A reader (or a run that is killed in the middle) sees the old file or the new one, never half of it. The folder is
synced too, since a rename that only the page cache knows is lost with the power.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from results.errors import cannot_write


@contextmanager
def replacing(path: Path, what: str) -> Iterator[Path]:
    """Write to the path given; it takes the place of `path` when the block ends well, and is removed when not.

    An OSError inside becomes a StoreError that names `path` and `what` ("the verdict").
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        _sync(draft)
        os.replace(draft, path)
        sync_folder(path.parent)
    except BaseException as problem:
        with suppress(OSError):
            draft.unlink()
        if isinstance(problem, OSError):
            raise cannot_write(path, what, problem) from None
        raise


def write_text(path: Path, text: str, what: str) -> None:
    """`path` becomes `text` in UTF-8. Lone surrogates, which UTF-8 cannot hold, are written as `\\udc80`."""
    with replacing(path, what) as draft:
        draft.write_bytes(text.encode("utf-8", errors="backslashreplace"))


def link(path: Path, target: str) -> None:
    """`path` becomes a symbolic link to `target`, in one step also where it already is one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with suppress(FileNotFoundError):
            draft.unlink()
        draft.symlink_to(target)
        os.replace(draft, path)
    except OSError as problem:
        with suppress(OSError):
            draft.unlink()
        raise cannot_write(path, "the link", problem) from None


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    _sync(path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
