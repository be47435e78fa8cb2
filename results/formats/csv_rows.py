# SPDX-License-Identifier: Apache-2.0
"""Reads a table (CSV) of operations as the JSON records of `results.formats.records`.

    client,op,key,value,start,end
    0,write,x,1,10,20

The first line has the names. A cell is a number, `true`, `false` or a text; an empty one is not there, so that a read
that found nothing has to say `null`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from results.errors import HistoryError
from results.formats.json_objects import Place


class Rows:
    """The rows of a table. `torn`: None: a cut row looks like a short one, which is an error."""

    torn = None

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file

    def __iter__(self) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Yields each row with its place. Raises HistoryError."""
        # (Not closed with the wrapper: the file belongs to the caller.)
        text = io.TextIOWrapper(io.BytesIO(self._file.read()), encoding="utf-8-sig", newline="")
        reader = csv.reader(text, strict=True)
        try:
            names = [name.strip() for name in next(reader)]
            number = 0
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise ValueError(f"{len(row)} cells below {len(names)} names")
                yield (
                    Place(reader.line_num, number),
                    {n: _value(c) for n, c in zip(names, row, strict=True) if c.strip()},
                )
                number += 1
        except (ValueError, csv.Error) as problem:
            raise HistoryError(self._path, reader.line_num, f"not a table of operations: {problem}") from None


def _value(cell: str) -> Any:
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return cell.strip()
    return value
