# SPDX-License-Identifier: Apache-2.0
"""Runs a generator without threads, clients or a clock, to see the resulting history.

    >>> from harness.generator import Invocation, limit, repeat
    >>> ops = simulate(limit(2, repeat(Invocation("read"))), perfect, concurrency=1)
    >>> [(op.time, op.process, op.type) for op in ops]
    [(0, 0, 'invoke'), (10, 0, 'ok'), (10, 0, 'invoke'), (20, 0, 'ok')]

The simulation makes each call of the generator twice and raises GeneratorError if the results differ. So each test by
simulation also tests purity.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

from harness.generator import Generator, GeneratorError, Source, Step, as_generator
from harness.generator.adapters import breach
from harness.generator.context import Context
from harness.run.scheduler import MAIN, OpScheduler
from results.op import FAIL, INFO, INVOKE, OK, Op, OpType

Complete: TypeAlias = Callable[[Op], tuple[int, OpType]]
"""Invocation -> the ns after which it completes, and the type of its completion."""

LATENCY_NS = 10


def quick(op: Op) -> tuple[int, OpType]:
    """`ok` at once."""
    return 0, OK


def perfect(op: Op) -> tuple[int, OpType]:
    """`ok` after 10 ns."""
    return LATENCY_NS, OK


def info(op: Op) -> tuple[int, OpType]:
    """`info` after 10 ns: every process does a single op."""
    return LATENCY_NS, INFO


def imperfect(op: Op) -> tuple[int, OpType]:
    """`ok`, `fail` and `info` in rotation, after 10, 20 and 30 ns."""
    kinds: tuple[OpType, ...] = (OK, FAIL, INFO)
    turn = op.index % 3
    return LATENCY_NS * (1 + turn), kinds[turn]


def simulate(
    source: Source,
    complete: Complete = perfect,
    *,
    concurrency: int = 2,
    nemesis: bool = True,
    phase: str = MAIN,
    most: int = 10_000,
    until_s: float = float("inf"),
) -> list[Op]:
    """The history that `source` gives if `complete` decides the completion of each op.

    Ends when the generator has ended and all ops have completed; or, for one that never ends, at `most` invocations or
    at `until_s` seconds (open ops stay open then). Deterministic. Raises GeneratorError when the generator breaks its
    contract or waits for what can never come.
    """
    ledger = OpScheduler(concurrency, nemesis=nemesis)
    ledger.begin(Twice(as_generator(source)), phase)
    history: list[Op] = []
    open_ops: list[tuple[int, int, Op, OpType]] = []
    now, invoked, end = 0, 0, until_s * 1e9
    while now < end:
        while open_ops and open_ops[0][0] <= now:
            _, _, op, kind = heapq.heappop(open_ops)
            history.append(ledger.complete(op, now, kind, op.value))
            ledger.tell(history[-1])
        answer = ledger.ask(now)
        if isinstance(answer, Op):
            history.append(answer)
            ledger.tell(answer)
            after, kind = complete(answer)
            heapq.heappush(open_ops, (now + after, answer.index, answer, kind))
            invoked += 1
            if invoked == most:
                break
            continue
        moments = [open_ops[0][0]] if open_ops else []
        if answer is not None and answer.until is not None:
            moments.append(answer.until)
        if not moments:
            if answer is None:
                break
            raise GeneratorError("the generator is pending without a time and no op is open: it would wait for ever")
        now = min(moments)
    return history


def invocations(history: list[Op]) -> list[Op]:
    """The invocations of a history."""
    return [op for op in history if op.type == INVOKE]


class Twice(Generator):
    """Calls its generator twice each time, and raises GeneratorError if the answers differ."""

    __slots__ = ("gen",)

    def __init__(self, gen: Generator) -> None:
        self.gen = gen

    def op(self, ctx: Context) -> Step:
        first, second = self.gen.op(ctx), self.gen.op(ctx)
        if (first is not None and breach(first, ctx)) or (second is not None and breach(second, ctx)):
            # The caller reports the fault in it.
            return first
        answers = first and first[0], second and second[0]
        if answers[0] != answers[1]:
            raise GeneratorError(
                f"for two equal calls the generator returned {answers[0]!r}, then {answers[1]!r}; "
                "draw random numbers and count with `drawn`, or with the n a function is given"
            )
        return None if first is None else (first[0], Twice(first[1]))

    def update(self, ctx: Context, event: Op) -> Generator:
        self.gen.update(ctx, event)
        return Twice(self.gen.update(ctx, event))
