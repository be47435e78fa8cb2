# SPDX-License-Identifier: Apache-2.0
"""The only place that prints.

The output contains keys of histories, file names, versions and log lines of servers. A control character in them could
change the window title, hide a line, or imitate a line of the harness. So each printed message is one line, whatever it
contains. The reader of the output may end early (`harness check ... | head -1`); this does not end a run and does not
change a verdict.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TextIO

from results.visible import THIN_SPACE, visible

MOST: Final = 20_000
"""Characters of a line: a value may be megabytes."""

_problems: list[OSError] = []


def shown(text: str) -> str:
    """The text as one printable line, at most `MOST` characters of it."""
    cut = text if len(text) <= MOST else f"{text[:MOST]}… ({len(text) - MOST:,} characters more)"
    return visible(cut, keep=THIN_SPACE)


def say(line: str = "", *, err: bool = False) -> None:
    """Prints one line; characters that would break it are written as escapes. Never raises: see `lost`."""
    put(f"{shown(line)}\n", sys.stderr if err else sys.stdout)


def say_all(lines: Iterable[str]) -> None:
    """Prints several lines."""
    for line in lines:
        say(line)


def put(text: str, stream: TextIO | None) -> None:
    """Writes text that may move the cursor: the caller has passed the data in it through `shown`. Never raises."""
    if stream is None:  # closed by the parent process
        return
    try:
        code = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(code, "backslashreplace").decode(code))
        stream.flush()
    except OSError as problem:
        _silence(stream)
        if problem.errno not in (errno.EPIPE, errno.EIO):  # the reader is gone: a pipe, a terminal that was closed
            _problems.append(problem)


def lost() -> OSError | None:
    """The error that lost output since the last call (a full disk, say), or None. A reader that left is no error."""
    first = _problems[0] if _problems else None
    _problems.clear()
    return first


def flush() -> None:
    """Flushes text that other code printed; a failure counts as lost output."""
    for stream in (sys.stdout, sys.stderr):
        put("", stream)


def unread() -> bool:
    """True if standard output is a pipe whose reader has gone away."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no file at all
        return False


def _silence(stream: TextIO) -> None:
    """Discards further output: buffered text would fail again when Python ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
