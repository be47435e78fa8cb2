# SPDX-License-Identifier: Apache-2.0
"""A search among builds in their order, with runs that may fail to show what is there: a posterior over where it is.

A defect is in all builds from one on, up to another one, or in none. It shows in a share of the runs of such a build
that nobody knows (Jeffreys' prior, as a grid), and in almost none of the others. Each step runs the build whose result
is expected to decide most (the smallest expected entropy, as in noisy binary search: Horstein 1963; Waeber, Frazier and
Henderson 2013), so it ends after some log2(builds) / capacity runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from harness.series.limits import Spent

ELSEWHERE: Final = 0.01
"""The chance that a run of a build without the defect shows the same signature."""
SURE: Final = 0.97
"""The share of the posterior at which the search ends."""
_GRID: Final = 24

Floats = npt.NDArray[np.float64]

Trial = Callable[[int], bool | None]
"""Runs a build once: True if it showed, None if the run tried nothing."""


@dataclass(frozen=True)
class Answer:
    """The builds that have the defect: from `first` up to `last`; None: none has it. chance: its posterior.

    by_build: the posterior chance that each build has it. counts: (shown, runs) of each.
    """

    first: int | None
    last: int | None
    chance: float
    by_build: Sequence[float]
    counts: Sequence[tuple[int, int]]

    @property
    def sure(self) -> bool:
        return self.chance >= SURE


class Posterior:
    """The chance of each interval of builds, and of none, for each rate."""

    def __init__(self, builds: int) -> None:
        if not 1 <= builds <= 500:
            raise ValueError(f"{builds} builds; 1 to 500 is right")
        spans = [(a, b) for a in range(builds) for b in range(a, builds)]
        self.builds, self.spans = builds, [*spans, None]
        inside = np.zeros((len(self.spans), builds), np.bool_)
        for number, (a, b) in enumerate(spans):
            inside[number, a : b + 1] = True
        self.inside = inside
        # Jeffreys' prior of a rate is Beta(1/2, 1/2): its quantiles are as likely as one another.
        quantiles = (np.arange(_GRID) + 0.5) / _GRID
        self.rates: Floats = np.clip(np.sin(np.pi * quantiles / 2) ** 2, 0.03, 0.995)
        # A defect that is there at all is in one interval as likely as in another; in none with one chance in ten.
        prior = np.full(len(self.spans), 0.9 / max(1, len(spans)))
        prior[-1] = 0.1
        self.log: Floats = np.log(prior)[:, None] - math.log(_GRID) + np.zeros(_GRID)[None, :]
        self.counts = [(0, 0)] * builds

    def _chances(self, build: int) -> Floats:
        """The chance that a run of a build shows it, by hypothesis and rate."""
        return np.where(self.inside[:, build][:, None], self.rates[None, :], ELSEWHERE)

    def add(self, build: int, shown: bool) -> None:
        """Takes the result of one run."""
        chance = self._chances(build)
        self.log += np.log(chance if shown else 1 - chance)
        self.log -= _log_sum(self.log)
        before = self.counts[build]
        self.counts[build] = before[0] + shown, before[1] + 1

    def next_build(self) -> int:
        """The build whose run is expected to leave the least doubt about the interval."""
        weights = np.exp(self.log)
        best, least = 0, math.inf
        for build in range(self.builds):
            chance = self._chances(build)
            expected = 0.0
            for likelihood in (chance, 1 - chance):
                joint = (weights * likelihood).sum(axis=1)
                total = float(joint.sum())
                if total > 0:
                    expected += total * _entropy(joint / total)
            if expected < least - 1e-12:
                best, least = build, expected
        return best

    def answer(self) -> Answer:
        """The interval with the largest chance."""
        weights = np.exp(self.log).sum(axis=1)
        weights /= weights.sum()
        best = int(weights.argmax())
        span = self.spans[best]
        by_build = (weights[:, None] * self.inside).sum(axis=0)
        first, last = span if span is not None else (None, None)
        return Answer(first, last, float(weights[best]), by_build.tolist(), list(self.counts))


def bisect(builds: int, trial: Trial, most: int, tell: Callable[[int, bool | None], None] = lambda *_: None) -> Answer:
    """Runs builds until the answer is sure, `most` runs were made, or `trial` raises Spent. A run that tried nothing is
    one of them.
    """
    posterior = Posterior(builds)
    for _ in range(most):
        if posterior.answer().sure:
            break
        build = posterior.next_build()
        try:
            shown = trial(build)
        except Spent:
            break
        tell(build, shown)
        if shown is not None:
            posterior.add(build, shown)
    return posterior.answer()


def _entropy(p: Floats) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log2(positive)).sum())


def _log_sum(log: Floats) -> float:
    most = float(log.max())
    return most + math.log(float(np.exp(log - most).sum()))
