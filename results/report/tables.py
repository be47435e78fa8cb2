# SPDX-License-Identifier: Apache-2.0
"""The tables of the report: faults, changes of leader, counts and latencies, errors."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.fault_intervals import FaultInterval
from results.figures import clock, quantile
from results.history import Call
from results.op import FAIL, INFO, OK
from results.record import Observation
from results.report.words import Pair, duration, flat, number, text
from results.verdict import Judgement

ERRORS = 20
"""The largest number of kinds of errors in the table."""


@dataclass(frozen=True)
class FaultRow:
    """One fault: place, time, evidence, and the time until the service continued after its heal."""

    id: int
    fault: str
    nodes: Sequence[Pair]
    injected: str
    healed: str
    lasted: str
    seen: bool
    evidence: Sequence[Pair]
    after_heal: Sequence[Pair]
    error: str
    during: str
    back: str


@dataclass(frozen=True)
class Change:
    """A node was first seen to lead in a term. `beside`: the other nodes that reported to lead at that time."""

    when: str
    node: str
    term: str
    before: str
    beside: str


@dataclass(frozen=True)
class StatsRow:
    """Counts and latencies (of the acknowledged ones) of one kind of operation."""

    f: str
    calls: str
    ok: str
    fail: str
    info: str
    quantiles: Sequence[str]


@dataclass(frozen=True)
class ErrorRow:
    """A kind of error: its number, the outcome, the kinds of operation, an example."""

    times: str
    type: str
    fs: str
    example: str


def leader_changes(observations: Sequence[Observation]) -> list[Change]:
    """The times when a node was first seen to lead in a term, in order, each with the other reported leaders."""
    label: dict[str, Observation] = {}
    led: dict[tuple[str, int | None], None] = {}
    changes: list[Change] = []
    for seen in observations:
        if seen.role == "leader" and (seen.node, seen.term) not in led:
            before = next(reversed(led)) if led else None
            others = [o for o in label.values() if o.role == "leader" and o.node != seen.node]
            changes.append(
                Change(
                    clock(seen.time),
                    text(seen.node, 40),
                    text(seen.term),
                    text(f"{before[0]}, term {before[1]}", 60) if before else "none seen",
                    "; ".join(text(f"{o.node} in term {o.term} (at {clock(o.time)})", 80) for o in others),
                )
            )
            led[seen.node, seen.term] = None
        label[seen.node] = seen
    return changes


def fault_rows(
    faults: Sequence[FaultInterval], calls: Sequence[Call], judgement: Judgement, last: int
) -> list[FaultRow]:
    acks = sorted(c.end for c in calls if c.outcome == OK and c.end is not None)
    done = sorted((c.end, c.outcome) for c in calls if c.end is not None)
    recovery: dict[str, Any] = {}
    for result in judgement.results:
        found = result.stats.get("recovery_s")
        recovery.update(found if isinstance(found, Mapping) else {})
    rows = []
    for b in faults:
        end = last if b.end_ns is None else b.end_ns
        tally = Counter(o for _, o in done[bisect_left(done, (b.start_ns, "")) : bisect_right(done, (end, "~"))])
        rows.append(
            FaultRow(
                b.id,
                text(b.fault, 60),
                [(text(node, 40), _detail(node, detail)) for node, detail in b.nodes.items()],
                clock(b.start_ns),
                clock(b.end_ns) if b.end_ns is not None else "not seen",
                duration(end - b.start_ns),
                b.seen,
                [(text(k, 40), text(v)) for k, v in b.evidence.items()],
                [(text(k, 40), text(v)) for k, v in b.after_heal.items()],
                text(b.error) if b.error else "",
                ", ".join(f"{number(tally[o])} {o}" for o in (OK, FAIL, INFO) if tally[o]) or "none",
                _back(b, acks, recovery.get(f"{b.fault} {b.id}", ...)),
            )
        )
    return rows


def _detail(node: str, detail: object) -> str:
    """The fault's action at a node, as text; a list of peers: the nodes that it cannot hear."""
    if detail in (None, {}, [], "", True) or detail == node:
        return ""
    if isinstance(detail, list | tuple):
        return "drops packets from " + " ".join(text(d, 40) for d in detail)
    return ", ".join(f"{k} {v}" for k, v in flat(detail)) if isinstance(detail, Mapping) else text(detail, 120)


def _back(interval: FaultInterval, acks: Sequence[int], message: object) -> str:
    """The time from the heal to the first acknowledgement: by the availability checker, else by the first `ok`."""
    if interval.end_ns is None:
        return "–"
    if isinstance(message, int | float):
        return duration(message * 1e9)
    at = bisect_right(acks, interval.end_ns)
    return duration(acks[at] - interval.end_ns) if message is ... and at < len(acks) else "never"


def stats(calls: Sequence[Call]) -> list[StatsRow]:
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.invoke.f, []).append(call)
    if len(groups) > 1:
        groups["all"] = list(calls)
    rows = []
    for f, group in groups.items():
        took = sorted(float(c.end - c.start) for c in group if c.outcome == OK and c.end is not None)
        shown = [duration(quantile(took, q)) for q in (0.5, 0.95, 0.99, 1.0)] if took else ["–"] * 4
        tally = Counter(c.outcome for c in group)
        rows.append(
            StatsRow(
                text(f, 60), number(len(group)), number(tally[OK]), number(tally[FAIL]), number(tally[INFO]), shown
            )
        )
    return rows


_VARIES = re.compile(r"0x[0-9a-f]+|\d{2,}|\d+\.\d+")


def errors(calls: Sequence[Call]) -> list[ErrorRow]:
    """The kinds of errors by frequency. Errors that differ in their numbers only are one kind."""
    times: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], str] = {}
    fs: dict[tuple[str, str], set[str]] = {}
    for call in calls:
        done = call.completion
        if done is not None and done.type != OK:
            label = done.error or "no reason given"
            which = (done.type, _VARIES.sub("…", label[:300]))
            times[which] += 1
            example.setdefault(which, label)
            fs.setdefault(which, set()).add(done.f)
    return [
        ErrorRow(number(n), which[0], text(", ".join(sorted(fs[which])), 80), text(example[which]))
        for which, n in times.most_common(ERRORS)
    ]
