# SPDX-License-Identifier: Apache-2.0
"""The outcome of an algorithm for a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from checkers.linearizability.history.events import NONE
from results.verdict import Verdict

SHOWN: Final = 8
"""The largest number of surviving paths that an outcome names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Ops and positions are the problem's own numbers.

    position   a return that proves it (invalid), the event reached (unknown), or NONE. Not always the earliest one:
               `explain.earliest` finds that, for all algorithms.
    states     states possible just before `position`; of `state_flow`, those at the last time that it knew them.
    survivors  (state, last op linearized or NONE) of the paths that lived until `position`; a few.
    witness    order of ops that explains a valid history.
    core       ops that contradict each other, if the algorithm knows a few; not always the fewest.
    ran_out    the limit that ended it, if unknown.
    passed     an event up to which an order was found, so that no return in front of it proves a violation; or NONE.
    """

    verdict: Verdict
    algorithm: str
    work: int
    position: int = NONE
    states: Sequence[int] = ()
    survivors: Sequence[tuple[int, int]] = ()
    witness: Sequence[int] | None = None
    core: Sequence[int] = ()
    ran_out: str = ""
    passed: int = NONE
