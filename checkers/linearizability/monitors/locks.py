# SPDX-License-Identifier: Apache-2.0
"""A mutex that does not know its holder, in n log n: acquires and releases alternate, without further rules.

An op is placed as late as possible, at its return. If the state forbids it, an open op of the other kind goes first:
the one that returns first, because the others can wait longer; unknown ones can wait for ever. To place ops earlier
would be wrong, because it is not known yet which of them are needed in between.

A try that got the lock is an acquire, and so is one of unknown outcome: if the lock is held, it does nothing. A try
that was refused saw the lock held: no rule applies to that.

Fuzzed against brute force; owned and fenced locks are other models.
"""

from __future__ import annotations

import heapq
from typing import Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.models.locks import refused
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

NAME: Final = "mutex by deadlines"


def mutex_by_deadlines(problem: Problem) -> Outcome | None:
    """Valid with a witness, or invalid with the earliest proof. None if a try was refused."""
    kinds = problem.table.kinds
    if any(refused(kinds[kind]) for kind in set(problem.kind)):
        return None
    release = [kind.f == "release" for kind in kinds]
    waiting: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])  # open acquires and releases, by return
    placed = [False] * len(problem.kind)
    order: list[int] = []
    held = False
    for position, event in enumerate(problem.events):
        op = event >> 1
        frees = release[problem.kind[op]]
        if not event & 1:
            heapq.heappush(waiting[frees], (problem.ret[op], op))
            continue
        if placed[op]:
            continue
        if frees != held:
            others = waiting[held]
            while others and placed[others[0][1]]:
                heapq.heappop(others)
            if not others:
                return Outcome(Verdict.INVALID, NAME, len(problem.events), position)
            _, first = heapq.heappop(others)
            placed[first] = True
            order.append(first)
        placed[op] = True
        order.append(op)
        held = not frees
    return Outcome(Verdict.VALID, NAME, len(problem.events), witness=order)
