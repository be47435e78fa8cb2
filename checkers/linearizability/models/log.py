# SPDX-License-Identifier: Apache-2.0
"""The append-only log with offsets: one queue of a RocketMQ topic, as its clients see it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from checkers.linearizability.models.specification import INCONSISTENT, UNSEEN, Inconsistent, Model, Transition, show
from results.errors import with_article


class Entries(NamedTuple):
    """State of a log: the entries from offset `first` on, in order of offset."""

    first: int
    values: tuple[Hashable, ...]

    @property
    def end(self) -> int:
        """The offset of the next entry."""
        return self.first + len(self.values)

    def __str__(self) -> str:
        return f"{show(self.values)} from offset {self.first}" if self.first else show(self.values)


class Log(Model[Entries]):
    """Entries get consecutive offsets and never change; the oldest may be trimmed (RocketMQ's ConsumeQueue).

    | f            | argument        | result                                                                  |
    |--------------|-----------------|-------------------------------------------------------------------------|
    | `append`     | the entry       | its offset; none: it was acknowledged, but the offset was not recorded   |
    | `read`       | an offset       | the entry there, or None if no entry is there (trimmed, or not yet sent) |
    | `min-offset` |                 | the offset of the oldest entry that is left                             |
    | `max-offset` |                 | the offset that the next entry will get (RocketMQ's `maxOffset`)         |
    | `trim`       | an offset       | all entries in front of it go                                           |

    `first` is the offset of the first entry ever.
    """

    name = noun = "log"
    fs = frozenset({"append", "read", "min-offset", "max-offset", "trim"})
    observers = frozenset({"append", "read", "min-offset", "max-offset"})
    pairs = frozenset({"append", "read"})

    def __init__(self, first: int = 0) -> None:
        self.initial = Entries(first, ())

    def step(self, state: Entries, op: Transition) -> Entries | Inconsistent:
        if op.f == "append":
            entry, offset = op.value
            if offset is not None and offset != state.end:
                return INCONSISTENT
            return Entries(state.first, (*state.values, self._kept(entry, state.end)))
        if op.f == "trim":
            if op.value > state.end:
                return INCONSISTENT
            gone = max(op.value - state.first, 0)
            return Entries(state.first + gone, state.values[gone:])
        if not op.known:
            return state
        if op.f == "read":
            offset, entry = op.value
            there = state.values[offset - state.first] if state.first <= offset < state.end else None
            return state if there == entry else INCONSISTENT
        return state if op.value == (state.first if op.f == "min-offset" else state.end) else INCONSISTENT

    def replay(self, ops: Iterable[Transition]) -> int | None:
        first, entries = self.initial.first, list(self.initial.values)
        start = first
        for place, op in enumerate(ops):
            end = start + len(entries)
            if op.f == "append":
                entry, offset = op.value
                possible = offset is None or offset == end
                entries.append(entry)
            elif op.f == "trim":
                possible = op.value <= end
                first = max(first, op.value)
            elif not op.known:
                continue
            elif op.f == "read":
                offset, entry = op.value
                possible = entry == (entries[offset - start] if first <= offset < end else None)
            else:
                possible = op.value == (first if op.f == "min-offset" else end)
            if not possible:
                return place
        return None

    def _kept(self, entry: Hashable, offset: int) -> Hashable:
        """The part of an entry that the state keeps."""
        return entry

    def pure(self, op: Transition) -> bool:
        return op.f not in ("append", "trim")

    def narrow(self, kinds: Sequence[Transition]) -> Model[Entries]:
        seen: dict[int, set[Hashable]] = {}
        for kind in kinds:
            if kind.f == "read" and kind.known:
                seen.setdefault(kind.value[0], set()).add(kind.value[1])
        return _ObservedLog(self.initial.first, seen)

    def accept(self, op: Transition) -> None:
        if op.f == "append":
            entry, offset = op.value
            what, known = "result of an append is its offset", offset is not None
            if entry is None:
                raise ValueError("the argument of an append is an entry; absent stands for no entry")
        elif op.f == "read":
            what, offset, known = "argument of a read is an offset", op.value[0], True
        else:
            what, offset, known = f"value of {with_article(op.f)} is an offset", op.value, op.known
        if known and (not isinstance(offset, int) or isinstance(offset, bool)):
            raise ValueError(f"the {what}, a whole number, not {show(offset)}")

    def describe(self, op: Transition) -> str:
        if op.f == "append":
            entry, offset = op.value
            return f"append {show(entry)}" + ("" if offset is None else f" at {offset}")
        if op.f == "read":
            offset, entry = op.value
            return f"read at {offset}" + (f" -> {show(entry)}" if op.known else "")
        return f"{op.f} {show(op.value)}" if op.known else op.f


class _ObservedLog(Log):
    """A `Log` that keeps an entry only if a read saw it at its offset; the others only exist.

    Without this, each order of concurrent appends would be a separate state although no read shows it. The merge
    depends on the offset alone, which never changes: merged states stay merged.
    """

    def __init__(self, first: int, seen: Mapping[int, set[Any]]) -> None:
        super().__init__(first)
        self.seen = seen

    def _kept(self, entry: Hashable, offset: int) -> Hashable:
        return entry if entry in self.seen.get(offset, ()) else UNSEEN

    def tell(self, state: Entries) -> str:
        named = ", ".join("an entry that no read shows there" if one is UNSEEN else show(one) for one in state.values)
        return f"[{named}]" + (f" from offset {state.first}" if state.first else "")
