"""The portfolio: which search is tried, in which order, with how many steps. One table for all editions.

No search is best at everything. WGL goes depth first, and finds an order where there are many. Just-in-time
linearization keeps all configurations, and is complete. CEGAR counts unknown ops coarsely, and refutes what drowns in
them. State flow sees what many ops at the same time cannot lead to. Small tries come first, so that an easy history is
cheap; then the complete searches and WGL go on in rounds, each with `GROWTH` times the steps of the one before, until
all is used up. So what was tried in vain is a small part of the whole.

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

    unknown  only where ops of unknown outcome are (True), or where none is (False).
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
        """None: this is not for such a history."""
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
"""Without the small tries, for what they gave up on already."""


def schedule(portfolio: Sequence[Stage], events: int, allowed: int, unknown: bool) -> Iterator[tuple[str, int]]:
    """(search, steps) for a history of so many events, of which all searches together may take `allowed` steps.

    The round in which each search may take all of them is the last one: what ends then for another reason (its memory)
    would end so again.
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
