# SPDX-License-Identifier: Apache-2.0
"""The processes of a consumer group: one on each node for clients, started and ended by the members' ops.

Their events become short lists, in the order in which they arrived: the kind, the age (ns before the completion of the
op that took them), the number of the process among those of the member (from 1), and what the kind has:

    ["started", age, life, client id]       its consumer runs
    ["queues", age, life, [queue, ...]]     it has these queues now
    ["delivered", age, life, n, queue, offset, id, attempt, tag]    its listener got a message; with pops, one item
                                            more: the time (ms) for which it is hidden from the others, from then on
    ["renewed", age, life, n, true|false, ms]   it requested a new time, of which so much is left; granted or not
    ["acking", age, life, n]                it is about to acknowledge the message
    ["acked-again", age, life, n, true|false]   it acknowledged it a second time: accepted, or refused
    ["done", age, life, n, true|false]      the listener returned: success or failure
    ["failed", age, life, why]              an exception
    ["ended", age, life, why]               the process has ended by itself
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from infra.machines.api import InfraError, Node
from infra.systems.rocketmq.applications.process import Application, Event, Program
from infra.systems.rocketmq.message_body import id_of

START_S: Final = 60.0
"""The longest time for the start of a process on a busy machine."""

_STOP_S: Final = 15.0

CONSUMER: Final = "consumer"
"""The name of a process's only part."""

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
    working: dict[tuple[int, int], tuple[Any, int]] = field(default_factory=dict)
    """(life, number of a delivery) -> its message and attempt, until it is done."""
    told: list[tuple[int, int, Shown]] = field(default_factory=list)
    """Its events that no op has taken yet, with their times (ns, `time.monotonic_ns`) and lives."""
    acking: dict[tuple[int, int], Any] = field(default_factory=dict)
    """(life, number of a delivery) -> its message, from the begin of its acknowledgement until it is done."""
    owned: Sequence[str] = ()
    """The queues that its process reported last."""

    def hear(self, events: Sequence[Event], life: int) -> list[tuple[Any, int, bool]]:
        """Keeps events of its process. Returns the messages that it is done with, each with its attempt and result."""
        done = []
        for event in events:
            found = show(event.fields)
            if found is None:
                continue
            self.told.append((event.at, life, found))
            if found[0] == "queues" and life == self.joins:
                self.owned = found[1]
            if found[0] == "delivered":
                self.working[life, found[1]] = found[4], found[5]
            elif found[0] == "acking" and (life, found[1]) in self.working:
                self.acking[life, found[1]] = self.working[life, found[1]][0]
            elif found[0] == "done" and (life, found[1]) in self.working:
                self.acking.pop((life, found[1]), None)
                done.append((*self.working.pop((life, found[1])), found[2]))
        return done

    @property
    def unsure(self) -> set[Any]:
        """The messages that a process which has ended may have acknowledged: nobody knows if they come again."""
        there = None if self.application is None else self.joins
        return {message for (life, _), message in self.acking.items() if life != there}

    def tell(self, kind: str, why: str) -> None:
        """Adds an event of the harness."""
        self.told.append((time.monotonic_ns(), self.joins, [kind, why]))


class Crew:
    """The members of a group; one event loop.

    consume  the command that starts the consumer, without its instance name. again: the further attempts of a message
             that failed.
    queues   those that members report to have; empty: they report none. shared: each member has all of them.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        program: Program,
        consume: Mapping[str, Any],
        again: int,
        queues: Sequence[str] = (),
        *,
        shared: bool = False,
    ) -> None:
        self.seats = {f"m{i}": Seat(f"m{i}", node) for i, node in enumerate(nodes)}
        self._program, self._consume, self._again = program, consume, again
        self._queues, self._shared = queues, shared
        self._owed: set[Any] = set()
        self._settled: set[Any] = set()
        self._users = 0

    async def install(self) -> None:
        """Puts the program on all nodes. Raises InfraError."""
        await asyncio.to_thread(self._program.prepare)
        nodes = [seat.node for seat in self.seats.values()]
        await asyncio.gather(*(asyncio.to_thread(self._program.install, node) for node in nodes))

    def owe(self, message: Any) -> None:
        """Notes a message that was acknowledged, and that the group should get."""
        self._owed.add(message)

    @property
    def behind(self) -> int:
        """The number of messages that the group should get, and has neither finished nor given up."""
        self._owed -= self._settled.union(*(seat.unsure for seat in self.seats.values()))
        return len(self._owed)

    @property
    def astray(self) -> int:
        """The number of queues that not exactly the right members have: one, or all of them."""
        there = [seat for seat in self.seats.values() if seat.application is not None]
        owners = Counter(queue for seat in there for queue in seat.owned)
        return sum(owners[queue] != (len(there) if self._shared else 1) for queue in self._queues)

    def _hear(self, seat: Seat, events: Sequence[Event], life: int) -> None:
        settled = seat.hear(events, life)
        self._settled |= {message for message, attempt, ok in settled if ok or attempt >= self._again}

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
        """Begins to start a member's process and consumer, and returns its name. Its events report the result."""
        seat = self.seats[member]
        if seat.application is not None:
            return f"{member}-{seat.joins}"  # of the phase before
        seat.joins += 1
        seat.owned = ()
        instance = f"{member}-{seat.joins}"
        application = seat.application = Application(seat.node, f"application-{member}", self._program.argv)
        seat.starting = asyncio.get_running_loop().create_task(self._start(seat, application, instance))
        return instance

    async def _start(self, seat: Seat, application: Application, instance: str) -> None:
        try:
            await application.start(START_S)
            await application.tell({"do": "consume", "name": CONSUMER, "instance": instance, **self._consume})
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
        nothing: the next take has the events. Raises InfraError.
        """
        seat = self.seats[member]
        application, seat.application = seat.application, None
        if application is not None:
            seat.ending = asyncio.get_running_loop().create_task(self._end(seat, application, orderly, seat.joins))
            await asyncio.shield(seat.ending)
        return self._shown(seat)

    async def _end(self, seat: Seat, application: Application, orderly: bool, life: int) -> None:
        if seat.starting is not None and not seat.starting.done():
            seat.starting.cancel()
        try:
            if orderly:
                await application.ask({"do": "stop", "name": CONSUMER}, "stopped", _STOP_S)
        finally:
            try:
                await application.kill()
            finally:
                self._hear(seat, await application.take(0), life)

    @staticmethod
    def _shown(seat: Seat) -> list[Shown]:
        """All events so far in the order of their times, each with its age in place of the time."""
        now = time.monotonic_ns()
        told, seat.told = seat.told, []
        told.sort(key=lambda each: each[0])
        return [[kind, now - at, life, *rest] for at, life, (kind, *rest) in told]


def show(fields: Mapping[str, Any]) -> Shown | None:
    """An event of the process without its time; None: one that no judge needs."""
    match fields["event"]:
        case "started":
            return ["started", fields["client"]]
        case "queues":
            return ["queues", fields["queues"]]
        case "delivered":
            key = f"{fields['topic']}:{fields['broker']}:{fields['queue']}"
            identity = id_of(str(fields["body"]).encode())
            found = ["delivered", fields["n"], key, fields["offset"], identity, fields["attempt"], fields.get("tags")]
            return found if fields.get("hidden_ms") is None else [*found, fields["hidden_ms"]]
        case "renewed":
            return ["renewed", fields["n"], fields["ok"], fields["hidden_ms"]]
        case "acking":
            return ["acking", fields["n"]]
        case "acked-again":
            return ["acked-again", fields["n"], fields["ok"]]
        case "done":
            return ["done", fields["n"], fields["ok"]]
        case "failed":
            return ["failed", f"{fields.get('error')}: {fields.get('why')}"]
        case "nonsense":
            return ["failed", f"it wrote {fields['line']!r}"]
    return None
