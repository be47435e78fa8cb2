"""What controllers log of elections and snapshots.

Sources: `JRaftControllerStateMachine` (`Start Leader, term=`, `Save snapshot, path=`, `Load snapshot from`, `Fail to
...`), JRaft's `SnapshotExecutorImpl` and `Replicator`, DLedger's `DLedgerLeaderElector` (`[VOTE_RESULT] has been elected`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.evidence import stamped_lines
from results.record import RunRecord

_JRAFT_LEADS: Final = re.compile(r"Start Leader, term=(?P<term>\d+)")
_DLEDGER_LEADS: Final = re.compile(r"\[VOTE_RESULT\] has been elected to be the leader in term (?P<term>\d+)")
_SAVED: Final = "Save snapshot, path="
_LOADED: Final = "Load snapshot from "
_INSTALLED: Final = re.compile(r"InstallSnapshotRequest from|Received InstallSnapshot|receive InstallSnapshot", re.I)
_FAILED: Final = re.compile(
    r"Fail to (?:find data file|load snapshot|save snapshot|serialize)|serialize replicaInfoTable or .* error"
    r"|Fail to init snapshot|Fail to copy snapshot|StateMachine onSnapshotLoad failed|Fail to load snapshot"
)
_CONTROLLER: Final = re.compile(r"controller|namesrv|server|jraft", re.I)


@dataclass
class ControllerLogs:
    """leaders: term -> node -> when (ns). failed: node -> lines, with their times."""

    leaders: dict[int, dict[str, int]] = field(default_factory=dict)
    saved: dict[str, int] = field(default_factory=dict)
    loaded: dict[str, int] = field(default_factory=dict)
    installed: dict[str, int] = field(default_factory=dict)
    failed: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def stats(self) -> Mapping[str, Any]:
        return {
            "elections": len(self.leaders),
            "snapshots_saved": sum(self.saved.values()),
            "snapshots_loaded": sum(self.loaded.values()),
            "snapshots_installed": sum(self.installed.values()),
        }

    def two_leaders(self) -> Iterator[tuple[int, Mapping[str, int]]]:
        for term, who in sorted(self.leaders.items()):
            if len(who) > 1:
                yield term, who


def read_controller_logs(run: RunRecord) -> ControllerLogs:
    """The logs of all nodes that have a controller."""
    found = ControllerLogs()
    nodes = {server.node for server in run.deployment.having("controller")}
    for node, paths in run.logs.items():
        for path in paths if node in nodes else ():
            if path.suffix != ".log" or path.name.startswith("gc-") or not _CONTROLLER.search(path.name):
                continue
            for stamp, line in stamped_lines(path, run.environment):
                _take(found, node, stamp or 0, line)
    return found


def _take(found: ControllerLogs, node: str, at: int, line: str) -> None:
    if leads := _JRAFT_LEADS.search(line) or _DLEDGER_LEADS.search(line):
        found.leaders.setdefault(int(leads["term"]), {}).setdefault(node, at)
    elif _SAVED in line:
        found.saved[node] = found.saved.get(node, 0) + 1
    elif _LOADED in line and "Fail" not in line:
        found.loaded[node] = found.loaded.get(node, 0) + 1
    elif _FAILED.search(line):
        found.failed.setdefault(node, []).append((at, line))
    elif _INSTALLED.search(line):
        found.installed[node] = found.installed.get(node, 0) + 1
