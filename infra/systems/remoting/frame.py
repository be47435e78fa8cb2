# SPDX-License-Identifier: Apache-2.0
"""Frames of RocketMQ's remoting protocol, with JSON headers.

    int32  length of all that follows
    int32  high byte: how the header is serialised (0: JSON); low 24 bits: length of the header
    header {code, language, version, opaque, flag, remark, extFields}
    body   bytes, their meaning depends on the code

Source: `RemotingCommand.encode/decode` of rocketmq-remoting 5.1.0 (big-endian; flag bit 0: a response, bit 1: one-way;
largest frame 16 MiB, `NettyDecoder.FRAME_MAX_LENGTH`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_FRAME: Final = 16 << 20
"""Bytes after the length field."""

_JSON: Final = 0
_RESPONSE: Final = 1
ONE_WAY: Final = 2
"""Flag bit of a request that is never answered."""
_HEAD: Final = struct.Struct(">II")
_TYPES: Final = {0: "JSON", 1: "ROCKETMQ"}


class FrameError(Exception):
    """The bytes are no frame. The text gives the place of the first invalid one."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One request or response.

    code    request code, or the outer response code (0: success in RocketMQ; DLedger answers 200).
    opaque  the number that pairs a response with its request, chosen by the requester.
    remark  the error, in the server's words; responses only.
    ext     the header's string fields.
    version the sender's RocketMQ, in its own count; servers turn features on by it. DLedger does not look at it.
    """

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    ext: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    version: int = 0

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & ONE_WAY)

    def reply(self, code: int, body: bytes = b"", *, remark: str | None = None) -> Frame:
        """The response to this request."""
        return Frame(code, self.opaque, flag=_RESPONSE, remark=remark, body=body)


def encode(frame: Frame) -> bytes:
    """The frame's bytes, its length field included. Raises FrameError if it would be too long to be accepted."""
    fields: dict[str, Any] = {
        "code": frame.code,
        "language": "PYTHON",
        "version": frame.version,
        "opaque": frame.opaque,
        "flag": frame.flag,
        "serializeTypeCurrentRPC": "JSON",
    }
    if frame.remark is not None:
        fields["remark"] = frame.remark
    if frame.ext:
        fields["extFields"] = dict(frame.ext)
    header = json.dumps(fields, separators=(",", ":")).encode()
    length = 4 + len(header) + len(frame.body)
    if length > MAX_FRAME:
        raise FrameError(f"a frame of {length} bytes is longer than the {MAX_FRAME} that servers accept")
    return b"".join((_HEAD.pack(length, len(header)), header, frame.body))


class Decoder:
    """Cuts a stream of bytes into frames.

    >>> [f.opaque for f in Decoder().feed(encode(Frame(50000, 7)))]
    [7]
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames completed by `data`, in order. Raises FrameError; the stream is unusable from then on."""
        self._buffer += data
        frames: list[Frame] = []
        at = 0
        while len(self._buffer) - at >= 4:
            length = int.from_bytes(self._buffer[at : at + 4], "big")
            if not 4 <= length <= MAX_FRAME:
                raise FrameError(f"frame length {length} is not between 4 and {MAX_FRAME}: not RocketMQ remoting?")
            if len(self._buffer) - at < 4 + length:
                break
            frames.append(_decode(bytes(self._buffer[at + 4 : at + 4 + length])))
            at += 4 + length
        del self._buffer[:at]
        return frames


def _decode(data: bytes) -> Frame:
    """One frame, its length field already cut off."""
    kind, header_length = data[0], int.from_bytes(data[1:4], "big")
    if kind != _JSON:
        raise FrameError(f"header serialised as {_TYPES.get(kind, 'unknown')} (type {kind}); only JSON is supported")
    if header_length > len(data) - 4:
        raise FrameError(f"header of {header_length} bytes in a frame of {len(data)}")
    try:
        header = json.loads(data[4 : 4 + header_length])
    except ValueError as e:  # JSONDecodeError and UnicodeDecodeError
        raise FrameError(f"header is not JSON: {e}") from None
    if not isinstance(header, dict):
        raise FrameError(f"header is a JSON {type(header).__name__}, not an object")
    ext = header.get("extFields") or {}
    version = header.get("version")
    remark = header.get("remark")
    if not isinstance(ext, dict):
        raise FrameError(f"extFields is a JSON {type(ext).__name__}, not an object")
    if remark is not None and not isinstance(remark, str):
        raise FrameError(f"remark is {remark!r}, not a string")
    return Frame(
        code=_number(header, "code"),
        opaque=_number(header, "opaque"),
        flag=_number(header, "flag"),
        remark=remark,
        ext=ext,
        body=data[4 + header_length :],
        version=version if type(version) is int else 0,
    )


def _number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if type(value) is not int:
        raise FrameError(f"{name} is {value!r}, not a whole number")
    return value
