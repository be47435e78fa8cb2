# SPDX-License-Identifier: Apache-2.0
"""The commit log of a broker: every message of every topic, one after the other, as readers get them
(`infra.systems.rocketmq.protocol.messages`).

Two shapes. The plain one (`store/commitlog`) is records back to back; the last record of a file is followed by a blank
one. With `enableDLegerCommitLog` (`store/dledger-<id>/data`) each record is the body of an entry of DLedger, and its
physical offset is the place of the record, not of the entry (`DLedgerCommitLog`).

The bytes after the last record are zeros or, if the broker truncated its log, the former content: a truncation only
moves the write position. A leftover may even begin on a record's boundary and look like one. So this reader reports
all records, and the reader of the index decides which ones count (`infra.systems.rocketmq.store.summary`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.systems.rocketmq.protocol.messages import BLANK, MAGIC_V1, MAGIC_V2, Message, MessageError, decode
from infra.systems.rocketmq.store.mapped import mapped_files

_RECORD: Final = struct.Struct(">II")
"""The beginning of every record: its size, its magic number."""

_ENTRY: Final = struct.Struct(">iiqqqiiii")
"""DLedger's entry: magic, size, index, term, position, channel, two checksums (never set), length of the body."""
_ENTRY_MAGICS: Final = (1, 2)
"""A normal entry and one without content (`DLedgerEntryType`); -1 fills the end of a file."""


@dataclass(frozen=True, slots=True)
class Record:
    """A message on the disk: `size` bytes at `physical`, by count. `message.physical` is the record's own field.

    term  DLedger's, in its variant. crc: CRC-32 of all bytes of the record: replicas hold the same ones.
    """

    message: Message
    physical: int
    size: int
    term: int | None = None
    crc: int = 0

    @property
    def intact(self) -> bool:
        """True if the body matches its checksum, and the record is at the place that it names."""
        return self.message.intact and self.message.physical == self.physical


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes where a record should be: neither one, nor the end of what was written."""

    physical: int
    why: str


def read_commit_log(folder: Path, *, resume: bool = False) -> Iterator[Record | Damage]:
    """Every record of a plain commit log, in order; ends at the first bytes that are none.

    They are zeros at the end of an ordinary log. Anything else is reported as a last `Damage`: the rest cannot be read,
    because only a record shows where the next one begins.

    resume  continue at the next whole record that names the place at which it lies. Bytes before it that are none are
    reported as `Damage`, zeros too: a broker whose disk was full leaves them in the middle of its log.
    """
    gap: Damage | None = None
    silent = False
    """True if the bytes of the gap are zeros, as behind the end of a log."""
    for start, path in mapped_files(folder):
        data = path.read_bytes()
        at = 0
        while at + _RECORD.size <= len(data):
            size, magic = _RECORD.unpack_from(data, at)
            if magic == BLANK and size > 0 and gap is None:
                break
            zeros = size == 0 and magic == 0
            found = (
                Damage(start + at, "zeros, and a whole record behind them") if zeros else _record(data, at, start + at)
            )
            if isinstance(found, Record):
                if gap is not None:
                    yield gap
                    gap = None
                yield found
                at += found.size
                continue
            if gap is None:
                gap, silent = found, zeros
            following = _following(data, at + 1, start) if resume else None
            if following is None:
                break
            at = following
        if gap is not None and not resume:
            break
    if gap is not None and not silent:
        yield gap


def _following(data: bytes, at: int, start: int) -> int | None:
    """The offset of a file's next whole record that lies at the place it names; `start`: of the file."""
    places = []
    for magic in (MAGIC_V1, MAGIC_V2):
        wanted, found = magic.to_bytes(4, "big"), at + 4
        while (found := data.find(wanted, found)) >= 0:
            record = _record(data, found - 4, start + found - 4)
            if isinstance(record, Record) and record.intact:
                places.append(found - 4)
                break
            found += 1
    return min(places, default=None)


def read_dledger_log(folder: Path) -> Iterator[Record | Damage]:
    """The same for a log of DLedger (`store/dledger-<id>/data`). Entries without a message are skipped."""
    for start, path in mapped_files(folder):
        data = path.read_bytes()
        at = 0
        while at + _ENTRY.size <= len(data):
            magic, size, _, term, position, _, _, _, length = _ENTRY.unpack_from(data, at)
            if magic == -1:
                break
            if magic not in _ENTRY_MAGICS:
                if magic or size:
                    yield Damage(start + at, f"an entry's magic number is {magic}")
                return
            if position != start + at or size != _ENTRY.size + length or length < 0 or at + size > len(data):
                yield Damage(start + at, f"an entry of {size} bytes that says it lies at {position}")
                return
            if length:
                found = _record(data, at + _ENTRY.size, start + at + _ENTRY.size, term)
                yield found
                if isinstance(found, Damage):
                    return
            at += size


def _record(data: bytes, at: int, physical: int, term: int | None = None) -> Record | Damage:
    try:
        message, end = decode(data, at)
    except MessageError as problem:
        return Damage(physical, str(problem))
    return Record(message, physical, end - at, term, zlib.crc32(data[at:end]))
