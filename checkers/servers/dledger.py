"""DLedger's simple invariants, from the statuses of the nodes and from their logs.

Sources: the Raft paper (Ongaro and Ousterhout 2014, figure 3: election safety, leader completeness), and lines that
DLedger 0.4.0 logs: every 3 s `[n1][LEADER] term=.. ledgerBeforeBegin=.. ledgerEnd=.. committed=..`
(DLedgerEntryPusher.QuorumAckChecker), and `[TRUNCATE] truncateIndex: ..` (DLedgerMmapFileStore.truncate).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkers.base.evidence import stamped_lines
from checkers.base.legality import conclude
from checkers.servers.dledger_push import install_loops
from checkers.servers.terms import two_leaders
from results.fault_intervals import fault_intervals
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
                    anomalies += install_loops(run, node, path, found)
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
