# SPDX-License-Identifier: Apache-2.0
"""A simulated group of simple consumers: members pop, renew, and acknowledge; right, unless a bug is planted.

A message that is not acknowledged comes again up to five seconds after the end of its invisible duration.
"""

from __future__ import annotations

from enum import Enum
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from results.record import RunRecord
from tests.stories import S, TimedStory

KEY: Final = "t:a:0"
INVISIBLE_S: Final = 10.0
RENEWED_S: Final = 20.0
BACK_S: Final = 5.0
END_S: Final = 150.0
LOAD_S: Final = 30.0


class Bug(Enum):
    """The bugs that can be planted."""

    EAGER = "now and then a message comes again before the end of its invisible duration"
    DEAF = "now and then a renewal has no effect"
    LOST = "now and then a message that was not acknowledged does not come again"
    STALL = "for 40 s, nobody gets a new message, and others come again"
    ECHO = "now and then a second acknowledgement makes a message visible"


class Pops:
    """One run. planted: the number of times that the bug struck."""

    def __init__(self, seed: int, bug: Bug | None = None) -> None:
        self.dice, self.bug = Random(seed), bug
        self.planted = 0
        self.story = TimedStory()
        self.due: list[tuple[float, int, int]] = []
        """(time of the next delivery, id, attempt)."""
        self.counts = {"m0": 0, "m1": 0}
        self.events: dict[str, list[tuple[float, list[Any]]]] = {
            member: [(0.2, ["started", f"10.0.0.1@{member}-1"])] for member in self.counts
        }

    def run(self) -> RunRecord:
        """Plays it to its end."""
        for member in self.counts:
            self.story.call(0.1, "join", None, None, f"{member}-1", group="g", member=member)
        count = 60
        for n in range(count):
            at = 1 + n * LOAD_S / count
            self.story.call(
                at, "send", KEY, n + 1, [n, n + 1], took=0.005, node="n1", ask={"properties": {"TAGS": "a"}}
            )
            stalled = self.bug is Bug.STALL and at > LOAD_S / 2
            self.planted += stalled
            heappush(self.due, (at + (40 if stalled else 0.02), n + 1, 0))
        while self.due and self.due[0][0] < END_S - RENEWED_S:
            self._deliver(*heappop(self.due))
        for member, events in self.events.items():
            events.sort(key=lambda event: event[0])
            shown = [[kind, int((END_S + 0.01 - at) * S), 1, *rest] for at, (kind, *rest) in events]
            self.story.call(END_S, "take", None, None, shown, group="g", member=member)
        shown = [[n, n + 1] for n in range(count)]
        about = {"min": 0, "max": count, "next": count, "done": True, "phase": "final", "node": "n1"}
        self.story.call(END_S + 1, "replica-read", KEY, 0, shown, **about)
        return self.story.run()

    def _strikes(self, bug: Bug) -> bool:
        struck = self.bug is bug and self.dice.random() < 0.3
        self.planted += struck
        return struck

    def _deliver(self, at: float, message: int, attempt: int) -> None:
        """One delivery: acknowledged soon, renewed and acknowledged late, given back, or never acknowledged."""
        member = self.dice.choice(["m0", "m1"])
        self.counts[member] += 1
        n, events = self.counts[member], self.events[member]
        hidden_ms = int(INVISIBLE_S * 1000) - self.dice.randrange(20)
        told = ["delivered", n, KEY, message - 1, message, attempt, "a", hidden_ms]
        events.append((at, told))
        what = self.dice.random()
        until = at + INVISIBLE_S
        if what < 0.2:
            until = at + 0.1 + RENEWED_S
            events.append((at + 0.1, ["renewed", n, True, int(RENEWED_S * 1000) - 5]))
            if self._strikes(Bug.DEAF):
                self._again(at + INVISIBLE_S, message, attempt)
                return
        elif what < 0.3:
            short = self.dice.uniform(1, 9)
            events += [(at + 0.1, ["renewed", n, True, int(short * 1000) - 5]), (at + 0.11, ["done", n, False])]
            if not self._strikes(Bug.LOST):
                self._again(at + 0.1 + short, message, attempt)
            return
        elif what < 0.5:
            if self._strikes(Bug.EAGER):
                until -= 4 + BACK_S
            if not self._strikes(Bug.LOST):
                self._again(until, message, attempt)
            return
        ends = at + self.dice.uniform(0.01, 0.2) if until == at + INVISIBLE_S else at + 14
        events += [(ends - 0.002, ["acking", n]), (ends, ["done", n, True])]
        if self.dice.random() < 0.3:
            events.append((ends + 0.003, ["acked-again", n, self.dice.random() < 0.5]))
            if self._strikes(Bug.ECHO):
                heappush(self.due, (ends + 1, message, attempt))

    def _again(self, after: float, message: int, attempt: int) -> None:
        heappush(self.due, (after + self.dice.uniform(0, BACK_S), message, attempt + 1))
