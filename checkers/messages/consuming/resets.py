# SPDX-License-Identifier: Apache-2.0
"""The resets of a group's offsets, and what they permit the members of the group: `docs/resets.md`, "Promises"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from checkers.messages.consuming.takes import Delivery
from checkers.messages.resets import Reset, resets_of
from results.figures import SECOND
from results.history import Call, History
from results.op import OK

_STOPPED_S: Final = 15.0
"""The longest time for which a member stops for a reset (10 s), with a reserve."""

BACK = "an administrator had reset the offset to the message or below it"
"""The reason why a message comes again."""

PAST = "an administrator had reset the offset above the message"
"""The reason why a message need not come."""


class MemberResets:
    """The resets of a run that were not refused, by queue."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._resets = resets_of(history)
        self._groups = sorted({str(call.invoke.extra.get("group")) for call in self._resets.calls})

    def __bool__(self) -> bool:
        return bool(self._resets)

    @property
    def group(self) -> str:
        """The consumer group: all resets of a run of members are of one."""
        return ", ".join(self._groups)

    @property
    def calls(self) -> Sequence[Call]:
        return self._resets.calls

    def of(self, key: str) -> list[Reset]:
        """The resets of a queue, in order of their requests."""
        found = [reset for group in self._groups for reset in self._resets.of(group, key)]
        return sorted(found, key=lambda reset: reset.start)

    def repeats(self, delivery: Delivery) -> int:
        """The number of resets to a message or below it that were requested before its delivery."""
        return sum(r.low <= delivery.offset and r.begun <= delivery.start for r in self.of(delivery.key))

    def passes(self, key: str, offset: int, known: int) -> bool:
        """True if a reset may have led the group past an offset (`GroupResets.passes`). known: the index of the op that
        shows the message first.
        """
        return any(self._resets.passes(group, key, offset, known) for group in self._groups)

    def beyond(self, key: str, until: int) -> int:
        """The highest offset that a reset may have set before a time (ns); 0: no reset."""
        return max((reset.high for reset in self.of(key) if reset.begun <= until), default=0)

    def requested(self, key: str, since: int, until: int) -> bool:
        """True if a reset of a queue was requested, or acknowledged, between two times (ns)."""
        return any(since <= at <= until for reset in self.of(key) for at in (reset.begun, reset.acked))

    def stopped(self, since: int, until: int) -> bool:
        """True if a reset of any queue may have stopped a member between two times (ns): a client suspends all its
        queues (`MQClientInstance.resetOffset`, 10 s). A reset without an answer may happen at any time after its
        request.
        """
        return any(
            call.start <= until and (call.outcome != OK or (call.end or 0) + int(_STOPPED_S * SECOND) >= since)
            for call in self.calls
        )

    def unanswered(self, key: str) -> bool:
        """True if a reset without an answer may happen at any time."""
        return any(not reset.sure for reset in self.of(key))

    @cached_property
    def known(self) -> dict[object, int]:
        """Message -> the index of the completion that acknowledged its send."""
        calls = (call for call in self._history.clients.calls if call.invoke.f == "send")
        return {call.invoke.value: call.completion.index for call in calls
                if call.completion is not None and call.completion.type == OK}  # fmt: skip
