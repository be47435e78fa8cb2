"""Chains of ops that belong together, and whether they fit beside each other on one object.

A *chain* is groups of ops in the only order they can have: a write and the reads of what it wrote, then perhaps a cas
or an append to that, and the reads of what it left. With `first` = the earliest return in it and `last` = its latest
call:

* `first < last`: at `first` the chain has begun, at `last` it is not over, so the object is its own all through
  [first, last] (a *forward* zone);
* otherwise every op of the chain is open all through [last, first], and the chain fits at any one point there
  (a *backward* zone).

No two forward zones may overlap, and no backward one may lie inside a forward one; then all fit.

Source: Gibbons and Korach, "Testing shared memories" (1997), for a write and its reads; the chains are ours, fuzzed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER


@dataclass(slots=True)
class Chain:
    """Groups of ops in the only order they can have; ops of a group (reads of one value) in any."""

    groups: list[list[int]]
    first: float = NEVER
    last: float = -1
    running: float = -1

    @property
    def forward(self) -> bool:
        return self.first <= self.last

    def add(self, problem: Problem, group: list[int]) -> bool:
        """One group more, in which ops are in any order; whether it can follow the others."""
        if not group:
            return True
        returns = min(problem.ret[op] for op in group)
        calls = max(problem.call[op] for op in group)
        if returns < self.running:
            return False
        self.running = max(self.running, calls)
        self.first, self.last = min(self.first, returns), max(self.last, calls)
        self.groups.append(sorted(group, key=lambda op: problem.call[op]))
        return True


def in_order(chains: list[Chain]) -> list[int] | None:
    """All ops in an order that explains them, or None when two chains need the register at the same time."""
    forward = sorted((c for c in chains if c.forward), key=lambda c: c.first)
    for earlier, later in pairwise(forward):
        if later.first <= earlier.last:
            return None
    # A backward zone goes to its beginning, or right behind the forward zone that holds it there.
    places = [(c.first, c) for c in forward]
    at = 0
    for chain in sorted((c for c in chains if not c.forward), key=lambda c: c.last):
        while at < len(forward) and forward[at].last < chain.last:
            at += 1
        place = chain.last
        if at < len(forward) and forward[at].first < chain.last:
            if forward[at].last > chain.first:
                return None
            place = forward[at].last + 0.5
        places.append((place, chain))
    places.sort(key=lambda p: p[0])
    return [op for _, chain in places for group in chain.groups for op in group]
