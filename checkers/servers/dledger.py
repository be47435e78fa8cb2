# SPDX-License-Identifier: Apache-2.0
"""DLedger's simple invariants, from the statuses of the nodes and from their logs.

Sources: the Raft paper (Ongaro and Ousterhout 2014, figure 3: election safety, leader completeness), and lines that
DLedger 0.4.0 logs: every 3 s `[n1][LEADER] term=.. ledgerBeforeBegin=.. ledgerEnd=.. committed=..`
(DLedgerEntryPusher.QuorumAckChecker), and `[TRUNCATE] truncateIndex: ..` (DLedgerMmapFileStore.truncate).

The endless installation of a snapshot is detected in the leader's own log. A leader's dispatcher for a peer goes
COMPARE -> INSTALL_SNAPSHOT -> APPEND if the peer lacks compacted entries. In 0.4.0 the peer may never answer the
installation (it handles one per process). The dispatcher then repeats COMPARE -> INSTALL_SNAPSHOT -> COMPARE, each with
a time-out, as long as it leads. Meanwhile it appends nothing to this peer
(DLedgerEntryPusher.EntryDispatcher.changeState logs each step).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from checkers.base.evidence import stamped_lines
from checkers.base.legality import conclude
from checkers.servers.terms import two_leaders
from results.fault_intervals import FaultInterval, fault_intervals
from results.figures import SECOND
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

POSITIONS = re.compile(
    r"\[(?P<node>\w+)\]\[(?P<role>LEADER|FOLLOWER|CANDIDATE|UNKNOWN)\] term=(?P<term>-?\d+) "
    r"ledgerBeforeBegin=(?P<begin>-?\d+) ledgerEnd=(?P<end>-?\d+) committed=(?P<committed>-?\d+)"
)
TRUNCATE = re.compile(r"\[TRUNCATE\] truncateIndex: (?P<index>-?\d+), after truncate, ledgerEndIndex: (?P<end>-?\d+)")
ELECTED = re.compile(r"\[VOTE_RESULT\] has been elected to be the leader in term (?P<term>\d+)")
SAVED = re.compile(r"SnapshotManager - Snapshot SnapshotMeta\{.*\} saved successfully")
INSTALLED = "]install snapshot success, lastIncludedIndex"
STARTED = re.compile(r"\[MemberState\] load persistent state ok|Load last term failed")

_SLACK = 64
"""The line of positions is not written atomically: committed may be read later than ledgerEnd."""

_SHOWN = 20

_STEP = re.compile(r"\[Push-(?P<peer>\w+)\]Change state from (?P<old>\w+) to (?P<new>\w+)")
_ROUNDS = 5
"""The number of installations in a row, none followed by an append, that make a loop. One that times out takes 3 s."""
_LOOP_S: Final = 12.0
"""The shortest time of a loop. While a follower is busy with one installation it refuses others at once, hundreds in a
second (DLedger 0.4.0 with finding 1 mended).
"""


class DledgerInvariants:
    """One leader per term; `committed` never falls in a process's life, and never passes the log's end; no follower
    drops an entry that it knew to be committed; no leader installs snapshots on a peer without end.
    """

    name = "dledger-invariants"

    def __init__(self, nodes: Sequence[str], snapshots: bool = False) -> None:
        """`snapshots`: the run is in snapshot mode, and proves nothing unless one was saved and one installed."""
        self.nodes = tuple(nodes)
        self.snapshots = snapshots

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `elections` seen; `truncations`, `saved` and `installed` snapshots, `positions` lines read."""
        leaders: dict[int, dict[str, int]] = {}
        for seen in run.observations:
            if seen.role == "leader" and seen.term is not None:
                leaders.setdefault(seen.term, {}).setdefault(seen.node, seen.time)
        found = fault_intervals(run.history)
        anomalies: list[Anomaly] = []
        stats = {"elections": 0, "truncations": 0, "positions": 0, "saved": 0, "installed": 0}
        for node in self.nodes:
            for path in run.logs.get(node, ()):
                if path.name == "server.log":
                    life = _Life(node)
                    anomalies += life.read(path, run)
                    anomalies += _install_loops(run, node, path, found)
                    for term, at in life.elected.items():
                        leaders.setdefault(term, {}).setdefault(node, at)
                    for name, count in life.counts.items():
                        stats[name] += count
        anomalies = [*two_leaders(run, leaders), *anomalies]
        stats["elections"] = len(leaders)
        invalid = f"{len(anomalies)} breaches, the first: {anomalies[0].summary}" if anomalies else None
        reason, unknown = f"{len(leaders)} terms, one leader each", None
        if self.snapshots:
            reason += f"; {stats['saved']} snapshots saved, {stats['installed']} installed on a follower"
            if not (stats["saved"] and stats["installed"]):
                unknown = f"{reason}: too little of snapshot mode"
        if not run.observations and not stats["positions"]:
            unknown = "neither observations nor logs of the nodes"
        return conclude(self.name, run, anomalies[:_SHOWN], stats, reason, unknown, invalid=invalid)


@dataclass
class _Position:
    at: int
    committed: int
    line: str


class _Life:
    """One node's log, read from start to end; a new process life forgets the positions of the one before."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.elected: dict[int, int] = {}
        self.counts = {"truncations": 0, "positions": 0, "saved": 0, "installed": 0}
        self._last: _Position | None = None

    def read(self, path: Path, run: RunRecord) -> Iterator[Anomaly]:
        for stamp, line in stamped_lines(path, run.environment):
            at = stamp or 0
            if STARTED.search(line):
                self._last = None
            elif found := ELECTED.search(line):
                self.elected.setdefault(int(found["term"]), at)
            elif found := POSITIONS.search(line):
                self.counts["positions"] += 1
                yield from self._position(at, line, committed=int(found["committed"]), end=int(found["end"]))
            elif found := TRUNCATE.search(line):
                self.counts["truncations"] += 1
                yield from self._truncated(at, line, index=int(found["index"]))
            elif SAVED.search(line):
                self.counts["saved"] += 1
            elif INSTALLED in line:
                self.counts["installed"] += 1

    def _position(self, at: int, line: str, *, committed: int, end: int) -> Iterator[Anomaly]:
        before = self._last
        if before is not None and committed < before.committed:
            yield self._tell(
                "committed-fell",
                f"{self.node}'s committed index fell from {before.committed} to {committed}; it must never decrease",
                before,
                at,
                line,
            )
        if committed > end + _SLACK:
            yield self._tell(
                "committed-beyond-log",
                f"{self.node} reports committed index {committed}, but its log ends at {end}",
                before,
                at,
                line,
            )
        self._last = _Position(at, committed, line)

    def _truncated(self, at: int, line: str, *, index: int) -> Iterator[Anomaly]:
        before = self._last
        if before is not None and 0 <= index <= before.committed:
            yield self._tell(
                "truncated-committed-entries",
                f"{self.node} truncated its log from index {index} on, although it had reported all entries up to "
                f"{before.committed} as committed: for some time these entries were on one replica fewer",
                before,
                at,
                line,
            )

    def _tell(self, name: str, summary: str, before: _Position | None, at: int, line: str) -> Anomaly:
        window = (max(0, before.at if before else at), max(0, at))
        lines = [text for text in (before.line if before else None, line) if text is not None]
        return Anomaly(name, summary, window=window, details={"node": self.node, "log": lines})


@dataclass
class _Rounds:
    count: int = 0
    first: int = 0
    last: int = 0
    lines: list[str] = field(default_factory=list)


def _install_loops(run: RunRecord, node: str, path: Path, found: Sequence[FaultInterval]) -> Iterator[Anomaly]:
    """One anomaly per stretch in which `node` continued installing a snapshot on peers without ever appending to them.

    Rounds while the peer or the node was under a fault do not count.
    """
    open_rounds: dict[str, _Rounds] = {}
    loops: dict[str, _Rounds] = {}
    for at, line in stamped_lines(path, run.environment):
        step = _STEP.search(line)
        if step is None or at is None:
            continue
        peer = step["peer"]
        if step["new"] == "INSTALL_SNAPSHOT" and not _impaired(found, at, node, peer):
            rounds = open_rounds.setdefault(peer, _Rounds(first=at))
            rounds.count, rounds.last = rounds.count + 1, at
            if len(rounds.lines) < 3:
                rounds.lines.append(line[:300])
            if rounds.count >= _ROUNDS and rounds.last - rounds.first >= _LOOP_S * SECOND:
                loops[peer] = rounds
        elif step["new"] == "APPEND":
            open_rounds.pop(peer, None)
            if peer in loops:
                yield _tell_loop(node, {peer: loops.pop(peer)})
    if loops:
        yield _tell_loop(node, loops)


def _impaired(found: Sequence[FaultInterval], at: int, node: str, peer: str) -> bool:
    return any(s.covers(at, at) and (node in s.impairs or peer in s.impairs) for s in found)


def _tell_loop(node: str, loops: Mapping[str, _Rounds]) -> Anomaly:
    first, last = min(r.first for r in loops.values()), max(r.last for r in loops.values())
    reason = ", ".join(f"{peer} {r.count} times" for peer, r in sorted(loops.items()))
    return Anomaly(
        "snapshot-install-loop",
        f"{node} was leader and repeatedly tried to install a snapshot ({reason} in {(last - first) / 1e9:.0f} s) on "
        "peers that were up and connected, without ever appending to them: COMPARE -> INSTALL_SNAPSHOT -> COMPARE",
        window=(max(0, first), max(0, last)),
        limit_s=_LOOP_S,
        details={"node": node, "log": [line for r in loops.values() for line in r.lines]},
    )
