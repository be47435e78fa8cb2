# SPDX-License-Identifier: Apache-2.0
"""Numbers and times: one calculation and one format for all reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

SECOND: Final = 1_000_000_000
"""Nanoseconds."""


def quantile(ordered: Sequence[float], q: float) -> float:
    """The smallest value that at least the share `q` of the (sorted, non-empty) values does not exceed.

    >>> quantile([1, 2, 3, 4], 0.5), quantile([1, 2, 3, 4], 1.0)
    (2, 4)
    """
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]


def clock(ns: int) -> str:
    """Time since the start of the run: `01:58.4`; the minutes may exceed 59.

    >>> clock(59_970_000_000)
    '01:00.0'
    """
    tenths = round(ns / (SECOND // 10))
    sign, tenths = ("-", -tenths) if tenths < 0 else ("", tenths)
    return f"{sign}{tenths // 600:02d}:{tenths % 600 // 10:02d}.{tenths % 10}"


def many(count: int, one: str, more: str | None = None) -> str:
    """`1 message`, `1,200 messages`: for lines of text. `more`: the plural, if it is irregular."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"
