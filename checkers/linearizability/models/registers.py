"""Registers: one that is read and written, one that is also swapped, and several in one."""

from __future__ import annotations

from collections.abc import Hashable

from checkers.linearizability.models.specification import INCONSISTENT, Inconsistent, Model, Transition, show
from checkers.linearizability.models.values import freeze
from results.errors import with_article

_Named = tuple[tuple[str, Hashable], ...]


class Register(Model[Hashable]):
    """A value that can be read and written. None: nothing was written yet."""

    name = noun = "register"
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


class MultiRegister(Model[_Named]):
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

    def step(self, state: _Named, op: Transition) -> _Named | Inconsistent:
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
        for step in op.value if isinstance(op.value, tuple) else (None,):
            match step:
                case ("read" | "write", str(), _):
                    continue
            raise ValueError(f"a txn is a list of [read|write, name, value], not {show(op.value)}")

    def describe(self, op: Transition) -> str:
        return "txn " + ", ".join(f"{f} {register} {show(value)}" for f, register, value in op.value)
