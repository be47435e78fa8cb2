# SPDX-License-Identifier: Apache-2.0
"""The facts about acknowledgements in a run's ops: sends, looks at the replicas, settings, and replicas in sync."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from checkers.base.impairment import FOREVER, certain_times
from checkers.base.timeline import RunTimeline, group_of
from checkers.messages.quorum.rules import Setting, rule_of
from results.figures import SECOND
from results.history import Call, History
from results.op import INFO, OK
from results.record import Observation, RunRecord
from results.strikes import LASTING

AROUND_NS: Final = 2 * SECOND
"""The controllers are polled every second."""

_TIMED_OUT: Final = 12
_REFUSED: Final = 1
_NOT_ENOUGH: Final = "in-sync replicas"


@dataclass
class Answers:
    """Answers of one server, in order of their ends."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def around(self, start: int, end: int) -> list[Any]:
        """The values that may hold between two times: from the last answer before to the first one after."""
        first = max(0, bisect_right(self.ends, start) - 1)
        # Several clients send requests, so the answers are not in the order of the requests.
        last = next((n for n in range(first, len(self.starts)) if self.starts[n] >= end), len(self.starts))
        return self.values[first : last + 1]


class Facts:
    """The facts of one run.

    certain   times in which faults were certainly in force.
    settings  node -> the settings that it reported. counted: node -> the replicas in sync that it reported.
    members   group -> name server -> the number of members that it listed as alive.
    """

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self.rule = rule_of(run.deployment.traits)
        self.faults = RunTimeline(run).fault_intervals
        self.certain = certain_times(run.history, self.faults)
        self.sends = [c for c in run.history.clients.calls if c.invoke.f == "send"]
        self.by_id = {c.invoke.value: c for c in self.sends}
        self.looks = [c for c in run.history.clients.calls if c.invoke.f == "held" and c.outcome == OK]
        self.settings: dict[str, Answers] = {}
        self.counted: dict[str, Answers] = {}
        self.members: dict[str, dict[str, Answers]] = {}
        self.sets = [o for o in run.observations if isinstance(o.extra.get("in_sync"), list)]
        self._set_times = [o.time for o in self.sets]
        self._collect(run.history)

    def _collect(self, history: History) -> None:
        for call in sorted(history.clients.calls, key=lambda c: c.end or FOREVER):
            if call.outcome != OK or call.completion is None or call.end is None:
                continue
            extra, value = call.invoke.extra, call.completion.value
            match call.invoke.f:
                case "settings":
                    told = self.settings.setdefault(str(extra["node"]), Answers())
                    value = Setting.of(value)
                case "in-sync":
                    told = self.counted.setdefault(str(extra["node"]), Answers())
                case "members":
                    servers = self.members.setdefault(str(call.invoke.key), {})
                    told = servers.setdefault(str(extra["name_server"]), Answers())
                    value = len(value)
                case _:
                    continue
            told.starts.append(call.start)
            told.ends.append(call.end)
            told.values.append(value)

    def nodes(self, call: Call) -> Sequence[str]:
        """The replicas of the group that a message belongs to."""
        return self.run.deployment.groups.get(group_of(str(call.invoke.key)) or "", ())

    def needs(self, node: str, replicas: int, alive: int, start: int, end: int) -> tuple[int, Setting]:
        """The smallest number of replicas that a master's settings require between two times, and those settings."""
        told = self.settings.get(node)
        some = told.around(start, end) if told is not None else []
        return min(((s.needs(self.rule, replicas, alive), s) for s in some or [Setting()]), key=lambda item: item[0])

    def in_sync(self, node: str, group: str, start: int, end: int) -> int:
        """The smallest number of replicas in sync in any report around a time; 1 if no report exists."""
        counted = self.counted.get(node)
        own = [v["in_sync"] for v in counted.around(start, end) if v["master"]] if counted is not None else []
        listed = [n for told in self.members.get(group, {}).values() for n in told.around(start, end)]
        return min([*own, *listed]) if own and listed else 1

    def in_set(self, start: int, end: int) -> set[str]:
        """The replicas in every SyncStateSet that a controller reported around a time."""
        first = max(0, bisect_right(self._set_times, start - AROUND_NS) - 1)
        last = bisect_left(self._set_times, end + AROUND_NS)
        some = self.sets[first : last + 1]
        if not some or some[-1].time < end or self._jumps(some):
            return set()
        return set.intersection(*({str(n) for n in o.extra["in_sync"]} for o in some))

    @staticmethod
    def _jumps(some: Sequence[Observation]) -> bool:
        """True if the epochs have a gap: some SyncStateSet between these was never reported."""
        epochs = sorted({(o.extra.get("master_epoch") or 0, o.extra.get("in_sync_epoch") or 0) for o in some})
        return any(b[1] - a[1] > 1 for a, b in pairwise(epochs))

    def held(self, look: Call) -> Mapping[str, bool | None]:
        """The result of a look: node -> it has the message; None: unknown, as for a disk that a fault had changed."""
        assert look.completion is not None
        struck = {e.node for i in self.faults if i.start_ns <= (look.end or 0) for e in i.effects if e.kind in LASTING}
        held: Mapping[str, bool | None] = look.completion.value["held"]
        return {node: None if node in struck else has for node, has in held.items()}


def node_of(call: Call) -> str:
    """The node that answered a send; "": none did."""
    return str(call.completion.extra.get("node", "")) if call.completion is not None else ""


def timed_out(call: Call) -> bool:
    return call.outcome == INFO and call.completion is not None and call.completion.extra.get("code") == _TIMED_OUT


def refused(call: Call) -> bool:
    """True if the broker refused a send because too few replicas were in sync."""
    done = call.completion
    return done is not None and done.extra.get("code") == _REFUSED and _NOT_ENOUGH in (done.error or "")


def kind_of(call: Call) -> str:
    """The outcome of a send, in words."""
    if timed_out(call):
        return "timed out for replicas"
    return "refused for replicas" if refused(call) else str(call.outcome)
