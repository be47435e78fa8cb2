# SPDX-License-Identifier: Apache-2.0
"""Generator for the producers: each has a colour, knows the topic's queues by its last look, and selects one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from harness.generator import PENDING, Generator, Invocation, Pending, Step
from harness.generator.context import Context, members
from results.figures import SECOND
from results.op import INVOKE, OK, Op
from workloads.gray.split import Split
from workloads.places import Queue

LOOK_NS: Final = 10 * SECOND
"""The time between two looks at the routes. Clients in Java look every 30 s, and consumers rebalance every 20 s: here
both are more frequent, and producers still learn of new queues later."""

BASE_NS: Final = SECOND // 10
GRAY_NS: Final = SECOND * 2 // 5
"""The time between two sends of a producer: at times no gray message is unread, so that a switch-off ends."""

ORDERINGS: Final = 4
"""The number of ordering keys of each producer."""

_AGAIN_NS: Final = SECOND // 4


@dataclass(frozen=True, slots=True)
class Desk:
    """The state of one producer. `counts` empty: it has not looked yet. Times in ns."""

    counts: Mapping[str, int] = field(default_factory=dict)
    look: int = 0
    due: int = 0
    sent: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Producers(Generator):
    """The producers on the threads it may use, for ever, every second one gray; ids from `first` on."""

    topic: str
    split: Split
    first: int
    desks: Mapping[int, Desk] = field(default_factory=dict)

    def op(self, ctx: Context) -> Step:
        wait: Pending = PENDING
        takers = list(members(ctx.takers))
        for thread in members(ctx.free_takers, ctx.turn % ctx.process_map.concurrency):
            desk = self.desks.get(thread, Desk())
            if ctx.time < desk.due:
                wait = wait.or_at(desk.due)
                continue
            place = takers.index(thread)
            what = self._look(desk) if ctx.time >= desk.look else self._send(desk, place, len(takers))
            return what.by(ctx.process(thread)), self
        return wait, self

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f not in ("look", "send"):
            return self
        thread = ctx.process_map.thread_of(event.process)
        desk, now = self.desks.get(thread, Desk()), event.time
        if event.type == INVOKE:
            if event.f == "look":
                return self
            gap = GRAY_NS if event.extra["colour"] == "gray" else BASE_NS
            desk = replace(desk, due=now + gap, sent=desk.sent + 1)
        elif event.f == "look" and event.type == OK and event.value:
            desk = replace(desk, counts=event.value, look=now + LOOK_NS)
        elif event.f == "look":
            desk = replace(desk, look=now + LOOK_NS) if desk.counts else replace(desk, due=now + _AGAIN_NS)
        elif event.type != OK:
            desk = replace(desk, due=max(desk.due, now + _AGAIN_NS))
        return replace(self, desks={**self.desks, thread: desk})

    def _look(self, desk: Desk) -> Invocation:
        return Invocation("look", None, dict(desk.counts))

    def _send(self, desk: Desk, place: int, producers: int) -> Invocation:
        gray, ordering = place % 2 == 1, desk.sent % ORDERINGS
        group, number = self.split.target(desk.counts, gray, ordering)
        extra = {"colour": "gray" if gray else "base", "producer": f"p{place}", "ordering": ordering}
        return Invocation(
            "send", Queue(self.topic, group, number).key, self.first + desk.sent * producers + place, extra
        )
