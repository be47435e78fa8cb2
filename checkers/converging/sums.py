# SPDX-License-Identifier: Apache-2.0
"""The sums that some numbers out of many can have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from math import gcd
from typing import Final

_MOST_WORK: Final = 1 << 36
"""Bits that the table of all sums may cost."""
_MOST_SUMS: Final = 1 << 18
"""Sums that are listed one by one if they are far apart."""


class SubsetSums:
    """The sums of all subsets of some whole numbers.

    >>> sums = SubsetSums([2, -5])
    >>> [total for total in range(-6, 4) if sums.has(total)]
    [-5, -3, 0, 2]
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        # (A subset without a negative number is one with it, less that number: all parts become positive.)
        self._low = sum(number for number in numbers if number < 0)
        parts = [abs(number) for number in numbers if number]
        self._step = gcd(*parts) or 1
        self._parts = [part // self._step for part in parts]
        self._width = sum(self._parts)

    def has(self, total: int) -> bool | None:
        """True if some subset has this sum; None if that costs too much to find out."""
        above, odd = divmod(total - self._low, self._step)
        if odd or not 0 <= above <= self._width:
            return False
        if above in (0, self._width):
            return True
        if self._table is not None:
            return bool(self._table >> above & 1)
        return None if self._listed is None else above in self._listed

    @cached_property
    def _shifts(self) -> list[int]:
        """The parts, equal ones in 1, 2, 4, ... of them and the rest: these have the same sums."""
        found = []
        for part, count in Counter(self._parts).items():
            taken, times = 0, 1
            while taken < count:
                times = min(times, count - taken)
                found.append(part * times)
                taken, times = taken + times, times * 2
        return found

    @cached_property
    def _table(self) -> int | None:
        """A number with a bit for each sum; None if it is too large."""
        if self._width * len(self._shifts) > _MOST_WORK:
            return None
        table = 1
        for shift in sorted(self._shifts):
            table |= table << shift
        return table

    @cached_property
    def _listed(self) -> set[int] | None:
        sums = {0}
        for shift in self._shifts:
            sums |= {total + shift for total in sums}
            if len(sums) > _MOST_SUMS:
                return None
        return sums
