# SPDX-License-Identifier: Apache-2.0
"""Elections that the controllers propose for a group whose master is alive (RocketMQ's controller mode).

The controllers' leader scans for groups that need another master, and proposes an election for each. Its log names such
a proposal (`received broker inactive event, ... brokerId: null`). The state machine refuses it if the master is alive
(`The old master 1 is still alive, not need to elect new master`). A master that returns just then accounts for one such
proposal or two. A leader that continues to propose is wrong, and each proposal is an entry of the controllers' log.

Sources: `ControllerManager.onBrokerInactive`, `ReplicasInfoManager.electMaster`. Proposals of brokers do not count. A
controller that starts applies its log again, but does not propose again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from checkers.base.evidence import stamped_lines
from checkers.base.legality import conclude
from results.figures import SECOND
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_PROPOSED: Final = re.compile(r"received broker inactive event, clusterName: \S+, brokerName: (\S+), brokerId: null")
_REFUSED: Final = re.compile(r"The old master (\d+) is still alive, not need to elect new master for broker (\S+)")
_BETWEEN: Final = 3 * SECOND
"""The longest time from a proposal to its answer (`triggerElectMaster` waits so long)."""

_MANY: Final = 5
_WITHIN: Final = 30 * SECOND
"""More refused proposals for a group than `_MANY` within this time are too many."""


@dataclass(frozen=True)
class _Refused:
    """A proposal for a group, at a time (ns), that was refused because the broker with the id `master` is alive."""

    node: str
    group: str
    time: int
    master: str


class Elections:
    """`needless-election` for each group with more than 5 refused proposals within 30 s."""

    name = "elections"
    order = 60

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """True if the log of a controller was collected."""
        return any(True for _ in _logs(run))

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `needless`: group -> proposals that were refused because its master was alive."""
        refused: dict[str, list[_Refused]] = {}
        for one in sorted(_refusals(run), key=lambda found: found.time):
            refused.setdefault(one.group, []).append(one)
        found = [told for group in sorted(refused) if (told := _tell(group, refused[group])) is not None]
        stats = {"needless": {group: len(ones) for group, ones in sorted(refused.items())}}
        count = sum(stats["needless"].values())
        reason = f"{count} proposals of a needless election" if count else "no controller proposed a needless election"
        return conclude(self.name, run, found, stats, reason)


def _refusals(run: RunRecord) -> Iterator[_Refused]:
    for node, path in _logs(run):
        yield from _of_log(run, node, path)


def _logs(run: RunRecord) -> Iterator[tuple[str, Path]]:
    """Node and log of each controller. A controller inside a name server writes into its log."""
    nodes = {server.node for server in run.deployment.having("controller")}
    for node in sorted(nodes & set(run.logs)):
        yield from ((node, path) for path in run.logs[node] if path.name in ("controller.log", "namesrv.log"))


def _of_log(run: RunRecord, node: str, path: Path) -> Iterator[_Refused]:
    """The refused proposals of one controller. It tries a refused one again at once: these count as one."""
    proposed: dict[str, int] = {}
    for at, line in stamped_lines(path, run.environment):
        if at is None:
            continue
        if proposal := _PROPOSED.search(line):
            proposed[proposal[1]] = at
        elif refusal := _REFUSED.search(line):
            since = proposed.pop(refusal[2], None)
            if since is not None and at - since <= _BETWEEN:
                yield _Refused(node, refusal[2], at, refusal[1])


def _tell(group: str, refused: Sequence[_Refused]) -> Anomaly | None:
    """The anomaly of a group, over all its stretches; None if no stretch has too many."""
    dense = [
        (refused[at], refused[at + _MANY])
        for at in range(len(refused) - _MANY)
        if refused[at + _MANY].time - refused[at].time <= _WITHIN
    ]
    if not dense:
        return None
    first, last = dense[0][0], dense[-1][1]
    meant = [one for one in refused if first.time <= one.time <= last.time]
    masters = " and ".join(sorted({one.master for one in meant}))
    seconds = (last.time - first.time) / SECOND
    return Anomaly(
        "needless-election",
        f"the controllers proposed {len(meant)} elections for the group {group} in {seconds:.0f} s, and refused each, "
        f"because its master (broker {masters}) was alive",
        window=(first.time, last.time),
        details={"group": group, "proposals": len(meant), "nodes": {one.node: {"proposed": True} for one in meant}},
    )
