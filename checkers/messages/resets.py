# SPDX-License-Identifier: Apache-2.0
"""The resets of a group's offsets in a run, and what each of them may still do.

A broker keeps the new offset of a queue until the next pull or pop there (`ConsumerOffsetManager.resetOffsetTable`),
and ignores commits before it (`ConsumerManageProcessor.updateConsumerOffset`). A reset is therefore *pending* from its
request until a pull that began after its acknowledgement was answered. One without an answer may happen at any later
time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from results.history import Call, History

FOREVER: Final = 2**62
_MS: Final = 1_000_000

_NOT_SENT: Final = ("nothing was sent", "no-master")
"""The beginnings of the errors of requests that no broker got."""


@dataclass(frozen=True, slots=True)
class Reset:
    """One reset of one queue.

    start, end     the indices of its request and of its acknowledgement (`FOREVER`: none).
    begun, acked   their times (ns).
    low, high      the lowest and the highest offset that it may set: one offset, unless the answer is not known.
    taken          the index at which it is certainly not pending any more; `FOREVER`: never known.
    node           the broker.
    since          of an acknowledged reset to a time: the latest moment (ns) that this may be; None: another reset.
    """

    start: int
    end: int
    begun: int
    acked: int
    low: int
    high: int
    taken: int
    node: str
    since: int | None = None

    @property
    def sure(self) -> bool:
        """True if the broker acknowledged it."""
        return self.end < FOREVER


class GroupResets:
    """All resets of a history that were not refused, by group and queue."""

    def __init__(self, history: History) -> None:
        self.calls: list[Call] = []
        self._of: dict[tuple[str, str], list[Reset]] = {}
        self._unanswered: dict[tuple[str, str], list[Call]] = {}
        pulls: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for call in history.clients.calls:
            done = call.completion
            if call.invoke.f == "reset" and call.outcome != "fail" and call.invoke.key is not None:
                self.calls.append(call)
            elif call.invoke.f == "consume":
                place = str(call.invoke.extra.get("group")), str(call.invoke.key)
                if done is not None and done.type == "ok":
                    pulls.setdefault(place, []).append((call.invoke.index, done.index))
                elif done is None or not (done.error or "").startswith(_NOT_SENT):
                    self._unanswered.setdefault(place, []).append(call)
        self._pulls = {place: _Pulls(found) for place, found in pulls.items()} if self.calls else {}

    def __bool__(self) -> bool:
        return bool(self.calls)

    def of(self, group: str, queue: str) -> Sequence[Reset]:
        """The resets that may have changed the group's offset of a queue, in order of their requests."""
        found = self._of.get((group, queue))
        if found is None:
            found = self._of[group, queue] = list(self._resets(group, queue))
        return found

    def _resets(self, group: str, queue: str) -> Iterator[Reset]:
        everything = f"{queue.rpartition(':')[0]}:-1"
        pulls = self._pulls.get((group, queue), _Pulls(()))
        for call in self.calls:
            done = call.completion
            extra: Mapping[str, Any] = {**call.invoke.extra, **(done.extra if done is not None else {})}
            if extra.get("group") != group or call.invoke.key not in (queue, everything):
                continue
            sure = done is not None and done.type == "ok"
            low, high = 0, FOREVER
            if done is not None and sure:
                if queue not in done.value:
                    continue
                low = high = done.value[queue]
            elif call.invoke.value is not None:
                low = high = call.invoke.value
            end, acked = (done.index, done.time) if done is not None and sure else (FOREVER, FOREVER)
            taken = pulls.first_after(end)
            since = acked - extra["ago_ms"] * _MS if sure and "ago_ms" in extra else None
            yield Reset(call.invoke.index, end, call.start, acked, low, high, taken, str(extra.get("node")), since)

    def lost_answer(self, group: str, queue: str, reset: Reset) -> Call | None:
        """The first pull without an answer that may have taken a reset from the broker; None: none did."""
        calls = self._unanswered.get((group, queue), ())
        ends = ((call, FOREVER if call.completion is None else call.completion.index) for call in calls)
        return next((c for c, end in ends if end > reset.start and c.invoke.index < reset.taken), None)

    def passes(self, group: str, queue: str, offset: int, known: int) -> bool:
        """True if a reset may have led the group past a message at an offset without its delivery: it went further, and
        no later one certainly went back to the message. known: the index of the message's acknowledgement.
        """
        resets = self.of(group, queue)
        back = [r for r in resets if r.sure and r.high <= offset and r.start > known]
        return any(r.high > offset and not any(b.start > r.end for b in back) for r in resets)


class _Pulls:
    """The pulls of a queue that were answered."""

    def __init__(self, pulls: Sequence[tuple[int, int]]) -> None:
        self.starts = [start for start, _ in pulls]
        self.ends = [end for _, end in pulls]
        for at in range(len(self.ends) - 2, -1, -1):
            self.ends[at] = min(self.ends[at], self.ends[at + 1])

    def first_after(self, index: int) -> int:
        """The index of the first answer to a pull that was requested after an index; `FOREVER`: none."""
        at = bisect_right(self.starts, index)
        return self.ends[at] if at < len(self.ends) else FOREVER


_known: WeakKeyDictionary[History, GroupResets] = WeakKeyDictionary()


def resets_of(history: History) -> GroupResets:
    """The resets of a run, shared by its judges."""
    found = _known.get(history)
    if found is None:
        found = _known[history] = GroupResets(history)
    return found
