# SPDX-License-Identifier: Apache-2.0
"""A simulated group whose members reply to requests: right, unless a bug is planted.

Each request is a message; its producer waits for three seconds. A member replies when it has worked, and a broker
acknowledges the reply only when the producer's client has confirmed it, or refuses it.
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import Any, Final

from results.record import RunRecord
from tests.stories import S, TimedStory

WAITS_S: Final = 3.0
_COUNT: Final = 80


class Bug(Enum):
    """The bugs that can be planted."""

    LOST = "now and then a reply is acknowledged, and does not reach its request"
    MIXED = "now and then a request gets the reply to another one"
    TWICE = "now and then a request gets a second reply"
    BOTH = "now and then a request that has timed out gets a reply"


class Requests:
    """One run. planted: the number of times that the bug struck."""

    def __init__(self, seed: int, bug: Bug | None = None) -> None:
        self.dice, self.bug = Random(seed), bug
        self.planted = 0
        self.story = TimedStory()
        self.events: list[tuple[float, list[Any]]] = []
        self.again: list[tuple[float, list[int | None]]] = []
        """Further results: the time, and the entry of a completion."""

    def run(self) -> RunRecord:
        """Plays it to its end."""
        about = {"group": "g", "member": "m0"}
        self.story.call(0.1, "join", None, None, "m0-1", **about)
        for n in range(1, _COUNT + 1):
            self._request(1 + n * 0.25, n)
        end = 1 + _COUNT * 0.25 + 60
        self._complete(end - 30, end - 29.9, _COUNT + 1, {"reply": _COUNT + 1, "own": True})
        self.events.sort(key=lambda event: event[0])
        shown = [[kind, int((end + 0.01 - at) * S), 1, *rest] for at, (kind, *rest) in self.events]
        self.story.call(end, "take", None, None, shown, **about)
        return self.story.run()

    def _strikes(self, bug: Bug) -> bool:
        struck = self.bug is bug and self.dice.random() < 0.1
        self.planted += struck
        return struck

    def _request(self, at: float, n: int) -> None:
        """One request: never delivered, or delivered once or twice, each with a reply that is late, refused or good."""
        got: float | None = None
        over = at + 0.01 + WAITS_S
        for number in range(self.dice.choice([0, 1, 1, 1, 1, 2])):
            begins = at + self.dice.choice([0.02, 0.05, 1.0, 2.9]) + number * 1.5
            replies = begins + self.dice.uniform(0.005, 0.2)
            accepted = self.dice.random() < 0.9
            self.events.append((begins, ["delivered", 2 * n + number, "t:a:0", n, n, number, "a"]))
            self.events.append((replies + 0.002, ["replied", 2 * n + number, accepted]))
            self.events.append((replies + 0.003, ["done", 2 * n + number, True]))
            if accepted and replies < over and got is None:
                got = replies
        if got is None or (got < over - 0.1 and self._strikes(Bug.LOST)):
            self._complete(at, over + self.dice.uniform(0, 1), n, {"unanswered": "RequestTimeoutException"})
            if self._strikes(Bug.BOTH):
                self.again.append((over + 1, [n, n]))
            return
        reply = n + 1 if self._strikes(Bug.MIXED) else n
        self._complete(at, got, n, {"reply": reply, "own": True})
        if self._strikes(Bug.TWICE):
            self.again.append((got, [n, self.dice.choice([n, None])]))

    def _complete(self, at: float, end: float, n: int, result: dict[str, Any]) -> None:
        """A completion shows the further results of earlier requests."""
        again = [entry for when, entry in self.again if when <= end]
        self.again = [each for each in self.again if each[0] > end]
        extra = {**result, "within_ms": int(WAITS_S * 1000), **({"again": again} if again else {})}
        sure = self.dice.random() < 0.9
        got = [n, n] if sure else n
        asked = {"properties": {"TAGS": "a", "request": "1"}}
        self.story.call(at, "send", "t:a:0", n, got, "ok" if sure else "info", took=end - at, ask=asked, **extra)
