# SPDX-License-Identifier: Apache-2.0
"""Messages as brokers store them: some that a 5.5.0 sent, and a way to make any other."""

from __future__ import annotations

import struct
import zlib

from infra.systems.rocketmq.protocol.messages import BORN_V6, MAGIC_V1, STORED_V6

PULLED = bytes.fromhex(
    "000000d5daa320a73f39b0420000000000000000000000000000000000000000006a778d00000000000001a1fe3791897f00000100009e66"
    "000001a1fe37918c7f0000010000559700000000000000000000000000000002313708636170747572656400704d53475f524547494f4e01"
    "44656661756c74526567696f6e02554e49515f4b4559014533423435344545393137333338464330303030334332393030303030303031"
    "02434c5553544552016861726e657373025441475301610" + "24b455953016b310254524143455f4f4e017472756502"
    "0000011fdaa320a70e048d3e0000000000000000000000000000000100000000006a79b000000008000001a1fe3791907f00000100009e66"
    "000001a1fe3791937f000001000055970000000000000000006a786200000002c3a908636170747572656400ba4d53475f524547494f4e01"
    "44656661756c74526567696f6e02554e49515f4b4559014533423435344545393137333338464330303030334332393030303030303032"
    "02434c5553544552016861726e657373025047524f5550016861726e6573732d70726f6475636572025f5f7472616e73616374696f6e4964"
    "5f5f01453342343534454539313733333846433030303033433239303030303030303202" + "5452414e5f4d5347017472756502"
    "54524143455f4f4e017472756502"
)
"""The answer's body of a pull from a 5.5.0: a message with tag and key, and a committed transaction."""


def stored(
    body: bytes = b"1",
    *,
    topic: str = "t",
    system_flag: int = 0,
    magic: int = MAGIC_V1,
    crc: int | None = None,
    properties: bytes = b"",
    size_off_by: int = 0,
) -> bytes:
    """A message as a broker would store it, or nearly."""
    v4, v6 = b"\x0a\x00\x00\x01", b"\x20\x01" + bytes(13) + b"\x01"
    name = topic.encode()
    rest = struct.pack(">QQIQ", 5, 1000, system_flag, 111)
    rest += (v6 if system_flag & BORN_V6 else v4) + struct.pack(">IQ", 40000, 222)
    rest += (v6 if system_flag & STORED_V6 else v4) + struct.pack(">IiqI", 10911, 0, 0, len(body)) + body
    rest += struct.pack(">B" if magic == MAGIC_V1 else ">H", len(name)) + name
    rest += struct.pack(">H", len(properties)) + properties
    size = 20 + len(rest) + size_off_by
    checksum = zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc
    return struct.pack(">IIIII", size, magic, checksum, 3, 0) + rest
