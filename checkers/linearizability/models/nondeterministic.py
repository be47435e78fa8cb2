# SPDX-License-Identifier: Apache-2.0
"""Models whose operations may leave one of several states.

An operation of such an object has a choice: a cache keeps what was written, or drops it. The order of the operations
then explains a history if *some* choices do. The engine needs one next state; so its state is the set of all states
that the choices so far may have left (the subset construction of automata; Porcupine's `NondeterministicModel` does the
same). An operation is possible if it is possible in one of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

from checkers.linearizability.models.specification import INCONSISTENT, Inconsistent, Model, Transition, show

S = TypeVar("S", bound=Hashable)


class NondeterministicModel(Model[frozenset[Any]], Generic[S]):
    """A sequential specification with choices. `starts`: the states that the object may begin with.

    >>> class Cache(NondeterministicModel[object]):
    ...     name, fs, observers = "cache", frozenset({"write", "read"}), frozenset({"read"})
    ...     starts = (None,)
    ...     def steps(self, state, op):
    ...         if op.f == "write":
    ...             return {op.value, None}
    ...         return {state, None} if not op.known or op.value == state else ()
    """

    starts: Iterable[S]

    @property
    def initial(self) -> frozenset[Any]:  # type: ignore[override]
        return frozenset(self.starts)

    @abstractmethod
    def steps(self, state: S, op: Transition) -> Iterable[S]:
        """All states that `op` may leave in `state`; empty: it cannot have happened there. Pure."""

    def step(self, state: frozenset[Any], op: Transition) -> frozenset[Any] | Inconsistent:
        after = frozenset(next_ for one in state for next_ in self.steps(one, op))
        return after or INCONSISTENT

    def pure(self, op: Transition) -> bool:
        """False: what an observer saw rules out some of the states."""
        return False

    def tell(self, state: frozenset[Any]) -> str:
        return " or ".join(sorted(map(show, state)))
