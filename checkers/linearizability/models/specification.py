"""What a model is: an initial state and a pure function `step`.

It sees one operation at a time and says which state follows, or that the operation cannot happen there. Nothing else
is needed to check histories against it:

>>> class Flag(Model[bool]):
...     name, noun, fs, observers = "flag", "flag", frozenset({"set", "test"}), frozenset({"test"})
...     initial = False
...     def step(self, state: bool, op: Transition) -> bool | Inconsistent:
...         return True if op.f == "set" else state if op.value == state else INCONSISTENT

States and values are compared with `==` and must be hashable. `values` says what a value arrives as, and which ones are
the same: lists come as tuples, and `true` is not 1.
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
    """The start value of which nobody knows what it is (`harness check --initial any`)."""

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
    """What an operation does, without who and when: equal kinds are interchangeable.

    value: what was seen for an acknowledged observer (`read`), else the argument (`write`, and every unknown op).
    known: False for an observer that was never acknowledged: whatever it saw, nobody heard of it. A step that compares
           the value of such an op with the state takes its argument for what it saw, and calls valid histories invalid.
    """

    f: str
    value: Any = None
    known: bool = True


class Unheard(Transition):
    """A kind of unknown outcome that notes in `looked_at` which of `value` and `known` a step looks at."""

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
    noun       what one object is called in sentences.
    fs         the operations it knows; a history with others is refused (`check`).
    aliases    other names of operations in `fs`: `step` sees the long one.
    observers  those whose completion carries what was seen.
    pairs      observers of which `step` needs the argument, too (a read *of some offset*): their value is the pair
               (argument, result), and (argument, None) where nobody knows the result.
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
        """The state after `op` happened in `state`, or INCONSISTENT where it cannot have happened. Pure."""

    def kind(self, call: Call) -> Transition:
        """What this call did, as `step` is going to see it. To be overridden where that takes more than argument and
        result (an owner that is the process where none is named); lists may be left as they are.
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
        """Ops one after the other, from the initial state: the place of the first that cannot happen, or None.

        To be overridden where a step costs as much as the state is large, and an object that changes does not.
        """
        state = self.initial
        for place, op in enumerate(ops):
            after = self.step(state, op)
            if isinstance(after, Inconsistent):
                return place
            state = after
        return None

    def pure(self, op: Transition) -> bool:
        """Does this op never change a state? The search relies on it (and checks it at every step it takes)."""
        return op.f in self.observers

    def blind(self, op: Transition) -> bool:
        """Is this op possible in every state, with a result that does not depend on it? Relied on and checked too."""
        return False

    def narrow(self, kinds: Sequence[Transition]) -> Model[S]:
        """This model for a history of these kinds alone. It may merge states that none of them can ever tell apart; its
        `tell` then says that such a state stands for several, and is given those of this model, too.
        """
        return self

    def accept(self, op: Transition) -> None:
        """Raises ValueError with one line on what is wrong with the op's value."""

    def doubt(self, calls: Sequence[Call]) -> str | None:
        """Why a violation in this history may come from what the model simplifies, in one line; None: it does not."""
        return None

    def describe(self, op: Transition) -> str:
        """`read 4`, `cas 3 -> 5`: the op for people."""
        return op.f if op.value is None else f"{op.f} {show(op.value)}"

    def tell(self, state: S) -> str:
        """The state for people."""
        return show(state)


def show(value: Any, limit: int = 60) -> str:
    """A value for people: `absent` for None, sets in a fixed order, long ones cut in the middle.

    A state that is a NamedTuple speaks for itself (`__str__`).

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
