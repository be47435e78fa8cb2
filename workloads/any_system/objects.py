# SPDX-License-Identifier: Apache-2.0
"""The objects that a described system may offer: for each model of the linearizability engine, the operations of
clients, the final reads, and the possible results.

Every key is an object of its own. Values are whole numbers, and no value is written twice on a key, so that a result
identifies the operation that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Any, Final

import harness.generator as gen
from harness.generator import PENDING, Generator, Invocation, Source, Step
from harness.generator.context import Context
from results.op import OK, Op
from workloads.register import op_at

_TRIES: Final = 30

Read = Callable[[Any], bool]
"""True for a value that the op can have as its result."""


@dataclass(frozen=True)
class Result:
    """The result of a kind of op. right: what it is, for people."""

    fits: Read
    right: str


@dataclass(frozen=True)
class Object:
    """One model.

    fs       kinds of ops that must succeed for a run to prove anything.
    make     (seed, key) -> the ops of the load on a key.
    final    (seed, key, ops per key) -> the quiescent ops at the end.
    results  kind of op -> its result; a kind that is not here has none, and its completion repeats the argument.
    """

    model: str
    fs: Sequence[str]
    make: Callable[[int, str], Source]
    final: Callable[[int, str, int], Source]
    results: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))

    def value(self, op: Op, answer: Mapping[str, Any]) -> Any:
        """The value of an acknowledged op. Raises ValueError for an answer without a possible one."""
        result = self.results.get(op.f)
        if result is None:
            return op.value
        if "value" not in answer:
            raise ValueError(f'has no "value"; {result.right} is right for {op.f}')
        if not result.fits(answer["value"]):
            raise ValueError(f"has a wrong value; {result.right} is right for {op.f}")
        return answer["value"]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


NUMBER: Final = Result(_whole, "a whole number")
NUMBER_OR_NULL: Final = Result(lambda value: value is None or _whole(value), "a whole number, or null")
NUMBERS: Final = Result(
    lambda value: isinstance(value, list) and all(_whole(one) for one in value), "a list of whole numbers"
)


def _register(seed: int, key: str, n: int) -> Invocation:
    """The ops of the register workload, with a write in place of each compare-and-set."""
    op = op_at(seed, key, n)
    return replace(op, f="write", value=op.value[1]) if op.f == "cas" else op


def _queue(seed: int, key: str, n: int) -> Invocation:
    """More dequeues than enqueues: the order of concurrent enqueues then shows soon, so the search remembers few."""
    return Invocation("enqueue", key, n + 1) if _dice(seed, key, n).random() < 0.4 else Invocation("dequeue", key)


def _counter(seed: int, key: str, n: int) -> Invocation:
    dice = _dice(seed, key, n)
    return Invocation("add", key, dice.randint(1, 9)) if dice.random() < 0.5 else Invocation("read", key)


def _set(seed: int, key: str, n: int) -> Invocation:
    return Invocation("add", key, n + 1) if _dice(seed, key, n).random() < 0.6 else Invocation("read", key)


def _log(seed: int, key: str, n: int) -> Invocation:
    """Appends, and reads of an offset up to the number of appends before."""
    if _appends(seed, key, n):
        return Invocation("append", key, n + 1)
    before = sum(_appends(seed, key, m) for m in range(n))
    return Invocation("read", key, _dice(seed, key, n).randint(0, before))


def _appends(seed: int, key: str, n: int) -> bool:
    return Random(f"{seed}/{key}/{n}/append").random() < 0.5


def _dice(seed: int, key: str, n: int) -> Random:
    return Random(f"{seed}/{key}/{n}")


@dataclass(frozen=True, slots=True, eq=False)
class Contenders(Generator):
    """Clients that compete for one lock. Who holds it releases it; the others try to acquire it meanwhile.

    holders  the processes that have acquired and not released it: more than one if the lock fails.
    """

    seed: int
    key: str
    n: int = 0
    holders: frozenset[int] = frozenset()

    def op(self, ctx: Context) -> Step:
        if not ctx.free_takers:
            return PENDING, self
        free = sorted(process for process in self.holders if ctx.runs(process) and ctx.is_free(process))
        if free and _dice(self.seed, self.key, self.n).random() < 0.5:
            left = replace(self, n=self.n + 1, holders=self.holders - {free[0]})
            return Invocation("release", self.key, process=free[0]), left
        return Invocation("acquire", self.key), replace(self, n=self.n + 1)

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f == "acquire" and event.type == OK:
            return replace(self, holders=self.holders | {event.process})
        return self


def _each(op: Callable[[int, str, int], Invocation]) -> Callable[[int, str], Source]:
    return lambda seed, key: lambda n: op(seed, key, n)


def _read(seed: int, key: str, ops: int) -> Source:
    """A read, repeated until one is acknowledged."""
    return gen.limit(_TRIES, gen.until_ok(gen.repeat(Invocation("read", key))))


def _drain(seed: int, key: str, ops: int) -> Source:
    """Dequeues until the queue is empty."""

    def empty(op: Op) -> bool:
        return op.type == OK and op.value is None

    return gen.limit(ops + _TRIES, gen.until(empty, gen.repeat(Invocation("dequeue", key))))


def _read_all(seed: int, key: str, ops: int) -> Source:
    """A read of every offset that may exist."""
    most = sum(_appends(seed, key, n) for n in range(ops))
    return [Invocation("read", key, offset) for offset in range(most)]


def _acquire(seed: int, key: str, ops: int) -> Source:
    """One more acquire, which a holder must refuse."""
    return Invocation("acquire", key)


_QUEUE: Final = {"dequeue": NUMBER_OR_NULL}

OBJECTS: Final[Mapping[str, Object]] = {
    one.model: one
    for one in (
        Object("register", ("read", "write"), _each(_register), _read, {"read": NUMBER_OR_NULL}),
        Object("cas-register", ("read", "write", "cas"), _each(op_at), _read, {"read": NUMBER_OR_NULL}),
        Object("mutex", ("acquire", "release"), Contenders, _acquire),
        Object("fifo-queue", ("enqueue", "dequeue"), _each(_queue), _drain, _QUEUE),
        Object("unordered-queue", ("enqueue", "dequeue"), _each(_queue), _drain, _QUEUE),
        Object("log", ("append", "read"), _each(_log), _read_all, {"append": NUMBER, "read": NUMBER_OR_NULL}),
        Object("counter", ("add", "read"), _each(_counter), _read, {"read": NUMBER}),
        Object("grow-only-set", ("add", "read"), _each(_set), _read, {"read": NUMBERS}),
    )
}
"""The objects by the names of their models."""
