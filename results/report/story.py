# SPDX-License-Identifier: Apache-2.0
"""The anomalies in the report: each with the ops that prove it, a timeline, and the statuses of the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from results.fault_intervals import FaultInterval
from results.figures import clock
from results.history import Call
from results.op import INVOKE, Op
from results.record import RunRecord
from results.report import timeline
from results.report.bands import measured
from results.report.entries import Entry, HeadLine, entries, head_lines, meaning, named
from results.report.words import Pair, call_text, duration, flat, lines, number, op_text, precise, text
from results.verdict import Anomaly, Judgement

TOLD = 12
"""The number of anomalies described in full, with a timeline."""
LISTED = 300
"""The number of further anomalies with a line each."""
ROWS = 40
"""The number of ops of an anomaly's core in its table."""


@dataclass(frozen=True)
class OpRow:
    """One operation of the core: both of its ends in one line."""

    index: str
    invoked: str
    completed: str
    process: str
    outcome: str
    what: str
    node: str
    error: str
    faults: str


@dataclass(frozen=True)
class NodeReport:
    """A node's report around the anomaly: facts, and its last log lines as preformatted text."""

    name: str
    facts: Sequence[Pair]
    log: str


@dataclass(frozen=True)
class AnomalyStory:
    """An anomaly in full. also: the number of further ops that prove it, beyond the table. others: the anomalies of
    other names in which the same event shows; also_names: these names, with their numbers of cases.
    """

    id: str
    name: str
    checker: str
    cases: str
    meaning: str
    summary: str
    key: str | None
    window: str
    legal: str
    known: str
    picture: Markup | None
    faults: Sequence[str]
    rows: Sequence[OpRow]
    also: int
    nodes: Sequence[NodeReport]
    details: Sequence[Pair]
    others: Sequence[AnomalyStory] = ()
    also_names: str = ""


@dataclass(frozen=True)
class Told:
    """The anomalies of a run: a line for each name, the first in full, the next in a line each, and the number of those
    left out. more: entries without a line. total: all anomalies.
    """

    lines: Sequence[HeadLine]
    more: int
    stories: Sequence[AnomalyStory]
    listed: Sequence[Listed]
    unlisted: int
    total: int


@dataclass(frozen=True)
class Listed:
    """An anomaly in one line."""

    name: str
    checker: str
    key: str
    when: str
    summary: str
    legal: str
    known: str


def tell(record: RunRecord, judgement: Judgement, faults: Sequence[FaultInterval]) -> Told:
    """The anomalies as entries (`results.report.entries`).

    Those that fail the run come before permitted ones, and new ones before known ones. The first three of each name
    come before further ones: twelve stale reads must not hide the one lost write.
    """
    found = [(r.checker, a) for r in judgement.results for a in r.anomalies]
    if not found:
        return Told((), 0, (), (), 0, 0)
    nth: dict[str, int] = {}
    ranked: list[tuple[tuple[bool, bool, bool], tuple[str, Anomaly]]] = []
    for checker, anomaly in found:
        nth[anomaly.name] = nth.get(anomaly.name, 0) + 1
        rank = (anomaly.legal is not None, bool(_known(judgement, anomaly)), nth[anomaly.name] > 3)
        ranked.append((rank, (checker, anomaly)))
    ranked.sort(key=lambda entry: entry[0])
    index = _Index(record)
    events = entries([pair for _, pair in ranked], index.call_of)
    stories: list[AnomalyStory] = []
    listed: list[Listed] = []
    anchors: list[str] = []
    room = TOLD
    for event in events:
        # An event with many names takes the place of as many.
        whole = room > 0
        room -= len(event.members)
        anchors.append(f"anomaly-{len(stories) + 1}" if whole else "more")
        if whole:
            stories.append(_event(anchors[-1], event, judgement, index, faults))
        else:
            listed += [_listed(checker, a, _known(judgement, a)) for checker, a in event.members]
    lines, more = head_lines(list(zip(events, anchors, strict=True)), judgement)
    return Told(lines, more, stories, listed[:LISTED], max(0, len(listed) - LISTED), len(found))


def _event(
    id_: str, event: Entry, judgement: Judgement, index: _Index, faults: Sequence[FaultInterval]
) -> AnomalyStory:
    first, *others = [
        _describe(f"{id_}-{i}" if i else id_, checker, a, _known(judgement, a), index, faults)
        for i, (checker, a) in enumerate(event.members)
    ]
    return replace(first, others=others, also_names=named(a for _, a in event.members[1:]))


def _known(judgement: Judgement, anomaly: Anomaly) -> str:
    """`finding 5`, or `finding 5, finding 8`; empty if no finding explains the anomaly."""
    return ", ".join(f"finding {finding.id}" for finding in judgement.known_as(anomaly))


class _Index:
    """The ops of a history by their index and key."""

    def __init__(self, record: RunRecord) -> None:
        history = record.history
        self.calls = history.clients.calls
        self.by_key = history.by_key
        self.call_of: dict[int, Call] = {}
        for call in history.calls:
            self.call_of[call.invoke.index] = call
            if call.completion is not None:
                self.call_of[call.completion.index] = call
        self.op_of: dict[int, Op] = {op.index: op for op in history}


def _describe(
    id_: str, checker: str, anomaly: Anomaly, known: str, index: _Index, faults: Sequence[FaultInterval]
) -> AnomalyStory:
    ops = frozenset(anomaly.ops)
    calls = index.by_key.get(anomaly.key, ()) if anomaly.key is not None else index.calls
    scene = timeline.choose(calls, ops, anomaly.window)
    picture = timeline.draw(scene, faults) if scene.calls and (ops or anomaly.window) else None
    span = anomaly.window or ((scene.start, scene.end) if picture is not None else None)
    rows = list(_rows(sorted(ops), index, faults))
    return AnomalyStory(
        id=id_,
        name=text(anomaly.name, 80),
        checker=text(checker, 80),
        cases=number(anomaly.cases),
        meaning=meaning(anomaly.name),
        summary=text(anomaly.summary, 2000),
        key=text(anomaly.key, 120) if anomaly.key is not None else None,
        window=_window(anomaly.window),
        legal=text(anomaly.legal, 800) if anomaly.legal is not None else "",
        known=known,
        picture=picture,
        faults=[_in_force(b) for b in faults if span and b.covers(*span)],
        rows=rows[:ROWS],
        also=max(0, len(rows) - ROWS),
        nodes=list(_nodes(anomaly.details.get("nodes"))),
        details=list(_details(anomaly.details)),
    )


def _listed(checker: str, anomaly: Anomaly, known: str) -> Listed:
    return Listed(
        text(anomaly.name, 80),
        text(checker, 80),
        text(anomaly.key, 60) if anomaly.key is not None else "",
        clock(anomaly.window[0]) if anomaly.window else "",
        text(anomaly.summary, 300),
        text(anomaly.legal, 200) if anomaly.legal is not None else "",
        known,
    )


def _window(window: tuple[int, int] | None) -> str:
    if window is None:
        return ""
    return f"{clock(window[0])} to {clock(window[1])} ({duration(window[1] - window[0])})"


def _in_force(interval: FaultInterval) -> str:
    until = f"healed {clock(interval.end_ns)}" if interval.end_ns is not None else "not healed in this history"
    said = f"{interval.label}: injected {clock(interval.start_ns)}, {until}; measured: {measured(interval)}"
    return text(said, 400)


def _rows(ops: Sequence[int], index: _Index, faults: Sequence[FaultInterval]) -> Iterator[OpRow]:
    """A row per call; an op that belongs to no call (a stray completion) stands alone."""
    shown: set[int] = set()
    for at in ops:
        call, op = index.call_of.get(at), index.op_of.get(at)
        if call is not None and call.invoke.index not in shown:
            shown.add(call.invoke.index)
            yield _call_row(call, faults)
        elif call is None and op is not None:
            yield OpRow(
                str(op.index),
                precise(op.time) if op.type == INVOKE else "never",
                precise(op.time) if op.type != INVOKE else "never",
                _process(op),
                op.type,
                op_text(op),
                text(op.extra.get("node") or "", 40),
                text(op.error) if op.error else "",
                _faults_at(faults, op.time, op.time),
            )


def _call_row(call: Call, faults: Sequence[FaultInterval]) -> OpRow:
    done = call.completion
    node = call.invoke.extra.get("node") or (done.extra.get("node") if done is not None else None)
    return OpRow(
        str(call.invoke.index) if done is None else f"{call.invoke.index}–{done.index}",
        precise(call.start),
        "never" if call.end is None else f"{precise(call.end)} ({duration(call.end - call.start)} later)",
        _process(call.invoke),
        call.outcome,
        call_text(call),
        text(node, 40) if node else "",
        text(done.error) if done is not None and done.error else "",
        _faults_at(faults, call.start, call.end if call.end is not None else call.start),
    )


def _process(op: Op) -> str:
    return str(op.process) if op.is_client else "nemesis"


def _faults_at(faults: Sequence[FaultInterval], start: int, end: int) -> str:
    return ", ".join(text(f"#{b.id} {b.fault}", 60) for b in faults if b.covers(start, end))


def _nodes(nodes: object) -> Iterator[NodeReport]:
    if not isinstance(nodes, Mapping):
        return
    for name, label in nodes.items():
        facts = dict(label) if isinstance(label, Mapping) else {"said": label}
        log = next((facts.pop(k) for k in ("log", "last_log_lines", "lines") if k in facts), None)
        if isinstance(facts.get("time"), int):
            facts["asked at"] = clock(facts.pop("time"))
        yield NodeReport(text(name, 40), [(k, v[:300]) for k, v in flat(facts)], lines(log, 8000) if log else "")


def _details(details: Mapping[str, Any]) -> Iterator[Pair]:
    """The rest of the details, each as text: short values on a line, others indented."""
    for name, value in details.items():
        if name == "nodes" and isinstance(value, Mapping):
            continue
        of_texts = isinstance(value, list | tuple) and any(isinstance(v, str) for v in value)
        several = (of_texts and len(value) > 1) or (isinstance(value, str) and "\n" in value)
        long = isinstance(value, Mapping | list | tuple) and len(text(value, 200)) > 110
        label = lines(value, 8000) if several or long else text(value, 2000)
        yield text(name, 80).replace("_", " "), label
