# SPDX-License-Identifier: Apache-2.0
"""The body of the harness' own messages: an id that is unique over the whole run, in digits, then filling."""

from __future__ import annotations


def body_of(message: int, size: int = 0) -> bytes:
    """The body of message number `message` (from 1), filled up to `size` bytes after a space."""
    digits = b"%d" % message
    return digits + b" " + b"." * (size - len(digits) - 1) if size > len(digits) + 1 else digits


def id_of(body: bytes) -> int | str:
    """The id of a body; `?` and the first 16 bytes in hex for one that the harness did not write."""
    digits = body.partition(b" ")[0]
    if digits.isdigit() and len(digits) <= 18 and not digits.startswith(b"0"):
        return int(digits)
    return f"?{body[:16].hex()}"
