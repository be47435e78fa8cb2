# SPDX-License-Identifier: Apache-2.0
"""Reads files of JSON objects: one object a line, or one array of all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from results.errors import HistoryError, in_bytes
from results.reading import LINE, TwiceNamed, json_of, lines


class Place(NamedTuple):
    """The place of an object in its file: the number of its line, or None, and its number among all objects, from 0."""

    line: int | None
    number: int

    def error(self, path: Path, problem: str) -> HistoryError:
        """The error for a problem of the object here."""
        return HistoryError(path, self.line, problem if self.line else f"record {self.number}: {problem}")


class Objects:
    """The objects of a file. `torn`: a note on a last line without its end, once all were read; None: no such line."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.torn: str | None = None
        self._path, self._file = path, file

    def __iter__(self) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Yields each object with its place. Raises HistoryError."""
        first = self._file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
        self._file.seek(0)
        for place, value in self._of_array() if first[:1] == b"[" else self._of_lines():
            if not isinstance(value, dict):
                raise place.error(self._path, f"not a JSON object but {type(value).__name__}")
            yield place, value

    def _of_array(self) -> Iterator[tuple[Place, Any]]:
        try:
            values = json_of(self._file.read())
        except ValueError as problem:
            what = "" if isinstance(problem, TwiceNamed) else "not a JSON array of records: "
            raise HistoryError(self._path, None, f"{what}{problem}") from None
        for number, value in enumerate(values):
            yield Place(None, number), value

    def _of_lines(self) -> Iterator[tuple[Place, Any]]:
        number = 0
        for line, text in enumerate(lines(self._file), 1):
            if len(text) >= LINE and not text.endswith(b"\n"):
                raise HistoryError(self._path, line, f"a line of more than {in_bytes(LINE)}; a record is shorter")
            if text.isspace():
                continue
            try:
                value = json_of(text)
            except TwiceNamed as problem:
                raise HistoryError(self._path, line, str(problem)) from None
            except ValueError as problem:
                if not text.endswith(b"\n") and number:
                    self.torn = f"the last {in_bytes(len(text))} were torn and are left out"
                    return
                raise HistoryError(self._path, line, f"not a JSON object ({problem})") from None
            yield Place(line, number), value
            number += 1
