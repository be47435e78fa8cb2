"""Things that hold things: counter, sets, queues, stack.

Each `narrow` merges states that none of a history's ops can tell apart (the observability quotient of the study
behind this checker): what is put in and never seen again need not be remembered, as long as it is not forgotten that
it may be in the way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter as Tally
from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as Elements
from copy import copy
from typing import ClassVar, Final

from checkers.linearizability.models.specification import INCONSISTENT, UNSEEN, Inconsistent, Model, S, Transition, show
from checkers.linearizability.models.values import Truth
from results.errors import with_article

_Items = tuple[Hashable, ...]
_Bag = frozenset[tuple[Hashable, int]]
"""(element, how often it is in there)."""

BEYOND: Final = float("inf")
"""Stands for all numbers of a counter that no read can show any more."""


class Counter(Model[float]):
    """A number, from 0: `add` of a whole number (also a negative one), `read` -> the number."""

    name = noun = "counter"
    fs = frozenset({"add", "read"})
    observers = frozenset({"read"})
    initial: float = 0
    largest: float = BEYOND

    def step(self, state: float, op: Transition) -> float | Inconsistent:
        if op.f == "add":
            after = state + int(op.value)
            return after if after <= self.largest else BEYOND
        return state if not op.known or op.value == state else INCONSISTENT

    def narrow(self, kinds: Sequence[Transition]) -> Model[float]:
        """Where nothing is ever taken off, all numbers beyond the largest that was read are one."""
        if any(kind.f == "add" and kind.value < 0 for kind in kinds):
            return self
        narrowed = copy(self)
        narrowed.largest = max([0, *(kind.value for kind in kinds if kind.f == "read" and kind.known)])
        return narrowed

    def tell(self, state: float) -> str:
        return f"more than {self.largest}" if state == BEYOND else show(state)

    def accept(self, op: Transition) -> None:
        if op.known and (not isinstance(op.value, int) or isinstance(op.value, bool)):
            what = "argument of an add" if op.f == "add" else "result of a read"
            raise ValueError(f"the {what} is a whole number, not {show(op.value)}")


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
        """One set that changes: the state after each of many adds would cost the square of them."""
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
        """Can this be what a set of these elements answered? No read of one lists an element twice."""
        if not op.known:
            return True
        if op.f == "contains":
            element, there = op.value
            return (element in held) == there  # type: ignore[no-any-return]
        return len(op.value) == len(held) and held == set(op.value)

    def narrow(self, kinds: Sequence[Transition]) -> Model[frozenset[Hashable]]:
        """Without a `read` of all, elements that no `contains` asks for need not be remembered."""
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
        others = ", perhaps with others that nobody asks about" if UNSEEN in state else ""
        return show(state - {UNSEEN}) + others


class GrowOnlySet(Set):
    """A set, empty at first: `add` of an element, `read` -> the list of all elements, in any order."""

    name = "grow-only-set"
    fs = frozenset({"add", "read"})
    observers = frozenset({"read"})

    def narrow(self, kinds: Sequence[Transition]) -> Model[frozenset[Hashable]]:
        """Sets that are part of none that was read can never become one again, and are all one."""
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
    """What queues and stacks share: one op puts an element in, another takes one out and shows it.

    An acknowledged take of None found nothing there. A take of unknown outcome takes what it finds, if anything.
    """

    put: ClassVar[str]
    take: ClassVar[str]

    def pure(self, op: Transition) -> bool:
        return op.f == self.take and op.known and op.value is None

    def accept(self, op: Transition) -> None:
        if op.f == self.put and op.value is None:
            raise ValueError(
                f"the argument of {with_article(self.put)} is an element; absent stands for an empty {self.noun}"
            )

    def describe(self, op: Transition) -> str:
        if op.f == self.put:
            return f"{op.f} {show(op.value)}"
        return f"{op.f} -> {'empty' if op.value is None else show(op.value)}" if op.known else op.f

    def _seen(self, kinds: Sequence[Transition]) -> frozenset[Hashable] | None:
        """The elements that some take shows. None where a take of unknown outcome could remove any other."""
        takes = [kind for kind in kinds if kind.f == self.take]
        return frozenset(kind.value for kind in takes) if all(kind.known for kind in takes) else None


class _Line(_Pile[_Items]):
    """A pile whose elements have an order; the state lists first what is taken next.

    Narrowed, it knows the elements that are `seen`: UNSEEN then stands for one or more at that place, of which at least
    one is never taken.
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
        return f"[{', '.join('what nobody takes' if item is UNSEEN else show(item) for item in state)}]"

    def step(self, state: _Items, op: Transition) -> _Items | Inconsistent:
        if op.f == self.put:
            return self._with(state, op.value if self.seen is None or op.value in self.seen else UNSEEN)
        if not op.known:
            return state[1:]
        if op.value is None:
            return INCONSISTENT if state else state
        return state[1:] if state and state[0] == op.value else INCONSISTENT

    @abstractmethod
    def _with(self, state: _Items, item: Hashable) -> _Items:
        """The state after an element was put in."""


class FifoQueue(_Line):
    """First in, first out: `enqueue` of an element, `dequeue` -> the oldest, or None when the queue is empty."""

    name = "fifo-queue"
    noun = "queue"
    fs = frozenset({"enqueue", "dequeue"})
    observers = frozenset({"dequeue"})
    put, take = "enqueue", "dequeue"

    def _with(self, state: _Items, item: Hashable) -> _Items:
        # Behind an element that nobody takes, the order of the others does not matter: nobody gets there.
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
        # Nobody gets at what lies under an element that nobody takes.
        return (item,) if item is UNSEEN else (item, *state)


class UnorderedQueue(_Pile[_Bag]):
    """A bag: `enqueue` of an element, `dequeue` -> any that is in it, or None when it is empty.

    The state is the set of (element, how often it is in there).
    """

    name = "unordered-queue"
    noun = "queue"
    fs = FifoQueue.fs
    observers = FifoQueue.observers
    put, take = "enqueue", "dequeue"
    initial: _Bag = frozenset()

    def step(self, state: _Bag, op: Transition) -> _Bag | Inconsistent:
        held = Tally(dict(state))
        if op.f == "enqueue":
            held[op.value] += 1
        elif not op.known:
            # It may take any, but when matters: only a dequeue that finds nothing can tell, and before that everything
            # has to go. Whatever it is that goes first, as late as possible.
            if held:
                held[min(held, key=repr)] -= 1
        elif op.value is None:
            return INCONSISTENT if state else state
        elif not held[op.value]:
            return INCONSISTENT
        else:
            held[op.value] -= 1
        return frozenset((+held).items())

    def narrow(self, kinds: Sequence[Transition]) -> Model[_Bag]:
        """Elements that no dequeue shows are only in the way of one that finds nothing, however many they are."""
        seen = self._seen(kinds)
        if seen is None:
            return _RobbedBag()
        return self if all(kind.value in seen for kind in kinds if kind.f == "enqueue") else _SeenBag(seen)

    def tell(self, state: _Bag) -> str:
        """Each element as often as it is in there."""
        return f"{{{', '.join(sorted(show(element) for element, times in state for _ in range(times)))}}}"


class _RobbedBag(UnorderedQueue):
    """Some dequeue is of unknown outcome: a state stands for all that it can have left."""

    def tell(self, state: _Bag) -> str:
        left = sum(times for _, times in state)
        return f"{{{left} of the elements}}" if left else "{}"


class _SeenBag(UnorderedQueue):
    """Elements that no dequeue shows are left out, or stand in a state as one, UNSEEN."""

    def __init__(self, seen: frozenset[Hashable]) -> None:
        self.seen = seen

    def tell(self, state: _Bag) -> str:
        known = super().tell(state - {(UNSEEN, 1)})
        never_merged = any(element not in self.seen and element is not UNSEEN for element, _ in state)
        if never_merged or ((UNSEEN, 1) not in state and None in self.seen):
            return known
        return f"{known}, perhaps with others that nobody takes"

    def step(self, state: _Bag, op: Transition) -> _Bag | Inconsistent:
        if op.f == "enqueue" and op.value not in self.seen:
            return state | {(UNSEEN, 1)} if None in self.seen else state
        return super().step(state, op)
