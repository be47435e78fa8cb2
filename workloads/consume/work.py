# SPDX-License-Identifier: Apache-2.0
"""The contents of a message besides its id: its tag, and how hard a consumer has to work on it. All follow from the id.

The consumer reads the properties `fails` (so many attempts at it fail), `slow` (so many ms an attempt takes) and
`stuck` (so many ms the first one takes), a
simple consumer also `renewed` (so many ms it is hidden again, by request) and `twice` (it is acknowledged twice).
A native consumer reads the broker group of a message from its property `broker`: its library does not report it.
A push consumer replies to a message with `request`. A simple consumer requests the invisible duration `nacked` (in ms)
for a message that failed; -1: one that ends when the first one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

TAGS: Final = ("a", "b", "c")
"""The tags of messages; a group that filters wants `a` and `b`."""

WANTED: Final = ("a", "b")
_OTHER: Final = "c"

SLOW_MS: Final = 300

MESSAGE_GROUP: Final = "__SHARDINGKEY"
"""The property with the message group: of gRPC, `SystemProperties.message_group`."""

BROKER: Final = "broker"
"""The property with the broker group of a message, for consumers whose library does not report it."""

_GROUPS: Final = 3
"""The number of message groups of each queue."""

STUCK_MS: Final = 150_000
"""The time for the first attempt of a message that is stuck."""

_APART: Final = 101
"""Every so many-th message may be stuck: they go to different queues."""

NACKED_MS: Final = (1000, 3000, -1)
"""The invisible durations for messages that failed, of which each has one."""

REQUEST: Final = "request"
"""The property of a message whose producer waits for a reply."""

RENEWED_MS: Final = 20_000
"""The new invisible duration of a message that is renewed: its consumer works on it for longer than the first one."""


@dataclass(frozen=True)
class Work:
    """The shares (%) of messages that fail, that are slow, that are renewed, that are acknowledged twice, that are
    requests, and that fail and are given back. `fails`: the number of attempts that fail. level: the delay level that
    a consumer names for them; 0: none. matching: the share (%) with a wanted tag; 0: two thirds. stuck: the number of
    messages whose first attempt takes longer than a consumer may work on one.
    """

    failing: float = 0.0
    fails: int = 1
    slow: float = 0.0
    renewed: float = 0.0
    twice: float = 0.0
    level: int = 0
    requests: float = 0.0
    matching: float = 0.0
    nacked: float = 0.0
    stuck: int = 0

    @staticmethod
    def message_group(queue: int, message: int) -> Mapping[str, str]:
        """The property with the message group of a message. Each group has one queue, as with a proxy."""
        return {MESSAGE_GROUP: f"{queue}-{message % _GROUPS}"}

    @staticmethod
    def broker(group: str) -> Mapping[str, str]:
        """The property with the broker group of a message."""
        return {BROKER: group}

    def of(self, message: int) -> Mapping[str, str]:
        """The properties of a message."""
        dice = Random(message)
        found = {"TAGS": TAGS[message % len(TAGS)]}
        if dice.random() * 100 < self.failing:
            found["fails"] = str(self.fails)
            if self.level:
                found["level"] = str(self.level)
        if dice.random() * 100 < self.slow:
            found["slow"] = str(SLOW_MS)
        if dice.random() * 100 < self.renewed:
            found["renewed"] = str(RENEWED_MS)
        if dice.random() * 100 < self.twice:
            found["twice"] = "1"
        if dice.random() * 100 < self.requests:
            found[REQUEST] = "1"
        if self.nacked and dice.random() * 100 < self.nacked:
            found |= {"fails": "1", "nacked": str(dice.choice(NACKED_MS))}
        if message % _APART == 0 and message <= _APART * self.stuck:
            found["stuck"] = str(STUCK_MS)
        if self.matching:
            found["TAGS"] = WANTED[message % len(WANTED)] if dice.random() * 100 < self.matching else _OTHER
        return found
