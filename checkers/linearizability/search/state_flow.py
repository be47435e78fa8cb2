# SPDX-License-Identifier: Apache-2.0
"""Entries and exits: the states that many simultaneous ops can lead to, in any order.

Between two moments at which no mutator is open, every state is entered as often as it is left, except the first and the
last one. A cas from 1 to 2 leaves 1 and enters 2; a blind write enters its value, and leaves the state before; an
unknown op may have entered its state, or not. That is enough to see that forty cas at a time, which together lead back
to 0, cannot have led to 3. It ignores everything else, so it never answers `valid`.

Source: the degrees of an Eulerian trail; their use to refute histories is new, fuzzed against brute force.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from checkers.linearizability.budget import Meter, Spent
from checkers.linearizability.closed_table import enumerate_states, worth
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import BLIND, NEVER, PURE
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.search.portfolio import STATE_FLOW
from results.verdict import Verdict

if TYPE_CHECKING:
    from checkers.linearizability.history.arrays import Dense

_MOST_STATES: Final = 256

_ANY: Final = -1
"""Instead of a state: it may leave, or be possible in, several."""


def state_flow(problem: Problem, meter: Meter) -> Outcome:
    """Invalid or unknown. Only for few states, with a table that can be closed."""
    dense = enumerate_states(problem.table, max_cells=worth(len(problem.events)))
    if dense is None or len(dense.step) > _MOST_STATES:
        return Outcome(Verdict.UNKNOWN, STATE_FLOW, 0, ran_out="the states are too many to be counted one by one")
    flows = _Flows(dense)
    begin = open_mutators = 0
    try:
        for position, event in enumerate(problem.events):
            op, kind = event >> 1, problem.kind[event >> 1]
            meter.spend(1)
            if problem.ret[op] == NEVER:
                flows.perhaps(kind)
            elif not event & 1:
                open_mutators += not flows.pure[kind]
            else:
                if not flows.pure[kind]:
                    open_mutators -= 1
                    flows.done(kind)
                elif problem.call[op] >= begin:
                    flows.seen.add(kind)
                if open_mutators == 0:
                    meter.spend(len(dense.step))
                    before, begin = flows.possible, position + 1
                    flows.possible = flows.after()
                    flows.begin()
                    if not flows.possible:
                        return Outcome(Verdict.INVALID, STATE_FLOW, meter.work, position, sorted(before))
    except Spent as limit:
        return Outcome(Verdict.UNKNOWN, STATE_FLOW, meter.work, ran_out=str(limit))
    return Outcome(Verdict.UNKNOWN, STATE_FLOW, meter.work, ran_out="entries and exits balance")


class _Flows:
    """One stretch of time after the other. possible: states at its beginning. seen: kinds of pure ops within it."""

    def __init__(self, dense: Dense) -> None:
        self.size = len(dense.step)
        self.pure: list[bool] = (dense.flags & PURE != 0).tolist()
        self.legal = [
            frozenset(dense.legal[dense.first[k] : dense.first[k + 1]].tolist()) for k in range(len(self.pure))
        ]
        self.target = [_single(column[column >= 0].tolist()) for column in dense.step.T]
        self.source = [
            _ANY if blind else _single(legal)
            for blind, legal in zip((dense.flags & BLIND != 0).tolist(), self.legal, strict=True)
        ]
        self.possible: Sequence[int] = [0]
        self.tokens = [0] * self.size  # unknown ops that may enter a state
        self.loose = False  # an unknown op leads to an unknown state: no stretch from here on proves anything
        self.begin()

    def begin(self) -> None:
        """Begins a stretch of which nothing is known yet."""
        self.net = [0] * self.size
        self.entered: set[int] = set()
        self.exited: set[int] = set()
        self.seen: set[int] = set()
        self.anything = False  # a step to an unknown state: this stretch proves nothing

    def perhaps(self, kind: int) -> None:
        """Adds an unknown op that was called."""
        if self.pure[kind]:
            return
        if self.target[kind] == _ANY:
            self.loose = True
        else:
            self.tokens[self.target[kind]] += 1

    def done(self, kind: int) -> None:
        """Adds a mutator that has happened in this stretch."""
        if self.target[kind] == _ANY:
            self.anything = True
            return
        self.net[self.target[kind]] += 1
        self.entered.add(self.target[kind])
        if self.source[kind] != _ANY:
            self.net[self.source[kind]] -= 1
            self.exited.add(self.source[kind])

    def after(self) -> Sequence[int]:
        """The states that are possible at the end of the stretch."""
        if self.anything or self.loose:
            return range(self.size)
        spare = [net + token for net, token in zip(self.net, self.tokens, strict=True)]
        within = self.entered.union(state for state, token in enumerate(self.tokens) if token)
        missing = [legal for legal in map(self.legal.__getitem__, self.seen) if not legal & within]
        # The beginning may be left once more than it is entered, the end entered once more than it is left.
        left = [state for state, more in enumerate(spare) if more < 0]
        ends = [state for state, more in enumerate(spare) if more > 0]
        after: set[int] = set()
        for first in self.possible:
            if all(first in legal for legal in missing) and (not left or (left == [first] and spare[first] == -1)):
                after.update(ends)
                # Every sequence of ops leaves the beginning first, so that this is the end only if a way back exists.
                if not left and (not self.entered or first in self.exited or within - self.entered):
                    after.add(first)
        return sorted(after)


def _single(states: Iterable[int]) -> int:
    """The only one of them, or _ANY."""
    different = set(states)
    return different.pop() if len(different) == 1 else _ANY
