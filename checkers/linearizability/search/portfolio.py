# SPDX-License-Identifier: Apache-2.0
"""The portfolio: the searches, their order, and their limits of steps. One table for plain and compiled code.

No search is best at everything. WGL goes depth first, and finds an order if many exist. Just-in-time linearization
keeps all configurations, and is complete. CEGAR counts unknown ops coarsely, and refutes histories with many of them.
State flow finds states that many simultaneous ops cannot lead to. Small tries come first, so that an easy history is
cheap; then the complete searches and WGL continue in rounds, each with `GROWTH` times the steps of the one before,
until all is used up. So unsuccessful tries are a small part of the whole.

The figures are those of the ablation (`python -m benchmarks.checker.ablation`, whole table in docs/checking.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

WGL: Final = "wgl"
JIT: Final = "just-in-time linearization"
CEGAR: Final = "cegar"
STATE_FLOW: Final = "state flow"

GROWTH: Final = 4


class Stage(NamedTuple):
    """One try of a search, with `base + per_event * events` steps.

    unknown  only for histories with ops of unknown outcome (True), or without them (False).
    up_to    only for histories of so many events.
    rounds   tried again in each round.
    """

    search: str
    base: int
    per_event: int
    unknown: bool | None = None
    up_to: int | None = None
    rounds: bool = False

    def steps(self, events: int, unknown: bool) -> int | None:
        """The steps of this stage; None: it is not for such a history."""
        if self.unknown not in (None, unknown) or (self.up_to is not None and events > self.up_to):
            return None
        return self.base + self.per_event * events


PORTFOLIO: Final[Sequence[Stage]] = (
    Stage(WGL, 1_000, 80, unknown=True),
    Stage(WGL, 0, 4, unknown=False, up_to=10_000),
    Stage(JIT, 1_000, 5, unknown=True),
    Stage(JIT, 1_000, 20, unknown=False),
    Stage(CEGAR, 20_000, 100, unknown=True, rounds=True),
    Stage(WGL, 20_000, 100, rounds=True),
    Stage(JIT, 20_000, 100, rounds=True),
    Stage(STATE_FLOW, 20_000, 10),
)

THOROUGH: Final = [stage for stage in PORTFOLIO if stage.base >= 20_000]
"""The stages without the small tries, for histories on which these gave up already."""


def schedule(portfolio: Sequence[Stage], events: int, allowed: int, unknown: bool) -> Iterator[tuple[str, int]]:
    """Yields (search, steps) for a history of so many events; all searches together may take `allowed` steps.

    The round in which each search may take all of them is the last one: a search that ends then for another reason (its
    memory) would do so again.
    """
    tries = [(stage, stage.steps(events, unknown)) for stage in portfolio]
    scale = 1
    last = False
    while not last:
        last = True
        for stage, steps in tries:
            if steps is not None and (stage.rounds or scale == 1):
                yield stage.search, scale * steps
                last = last and scale * steps >= allowed
        scale *= GROWTH
