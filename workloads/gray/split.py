# SPDX-License-Identifier: Apache-2.0
"""The division of queues by colour, their readers, and the target queue of a message: pure functions.

Source: the published scheme (vivo, "Luban MQ platform"): of each broker the first and the last queue are gray, the rest
is base; gray clients share the gray queues, base clients the others, each part averaged as by
`AllocateMessageQueueAveragely`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")

Scheme = Literal["document", "cured"]

Counts = Mapping[str, int]
"""Broker group -> number of the topic's queues there, as a client knows it."""

Place = tuple[str, int]
"""Broker group and number of a queue."""


@dataclass(frozen=True)
class Split:
    """The division of the queues.

    fixed  the number of queues of a broker by which the gray ones were selected permanently; None: they are selected by
           the number that a client knows now.
    gray   the number of gray queues of each broker: the first ones and the last ones, the odd one first.
    """

    fixed: int | None = None
    gray: int = 2

    def numbers(self, queues: int) -> frozenset[int]:
        """The gray queues of a broker with so many queues."""
        of = queues if self.fixed is None else self.fixed
        first = (self.gray + 1) // 2
        chosen = {*range(first), *range(of - (self.gray - first), of)}
        return frozenset(chosen & set(range(queues)))

    def queues(self, counts: Counts, gray: bool) -> list[Place]:
        """All queues of a colour, in the order in which they are allocated."""
        return [
            (group, number)
            for group, count in sorted(counts.items())
            for number in range(count)
            if (number in self.numbers(count)) == gray
        ]

    def share(self, client: str, clients: Sequence[str], flags: Mapping[str, bool], counts: Counts) -> list[Place]:
        """The queues that a client of the group reads. A client without a flag is base. `clients`: those the broker
        names; a client that is not among them gets no queue.
        """
        gray = flags.get(client, False)
        alike = sorted(other for other in clients if flags.get(other, False) == gray)
        return averaged(client, alike, self.queues(counts, gray))

    def target(self, counts: Counts, gray: bool, ordering: int) -> Place:
        """The queue for a message: those with the same ordering key go to the same one, while nothing changes."""
        queues = self.queues(counts, gray)
        return queues[ordering % len(queues)]


def averaged(client: str, clients: Sequence[str], queues: Sequence[T]) -> list[T]:
    """One client's part of the queues; the first clients get one more if the division has a remainder."""
    if client not in clients:
        return []
    index, (each, rest) = list(clients).index(client), divmod(len(queues), len(clients))
    start = index * each + min(index, rest)
    return list(queues[start : start + each + (index < rest)])
