# SPDX-License-Identifier: Apache-2.0
"""Elections and snapshots in the logs of controllers.

Sources: `JRaftControllerStateMachine` (`Start Leader, term=`, `Save snapshot, path=`, `Load snapshot from`, `Fail to
...`), JRaft's `NodeImpl` (`received InstallSnapshotRequest from`); DLedger's `DLedgerLeaderElector` (`[VOTE_RESULT] has
been elected`), `SnapshotManager` and `StateMachineCaller`. A controller inside a name server writes into its log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.base.evidence import stamped_lines
from results.record import RunRecord

_JRAFT_LEADS: Final = re.compile(r"Start Leader, term=(?P<term>\d+)")
_DLEDGER_LEADS: Final = re.compile(r"\[VOTE_RESULT\] has been elected to be the leader in term (?P<term>\d+)")
_SAVED: Final = re.compile(r" Save snapshot, path=|Snapshot SnapshotMeta\{.*\} saved successfully")
_LOADED: Final = re.compile(r" - Load snapshot from \S+$|Snapshot SnapshotMeta\{.*\} loaded successfully")
_INSTALLED: Final = "received InstallSnapshotRequest from"
_FAILED: Final = re.compile(
    r"Fail to (?:find data file|load snapshot|save snapshot)|Unable to (?:load|save) (?:data|snapshot)"
    r"|Fail to recover state machine"
)


@dataclass
class ControllerLogs:
    """leaders: term -> node -> time (ns). failed: node -> lines, with their times."""

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


def read_controller_logs(run: RunRecord) -> ControllerLogs:
    """The logs of all nodes that have a controller."""
    found = ControllerLogs()
    nodes = {server.node for server in run.deployment.having("controller")}
    for node, paths in run.logs.items():
        for path in paths if node in nodes else ():
            if path.name not in ("controller.log", "namesrv.log"):
                continue
            for stamp, line in stamped_lines(path, run.environment):
                _take(found, node, stamp or 0, line)
    return found


def _take(found: ControllerLogs, node: str, at: int, line: str) -> None:
    if leads := _JRAFT_LEADS.search(line) or _DLEDGER_LEADS.search(line):
        found.leaders.setdefault(int(leads["term"]), {}).setdefault(node, at)
    elif _SAVED.search(line):
        found.saved[node] = found.saved.get(node, 0) + 1
    elif _LOADED.search(line):
        found.loaded[node] = found.loaded.get(node, 0) + 1
    elif _FAILED.search(line):
        found.failed.setdefault(node, []).append((at, line))
    elif _INSTALLED in line:
        found.installed[node] = found.installed.get(node, 0) + 1
