# SPDX-License-Identifier: Apache-2.0
"""Registers: one that is read and written, one that is also swapped, and several in one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from checkers.linearizability.models.specification import (
    ANYTHING,
    INCONSISTENT,
    Inconsistent,
    Model,
    Transition,
    show,
)
from checkers.linearizability.models.values import Truth, freeze
from results.errors import with_article
from results.history import Call

_Named = tuple[tuple[Hashable, Hashable], ...]

_SHORT: Final = {"r": "read", "w": "write", "get": "read", "put": "write"}
"""Elle's and Maelstrom's names of the ops, and those of stores of keys."""


class Register(Model[Hashable]):
    """A value that can be read and written. None: nothing was written yet.

    `initial`: the value at the start, or ANYTHING: unknown.
    """

    name = noun = "register"
    fs = frozenset({"read", "write", *_SHORT})
    aliases = _SHORT
    observers = frozenset({"read"})

    def __init__(self, initial: Hashable = None) -> None:
        self.initial = Undetermined() if initial is ANYTHING else freeze(initial)

    def step(self, state: Hashable, op: Transition) -> Hashable | Inconsistent:
        if op.f == "write":
            return op.value  # type: ignore[no-any-return]
        if isinstance(state, Undetermined):
            return state.holds(op.value) if op.known else state
        return state if op.value == state else INCONSISTENT

    def pure(self, op: Transition) -> bool:
        # (The first read of a register with an unknown start determines that start.)
        return op.f in self.observers and not (op.known and isinstance(self.initial, Undetermined))

    def blind(self, op: Transition) -> bool:
        return op.f == "write"

    def describe(self, op: Transition) -> str:
        return f"{op.f} {show(op.value)}"


@dataclass(frozen=True, slots=True)
class Undetermined:
    """State of a register with an unknown start that was not read or written yet.

    not_: values that a `cas-refused` has ruled out.
    """

    not_: frozenset[Hashable] = frozenset()

    def holds(self, value: Hashable) -> Hashable | Inconsistent:
        """The state once an op shows that it held this value."""
        return INCONSISTENT if value in self.not_ else value

    def __repr__(self) -> str:
        return "anything" + (f" but {' or '.join(sorted(map(show, self.not_)))}" if self.not_ else "")


class CasRegister(Register):
    """A register that can also be swapped if it is as expected. Source: Herlihy and Wing 1990.

    `cas` has the value `[expected, new]`. A failed one changed nothing, and shows nothing. If the refusal is an
    observation, it is an acknowledged `cas-refused` of the same value: the register did not hold `expected`.
    """

    name = "cas-register"
    fs = frozenset({"read", "write", "cas", "cas-refused", *_SHORT})
    observers = frozenset({"read", "cas-refused"})

    def step(self, state: Hashable, op: Transition) -> Hashable | Inconsistent:
        if op.f not in ("cas", "cas-refused"):
            return super().step(state, op)
        expected, new = op.value
        if isinstance(state, Undetermined):
            if op.f == "cas":
                return INCONSISTENT if expected in state.not_ else new
            return Undetermined(state.not_ | {expected}) if op.known else state
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

    `f` is `read` or `write` (or `r`, `w`); a name is a text, a number or a truth value. Every register holds `initial`
    until it is written: None (absent), a value, or ANYTHING: unknown. A read of None found it absent; a step
    `[read, name]` without a value was not recorded, and fits anything.

    The state is the (name, value) pairs of the registers that do not hold `initial`, in order of name.
    """

    name = "multi-register"
    noun = "set of registers"
    fs = frozenset({"txn"})
    observers = frozenset({"txn"})
    initial = ()

    def __init__(self, initial: Hashable = None) -> None:
        self.start: Hashable = initial if initial is ANYTHING else freeze(initial)

    def kind(self, call: Call) -> Transition:
        what = super().kind(call)
        if not isinstance(what.value, (list, tuple)):
            return what
        return Transition(what.f, tuple([_long(step) for step in what.value]), what.known)

    def step(self, state: _Named, op: Transition) -> _Named | Inconsistent:
        values = dict(state)
        for step in op.value:
            f, register, *rest = step
            if f == "write":
                values[register] = rest[0]
            elif op.known and rest:
                held = values.get(register, self.start)
                if held is ANYTHING:
                    values[register] = rest[0]
                elif held != rest[0]:
                    return INCONSISTENT
        changed = [(name, value) for name, value in values.items() if value != self.start]
        return tuple(sorted(changed, key=lambda pair: _rank(pair[0])))

    def pure(self, op: Transition) -> bool:
        return all(step[0] == "read" for step in op.value) and not (op.known and self.start is ANYTHING)

    def accept(self, op: Transition) -> None:
        for step in op.value if isinstance(op.value, tuple) else (None,):
            match step:
                case ("read", name, _) | ("read", name) | ("write", name, _) if _is_name(name):
                    continue
                case ("append", _, _):
                    raise ValueError(ELLE)
                case ("read" | "write", name, *_) if not _is_name(name):
                    raise ValueError(f"the name of a register is a text, a number or a truth value, not {show(name)}")
            raise ValueError(f"a txn is a list of [read|write, name, value], and {show(step)} is no such step")

    def describe(self, op: Transition) -> str:
        return "txn " + ", ".join(_described(op.value))


ELLE: Final = "a txn that appends is Elle's list-append; no model here has it, elle-cli checks it"


def _long(step: Any) -> Any:
    """A step with the long name of its op."""
    if isinstance(step, (list, tuple)) and step and isinstance(step[0], str):
        return (_SHORT.get(step[0], step[0]), *step[1:])
    return step


def _is_name(name: Any) -> bool:
    return isinstance(name, (str, int, float, Truth))


def _rank(name: Any) -> tuple[int, Any]:
    """Names in order: numbers, texts, truth values."""
    if isinstance(name, str):
        return 1, name
    return (2, name.value) if isinstance(name, Truth) else (0, name)


def _described(steps: Any) -> Iterator[str]:
    for f, register, *rest in steps:
        name = register if isinstance(register, str) else show(register)
        yield f"{f} {name}" + (f" {show(rest[0])}" if rest else "")
