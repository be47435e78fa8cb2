# SPDX-License-Identifier: Apache-2.0
"""The sheet of a certification: for each fault what held, the worst loss, and the longest silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.plan.plan import PlanError
from results.reading import read_json
from results.record import RunRecord
from results.verdict import Judgement, Verdict
from rocketmq_harness.certify.suite import promise_of, promises

FORMAT: Final = 1

LOST: Final = "lost"
"""The anomaly whose cases are messages."""

_TRIED: Final = ("stats", "faults", "complete", "well-formed")
"""Checkers without which a run tried too little to judge a promise."""


@dataclass(frozen=True)
class Run:
    """One run of a fault.

    folder  of the run; "": it has none. why: the reason why it judges nothing; "": it does.
    undecided  the reason why a judge of it decided nothing, so that what it did not break may be broken; "": none.
    broken  promise -> anomaly -> number of cases. permitted: reasons of anomalies that the settings permit.
    lost    acknowledged messages that are gone, those included that the settings permit to be lost. acknowledged: all.
    silence_s  the longest time without an acknowledgement. known: ids of findings that the run shows.
    """

    folder: str
    why: str = ""
    undecided: str = ""
    broken: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    permitted: Sequence[str] = ()
    lost: int = 0
    acknowledged: int = 0
    silence_s: float | None = None
    known: Sequence[int] = ()
    new: Sequence[str] = ()


@dataclass
class Row:
    """A fault and its runs. left_out: the reason why it has no runs; "": it has. notes: settings that only these
    runs lack.
    """

    fault: str
    why: str
    runs: list[Run] = field(default_factory=list)
    left_out: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def judged(self) -> list[Run]:
        return [run for run in self.runs if not run.why]

    def tried(self, promise: str) -> list[Run]:
        """The runs that decided whether a promise holds."""
        return [run for run in self.judged if promise in run.broken or not run.undecided]

    def held(self, promise: str) -> int:
        """The number of runs in which a promise held, of those that `tried` it."""
        return sum(promise not in run.broken for run in self.tried(promise))


@dataclass
class Sheet:
    """version, topology, replicas: as asked. changed: settings that the runs do not have as the files have them.
    harness: the harness's version, and its machine.
    """

    version: str
    topology: str
    replicas: int
    files: Mapping[str, str]
    changed: Sequence[str]
    notes: Sequence[str]
    harness: str
    rows: list[Row] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @staticmethod
    def read(path: Path) -> Sheet:
        """Raises PlanError for a file that is no sheet."""
        try:
            data = read_json(path)
            if data.pop("format") != FORMAT:
                raise PlanError(f"{path}: a sheet of another version of the harness; run certify again")
            rows = [Row(**{**row, "runs": [Run(**run) for run in row["runs"]]}) for row in data.pop("rows")]
            return Sheet(**data, rows=rows)
        except OSError as problem:
            raise PlanError(f"{path}: cannot be read: {problem.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PlanError(f"{path}: not a sheet of harness certify, which is a JSON file") from None


def judged_run(folder: Path, record: RunRecord, judgement: Judgement) -> Run:
    """The part of a run that a sheet keeps."""
    results = {result.checker: result for result in judgement.results}
    open_ = [name for name in _TRIED if name in results and results[name].verdict != Verdict.VALID]
    if judgement.verdict == Verdict.HARNESS_FAILURE or open_:
        where = results[open_[0]].reason if open_ else judgement.reason
        return Run(str(folder), why=f"tried too little: {where}")
    found = [a for a in judgement.anomalies if a.doubt is None]
    left = [f"{r.checker}: {r.reason}" for r in judgement.results if r.verdict == Verdict.UNKNOWN]
    left += [f"{a.name}: {a.doubt}" for a in judgement.anomalies if a.doubt is not None]
    broken: dict[str, Counter[str]] = {}
    for anomaly in found:
        broken.setdefault(promise_of(anomaly.name), Counter())[anomaly.name] += anomaly.cases
    silences = [r.stats["longest_silence_s"] for r in judgement.results if "longest_silence_s" in r.stats]
    acks = [r.stats["acks"] for r in judgement.results if "acks" in r.stats]
    return Run(
        str(folder),
        undecided="; ".join(left),
        broken={promise: dict(counts) for promise, counts in broken.items()},
        permitted=sorted({a.legal for a in found if a.legal is not None}),
        lost=sum(a.cases for a in found if a.name == LOST),
        acknowledged=max(acks, default=0),
        silence_s=max(silences, default=None),
        known=[finding.id for finding in judgement.known],
        new=list(judgement.new or ()),
    )


def verdict(sheet: Sheet) -> Verdict:
    """`invalid` if a promise was broken; `unknown` if none was, and a row that was not left out judged nothing, or a
    judge of one of its runs decided nothing.
    """
    if any(run.broken for row in sheet.rows for run in row.judged):
        return Verdict.INVALID
    decided = all(row.left_out or (row.judged and not any(run.undecided for run in row.runs)) for row in sheet.rows)
    return Verdict.VALID if decided else Verdict.UNKNOWN


def lines(sheet: Sheet) -> Iterator[str]:
    """The sheet as text."""
    yield f"RocketMQ {sheet.version}, {sheet.topology}, {sheet.replicas} replicas; {sheet.harness}"
    yield "files: " + ", ".join(f"{kind} {name}" for kind, name in sheet.files.items())
    yield ""
    if sheet.changed:
        yield f"{len(sheet.changed)} settings of the files that the runs do not have as they are:"
        yield from (f"  {text}" for text in sheet.changed)
        yield ""
    yield from sheet.notes
    names = [one.name for one in promises()]
    head = ["fault", *names, "worst loss", "longest silence", "known", "new"]
    table = [head, *(_cells(row, names) for row in sheet.rows if not row.left_out)]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    yield from (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
    )
    yield ""
    yield from (f"  {one.name:<8}{one.text}" for one in promises())
    yield "  k of n: a promise held in k of the n runs that tried it; - : no run tried it."
    for row in sheet.rows:
        if row.left_out:
            yield f"{row.fault}: {row.left_out}"
        yield from (f"{row.fault}: {note}" for note in row.notes)
        for run in row.runs:
            yield from _explained(row, run)


def _cells(row: Row, names: Sequence[str]) -> list[str]:
    if not row.judged:
        return [row.fault, *("-" for _ in names), "-", "-", "-", "-"]
    silences = [run.silence_s for run in row.judged if run.silence_s is not None]
    known = sorted({number for run in row.judged for number in run.known})
    new = sorted({name for run in row.judged for name in run.new})
    worst = max(row.judged, key=lambda run: run.lost)
    return [
        row.fault,
        *(f"{row.held(name)} of {len(tried)}" if (tried := row.tried(name)) else "-" for name in names),
        f"{worst.lost:,} of {worst.acknowledged:,}" if worst.lost else "0",
        f"{max(silences):.1f} s" if silences else "-",
        ", ".join(map(str, known)) or "-",
        ", ".join(new) or "-",
    ]


def _explained(row: Row, run: Run) -> Iterator[str]:
    if run.why:
        yield f"{row.fault}: {run.why}  {run.folder}"
    if run.undecided:
        yield f"{row.fault}: not decided: {run.undecided}  {run.folder}"
    for promise, anomalies in run.broken.items():
        counts = ", ".join(f"{count:,} {name}" for name, count in anomalies.items())
        yield f"{row.fault}: {promise}: {counts}  {run.folder}"
    yield from (f"{row.fault}: permitted: {why}" for why in run.permitted)


def compared(first: Sheet, second: Sheet) -> Iterator[str]:
    """Two sheets side by side: rows that differ, then what is the same."""
    yield f"A  RocketMQ {first.version}, {first.topology}, {first.replicas} replicas"
    yield f"B  RocketMQ {second.version}, {second.topology}, {second.replicas} replicas"
    for word, ours, theirs in (("A", first.changed, second.changed), ("B", second.changed, first.changed)):
        yield from (f"   only {word}: {text}" for text in ours if text not in theirs)
    names = [one.name for one in promises()]
    rows = {row.fault: row for row in second.rows}
    table = [["fault", *names, "worst loss", "longest silence", "known", "new"]]
    same = []
    for row in first.rows:
        other = rows.pop(row.fault, Row(row.fault, row.why))
        a, b = _cells(row, names), _cells(other, names)
        if a == b:
            same.append(row.fault)
        table.append([a[0], *(x if x == y else f"{x} | {y}" for x, y in zip(a[1:], b[1:], strict=True))])
    for row in rows.values():
        cells = _cells(row, names)
        table.append([cells[0], *(f"- | {cell}" for cell in cells[1:])])
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    yield ""
    yield from (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
    )
    yield ""
    yield f"the same in both: {', '.join(same) or 'no row'}; A | B where they differ"
