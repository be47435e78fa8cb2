# SPDX-License-Identifier: Apache-2.0
"""A simulated group of simple consumers that gets the messages of a message group in order, in steps of 20 ms: right,
unless a bug is planted.

As the broker does (`QueueLevelConsumerManager`), a queue is blocked while a message of its last pop is neither
acknowledged nor visible again; then it goes on with the first one that is not acknowledged, and gives out again all
behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, Final

from results.record import Observation, RunRecord
from tests.sim.consumers import MESSAGE_GROUP
from tests.stories import S, TimedStory

QUEUES: Final = ("t:a:0", "t:a:1")
INVISIBLE_S: Final = 5.0
_BATCH: Final = 6
_STEP: Final = 0.02
_LOAD_S: Final = 20.0
_END_S: Final = 100.0
_LEAST_S: Final = 1.0


class Bug(Enum):
    """The bugs that can be planted."""

    AHEAD = "now and then a queue goes on although a message is not acknowledged"
    EAGER = "now and then a pop begins again before the end of the invisible duration"
    SKIP = "now and then a queue goes on behind messages whose invisible duration is over"
    AGAIN = "now and then a message comes again although it and all before it were acknowledged"
    STALL = "a queue is blocked for 40 s when a member is killed that has popped from it"
    FORGOT = "now and then a message that comes again has no number"


@dataclass
class _Pop:
    """The last pop of a queue: offset -> True if it is acknowledged."""

    until: float
    acked: dict[int, bool]

    def blocks(self, now: float) -> bool:
        return now < self.until and not all(self.acked.values())


@dataclass
class _Member:
    name: str
    life: int = 0
    back: float = 0.0
    busy: float = 0.0
    n: int = 0
    batch: list[tuple[str, int, int, _Pop]] = field(default_factory=list)
    open: tuple[int, str, int, _Pop] | None = None
    """Its next acknowledgement: the number of the delivery, its queue and offset, and its pop."""
    waiting: set[str] = field(default_factory=set)
    told: list[tuple[float, list[Any]]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.back == 0


class FifoPops:
    """One run. planted: the number of times that the bug struck."""

    def __init__(self, seed: int, bug: Bug | None = None) -> None:
        self.dice, self.bug = Random(seed), bug
        self.planted = 0
        self.story = TimedStory()
        self.logs: dict[str, list[int]] = {key: [] for key in QUEUES}
        self.properties: dict[int, dict[str, str]] = {}
        self.next = dict.fromkeys(QUEUES, 0)
        self.pops: dict[str, _Pop] = {}
        self.counts: dict[tuple[str, int], int] = {}
        self.members = [_Member(f"m{i}", back=0.1 + i / 10) for i in range(3)]

    def run(self) -> RunRecord:
        """Plays it to its end."""
        now = 0.0
        while now < _END_S:
            if now < _LOAD_S and self.dice.random() < _STEP * 12:
                self._send(now)
            for member in self.members:
                self._live(member, now)
            now = round(now + _STEP, 3)
        for member in self.members:
            self._tell("leave", member, now)
        for key, log in self.logs.items():
            shown = [[offset, each] for offset, each in enumerate(log)]
            about = {"min": 0, "max": len(log), "next": len(log), "done": True, "phase": "final", "node": "n1"}
            self.story.call(now + 1, "replica-read", key, 0, shown, **about)
        masters = [Observation(s * S, "n1", "leader", term=1, extra={"broker_name": "a"}) for s in range(int(_END_S))]
        return self.story.run(observations=masters)

    def _send(self, now: float) -> None:
        key, message = self.dice.choice(QUEUES), len(self.properties) + 1
        properties = {"TAGS": "a", MESSAGE_GROUP: f"{key}-{message % 3}"}
        if self.dice.random() < 0.04:
            properties["fails"] = self.dice.choice("112")
        self.properties[message] = properties
        self.logs[key].append(message)
        got = [len(self.logs[key]) - 1, message]
        answered = self.dice.random() < 0.95
        self.story.call(now, "send", key, message, got if answered else message, "ok" if answered else "info",
                        took=0.005, node="n1", ask={"properties": properties})  # fmt: skip

    def _live(self, member: _Member, now: float) -> None:
        if not member.alive:
            if now >= member.back:
                member.life, member.back, member.n, member.busy = member.life + 1, 0.0, 0, now
                name = f"{member.name}-{member.life}"
                self.story.call(now, "join", None, None, name, took=0.001, group="g", member=member.name)
                member.told = [(now + 0.002, ["started", f"10.0.0.1@{name}"])]
        elif now < _LOAD_S and self.dice.random() < _STEP / 10:
            self._tell("crash", member, now)
            for *_, pop in [*member.batch, *([member.open] if member.open is not None else [])]:
                if self.bug is Bug.STALL and pop.blocks(now):
                    self.planted += pop.until < now + 20
                    pop.until = now + 40
            member.back, member.batch, member.open = now + 2, [], None
        elif now >= member.busy:
            if member.open is not None:
                self._acknowledge(member, now, *member.open)
            elif member.batch:
                self._work(member, now)
            else:
                self._receive(member, now)
            if self.dice.random() < 0.1:
                self._tell("take", member, now)

    def _receive(self, member: _Member, now: float) -> None:
        """Pops from the queues in turn, until a batch is full."""
        member.waiting = set()
        for key in self.dice.sample(QUEUES, len(QUEUES)):
            count = _BATCH - len(member.batch)
            pop = self.pops.get(key)
            if pop is not None and pop.blocks(now):
                early = pop.until - now
                if self._strikes(Bug.AHEAD):
                    self.next[key] = max(pop.acked) + 1
                elif not (early > 2 and self._strikes(Bug.EAGER)):
                    continue
            elif pop is not None and not all(pop.acked.values()) and self._strikes(Bug.SKIP):
                self.next[key] = max(pop.acked) + 1
            offsets = list(range(self.next[key], min(self.next[key] + count, len(self.logs[key]))))
            if count and pop is not None and all(pop.acked.values()) and self._strikes(Bug.AGAIN):
                offsets = sorted(pop.acked)[-1:]
            if not offsets:
                continue
            self.pops[key] = pop = _Pop(now + INVISIBLE_S, dict.fromkeys(offsets, False))
            for offset in offsets:
                attempt = self.counts.get((key, offset), 0)
                self.counts[key, offset] = attempt + 1 + (attempt > 0 and self._strikes(Bug.FORGOT))
                member.batch.append((key, offset, attempt, pop))

    def _strikes(self, bug: Bug) -> bool:
        rare = 0.003 if bug in (Bug.AHEAD, Bug.EAGER, Bug.AGAIN) else 0.5
        struck = self.bug is bug and self.dice.random() < rare
        self.planted += struck
        return struck

    def _work(self, member: _Member, now: float) -> None:
        """Works on the next message of its batch, or leaves it alone."""
        key, offset, attempt, pop = member.batch.pop(0)
        message = self.logs[key][offset]
        about = self.properties[message]
        group = about[MESSAGE_GROUP]
        member.n += 1
        # A gRPC client reports the queue that it asked.
        told = [member.n, QUEUES[0], offset, message, attempt, "a", int((pop.until - now) * 1000)]
        if group in member.waiting or pop.until - now < _LEAST_S:
            member.waiting.add(group)
            member.told.append((now, ["left", *told]))
            return
        member.told.append((now, ["delivered", *told]))
        member.busy = now + self.dice.choice([0.0, 0.02, 0.3])
        if attempt < int(about.get("fails", 0)):
            member.waiting.add(group)
            member.told.append((member.busy, ["done", member.n, False]))
            return
        member.open = member.n, key, offset, pop

    def _acknowledge(self, member: _Member, now: float, n: int, key: str, offset: int, pop: _Pop) -> None:
        """Acknowledges a message; the request or its answer may be lost."""
        member.open = None
        member.told.append((now, ["acking", n]))
        came, answered = self.dice.random() < 0.99, self.dice.random() < 0.99
        if came and self.pops[key] is pop:
            pop.acked[offset] = True
            self.next[key] = next((each for each, done in sorted(pop.acked.items()) if not done), max(pop.acked) + 1)
        if came and answered:
            member.told.append((now + 0.005, ["done", n, True]))
        else:
            member.waiting.add(self.properties[self.logs[key][offset]][MESSAGE_GROUP])

    def _tell(self, f: str, member: _Member, now: float) -> None:
        at = now + 0.01
        ready = [each for each in member.told if each[0] <= now]
        member.told = [] if f == "crash" else [each for each in member.told if each[0] > now]
        value = [[kind, int((at - when) * S), member.life, *rest] for when, (kind, *rest) in ready]
        self.story.call(now, f, None, None, value, group="g", member=member.name)
