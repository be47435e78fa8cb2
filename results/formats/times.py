# SPDX-License-Identifier: Apache-2.0
"""Times of events as strangers write them: numbers, or texts such as `2026-11-29T10:53:25.123456Z` (ISO 8601)."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

_ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|\d{8}T\d{6})(?:[.,](\d{1,9}))?\s*(Z|z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?"
    r"(?:(?<=[+-]\d{4}) [A-Z]{3,5})?(?: m=[+-][\d.]+)?",  # (as Go prints a time)
    re.ASCII,
)
_NUMBER: Final = re.compile(r"\d{1,30}(\.\d{1,30})?", re.ASCII)
_PARTS: Final = (
    ("secs", "nanos"), ("seconds", "nanos"), ("secs_since_epoch", "nanos_since_epoch"), ("sec", "nsec"),
    ("tv_sec", "tv_nsec"),
)  # fmt: skip
"""The fields of a time in two parts, as Rust, Protocol Buffers and C have it."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Instant(int):
    """A time that was a date with a zone: ns since 1970."""


class LocalInstant(Instant):
    """A time that was a date without a zone: ns since 1970 in the zone of the file, whichever that is."""


MIXED: Final = "some times are dates, and others are not; all with a zone, all without one, or all numbers is right"


def kind(time: float) -> type[Instant] | None:
    """The way in which a time was written; None: as a number. Times of two kinds have no common order."""
    return type(time) if isinstance(time, Instant) else None


def in_ns(seconds: float) -> int:
    """Seconds as ns, rounded down: two times never change places."""
    above, below = seconds.as_integer_ratio()
    return above * 10**9 // below


def moment(value: Any, name: str) -> float:
    """A time: a number, or a date, or an object of seconds and nanoseconds, as an `Instant`. Raises ValueError."""
    if isinstance(value, dict):
        return _of_parts(value, name)
    if isinstance(value, str):
        number = _NUMBER.fullmatch(value.strip())
        if number is not None:
            return int(value) if number[1] is None else float(value)
        return _instant(value, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} is {json.dumps(value)}, not a number, and not a date such as 2026-11-29T10:53:25.1Z")
    return value


def _instant(text: str, name: str) -> Instant:
    found = _ISO.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        written, fraction, zone = found.groups()
        if written[8] == "T":
            written = "{}{}-{}-{}T{}:{}:{}".format(*re.findall("..", written.replace("T", "")))
        # (A leap second is the last second of its minute.)
        at = datetime.fromisoformat(written.replace(":60", ":59")).replace(tzinfo=_zone(zone))
    except ValueError:
        raise ValueError(f"{name} is {json.dumps(text[:100])}, not a date such as 2026-11-29T10:53:25.123Z") from None
    since = at - _EPOCH
    made = LocalInstant if zone is None else Instant
    return made((since.days * 86_400 + since.seconds) * 10**9 + int((fraction or "0").ljust(9, "0")))


def _of_parts(parts: dict[str, Any], name: str) -> Instant:
    for seconds, nanos in _PARTS:
        if parts.keys() == {seconds, nanos}:
            whole, rest = (moment(parts[part], name) for part in (seconds, nanos))
            if type(whole) is int and type(rest) is int and 0 <= rest < 10**9:
                return Instant(whole * 10**9 + rest)
    raise ValueError(f"{name} is {json.dumps(parts)[:100]}, neither a number nor a date; seconds and nanos are right")


def _zone(text: str | None) -> timezone:
    if text is None or text in ("Z", "z", "UTC", "GMT"):
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)
