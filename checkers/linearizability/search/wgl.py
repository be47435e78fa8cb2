# SPDX-License-Identifier: Apache-2.0
"""WGL, depth first: quickly finds one good order if many exist (Wing and Gong 1993, Lowe 2017).

It follows one order as far as possible, and steps back if an op had to return before it could be placed. Pairs of (ops
linearized, state) that failed are never tried again. Unknown ops are placed last among the candidates of a moment, the
first call of each kind for all of its kind. It is good for valid histories with many unknown ops, where the complete
search is slow, and hopeless for invalid ones; so it never answers `invalid`.
"""

from __future__ import annotations

from collections.abc import Iterator

from checkers.linearizability.budget import Meter, Spent
from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import ILLEGAL, NEVER
from checkers.linearizability.outcome import Outcome
from checkers.linearizability.search.portfolio import WGL
from results.verdict import Verdict

_ENTRY = 200
"""Bytes of a cache entry in CPython without its bit set."""


def wgl(problem: Problem, meter: Meter) -> Outcome:
    """Valid with a witness, or unknown with the position up to which an order was found."""
    search = _Search(problem, meter)
    try:
        witness = search.search()
    except Spent as limit:
        return Outcome(Verdict.UNKNOWN, WGL, meter.work, ran_out=str(limit), passed=search.reached)
    if witness is None:
        return Outcome(Verdict.UNKNOWN, WGL, meter.work, ran_out="every order tried, none found", passed=search.reached)
    return Outcome(Verdict.VALID, WGL, meter.work, witness=witness)


class _Search:
    """The events of completed ops as a doubly linked list (a linearized op is unlinked), unknown ops per kind."""

    def __init__(self, problem: Problem, meter: Meter) -> None:
        self.problem, self.meter = problem, meter
        self.unknown = problem.unknown
        self.used = dict.fromkeys(self.unknown, 0)
        size = len(problem.events)
        self.head, self.reached = size, 0
        self.following = [size] * (size + 1)
        self.preceding = [size] * (size + 1)
        last = size
        for position, event in enumerate(problem.events):
            if problem.ret[event >> 1] != NEVER:
                self.following[last], self.preceding[position] = position, last
                last = position
        self.following[last], self.preceding[size] = size, last

    def search(self) -> list[int] | None:
        problem, meter = self.problem, self.meter
        order: list[int] = []
        state, linearized = 0, 0
        tried: set[tuple[int, int]] = set()
        size_of_entry = _ENTRY + len(problem.kind) // 8
        # Per placed op: the state before it, and the candidates not yet tried there.
        stack: list[tuple[int, Iterator[int]]] = []
        candidates = iter(self._candidates(state))
        while self.following[self.head] != self.head:
            op = next(candidates, None)
            if op is None:
                if not stack:
                    return None
                state, candidates = stack.pop()
                op = order.pop()
                linearized ^= 1 << op
                self._unplace(op)
                continue
            after = problem.table.step(state, problem.kind[op])
            reached = (linearized | 1 << op, after)
            meter.spend(1 + size_of_entry // 4096)
            if reached in tried:
                continue
            tried.add(reached)
            meter.hold(len(tried) * size_of_entry + problem.table.held)
            stack.append((state, candidates))
            order.append(op)
            linearized, state = reached
            self._place(op)
            candidates = iter(self._candidates(state))
        return order

    def _candidates(self, state: int) -> list[int]:
        """Ops that may come next: legal, and called before the first return that is still ahead."""
        problem, step = self.problem, self.problem.table.step
        found: list[int] = []
        position = self.following[self.head]
        while position != self.head and not problem.events[position] & 1:
            op = problem.events[position] >> 1
            kind = problem.kind[op]
            if step(state, kind) != ILLEGAL:
                if problem.table.pure[kind]:
                    return [op]
                found.append(op)
            position = self.following[position]
            self.meter.spend(1)
        self.reached = max(self.reached, position)
        for kind, ops in self.unknown.items():
            used = self.used[kind]
            if used < len(ops) and problem.call[ops[used]] < position and step(state, kind) not in (ILLEGAL, state):
                found.append(ops[used])
        self.meter.spend(1 + len(self.unknown))
        return found

    def _place(self, op: int) -> None:
        if self.problem.ret[op] == NEVER:
            self.used[self.problem.kind[op]] += 1
            return
        for position in (self.problem.call[op], self.problem.ret[op]):
            before, after = self.preceding[position], self.following[position]
            self.following[before], self.preceding[after] = after, before

    def _unplace(self, op: int) -> None:
        if self.problem.ret[op] == NEVER:
            self.used[self.problem.kind[op]] -= 1
            return
        for position in (self.problem.ret[op], self.problem.call[op]):
            before, after = self.preceding[position], self.following[position]
            self.following[before] = self.preceding[after] = position
