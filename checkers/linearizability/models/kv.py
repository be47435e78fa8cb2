"""One key of a store of strings, as Porcupine's kv model has it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from checkers.linearizability.models.specification import INCONSISTENT, Inconsistent, Model, Transition, show
from results.errors import with_article


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
