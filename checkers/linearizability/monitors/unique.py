"""Registers whose values are all different: decided in near-linear time, however many clients or unknown ops.

When no value is written twice, a read names its write. All ops of one value form a *cluster*; a cas joins the cluster
of the value it expects to that of the value it leaves, so clusters grow into *chains* in a known order. `zones` says
when chains fit beside each other.

Linearizable iff every value read has one writer, every chain can follow its own order (no op returns before one that
precedes it in the chain is called), and the chains fit.
The initial value is a write before everything. Unknown writers count (with no return) when somebody saw their value,
and are left out otherwise: what nobody saw need not have happened.

Source: Gibbons and Korach, "Testing shared memories" (1997), for reads and writes; the chains are ours, fuzzed against
brute force and against the search.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from checkers.linearizability.history.encode import Problem
from checkers.linearizability.history.events import NEVER, NONE
from checkers.linearizability.monitors.zones import Chain, in_order
from checkers.linearizability.outcome import Outcome
from results.verdict import Verdict

NAME = "unique-value register"


@dataclass(slots=True)
class _Value:
    """Who wrote a value, who read it, which op swapped it for which next one."""

    writer: int = NONE
    comes_from: Any = None
    swaps: list[tuple[int, Any]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)


def unique_register(problem: Problem) -> Outcome | None:
    """Valid with a witness, invalid (without a position), or None where this algorithm does not apply."""
    initial = problem.table.model.initial
    values = _by_value(problem, initial)
    if values is None:
        return None
    work = len(problem.events)
    invalid = Outcome(Verdict.INVALID, NAME, work)
    wanted = _wanted(problem, values)
    chains: list[Chain] = []
    placed = 0
    for value, node in values.items():
        is_initial = value == initial
        blind = node.writer != NONE and problem.what(node.writer).f == "write"
        if value in wanted and (is_initial or blind):
            chain = _follow(problem, values, wanted, value, is_initial)
            if chain is None:
                return invalid
            placed += sum(map(len, chain.groups))
            chains.append(chain)
    # A wanted value that no chain reaches was never written, or only by a cas that expects what it leaves behind.
    if placed != sum(len(values[v].reads) + (values[v].writer != NONE) for v in wanted):
        return invalid
    order = in_order(chains)
    return invalid if order is None else Outcome(Verdict.VALID, NAME, work, witness=order)


def _by_value(problem: Problem, initial: Hashable) -> dict[Hashable, _Value] | None:
    """Every value with its ops; None when a value is written twice, or an op saw what was *not* there."""
    values: dict[Hashable, _Value] = {initial: _Value()}
    swaps: list[tuple[int, Hashable, Hashable]] = []
    for op in problem.ops:
        what = problem.what(op)
        if what.f == "cas-refused":
            return None
        if what.f == "read":
            values.setdefault(what.value, _Value()).reads.append(op)
            continue
        if what.f == "cas":
            expected, new = what.value
            swaps.append((op, expected, new))
        else:
            new = what.value
        node = values.setdefault(new, _Value())
        if node.writer != NONE or new == initial:
            return None
        node.writer = op
    for op, expected, new in swaps:
        values.setdefault(expected, _Value()).swaps.append((op, new))
        values[new].comes_from = expected
    return values


def _wanted(problem: Problem, values: dict[Hashable, _Value]) -> set[Hashable]:
    """The values that certainly were in the register: read, written by an acknowledged op, or expected by one that was.

    Followed backwards along unknown swaps: who left a wanted value behind found the value it expected.
    """
    wanted: set[Hashable] = set()
    todo = [v for v, n in values.items() if n.reads or (n.writer != NONE and problem.ret[n.writer] != NEVER)]
    while todo:
        value = todo.pop()
        if value in wanted:
            continue
        wanted.add(value)
        writer = values[value].writer
        if writer != NONE and problem.what(writer).f == "cas":
            todo.append(values[value].comes_from)
    return wanted


def _follow(
    problem: Problem, values: dict[Hashable, _Value], wanted: set[Hashable], value: Hashable, is_initial: bool
) -> Chain | None:
    """The chain that begins with this value, or None when it cannot be in its own order."""
    chain = Chain([])
    if is_initial:
        chain.first = chain.last = -1
    while True:
        node = values[value]
        for group in ([node.writer] if node.writer != NONE else [], node.reads):
            if not chain.add(problem, group):
                return None
        swaps = [new for _, new in node.swaps if new in wanted]
        if len(swaps) > 1:
            return None
        if not swaps:
            return chain
        value = swaps[0]
