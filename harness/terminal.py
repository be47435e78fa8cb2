# SPDX-License-Identifier: Apache-2.0
"""The only place that prints.

The output contains keys of histories, file names, versions and log lines of servers. A control character in them could
change the window title, hide a line, or imitate a line of the harness. So each printed message is one line, whatever it
contains. The reader of the output may end early (`harness check ... | head -1`); this does not end a run and does not
change a verdict. A terminal gets colour, for verdicts only; the variable `NO_COLOR` (no-color.org) switches it off.
"""

from __future__ import annotations

import errno
import os
import re
import select
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TextIO

from results.visible import THIN_SPACE, visible

MOST: Final = 20_000
"""Characters of a line: a value may be megabytes."""

_VERDICT: Final = re.compile(
    r"(?:^|(?<=  ))(?:valid|invalid|unknown|harness-failure|not worse|worse|not decided)(?=  |$)"
    r"|(?<=  )harness-failure(?= )",
    re.IGNORECASE,
)
"""A verdict in a column of its own, as all commands print it. (The longest one fills its column.)"""

_COLOURS: Final = {
    **{"valid": "32", "invalid": "31", "unknown": "33", "harness-failure": "35"},
    **{"not worse": "32", "worse": "31", "not decided": "33"},
}
"""Verdict -> its colour, as a parameter of the escape sequence (ECMA-48, SGR): green, red, yellow, magenta."""

_problems: list[OSError] = []


def shown(text: str) -> str:
    """The text as one printable line, at most `MOST` characters of it."""
    cut = text if len(text) <= MOST else f"{text[:MOST]}… ({len(text) - MOST:,} characters more)"
    return visible(cut, keep=THIN_SPACE)


def say(line: str = "", *, err: bool = False) -> None:
    """Prints one line; characters that would break it are written as escapes. Never raises: see `lost`."""
    stream = sys.stderr if err else sys.stdout
    text = shown(line)
    put(f"{_painted(text) if colours(stream) else text}\n", stream)


def say_wrapped(line: str, indent: int) -> None:
    """Prints a line that may be longer than the terminal is wide: in several parts then, see `wrapped`."""
    say_all(wrapped(line, columns(sys.stdout), indent))


def colours(stream: TextIO | None) -> bool:
    """True for a terminal with colours, unless the user switched them off (`NO_COLOR` is not empty)."""
    return _is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns(stream: TextIO | None) -> int | None:
    """The width of the terminal now, in characters; None: it is no terminal, or does not know its width."""
    if stream is None or not _is_terminal(stream):
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def fitted(line: str, width: int | None) -> str:
    """The line without what would reach the last column of the terminal: there a terminal may go to the next line."""
    return line if width is None or width < 2 or len(line) < width else f"{line[: width - 2]}…"


def wrapped(line: str, width: int | None, indent: int) -> list[str]:
    """The line broken at spaces, so that no part of it reaches the last column of the terminal; all but the first part
    are indented. One line if there is no width, or hardly more of it than the indent.
    """
    if width is None or width < indent + 24 or len(line) < width:
        return [line]
    # Imported here: hardly any line is so long.
    from textwrap import wrap

    head, body = line[:indent], line[indent:]
    parts = wrap(body, width - 1 - indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
    return [f"{head}{parts[0]}", *(f"{'':<{indent}}{part}" for part in parts[1:])] if parts else [line]


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _painted(text: str) -> str:
    """The text with its first verdict in colour. A verdict in capitals, the one of a whole run, is bold as well."""

    def paint(word: re.Match[str]) -> str:
        bold = "1;" * word[0].isupper()
        return f"\x1b[{bold}{_COLOURS[word[0].lower()]}m{word[0]}\x1b[0m"

    return _VERDICT.sub(paint, text, count=1)


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
