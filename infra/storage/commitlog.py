"""The commit log of a broker: every message of every topic, one after the other, as `MessageDecoder` lays them out.

Two shapes. The plain one (`store/commitlog`) is records back to back; the last record of a file is followed by a blank
one. With `enableDLegerCommitLog` (`store/dledger-<id>/data`) each record is the body of an entry of DLedger, and its
physical offset is the place of the record, not of the entry (`DLedgerCommitLog`).

The bytes after the last record are zeros or, where the broker truncated its log, what had stood there before: a
truncation only moves the write position. A leftover may even begin on a record's boundary and look like one. So this
reader reports what is there (`Record`), and whether it counts is decided by those who know the index and the end of the
log (`infra.storage.summary`).
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from infra.storage.mapped import mapped_files

MAGIC_V1: Final = -626843481
"""`MessageDecoder.MESSAGE_MAGIC_CODE`: one byte for the topic's length."""
MAGIC_V2: Final = -626843477
"""`MESSAGE_MAGIC_CODE_V2`: two bytes, for topics of more than 127 (a pop group's retry topic may be so long)."""
MAGIC_BLANK: Final = -875286124
"""`CommitLog.BLANK_MAGIC_CODE`: the rest of this file is empty."""

_BORN_V6: Final = 16
_STORE_V6: Final = 32
"""Bits of `sysFlag`: the host is an IPv6 address (`MessageSysFlag`)."""

_HEAD: Final = struct.Struct(">iiiiiqqiq")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_TAIL: Final = struct.Struct(">iqi")

_ENTRY: Final = struct.Struct(">iiqqqiiii")
"""DLedger's entry: magic, size, index, term, position, channel, two checksums (never set), length of the body."""
_ENTRY_MAGICS: Final = (1, 2)
"""A normal entry and one without content (`DLedgerEntryType`); -1 fills the end of a file."""


@dataclass(frozen=True, slots=True)
class Record:
    """One message as it lies on the disk.

    physical, size   position in the log and length, in bytes. `claimed`: the position the record itself names.
    queue, offset    id of its queue, and its place there.
    born, stored     ms since 1970, clocks of the client and of the broker that appended it first.
    store_host       `ip:port` of that broker: who acknowledged it, not who holds it.
    intact           whether the body matches its checksum.
    """

    physical: int
    size: int
    claimed: int
    version: int
    topic: str
    queue: int
    offset: int
    flags: int
    born: int
    stored: int
    store_host: str
    body: bytes
    properties: Mapping[str, str]
    intact: bool
    term: int | None = None
    """DLedger's term, in its variant."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes where a record should be: neither one, nor the end of what was written."""

    physical: int
    why: str


def read_commit_log(folder: Path) -> Iterator[Record | Damage]:
    """Every record of a plain commit log, in order; ends at the first bytes that are none.

    They are zeros at the end of an ordinary log. Anything else is told as a last `Damage`: the rest cannot be read,
    because only a record tells where the next one begins.
    """
    for start, path in mapped_files(folder):
        data = path.read_bytes()
        at = 0
        while at + 8 <= len(data):
            size, magic = _INT.unpack_from(data, at)[0], _INT.unpack_from(data, at + 4)[0]
            if magic == MAGIC_BLANK and size > 0:
                break
            if size == 0 and magic == 0:
                return
            found = _record(data, at, start + at)
            yield found
            if isinstance(found, Damage):
                return
            at += size


def read_dledger_log(folder: Path) -> Iterator[Record | Damage]:
    """The same of a log of DLedger (`store/dledger-<id>/data`). Entries without a message are passed over."""
    for start, path in mapped_files(folder):
        data = path.read_bytes()
        at = 0
        while at + _ENTRY.size <= len(data):
            magic, size, _, term, position, _, _, _, length = _ENTRY.unpack_from(data, at)
            if magic not in _ENTRY_MAGICS:
                if magic == -1:
                    break
                if magic or size:
                    yield Damage(start + at, f"an entry's magic number is {magic}")
                return
            if position != start + at or size != _ENTRY.size + length or at + size > len(data):
                yield Damage(start + at, f"an entry of {size} bytes that says it lies at {position}")
                return
            if length:
                body = at + _ENTRY.size
                found = _record(data, body, start + body)
                if isinstance(found, Damage):
                    yield found
                    return
                yield replace(found, term=term)
            at += size


def _record(data: bytes, at: int, physical: int) -> Record | Damage:
    """The record at `at`. Every length is checked before it is used: a torn record is a Damage, never an exception."""
    if at + _HEAD.size > len(data):
        return Damage(physical, "the file ends within a record's head")
    size, magic, checksum, queue, _, offset, claimed, flags, born = _HEAD.unpack_from(data, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Damage(physical, f"a record's magic number is {magic}")
    end = at + size
    if size <= _HEAD.size or end > len(data):
        return Damage(physical, f"a record of {size} bytes does not fit into its file")
    try:
        place = at + _HEAD.size + (20 if flags & _BORN_V6 else 8)
        stored = _LONG.unpack_from(data, place)[0]
        host_size = 20 if flags & _STORE_V6 else 8
        store_host = _host(data[place + 8 : place + 8 + host_size])
        place += 8 + host_size
        _, _, length = _TAIL.unpack_from(data, place)
        place += _TAIL.size
        body = data[place : place + length]
        place += length
        wide = magic == MAGIC_V2
        topic_size = struct.unpack_from(">H" if wide else ">B", data, place)[0]
        place += 2 if wide else 1
        topic = data[place : place + topic_size].decode()
        place += topic_size
        properties_size = struct.unpack_from(">H", data, place)[0]
        place += 2
        properties = data[place : place + properties_size].decode()
    except (struct.error, UnicodeDecodeError, ValueError) as problem:
        return Damage(physical, f"a record of {size} bytes does not hold what it says ({problem})")
    if length < 0 or place + properties_size != end:
        return Damage(physical, f"a record of {size} bytes whose parts end at {place + properties_size - at}")
    return Record(
        physical=physical,
        size=size,
        claimed=claimed,
        version=2 if wide else 1,
        topic=topic,
        queue=queue,
        offset=offset,
        flags=flags,
        born=born,
        stored=stored,
        store_host=store_host,
        body=body,
        properties=_properties(properties),
        # `UtilAll.crc32` drops the sign bit.
        intact=zlib.crc32(body) & 0x7FFFFFFF == checksum,
    )


def _host(data: bytes) -> str:
    """`ip:port` of 8 or 20 bytes: the address, then the port as an int."""
    port = _INT.unpack_from(data, len(data) - 4)[0]
    if len(data) == 8:
        return f"{socket.inet_ntop(socket.AF_INET, data[:4])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, data[:16])}]:{port}"


def _properties(text: str) -> dict[str, str]:
    """`name 0x01 value 0x02`, repeated (`MessageDecoder.string2messageProperties`)."""
    pairs = (pair.partition("\x01") for pair in text.split("\x02"))
    return {name: value for name, mark, value in pairs if mark}
