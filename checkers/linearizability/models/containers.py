# SPDX-License-Identifier: Apache-2.0
"""Models of containers: counter, sets, queues, stack.

Each `narrow` merges states that none of a history's ops can distinguish (the observability quotient of the study behind
this checker). The state need not hold an element that no op ever sees again, only the fact that it may be in the way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter as Tally
from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as Elements
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from checkers.linearizability.models.specification import (
    ANYTHING,
    INCONSISTENT,
    UNSEEN,
    Inconsistent,
    Model,
    S,
    Transition,
    show,
)
from checkers.linearizability.models.values import Truth
from results.errors import with_article
from results.history import Call
from results.op import OK

_Items = tuple[Hashable, ...]
_Bag = frozenset[tuple[Hashable, int]]
"""(element, number of its copies)."""

DRAIN: Final = "drain"


class _Gone:
    def __repr__(self) -> str:
        return "(gone)"


GONE: Final = _Gone()
"""Stands in a bag for a taken element that is unknown."""

BEYOND: Final = float("inf")
"""Stands for all numbers of a counter that no read can show any more."""


@dataclass(frozen=True, slots=True)
class Shifted:
    """State of a counter with an unknown start that no op has shown yet: the sum added since."""

    by: float = 0

    def __repr__(self) -> str:
        return f"its start and {self.by}" if self.by else "anything"


class Counter(Model[Hashable]):
    """A number: `add` of a whole number (also a negative one), `read` -> the number.

    `add-and-get` of a number -> the number after it; `get-and-add` -> the number before it; `increment` and `decrement`
    have no argument, and show the number after them. (Without a result, that was not recorded.)

    `initial`: the number at the start, or ANYTHING: unknown.
    """

    name = noun = "counter"
    fs = frozenset({"add", "read", "add-and-get", "get-and-add", "increment", "decrement"})
    observers = frozenset({"read", "add-and-get", "get-and-add", "increment", "decrement"})
    pairs = observers - {"read"}
    largest: float = BEYOND

    def __init__(self, initial: Hashable = 0) -> None:
        if initial is not ANYTHING and not _is_whole(initial):
            raise ValueError(f"the start value of a counter is a whole number, not {show(initial)}")
        self.initial: Hashable = Shifted() if initial is ANYTHING else initial

    def step(self, state: Hashable, op: Transition) -> Hashable | Inconsistent:
        change, before, after = _change(op)
        if isinstance(state, Shifted):
            if before is None and after is None:
                return Shifted(state.by + change)
            held = before if before is not None else (after or 0) - change
        else:
            held = state  # type: ignore[assignment]
        if (before is not None and before != held) or (after is not None and after != held + change):
            return INCONSISTENT
        if not change:
            return held  # (A search may start with a number beyond the largest that was seen after it.)
        return held + change if held + change <= self.largest else BEYOND

    def pure(self, op: Transition) -> bool:
        # (The first read of a counter with an unknown start determines that start.)
        return op.f == "read" and not (op.known and isinstance(self.initial, Shifted))

    def narrow(self, kinds: Sequence[Transition]) -> Model[Hashable]:
        """If nothing is ever subtracted, all numbers beyond the largest that was seen are one state."""
        if isinstance(self.initial, Shifted) or any(_change(kind)[0] < 0 for kind in kinds):
            return self
        narrowed = copy(self)
        seen = [number for kind in kinds for number in _change(kind)[1:] if number is not None]
        narrowed.largest = max([cast(int, self.initial), *seen])
        return narrowed

    def tell(self, state: Hashable) -> str:
        return f"more than {self.largest}" if state == BEYOND else show(state)

    def accept(self, op: Transition) -> None:
        argument, result = op.value if op.f in self.pairs else (0, op.value) if op.f == "read" else (op.value, None)
        if op.f in ("increment", "decrement"):
            if argument is not None:
                raise ValueError(
                    f"{with_article(op.f)} has no argument, and {show(argument)} is one: it is an add if its "
                    "completion repeats that, and an add-and-get if it has the number after it"
                )
        elif not _is_whole(argument):
            raise ValueError(f"the argument of {with_article(op.f)} is a whole number, not {show(argument)}")
        if op.known and not _is_whole(result) and (op.f == "read" or result is not None):
            raise ValueError(f"the result of {with_article(op.f)} is a whole number, not {show(result)}")

    def describe(self, op: Transition) -> str:
        if op.f not in self.pairs:
            return super().describe(op)
        argument, result = op.value
        told = op.f if argument is None else f"{op.f} {show(argument)}"
        return f"{told} -> {show(result)}" if op.known and result is not None else told


def _change(op: Transition) -> tuple[int, int | None, int | None]:
    """The number that an op adds, and the numbers before and after it if the op shows them."""
    if op.f == "add":
        return op.value, None, None
    if op.f == "read":
        return 0, op.value if op.known else None, None
    argument, result = op.value
    change = {"increment": 1, "decrement": -1}.get(op.f, argument)
    return (change, result, None) if op.f == "get-and-add" else (change, None, result)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Set(Model[frozenset[Hashable]]):
    """A set, empty at first: `add` and `remove` of an element (there or not), `contains` of an element -> true or
    false, `read` -> the list of all elements, in any order.
    """

    name = noun = "set"
    fs = frozenset({"add", "remove", "contains", "read"})
    observers = frozenset({"contains", "read"})
    pairs = frozenset({"contains"})
    initial: frozenset[Hashable] = frozenset()

    def step(self, state: frozenset[Hashable], op: Transition) -> frozenset[Hashable] | Inconsistent:
        if op.f == "add":
            return state | {op.value}
        if op.f == "remove":
            return state - {op.value}
        return state if self._fits(op, state) else INCONSISTENT

    def replay(self, ops: Iterable[Transition]) -> int | None:
        """Replays on one mutable set: a new state for each of many adds would take quadratic time."""
        held: set[Hashable] = set()
        for place, op in enumerate(ops):
            if op.f == "add":
                held.add(op.value)
            elif op.f == "remove":
                held.discard(op.value)
            elif not self._fits(op, held):
                return place
        return None

    def _fits(self, op: Transition, held: Elements[Hashable]) -> bool:
        """True if a set of these elements can have returned this answer. No read lists an element twice."""
        if not op.known:
            return True
        if op.f == "contains":
            element, there = op.value
            return (element in held) == there  # type: ignore[no-any-return]
        return len(op.value) == len(held) and held == set(op.value)

    def narrow(self, kinds: Sequence[Transition]) -> Model[frozenset[Hashable]]:
        """Without a `read` of all, the state needs only the elements that a `contains` queries."""
        if any(kind.f == "read" for kind in kinds):
            return self
        return _AskedSet(frozenset(kind.value[0] for kind in kinds if kind.f == "contains"))

    def accept(self, op: Transition) -> None:
        if op.f == "contains" and op.known and not isinstance(op.value[1], (bool, Truth)):
            raise ValueError(f"the result of a contains is true or false, not {show(op.value[1])}")
        if op.f == "read" and op.known and not isinstance(op.value, tuple):
            raise ValueError(f"the result of a read is the list of all elements, not {show(op.value)}")

    def describe(self, op: Transition) -> str:
        if op.f != "contains":
            return super().describe(op)
        element, there = op.value
        return f"contains {show(element)}" + (f" -> {str(there).lower()}" if op.known else "")


class _AskedSet(Set):
    def __init__(self, queried: frozenset[Hashable]) -> None:
        self.queried = queried

    def step(self, state: frozenset[Hashable], op: Transition) -> frozenset[Hashable] | Inconsistent:
        if op.f == "add" and op.value not in self.queried:
            return state | {UNSEEN}
        return super().step(state, op)

    def tell(self, state: frozenset[Hashable]) -> str:
        others = ", perhaps with others that no op queries" if UNSEEN in state else ""
        return show(state - {UNSEEN}) + others


class GrowOnlySet(Set):
    """A set, empty at first: `add` of an element, `read` -> the list of all elements, in any order."""

    name = "grow-only-set"
    fs = frozenset({"add", "read"})
    observers = frozenset({"read"})

    def narrow(self, kinds: Sequence[Transition]) -> Model[frozenset[Hashable]]:
        """Sets that are no subset of any set that was read can never be read again: they are one state."""
        return _ObservedSet([frozenset(kind.value) for kind in kinds if kind.f == "read" and kind.known])


class _ObservedSet(GrowOnlySet):
    def __init__(self, seen: Sequence[frozenset[Hashable]]) -> None:
        self.seen = sorted(set(seen), key=len)
        self.lost: frozenset[Hashable] = frozenset({UNSEEN})

    def step(self, state: frozenset[Hashable], op: Transition) -> frozenset[Hashable] | Inconsistent:
        if state == self.lost:
            return state if op.f == "add" else INCONSISTENT
        after = super().step(state, op)
        if isinstance(after, Inconsistent) or after is state:
            return after
        return after if any(after <= seen for seen in self.seen) else self.lost

    def tell(self, state: frozenset[Hashable]) -> str:
        return "a set that is part of none that was read" if state == self.lost else show(state)


class _Pile(Model[S]):
    """The common part of queues and stacks: one op puts an element in, another takes one out and shows it.

    An acknowledged take of None found it empty. A take of unknown outcome takes the element that it finds, if any.
    Queues have a third op, which takes all elements in one step, and shows them.
    """

    put: ClassVar[str]
    take: ClassVar[str]

    def pure(self, op: Transition) -> bool:
        return op.known and ((op.f == self.take and op.value is None) or (op.f == DRAIN and op.value == ()))

    def accept(self, op: Transition) -> None:
        if op.f == self.put and op.value is None:
            raise ValueError(
                f"the argument of {with_article(self.put)} is an element; absent stands for an empty {self.noun}"
            )
        if op.f == DRAIN and op.known and not isinstance(op.value, tuple):
            raise ValueError(f"the result of a {DRAIN} is the list of what it took, not {show(op.value)}")

    def describe(self, op: Transition) -> str:
        if op.f == self.put:
            return f"{op.f} {show(op.value)}"
        return f"{op.f} -> {'empty' if op.value is None else show(op.value)}" if op.known else op.f

    def doubt(self, calls: Sequence[Call]) -> str | None:
        """A drain that is a loop of takes may share the elements with takes that overlap it; here it takes all at once.
        So a contradiction among them proves nothing.
        """
        takes = [c for c in calls if c.invoke.f in (self.take, DRAIN) and c.outcome != "fail"]
        drains = [c for c in takes if c.invoke.f == DRAIN]
        for drain in drains:
            for other in takes:
                if other is not drain and _overlap(drain, other):
                    first, second = sorted((drain.invoke.index, other.invoke.index))
                    return (
                        f"a {DRAIN} takes all there is in one step, and ops {first} and {second} overlap: if the "
                        f"{DRAIN} is a loop of {self.take}s, record each of these as an op"
                    )
        return None

    def _seen(self, kinds: Sequence[Transition]) -> frozenset[Hashable] | None:
        """The elements that some take shows. None if a take of unknown outcome, or a drain, could remove others."""
        takes = [kind for kind in kinds if kind.f != self.put]
        if any(kind.f == DRAIN or not kind.known for kind in takes):
            return None
        return frozenset(kind.value for kind in takes)


def _overlap(one: Call, other: Call) -> bool:
    """True if neither had returned when the other was called. (An op of unknown outcome never returns.)"""

    def returned(call: Call) -> float:
        return call.completion.index if call.completion is not None and call.outcome == OK else float("inf")

    return returned(one) > other.invoke.index and returned(other) > one.invoke.index


class _Line(_Pile[_Items]):
    """A pile whose elements have an order; the first element of the state is taken next.

    A narrowed model knows the elements that are `seen`: UNSEEN then stands for one or more at that place, of which at
    least one is never taken.
    """

    initial: _Items = ()
    seen: frozenset[Hashable] | None = None

    def narrow(self, kinds: Sequence[Transition]) -> Model[_Items]:
        narrowed = copy(self)
        narrowed.seen = self._seen(kinds)
        return narrowed

    def tell(self, state: _Items) -> str:
        if self.seen is None:
            return show(state)
        return f"[{', '.join('an element that no op takes' if item is UNSEEN else show(item) for item in state)}]"

    def step(self, state: _Items, op: Transition) -> _Items | Inconsistent:
        if op.f == self.put:
            return self._with(state, op.value if self.seen is None or op.value in self.seen else UNSEEN)
        if op.f == DRAIN:
            return () if not op.known or op.value == state else INCONSISTENT
        if not op.known:
            return state[1:]
        if op.value is None:
            return INCONSISTENT if state else state
        return state[1:] if state and state[0] == op.value else INCONSISTENT

    @abstractmethod
    def _with(self, state: _Items, item: Hashable) -> _Items:
        """The state after an element was put in."""


class FifoQueue(_Line):
    """First in, first out: `enqueue` of an element, `dequeue` -> the oldest, or None when the queue is empty; `drain`
    takes all there is in one step -> the list, the oldest first.
    """

    name = "fifo-queue"
    noun = "queue"
    fs = frozenset({"enqueue", "dequeue", DRAIN})
    observers = frozenset({"dequeue", DRAIN})
    put, take = "enqueue", "dequeue"

    def _with(self, state: _Items, item: Hashable) -> _Items:
        # Behind an element that no op takes, the order of the others does not matter: no op reaches them.
        return state if state and state[-1] is UNSEEN else (*state, item)


class Stack(_Line):
    """Last in, first out: `push` of an element, `pop` -> the youngest, or None when the stack is empty.

    The state lists the youngest first.
    """

    name = noun = "stack"
    fs = frozenset({"push", "pop"})
    observers = frozenset({"pop"})
    put, take = "push", "pop"

    def _with(self, state: _Items, item: Hashable) -> _Items:
        # No op reaches the elements under one that no op takes.
        return (item,) if item is UNSEEN else (item, *state)


class UnorderedQueue(_Pile[_Bag]):
    """A bag: `enqueue` of an element, `dequeue` -> any that is in it, or None when it is empty; `drain` takes all there
    is in one step -> the list, in any order.

    The state is the set of (element, number of its copies); GONE counts the unknown elements that dequeues of unknown
    outcome took. (Such a dequeue may take effect at any later time, so it may have taken any element.)
    """

    name = "unordered-queue"
    noun = "queue"
    fs = FifoQueue.fs
    observers = FifoQueue.observers
    put, take = "enqueue", "dequeue"
    initial: _Bag = frozenset()

    def step(self, state: _Bag, op: Transition) -> _Bag | Inconsistent:
        held = Tally(dict(state))
        gone = held.pop(GONE, 0)
        left = held.total() - gone
        if op.f == "enqueue":
            held[op.value] += 1
        elif not op.known:
            gone += left if op.f == DRAIN else min(left, 1)
        elif op.f == DRAIN:
            taken = Tally(op.value)
            if taken.total() != left or not taken <= held:
                return INCONSISTENT
            gone += left
        elif op.value is None:
            return INCONSISTENT if left else state
        elif not held[op.value] or not left:
            return INCONSISTENT
        else:
            held[op.value] -= 1
        if held.total() == gone:
            return self.initial
        return frozenset({**+held, GONE: gone}.items() if gone else (+held).items())

    def narrow(self, kinds: Sequence[Transition]) -> Model[_Bag]:
        """Elements that no dequeue shows only matter for a dequeue of None, whatever their number."""
        seen = self._seen(kinds)
        if seen is None or all(kind.value in seen for kind in kinds if kind.f == "enqueue"):
            return self
        return _SeenBag(seen)

    def tell(self, state: _Bag) -> str:
        """The elements, each once per copy."""
        held = dict(state)
        gone = held.pop(GONE, 0)
        elements = f"{{{', '.join(sorted(show(element) for element, times in held.items() for _ in range(times)))}}}"
        return f"{sum(held.values()) - gone} of {elements}" if gone else elements


class _SeenBag(UnorderedQueue):
    """Elements that no dequeue shows are left out, or stand in a state as one, UNSEEN."""

    def __init__(self, seen: frozenset[Hashable]) -> None:
        self.seen = seen

    def tell(self, state: _Bag) -> str:
        known = super().tell(state - {(UNSEEN, 1)})
        never_merged = any(element not in self.seen and element is not UNSEEN for element, _ in state)
        if never_merged or ((UNSEEN, 1) not in state and None in self.seen):
            return known
        return f"{known}, perhaps with others that no op takes"

    def step(self, state: _Bag, op: Transition) -> _Bag | Inconsistent:
        if op.f == "enqueue" and op.value not in self.seen:
            return state | {(UNSEEN, 1)} if None in self.seen else state
        return super().step(state, op)
