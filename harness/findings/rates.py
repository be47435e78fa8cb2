# SPDX-License-Identifier: Apache-2.0
"""k of n: exact intervals, and stopping rules that are named before the first run.

Interval: Clopper and Pearson (1934), two-sided. Two measured rates: Fisher's exact test (1922), one-sided.
Sequential test: Wald's SPRT (1945), of two rates against each other.
A series that stops when its result looks good reports a rate that is too high. So a series has a fixed length, or it
stops by the sequential test, whose errors are bounded for any length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

ALWAYS: Final = 5
"""A finding that showed in so many runs and failed to in none is as good as certain to be seen again (0.48 to 1.00)."""

ERROR: Final = 0.05
"""The accepted chance of an error when a mended rate is compared with a published one."""

_EXACT: Final = 900
"""Tries up to which every binomial coefficient is a float. Above, the sum has logarithms."""

_STEPS: Final = 60
"""Steps of a bisection of [0, 1]: more than the precision of a float."""


def at_most(k: int, n: int, p: float) -> float:
    """P(X <= k) for X binomial with n tries of chance p."""
    if n > _EXACT and 0 < p < 1:
        terms, log = [], n * math.log1p(-p)
        for i in range(k + 1):
            terms.append(math.exp(log))
            log += math.log((n - i) / (i + 1)) + math.log(p) - math.log1p(-p) if i < n else 0.0
        return math.fsum(terms)
    return math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def interval(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a rate seen k times in n runs. Of no run: (0, 1). Raises ValueError unless 0 <= k <= n."""
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is no rate")
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else _solve(lambda p: 1 - at_most(k - 1, n, p) < tail)
    high = 1.0 if k == n else _solve(lambda p: at_most(k, n, p) > tail)
    return low, high


def less_often(k: int, n: int, mended_k: int, mended_n: int) -> float:
    """Fisher's exact test: the chance that, of all that showed in both series, so few or fewer are among the mended, if
    both had one rate. Raises ValueError for invalid counts.
    """
    for shown, runs in ((k, n), (mended_k, mended_n)):
        if not 0 <= shown <= runs:
            raise ValueError(f"{shown} of {runs} is no rate")
    ways = sum(math.comb(mended_n, i) * math.comb(n, k + mended_k - i) for i in range(mended_k + 1))
    return ways / math.comb(n + mended_n, k + mended_k)


def _solve(below: Callable[[float], bool]) -> float:
    """Returns the point up to which a predicate holds, if it holds from 0 on."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


def describe(k: int, n: int) -> str:
    """`8 of 10 (0.44 to 0.97)`."""
    low, high = interval(k, n)
    return f"{k} of {n} ({low:.2f} to {high:.2f})"


Decision = Literal["show", "gone"]


@dataclass(frozen=True)
class Fixed:
    """A number of runs, named before."""

    runs: int

    def decide(self, k: int, n: int) -> str | None:
        """The reason to stop the series after k of n, or None: it goes on."""
        return self.describe() if n >= self.runs else None

    def describe(self) -> str:
        return f"{self.runs} run{'s' if self.runs != 1 else ''}"


@dataclass(frozen=True)
class Sequential:
    """Wald's test of *shows at a rate of `show` or more* against *of `gone` or less*.

    error  the chance of each wrong decision, at most about this. most: runs after which it ends undecided.
    """

    show: float
    gone: float
    error: float = 0.05
    most: int = 60

    def __post_init__(self) -> None:
        if not 0 < self.gone < self.show < 1:
            raise ValueError(f"gone {self.gone} and show {self.show}: 0 < gone < show < 1 is right")

    def decision(self, k: int, n: int) -> Decision | None:
        """The decision after k of n; None: not yet decided."""
        seen = k * math.log(self.show / self.gone) + (n - k) * math.log((1 - self.show) / (1 - self.gone))
        bound = math.log((1 - self.error) / self.error)
        return "show" if seen >= bound else "gone" if seen <= -bound else None

    def decide(self, k: int, n: int) -> str | None:
        """The reason to stop the series after k of n, or None: it goes on."""
        match self.decision(k, n):
            case "show":
                return f"it shows: {self.show:g} or more, against {self.gone:g} or less"
            case "gone":
                return f"it is gone: {self.gone:g} or less, against {self.show:g} or more"
        return f"undecided after {n} runs" if n >= self.most else None

    def describe(self) -> str:
        return f"until {self.show:g} or more is distinguished from {self.gone:g} or less (errors of {self.error:.0%})"


@dataclass(frozen=True)
class Within:
    """A series until the interval's half width is at most `width`, or the first `ALWAYS` runs all showed it.

    k, n  earlier runs, which count as well.
    """

    width: float
    k: int = 0
    n: int = 0

    def decide(self, k: int, n: int) -> str | None:
        """The reason to stop the series after k of n, or None: it goes on."""
        k, n = k + self.k, n + self.n
        low, high = interval(k, n)
        known = (high - low) / 2 <= self.width or k == n >= ALWAYS
        return f"the rate is known: {describe(k, n)}" if known else None

    def describe(self) -> str:
        earlier = f", {self.n} earlier runs included" if self.n else ""
        return f"until the rate is known to {self.width:g}, or shown {ALWAYS} of {ALWAYS}{earlier}"


@dataclass(frozen=True)
class Excluded:
    """A series of so many runs that, if none of them shows it, the rate without a mend is excluded.

    k, n  runs without it; mended_k, mended_n: earlier ones with it. most: the largest number of runs.
    """

    k: int
    n: int
    mended_k: int = 0
    mended_n: int = 0
    most: int = 20

    def decide(self, k: int, n: int) -> str | None:
        """The reason to stop the series after k of n, or None: it goes on."""
        if n < self.runs:
            return None
        chance = less_often(self.k, self.n, self.mended_k + k, self.mended_n + n)
        told = "excluded" if chance <= ERROR else "not excluded"
        return f"the rate without the mend, {self.k} of {self.n}, is {told} (Fisher's exact test: {chance:.3f})"

    @property
    def runs(self) -> int:
        """The number of runs that it takes; 0: the known runs are enough."""
        for more in range(self.most):
            if less_often(self.k, self.n, self.mended_k, self.mended_n + more) <= ERROR:
                return more
        return self.most

    def describe(self) -> str:
        earlier = f", {self.mended_n} earlier runs included" if self.mended_n else ""
        return (
            f"{self.runs} run{'s' if self.runs != 1 else ''}, as many as exclude {self.k} of {self.n} if none shows it"
            f"{earlier},"
        )


StoppingRule = Fixed | Sequential | Within | Excluded
