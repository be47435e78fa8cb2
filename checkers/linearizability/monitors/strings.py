# SPDX-License-Identifier: Apache-2.0
"""A key with put, append and get, where no two ops put or append the same: a register of unique values.

The result of a get is cut into the tokens that ops put or appended. So it shows the put, and the appends behind it in
their order, that made it. The state behind each token is a value: a put writes it, an append is a cas from the value in
front, a get reads it. An append that no get shows happened unseen, behind some value and in front of the next put: like
a write that no op reads. `registers` decides.

Applies if the tokens are all different, none is empty (nothing is deleted, either), and none begins with another (else
the cuts are ambiguous; without appends nothing is cut, and this does not matter).
Source: the study behind this checker; fuzzed against brute force and the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NONE
from checkers.linearizability.monitors import few_registers
from checkers.linearizability.monitors.conditions import INITIAL
from checkers.linearizability.monitors.refusal import Contradiction
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

if TYPE_CHECKING:
    from checkers.linearizability.monitors.registers import RegisterOps

NAME: Final = "put and append of unique tokens"


def unique_tokens(problem: Problem) -> Outcome | None:
    """Valid with a witness, invalid (without a position), or None if this does not apply."""
    tokens: dict[str, int] = {}
    for op in problem.ops:
        what = problem.what(op)
        if what.f != "get" and (not what.value or tokens.setdefault(what.value, op) != op):
            return None
    if _appends(problem) and any(longer.startswith(token) for token, longer in pairwise(sorted(tokens))):
        return None
    try:
        order = _ordered(problem, tokens)
    except Contradiction:
        return Outcome(Verdict.INVALID, NAME, len(problem.events))
    return Outcome(Verdict.VALID, NAME, len(problem.events), witness=order)


def _appends(problem: Problem) -> bool:
    return any(kind.f == "append" for kind in problem.table.kinds)


def _ordered(problem: Problem, tokens: Mapping[str, int]) -> list[int]:
    """The ops in an order that explains them. Raises Contradiction."""
    if len(problem.events) <= few_registers.FEW and not _appends(problem):
        kinds = [problem.what(op) for op in problem.ops]
        shown, _ = _shown({what.value or "" for what in kinds if what.f == "get"}, problem, tokens)
        rows = [
            few_registers.Row(what.f != "get", value, problem.call[op], problem.ret[op], op)
            for op, what in zip(problem.ops, kinds, strict=True)
            for value in (shown[what.value or ""] if what.f == "get" else op + 1,)
        ]
        return [rows[row].source for row in few_registers.register_order(rows)]
    # Imported here: a short history without appends needs no numpy.
    from checkers.linearizability.monitors.registers import register_order

    columns = _as_register(problem, tokens)
    return columns.source[register_order(columns)].tolist()  # type: ignore[no-any-return]


def _as_register(problem: Problem, tokens: Mapping[str, int]) -> RegisterOps:
    """The ops of a register: a token's op leaves its own number plus one. Raises Contradiction if strings conflict."""
    # Imported here, as in `unique_tokens`.
    import numpy as np

    from checkers.linearizability.monitors.registers import RegisterOps

    ops, kinds = problem.ops, [problem.what(op) for op in problem.ops]
    shown, expects = _shown({what.value or "" for what in kinds if what.f == "get"}, problem, tokens)
    writes = np.array([what.f != "get" for what in kinds], np.bool_)
    columns = (
        [shown[what.value or ""] if what.f == "get" else op + 1 for op, what in zip(ops, kinds, strict=True)],
        [expects.get(op, NONE) for op in ops],
        [problem.call[op] for op in ops],
        [problem.ret[op] for op in ops],
        ops,
    )
    return RegisterOps(writes, *(np.array(column, np.int64) for column in columns))


def _shown(texts: set[str], problem: Problem, tokens: Mapping[str, int]) -> tuple[Mapping[str, int], Mapping[int, int]]:
    """(value by string that a get shows, value that an append expects by its op)."""
    if not _appends(problem):
        written = {token: op + 1 for token, op in tokens.items()} | {"": INITIAL}
        if not texts <= written.keys():
            raise Contradiction
        return written, {}
    lengths = sorted({len(token) for token in tokens})
    values: dict[str, int] = {}
    expects: dict[int, int] = {}
    longer, value_at = "", {0: INITIAL}
    # In this order a string comes before its own beginnings, which need not be cut then.
    for text in sorted(texts, reverse=True):
        if not longer.startswith(text):
            longer, value_at, last = text, {0: INITIAL}, INITIAL
            for op, end in _cut(text, lengths, tokens):
                # A put begins its string, an append always follows the same.
                put = problem.what(op).f == "put"
                if len(value_at) > 1 if put else expects.setdefault(op, last) != last:
                    raise Contradiction
                value_at[end] = last = op + 1
        if len(text) not in value_at:
            raise Contradiction
        values[text] = value_at[len(text)]
    return values, expects


def _cut(text: str, lengths: Sequence[int], tokens: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Yields (op, end) of each token that the text consists of. Raises Contradiction for other text."""
    at = 0
    while at < len(text):
        length = next((length for length in lengths if text[at : at + length] in tokens), None)
        if length is None:
            raise Contradiction
        op, at = tokens[text[at : at + length]], at + length
        yield op, at
