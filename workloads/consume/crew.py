# SPDX-License-Identifier: Apache-2.0
"""The processes of a consumer group, and what the harness knows of the group from their events.

The kinds of events besides those of all crews (`workloads.applications.crew`):

    ["queues", age, life, [queue, ...]]     it has these queues now
    ["delivered", age, life, n, queue, offset, id, attempt, tag]    its listener got a message; with pops, one item
                                            more: the time (ms) for which it is hidden from the others, from then on
    ["left", age, life, n, queue, offset, id, attempt, tag, ms]   it received a message, and leaves it alone: an
                                            earlier one of its message group is not acknowledged
    ["renewed", age, life, n, true|false, ms]   it requested a new time, of which so much is left; granted or not
    ["replied", age, life, n, true|false]   it replied to a request; a broker acknowledged the reply, or may not have
    ["acking", age, life, n]                it is about to acknowledge the message
    ["ack-refused", age, life, n, code]     the broker refused the acknowledgement that the library sent by itself
    ["acked-again", age, life, n, true|false]   it acknowledged it a second time: accepted, or refused
    ["done", age, life, n, true|false]      the listener returned: success or failure
    ["committed", age, life, {queue: offset}]   it committed these offsets by hand; the library sent them one-way
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from infra.machines.api import Node
from infra.systems.rocketmq.applications.process import Program
from infra.systems.rocketmq.message_body import id_of
from workloads.applications.crew import Crew, Seat, Shown, show_any

UNSURE_S: Final = 45.0
"""So long after the begin of an acknowledgement without an answer the message has come again, or does not: its
invisible duration (20 s at most) and the time of its return are over.
"""


@dataclass
class ConsumerSeat(Seat):
    """One consumer."""

    working: dict[tuple[int, int], tuple[Any, int]] = field(default_factory=dict)
    """(life, number of a delivery) -> its message and attempt, until it is done."""
    acking: dict[tuple[int, int], tuple[Any, float]] = field(default_factory=dict)
    """(life, number of a delivery) -> its message, from the begin of its acknowledgement (s, `time.monotonic`) until it
    is done.
    """
    owned: Sequence[str] = ()
    """The queues that its process reported last."""

    def hear(self, event: Shown, life: int) -> tuple[Any, int, bool] | None:
        """Learns from an event of its process. Returns the message that it is done with, its attempt and result."""
        kind, *rest = event
        if kind == "queues" and life == self.joins:
            self.owned = rest[0]
        if kind == "delivered":
            self.working[life, rest[0]] = rest[3], rest[4]
        elif kind == "acking" and (life, rest[0]) in self.working:
            self.acking[life, rest[0]] = self.working[life, rest[0]][0], time.monotonic()
        elif kind == "done" and (life, rest[0]) in self.working:
            self.acking.pop((life, rest[0]), None)
            return (*self.working.pop((life, rest[0])), rest[1])
        return None

    @property
    def unsure(self) -> set[Any]:
        """The messages that a process may have acknowledged: nobody knows if they come again. It has ended, or had no
        answer in time.
        """
        there, late = None if self.application is None else self.joins, time.monotonic() - UNSURE_S
        return {message for (life, _), (message, at) in self.acking.items() if life != there or at < late}


class Consumers(Crew[ConsumerSeat]):
    """The members of a consumer group.

    consume  the command that starts the consumer, without its names. again: the further attempts of a message that
             failed.
    queues   those that members report to have; empty: they report none. shared: each member has all of them.
    """

    part = "consumer"

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
        seats = [ConsumerSeat(f"m{i}", node) for i, node in enumerate(nodes)]
        super().__init__(seats, program, {"do": "consume", **consume})
        self._again, self._queues, self._shared = again, queues, shared
        self._owed: set[Any] = set()
        self._settled: dict[str, set[Any]] = {seat.name if shared else "": set() for seat in seats}

    def owe(self, message: Any) -> None:
        """Notes a message that was acknowledged, and that the group should get."""
        self._owed.add(message)

    def release(self, messages: Iterable[Any]) -> None:
        """Notes messages that the group need not get any more."""
        self._owed.difference_update(messages)

    @property
    def behind(self) -> int:
        """The number of messages that the group should get, and has neither finished nor given up. In a shared one
        (broadcast), that of the member that lacks most: each new process gets all of them again.
        """
        if self._shared:
            there = [seat.name for seat in self.seats.values() if seat.application is not None]
            return max((len(self._owed - self._settled[name]) for name in there), default=0)
        self._owed -= self._settled[""].union(*(seat.unsure for seat in self.seats.values()))
        return len(self._owed)

    @property
    def astray(self) -> int:
        """The number of queues that not exactly the right members have: one, or all of them."""
        there = [seat for seat in self.seats.values() if seat.application is not None]
        owners = Counter(queue for seat in there for queue in seat.owned)
        return sum(owners[queue] != (len(there) if self._shared else 1) for queue in self._queues)

    def facts(self, member: str) -> Mapping[str, Any]:
        return {"behind": self.behind, "astray": self.astray}

    def joined(self, seat: ConsumerSeat) -> None:
        seat.owned = ()
        if self._shared:
            self._settled[seat.name].clear()

    def hear(self, seat: ConsumerSeat, event: Shown, life: int) -> None:
        done = seat.hear(event, life)
        if done is None:
            return
        if self._shared:
            if life == seat.joins:
                self._settled[seat.name].add(done[0])
        elif done[2] or done[1] >= self._again:
            self._settled[""].add(done[0])

    def show(self, fields: Mapping[str, Any]) -> Shown | None:
        return show(fields)


def show(fields: Mapping[str, Any]) -> Shown | None:
    """An event of a consumer's process without its time; None: one that no judge needs."""
    match fields["event"]:
        case "queues":
            return ["queues", fields["queues"]]
        case "delivered" | "left" as kind:
            key = f"{fields['topic']}:{fields['broker']}:{fields['queue']}"
            identity = id_of(str(fields["body"]).encode())
            found = [kind, fields["n"], key, fields["offset"], identity, fields["attempt"], fields.get("tags")]
            return found if fields.get("hidden_ms") is None else [*found, fields["hidden_ms"]]
        case "renewed":
            return ["renewed", fields["n"], fields["ok"], fields["hidden_ms"]]
        case "acking":
            return ["acking", fields["n"]]
        case "ack-refused":
            return ["ack-refused", fields["n"], fields["code"]]
        case "replied":
            return ["replied", fields["n"], fields["ok"]]
        case "acked-again":
            return ["acked-again", fields["n"], fields["ok"]]
        case "done":
            return ["done", fields["n"], fields["ok"]]
        case "committed":
            return ["committed", fields["offsets"]]
    return show_any(fields)
