# SPDX-License-Identifier: Apache-2.0
"""Thousands of tiny random histories, and the truth about them straight from the definition.

Short and long calls, results right and wrong, up to 60 % unknown ops. `effort` decides how many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from effort import effort

from checkers.linearizability import (
    INCONSISTENT,
    KV,
    CasRegister,
    Model,
    MultiRegister,
    Mutex,
    Problem,
    Register,
    encode,
)
from results.history import Call
from results.op import Op, OpType

MAX_OPS = 7


Draw = Callable[[Random, int], tuple[str, Any, Any]]
"""(rng, number of the op) -> f, argument, what an acknowledgement says."""


def brute_force(problem: Problem, *beginning: Any) -> bool:
    """Straight from the definition: some order of all completed and any unknown ops fits both time and model.

    `beginning`: the state before it, where that is not the model's initial one.
    """
    model, kinds = problem.table.model, problem.table.kinds
    completed = frozenset(problem.completed)
    hopeless: set[tuple[frozenset[int], Any]] = set()

    def possible(placed: frozenset[int], state: Any) -> bool:
        if completed <= placed:
            return True
        if (placed, state) in hopeless:
            return False
        first_return = min(problem.ret[op] for op in completed - placed)
        for op in problem.ops:
            if op not in placed and problem.call[op] < first_return:
                after = model.step(state, kinds[problem.kind[op]])
                if after is not INCONSISTENT and possible(placed | {op}, after):
                    return True
        hopeless.add((placed, state))
        return False

    return possible(frozenset(), *beginning or (model.initial,))


def calls(rng: Random, draw: Draw, crash: float, most: int = MAX_OPS) -> list[Call]:
    """A random history of one object."""
    count = rng.randint(1, most)
    events: list[tuple[float, int, bool]] = []
    for op in range(count):
        start = rng.random() * count
        events += [(start, op, False), (start + rng.random() * rng.choice((0.5, 2, 5)), op, True)]
    events.sort()
    at = {(op, end): index for index, (_, op, end) in enumerate(events)}
    made = []
    for op in sorted(range(count), key=lambda op: at[op, False]):
        f, argument, seen = draw(rng, op + 1)
        unknown = rng.random() < crash
        type_: OpType = "info" if unknown else "fail" if f == "cas" and rng.random() < 0.3 else "ok"
        begin, end = at[op, False], at[op, True]
        lost = unknown and rng.random() < 0.5
        completion = None if lost else Op(end, end, op, type_, f, "k", None if unknown else seen)
        made.append(Call(Op(begin, begin, op, "invoke", f, "k", argument), completion))
    return made


def small_values(fs: tuple[str, ...]) -> Draw:
    """Registers of three values that are written again and again."""

    def draw(rng: Random, op: int) -> tuple[str, Any, Any]:
        f, value, other = rng.choice(fs), rng.randrange(3), rng.choice((None, 0, 1, 2))
        if f == "read":
            return f, None, other
        argument: Any = value if f == "write" else [other, value]
        return f, argument, argument

    return draw


def unique_values(rng: Random, op: int) -> tuple[str, Any, Any]:
    """Every value is written once; an op expects or sees any of them."""
    f, other = rng.choice(("read", "read", "write", "cas")), rng.choice((None, *range(1, MAX_OPS)))
    if f == "read":
        return f, None, other
    argument: Any = op if f == "write" else [other, op]
    return f, argument, argument


def unique_writes(rng: Random, op: int) -> tuple[str, Any, Any]:
    """Every value is written once, and no op expects one."""
    return ("read", None, rng.choice((None, *range(1, MAX_OPS)))) if rng.random() < 0.5 else ("write", op, op)


def unique_puts(rng: Random, op: int) -> tuple[str, Any, Any]:
    """Every string is put once; each begins with all shorter ones."""
    if rng.random() < 0.5:
        return "get", None, "a" * rng.randrange(MAX_OPS)
    return "put", "a" * (op + 1), "a" * (op + 1)


def kv_ops(rng: Random, op: int) -> tuple[str, Any, Any]:
    f = rng.choice(("get", "get", "put", "append", "append"))
    if f == "get":
        return f, None, "".join(rng.choice("ab") for _ in range(rng.randint(0, 3)))
    token = rng.choice("ab")
    return f, token, token


def txn_ops(rng: Random, op: int) -> tuple[str, Any, Any]:
    steps = [
        [f := rng.choice(("read", "write")), name, rng.choice((0, 1, None) if f == "read" else (0, 1))]
        for name in ("x", "y")[: rng.randint(1, 2)]
    ]
    return "txn", [[f, name, None if f == "read" else value] for f, name, value in steps], steps


def mutex_ops(rng: Random, op: int) -> tuple[str, Any, Any]:
    return rng.choice(("acquire", "release")), None, None


def lived(rng: Random, crash: float, most: int) -> list[Call]:
    """The calls of a real register of three values, each op taking effect at one moment within its call.

    Of the unknown ops half took effect, and half of all histories have one read that is not true.
    """
    count = rng.randint(1, most)
    moments = sorted((rng.random() * count, op) for op in range(count))
    state: Any = None
    events: list[tuple[float, int, OpType, str, Any]] = []
    for moment, op in moments:
        f = rng.choice(("read", "read", "write", "cas"))
        unknown = f != "read" and rng.random() < crash
        argument: Any = None
        if f == "write":
            argument = rng.randrange(3)
        elif f == "cas":
            argument = [rng.choice((None, 0, 1, 2)), rng.randrange(3)]
        outcome: OpType = "fail" if f == "cas" and argument[0] != state else "ok"
        result = state if f == "read" else argument
        if outcome == "ok" and f != "read" and (not unknown or rng.random() < 0.5):
            state = argument if f == "write" else argument[1]
        length = rng.choice((0.3, 2, 5))
        events.append((moment - rng.random() * length, op, "invoke", f, argument))
        events.append((moment + rng.random() * length, op, "info" if unknown else outcome, f, result))
    if rng.random() < 0.5:
        reads = [i for i, (_, _, type_, f, _) in enumerate(events) if type_ == "ok" and f == "read"]
        if reads:
            at, op, type_, f, _ = events[(chosen := rng.choice(reads))]
            events[chosen] = (at, op, type_, f, rng.randrange(3))
    begun: dict[int, Op] = {}
    made = []
    for index, (_, op, type_, f, value) in enumerate(sorted(events, key=lambda event: event[0])):
        this = Op(index, index, op, type_, f, "k", value)
        if type_ == "invoke":
            begun[op] = this
        else:
            made.append(Call(begun[op], this))
    return made


FAMILIES: dict[str, tuple[Model[Any], Draw | None, int]] = {
    "register": (Register(), small_values(("read", "read", "write")), 1_500),
    "cas-register": (CasRegister(), small_values(("read", "read", "write", "cas")), 3_000),
    "cas-refused": (CasRegister(), small_values(("read", "write", "cas", "cas-refused")), 1_500),
    "unique-values": (CasRegister(), unique_values, 4_000),
    "unique-writes": (Register(), unique_writes, 2_000),
    "unique-puts": (KV(), unique_puts, 2_000),
    "kv": (KV(), kv_ops, 2_500),
    "multi-register": (MultiRegister(), txn_ops, 1_500),
    "mutex": (Mutex(), mutex_ops, 1_500),
    "lived": (CasRegister(), None, 1_500),
}


def problems(family: str, seed: int, count: int | None = None, least: int = 1) -> Iterator[Problem]:
    """Yields `effort(count, least)` problems of a family."""
    model, draw, usual = FAMILIES[family]
    rng = Random(f"{family}/{seed}")
    for _ in range(effort(count or usual, least)):
        crash = rng.choice((0, 0.1, 0.3, 0.6))
        yield encode(lived(rng, crash, 10) if draw is None else calls(rng, draw, crash), model)


def told(problem: Problem) -> str:
    kinds = problem.table.kinds
    return str([(kinds[problem.kind[op]], problem.call[op], problem.ret[op]) for op in problem.ops])
