# SPDX-License-Identifier: Apache-2.0
"""A set that only grows: the reads of the whole set form a chain, which bounds the time of each add.

If ops only add, a set that was read holds every set that was read before it. So the distinct sets, by size, are a
chain, and an element was added after the last set of the chain that lacks it, and before the first that has it. This
gives the precedences between ops:

* each op that saw the set without an element (`read`, `contains` -> false) precedes every add of it;
* the first add of an element precedes each op that saw the set with it. The first is the add that was called first:
  moved to the place of another one that came first, it breaks no precedence, and later adds change nothing.

A history has an order exactly if each op has a point between its call and its return that respects these precedences:
the earliest such points are found in one pass. Adds of unknown outcome whose element no op saw did not happen.

A `remove` that returned before the first add of its element was called changes nothing, and neither does a remove of an
element that no op adds. With any other remove, an order in which no remove found its element is still an order; but
without such an order, this monitor has no answer.

Source: the study behind this checker, extended to repeated elements; fuzzed against brute force.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.monitors.refusal import Contradiction
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

NAME: Final = "set by inclusion"

_Bound = tuple[int, int]
"""A position among the events, and the op that has its earliest point there."""

_START: Final[_Bound] = (NONE, NONE)


def set_by_inclusion(problem: Problem) -> Outcome | None:
    """Valid with a witness, invalid (with the ops to blame), or None if a remove may matter."""
    history = _History(problem)
    try:
        order = _Points(problem).of(history)
    except Contradiction as found:
        if history.shrinks:
            return None
        core = [op for op in found.rows if op != NONE and problem.ret[op] != NEVER]
        return Outcome(Verdict.INVALID, NAME, history.work, core=core)
    return Outcome(Verdict.VALID, NAME, history.work, witness=order)


class _History:
    """The ops of a set, by their result for each element.

    adds     by element, in order of call.
    without  by element: ops that saw the set without it; a remove that supposedly found nothing.
    within   by element: ops that saw the set with it, other than a read of the whole.
    reads    by the set that was read; `twice` those that list an element twice.
    shrinks  True if a remove may have found its element.
    work     events, and elements that reads list.
    """

    def __init__(self, problem: Problem) -> None:
        self.adds: dict[Hashable, list[int]] = {}
        self.without: dict[Hashable, list[int]] = {}
        self.within: dict[Hashable, list[int]] = {}
        self.reads: dict[frozenset[Hashable], list[int]] = {}
        self.twice: list[int] = []
        self.work = len(problem.events)
        removes: list[int] = []
        for op in problem.ops:
            what = problem.what(op)
            if what.f == "add":
                self.adds.setdefault(what.value, []).append(op)
            elif what.f == "remove":
                removes.append(op)
            elif what.f == "contains":
                element, there = what.value
                (self.within if there else self.without).setdefault(element, []).append(op)
            else:
                shown = frozenset(what.value)
                self.work += len(what.value)
                self.reads.setdefault(shown, []).append(op)
                if len(shown) != len(what.value):
                    self.twice.append(op)
        self.shrinks = False
        for op in removes:
            element, returned = problem.what(op).value, problem.ret[op]
            added = self.adds.get(element)
            self.shrinks |= added is not None and problem.call[added[0]] < returned
            if returned != NEVER:
                self.without.setdefault(element, []).append(op)


class _Points:
    """The earliest point of each op, as the position of an event, and the op that made it so late."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.at: dict[int, int] = {}
        self.behind: dict[int, int] = {}

    def of(self, history: _History) -> Sequence[int]:
        """All ops that happened, in an order that explains them. Raises Contradiction."""
        if history.twice:
            raise Contradiction(history.twice[0])
        # An op comes into `at` after all that it has to follow, so that equal points keep this order.
        absent = {element: self._all(ops, _START) for element, ops in history.without.items()}
        floor = self._chain(history, absent)
        for element, ops in history.adds.items():
            known = [op for op in ops[1:] if self.problem.ret[op] != NEVER]
            if ops[0] in self.at:
                self._all(known, floor[element])
        for element, ops in history.within.items():
            if element not in history.adds:
                raise Contradiction(ops[0])
            first = history.adds[element][0]
            self._all(ops, (self.at[first], first))
        return sorted(self.at, key=self.at.__getitem__)

    def _chain(self, history: _History, absent: dict[Hashable, _Bound]) -> dict[Hashable, _Bound]:
        """Places the reads and the first add of each element. Returns, by element, the bound before all adds of it."""
        floor: dict[Hashable, _Bound] = {}
        read, filled = _START, _START
        before: frozenset[Hashable] = frozenset()
        previous = NONE
        for shown in sorted(history.reads, key=len):
            reads = history.reads[shown]
            if not before <= shown:
                raise Contradiction(previous, reads[0])
            new = shown - before
            if not new <= history.adds.keys():
                raise Contradiction(reads[0])
            for element in new:
                floor[element] = max(read, absent.get(element, _START))
                filled = max(filled, self._all(history.adds[element][:1], floor[element]))
            read = max(read, self._all(reads, filled))
            before, previous = shown, reads[0]
        for element, ops in history.adds.items():
            happened = element in history.within or any(self.problem.ret[op] != NEVER for op in ops)
            if element not in before and happened:
                floor[element] = max(read, absent.get(element, _START))
                self._all(ops[:1], floor[element])
        return floor

    def _all(self, ops: Sequence[int], after: _Bound) -> _Bound:
        """Places ops that follow `after`. Returns the latest point among them, with its op."""
        latest = _START
        for op in ops:
            called, returned = self.problem.call[op], self.problem.ret[op]
            self.at[op], self.behind[op] = (called, NONE) if called > after[0] else after
            if returned < self.at[op]:
                raise Contradiction(*self._path(op))
            latest = max(latest, (self.at[op], op))
        return latest

    def _path(self, op: int) -> list[int]:
        """The op and those that it has to follow, back to the one whose call is too late."""
        path = []
        while op != NONE:
            path.append(op)
            op = self.behind[op]
        return path
