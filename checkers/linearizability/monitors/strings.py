"""A key with put, append and get, where no two ops put or append the same: the reads reveal the order.

What a get shows is cut into the tokens that ops put or appended. So it tells which put, and which appends behind it in
which order, made it. An append that was shown is thus a cas from the token in front of it, a get a read of the last
token that it shows, and "" the initial value: a register whose values are all different (`registers`). All gets of one
chain must show beginnings of its longest string; no token stands in two chains, and a put only at the beginning.

An append that no get shows happened where nobody looked: behind some chain, in front of the next put. It needs one
moment outside the forward zones, like a write that nobody reads; unknown ones are left out.

Applies where the tokens are all different, none is empty, and none begins with another (else cutting is ambiguous).
Source: the study behind this checker; fuzzed against brute force and the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NONE
from checkers.linearizability.monitors.base import Contradiction
from checkers.linearizability.monitors.registers import INITIAL, RegisterOps, register_order
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
    try:
        ops = _as_register(problem, tokens, gets)
        order = ops.source[register_order(ops)]
    except Contradiction:
        return Outcome(Verdict.INVALID, NAME, len(problem.events))
    return Outcome(Verdict.VALID, NAME, len(problem.events), witness=order.tolist())


def _as_register(problem: Problem, tokens: Mapping[str, int], gets: Mapping[str, list[int]]) -> RegisterOps:
    """A value is the op that put or appended it, and one. Raises Contradiction where the strings cannot be."""
    value = [op + 1 for op in range(len(problem.kind))]
    expects = [NONE] * len(value)
    puts = {op for op in tokens.values() if problem.what(op).f == "put"}
    lengths = sorted({len(token) for token in tokens})
    placed: set[int] = set()
    chains: dict[int, list[str]] = {}
    for shown in sorted(gets, key=len, reverse=True):
        first = next(_cut(shown, lengths, tokens), (NONE, 0))[0]
        chains.setdefault(first if first in puts else NONE, []).append(shown)
    for seen in chains.values():
        whole = seen[0]
        at, last = 0, INITIAL
        ends = {0: INITIAL}
        for op, end in _cut(whole, lengths, tokens):
            # A put begins its chain; an append follows another token, or the initial value.
            if op in placed or (op in puts and at):
                raise Contradiction
            placed.add(op)
            if op not in puts:
                expects[op] = last
            at, last = end, op + 1
            ends[at] = last
        for shown in seen:
            if len(shown) not in ends or not whole.startswith(shown):
                raise Contradiction
            for get in gets[shown]:
                value[get] = ends[len(shown)]
    rows = np.array(problem.ops, np.int64)
    values, wanted, call, ret = (np.array(c, np.int64)[rows] for c in (value, expects, problem.call, problem.ret))
    write = np.ones(len(value), np.bool_)
    write[[op for shown in gets.values() for op in shown]] = False
    return RegisterOps(write[rows], values, wanted, call, ret, rows)


def _cut(text: str, lengths: Sequence[int], tokens: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """(op, end) of each token that the text consists of. Raises Contradiction where it does not."""
    at = 0
    while at < len(text):
        length = next((length for length in lengths if text[at : at + length] in tokens), None)
        if length is None:
            raise Contradiction
        op, at = tokens[text[at : at + length]], at + length
        yield op, at
