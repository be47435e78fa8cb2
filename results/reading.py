# SPDX-License-Identifier: Apache-2.0
"""Opens and reads foreign files within limits.

A path may lead to a pipe without a writer, an endless device, a file with a hole of terabytes, or two megabytes of gzip
that unpack to gigabytes. So there is one way to read a file: it must be a regular file, not larger than the limit of
its kind, and is read with a bounded amount of memory. Every problem is an OSError with a plain `strerror`, or, for
`read_json` and `read_toml`, a ValueError. Callers need to handle only these two.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from results.errors import HistoryError, in_bytes

try:
    import resource
except ImportError:  # pragma: no cover - no such limits on this system
    resource = None  # type: ignore[assignment]

SMALL_FILE: Final = 16 << 20
"""The limit, in bytes, of a plan, a verdict, an environment, each read as one value. They have some kilobytes."""

LINE: Final = 64 << 20
"""The limit, in bytes, of a line of a history: a read of a large set may take megabytes."""

LOG_LINE: Final = 1 << 16
"""The number of bytes read of a line of a server's log."""

LOG_FILE: Final = 1 << 30
"""The limit, in bytes, of a server's log. A run fetches the last 256 MiB of each."""

PLAIN_FLOOR: Final = 512 << 20
"""The memory, in bytes, that reading any history may take."""

_PER_BYTE: Final = 8
_PER_PACKED_BYTE: Final = 160
"""Bytes of memory for each byte of a history on the disk; packed: gzip, Parquet. A log run of 245,622 ops takes 5.4 for
each byte of its journal, 32 for each of the journal as gzip, and 112 for each of its sealed history.
"""

_PARTS: Final = 100
"""The largest number of parts of a key in TOML, `a.b.c`."""
_LEAST: Final = 64 << 20


class TwiceNamed(ValueError):
    """An object of JSON that has a name twice: programs disagree on which value counts."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TwiceNamed(f"an object has the field {twice!r} twice; once is right")
    return found


JSON_ONCE: Final = json.JSONDecoder(object_pairs_hook=_once)
"""Decodes JSON of strangers. Raises TwiceNamed, or ValueError for what is no JSON."""


def json_of(data: bytes) -> Any:
    """The value of a text in JSON (`JSON_ONCE`), in any encoding that JSON allows."""
    return JSON_ONCE.decode(data.decode(json.detect_encoding(data), "surrogatepass"))


def opened(path: Path, limit: int | None = None, *, follow: bool = True) -> IO[bytes]:
    """Opens a regular file for reading. `limit`: its largest size in bytes. `follow`: a link in its place is followed.

    Raises OSError for anything else, and never waits for a writer.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags)
    except ValueError:
        raise OSError(errno.EINVAL, "no path can hold a NUL") from None
    except OSError as problem:
        if problem.errno == errno.ELOOP and not follow:
            raise OSError(errno.ELOOP, "a link, and links are not followed") from None
        if problem.errno == errno.ENXIO:  # a socket
            raise OSError(errno.EINVAL, "a socket, not a regular file") from None
        raise
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, f"{_kind(about.st_mode)}, not a regular file")
        if limit is not None and about.st_size > limit:
            text = f"of {in_bytes(about.st_size)}, and at most {in_bytes(limit)} are read"
            raise OSError(errno.EFBIG, text)
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "something else"


def require_regular_file(path: Path) -> None:
    """Raises OSError as `opened` does. For readers of other libraries, which take a path."""
    opened(path).close()


def read_bytes(path: Path, limit: int = SMALL_FILE, *, follow: bool = True) -> bytes:
    """The whole file as it was when it was opened. Raises OSError as `opened` does."""
    with opened(path, limit, follow=follow) as file:
        # (The memory for the requested size is allocated at once. In /proc, a size is 0 and means nothing.)
        return file.read(os.fstat(file.fileno()).st_size or limit)


def read_json(path: Path, limit: int = SMALL_FILE, *, follow: bool = True) -> Any:
    """The JSON value in a file. Raises OSError, and ValueError for anything else."""
    return parse_json(read_bytes(path, limit, follow=follow))


def parse_json(data: bytes) -> Any:
    """A JSON value. Raises ValueError, also if it is nested too deeply for a reader."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def read_toml(path: Path, limit: int = 1 << 20, *, follow: bool = True) -> dict[str, Any]:
    """The tables of a TOML file. Raises OSError, and ValueError for anything else."""
    data = read_bytes(path, limit, follow=follow)
    # The parser's time grows with the square of a key's parts.
    words = re.split(rb"[\n\[\]{}=,]+", data.translate(None, b" \t\r\"'"))
    if any(word.count(b".") > _PARTS for word in words):
        raise ValueError(f"a key of more than {_PARTS} parts")
    # Imported here: a history needs no TOML.
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8"))
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def lines(file: IO[bytes], limit: int = LINE) -> Iterator[bytes]:
    """Yields the lines of a file, newlines included. A line longer than `limit` comes in pieces without a newline."""
    return iter(partial(file.readline, limit), b"")


def log_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a server's log as text, without newlines, each cut after `LOG_LINE` bytes.

    Raises HistoryError if the log cannot be read, or is larger than any that a run fetches.
    """
    try:
        with opened(path, LOG_FILE, follow=False) as file:
            whole = True
            for piece in lines(file, LOG_LINE):
                if whole:
                    yield piece.rstrip(b"\n").decode("utf-8", "replace")
                whole = piece.endswith(b"\n")
    except OSError as problem:
        raise HistoryError(path, None, f"the log cannot be read: {problem.strerror}") from None


def exists(path: Path) -> bool:
    """True if something exists at a path; False also for an impossible path."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def memory_limit(path: Path, requested: int | None, *, packed: bool) -> int:
    """The memory, in bytes, for reading a history: the requested one; else in proportion to its space on the disk
    (holes take none), and never less than `PLAIN_FLOOR`.
    """
    if requested is not None:
        return max(requested, _LEAST)
    try:
        used = os.stat(path).st_blocks * 512
    except (OSError, ValueError):
        used = 0
    return max(PLAIN_FLOOR, used * (_PER_PACKED_BYTE if packed else _PER_BYTE))


@contextmanager
def bounded(path: Path, memory: int) -> Iterator[None]:
    """Limits this process, in its block, to `memory` bytes more than it has, for all libraries together. Raises
    HistoryError for `path` if that is not enough.

    The kernel counts (RLIMIT_DATA: private writable memory, getrlimit(2)): so no reader can bypass the limit, and none
    becomes slower. For a process that does nothing else meanwhile.
    """
    before = _limit_data(memory)
    try:
        yield
    except MemoryError:
        gc.collect()
        text = f"reading it takes more than {in_bytes(memory)} of memory; --memory-mb gives it more"
        raise HistoryError(path, None, text) from None
    finally:
        if before is not None:
            resource.setrlimit(resource.RLIMIT_DATA, before)


def _limit_data(more: int) -> tuple[int, int] | None:
    """Sets the limit; returns the one before, or None if no limit can or need be set."""
    if resource is None:  # pragma: no cover - see above
        return None
    with suppress(OSError, ValueError, StopIteration):
        status = Path("/proc/self/status").read_text()
        has = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
        before = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = has + more
        if before[0] != resource.RLIM_INFINITY and before[0] <= wanted:
            return None
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, before[1]))
        return before
    return None
