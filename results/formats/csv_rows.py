# SPDX-License-Identifier: Apache-2.0
"""Reads a table (CSV) of operations as the JSON records of `results.formats.records`.

    client,op,key,value,start,end
    0,write,x,1,10,20

The first line has the names, with a comma, a semicolon, a tab or a bar between them. A cell is a number, `true`,
`false`, `null` (also as other languages write them) or a text; an empty one is not there, so that a read that found
nothing has to say `null`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from results.errors import HistoryError
from results.formats.json_objects import Place


class Rows:
    """The rows of a table. `torn`: None: a cut row looks like a short one, which is an error."""

    torn = None

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file

    def __iter__(self) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Yields each row with its place. Raises HistoryError."""
        data = self._file.read()
        try:
            text = io.StringIO(data.decode("utf-8-sig"), newline="")
        except UnicodeDecodeError as problem:
            line = data.count(b"\n", 0, problem.start) + 1
            text_ = f"not UTF-8 text (byte {problem.start} is {data[problem.start]:#x})"
            raise HistoryError(self._path, line, text_) from None
        del data
        first = next((line for line in text if not line.isspace()), "")
        text.seek(0)
        reader = csv.reader(text, strict=True, delimiter=delimiter(first))
        try:
            names = [name.strip() for name in next(row for row in reader if row)]
            twice = next((name for name in names if name and names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"the name {twice!r} is there twice")
            number = 0
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise ValueError(f"{len(row)} cells below {len(names)} names")
                yield (
                    Place(reader.line_num, number),
                    {n: _value(c) for n, c in zip(names, row, strict=True) if n and c.strip()},
                )
                number += 1
        except (ValueError, csv.Error) as problem:
            raise HistoryError(self._path, reader.line_num, f"not a table of operations: {problem}") from None


def delimiter(first: str) -> str:
    """The character between the names of the first line."""
    return max(",;\t|", key=first.count)


def _value(cell: str) -> Any:
    text = cell.strip()
    if text in _WORDS:
        return _WORDS[text]
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return text
    return value


_WORDS: Final = {
    "True": True, "TRUE": True, "False": False, "FALSE": False,
    **dict.fromkeys(("None", "nil", "<nil>", "NULL", "Null")),
}  # fmt: skip
"""Cells as other languages, databases and spreadsheets write them."""
