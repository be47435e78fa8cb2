"""The common part of the judges of messages that brokers deliver by themselves, some time after the send: delayed
messages and transactions. The judges follow a message by its id through all queues, because an acting master delivers
it through another broker group (RIP-32's escape).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from results.figures import SECOND, clock
from results.history import Call
from results.op import INFO, OK
from results.verdict import Anomaly

_ABSENT: Final = -1
"""The end of a queue for a read that failed: it could return nothing."""

_UNSERVED_NS: Final = 2 * SECOND
_OPS: Final = 12

Place = tuple[str, int]
"""Queue and offset."""


class QueueReads:
    """The absences that the reads of a run prove, and the final reads that are complete."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._series: dict[str, dict[str, tuple[list[int], list[int]]]] = {}
        self.asked: set[tuple[str, str]] = set()
        self.done: set[tuple[str, str]] = set()
        self.final_since: int | None = None
        for call in sorted(calls, key=lambda c: c.start):
            done, queue = call.completion, str(call.invoke.key)
            node = str(call.invoke.extra.get("node"))
            if call.invoke.f == "replica-read":
                self.asked.add((queue, node))
                self.final_since = call.start if self.final_since is None else self.final_since
                if done is not None and done.extra.get("done"):
                    self.done.add((queue, node))
            if done is None or done.type == INFO:
                continue
            end = done.extra.get("max") if done.type == OK else _ABSENT
            if end is not None:
                starts, ends = self._series.setdefault(queue, {}).setdefault(node, ([], []))
                starts.append(call.start)
                ends.append(end)

    @property
    def missing(self) -> list[str]:
        """Final reads that did not reach the end of their queue, as `QUEUE at NODE`."""
        return [f"{queue} at {node}" for queue, node in sorted(self.asked - self.done)]

    def absent_until(self, place: Place, before: int) -> int | None:
        """The last time (ns) before another at which certainly no node could return a place; None: unknown."""
        queue, offset = place
        bounds = []
        for starts, ends in self._series.get(queue, {}).values():
            at = bisect_left(starts, before)
            while at and ends[at - 1] > offset:
                at -= 1
            if not at:
                return None
            bounds.append(starts[at - 1])
        return min(bounds, default=None)


def unserved(sends: Iterable[Call]) -> tuple[list[int], bool]:
    """The times (ns, in order) at which a send ended without an acknowledgement, and no other one was acknowledged in
    the 2 s before and after: then no master served. True with them if sends were acknowledged at the end.
    """
    done = [(call.end, call.outcome) for call in sends if call.completion is not None and call.end is not None]
    acks = sorted(end for end, outcome in done if outcome == OK)
    found = []
    for end in sorted(end for end, outcome in done if outcome != OK):
        at = bisect_left(acks, end - _UNSERVED_NS)
        if at == len(acks) or acks[at] > end + _UNSERVED_NS:
            found.append(end)
    return found, not found or (bool(acks) and acks[-1] > found[-1])


def never_sent(strangers: Sequence[tuple[Any, Call]]) -> Iterator[Anomaly]:
    """Yields an anomaly for messages that were read and no client sent: each an id, or text, with its read."""
    if strangers:
        identity, call = strangers[0]
        count = len({str(identity) for identity, _ in strangers})
        yield Anomaly(
            "never-sent",
            f"{count:,} messages were read that no client sent: {identity} in {call.invoke.key} at "
            f"{clock(call.end or 0)}",
            call.invoke.key,
            sorted({c.invoke.index for _, c in strangers[:_OPS]}),
            (call.start, call.end or call.start),
            {"count": count},
        )
