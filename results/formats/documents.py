# SPDX-License-Identifier: Apache-2.0
"""Reads JSON whose values are not one a line: printed over several lines, or one object around the list of all events.

    {"test": "register", "history": [{"process": 0, "type": "invoke", "f": "read"}]}

Both become an array, which all readers of JSON accept. A text in UTF-16 (as PowerShell writes it) or UTF-32 becomes
UTF-8. Lines that end in a carriage return alone, and JSON text sequences (RFC 7464), get the usual ends of lines.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import IO, Any, Final

from results.errors import HistoryError
from results.formats.signs import AROUND, LISTS, is_event, is_operation, is_plain_event, is_record
from results.reading import JSON_ONCE, TwiceNamed

_AROUND: Final = re.compile(AROUND)
_OBJECT: Final = re.compile(r'\{\s*"')
_SPACE: Final = re.compile(r"[\s,]*")


def in_plain_lines(path: Path, file: IO[bytes]) -> IO[bytes]:
    """The text of a file in UTF-8, its lines with the usual ends. Raises HistoryError."""
    file.seek(0)
    data = file.read()
    wide = next((name for name, marks in _WIDE.items() if data.startswith(marks)), None)
    if wide is not None:
        try:
            data = data.decode(wide).encode()
        except UnicodeError:
            raise HistoryError(path, None, f"it begins as a text in {wide.upper()}, and is none") from None
    if b"\0" in data[:4]:
        what = "it begins with NUL bytes: no text, or UTF-16 or UTF-32 without their mark; UTF-8 is right"
        raise HistoryError(path, 1, what)
    data = data.replace(b"\n\x1e", b"\n").removeprefix(b"\x1e")
    return io.BytesIO(data if b"\n" in data else data.replace(b"\r", b"\n"))


_WIDE: Final = {"utf-32": (b"\xff\xfe\0\0", b"\0\0\xfe\xff"), "utf-16": (b"\xff\xfe", b"\xfe\xff")}
"""Encoding -> the first bytes of its texts."""


def as_array(path: Path, file: IO[bytes], head: bytes) -> tuple[IO[bytes], list[str]]:
    """The file, or one array of its events if they are not one a line; and notes on that. Raises HistoryError for JSON
    over several lines that is broken.
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] != b"{":
        return file, []
    first = text.split(b"\n", 1)[0].strip()
    printed = first == b"{"
    joined = not printed and _goes_on(first)
    if not printed and not joined and (_is_whole(first) or not _AROUND.search(head.decode(errors="replace"))):
        return file, []
    file.seek(0)
    try:
        values = _values(file.read().decode("utf-8-sig"))
    except TwiceNamed as problem:
        raise HistoryError(path, None, str(problem)) from None
    except (ValueError, RecursionError) as problem:
        if not printed:
            return file, []  # (Its reader says what is wrong, and in which line.)
        raise HistoryError(path, getattr(problem, "lineno", None), f"not JSON: {problem}") from None
    name = _name_of_list(values)
    if name is None and not printed and not joined:
        return file, []
    notes = [] if name is None else [f"the events are those in the field {name!r}"]
    beside = [] if name is None else [repr(other) for other in values[0] if other != name]
    if beside:
        notes = [f"{notes[0]}; not read beside it: {', '.join(beside[:8])}{', ...' * (len(beside) > 8)}"]
    return io.BytesIO(json.dumps(values if name is None else values[0][name]).encode()), notes


def _goes_on(line: bytes) -> bool:
    """True for a line with an object and a comma, or another object, behind it."""
    try:
        text = line.decode()
        end = json.JSONDecoder().raw_decode(text)[1]
    except (ValueError, RecursionError):
        return False
    return text[end:].lstrip()[:1] in (",", "{")


def _is_whole(line: bytes) -> bool:
    """True for an object that is an event, an operation or a record."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and (
        is_plain_event(found) or is_record(found) or is_operation(found) or is_event(found)
    )


def _values(text: str) -> list[Any]:
    """All JSON values of a text. Raises ValueError."""
    at = 0
    values: list[Any] = []
    while at < len(text):
        if text[at].isspace() or (text[at] == "," and values):
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            continue
        value, at = JSON_ONCE.raw_decode(text, at)
        values.append(value)
    return values


def _name_of_list(values: list[Any]) -> str | None:
    """The field of the only object that has the events; None if there is no such field, or more than one."""
    if len(values) != 1 or not isinstance(values[0], dict):
        return None
    found = [
        name
        for name in LISTS
        if isinstance(values[0].get(name), list) and all(isinstance(one, dict) for one in values[0][name])
    ]
    return found[0] if len(found) == 1 else None


def of_console(path: Path, file: IO[bytes]) -> tuple[IO[bytes], int] | None:
    """The JSON at the end of each line of a log, all other lines blank, and their number; None if no line ends in a
    whole event. Raises HistoryError for a line that has a part of an event.
    """
    file.seek(0)
    broken: HistoryError | None = None
    found, left_out = [], 0
    for number, line in enumerate(file.read().decode(errors="replace").split("\n"), 1):
        start = _OBJECT.search(line)
        whole = line[start.start() :] if start is not None else ""
        if whole and _is_whole(whole.encode()):
            found.append(whole)
            continue
        if line.lstrip()[:1] == "{" or ('"process"' in whole and '"type"' in whole):
            broken = broken or HistoryError(path, number, f"not a JSON object of an event ({line[:200]!r})")
        left_out += bool(line.strip())
        found.append("")
    if not any(found):
        return None
    if broken is not None:
        raise broken
    return io.BytesIO("\n".join([*found, ""]).encode()), left_out
