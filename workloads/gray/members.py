# SPDX-License-Identifier: Apache-2.0
"""Generator for the consumers of the group: join, rebalance, commit and take queues, consume, crash, leave.

The order is that of RocketMQ's push consumer: a rebalance requests the members, the queues and the flags; queues that
are no longer the member's are committed and dropped, others are taken at their committed offset. It rebalances every
`EVERY_S`, and at once when a broker reports that the members have changed. Nothing else keeps two members from a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Literal

from harness.generator import PENDING, Generator, Invocation, Pending, Step
from harness.generator.context import Context, members
from results.figures import SECOND
from results.op import FAIL, INFO, INVOKE, Op
from workloads.consuming import Session, after
from workloads.popping import acks, pop

EVERY_S: Final = 2.0
"""The time between two rebalances. The Java client does it every 20 s; ten times as many show ten times as much in a
run.
"""

CONSUME_NS: Final = SECOND // 20
COMMIT_NS: Final = SECOND // 10
AWAY_NS: Final = SECOND
"""The time for which a member that crashed or left is gone."""

AGAIN_NS: Final = SECOND // 2
"""The pause after a join or a rebalance that failed."""

OURS: Final = frozenset(
    {
        *("join", "rebalance", "assign", "crash", "leave"),
        *("committed", "consume", "send-back", "commit"),
        *("pop", "ack"),
    }
)

Consuming = Literal["concurrently", "orderly", "pop"]
"""The members' way to consume: they pull and commit, without or with locks of queues; or they pop and acknowledge."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The state of one member. Times in ns.

    joined    True if it is in the group. wanted: the queues of the last rebalance, if they differ from those it holds.
    rebalance, consume, crash   the times of its next ones; crash None: not drawn yet.
    leaving   True if it is to leave, and to join again.
    back      (queue, offset, id) of messages that it could not process, and has to send back before it commits.
    acks      acknowledgements that are due.
    """

    session: Session = field(default_factory=Session)
    joined: bool = False
    wanted: tuple[str, ...] | None = None
    rebalance: int = 0
    consume: int = 0
    crash: int | None = None
    leaving: bool = False
    back: tuple[tuple[str, int, int], ...] = ()
    acks: tuple[Invocation, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Members(Generator):
    """The members on the threads it may use, for ever: the n-th thread is member `m<n>`.

    crash_every_s  the average time between two crashes of a member; 0: it never crashes.
    consume        orderly: each rebalance ends with an `assign`, which locks the queues, or prolongs the locks.
    """

    group: str
    seed: int
    crash_every_s: float
    consume: Consuming = "concurrently"
    seats: Mapping[int, Seat] = field(default_factory=dict)

    def op(self, ctx: Context) -> Step:
        wait: Pending = PENDING
        for thread in members(ctx.free_takers, ctx.turn % ctx.process_map.concurrency):
            seat = self.seats.get(thread, Seat())
            found = self._next(ctx.time, seat)
            if isinstance(found, int):
                wait = wait.or_at(found)
                continue
            extra = {**found.extra, "group": self.group, "member": self._name(ctx, thread)}
            return replace(found, extra=extra).by(ctx.process(thread)), self
        return wait, self

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f not in OURS or event.type == INVOKE:
            return self
        thread = ctx.process_map.thread_of(event.process)
        seat = self._after(self.seats.get(thread, Seat()), event, ctx.time, thread)
        return replace(self, seats={**self.seats, thread: seat})

    def _name(self, ctx: Context, thread: int) -> str:
        return f"m{list(members(ctx.takers)).index(thread)}"

    def _next(self, now: int, seat: Seat) -> Invocation | int:
        """The next op, or the time (ns) of the next one."""
        session = seat.session
        if session.away_until > now:
            return session.away_until
        if not seat.joined:
            return Invocation("join") if now >= seat.rebalance else seat.rebalance
        if seat.crash is not None and now >= seat.crash:
            return Invocation("crash")
        if seat.acks:
            return seat.acks[0]
        if seat.back and now >= seat.consume:
            key, *message = seat.back[0]
            return Invocation("send-back", key, message)
        unsent = {key for key, *_ in seat.back}
        for key in session.held:
            # A queue that is given away is committed first; if no broker accepts the commit, that does not stop it.
            going = seat.leaving or (seat.wanted is not None and key not in seat.wanted)
            if going and key in session.uncommitted and key not in unsent:
                return Invocation("commit", key, session.at[key])
        if seat.leaving:
            return Invocation("leave")
        if seat.wanted is not None:
            return Invocation("assign", None, list(seat.wanted))
        if now >= seat.rebalance:
            return Invocation("rebalance")
        if now < seat.consume:
            return min(seat.rebalance, seat.consume)
        if self.consume == "pop":
            return pop(self.group, session.held[session.turn % len(session.held)]) if session.held else seat.rebalance
        for key in session.held:
            if key not in session.at or key in session.probes:
                return Invocation("committed", key)
            if now - session.uncommitted.get(key, now) >= COMMIT_NS and key not in unsent:
                return Invocation("commit", key, session.at[key])
        if not session.held:
            return seat.rebalance
        key = session.held[session.turn % len(session.held)]
        return Invocation("consume", key, session.at[key])

    def _after(self, seat: Seat, event: Op, now: int, thread: int) -> Seat:
        """A seat after one of its ops completed."""
        if event.type == INFO:
            return Seat(rebalance=now + AGAIN_NS)
        if event.f in ("crash", "leave"):
            return Seat(session=Session(away_until=now + AWAY_NS))
        if event.extra.get("changed"):
            seat = replace(seat, rebalance=now)
        if event.extra.get("restart"):
            seat = replace(seat, leaving=True)
        match event.f, event.type:
            case "join", "ok":
                due = tuple(acks(self.group, event.extra.get("popped", ())))  # of the phase before
                return Seat(joined=True, rebalance=now, crash=self._crash(now, thread), acks=due)
            case "join", _:
                return replace(seat, rebalance=now + AGAIN_NS)
            case "rebalance", "ok":
                wanted = tuple(event.value["queues"])
                seat = replace(seat, rebalance=now + int(EVERY_S * SECOND))
                same = set(wanted) == set(seat.session.held) and self.consume != "orderly"
                return seat if same else replace(seat, wanted=wanted)
            case "rebalance", _:
                return replace(seat, rebalance=now + AGAIN_NS)
        session = seat.session if event.f in ("send-back", "pop", "ack") else after(seat.session, event, now)
        failed = event.extra.get("failed", ())
        match event.f:
            case "consume":
                back = tuple((event.key or "", *message) for message in failed)
                seat = replace(seat, consume=now + CONSUME_NS, back=(*seat.back, *back))
                session = replace(session, turn=session.turn + 1)
            case "pop":
                left = [message for _, message in failed]
                mine = acks(self.group, event.value) if event.type != FAIL else ()
                due = tuple(ack for ack in mine if ack.extra["id"] not in left)
                seat = replace(seat, consume=now + CONSUME_NS, acks=due)
                session = replace(session, turn=session.turn + 1)
            case "ack":
                return replace(seat, acks=seat.acks[1:])  # a message without an acknowledgement comes back
            case "send-back" if event.type != FAIL:
                seat = replace(seat, back=seat.back[1:])
        if event.type == FAIL:
            return self._failed(replace(seat, session=session), event, now)
        return replace(seat, session=session, wanted=None if event.f == "assign" else seat.wanted)

    def _failed(self, seat: Seat, event: Op, now: int) -> Seat:
        """The seat after a failed op: it waits a little. A commit before giving a queue away is not tried again."""
        going = seat.leaving or seat.wanted is not None
        if event.f == "commit" and going:
            left = {key: since for key, since in seat.session.uncommitted.items() if key != event.key}
            return replace(seat, session=replace(seat.session, uncommitted=left))
        return replace(seat, consume=now + CONSUME_NS)

    def _crash(self, now: int, thread: int) -> int | None:
        if not self.crash_every_s:
            return None
        return now + int(Random(f"{self.seed}/{thread}/{now}").expovariate(1 / self.crash_every_s) * SECOND)
