# SPDX-License-Identifier: Apache-2.0
"""Judges that the small files a server must not lose survive the failures of power.

A server keeps its term and its vote, its identity and its epochs in small files. Its promises depend on them: to vote
once in a term (Raft, figure 2: persistent state is updated on stable storage before a server responds), and to keep its
identity. The fault compares these files before the cut and after it (`nemesis.power`); the deployment names them
(`Traits.durable`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from checkers.base.legality import conclude
from results.fault_intervals import FaultInterval, fault_intervals
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult

_SHOWN: int = 80


class DurableFiles:
    """`metadata-lost` for each file that a failure of power removed, emptied, or set back."""

    name = "durable-files"
    order = 10

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """True if any strike compared files."""
        return any(_cuts(strike) for strike in fault_intervals(run.history))

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: `cuts` (nodes that lost their power, counted each time) and `changed` (files)."""
        strikes = fault_intervals(run.history)
        cuts = sum(_cuts(strike) for strike in strikes)
        found = [anomaly for strike in strikes for anomaly in _lost(strike)]
        files = ", ".join(run.deployment.traits.durable) or "no such file is known"
        return conclude(
            self.name,
            run,
            found,
            {"cuts": cuts, "changed": len(found)},
            f"{cuts} failure{'' if cuts == 1 else 's'} of power, over all nodes ({files})",
        )


def _cuts(strike: FaultInterval) -> int:
    """The number of nodes whose files a strike has compared."""
    compared = any(isinstance(detail, Mapping) and "changed" in detail for detail in strike.nodes.values())
    return sum(effect.kind == "unsynced-lost" for effect in strike.effects) if compared else 0


def _lost(strike: FaultInterval) -> Iterator[Anomaly]:
    for detail in strike.nodes.values():
        changed = detail.get("changed") if isinstance(detail, Mapping) else None
        for node, files in (changed or {}).items():
            for file in files:
                yield _tell(strike, node, file)


def _tell(strike: FaultInterval, node: str, file: Mapping[str, Any]) -> Anomaly:
    before, after = str(file["before"]), file["after"]
    if after is None:
        now = "is not there any more"
    elif not after:
        now = "is empty"
    elif not after.strip("\0"):
        now = "holds only NULs"
    else:
        now = f"holds {_short(after)} again"
    end = strike.end_ns if strike.end_ns is not None else strike.start_ns
    return Anomaly(
        "metadata-lost",
        f"{node}: after the failure of power #{strike.id} {file['file']} {now}; before: {_short(before)}",
        window=(strike.start_ns, end),
        details={"nodes": {node: dict(file)}},
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f"{line[:_SHOWN]}..." if len(line) > _SHOWN else line or "nothing"
