# SPDX-License-Identifier: Apache-2.0
"""The committed offsets of a group that a broker must remember, from the periods of masters and the faults.

Per group and queue, a committed offset is a register: a query returns the last commit, or one that is concurrent or of
unknown outcome. RocketMQ weakens this in two ways.

* Slaves copy the offsets only periodically (every 10 s in DLedger mode, every 12 s with controllers, every 60 s
  otherwise; `BrokerController`, `ReplicasManager`, `SlaveSynchronize`). The copy of a new master may be as old as that.
* A broker writes its offsets to disk 10 s after its start, and then every `flushConsumerOffsetInterval` (5 s;
  `BrokerController.initializeBrokerScheduledTasks`). A broker that was killed and restarted has the content of the
  file: all that it had acknowledged up to the last write of its last life, and all that was in the file before. A life
  that ends before its first write adds nothing and removes nothing: doubts do not add up over restarts.

A broker notices a failed disk only at its next write: commits that it acknowledged until then may be gone after a
restart. It must remember those that it acknowledged later.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from checkers.base.timeline import RunTimeline
from results.fault_intervals import FaultInterval
from results.figures import SECOND
from results.strikes import EffectKind

FIRST_WRITE_S: Final = 10.0
"""A broker writes its offsets for the first time so long after it has begun to start."""

MARGIN_S: Final = 5.0
"""Room for the start of a JVM before its timers run, and for one write to a slow disk."""

_ENDS: Final[Collection[EffectKind]] = ("down", "unsynced-lost")
_UNWRITTEN: Final[Collection[EffectKind]] = ("disk-dead", "disk-full")
_HARMLESS: Final[frozenset[EffectKind]] = frozenset({"slow"})
"""Effects that remove nothing from a broker's memory."""

_NEVER: Final = -(2**62)

Reign = tuple[int, int, str | None]
"""(from, to, node): commits that this node (None: any master) acknowledged in this time (ns) are remembered."""


class _Change(NamedTuple):
    """At `time` (ns), `node` becomes master, or is struck by a fault while it is (`fault`)."""

    time: int
    node: str | None
    fault: FaultInterval | None = None


class OffsetMemory:
    """The commits that the masters of a broker group must remember.

    slack      the largest age (ns) of a new master's copy; a broker's own file is no older.
    written_s  seconds between two writes of a broker's file.
    whole_lives  count a life that may have ended before its first write as one that had written in time.
    """

    def __init__(
        self, scene: RunTimeline, slack: int, brokers: str | None, written_s: float = 5.0, *, whole_lives: bool = False
    ) -> None:
        self.scene, self.slack, self.periods = scene, slack, scene.masters_of(brokers)
        self.written = min(slack, int((written_s + (0 if whole_lives else MARGIN_S)) * SECOND))
        self.first_write = 0 if whole_lives else min(slack, int((FIRST_WRITE_S + MARGIN_S) * SECOND))
        self.noticed = int((written_s + 1.0) * SECOND)
        first: str | None = self.periods[0].node if self.periods else None
        self.changes: list[_Change] = [_Change(_NEVER, first), *(_Change(r.since, r.node) for r in self.periods[1:])]
        # A fault on the master counts as a change of its own: it may have lost data that it had not written.
        self.changes += [
            _Change(interval.start_ns, node, interval)
            for interval in scene.fault_intervals
            for node in {*interval.impairs, *interval.nodes}
            if self._master(interval.start_ns) == node
        ]
        self.changes.sort(key=lambda change: change.time)
        self._inherited: dict[tuple[int, str], list[Reign]] = {}

    def since(self, node: str, invoked: int, answered: int, others: int = 0) -> int | None:
        """The time (ns) since which a broker that answers a request has been master without a break; None: it is none.

        others  the time of the last commit, before the request, that another broker acknowledged: in a run without
                observations of masters, this one can be master only since then.
        """
        if self.periods:
            near = (r for r in reversed(self.periods) if r.node == node and r.since - 2 * SECOND <= invoked)
            reign = next((r for r in near if r.until + 2 * SECOND >= invoked), None)
            if reign is None:
                return None
            begun = 0 if reign == self.periods[0] else reign.since
        else:
            begun = others
        hit = [b for b in self.scene.fault_intervals if node in b.impairs or node in b.nodes]
        broken = [b.start_ns for b in hit if b.start_ns <= answered]
        # A server loses its memory when it is killed, also at the end of a strike at its disk: commits that it
        # acknowledged until then were in that memory.
        killed = [b for b in hit if any(e.kind in _ENDS and e.node == node for e in b.effects)]
        lost = [min(b.end_ns or answered, answered) for b in killed if b.start_ns <= answered]
        return max([begun, *broken, *lost])

    def inherited(self, since: int, heir: str) -> list[Reign]:
        """The earlier acknowledgements that `heir`, master since a time (ns), must know."""
        found = self._inherited.get((since, heir))
        if found is None:
            found = self._inherited[since, heir] = self._known(since, heir)
        return found

    def limit_s(self, since: int, node: str) -> float:
        """The largest age, in seconds, of a commit that a new master (since a time) may lack: the limit of its own file
        if it was restarted, else that of a copy.
        """
        fault = self._struck(since, node)
        return (self.slack if fault is None or not _ends(fault, node) else self.written) / SECOND

    def _known(self, since: int, heir: str) -> list[Reign]:
        """Goes back from change to change. `cap`: the time (ns) as of which the followed copy was certainly made."""
        found: list[Reign] = []
        begun, by, fault, cap = since, heir, self._struck(since, heir), 2**62
        for time, node, struck in reversed(self.changes):
            if time >= begun:
                continue
            if node in (None, by):
                until = min(cap, self._on_disk(by, time, begun, fault))
                times = self._writable(time, until, by) if time <= until else []
            else:
                cap = min(cap, self._copied(by, begun))
                times = [(time, cap)] if time <= cap else []
            found += [(begin, end, node) for begin, end in times]
            begun, by, fault = time, node or by, struck
        return found

    def _struck(self, since: int, node: str) -> FaultInterval | None:
        """The fault whose beginning or end is `since`, at a node."""
        hit = (b for b in self.scene.fault_intervals if node in b.impairs or node in b.nodes)
        return next((b for b in hit if since in (b.start_ns, b.end_ns)), None)

    def _on_disk(self, node: str, begin: int, end: int, fault: FaultInterval | None) -> int:
        """The time (ns) up to which a broker's file has its acknowledgements of its life from `begin` to `end`; before
        `begin` if it has none of them.
        """
        kinds = set() if fault is None else {e.kind for e in fault.effects if e.node == node}
        if kinds and kinds <= _HARMLESS:
            return end
        if fault is not None and not kinds & {*_UNWRITTEN}:
            end = min(end, fault.start_ns)  # a strike at a disk ends the server with its heal
        if "unsynced-lost" in kinds and not kinds & {*_UNWRITTEN}:
            return end - max(self.slack, self.written)  # the file is not synced
        life = self._life(node, end, fault)
        if life is not None and end - life < self.first_write:
            return min(begin, life) - 1
        return end - self.written

    def _life(self, node: str, end: int, fault: FaultInterval | None) -> int | None:
        """The last heal (ns), up to `end`, of another fault that ended the node's servers; None: no such fault."""
        healed = (
            b.end_ns
            for b in self.scene.fault_intervals
            if b is not fault and b.end_ns is not None and b.end_ns <= end and _ends(b, node)
        )
        return max(healed, default=None)

    def _writable(self, begin: int, end: int, node: str) -> list[tuple[int, int]]:
        """The parts of a time of acknowledgements, without the seconds in which the broker could not write them and had
        not noticed that.
        """
        failed = sorted(
            (interval.start_ns, interval.start_ns + self.noticed)
            for interval in self.scene.fault_intervals
            if any(e.kind in _UNWRITTEN and e.node == node for e in interval.effects)
        )
        found: list[tuple[int, int]] = []
        for start, known in failed:
            if begin <= start <= end:
                found.append((begin, start - 1))
            if start <= end:
                begin = max(begin, known)
        return [*found, (begin, end)] if begin <= end else found

    def _copied(self, heir: str, time: int) -> int:
        """The time (ns) of the table that a node, which took over from another one at `time`, has certainly copied."""
        return self._unless_away(heir, time, self.slack)

    def _unless_away(self, node: str, time: int, slack: int) -> int:
        """`slack` before a time, or before the node's absence in that time: it may have made no copy since it left."""
        while (away := self.scene.last_absence(node, time)) is not None and away[1] > time - slack:
            time = away[0]
        return time - slack

    def _master(self, time: int) -> str | None:
        return next((c.node for c in reversed(self.changes) if c.fault is None and c.time <= time), None)


def _ends(fault: FaultInterval, node: str) -> bool:
    """True if a fault may have ended the servers of a node. A foreign history may only report that it was down."""
    kinds = {e.kind for e in fault.effects if e.node == node}
    return bool(kinds & {*_ENDS}) if kinds else node in fault.impairs.get(node, ())
