# SPDX-License-Identifier: Apache-2.0
"""The changes of a group by its administrator, and the times in which it may not consume because of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from checkers.messages.consuming.takes import Takes
from results.figures import SECOND
from results.history import Call, History
from results.op import FAIL, OK

UPDATE: Final = "update-group"
DELETE: Final = "delete-group"
CLEAN: Final = "clean"
"""The value of a deletion that removes the offsets of the group, too."""

RESUMED_S: Final = 5.0
"""The longest time until members get messages again: a client that was refused pulls again after 1 s
(`pullTimeDelayMillsWhenException`; 3 s before 5.2), and its group is behind."""

FORGOTTEN_S: Final = 60.0
"""The longest time after a deletion with offsets in which an owner may find none: until the one before has committed,
which is after 5 s, or was ended, and another one follows.
"""

CLEANED: Final = "its owner began without an offset: an administrator had deleted the group with its offsets"
"""The reason why a message need not come."""


class Closed(NamedTuple):
    """A time (ns) in which the group may not consume. by: the change that ends its consumption."""

    start: int
    end: int
    by: Change


@dataclass(frozen=True)
class Change:
    """A change that was not refused by all brokers. Times in ns.

    settings  the settings from then on; None: the group is deleted. end: the time of the acknowledgement by all
              brokers; None: not all acknowledged it.
    acked     the nodes that acknowledged it. unsure: those that may execute it at any time; None: all.
    """

    call: Call
    settings: Mapping[str, Any] | None
    end: int | None
    acked: frozenset[str]
    unsure: frozenset[str] | None

    @property
    def start(self) -> int:
        return self.call.start

    @property
    def opens(self) -> bool:
        """True if the group may consume with it."""
        return self.settings is not None and bool(self.settings.get("consumeEnable"))

    @property
    def ops(self) -> list[int]:
        """The indices of its ops."""
        done = self.call.completion
        return [self.call.invoke.index, *([] if done is None else [done.index])]

    def may_come_late(self, node: str) -> bool:
        """True if a node may execute it at any time after its request."""
        return self.unsure is None or node in self.unsure


class GroupChanges:
    """The changes of a run, in the order of their requests: one administrator makes them, one after the other."""

    def __init__(self, history: History) -> None:
        self._until = history[-1].time if len(history) else 0
        self._begun: dict[str, Sequence[int]] = {}
        calls = (call for call in history.clients.calls if call.invoke.f in (UPDATE, DELETE) and call.outcome != FAIL)
        self.all: Sequence[Change] = [_change(call) for call in sorted(calls, key=lambda call: call.start)]

    def __bool__(self) -> bool:
        return bool(self.all)

    @cached_property
    def certain(self) -> Sequence[Closed]:
        """The times in which no broker lets the group consume, by what was acknowledged."""
        found = []
        for n, change in enumerate(self.all):
            if change.opens or change.end is None:
                continue
            end = next((later.start for later in self.all[n + 1 :] if later.opens), self._until)
            found.append(Closed(change.end, end, change))
        return found

    @cached_property
    def possible(self) -> Sequence[Closed]:
        """The times in which some broker may refuse the group, until members get messages again."""
        found: list[Closed] = []
        for n, change in enumerate(self.all):
            if change.opens:
                continue
            ends = (later.end for later in self.all[n + 1 :] if later.opens and later.end is not None)
            end = next(ends, self._until) + int(RESUMED_S * SECOND)
            found.append(Closed(change.start, end, change))
        return found

    def closed(self, start: int, end: int) -> bool:
        """True if some broker may have refused the group between two times (ns)."""
        return any(each.start <= end and each.end >= start for each in self.possible)

    def put_off(self, since: int, due: int) -> int:
        """The time (ns) at which something is due that takes from `since` to `due` while the group may consume."""
        takes = due - since
        for each in self.possible:
            if each.start <= due and each.end >= since:
                due = max(due, each.end + takes)
        return due

    def open_since(self, until: int) -> int:
        """The time (ns) since which the group may consume, at `until`; 0: from the start."""
        return max((min(each.end, until) for each in self.possible), default=0)

    def forgets(self, taken: Takes, key: str, sent: int) -> bool:
        """True if an owner of a queue may have found no offset of the group, and begun behind a message that was
        sent at a time (ns).
        """
        more = int(FORGOTTEN_S * SECOND)
        spans = [each for each in self.possible if each.by.settings is None and each.by.call.invoke.value == CLEAN]
        if spans and key not in self._begun:
            self._begun[key] = taken.begun(key)
        begun = self._begun.get(key, ())
        return any(each.start <= at <= each.end + more and sent <= at for each in spans for at in begun)

    @property
    def deletions(self) -> Sequence[Closed]:
        """The times in which brokers may not know the group."""
        return [each for each in self.possible if each.by.settings is None]


def _change(call: Call) -> Change:
    done = call.completion
    extra: Mapping[str, Any] = {} if done is None else done.extra
    unsure = extra.get("unsure")
    return Change(
        call,
        None if call.invoke.f == DELETE else call.invoke.value,
        call.end if call.outcome == OK else None,
        frozenset(extra.get("acked") or ()),
        None if unsure is None else frozenset(unsure),
    )
