# SPDX-License-Identifier: Apache-2.0
"""Generator for the members of a group: they join, take what their processes did, crash or leave, and join again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from harness.generator import PENDING, Generator, Invocation, Pending, Step
from harness.generator.context import Context, members
from results.figures import SECOND
from results.op import INVOKE, Op

TAKE_NS: Final = SECOND // 5
"""The time between two takes of a member."""

AWAY_NS: Final = 2 * SECOND
"""The time for which a member that crashed or left is gone."""

_LEAVES: Final = 5
"""The ops for the end of a process at the end of a run. Each may be over before the process has stopped: a gRPC push
consumer waits for its open polls. One more takes what it reported."""

OURS: Final = frozenset({"join", "take", "crash", "leave"})


@dataclass(frozen=True, slots=True)
class Seat:
    """The state of one member. Times in ns.

    joined  True if it has a process. due: the time of its next op. goes: the time of its next crash or leave; None: it
            stays. turn: the number of its ends. tries: the ops for its last end whose result is unknown.
    """

    joined: bool = False
    due: int = 0
    goes: int | None = None
    turn: int = 0
    tries: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Members(Generator):
    """The members on the threads it may use, for ever: the n-th thread is member `m<n>`.

    goes_every_s  the average time between two ends of a member, every second one a crash; 0: it stays.
    wait_s        the time before the first one joins.
    quiet_s       it ends after so long a time without a delivery; 0: it goes on. done_s: the same when the group is
                  behind with no message that was acknowledged.
    astray_s      the same when not every queue has its owner.
    ends          True: each leaves in an orderly way, and this generator ends. One whose end is not known yet leaves
                  again: what it reported meanwhile would be lost.
    heard         the time (ns) of the last delivery or join, or of the first op. behind, astray: as the last take said.
    begins        the time (ns) from which members may join; None: not known yet.
    """

    group: str
    seed: int
    goes_every_s: float
    quiet_s: float = 0
    done_s: float = 0
    astray_s: float = 0
    ends: bool = False
    wait_s: float = 0
    begins: int | None = None
    heard: int | None = None
    behind: int = 1
    astray: int = 0
    seats: Mapping[int, Seat] = field(default_factory=dict)

    def op(self, ctx: Context) -> Step:
        if self.wait_s and self.begins is None:
            return replace(self, begins=ctx.time + int(self.wait_s * SECOND)).op(ctx)
        if self.begins is not None and ctx.time < self.begins:
            return PENDING.or_at(self.begins), self
        wait: Pending = PENDING
        threads = list(members(ctx.takers))
        if self.ends and all(self.seats.get(thread, Seat()).turn for thread in threads):
            return None
        quiet_s = self.quiet_s if self.behind else self.done_s
        if self.astray:
            quiet_s = max(quiet_s, self.astray_s)
        if self.quiet_s and self.heard is not None and ctx.time - self.heard > quiet_s * SECOND:
            return None
        for thread in members(ctx.free_takers, ctx.turn % ctx.process_map.concurrency):
            seat = self.seats.get(thread, Seat())
            if self.ends and seat.turn:
                continue
            if not self.ends and seat.due > ctx.time:
                wait = wait.or_at(seat.due)
                continue
            extra = {"group": self.group, "member": f"m{threads.index(thread)}"}
            return Invocation(self._next(seat, ctx.time), None, None, extra).by(ctx.process(thread)), self
        return wait, self

    def _next(self, seat: Seat, now: int) -> str:
        if self.ends:
            return "leave" if seat.tries < _LEAVES else "take"
        if not seat.joined:
            return "join"
        if seat.goes is not None and now >= seat.goes:
            return "crash" if seat.turn % 2 == 0 else "leave"
        return "take"

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f not in OURS or event.type == INVOKE:
            return self
        thread = ctx.process_map.thread_of(event.process)
        seat = self._after(self.seats.get(thread, Seat()), event, ctx.time, thread)
        delivers = event.f == "take" and any(each[0] == "delivered" for each in event.value or ())
        heard = event.time if delivers or self.heard is None or event.f == "join" else self.heard
        if event.f == "take":
            behind, astray = event.extra.get("behind", self.behind), event.extra.get("astray", self.astray)
        else:
            behind, astray = self.behind, self.astray
        return replace(self, heard=heard, behind=behind, astray=astray, seats={**self.seats, thread: seat})

    def _after(self, seat: Seat, event: Op, now: int, thread: int) -> Seat:
        gone = event.extra.get("ended", False)
        if self.ends and event.f == "leave" and event.type != "ok":
            return replace(seat, tries=seat.tries + 1)
        if self.ends:
            return replace(seat, joined=False, turn=seat.turn + 1)
        if event.f in ("crash", "leave") or gone:
            return replace(seat, joined=False, due=now + AWAY_NS, turn=seat.turn + 1)
        if event.f == "join":
            return replace(seat, joined=event.type == "ok", due=now + TAKE_NS, goes=self._goes(seat, now, thread))
        return replace(seat, due=now + TAKE_NS)

    def _goes(self, seat: Seat, now: int, thread: int) -> int | None:
        if not self.goes_every_s:
            return None
        dice = Random(f"{self.seed}/{thread}/{seat.turn}")
        return now + int((self.goes_every_s / 2 + dice.expovariate(2 / self.goes_every_s)) * SECOND)
