# SPDX-License-Identifier: Apache-2.0
"""The entries of a stopped member's DLedger log, from its files (`dledger-<id>/data`).

An entry: magic, size (4 bytes each), index, term, position, channel (8, 8, 8, 4), two checksums that are never set, the
length of the body, the body (`DLedgerEntryCoder`, 0.3.1.2 to 0.4.0). Members hold the same entries at the same indices;
positions may differ after a snapshot was installed.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ENTRY: Final = struct.Struct(">iiqqqiiii")
_MAGICS: Final = (1, 2)
"""A normal entry and one without content; -1 fills the end of a file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """index, term  of the entry. crc: CRC-32 of its term and its body."""

    index: int
    term: int
    crc: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes where an entry should be: neither one, nor the end of the written part."""

    position: int
    why: str


def read_entries(folder: Path) -> Iterator[Entry | Damage]:
    """Every entry of a log in order; ends at the first bytes that are none: zeros, or a `Damage`."""
    for path in sorted(path for path in folder.iterdir() if path.name.isdecimal()):
        start, data, at = int(path.name), path.read_bytes(), 0
        while at + _ENTRY.size <= len(data):
            magic, size, index, term, position, _, _, _, length = _ENTRY.unpack_from(data, at)
            if magic == -1:
                break
            if magic == 0 and size == 0:
                return
            whole = size == _ENTRY.size + length and length >= 0 and at + size <= len(data)
            if magic not in _MAGICS or not whole or position != start + at:
                yield Damage(start + at, f"no entry: magic number {magic}, {size} bytes, position {position}")
                return
            body = data[at + _ENTRY.size : at + size]
            yield Entry(index, term, zlib.crc32(body, zlib.crc32(term.to_bytes(8, "big", signed=True))))
            at += size


def summarize_entries(store: Path, group: str) -> Iterator[str]:
    """A member's log as lines of JSON: a head with `group`, `files` and `problems`, then `{"other": [index, crc]}`."""
    problems: list[str] = []
    lines: list[str] = []
    for folder in sorted(store.glob("dledger-*/data")):
        for found in read_entries(folder):
            if isinstance(found, Damage):
                problems.append(f"at {found.position} of {folder.parent.name}: {found.why}")
            else:
                lines.append(json.dumps({"other": [found.index, found.crc]}))
    yield json.dumps({"head": {"group": group, "files": "entries", "problems": problems}})
    yield from lines
