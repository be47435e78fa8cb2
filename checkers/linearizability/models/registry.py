"""What an object may do: the models that come with the checker, by the names users write.

Here are the registers; `containers` has counters, sets, queues and stacks, `locks` the locks, `log` the append-only
log. `specification` says what a model is: one's own takes some ten lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Any, Final

from checkers.linearizability.models.containers import Counter, FifoQueue, GrowOnlySet, Set, Stack, UnorderedQueue
from checkers.linearizability.models.locks import FencedLock, Mutex, ReentrantLock
from checkers.linearizability.models.log import Log
from checkers.linearizability.models.specification import INCONSISTENT, Inconsistent, Model, Transition, show
from checkers.linearizability.models.values import freeze
from results.errors import with_article

__all__ = [
    "INCONSISTENT",
    "KV",
    "MODELS",
    "CasRegister",
    "Counter",
    "FencedLock",
    "FifoQueue",
    "GrowOnlySet",
    "Inconsistent",
    "Log",
    "Model",
    "MultiRegister",
    "Mutex",
    "ReentrantLock",
    "Register",
    "Set",
    "Stack",
    "Transition",
    "UnorderedQueue",
    "show",
]


class Register(Model[Hashable]):
    """A value that can be read and written. None: nothing was written yet."""

    name = "register"
    noun = "register"
    fs = frozenset({"read", "write"})
    observers = frozenset({"read"})

    def __init__(self, initial: Hashable = None) -> None:
        self.initial = freeze(initial)

    def step(self, state: Hashable, op: Transition) -> Hashable | Inconsistent:
        if op.f == "write":
            return op.value  # type: ignore[no-any-return]
        return state if op.value == state else INCONSISTENT

    def blind(self, op: Transition) -> bool:
        return op.f == "write"

    def describe(self, op: Transition) -> str:
        return f"{op.f} {show(op.value)}"


class CasRegister(Register):
    """A register that can also be swapped if it is as expected. Source: Herlihy and Wing 1990.

    `cas` has the value `[expected, new]`. A failed one changed nothing, and says nothing. Where the refusal is
    an observation, it is an acknowledged `cas-refused` of the same value: the register did not hold `expected`.
    """

    name = "cas-register"
    fs = frozenset({"read", "write", "cas", "cas-refused"})
    observers = frozenset({"read", "cas-refused"})

    def step(self, state: Hashable, op: Transition) -> Hashable | Inconsistent:
        if op.f not in ("cas", "cas-refused"):
            return super().step(state, op)
        expected, new = op.value
        if op.f == "cas-refused":
            return state if state != expected else INCONSISTENT
        return new if state == expected else INCONSISTENT

    def accept(self, op: Transition) -> None:
        if op.f in ("cas", "cas-refused") and not (isinstance(op.value, tuple) and len(op.value) == 2):
            raise ValueError(f"the value of {with_article(op.f)} is [expected, new], not {show(op.value)}")

    def describe(self, op: Transition) -> str:
        if op.f not in ("cas", "cas-refused"):
            return super().describe(op)
        expected, new = op.value
        return f"{op.f} {show(expected)} -> {show(new)}"


class MultiRegister(Model[tuple[tuple[str, Hashable], ...]]):
    """Several registers, read and written together by `txn` ops of `[f, name, value]` steps (Knossos' multi-register).

    Every register holds `start` until it is written. The state is the sorted (name, value) pairs of those that hold
    something else. A read of None was not recorded and fits anything.
    """

    name = "multi-register"
    noun = "set of registers"
    fs = frozenset({"txn"})
    observers = frozenset({"txn"})
    initial = ()

    def __init__(self, start: Hashable = 0) -> None:
        self.start = freeze(start)

    def step(
        self, state: tuple[tuple[str, Hashable], ...], op: Transition
    ) -> tuple[tuple[str, Hashable], ...] | Inconsistent:
        values = dict(state)
        for f, register, value in op.value:
            if f == "write":
                values[register] = value
            elif op.known and value is not None and values.get(register, self.start) != value:
                return INCONSISTENT
        written = ((name, value) for name, value in values.items() if value != self.start)
        return tuple(sorted(written, key=lambda pair: pair[0]))

    def pure(self, op: Transition) -> bool:
        return all(f == "read" for f, _, _ in op.value)

    def accept(self, op: Transition) -> None:
        steps = op.value if isinstance(op.value, tuple) else (None,)
        for step in steps:
            match step:
                case ("read" | "write", str(), _):
                    continue
            raise ValueError(f"a txn is a list of [read|write, name, value], not {show(op.value)}")

    def describe(self, op: Transition) -> str:
        return "txn " + ", ".join(f"{f} {register} {show(value)}" for f, register, value in op.value)


class KV(Model[str]):
    """One key of a store with `put`, `append` and `get` on strings (Porcupine's kv model). Absent reads as ``""``."""

    name = "kv"
    noun = "key"
    fs = frozenset({"get", "put", "append"})
    observers = frozenset({"get"})
    initial = ""

    def step(self, state: str, op: Transition) -> str | Inconsistent:
        if op.f == "put":
            return op.value  # type: ignore[no-any-return]
        if op.f == "append":
            return state + op.value  # type: ignore[no-any-return]
        return state if (op.value or "") == state else INCONSISTENT

    def blind(self, op: Transition) -> bool:
        return op.f == "put"

    def narrow(self, kinds: Sequence[Transition]) -> Model[str]:
        return _ObservedKV([kind.value or "" for kind in kinds if kind.f == "get"])

    def accept(self, op: Transition) -> None:
        if not isinstance(op.value, str) and not (op.f == "get" and op.value is None):
            raise ValueError(f"the value of {with_article(op.f)} is a string, not {show(op.value)}")


class _ObservedKV(KV):
    """`KV` where all strings that no `get` can ever see again are one state.

    A string that is no prefix of an observed one never becomes one by appending; only a put leaves it. Without this,
    unknown appends would make endlessly many states.
    """

    def __init__(self, observed: Sequence[str]) -> None:
        self.observed = sorted(observed)
        self.unseen = "(something that no get ever saw)"
        while any(seen.startswith(self.unseen) for seen in observed):
            self.unseen += "!"

    def step(self, state: str, op: Transition) -> str | Inconsistent:
        if state == self.unseen and op.f != "put":
            return INCONSISTENT if op.f == "get" else state
        after = super().step(state, op)
        if isinstance(after, Inconsistent) or op.f == "get":
            return after
        at = bisect_left(self.observed, after)
        return after if at < len(self.observed) and self.observed[at].startswith(after) else self.unseen

    def tell(self, state: str) -> str:
        return "a string that no get shows the beginning of" if state == self.unseen else show(state)


MODELS: Final[dict[str, type[Model[Any]]]] = {
    model.name: model
    for model in (
        Register,
        CasRegister,
        MultiRegister,
        KV,
        Counter,
        GrowOnlySet,
        Set,
        FifoQueue,
        UnorderedQueue,
        Stack,
        Mutex,
        FencedLock,
        ReentrantLock,
        Log,
    )
}
"""The models by the names users write."""
