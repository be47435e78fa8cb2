"""A key with put, append and get, where no two ops put or append the same: the reads reveal the order.

What a get shows is cut into the tokens that ops put or appended. So it tells which put, and which appends behind it in
which order, made it: a *chain*, like that of swaps in a register (`zones`). All gets of one chain must show beginnings
of its longest string; no token stands in two chains, and a put only at the beginning. The string of the beginning,
"", begins the chain of the appends that no put precedes.

An append that no get shows happened where nobody looked: behind some chain, in front of the next put. It needs one
moment outside the forward zones, like a write that nobody reads; unknown ones are left out.

Applies where the tokens are all different, none is empty, and none begins with another (else cutting is ambiguous).
Source: the study behind this checker; fuzzed against brute force and the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.monitors.zones import Chain, in_order
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

NAME: Final = "put and append of unique tokens"


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
    invalid = Outcome(Verdict.INVALID, NAME, len(problem.events))
    chains = _chains(problem, tokens, gets)
    if chains is None:
        return invalid
    order = in_order(chains)
    return invalid if order is None else Outcome(Verdict.VALID, NAME, invalid.work, witness=order)


def _chains(problem: Problem, tokens: Mapping[str, int], gets: Mapping[str, list[int]]) -> list[Chain] | None:
    """All ops that matter, or None where they contradict each other already."""
    lengths = sorted({len(token) for token in tokens})
    is_put = {op for op in tokens.values() if problem.what(op).f == "put"}
    # The string of each chain, by the put that begins it, NONE for the chain that begins with nothing.
    longest: dict[int, str] = {NONE: ""}
    members: dict[int, list[str]] = {NONE: []}
    for shown in sorted(gets, key=len, reverse=True):
        first = _token(shown, 0, lengths, tokens)
        if first is None and shown:
            return None
        writer = tokens[first] if first is not None else NONE
        head = writer if writer in is_put else NONE
        if not longest.setdefault(head, shown).startswith(shown):
            if head != NONE or longest[NONE]:
                return None
            longest[NONE] = shown
        members.setdefault(head, []).append(shown)
    chains: list[Chain] = []
    placed: set[int] = set()
    for head, whole in longest.items():
        chain = Chain([])
        if head == NONE:
            chain.first = chain.last = -1
        if not _cut(problem, whole, head, chain, lengths, tokens, gets, members[head], is_put, placed):
            return None
        chains.append(chain)
    for op in tokens.values():
        if op not in placed and problem.ret[op] != NEVER:
            alone = Chain([])
            alone.add(problem, [op])
            chains.append(alone)
    return chains


def _cut(
    problem: Problem,
    whole: str,
    head: int,
    chain: Chain,
    lengths: list[int],
    tokens: Mapping[str, int],
    gets: Mapping[str, list[int]],
    shown: list[str],
    is_put: set[int],
    placed: set[int],
) -> bool:
    """Fills `chain` with the ops that made `whole`, and the gets of each of its beginnings; whether that can be.

    `shown`: the different ones of its beginnings that were seen; each must end where a token ends.
    """
    at = 0
    # Slices of each beginning would cost the square of a long string: their lengths tell them apart.
    seen = {len(text): text for text in shown}
    found = 0
    if head == NONE and "" in gets:
        found += 1
        if not chain.add(problem, gets[""]):
            return False
    while at < len(whole):
        token = _token(whole, at, lengths, tokens)
        if token is None:
            return False
        op = tokens[token]
        if op in placed or (op in is_put) != (at == 0 and head != NONE):
            return False
        placed.add(op)
        at += len(token)
        if not chain.add(problem, [op]):
            return False
        if at in seen:
            found += 1
            if not chain.add(problem, gets[seen[at]]):
                return False
    return found == len(shown)


def _token(text: str, at: int, lengths: list[int], tokens: Mapping[str, int]) -> str | None:
    for length in lengths:
        if text[at : at + length] in tokens:
            return text[at : at + length]
    return None
