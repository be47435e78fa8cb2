"""The anomalies that a configuration permits: they are shown with their count and do not make a run `invalid`.

The topology states them (`infra.systems.api.Topology.permits`: name of an anomaly -> reason), and the run stores them
in its environment under `permits`. What is permitted only after a fault of some kind (servers that do not sync may lose
messages in a power failure) is under `permits_after`: effect -> anomaly -> reason. Checkers read them there, so a
stored run is checked by the rules of its own time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from results.fault_intervals import fault_intervals
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict


@dataclass(frozen=True)
class Permit:
    """why      the configuration permits an anomaly.
    nodes    who was struck by the fault without which it does not; None: it always permits it.
    """

    why: str
    nodes: frozenset[str] | None = None

    def covers(self, anomaly: Anomaly) -> bool:
        """Whether it holds for an anomaly: one of a node (`details["node"]`), or of some (`nodes`), only if one of
        them was struck.
        """
        named = anomaly.details.get("node"), anomaly.details.get("nodes")
        nodes = [named[0]] if isinstance(named[0], str) else named[1]
        return self.nodes is None or not isinstance(nodes, list | tuple | dict) or not self.nodes.isdisjoint(nodes)


def permits(run: RunRecord) -> Mapping[str, str]:
    """Name of an anomaly -> why the run's configuration permits it, after the faults that struck."""
    return {name: permit.why for name, permit in _permits(run).items()}


def _permits(run: RunRecord) -> Mapping[str, Permit]:
    found: dict[str, Permit] = {}
    for kind, named in _noted(run, "permits_after").items():
        struck = {e.node for strike in fault_intervals(run.history) for e in strike.effects if e.kind == kind}
        for name, why in named.items() if struck else ():
            found[str(name)] = Permit(str(why), frozenset(struck))
    return found | {str(name): Permit(str(why)) for name, why in _noted(run, "permits").items()}


def _noted(run: RunRecord, name: str) -> Mapping[str, Any]:
    noted: Any = run.environment.get(name) or {}
    found: Mapping[str, Any] = json.loads(noted) if isinstance(noted, str) else noted
    return found


def count(anomaly: Anomaly) -> int:
    """How many cases an anomaly stands for: `details["count"]`, or one."""
    number = anomaly.details.get("count", 1)
    return number if isinstance(number, int) else 1


def counted(anomalies: Sequence[Anomaly]) -> str:
    """`289 lost, 2 dirty-read`, in order of first mention."""
    total: Counter[str] = Counter()
    for anomaly in anomalies:
        total[anomaly.name] += count(anomaly)
    return ", ".join(f"{n:,} {name}" for name, n in total.items())


def settled(
    checker: str,
    run: RunRecord,
    found: Sequence[Anomaly],
    stats: Mapping[str, Any],
    valid: str,
    unknown: str | None = None,
) -> CheckResult:
    """The result of a check that found these anomalies: invalid if one of them is not permitted.

    valid    the reason where nothing stands against it; `unknown`: why the run does not show it, or None.
    """
    marked = _marked(found, _permits(run))
    wrong = [a for a in marked if a.legal is None]
    legal = _describe(marked)
    if wrong:
        return CheckResult(
            checker, Verdict.INVALID, f"{counted(wrong)}; {valid}{legal}", [*wrong, *legal_ones(marked)], stats
        )
    if unknown is not None:
        return CheckResult(checker, Verdict.UNKNOWN, f"{unknown}{legal}", marked, stats)
    return CheckResult(checker, Verdict.VALID, f"{valid}{legal}", marked, stats)


def applied(result: CheckResult, run: RunRecord) -> CheckResult:
    """The result of any checker in the light of what is permitted: `invalid` for legal reasons alone is valid."""
    marked = _marked(result.anomalies, _permits(run))
    if marked == list(result.anomalies):
        return result
    if result.verdict != Verdict.INVALID or any(a.legal is None for a in marked):
        return replace(result, anomalies=marked)
    return replace(result, verdict=Verdict.VALID, anomalies=marked, reason=f"{result.reason}{_describe(marked)}")


def legal_ones(anomalies: Sequence[Anomaly]) -> list[Anomaly]:
    """Those that are permitted."""
    return [a for a in anomalies if a.legal is not None]


def _marked(found: Sequence[Anomaly], allowed: Mapping[str, Permit]) -> list[Anomaly]:
    return [
        replace(a, legal=allowed[a.name].why)
        if a.legal is None and a.name in allowed and allowed[a.name].covers(a)
        else a
        for a in found
    ]


def _describe(marked: Sequence[Anomaly]) -> str:
    legal = legal_ones(marked)
    if not legal:
        return ""
    whys = "; ".join(dict.fromkeys(str(a.legal) for a in legal))
    return f"; legal here: {counted(legal)} ({whys})"
