# SPDX-License-Identifier: Apache-2.0
"""Faults as time intervals, derived from the nemesis' ops: for shaded bands in plots and lists in reports.

The harness journals `inject` and `heal`, each as an invocation and a completion, with
`value = {"fault": ..., "id": ..., "nodes": {node: detail}, "evidence": {node: what a probe saw}, "seen": bool}`.
Histories of Jepsen use `start...` and `stop...` instead, often as two ops of type `info`. Those are also read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from results.figures import SECOND
from results.history import History
from results.op import INVOKE, Op
from results.strikes import Effect


@dataclass(frozen=True, slots=True)
class FaultInterval:
    """One fault as it happened.

    start_ns  the begin of its injection; end_ns: the end of its heal, None: no heal was seen. Both in ns since the
              start of the run: the widest interval in which the fault may have had an effect.
    nodes     node -> the action there (JSON values), in the order of the op.
    impairs   node -> the peers it cannot hear (`results.strikes.CLIENTS`: the clients); a node that names itself is
              down or stopped.
    effects   its effects, by kind (`results.strikes.Effect`).
    evidence  node -> the probe's result after the injection; `after_heal`: the same after the heal.
    spells    (begin, end, effect) in ns, if an effect lasted for a part of the time; None: all lasted all the time.
    seen      True if a probe saw the effect.
    error     the error of injection or heal, one line, or None.
    """

    fault: str
    id: int
    start_ns: int
    end_ns: int | None
    nodes: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)
    seen: bool = False
    after_heal: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    impairs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    effects: Sequence[Effect] = ()
    spells: Sequence[tuple[int, int, Effect]] | None = None

    def parts(self) -> Sequence[FaultInterval]:
        """An interval for each of its spells; itself if it has none."""
        if self.spells is None:
            return [self]
        return [
            replace(
                self,
                start_ns=begin,
                end_ns=end,
                effects=[effect],
                impairs={node: peers for node, peers in self.impairs.items() if node == effect.node},
                spells=None,
            )
            for begin, end, effect in self.spells
        ]

    @property
    def label(self) -> str:
        """`#3 partition-halves n1 n2`: the places, and nodes that an action at one place struck as well."""
        at = {place.partition(" ")[0] for place in self.nodes}
        more = dict.fromkeys(e.node for e in self.effects if e.kind != "cut-off" and e.node not in at)
        return " ".join([f"#{self.id}", self.fault, *self.nodes, *more])

    def covers(self, start_ns: int, end_ns: int | None) -> bool:
        """True if it overlaps the interval; an end of None is "for ever" on either side."""
        return (end_ns is None or self.start_ns <= end_ns) and (self.end_ns is None or start_ns <= self.end_ns)


def fault_intervals(history: History) -> list[FaultInterval]:
    """The faults of a history in order of injection. Nemesis ops of any other kind are left out."""
    found: dict[int, FaultInterval] = {}
    for op in history.nemesis:
        value: Mapping[str, Any] = op.value if isinstance(op.value, Mapping) else {}
        if op.f == "inject":
            number = _number(value, len(found) + 1)
            found[number] = _injected(found.get(number), number, op, value)
        elif op.f == "heal":
            number = _number(value, -1)
            if number in found:
                found[number] = _healed(found[number], op, value)
        elif op.f.startswith("start"):
            _started(found, op)
        elif op.f.startswith("stop"):
            _stopped(found, op)
    return list(found.values())


def lanes(shown: Sequence[FaultInterval], end_ns: int) -> list[int]:
    """A lane for each band (given in order of start), so that no two that overlap share one: as few as possible."""
    free_at: list[int] = []
    chosen: list[int] = []
    for interval in shown:
        lane = next((i for i, free in enumerate(free_at) if free <= interval.start_ns), len(free_at))
        until = end_ns if interval.end_ns is None else interval.end_ns
        free_at[lane : lane + 1] = [until]
        chosen.append(lane)
    return chosen


def _injected(interval: FaultInterval | None, number: int, op: Op, value: Mapping[str, Any]) -> FaultInterval:
    if interval is None:
        interval = FaultInterval(str(value.get("fault", "fault")), number, op.time, None)
    return replace(
        interval,
        nodes=_details(value.get("nodes")) or interval.nodes,
        evidence=_texts(value.get("evidence")) or interval.evidence,
        seen=bool(value.get("seen", interval.seen)),
        error=op.error or interval.error,
        impairs=_peers(value.get("impairs")) or interval.impairs,
        effects=_effects(value.get("effects")) or interval.effects,
    )


def _healed(interval: FaultInterval, op: Op, value: Mapping[str, Any]) -> FaultInterval:
    if op.type == INVOKE:
        return interval
    if op.error:
        return replace(interval, error=op.error)
    spells = _spells(value["spells"], interval.start_ns, op.time) if "spells" in value else None
    return replace(interval, end_ns=op.time, after_heal=_texts(value.get("evidence")), spells=spells)


def _started(found: dict[int, FaultInterval], op: Op) -> None:
    """Opens a band for `start-partition`, or plain `start`, unless it is the completion of the one just opened."""
    name = op.f.removeprefix("start").strip("-_ ") or "fault"
    last = next((b for b in reversed(found.values()) if b.fault == name and b.end_ns is None), None)
    if last is None:
        found[len(found) + 1] = FaultInterval(name, len(found) + 1, op.time, None, seen=True, error=op.error)


def _stopped(found: dict[int, FaultInterval], op: Op) -> None:
    """Closes the latest band of that name; the completion of the stop moves its end."""
    name = op.f.removeprefix("stop").strip("-_ ") or "fault"
    last = next((b for b in reversed(found.values()) if b.fault == name), None)
    if last is not None:
        found[last.id] = replace(last, end_ns=op.time)


def _effects(reported: Any) -> list[Effect]:
    if not isinstance(reported, Sequence):
        return []
    found = []
    for effect in reported:
        with suppress(KeyError, TypeError, AttributeError):  # a foreign history may have anything there
            found.append(Effect.from_json(effect))
    return found


def _spells(reported: Any, start_ns: int, end_ns: int) -> list[tuple[int, int, Effect]] | None:
    """The spells of a heal, by their times before its end, in order. None for anything else."""
    try:
        found = [
            (*(max(start_ns, end_ns - int(one[key] * SECOND)) for key in ("began_s", "ended_s")), one["effect"])
            for one in reported
        ]
        return sorted(((begin, end, Effect.from_json(effect)) for begin, end, effect in found), key=lambda s: s[:2])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _number(value: Mapping[str, Any], otherwise: int) -> int:
    number = value.get("id")
    return number if isinstance(number, int) else otherwise


def _details(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(node): detail for node, detail in value.items()}
    return {str(node): None for node in value} if isinstance(value, list | tuple) else {}


def _peers(value: object) -> dict[str, Sequence[str]]:
    return {node: [str(p) for p in peers] for node, peers in _details(value).items() if isinstance(peers, list | tuple)}


def _texts(value: object) -> dict[str, str]:
    return {node: str(reported) for node, reported in _details(value).items()}
