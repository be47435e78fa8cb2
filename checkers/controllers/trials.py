# SPDX-License-Identifier: Apache-2.0
"""The trials of the workload `broker-identity`, read from a history: the operations on brokers of one name, the state
of their nodes, and the answers of controllers. `checkers.controllers.identity` judges them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from results.history import Call
from results.op import FAIL, OK
from results.record import RunRecord

_GHOST: Final = "the register code that belongs to the id is lost with its file"
_SET: Final = "the SyncStateSet names only the id that was deleted, and no election accepts another one"
_COPY: Final = "its file was copied, and controllers do not check which broker uses an id"

PERMITTED: Final[Mapping[str, Mapping[str, str]]] = {
    "rm-temp": {"burnt-id": _GHOST, "ghost-replica": _GHOST},
    "rm-identity": {"never-running": _SET},
    "wipe": {"burnt-id": _GHOST, "ghost-replica": _GHOST, "never-running": _SET},
    "clone": {"identity-shared": _COPY, "stale-address": _COPY},
}
"""Operation on a member's files -> an anomaly of its group that this permits -> the reason."""

DELETES: Final = ("rm-identity", "wipe")
"""The operations that delete the identity file."""

_ASKS: Final = ("next", "view")


class Look(NamedTuple):
    """The state of a member's node, as an op `look` read it between `start` and `end` (ns)."""

    start: int
    end: int
    member: int
    up: bool
    temp: int | None
    identity: int | None
    state: str
    op: int


@dataclass
class Life:
    """From a start of a member to its end, or its next start. since: the time (ns) when the last fault had ended."""

    member: int
    start: int
    since: int
    end: int | None
    looks: Sequence[Look]
    op: int

    @property
    def runs(self) -> Look | None:
        return next((one for one in self.looks if one.state == "RUNNING"), None)

    @property
    def died(self) -> bool:
        return any(not one.up for one in self.looks)


@dataclass
class Group:
    """All operations under one broker name.

    acts     operations on members, and of operators, that were executed or may have been.
    problem  the first op that was not executed, and its error.
    """

    name: str
    row: str
    acts: list[Call] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    answers: list[Call] = field(default_factory=list)
    problem: str | None = None

    def add(self, call: Call) -> None:
        f, done = call.invoke.f, call.completion
        if f in _ASKS:
            if call.outcome == OK:
                self.answers.append(call)
            return
        if call.outcome != OK and self.problem is None and f not in ("look", "fired"):
            self.problem = f"{f}: {(done and done.error) or 'no answer'}"
        if f != "look":
            self.acts += [call] if call.outcome != FAIL else []
        elif call.outcome == OK and done is not None:
            value = done.value
            about = value["up"], value["temp"], value["identity"], value["state"]
            self.looks.append(Look(call.start, done.time, member_of(call), *about, call.invoke.index))

    def did(self, *fs: str, member: int | None = None, after: int = -1, before: int | None = None) -> list[Call]:
        """The operations that may have been executed between two times."""
        return [
            call
            for call in self.acts
            if call.invoke.f in fs
            and (member is None or member_of(call) == member)
            and (call.end is None or call.end > after)
            and (before is None or call.start < before)
        ]

    @property
    def members(self) -> list[int]:
        return sorted({member_of(call) for call in self.acts if call.invoke.f == "enter"})

    @cached_property
    def first_seen(self) -> Mapping[int, Look]:
        """Id -> the first look that showed it in an identity file."""
        found: dict[int, Look] = {}
        for look in self.looks:
            if look.identity is not None:
                found.setdefault(look.identity, look)
        return found

    def written(self, before: int) -> set[int]:
        """The ids that looks found in identity files before a time."""
        return {number for number, look in self.first_seen.items() if look.end <= before}

    def shown(self, member: int, at: int) -> Look | None:
        """The last look at a member before a time; None if an operation on its files or process has outdated it."""
        last = next((one for one in reversed(self.looks) if one.member == member and one.end <= at), None)
        if last is None or self.did("start", "rm-temp", "clone", *DELETES, member=member, after=last.start, before=at):
            return None
        return last

    def settled(self, at: int) -> bool:
        """True if every member that was started has its identity file."""
        for member in self.members:
            if self.did("start", member=member, before=at):
                left = self.did("leave", member=member, before=at)
                look = self.shown(member, left[0].start if left else at)
                if look is None or look.identity is None:
                    return False
        return True

    def unseen(self, before: int) -> int:
        """The number of ids that members may have got whose files were deleted before a look showed the id."""
        number = len(self.did("rm-temp", before=before))
        for call in self.did(*DELETES, before=before):
            last = [one for one in self.looks if one.member == member_of(call) and one.end <= call.start]
            number += not last or last[-1].identity is None
        return number

    def permitted(self, anomaly: str, before: int) -> str | None:
        """The reason that permits an anomaly, from the operations on files before a time; None: nothing does."""
        for f, named in PERMITTED.items():
            if anomaly in named and self.did(f, before=before):
                return f"after {f}: {named[anomaly]}"
        return None

    def killed(self, life: Life) -> bool:
        """True if a frame may have killed the member in this life, and none did in an earlier one."""
        rules = self.did("arm", member=life.member, before=life.start)
        fired = any(has_fired(call) for call in self.did("fired", member=life.member, before=life.start))
        return not fired and any(call.invoke.value.get("victim") == "broker" for call in rules)

    def shared(self, identity: int) -> bool:
        """True if the file with this id was copied."""
        return any(
            look.identity == identity and self.did("clone", member=look.member, before=look.end) for look in self.looks
        )

    def address(self, member: int, at: int) -> str | None:
        """The address of a member's last start before a time."""
        starts = [c for c in self.did("start", member=member, before=at) if c.outcome == OK and c.completion]
        return None if not starts or starts[-1].completion is None else str(starts[-1].completion.value["address"])

    @cached_property
    def lives(self) -> Sequence[Life]:
        """Each start of each member."""
        found = []
        for call in self.acts:
            if call.invoke.f != "start" or call.end is None:
                continue
            ends = self.did("start", "kill", "leave", member=member_of(call), after=call.end)
            end = min((c.start for c in ends if c is not call), default=None)
            within = [x for x in self.looks if x.member == member_of(call) and call.end <= x.start]
            looks = [x for x in within if end is None or x.start < end]
            # Every later look at the counter repeats the result; the first one gives the time.
            fired = [c.end for c in self.did("fired", after=call.end, before=end) if has_fired(c) and c.end is not None]
            disarmed = [c.end for c in self.did("disarm", after=call.end, before=end) if c.end is not None]
            since = max([call.end, *fired[:1], *disarmed[:1]])
            found.append(Life(member_of(call), call.start, since, end, looks, call.invoke.index))
        return found

    @property
    def untried(self) -> str | None:
        """The reason why the trial proves nothing, or None."""
        if self.problem is not None:
            return self.problem
        # A member that leaves in the final phase does so because the trial was not complete.
        if not any("row" in call.invoke.extra for call in self.did("leave", member=0)):
            return "it did not come to its end"
        if self.did("arm") and not any(map(has_fired, self.did("fired"))):
            return "the frame never arrived"
        return None if self.looks and self.answers else "no look succeeded, or no controller answered"


def member_of(call: Call) -> int:
    return int(call.invoke.extra.get("member", 0))


def value_of(call: Call) -> Any:
    return None if call.completion is None else call.completion.value


def has_fired(call: Call) -> bool:
    return bool(value_of(call)) and call.outcome == OK


def read_groups(run: RunRecord) -> dict[str, Group]:
    found: dict[str, Group] = {}
    for call in run.history.clients.calls:
        key = call.invoke.key
        if key is not None and "row" in call.invoke.extra and key not in found:
            found[key] = Group(key, str(call.invoke.extra["row"]))
        if key in found:
            found[key].add(call)
    return found
