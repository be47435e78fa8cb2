# SPDX-License-Identifier: Apache-2.0
"""The order of events by their times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from results.op import INVOKE, Op


def in_time_order(events: Sequence[Op]) -> Iterator[int]:
    """Yields the places of events in the order of their times. At equal times invocations come first, and events of one
    process keep their order.
    """
    queues: dict[int, deque[int]] = {}
    for place, op in enumerate(events):
        queues.setdefault(op.process, deque()).append(place)

    def head(queue: deque[int]) -> tuple[int, int, int]:
        """A completion with an invocation of the same process and time behind it makes way for that."""
        first = events[queue[0]]
        goes_on = len(queue) > 1 and events[queue[1]].time <= first.time
        return first.time, 0 if first.type == INVOKE else 2 - goes_on, queue[0]

    # (Only the first event of each process can be next.)
    heap = [head(queue) for queue in queues.values()]
    heapify(heap)
    while heap:
        _, _, place = heappop(heap)
        yield place
        queue = queues[events[place].process]
        queue.popleft()
        if queue:
            heappush(heap, head(queue))
