# SPDX-License-Identifier: Apache-2.0
"""The search for a smaller plan: which cuts are tried, by what test each is accepted, and when it ends.

A cut is accepted or refused by Wald's sequential test (1945) of "as often as now" against "gone". A wrong acceptance
ruins everything behind it, a wrong refusal only costs size, so their chances are 1 % and 20 %. The rate is that of all
runs of the plan and of the cuts that were accepted. Delta debugging: Zeller and Hildebrandt (2002); of its
probabilistic relatives only the order is taken: suffixes first, then single strikes, then all else, until nothing is
accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from harness.plan.plan import Plan, PlanError
from harness.series.limits import Spent
from harness.shrink import cuts
from harness.shrink.cuts import Cut

WRONG_CUT: Final = 0.01
"""The chance that a cut is accepted with which the anomaly is gone."""
LOST_CUT: Final = 0.2
"""The chance that a cut is refused with which it shows as often as before."""
CONFIRM: Final = 4
"""Runs of the plan as it is."""
LEAST: Final = 0.3
"""A rate below which a plan is amplified, and nothing is shrunk."""
MOST_RATE: Final = 0.9
VERIFY: Final = 14
"""Runs of the result."""

Trial = Callable[[Plan], bool | None]
"""Runs a plan once, with a new seed: True if the anomaly showed, None if the run tried nothing."""


@dataclass(frozen=True)
class CutTest:
    """A rate of `now` or more against one of `gone` or less."""

    now: float

    @property
    def gone(self) -> float:
        return self.now / 4.5

    def decide(self, shown: int, runs: int) -> bool | None:
        """True: as often as now. False: gone. None: not decided yet."""
        ratio = shown * math.log(self.now / self.gone)
        ratio += (runs - shown) * math.log((1 - self.now) / (1 - self.gone))
        if ratio >= math.log((1 - LOST_CUT) / WRONG_CUT):
            return True
        return False if ratio <= math.log(LOST_CUT / (1 - WRONG_CUT)) else None


@dataclass(frozen=True)
class Tried:
    """A cut and its runs. accepted: None: the runs were used up before."""

    name: str
    kind: str
    shown: int
    runs: int
    accepted: bool | None


@dataclass
class Account:
    """The account of a search.

    plan      the smallest plan that was accepted. tried: all cuts in their order.
    first     (shown, runs) of the plan at the begin. last: of the result, on new seeds; (0, 0): it was not verified.
    ended     the reason for the end, in words. nothing: tries that did not count, for a run tried nothing.
    """

    plan: Plan
    tried: list[Tried] = field(default_factory=list)
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (0, 0)
    ended: str = ""
    nothing: int = 0

    @property
    def runs(self) -> int:
        """All runs that counted."""
        return self.first[1] + self.last[1] + sum(one.runs for one in self.tried)


def shrink(plan: Plan, trial: Trial, tell: Callable[[Tried], None] = lambda tried: None) -> Account:
    """Shrinks a plan with explicit strikes. `trial` may raise Spent: the account then has what was found before."""
    search = _Search(Account(plan), trial, tell)
    try:
        search.run()
    except Spent as end:
        search.account.ended = str(end)
    return search.account


NOTHING_TRIED: Final = 5
"""So many runs of a cut in a row that tried nothing refuse it."""


class _Search:
    def __init__(self, account: Account, trial: Trial, tell: Callable[[Tried], None]) -> None:
        self.account, self._trial, self._tell = account, trial, tell
        self.rate = 0.0
        self._seen = 0, 0
        self._refused: set[str] = set()

    def run(self) -> None:
        shown, runs = self._series(self.account.plan, CONFIRM)
        self.account.first = shown, runs
        if shown < runs / 2:
            bigger = cuts.amplified(self.account.plan)
            more, tried = self._series(bigger, 2 * CONFIRM)
            self._note(
                Tried("all strikes twice", "amplified", more, tried, more / max(tried, 1) > shown / max(runs, 1))
            )
            if more < LEAST * tried or not tried:
                self.account.ended = (
                    f"it shows too seldom: {shown} of {runs}, and with all strikes twice {more} of {tried}"
                )
                return
            self.account.plan, shown, runs = bigger, more, tried
        if not runs:
            self.account.ended = "no run tried it"
            return
        self._seen = shown, runs
        self.rate = _rate(*self._seen)
        while self._pass():
            pass
        # A good cut is refused in one of five tries; strikes are worth a second one.
        self._refused.clear()
        while self._any(cuts.without_one(self.account.plan)):
            pass
        self.account.ended = "no further cut was accepted"
        self.account.last = self._series(self.account.plan, VERIFY)

    def _pass(self) -> bool:
        """Tries every kind of cut, from its begin after one was accepted. True if any was."""
        before = self.account.plan
        for kind in (cuts.suffixes, cuts.without_one, cuts.simpler, cuts.shorter):
            while self._any(kind(self.account.plan)):
                pass
        return self.account.plan != before

    def _any(self, offered: Iterator[Cut]) -> bool:
        for cut in offered:
            digest = cut.plan.digest
            if digest in self._refused:
                continue
            if self._accepts(cut):
                self.account.plan = cut.plan
                return True
            self._refused.add(digest)
        return False

    def _accepts(self, cut: Cut) -> bool:
        test = CutTest(self.rate)
        shown = runs = wasted = 0
        decision: bool | None = None
        try:
            while decision is None and wasted < NOTHING_TRIED:
                seen = self._trial(cut.plan)
                if seen is None:
                    wasted += 1
                    continue
                shown, runs, wasted = shown + seen, runs + 1, 0
                decision = test.decide(shown, runs)
        except Spent:
            self._note(Tried(cut.name, cut.kind, shown, runs, None))
            raise
        except PlanError as problem:  # a workload may need more clients or nodes than are left
            self._note(Tried(f"{cut.name}: {problem}", cut.kind, shown, runs, False))
            return False
        self.account.nothing += wasted
        self._note(Tried(cut.name, cut.kind, shown, runs, decision is True))
        if decision:
            # (Of a lucky series alone the rate would be too high, and the next good cut refused.)
            self._seen = self._seen[0] + shown, self._seen[1] + runs
            self.rate = _rate(*self._seen)
        return decision is True

    def _series(self, plan: Plan, runs: int) -> tuple[int, int]:
        seen = [self._trial(plan) for _ in range(runs)]
        self.account.nothing += seen.count(None)
        return seen.count(True), len(seen) - seen.count(None)

    def _note(self, tried: Tried) -> None:
        self.account.tried.append(tried)
        self._tell(tried)


def _rate(shown: int, runs: int) -> float:
    """The rate for the next test: a little below what was seen, and within what a test can decide."""
    return min(MOST_RATE, max(LEAST, (shown + 0.5) / (runs + 1)))
