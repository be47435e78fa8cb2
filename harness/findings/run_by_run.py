# SPDX-License-Identifier: Apache-2.0
"""The promises of a document by kinds of clients: tables of Markdown, from a record that has each run.

The first table has a row for each promise and a column for each kind: `k of n` runs that could judge it kept it, with
the anomalies that broke it, and the findings that explain these. The second one has the runs behind it: a row for each
topology and fault. What was not run is named in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from harness.findings.documents import Document, broken, linked
from harness.findings.judged_runs import read_runs, start_of, write_runs
from results.record import RunRecord
from results.verdict import Judgement

_NOT_RUN: Final = "not run"
_NOT_JUDGED: Final = "-"
_NEW: Final = "new"


@dataclass(frozen=True)
class Tried:
    """One run.

    began   the time of its start. kind: of its clients, the column. version: of the servers, with their mends.
    held    the ids of the promises that it could judge and that held.
    broken  id of a promise -> anomaly -> the ids of the findings that explain it; `new`: one of them is unexplained.
    known, new  findings and unexplained anomalies of the whole run, also such as break no promise of the document.
    """

    began: str
    kind: str
    version: str
    topology: str
    fault: str
    verdict: str
    held: Sequence[str] = ()
    broken: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    known: Sequence[int] = ()
    new: Sequence[str] = ()


def tried(document: Document, record: RunRecord, judgement: Judgement) -> Tried:
    """Returns a run's part of the record. The judgement must be explained (`harness.findings.known`)."""
    held, found = [], {}
    for promise in document.promises:
        names = broken(promise, record, judgement) if promise.workload == record.plan.get("workload") else None
        if names:
            found[promise.id] = {name: _why(name, judgement) for name in sorted(names)}
        elif names is not None:
            held.append(promise.id)
    server = record.plan.get("server", {})
    mends = ",".join(map(str, server.get("mends", ())))
    return Tried(
        start_of(record),
        document.column(record.plan),
        (record.version or str(server.get("version", ""))) + (f" mended {mends}" if mends else ""),
        str(server.get("topology") or record.deployment.topology),
        ", ".join(document.faults_of(record.plan)),
        judgement.verdict.value,
        held,
        found,
        [finding.id for finding in judgement.known],
        list(judgement.new or ()),
    )


def _why(anomaly: str, judgement: Judgement) -> list[str]:
    known = [str(finding.id) for finding in judgement.known if anomaly in finding.anomalies]
    return known + ([_NEW] if anomaly in (judgement.new or ()) else [])


def tables(
    document: Document,
    runs: Iterable[tuple[RunRecord, Judgement]],
    path: Path,
    *,
    kept: bool,
    add: bool,
) -> tuple[int, list[str]]:
    """The number of runs, and the lines of both tables. kept: with those of the record (a file); add: they are written
    there. Raises OSError, ValueError.
    """
    now = {one.began: one for one in (tried(document, *run) for run in runs)}
    found = ({began: _read(one, path) for began, one in read_runs(path).items()} if kept else {}) | now
    if add:
        write_runs(path, {began: asdict(one) for began, one in found.items()})
    return len(now), [*by_promise(document, found.values()), "", *by_fault(document, found.values())]


def _read(data: Mapping[str, object], path: Path) -> Tried:
    try:
        return Tried(**data)  # type: ignore[arg-type]
    except TypeError as problem:
        raise ValueError(f"{path}: {problem}") from None


def by_promise(document: Document, runs: Iterable[Tried]) -> Iterator[str]:
    """Lines of Markdown: a row for each promise."""
    found = list(runs)
    columns = _columns(document, found)
    yield "| promise | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for promise in document.promises:
        cells = [_held(promise.id, [one for one in found if one.kind == kind]) for kind in columns]
        yield f"| {promise.id}: {promise.text} | " + " | ".join(cells) + " |"


def _held(promise: str, runs: Sequence[Tried]) -> str:
    """`3 of 4; [undelivered] in 1 (12)`, with a link to the anomaly's chapter."""
    if not runs:
        return _NOT_RUN
    held = sum(promise in one.held for one in runs)
    wrong = [one.broken[promise] for one in runs if promise in one.broken]
    if not held and not wrong:
        return _NOT_JUDGED
    parts = [f"{held} of {held + len(wrong)}"]
    for name in sorted({name for names in wrong for name in names}):
        cases = [names[name] for names in wrong if name in names]
        why = sorted({word for words in cases for word in words}, key=_order)
        parts.append(f"{linked(name)} in {len(cases)}" + (f" ({', '.join(why)})" if why else ""))
    return "; ".join(parts)


def by_fault(document: Document, runs: Iterable[Tried]) -> Iterator[str]:
    """Lines of Markdown: a row for each version, topology and fault, with the verdicts of the runs of each kind."""
    found = list(runs)
    columns = _columns(document, found)
    yield "| servers | fault | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 2) + "|"
    versions = sorted({one.version for one in found if " " not in one.version}) or [""]
    faults = list(dict.fromkeys(document.faults.values()))
    rows = [(v, t, f) for v in versions for t in document.topologies for f in faults]
    rows += sorted({(one.version, one.topology, one.fault) for one in found} - set(rows))
    for row in rows:
        version, topology, fault = row
        there = [one for one in found if (one.version, one.topology, one.fault) == row]
        never = document.never.get(fault, ())
        cells = [
            _verdicts([one for one in there if one.kind == kind], _NOT_JUDGED if kind in never else _NOT_RUN)
            for kind in columns
        ]
        yield f"| {version} {topology} | {fault} | ".replace("|  ", "| ") + " | ".join(cells) + " |"


def _verdicts(runs: Sequence[Tried], without: str) -> str:
    """`valid; invalid (72; new: slow-to-group)`; the other text without a run."""
    return "; ".join(map(_verdict, sorted(runs, key=lambda one: one.began))) or without


def _verdict(run: Tried) -> str:
    why = [", ".join(map(str, run.known))] if run.known else []
    why += [f"{_NEW}: " + ", ".join(f"`{name}`" for name in run.new)] if run.new else []
    return f"{run.verdict} ({'; '.join(why)})" if why else run.verdict


def _columns(document: Document, runs: Sequence[Tried]) -> list[str]:
    """All kinds: those that the document names, in its order, and others that ran."""
    named = list(dict.fromkeys(document.kinds.values()))
    return named + sorted({one.kind for one in runs} - set(named))


def _order(word: str) -> tuple[bool, int]:
    return word == _NEW, int(word) if word.isdecimal() else 0
