"""A set that only grows: reads of all its elements must form a chain of inclusions.

The distinct sets that were read, by size, each hold the one before. So the ops stand in groups: the adds of what the
first read shows, the reads of it, the adds of what the next one shows, and so on; adds that no read shows come last,
unknown ones of them not at all. Groups follow one another: no op may return before one of an earlier group is called.

Applies where no element is added twice. Source: the study behind this checker; fuzzed against brute force.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from checkers.linearizability.encode import NEVER, Problem
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

NAME: Final = "grow-only set by inclusion"


def growing_set(problem: Problem) -> Outcome | None:
    """Valid with a witness, invalid (with the ops to blame), or None where an element is added twice."""
    adds: dict[Hashable, int] = {}
    reads: dict[frozenset[Hashable], list[int]] = {}
    invalid = Outcome(Verdict.INVALID, NAME, len(problem.events))
    sizes = 0
    for op in problem.ops:
        what = problem.what(op)
        if what.f == "add":
            if adds.setdefault(what.value, op) != op:
                return None
            continue
        shown = frozenset(what.value)
        sizes += len(shown)
        if len(shown) != len(what.value):
            return _because(invalid, op)
        reads.setdefault(shown, []).append(op)
    groups: list[list[int]] = []
    before: frozenset[Hashable] = frozenset()
    witness = NEVER
    for shown in sorted(reads, key=len):
        if not before <= shown:
            return _because(invalid, witness, reads[shown][0])
        new = shown - before
        if not new <= adds.keys():
            return _because(invalid, reads[shown][0])
        groups += [[adds.pop(element) for element in new], reads[shown]]
        before, witness = shown, reads[shown][0]
    groups.append([op for op in adds.values() if problem.ret[op] != NEVER])
    return _in_turn(problem, groups, invalid)


def _in_turn(problem: Problem, groups: list[list[int]], invalid: Outcome) -> Outcome:
    """Do the groups fit one behind the other?"""
    latest, blamed = -1, NEVER
    order: list[int] = []
    for group in groups:
        for op in group:
            if problem.ret[op] != NEVER and problem.ret[op] < latest:
                return _because(invalid, op, blamed)
        for op in group:
            if problem.call[op] > latest:
                latest, blamed = problem.call[op], op
        order += sorted(group, key=lambda op: problem.call[op])
    return Outcome(Verdict.VALID, NAME, invalid.work, witness=order)


def _because(invalid: Outcome, *ops: int) -> Outcome:
    return Outcome(invalid.verdict, NAME, invalid.work, core=[op for op in ops if op != NEVER])
