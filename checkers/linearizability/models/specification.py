# SPDX-License-Identifier: Apache-2.0
"""The interface of a model: an initial state and a pure function `step`.

`step` gets one operation at a time and returns the next state, or that the operation cannot happen there. Nothing else
is needed to check histories against a model:

>>> class Flag(Model[bool]):
...     name, noun, fs, observers = "flag", "flag", frozenset({"set", "test"}), frozenset({"test"})
...     initial = False
...     def step(self, state: bool, op: Transition) -> bool | Inconsistent:
...         return True if op.f == "set" else state if op.value == state else INCONSISTENT

States and values are compared with `==` and must be hashable. `values` defines the form of a value, and which ones are
equal: lists come as tuples, and `true` is not 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, TypeVar

from checkers.linearizability.models.values import Fields
from results.history import Call
from results.op import OK

S = TypeVar("S", bound=Hashable)


class Inconsistent(Enum):
    """The answer of a step that cannot be taken."""

    INCONSISTENT = "inconsistent"


INCONSISTENT: Final = Inconsistent.INCONSISTENT


class Anything(Enum):
    """An unknown start value (`harness check --initial any`)."""

    ANYTHING = "anything"

    def __repr__(self) -> str:
        return self.value


ANYTHING: Final = Anything.ANYTHING


class Unseen:
    """Stands in a state for any element that no op of the history ever sees (`Model.narrow`)."""

    def __repr__(self) -> str:
        return "(something no op shows)"


UNSEEN: Final = Unseen()


@dataclass(frozen=True, slots=True)
class Transition:
    """The effect of an operation, without process and time: equal kinds are interchangeable.

    value: the result of an acknowledged observer (`read`), else the argument (`write`, and every unknown op).
    known: False for an observer that was never acknowledged: its result is unknown. A step that compares the value of
           such an op with the state mistakes its argument for its result, and calls valid histories invalid.
    """

    f: str
    value: Any = None
    known: bool = True


class Unheard(Transition):
    """A kind of unknown outcome that records in `looked_at` which of `value` and `known` a step reads."""

    __slots__ = ("_kind", "_looked_at")
    _kind: Transition
    _looked_at: set[str]

    def __init__(self, kind: Transition, looked_at: set[str]) -> None:
        for name, value in (("f", kind.f), ("_kind", kind), ("_looked_at", looked_at)):
            object.__setattr__(self, name, value)

    @property
    def value(self) -> Any:
        self._looked_at.add("value")
        return self._kind.value

    @property
    def known(self) -> bool:
        self._looked_at.add("known")
        return False


class Model(ABC, Generic[S]):
    """A sequential specification.

    name       as users write it (`--model cas-register`).
    noun       the name of one object in sentences.
    fs         the operations it knows; a history with others is refused (`check`).
    aliases    other names of operations in `fs`: `step` gets the long one.
    observers  the operations whose completion carries a result.
    pairs      observers of which `step` needs the argument, too (a read *of some offset*): their value is the pair
               (argument, result), and (argument, None) if the result is unknown.
    """

    name: ClassVar[str]
    noun: ClassVar[str] = "object"
    fs: ClassVar[frozenset[str]]
    aliases: ClassVar[Mapping[str, str]] = MappingProxyType({})
    observers: ClassVar[frozenset[str]] = frozenset()
    pairs: ClassVar[frozenset[str]] = frozenset()
    initial: S

    @abstractmethod
    def step(self, state: S, op: Transition) -> S | Inconsistent:
        """The state after `op` happened in `state`, or INCONSISTENT if it cannot have happened. Pure."""

    def kind(self, call: Call) -> Transition:
        """The transition of this call, as `step` gets it. Override it if that takes more than argument and result (an
        owner that is the process if none is named); lists may stay lists.
        """
        invoke, completion = call.invoke, call.completion
        f = self.aliases.get(invoke.f, invoke.f)
        if f not in self.observers:
            return Transition(f, invoke.value)
        known = completion is not None and completion.type == OK
        result = completion.value if completion is not None and known else None
        if f in self.pairs:
            return Transition(f, (invoke.value, result), known)
        return Transition(f, result if known else invoke.value, known)

    def replay(self, ops: Iterable[Transition]) -> int | None:
        """Executes ops in order, from the initial state. Returns the place of the first that cannot happen, or None.

        Override it if the cost of a step grows with the state, and a mutable object avoids that.
        """
        state = self.initial
        for place, op in enumerate(ops):
            after = self.step(state, op)
            if isinstance(after, Inconsistent):
                return place
            state = after
        return None

    def pure(self, op: Transition) -> bool:
        """True if this op never changes a state. The search relies on it (and checks it at every step it takes)."""
        return op.f in self.observers

    def blind(self, op: Transition) -> bool:
        """True if this op is possible in every state, with the same result. The search relies on it, and checks it."""
        return False

    def narrow(self, kinds: Sequence[Transition]) -> Model[S]:
        """This model for a history of these kinds alone. It may merge states that none of them can ever distinguish;
        its readable text then marks such a state as several, and also covers states of this model.
        """
        return self

    def accept(self, op: Transition) -> None:
        """Raises ValueError with one line on what is wrong with the op's value."""

    def doubt(self, calls: Sequence[Call]) -> str | None:
        """The simplification of the model that may cause a violation in this history, in one line; None: no such."""
        return None

    def describe(self, op: Transition) -> str:
        """The op as readable text: `read 4`, `cas 3 -> 5`."""
        return op.f if op.value is None else f"{op.f} {show(op.value)}"

    def tell(self, state: S) -> str:
        """The state as readable text."""
        return show(state)


def show(value: Any, limit: int = 60) -> str:
    """A value as readable text: `absent` for None, sets in a fixed order, long ones cut in the middle.

    A state that is a NamedTuple has its own text (`__str__`).

    >>> show((1, None)), show("abc"), show(frozenset("ba"))
    ('[1, absent]', "'abc'", "{'a', 'b'}")
    """
    if value is None:
        return "absent"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        text = f"[{', '.join(show(v) for v in value)}]"
    elif isinstance(value, Fields):
        text = f"{{{', '.join(sorted(f'{show(name)}: {show(v)}' for name, v in value))}}}"
    elif isinstance(value, frozenset):
        text = f"{{{', '.join(sorted(show(v) for v in value))}}}"
    else:
        text = str(value) if isinstance(value, tuple) else repr(value)
    if len(text) > limit:
        text = f"{text[: limit // 2]}...{text[-limit // 2 + 3 :]}"
    return text
