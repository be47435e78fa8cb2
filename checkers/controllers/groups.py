# SPDX-License-Identifier: Apache-2.0
"""The operations of a history on each broker group at the controllers, for `checkers.controllers.answers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from results.history import Call
from results.op import FAIL, OK
from results.record import RunRecord

Version = tuple[int, int]
"""(master epoch, epoch of the SyncStateSet)."""

ABSENT: Final[Version] = (-1, -1)

CHANGES: Final = ("apply", "register", "elect", "alter", "clean", "forget")
ANSWERS: Final = ("read", "view", "next")


class Seen(NamedTuple):
    """An acknowledged operation that shows a version of a group. made: True if it is the change that made it."""

    version: Version
    start: int
    end: int
    op: int
    made: bool
    call: Call


@dataclass
class GroupHistory:
    """name, and the operations on it: changes that may have happened, and answers, in order of invocation."""

    name: str
    changes: list[Call] = field(default_factory=list)
    answers: list[Call] = field(default_factory=list)

    def of(self, *fs: str, acknowledged: bool = False) -> list[Call]:
        return [c for c in self.changes if c.invoke.f in fs and (not acknowledged or c.outcome == OK)]

    @property
    def judged(self) -> bool:
        """False if an application for the first id may have taken effect after the group was removed."""
        forgets = self.of("forget")
        if not forgets:
            return True
        first = min(c.start for c in forgets)
        return all(is_over(c, first) for c in self.of("apply") if asked(c).get("id", 1) == 1)


def read(run: RunRecord) -> dict[str, GroupHistory]:
    """Group -> its operations."""
    found: dict[str, GroupHistory] = {}
    for call in run.history.clients.calls:
        key, f = call.invoke.key, call.invoke.f
        if key is None:
            continue
        group = found.setdefault(key, GroupHistory(key))
        if f in CHANGES and call.outcome != FAIL:
            group.changes.append(call)
        elif f in ANSWERS and call.outcome == OK:
            group.answers.append(call)
    return found


def asked(call: Call) -> Mapping[str, Any]:
    """The recorded request of an operation; empty without a record."""
    value = call.completion.value if call.completion is not None else None
    return value if isinstance(value, Mapping) else {}


def told(call: Call) -> Any:
    return call.completion.value if call.completion is not None else None


def told_by(call: Call) -> Any:
    return None if call.completion is None else call.completion.extra.get("controller")


def seen(group: GroupHistory) -> list[Seen]:
    """The operations that show a version, in order of their ends. An unknown group has the version `ABSENT`."""
    found = []
    for call in (*group.changes, *group.answers):
        if call.outcome != OK or call.end is None or call.invoke.f not in ("read", "view", "elect", "alter"):
            continue
        value = told(call)
        version = ABSENT if value is None else (int(value["master_epoch"]), int(value["epoch"]))
        made = call.invoke.f in ("elect", "alter")
        found.append(Seen(version, call.start, call.end, call.invoke.index, made, call))
    return sorted(found, key=lambda s: s.end)


def ended(call: Call) -> int:
    """The time (ns) of its outcome; without an outcome, of its invocation."""
    return call.end if call.end is not None else call.start


def is_over(call: Call, at: int) -> bool:
    """True if a change certainly took effect before a time. One without an answer may take effect at any time."""
    return call.outcome == OK and ended(call) < at
