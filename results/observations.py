# SPDX-License-Identifier: Apache-2.0
"""`observations.jsonl`: the statuses that the nodes reported during a run, one `Observation` per line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO

from results.errors import HistoryError, cannot_write
from results.reading import parse_json, read_bytes
from results.record import Observation

_LARGEST: Final = 4 << 30
"""The limit, in bytes. Five nodes observed twice a second take some 100 MB a day, and a run lasts 30 days at most."""
_FIELDS: Final = {field.name for field in dataclasses.fields(Observation)}


class ObservationLog:
    """Appends observations; the kernel has each one when `append` returns (some per second: no buffer)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: TextIO = path.open("a", encoding="utf-8", buffering=1)
        except OSError as problem:
            raise cannot_write(path, "the observations", problem) from None

    def append(self, seen: Observation) -> None:
        """Appends an observation. Raises StoreError if it cannot be written."""
        try:
            self._file.write(json.dumps(seen.to_json(), separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as problem:
            raise cannot_write(self.path, "the observations", problem) from None

    def close(self) -> None:
        """Closes the file. A second call does nothing more."""
        try:
            self._file.close()
        except OSError as problem:
            raise cannot_write(self.path, "the observations", problem) from None

    def __enter__(self) -> ObservationLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def read_observations(path: Path) -> list[Observation]:
    """The observations in order of time; [] without such a file. A torn last line is left out.

    Raises HistoryError, with the line, for a broken line that others follow.
    """
    try:
        lines = read_bytes(path, _LARGEST).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise HistoryError(path, None, f"the observations cannot be read: {problem.strerror}") from None
    found: list[Observation] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_parse(line))
        except ValueError as problem:
            if number == len(lines):
                break
            raise HistoryError(path, number, str(problem)) from None
    return sorted(found, key=lambda seen: seen.time)


def _parse(line: bytes) -> Observation:
    data: Any = parse_json(line)
    if not isinstance(data, dict):
        raise ValueError(f"not a JSON object but {type(data).__name__}")
    for name, kind in (("time", int), ("node", str), ("role", str)):
        if not isinstance(data.get(name), kind):
            raise ValueError(f"{name} is {data.get(name)!r}; an observation needs time, node and role")
    return Observation(**{name: value for name, value in data.items() if name in _FIELDS})
