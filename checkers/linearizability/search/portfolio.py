"""The portfolio: which search is tried, in which order, with how many steps. One table for both editions.

No search is best at everything. WGL goes depth first, and finds an order where there are many. Just-in-time
linearization keeps all configurations, and is complete. CEGAR counts unknown ops coarsely, and refutes what drowns in
them. Small tries come first, so that an easy history is cheap; what they cost is little beside what a hard one takes.

docs/checking.md shows what each stage earns: what stays undecided without it (`python -m benchmarks.checker.ablation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

WGL: Final = "wgl"
JIT: Final = "just-in-time linearization"
CEGAR: Final = "cegar"
STATE_FLOW: Final = "state flow"


class Steps(NamedTuple):
    """How many steps a stage may take: `base + per_event * events`; or one in `share` of all that are allowed."""

    base: int = 0
    per_event: int = 0
    share: int = 0

    def of(self, events: int, allowed: int) -> int:
        return allowed // self.share if self.share else self.base + self.per_event * events


class Stage(NamedTuple):
    """compiled, plain  steps in each edition; None: not there. unknown: only where an op of unknown outcome is."""

    search: str
    compiled: Steps | None
    plain: Steps | None
    unknown: bool = False


PORTFOLIO: Final[Sequence[Stage]] = (
    Stage(WGL, Steps(500, 80), Steps(500, 20), unknown=True),
    Stage(JIT, Steps(2_000, 10), Steps(2_000, 20)),
    Stage(CEGAR, Steps(20_000, 100), Steps(2_000, 20), unknown=True),
    Stage(WGL, Steps(2_000, 60), Steps(0, 200)),
    Stage(STATE_FLOW, Steps(20_000, 10), Steps(20_000, 10)),
    Stage(JIT, Steps(20_000, 40), Steps(20_000, 20)),
    Stage(WGL, Steps(0, 400), None),
    Stage(CEGAR, Steps(200_000, 400), None, unknown=True),
    Stage(JIT, Steps(share=2), Steps(share=2)),
    Stage(WGL, Steps(share=8), Steps(share=8)),
    Stage(CEGAR, Steps(share=4), Steps(share=8), unknown=True),
    Stage(JIT, Steps(share=1), Steps(share=1)),
)


def schedule(
    portfolio: Sequence[Stage], events: int, allowed: int, *, unknown: bool, compiled: bool
) -> Iterator[tuple[str, int]]:
    """(search, steps) for a history of so many events, of which all stages together may take `allowed` steps."""
    for stage in portfolio:
        steps = stage.compiled if compiled else stage.plain
        if steps is not None and (unknown or not stage.unknown):
            yield stage.search, steps.of(events, allowed)
