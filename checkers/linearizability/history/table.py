# SPDX-License-Identifier: Apache-2.0
"""A model as integers: a table that is filled on demand. `closed_table` makes arrays of it."""

from __future__ import annotations

from collections.abc import Hashable
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, NoReturn

from checkers.linearizability.history.events import ILLEGAL
from checkers.linearizability.models.specification import INCONSISTENT, Model, Transition, Unheard
from results.errors import with_article

if TYPE_CHECKING:
    from checkers.linearizability.history.arrays import Dense

_CELL: Final = 250
"""Bytes of a cell of a table in CPython: key, numbers, its share of the dict. A state costs as many besides its own."""


_REFUSED: Final = "(refused)"


class Table:
    """A model as integers: `step(state, kind) -> state | ILLEGAL`, filled on demand.

    Filling on demand limits the cost to the transitions that a search really takes: a register of thousands of unique
    values would have millions. So no unfilled cell exists that could be mistaken for an illegal step.
    """

    def __init__(self, model: Model[Any]) -> None:
        self.model = self.narrowed = model
        self.kinds: list[Transition] = []
        self.pure: list[bool] = []
        self.blind: list[bool] = []
        self._target: dict[int, int] = {}
        self.states: list[Any] = [model.initial]
        self._kind_ids: dict[Transition, int] = {}
        self._state_ids: dict[Hashable, int] = {model.initial: 0}
        self._cells: dict[tuple[int, int], int] = {}
        self.dense: Dense | None = None  # all of it as arrays, after the first request (`closed_table`)
        self.larger_than: tuple[int, int] | None = None  # (kinds, states) that were too many to close it
        self._state_bytes = self._settled = 0
        self._unheard: dict[int, set[str]] = {}  # kind of unknown outcome -> fields that its steps read so far

    def kind(self, kind: Transition) -> int:
        """The number of a kind. Raises ValueError if the model does not accept it."""
        try:
            found = self._kind_ids.get(kind)
        except TypeError:
            raise ValueError(f"the value of {with_article(kind.f)} cannot be compared: {kind.value!r}") from None
        if found is None:
            self.model.accept(kind)
            found = self._kind_ids[kind] = len(self.kinds)
            self.kinds.append(kind)
            self.pure.append(self.model.pure(kind))
            self.blind.append(self.model.blind(kind))
            # (In a pair, or with an own `kind` method, the placeholder of an unknown result is no argument.)
            own = kind.f in self.model.pairs or type(self.model).kind is not Model.kind
            if not (kind.known or self.pure[found] or own):
                self._unheard[found] = set()
        return found

    def seal_kinds(self) -> None:
        """Ends the kinds, except for probes that read existing values: states may be merged (`Model.narrow`)."""
        self.narrowed = self.model.narrow(self.kinds)

    def step(self, state: int, kind: int) -> int:
        """The state after, or ILLEGAL."""
        cell = (state, kind)
        found = self._cells.get(cell)
        if found is None:
            found = self._cells[cell] = self._compute(state, kind)
        return found

    def _compute(self, state: int, kind: int) -> int:
        what, looked_at = self.kinds[kind], self._unheard.get(kind)
        after = self.narrowed.step(self.states[state], what if looked_at is None else Unheard(what, looked_at))
        if after is INCONSISTENT:
            if looked_at is not None:
                looked_at.add(_REFUSED)
            if self.blind[kind]:
                self._broken(kind, "blind, but it cannot happen in every state")
            return ILLEGAL
        number = self.intern(after)
        if self.pure[kind] and number != state:
            self._broken(kind, "pure, but its step changes the state")
        if self.blind[kind] and self._target.setdefault(kind, number) != number:
            self._broken(kind, "blind, but its result depends on the state before")
        return number

    def insist_on_known(self) -> None:
        """Raises ValueError if the steps of an op of unknown outcome read its value (its argument), never `known`, and
        refused: they mistook it for the result. Call it before an `invalid` counts.
        """
        for kind, looked_at in self._unheard.items():
            if looked_at == {"value", _REFUSED}:
                what = self.model.describe(self.kinds[kind])
                raise ValueError(
                    f"model {self.model.name}: step never looks at op.known, but there is {what!r} of unknown outcome; "
                    "its op.value is the argument, not what it saw"
                )

    def intern(self, state: Any) -> int:
        """The number of a state, a new one if necessary."""
        number = self._state_ids.get(state)
        if number is None:
            number = self._state_ids[state] = len(self.states)
            self.states.append(state)
            self._state_bytes += _CELL + size_of(state)
        return number

    @property
    def held(self) -> int:
        """Bytes of states and cells added since `settle`: a search in endless states has to keep its budget."""
        return self._state_bytes + _CELL * len(self._cells) - self._settled

    def settle(self) -> None:
        """Excludes everything added so far from the next search's budget."""
        self._settled += self.held

    def tell(self, state: int) -> str:
        """A state as readable text."""
        return self.narrowed.tell(self.states[state])

    def known(self, state: Any) -> int:
        """The number of a state, or ILLEGAL if it is unknown."""
        return self._state_ids.get(state, ILLEGAL)

    def _broken(self, kind: int, how: str) -> NoReturn:
        raise ValueError(f"model {self.model.name} calls {self.model.describe(self.kinds[kind])!r} {how}")


def size_of(state: Any) -> int:
    """Bytes of a state: a container, those of its parts that are containers, but not the values, which it shares."""
    inner = state if isinstance(state, (tuple, frozenset)) else ()
    return getsizeof(state) + sum([getsizeof(part) for part in inner if isinstance(part, (tuple, frozenset))])
