# SPDX-License-Identifier: Apache-2.0
"""CEGAR: counts unknown ops as coarsely as possible, so that a history with many of them is refuted quickly.

Each kind of unknown op has its own counter in the complete search, and the ways to use them multiply. Here they are
free at first: any of them may happen any number of times. That allows more than really happened, so `invalid` is a
proof. If orders are left, one of them is examined: kinds that it used more often than they were called until then get a
counter, at first one for all kinds that leave the same state ("so many writes of 3 and cas to 3, in all"); if that is
not enough, one each. An order that uses nothing too often is a witness, so `valid` is a proof, too.

Source: Clarke, Grumberg, Jha, Lu, Veith, "Counterexample-guided abstraction refinement" (2000); the counters are new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from checkers.linearizability.budget import Meter
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

if TYPE_CHECKING:
    from checkers.linearizability.history.arrays import Dense

FREE: Final = -1
"""Instead of a group: this kind is not counted."""

Groups = Sequence[int]
"""Per kind, the kind whose counter it shares, or FREE."""

Use = tuple[int, int]
"""An unknown op in an order: its kind, and the position of the event up to which it must have been called."""

Abstract = Callable[[Groups, Meter], tuple[Outcome, Sequence[Use]]]
"""A search with these counters: `valid` with the unknown ops of one order, in order, used any number of times."""


def refine(search: Abstract, called: Mapping[int, Sequence[int]], group: Groups, meter: Meter) -> Outcome:
    """Invalid, valid (with a witness), or unknown if the meter ends it.

    called: per kind, the positions at which unknown ops of it were called. group: from `by_target`, one entry a kind.
    """
    groups: list[int] = [FREE] * len(group)
    while True:
        outcome, uses = search(groups, meter)
        if outcome.verdict != Verdict.VALID:
            return outcome
        too_often = overdrawn(uses, called)
        if not too_often:
            return outcome
        groups = _tighter(groups, too_often, group)


def by_target(dense: Dense | None, kinds: int) -> Groups:
    """One group for all kinds that leave the same state, and one each for those that may leave several.

    Without a closed table the states are unknown: one each.
    """
    if dense is None:
        return range(kinds)
    steps = dense.step
    most = steps.max(axis=0)
    single = ((steps < 0) | (steps == most)).all(axis=0)
    first: dict[int, int] = {}
    return [first.setdefault(int(most[kind]), kind) if single[kind] else kind for kind in range(kinds)]


def overdrawn(uses: Sequence[Use], called: Mapping[int, Sequence[int]]) -> set[int]:
    """The kinds used more often than they had been called."""
    count: dict[int, int] = {}
    too_often = set()
    for kind, position in uses:
        used = count[kind] = count.get(kind, 0) + 1
        if used > len(called[kind]) or called[kind][used - 1] > position:
            too_often.add(kind)
    return too_often


def _tighter(groups: Sequence[int], too_often: set[int], group: Groups) -> list[int]:
    """Free kinds are counted with their group, those of a group one by one."""
    now_together = {group[kind] for kind in too_often if groups[kind] == FREE}
    now_alone = {groups[kind] for kind in too_often if groups[kind] != FREE}
    return [
        kind if mine in now_alone else group[kind] if mine == FREE and group[kind] in now_together else mine
        for kind, mine in enumerate(groups)
    ]
