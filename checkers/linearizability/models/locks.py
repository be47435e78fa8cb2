"""Locks: one that does not know its holder, one whose grants are numbered, one that its holder may take again.

Source: the lock models of Jepsen's Hazelcast suite (OwnerAwareMutex, FencedMutex, ReentrantMutex).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from checkers.linearizability.models.specification import INCONSISTENT, Inconsistent, Model, Transition, show
from results.history import Call


class Mutex(Model[bool]):
    """A lock that does not know its holder: `acquire` and `release` alternate."""

    name = "mutex"
    noun = "lock"
    fs = frozenset({"acquire", "release"})
    initial = False

    def step(self, state: bool, op: Transition) -> bool | Inconsistent:
        wanted = op.f == "release"
        return not wanted if state == wanted else INCONSISTENT

    def describe(self, op: Transition) -> str:
        return op.f

    def tell(self, state: bool) -> str:
        return "held" if state else "free"


class Grant(NamedTuple):
    """State of a fenced lock. `holder`: None when it is free. `fence`: of the last grant, None before the first."""

    holder: Hashable
    fence: int | None

    def __str__(self) -> str:
        held = "free" if self.holder is None else f"held by {show(self.holder)}"
        return held if self.fence is None else f"{held} (fence {self.fence})"


class FencedLock(Model[Grant]):
    """A lock whose every grant carries a fence, a number larger than all before (Hazelcast's FencedLock).

    `acquire` has its owner as argument (without one: the client's process) and the fence as result; without a result
    the fence was not recorded, and was some larger number. `release` has the owner: only the holder can.
    """

    name = "fenced-lock"
    noun = "lock"
    fs = frozenset({"acquire", "release"})
    observers = pairs = frozenset({"acquire"})
    initial = Grant(None, None)

    def kind(self, call: Call) -> Transition:
        what, owner = super().kind(call), _owner(call)
        return replace(what, value=(owner, what.value[1]) if what.f == "acquire" else owner)

    def step(self, state: Grant, op: Transition) -> Grant | Inconsistent:
        if op.f == "release":
            return Grant(None, state.fence) if state.holder == op.value else INCONSISTENT
        owner, fence = op.value
        if state.holder is not None:
            return INCONSISTENT
        if fence is None:
            # The smallest fence it can have had forbids the least of what follows.
            return Grant(owner, None if state.fence is None else state.fence + 1)
        return Grant(owner, fence) if state.fence is None or fence > state.fence else INCONSISTENT

    def pure(self, op: Transition) -> bool:
        return False

    def narrow(self, kinds: Sequence[Transition]) -> Model[Grant]:
        return _UnrecordedFences() if any(k.f == "acquire" and k.value[1] is None for k in kinds) else self

    def accept(self, op: Transition) -> None:
        if op.f == "acquire":
            fence = op.value[1]
            if fence is not None and (not isinstance(fence, int) or isinstance(fence, bool)):
                raise ValueError(f"the result of an acquire is its fence, a whole number, not {show(fence)}")

    def describe(self, op: Transition) -> str:
        if op.f == "release":
            return f"release by {show(op.value)}"
        owner, fence = op.value
        return f"acquire by {show(owner)}" + ("" if fence is None else f" with fence {fence}")


class _UnrecordedFences(FencedLock):
    """Where a fence was not recorded, a state has the smallest that it can have been."""

    def tell(self, state: Grant) -> str:
        held = str(state._replace(fence=None))
        return held if state.fence is None else f"{held} (fence {state.fence} or more)"


class Hold(NamedTuple):
    """State of a reentrant lock. `holder`: None when it is free. `times`: releases that it still takes to be free."""

    holder: Hashable
    times: int

    def __str__(self) -> str:
        return f"held by {show(self.holder)}, {self.times} times" if self.times else "free"


class ReentrantLock(Model[Hold]):
    """A lock that its holder may acquire again, and must release as often (Java's ReentrantLock).

    Both ops have the owner as argument; without one, the client's process is the owner. `most`: how often it may be
    held at a time, or None (an acquire beyond it cannot succeed).
    """

    name = "reentrant-lock"
    noun = "lock"
    fs = frozenset({"acquire", "release"})
    initial = Hold(None, 0)

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def kind(self, call: Call) -> Transition:
        return Transition(call.invoke.f, _owner(call))

    def step(self, state: Hold, op: Transition) -> Hold | Inconsistent:
        holder, count = state
        if op.f == "acquire":
            if (count and holder != op.value) or (self.most is not None and count >= self.most):
                return INCONSISTENT
            return Hold(op.value, count + 1)
        if not count or holder != op.value:
            return INCONSISTENT
        return Hold(holder, count - 1) if count > 1 else self.initial

    def describe(self, op: Transition) -> str:
        return f"{op.f} by {show(op.value)}"


def _owner(call: Call) -> Hashable:
    """Who acquires or releases: the argument, or else the process."""
    return call.invoke.process if call.invoke.value is None else call.invoke.value
