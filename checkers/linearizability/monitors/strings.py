"""A key with put, append and get, where no two ops put or append the same: the reads reveal the order.

What a get shows is cut into the tokens that ops put or appended. So it tells which put, and which appends behind it in
which order, made it: a *chain*, like that of swaps in a register (`registers`), with the same zones. All gets of one
chain must show beginnings of its longest string; no token stands in two chains, and a put only at the beginning. The
string of the beginning, "", begins the chain of the appends that no put precedes.

An append that no get shows happened where nobody looked: behind some chain, in front of the next put. It needs one
moment outside the forward zones, like a write that nobody reads; unknown ones are left out.

Applies where the tokens are all different, none is empty, and none begins with another (else cutting is ambiguous).
Keys of a store are many and short: plain Python takes half the time of the arrays of `registers` there.
Source: the study behind this checker; fuzzed against brute force and the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.monitors.base import Contradiction
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

NAME: Final = "put and append of unique tokens"


@dataclass(slots=True)
class _Chain:
    """Ops in the only order they can have. first: the earliest return; last: the latest call."""

    order: list[int] = field(default_factory=list)
    first: int = NEVER
    last: int = NONE

    def add(self, problem: Problem, group: Sequence[int]) -> None:
        """The ops that come next, among themselves in any order. Raises Contradiction where they cannot follow."""
        returns = min([problem.ret[op] for op in group])
        if returns < self.last:
            raise Contradiction
        self.first, self.last = min(self.first, returns), max(self.last, *[problem.call[op] for op in group])
        self.order += group


def unique_tokens(problem: Problem) -> Outcome | None:
    """Valid with a witness, invalid (without a position), or None where this does not apply."""
    tokens: dict[str, int] = {}
    gets: dict[str, list[int]] = {}
    for op in problem.ops:
        what = problem.what(op)
        if what.f == "get":
            gets.setdefault(what.value or "", []).append(op)
        elif not what.value or tokens.setdefault(what.value, op) != op:
            return None
    if any(longer.startswith(token) for token, longer in pairwise(sorted(tokens))):
        return None
    try:
        order = _in_order(_chains(problem, tokens, gets))
    except Contradiction:
        return Outcome(Verdict.INVALID, NAME, len(problem.events))
    return Outcome(Verdict.VALID, NAME, len(problem.events), witness=order)


def _chains(problem: Problem, tokens: Mapping[str, int], gets: Mapping[str, list[int]]) -> list[_Chain]:
    """All ops that matter. Raises Contradiction where the strings cannot be."""
    puts = {op for op in tokens.values() if problem.what(op).f == "put"}
    lengths = sorted({len(token) for token in tokens})
    shown_of: dict[int, list[str]] = {}
    for shown in sorted(gets, key=len, reverse=True):
        first = next(_cut(shown, lengths, tokens), (NONE, 0))[0]
        shown_of.setdefault(first if first in puts else NONE, []).append(shown)
    chains: list[_Chain] = []
    placed: set[int] = set()
    for head, seen in shown_of.items():
        # The initial value was there before everything.
        chain = _Chain(first=NONE) if head == NONE else _Chain()
        # Slices of each beginning would cost the square of a long string: their lengths tell them apart.
        at_length = {len(shown): shown for shown in seen}
        if not all(map(seen[0].startswith, seen)):
            raise Contradiction
        if "" in seen:
            chain.add(problem, gets[at_length.pop(0)])
        for op, end in _cut(seen[0], lengths, tokens):
            # A put begins its chain, an append follows something.
            if op in placed or (op in puts) != (op == head):
                raise Contradiction
            placed.add(op)
            chain.add(problem, [op])
            if end in at_length:
                chain.add(problem, gets[at_length.pop(end)])
        if at_length:
            raise Contradiction
        chains.append(chain)
    for op in tokens.values():
        if op not in placed and problem.ret[op] != NEVER:
            chains.append(_Chain([op], problem.ret[op], problem.call[op]))
    return chains


def _cut(text: str, lengths: Sequence[int], tokens: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """(op, end) of each token that the text consists of. Raises Contradiction where it does not."""
    at = 0
    while at < len(text):
        length = next((length for length in lengths if text[at : at + length] in tokens), None)
        if length is None:
            raise Contradiction
        op, at = tokens[text[at : at + length]], at + length
        yield op, at


def _in_order(chains: Sequence[_Chain]) -> list[int]:
    """All ops in an order that explains them. Raises Contradiction when two chains need the key at the same time."""
    forward = sorted((c for c in chains if c.first <= c.last), key=lambda c: c.first)
    if any(later.first <= earlier.last for earlier, later in pairwise(forward)):
        raise Contradiction
    # A backward zone goes to its beginning, or right behind the forward zone that holds it there.
    places: list[tuple[float, _Chain]] = [(c.first, c) for c in forward]
    at = 0
    for chain in sorted((c for c in chains if c.first > c.last), key=lambda c: c.last):
        while at < len(forward) and forward[at].last < chain.last:
            at += 1
        place: float = chain.last
        if at < len(forward) and forward[at].first < chain.last:
            if forward[at].last > chain.first:
                raise Contradiction
            place = forward[at].last + 0.5
        places.append((place, chain))
    places.sort(key=lambda placed: placed[0])
    return [op for _, chain in places for op in chain.order]
