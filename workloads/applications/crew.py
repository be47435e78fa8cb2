# SPDX-License-Identifier: Apache-2.0
"""The processes of applications: one on each node for clients, started and ended by the members' ops.

Their events become short lists, in the order in which they arrived: the kind, the age (ns before the completion of the
op that took them), the number of the process among those of the member (from 1), and what the kind has. Each crew has
kinds of its own, and these:

    ["started", age, life, client id]       its consumer or producer runs
    ["failed", age, life, why]              an exception
    ["ended", age, life, why]               the process has ended by itself
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from harness.api import Completion
from infra.machines.api import InfraError, Node
from infra.systems.rocketmq.applications.process import Application, Event, Program
from results.op import Op
from workloads.applications.library import START_S

TAKE_S: Final = 0.1
"""The time for which a take waits for a first event."""

_STOP_S: Final = 15.0

_FAILURES: Final = 1000
"""So many failures of a process are kept, and then one in so many: a program may fail in a loop, without a pause."""

Shown = list[Any]
"""An event, as described above."""


@dataclass
class Seat:
    """One member: its node, and its process, if it has one. joins: the number of its starts."""

    name: str
    node: Node
    application: Application | None = None
    starting: asyncio.Task[None] | None = None
    joins: int = 0
    ending: asyncio.Task[None] | None = None
    told: list[tuple[int, int, Shown]] = field(default_factory=list)
    """Its events that no op has taken yet, with their times (ns, `time.monotonic_ns`) and lives."""
    failures: Counter[int] = field(default_factory=Counter)
    """Life -> the number of failures that its process has reported."""

    def tell(self, kind: str, why: str) -> None:
        """Adds an event of the harness."""
        self.told.append((time.monotonic_ns(), self.joins, [kind, why]))


S = TypeVar("S", bound=Seat)


class Crew(ABC, Generic[S]):
    """The processes of some members; one event loop.

    part   the name of a process's only part. begin: the command that starts it, without its names.
    """

    part: str

    def __init__(self, seats: Sequence[S], program: Program, begin: Mapping[str, Any]) -> None:
        self.seats = {seat.name: seat for seat in seats}
        self._program, self._begin = program, begin
        self._users = 0

    @abstractmethod
    def show(self, fields: Mapping[str, Any]) -> Shown | None:
        """An event of a process without its time; None: one that no judge needs."""

    @abstractmethod
    def hear(self, seat: S, event: Shown, life: int) -> None:
        """Learns from an event of a member's process."""

    def joined(self, seat: S) -> None:
        """Called when a member gets a new process."""

    def facts(self, member: str) -> Mapping[str, Any]:
        """Further fields of the completion of a take."""
        return {}

    async def invoke(self, op: Op) -> Completion:
        """Executes an op of a member: `join`, `take`, `crash` or `leave` (`workloads.applications.members`)."""
        member = op.extra["member"]
        extra = {"group": op.extra["group"], "member": member}
        try:
            match op.f:
                case "join":
                    return Completion("ok", self.join(member), extra=extra)
                case "take":
                    events = await self.take(member, TAKE_S)
                    extra |= self.facts(member)
                    if any(event[0] == "ended" for event in events):
                        extra["ended"] = True
                    return Completion("ok", events, extra=extra)
            return Completion("ok", await self.end(member, orderly=op.f == "leave"), extra=extra)
        except InfraError as problem:
            return Completion("info", None, str(problem), extra)

    async def install(self) -> None:
        """Puts the program on all nodes. Raises InfraError."""
        await asyncio.to_thread(self._program.prepare)
        nodes = [seat.node for seat in self.seats.values()]
        await asyncio.gather(*(asyncio.to_thread(self._program.install, node) for node in nodes))

    def use(self) -> None:
        """Notes a user. Each one must call `leave`."""
        self._users += 1

    async def leave(self) -> None:
        """Ends all processes with the last user."""
        self._users -= 1
        if self._users == 0:
            for seat in self.seats.values():
                with suppress(InfraError):
                    await self.end(seat.name, orderly=False)

    def join(self, member: str) -> str:
        """Begins to start a member's process, and returns its name. Its events report the result."""
        seat = self.seats[member]
        if seat.application is not None:
            return f"{member}-{seat.joins}"  # of the phase before
        seat.joins += 1
        self.joined(seat)
        instance = f"{member}-{seat.joins}"
        application = seat.application = Application(seat.node, f"application-{member}", self._program.argv)
        seat.starting = asyncio.get_running_loop().create_task(self._start(seat, application, instance))
        return instance

    async def _start(self, seat: S, application: Application, instance: str) -> None:
        try:
            await application.start(START_S)
            member = list(self.seats).index(seat.name)
            await application.tell({"name": self.part, "instance": instance, "member": member, **self._begin})
        except InfraError as problem:
            if seat.application is application:
                seat.tell("failed", str(problem))

    async def take(self, member: str, wait_s: float) -> list[Shown]:
        """The events of a member since the last call; waits for the first one. A process that has ended is left out of
        the group: its last event is `ended`.
        """
        seat = self.seats[member]
        application = seat.application
        if application is not None:
            self._hear(seat, await application.take(wait_s), seat.joins)
            if application.ended and seat.application is application:
                seat.application = None
                application.close()
                seat.tell("ended", await application.last_words())
        return self._shown(seat)

    async def end(self, member: str, *, orderly: bool) -> list[Shown]:
        """Ends a member's process, and returns its last events; not `orderly`: kills it. A caller that gives up stops
        nothing: the next call waits for the same end, and the next take has the events so far. Raises InfraError.
        """
        seat = self.seats[member]
        application, seat.application = seat.application, None
        if application is not None:
            seat.ending = asyncio.get_running_loop().create_task(self._end(seat, application, orderly, seat.joins))
        if seat.ending is not None:
            await asyncio.shield(seat.ending)
        return self._shown(seat)

    async def _end(self, seat: S, application: Application, orderly: bool, life: int) -> None:
        if seat.starting is not None and not seat.starting.done():
            seat.starting.cancel()
        try:
            if orderly:
                await application.ask({"do": "stop", "name": self.part}, "stopped", _STOP_S)
        finally:
            try:
                await application.kill()
            finally:
                self._hear(seat, await application.take(0), life)

    def _hear(self, seat: S, events: Sequence[Event], life: int) -> None:
        for event in events:
            found = self.show(event.fields)
            if found is None:
                continue
            if found[0] == "failed":
                seat.failures[life] += 1
                if seat.failures[life] > _FAILURES:
                    if seat.failures[life] % _FAILURES:
                        continue
                    found = ["failed", f"one of {_FAILURES:,}: {found[1]}"]
            seat.told.append((event.at, life, found))
            self.hear(seat, found, life)

    @staticmethod
    def _shown(seat: Seat) -> list[Shown]:
        """All events so far in the order of their times, each with its age in place of the time."""
        now = time.monotonic_ns()
        told, seat.told = seat.told, []
        told.sort(key=lambda each: each[0])
        return [[kind, now - at, life, *rest] for at, life, (kind, *rest) in told]


def show_any(fields: Mapping[str, Any]) -> Shown | None:
    """The events that all processes have."""
    match fields["event"]:
        case "started":
            return ["started", fields["client"]]
        case "failed":
            return ["failed", f"{fields.get('error')}: {fields.get('why')}"]
        case "nonsense":
            return ["failed", f"it wrote {fields['line']!r}"]
    return None
