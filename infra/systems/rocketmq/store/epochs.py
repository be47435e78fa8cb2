# SPDX-License-Identifier: Apache-2.0
"""The file `epochFileCheckpoint` of a broker in controller mode: the masters' epochs, and the physical offsets of their
beginnings.

Two replicas agree on their logs as far as their lists agree; a returning replica truncates to that point
(`EpochFileCache`, `AutoSwitchHAClient`). The file is lines of text (`CheckpointFile`): the number of entries, a CRC-32
of their lines, then `epoch-startOffset` each. The end of an epoch is the start of the next.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.systems.rocketmq.store.errors import StorageError

_ENTRY: Final = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Epoch:
    """A master's time in office: its epoch, and the place in the log where it began."""

    epoch: int
    start: int


def read_epochs(path: Path) -> list[Epoch]:
    """The entries in order. Raises StorageError for a damaged file, and OSError for a missing one."""
    lines = path.read_text().splitlines()
    if len(lines) < 2 or not (lines[0].isdecimal() and lines[1].isdecimal()):
        raise StorageError(path, "should begin with the number of its entries and their CRC-32")
    count, checksum, entries = int(lines[0]), int(lines[1]), lines[2:]
    if len(entries) != count:
        raise StorageError(path, f"says that it has {count} entries and has {len(entries)}")
    # Java's `Checksum` goes over the lines with their ends.
    actual = zlib.crc32("".join(f"{entry}\n" for entry in entries).encode()) & 0x7FFFFFFF
    if actual != checksum:
        raise StorageError(path, f"the CRC-32 of its entries is {actual}, and it says {checksum}")
    found = []
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise StorageError(path, f"{entry!r} is not EPOCH-OFFSET")
        found.append(Epoch(int(match[1]), int(match[2])))
    return found
