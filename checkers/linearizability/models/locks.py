# SPDX-License-Identifier: Apache-2.0
"""Locks: one that does not know its holder, one with numbered grants, and one that its holder may acquire again.

Each knows `acquire` and `release` (or `lock` and `unlock`), and `try-acquire` (or `try-lock`), which never waits. Its
result is true if it got the lock; false is an observation that it was held. A try of unknown outcome took the lock if
that was free, and did nothing if it was not.

Source: the lock models of Jepsen's Hazelcast suite (OwnerAwareMutex, FencedMutex, ReentrantMutex).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from checkers.linearizability.models.specification import INCONSISTENT, Inconsistent, Model, Transition, show
from checkers.linearizability.models.values import Truth
from results.history import Call

TRY: Final = "try-acquire"

_FS: Final = frozenset({"acquire", "release", TRY, "lock", "unlock", "try-lock"})
_ALIASES: Final = {"lock": "acquire", "unlock": "release", "try-lock": TRY}


class Mutex(Model[bool]):
    """A lock that does not know its holder: `acquire` and `release` alternate; `try-acquire` -> true or false."""

    name = "mutex"
    noun = "lock"
    fs = _FS
    aliases = _ALIASES
    observers = frozenset({TRY})
    initial = False

    def step(self, state: bool, op: Transition) -> bool | Inconsistent:
        if op.f == TRY and not op.known:
            return True
        if refused(op):
            return state if state else INCONSISTENT
        wanted = op.f == "release"
        return not wanted if state == wanted else INCONSISTENT

    def pure(self, op: Transition) -> bool:
        return refused(op)

    def accept(self, op: Transition) -> None:
        if op.f == TRY and op.known:
            _insist_on_truth(op.value)

    def describe(self, op: Transition) -> str:
        return f"{op.f} -> {show(op.value)}" if op.f == TRY and op.known else op.f

    def tell(self, state: bool) -> str:
        return "held" if state else "free"


def refused(op: Transition) -> bool:
    """True for a try of a mutex that did not get the lock."""
    return op.f == TRY and op.known and not op.value


def _insist_on_truth(value: Any) -> None:
    if not isinstance(value, (bool, Truth)):
        raise ValueError(f"the result of a {TRY} is true or false, not {show(value)}")


class Grant(NamedTuple):
    """State of a fenced lock. `holder`: None if it is free. `fence`: that of the last grant, None before the first."""

    holder: Hashable
    fence: int | None

    def __str__(self) -> str:
        held = "free" if self.holder is None else f"held by {show(self.holder)}"
        return held if self.fence is None else f"{held} (fence {self.fence})"


class FencedLock(Model[Grant]):
    """A lock whose every grant carries a fence, a number larger than all before (Hazelcast's FencedLock).

    `acquire` has its owner as argument (without one: the client's process) and the fence as result; without a result
    the fence was not recorded, and was some larger number. The result of a `try-acquire` is the fence, true (it was not
    recorded) or false. `release` has the owner: only the holder can.
    """

    name = "fenced-lock"
    noun = "lock"
    fs = _FS
    aliases = _ALIASES
    observers = pairs = frozenset({"acquire", TRY})
    initial = Grant(None, None)

    def kind(self, call: Call) -> Transition:
        what, owner = super().kind(call), _owner(call)
        return replace(what, value=owner if what.f == "release" else (owner, what.value[1]))

    def step(self, state: Grant, op: Transition) -> Grant | Inconsistent:
        if op.f == "release":
            return Grant(None, state.fence) if state.holder == op.value else INCONSISTENT
        owner, fence = op.value
        if _is_false(fence):
            return INCONSISTENT if state.holder is None else state
        if state.holder is not None:
            return INCONSISTENT if op.f == "acquire" or op.known else state
        if fence is None or isinstance(fence, (bool, Truth)):
            # The smallest fence it can have had forbids the least of what follows.
            return Grant(owner, None if state.fence is None else state.fence + 1)
        return Grant(owner, fence) if state.fence is None or fence > state.fence else INCONSISTENT

    def pure(self, op: Transition) -> bool:
        return op.f == TRY and _is_false(op.value[1])

    def narrow(self, kinds: Sequence[Transition]) -> Model[Grant]:
        unrecorded = any(k.f != "release" and not _is_number(k.value[1]) and not _is_false(k.value[1]) for k in kinds)
        return _UnrecordedFences() if unrecorded else self

    def accept(self, op: Transition) -> None:
        if op.f == "release" or _is_number(fence := op.value[1]):
            return
        if op.f == "acquire" and fence is not None:
            raise ValueError(f"the result of an acquire is its fence, a whole number, not {show(fence)}")
        if op.f == TRY and op.known and not isinstance(fence, (bool, Truth)):
            raise ValueError(f"the result of a {TRY} is its fence (a whole number), true or false, not {show(fence)}")

    def describe(self, op: Transition) -> str:
        if op.f == "release":
            return f"release by {show(op.value)}"
        owner, fence = op.value
        if op.f == TRY and op.known and not _is_number(fence):
            return f"{TRY} by {show(owner)} -> {show(fence)}"
        return f"{op.f} by {show(owner)}" + ("" if fence is None else f" with fence {fence}")


class _UnrecordedFences(FencedLock):
    """A fenced lock whose states have, for a fence that was not recorded, the smallest possible one."""

    def tell(self, state: Grant) -> str:
        held = str(state._replace(fence=None))
        return held if state.fence is None else f"{held} (fence {state.fence} or more)"


def _is_number(fence: Any) -> bool:
    return isinstance(fence, int) and not isinstance(fence, bool)


def _is_false(result: Any) -> bool:
    return isinstance(result, (bool, Truth)) and not result


class Hold(NamedTuple):
    """State of a reentrant lock. `holder`: None if it is free. `times`: the number of releases until it is free."""

    holder: Hashable
    times: int

    def __str__(self) -> str:
        return f"held by {show(self.holder)}, {self.times} times" if self.times else "free"


class ReentrantLock(Model[Hold]):
    """A lock that its holder may acquire again, and must release as often (Java's ReentrantLock).

    All ops have the owner as argument; without one, the client's process is the owner. `most`: the largest number of
    holds at a time, or None (an acquire beyond it cannot succeed). `try-acquire` -> true or false.
    """

    name = "reentrant-lock"
    noun = "lock"
    fs = _FS
    aliases = _ALIASES
    observers = pairs = frozenset({TRY})
    initial = Hold(None, 0)

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def kind(self, call: Call) -> Transition:
        what, owner = super().kind(call), _owner(call)
        return replace(what, value=(owner, what.value[1]) if what.f == TRY else owner)

    def step(self, state: Hold, op: Transition) -> Hold | Inconsistent:
        holder, count = state
        if op.f != "release":
            owner, got = op.value if op.f == TRY else (op.value, True)
            possible = (not count or holder == owner) and (self.most is None or count < self.most)
            if not op.known:
                return Hold(owner, count + 1) if possible else state
            if possible != bool(got):
                return INCONSISTENT
            return Hold(owner, count + 1) if possible else state
        if not count or holder != op.value:
            return INCONSISTENT
        return Hold(holder, count - 1) if count > 1 else self.initial

    def pure(self, op: Transition) -> bool:
        return op.f == TRY and _is_false(op.value[1])

    def accept(self, op: Transition) -> None:
        if op.f == TRY and op.known:
            _insist_on_truth(op.value[1])

    def describe(self, op: Transition) -> str:
        if op.f != TRY:
            return f"{op.f} by {show(op.value)}"
        owner, got = op.value
        return f"{TRY} by {show(owner)}" + (f" -> {show(got)}" if op.known else "")


def _owner(call: Call) -> Hashable:
    """The owner that acquires or releases: the argument, or else the process."""
    return call.invoke.process if call.invoke.value is None else call.invoke.value
