# SPDX-License-Identifier: Apache-2.0
"""Generators that read queues by offset. They know the position of each process from the answers.

`Polls` is load: each reader thread visits its share of nodes and queues again and again. `ReadToEnd` reads one queue of
one replica to its end, once, after all heals. `Remake` first ensures that a master knows the topics and groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from harness.generator import EMPTY, PENDING, Generator, Invocation, Pending, Step
from harness.generator.context import Context, members
from results.figures import SECOND
from results.op import INVOKE, OK, Op

NOT_YET: Final = (17, 26)
"""Answers of a slave that does not know the topic (TOPIC_NOT_EXIST) or the readers' group
(SUBSCRIPTION_GROUP_NOT_EXIST) yet. It copies both from its master every 10 s (`SlaveSynchronize.syncAll`), and one that
lost its disk has nothing before the first time.
"""

COPIED_S: Final = 30.0
"""The longest wait of a final read for that: three times the interval."""

_AGAIN_S: Final = 0.5

MOVED: Final = 21
"""The answer's code for an offset outside the queue (`PULL_OFFSET_MOVED`): continue at the broker's offset."""


@dataclass(frozen=True, slots=True, eq=False)
class Polls(Generator):
    """Polls of the threads it may use, each a `poll` of a queue (key) at a node, from the last position of the process.

    rounds  per reader: (key, node) in the order in which they are polled, again and again. Reader i is the i-th thread.
    turns   thread -> the number of its polls.
    at      (process, key) -> the next offset. A new process begins at the queue's start.

    The last field holds each (process, key) whose next poll begins a new session: the broker moved it.
    """

    rounds: Sequence[Sequence[tuple[str, str]]]
    turns: Mapping[int, int] = field(default_factory=dict)
    at: Mapping[tuple[int, str], int] = field(default_factory=dict)
    anew: frozenset[tuple[int, str]] = frozenset()

    def op(self, ctx: Context) -> Step:
        free = ctx.free_takers
        if not free:
            return PENDING, self
        thread = ctx.pick()
        readers = list(members(ctx.takers))
        tour = self.rounds[readers.index(thread) % len(self.rounds)]
        turn = self.turns.get(thread, 0)
        key, node = tour[turn % len(tour)]
        process = ctx.process(thread)
        place = (process, key)
        extra: dict[str, Any] = {"node": node}
        if place not in self.at or place in self.anew:
            extra["start"] = True
        poll = Invocation("poll", key, self.at.get(place, 0), extra).by(process)
        return poll, replace(self, turns={**self.turns, thread: turn + 1}, anew=self.anew - {place})

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f != "poll" or event.type == INVOKE or event.key is None:
            return self
        place = (event.process, event.key)
        before = self.at.get(place, 0)
        if event.type != OK:
            # It gets a position nevertheless: it has polled, so the next poll does not start.
            return self if place in self.at else replace(self, at={**self.at, place: before})
        if event.value:
            return replace(self, at={**self.at, place: event.value[-1][0] + 1})
        if event.extra.get("code") == MOVED and event.extra.get("next") is not None:
            moved = {**self.at, place: event.extra["next"]}
            return replace(self, at=moved, anew=self.anew | {place})
        return replace(self, at={**self.at, place: before})


@dataclass(frozen=True, slots=True, eq=False)
class ReadToEnd(Generator):
    """One queue read at one node, from the start to the end, one `replica-read` after the other.

    A read that fails, or was never answered, is tried again, `tries` times in a row at most; then the queue stays
    unread there, and the judges notice that. A replica that does not know the topic or the group yet (`NOT_YET`) is
    tried again until `COPIED_S` are over; such answers count as tries only after that.

    due    the time of the next try (ns). waiting: the time (ns) since which the replica does not know them.
    f      the name of the op. node: None: the client chooses it.
    """

    key: str
    node: str | None
    tries: int = 20
    at: int = 0
    open: bool = False
    failures: int = 0
    process: int | None = None
    """The process that reads: a missing answer names no node."""
    due: int = 0
    waiting: int | None = None
    f: str = "replica-read"

    def op(self, ctx: Context) -> Step:
        if self.open or not ctx.free_takers:
            return PENDING, self
        if ctx.time < self.due:
            return Pending(self.due), self
        extra = {} if self.node is None else {"node": self.node}
        return Invocation(self.f, self.key, self.at, extra), replace(self, open=True)

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f != self.f or event.key != self.key:
            return self
        if event.type == INVOKE:
            mine = self.open and self.process is None and event.extra.get("node") == self.node
            return replace(self, process=event.process) if mine else self
        if event.process != self.process:
            return self
        if event.type == OK:
            if event.extra.get("done"):
                return EMPTY
            at = event.extra.get("next", event.value[-1][0] + 1 if event.value else self.at)
            return replace(self, at=at, open=False, process=None, failures=0, waiting=None)
        if event.extra.get("code") in NOT_YET:
            since = event.time if self.waiting is None else self.waiting
            if event.time < since + COPIED_S * SECOND:
                due = event.time + int(_AGAIN_S * SECOND)
                return replace(self, open=False, process=None, due=due, waiting=since)
        if self.failures + 1 < self.tries:
            return replace(self, open=False, process=None, failures=self.failures + 1)
        return EMPTY


@dataclass(frozen=True, slots=True, eq=False)
class Remake(Generator):
    """One `remake` at the master of a broker group: it gets back the topics and consumer groups that it has forgotten.
    A failure is tried again, `tries` times in all; then the broker group stays unchanged.

    due  the time of the next try (ns). process: the one that tries: a missing answer names no group.
    """

    group: str
    tries: int = 10
    open: bool = False
    process: int | None = None
    failures: int = 0
    due: int = 0

    def op(self, ctx: Context) -> Step:
        if self.open or not ctx.free_takers:
            return PENDING, self
        if ctx.time < self.due:
            return Pending(self.due), self
        return Invocation("remake", None, self.group, {"group": self.group}), replace(self, open=True)

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.f != "remake" or not self.open:
            return self
        if event.type == INVOKE:
            mine = self.process is None and event.extra.get("group") == self.group
            return replace(self, process=event.process) if mine else self
        if event.process != self.process:
            return self
        if event.type == OK or self.failures + 1 >= self.tries:
            return EMPTY
        due = event.time + int(_AGAIN_S * SECOND)
        return replace(self, open=False, process=None, failures=self.failures + 1, due=due)
