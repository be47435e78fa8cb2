# SPDX-License-Identifier: Apache-2.0
"""A message as brokers store it and send it to readers, and the parts that producers write.

Big-endian: totalSize, magic, bodyCRC, queueId, flag (4 bytes each), queueOffset, physicalOffset (8 each), sysFlag (4),
bornTimestamp (8), bornHost (4 or 16, and port 4), storeTimestamp (8), storeHost (as bornHost), reconsumeTimes (4),
preparedTransactionOffset (8), bodyLength (4) and body, topicLength (1, in version 2 of the layout 2) and topic,
propertiesLength (2) and properties.

Source: `MessageExtEncoder` of rocketmq-store and `MessageDecoder` of rocketmq-common, 5.3.3; seen with 5.5.0.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
BLANK: Final = 0xCBD43194
"""The magic number of the filling at the end of a commit log file; no message."""

COMPRESSED: Final = 1
PREPARED: Final = 4
COMMITTED: Final = 8
ROLLED_BACK: Final = 12
TRANSACTION: Final = 12
"""Mask of the three above."""
BORN_V6: Final = 16
STORED_V6: Final = 32
INNER_BATCH: Final = 128
_ZLIB: Final = (0, 3)
"""Values of bits 8 to 10 that mean zlib; 1 is LZ4, 2 is ZSTD."""

_FIXED: Final = struct.Struct(">IIIIIQQIQ")
_MAX_PROPERTIES: Final = 32767


class MessageError(Exception):
    """The bytes are no message, or one of an unsupported kind. One line."""


class UnsupportedMessage(MessageError):
    """A message of a kind that is not decoded here."""


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message.

    queue, offset  where it is in the topic; physical: byte in the commit log of the broker that answered.
    born, stored   milliseconds since 1970 by the producer's and the storing broker's clock.
    store_host     `ip:port` of the broker that appended it first, not of the one that answered.
    prepared       for the second half of a transaction: physical offset of the first.
    intact         whether the body has the checksum stored with it.
    torn           whether a byte of the properties is zero; no client writes such, and no checksum covers them.
    """

    topic: str
    queue: int
    offset: int
    physical: int
    body: bytes
    properties: Mapping[str, str]
    born: int
    stored: int
    born_host: str
    store_host: str
    system_flag: int
    flag: int
    reconsumed: int
    prepared: int
    intact: bool
    torn: bool = False

    @property
    def message_id(self) -> str:
        """The id by which the storing broker answers (`offsetMsgId`)."""
        host, _, port = self.store_host.rpartition(":")
        return offset_message_id(host.strip("[]"), int(port), self.physical)


def decode_all(data: bytes) -> list[Message]:
    """The messages of an answer's body, one after the other. Raises MessageError."""
    found, at = [], 0
    while at < len(data):
        message, at = decode(data, at)
        found.append(message)
    return found


def decode(data: bytes, at: int = 0) -> tuple[Message, int]:
    """The message at a place, and the place behind it. Raises MessageError."""
    start = at
    try:
        size, magic, crc, queue, flag, offset, physical, system, born = _FIXED.unpack_from(data, at)
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise MessageError(f"byte {start}: magic number {magic:#x} is not that of a message")
        if size < _FIXED.size or start + size > len(data):
            raise MessageError(f"byte {start}: a message of {size} bytes, {len(data) - start} are there")
        at += _FIXED.size
        born_host, at = _host(data, at, bool(system & BORN_V6))
        (stored,) = struct.unpack_from(">Q", data, at)
        store_host, at = _host(data, at + 8, bool(system & STORED_V6))
        reconsumed, prepared, length = struct.unpack_from(">iqI", data, at)
        at += 16
        body, at = _cut(data, at, length)
        width = 1 if magic == MAGIC_V1 else 2
        topic, at = _cut(data, at + width, int.from_bytes(data[at : at + width], "big"))
        properties, at = _cut(data, at + 2, int.from_bytes(data[at : at + 2], "big"))
    except (struct.error, IndexError):
        raise MessageError(f"byte {start}: the message is cut off") from None
    if at != start + size:
        raise MessageError(f"byte {start}: a message of {size} bytes whose parts have {at - start}")
    if system & INNER_BATCH:
        raise UnsupportedMessage(f"byte {start}: an inner batch, which is not supported")
    intact = zlib.crc32(body) & 0x7FFFFFFF == crc
    message = Message(
        topic=topic.decode(errors="replace"),
        queue=queue,
        offset=offset,
        physical=physical,
        body=_inflated(body, system, start) if intact else body,
        properties=decode_properties(properties.decode(errors="replace")),
        born=born,
        stored=stored,
        born_host=born_host,
        store_host=store_host,
        system_flag=system,
        flag=flag,
        reconsumed=reconsumed,
        prepared=prepared,
        intact=intact,
        torn=0 in properties,
    )
    return message, at


def _cut(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(data):
        raise IndexError(at)
    return data[at : at + length], at + length


def _host(data: bytes, at: int, v6: bool) -> tuple[str, int]:
    raw, at = _cut(data, at, 16 if v6 else 4)
    (port,) = struct.unpack_from(">I", data, at)
    ip = f"[{ipaddress.IPv6Address(raw)}]" if v6 else ".".join(map(str, raw))
    return f"{ip}:{port}", at + 4


def _inflated(body: bytes, system: int, start: int) -> bytes:
    """The uncompressed body. The harness' producers never compress; the native client does from 4 KiB on."""
    if not system & COMPRESSED:
        return body
    if (system >> 8) & 7 not in _ZLIB:
        raise UnsupportedMessage(f"byte {start}: compressed with LZ4 or ZSTD, which is not supported")
    try:
        return zlib.decompress(body)
    except zlib.error as e:
        raise MessageError(f"byte {start}: the compressed body cannot be decompressed ({e})") from None


def encode_properties(properties: Mapping[str, str]) -> str:
    """Properties as they are sent. Raises ValueError for text with a separator in it, and for too much text."""
    for name, value in properties.items():
        if not name or {"\x01", "\x02"} & {*name, *value}:
            raise ValueError(f"property {name!r}={value!r}: neither may hold \\x01 or \\x02, nor may the name be empty")
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    if (size := len(text.encode())) > _MAX_PROPERTIES:
        raise ValueError(f"properties of {size} bytes; brokers take {_MAX_PROPERTIES}")
    return text


def decode_properties(text: str) -> dict[str, str]:
    """The reverse; entries without a name or a value are left out, as in `MessageDecoder.string2messageProperties`."""
    pairs = (part.split("\x01") for part in text.split("\x02"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0]}


def offset_message_id(ip: str, port: int, physical: int) -> str:
    """The id that names a place: ip, port (4 bytes), physical offset (8) in upper-case hex: 32 digits, with IPv6 56."""
    return (ipaddress.ip_address(ip).packed + struct.pack(">Iq", port, physical)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[str, int, int]:
    """Address, port and physical offset out of an `offsetMsgId`. Raises MessageError."""
    try:
        raw = bytes.fromhex(text)
        ip = str(ipaddress.ip_address(raw[:-12]))
    except ValueError:
        raise MessageError(f"{text[:80]!r} is not a message id of 32 or 56 hex digits") from None
    port, physical = struct.unpack(">Iq", raw[-12:])
    return ip, port, physical
