# SPDX-License-Identifier: Apache-2.0
"""One key of a store of strings, as Porcupine's kv model has it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from checkers.linearizability.models.specification import (
    ANYTHING,
    INCONSISTENT,
    Inconsistent,
    Model,
    Transition,
    show,
)
from results.errors import with_article
from results.history import Call


@dataclass(frozen=True, slots=True)
class Ending:
    """State of a key with an unknown start that no op has shown yet: the text appended since."""

    text: str = ""

    def __repr__(self) -> str:
        return f"anything that ends in {self.text!r}" if self.text else "anything"


class KV(Model[Hashable]):
    """One key of a store with `put`, `append`, `get` and `delete` on strings (Porcupine's kv model, and a delete).

    Absent reads as ``""``, and a deleted key is absent. `initial`: the string at the start, or ANYTHING.
    """

    name = "kv"
    noun = "key"
    fs = frozenset({"get", "put", "append", "delete"})
    observers = frozenset({"get"})

    def __init__(self, initial: Hashable = "") -> None:
        if initial is not ANYTHING and not isinstance(initial, str | None):
            raise ValueError(f"the start value of a key is a string, not {show(initial)}")
        self.initial: Hashable = Ending() if initial is ANYTHING else initial or ""

    def kind(self, call: Call) -> Transition:
        what = super().kind(call)
        # (Whatever it names, or answers: what was there.)
        return Transition("delete") if what.f == "delete" else what

    def step(self, state: Hashable, op: Transition) -> Hashable | Inconsistent:
        if op.f == "put":
            return op.value  # type: ignore[no-any-return]
        if op.f == "delete":
            return ""
        if isinstance(state, Ending):
            if op.f == "append":
                return Ending(state.text + op.value)
            seen = op.value or ""
            return state if not op.known else seen if seen.endswith(state.text) else INCONSISTENT
        if op.f == "append":
            return state + op.value  # type: ignore[no-any-return]
        return state if (op.value or "") == state else INCONSISTENT

    def pure(self, op: Transition) -> bool:
        # (The first get of a key with an unknown start determines that start.)
        return op.f == "get" and not (op.known and isinstance(self.initial, Ending))

    def blind(self, op: Transition) -> bool:
        return op.f in ("put", "delete")

    def narrow(self, kinds: Sequence[Transition]) -> Model[Hashable]:
        if isinstance(self.initial, Ending):
            return self
        return _ObservedKV(self.initial, [kind.value or "" for kind in kinds if kind.f == "get"])

    def accept(self, op: Transition) -> None:
        if op.f == "delete" or (op.f == "get" and op.value is None):
            return
        if not isinstance(op.value, str):
            raise ValueError(f"the value of {with_article(op.f)} is a string, not {show(op.value)}")


class _ObservedKV(KV):
    """A `KV` in which all strings that no `get` can ever see again are one state.

    A string that is no prefix of an observed one never becomes one by appending; only a put leaves it. Without this,
    unknown appends would make endlessly many states.
    """

    def __init__(self, initial: Hashable, observed: Sequence[str]) -> None:
        super().__init__(initial)
        self.observed = sorted(observed)
        self.unseen = "(something that no get ever saw)"
        while any(seen.startswith(self.unseen) for seen in observed):
            self.unseen += "!"

    def step(self, state: Hashable, op: Transition) -> Hashable | Inconsistent:
        if state == self.unseen and op.f in ("get", "append"):
            return INCONSISTENT if op.f == "get" else state
        after = super().step(state, op)
        if not isinstance(after, str) or op.f == "get":
            return after
        at = bisect_left(self.observed, after)
        return after if at < len(self.observed) and self.observed[at].startswith(after) else self.unseen

    def tell(self, state: Hashable) -> str:
        return "a string that no get shows the beginning of" if state == self.unseen else show(state)
