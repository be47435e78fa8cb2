# SPDX-License-Identifier: Apache-2.0
"""A server's file of settings, as `java.util.Properties` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.plan.plan import PlanError
from results.reading import read_bytes

LIMIT: Final = 1 << 20
"""Bytes of a file of settings that are read. Real ones have some kilobytes."""

_SETTING: Final = re.compile(r"((?:\\.|[^\\\s=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Conf:
    """path: None: there is no such file. values: name -> value, the last one of each name. lines: name -> the numbers
    of its lines.
    """

    kind: str
    path: Path | None = None
    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, list[int]] = field(default_factory=dict)

    def where(self, name: str) -> str:
        """`broker.conf, line 12`."""
        assert self.path is not None
        return f"{self.path.name}, line {self.lines[name][-1]}"


def read_conf(kind: str, path: Path) -> Conf:
    """Reads a file. Raises PlanError for one that cannot be read, or that has no setting."""
    try:
        data = read_bytes(path, LIMIT)
    except OSError as problem:
        raise PlanError(f"{path}: cannot be read: {problem.strerror}") from None
    if b"\0" in data:
        raise PlanError(f"{path}: contains NUL bytes; a file of settings such as broker.conf is right")
    conf = Conf(kind, path)
    # (Java reads the file as ISO 8859-1.)
    for number, line in _logical(_LINE_END.split(data.decode("latin-1"))):
        found = _SETTING.fullmatch(line)
        assert found is not None
        name, value = (_ESCAPE.sub(_unescaped, part) for part in found.groups())
        conf.values[name] = value
        conf.lines.setdefault(name, []).append(number)
    if not conf.values:
        raise PlanError(f"{path}: has no setting; lines such as brokerRole=SYNC_MASTER are right")
    return conf


def _logical(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Lines without comments, with those that continue them; the number of the first one."""
    parts: list[str] = []
    first = 0
    for number, raw in enumerate(lines, 1):
        line = raw.lstrip(" \t\f")
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join([*parts, line])
        parts = []
    if parts:
        yield first, "".join(parts)


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    return chr(int(text[1:], 16)) if len(text) == 5 else _PLAIN.get(text, text)
