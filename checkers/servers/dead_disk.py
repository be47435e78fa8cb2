# SPDX-License-Identifier: Apache-2.0
"""Judges that servers acknowledge no writes while no disk accepts them.

A server that fails to write may refuse, or end; one that continues to acknowledge promises data that no disk keeps. The
judge covers the strikes with the effect `disk-dead`: from some seconds after the injection, as a server may notice
late, to the beginning of the heal, which repairs one disk after the other. A group whose other disks work may
acknowledge: a Raft group needs a majority of them, any other group needs one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from checkers.base.impairment import certain_times
from checkers.base.legality import conclude
from results.fault_intervals import FaultInterval, fault_intervals
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

NOTICED_S: Final = 3.0
"""Asynchronous flushes of RocketMQ come every 0.5 s, DLedger's every 10 ms: an error is known soon after."""

_WRITES: Final = ("send", "write", "cas")


class DeadDisks:
    """`acknowledged-on-dead-disk`, one for each strike in which it happened."""

    name = "dead-disks"
    order = 20

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """True if a disk was dead at all."""
        return any(_dead(strike) for strike in fault_intervals(run.history))

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `strikes` at disks, and `acknowledged`: writes while too few disks worked."""
        strikes = [strike for strike in fault_intervals(run.history) if _dead(strike)]
        found = [a for times in certain_times(run.history, strikes) if (a := _judge(run, *times)) is not None]
        count = sum(int(anomaly.details["count"]) for anomaly in found)
        stats = {"strikes": len(strikes), "acknowledged": count}
        return conclude(self.name, run, found, stats, f"{len(strikes)} strikes at disks")


def _dead(strike: FaultInterval) -> list[str]:
    return [effect.node for effect in strike.effects if effect.kind == "disk-dead"]


def _judge(run: RunRecord, dead_ns: int, healing_ns: int, strike: FaultInterval) -> Anomaly | None:
    about = run.deployment
    groups: Sequence[Sequence[str]] = list(about.groups.values()) or [list(about.nodes)]
    silent = {node for group in groups for node in group if not _keeps(group, _dead(strike), about.traits.raft_log)}
    begin = dead_ns + int(NOTICED_S * 1e9)
    acknowledged = [
        op
        for op in run.history.clients
        if op.type == "ok"
        and op.f in _WRITES
        and begin <= op.time < healing_ns
        and (op.extra.get("node") in silent if "node" in op.extra else silent >= set(about.nodes))
    ]
    if not acknowledged:
        return None
    last = acknowledged[-1]
    after = (last.time - strike.start_ns) / 1e9
    return Anomaly(
        "acknowledged-on-dead-disk",
        f"{len(acknowledged):,} writes were acknowledged while no disk took them ({strike.label}), the last one "
        f"{after:.1f} s after the disk had failed",
        ops=[acknowledged[0].index, last.index],
        window=(strike.start_ns, last.time),
        details={"count": len(acknowledged)},
    )


def _keeps(group: Sequence[str], dead: Sequence[str], raft: bool) -> bool:
    working = len(set(group) - set(dead))
    return working > len(group) / 2 if raft else working > 0
