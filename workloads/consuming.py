# SPDX-License-Identifier: Apache-2.0
"""Generators for consumer groups that pull and commit: the owner of each queue, its position, and crashes.

The rules are those of RocketMQ's push consumer. A queue has one owner at a time. A new owner continues at the committed
offset, or at the start if no offset is committed. An owner that gives a queue away commits first. An owner that crashes
does not commit and loses its position. While an owner is down, the others take over its queues, and later they give
them back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from harness.generator import EMPTY, PENDING, Generator, Invocation, Pending, Step
from harness.generator.context import Context, members
from results.op import FAIL, INFO, INVOKE, OK, Op
from workloads.reading import MOVED

COMMIT_NS: Final = 1_000_000_000
"""The time between two commits of a queue from which something was consumed. The Java client commits every 5 s."""

CRASH: Final = 0.01
"""The share of all ops of consumers: each of three crashes every 3 s at 100 ops a second."""

AWAY_NS: Final = 1_000_000_000
"""The time for which a crashed consumer is gone; meanwhile the others have its queues."""

OURS: Final = frozenset({"assign", "committed", "consume", "commit", "crash"})


@dataclass(frozen=True, slots=True)
class Session:
    """One consumer since it joined.

    held         its queues.
    at           queue -> the offset it consumes next; missing: the committed one is not known yet.
    uncommitted  queue -> the time (ns) since which it has consumed without a commit; missing: it has not.
    turn         the number of its consumes, to go round the queues.
    away_until   the time (ns) until which it is gone after a crash.
    nodes        broker group -> the node that answered last. probes: queues whose committed offset it queries, because
                 another node answered before: a new master may have forgotten it, and the next commit hides that.
    """

    held: tuple[str, ...] = ()
    at: Mapping[str, int] = field(default_factory=dict)
    uncommitted: Mapping[str, int] = field(default_factory=dict)
    turn: int = 0
    away_until: int = 0
    nodes: Mapping[str, str] = field(default_factory=dict)
    probes: frozenset[str] = frozenset()

    def assigned(self, keys: Sequence[str]) -> Session:
        """The session with these queues; positions of those it keeps stay."""
        kept = {key: at for key, at in self.at.items() if key in keys}
        since = {key: ns for key, ns in self.uncommitted.items() if key in keys}
        return replace(self, held=tuple(keys), at=kept, uncommitted=since)


@dataclass(frozen=True, slots=True, eq=False)
class Consumers(Generator):
    """One group on the threads it may use, for ever. `n` counts its ops; `seed` and n alone determine the crashes."""

    group: str
    keys: Sequence[str]
    seed: int
    n: int = 0
    sessions: Mapping[int, Session] = field(default_factory=dict)

    def op(self, ctx: Context) -> Step:
        wait: Pending = PENDING
        for thread in members(ctx.free_takers, ctx.turn % ctx.process_map.concurrency):
            session = self.sessions.get(thread, Session())
            if session.away_until > ctx.time:
                wait = wait.or_at(session.away_until)
                continue
            found = self._next(ctx, thread, session)
            if found is None:
                continue
            sessions = {**self.sessions, thread: replace(session, turn=session.turn + 1)}
            return found.by(ctx.process(thread)), replace(self, n=self.n + 1, sessions=sessions)
        return wait, self

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f not in OURS or event.type == INVOKE or event.extra.get("group", self.group) != self.group:
            return self
        thread = ctx.process_map.thread_of(event.process)
        session = self.sessions.get(thread, Session())
        found = after(session, event, ctx.time)
        return self if found is session else replace(self, sessions={**self.sessions, thread: found})

    def _next(self, ctx: Context, thread: int, session: Session) -> Invocation | None:
        """The consumer's next op; None: nothing, because it has no queue."""
        wanted = self._share(ctx, thread)
        taken = {key for other, s in self.sessions.items() if other != thread for key in s.held}
        for key in session.held:
            if key not in wanted and key in session.uncommitted:
                return self._op("commit", key, session.at[key])
        keep = [key for key in session.held if key in wanted]
        gain = [key for key in wanted if key not in session.held and key not in taken]
        if gain or len(keep) < len(session.held):
            return self._op("assign", None, keep + gain)
        if not keep:
            return None
        for key in keep:
            if key not in session.at or key in session.probes:
                return self._op("committed", key, None)
            if ctx.time - session.uncommitted.get(key, ctx.time) >= COMMIT_NS:
                return self._op("commit", key, session.at[key])
        if Random(f"{self.seed}/{self.n}").random() < CRASH:
            return self._op("crash", None, None)
        key = keep[session.turn % len(keep)]
        return self._op("consume", key, session.at[key])

    def _share(self, ctx: Context, thread: int) -> list[str]:
        """The queues of one consumer among those present: averaged, similar to `AllocateMessageQueueAveragely`."""
        there = [other for other in members(ctx.takers) if self.sessions.get(other, Session()).away_until <= ctx.time]
        return [key for i, key in enumerate(self.keys) if there[i % len(there)] == thread]

    def _op(self, f: str, key: str | None, value: Any) -> Invocation:
        return Invocation(f, key, value, {"group": self.group})


def after(session: Session, event: Op, now: int) -> Session:
    """A session after one of its ops completed."""
    if event.type == INFO:
        return Session()  # the process is gone, and its knowledge with it
    if event.type == FAIL:
        return session
    key = event.key or ""
    group, node = key.rpartition(":")[0], event.extra.get("node")
    if node is not None and node != session.nodes.get(group):
        # Of the same broker group: others have masters of their own.
        new = {k for k in session.at if group in session.nodes and k.rpartition(":")[0] == group}
        session = replace(session, nodes={**session.nodes, group: node}, probes=session.probes | new)
    match event.f:
        case "assign":
            return session.assigned(event.value)
        case "committed":
            known = session.at.get(key, event.value or 0)
            return replace(session, at={**session.at, key: known}, probes=session.probes - {key})
        case "commit":
            return replace(session, uncommitted={k: ns for k, ns in session.uncommitted.items() if k != key})
        case "crash":
            return Session(away_until=now + AWAY_NS)
    if event.value:
        since = {key: now, **session.uncommitted}
        return replace(session, at={**session.at, key: event.value[-1][0] + 1}, uncommitted=since)
    if event.extra.get("code") == MOVED and event.extra.get("next") is not None:
        return replace(session, at={**session.at, key: event.extra["next"]})
    return session


@dataclass(frozen=True, slots=True, eq=False)
class Drain(Generator):
    """One queue consumed by the group to its end, and the proof of it: `assign`, `committed`, `consume` until nothing
    comes and the broker reports the end, `commit`, `drain`. Ops that fail are tried again, `tries` in a row; an `info`
    ends it, and then the queue is not proven to be drained.
    """

    group: str
    key: str
    tries: int = 20
    step: str = "assign"
    at: int = 0
    process: int | None = None
    open: bool = False
    failures: int = 0

    def op(self, ctx: Context) -> Step:
        if self.open:
            return PENDING, self
        if self.process is None:
            if not ctx.free_takers:
                return PENDING, self
            process = ctx.process(ctx.pick())
        elif ctx.is_free(self.process):
            process = self.process
        else:
            return (PENDING, self) if ctx.runs(self.process) else None
        value: Any = {"assign": [self.key], "committed": None}.get(self.step, self.at)
        key = None if self.step == "assign" else self.key
        return Invocation(self.step, key, value, {"group": self.group}).by(process), replace(
            self, open=True, process=process
        )

    def update(self, ctx: Context, event: Op) -> Generator:
        if not self.open or event.type == INVOKE or event.process != self.process or event.f != self.step:
            return self
        if event.type == FAIL and self.failures + 1 < self.tries:
            return replace(self, open=False, failures=self.failures + 1)
        if event.type != OK:
            return EMPTY
        done = replace(self, open=False, failures=0)
        match self.step:
            case "assign":
                return replace(done, step="committed")
            case "committed":
                return replace(done, step="consume", at=event.value or 0)
            case "commit":
                return replace(done, step="drain")
            case "drain":
                return EMPTY
        if event.value:
            return replace(done, at=event.value[-1][0] + 1)
        if event.extra.get("code") == MOVED and event.extra.get("next") is not None:
            return replace(done, at=event.extra["next"])
        end = event.extra.get("max")
        return replace(done, step="commit") if end is None or self.at >= end else done
